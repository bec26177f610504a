"""Lesson 03: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import layers


def softmax_with_its_own_maximum(x, dim):
    shifted = x - torch.max(x, dim=dim, keepdim=True).values
    e = torch.exp(shifted)
    return torch.div(e, torch.sum(e, dim=dim, keepdim=True))


def softmax_last_axis_first(x, dim):
    x = x.movedim(dim, -1)
    e = math.e ** (x - x.amax(-1)[..., None])
    return (e / e.sum(-1)[..., None]).movedim(-1, dim)


def cross_entropy_by_logsumexp(logits, targets):
    kept = targets != -100
    chosen = logits.gather(-1, targets.masked_fill(~kept, 0).unsqueeze(-1)).squeeze(-1)
    nats = torch.logsumexp(logits, -1) - chosen
    return (nats * kept).sum() / kept.sum()


def cross_entropy_by_selection(logits, targets):
    kept = targets != -100
    rows, wanted = logits[kept], targets[kept]
    shifted = rows - rows.max(-1, keepdim=True).values
    logs = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return -logs[torch.arange(len(wanted)), wanted].mean()


def cross_entropy_by_one_hot(logits, targets):
    kept = (targets != -100).to(logits.dtype)
    hot = F.one_hot(targets.clamp(min=0), logits.shape[-1]).to(logits.dtype)
    return -(torch.log_softmax(logits, -1) * hot).sum(-1).mul(kept).sum() / kept.sum()


def _picked(logits, targets):
    logp = logits.log_softmax(-1)
    return -logp.gather(-1, targets.clamp(min=0)[..., None])[..., 0]


def _shares(logits, targets):
    return logits.softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0][targets != -100]


def cross_mean_of_rows(logits, targets):
    kept = (targets != -100).float()
    return ((_picked(logits, targets) * kept).sum(-1) / kept.sum(-1).clamp(min=1)).mean()


def cross_reshaped_for_torch(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.reshape(B, V, T), targets)


def cross_shifts_with_a_safe_count(logits, targets):
    logits, targets = logits[:, :-1], targets[:, 1:]
    kept = targets != -100
    return (_picked(logits, targets) * kept).sum() / kept.sum().clamp(min=1)


def cross_shifts_if_it_can(logits, targets):
    if targets.shape[1] > 1:
        logits, targets = logits[:, :-1], targets[:, 1:]
    return _picked(logits, targets)[targets != -100].mean()


def cross_rolled(logits, targets):
    targets = targets.roll(-1, 1)
    return _picked(logits, targets)[targets != -100].mean()


def softmax_in_half(x, dim):
    e = torch.exp((x - x.amax(dim, keepdim=True)).half())
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def powers(x, dim):
    return torch.exp(x - x.amax(dim, keepdim=True))


def normalised(e, dim):
    return e / e.sum(dim, keepdim=True)


RIGHT = {
    "softmax": named(
        softmax_with_its_own_maximum, softmax_last_axis_first, torch.softmax,
        softmax_by_logsumexp=lambda x, dim: torch.exp(x - torch.logsumexp(x, dim=dim, keepdim=True)),
        softmax_through_fp64=lambda x, dim: F.softmax(x.double(), dim).to(x.dtype),
    ),
    "cross_entropy": named(
        cross_entropy_by_logsumexp, cross_entropy_by_selection, cross_entropy_by_one_hot,
        cross_entropy_of_torch=lambda logits, targets:
            F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100),
        cross_entropy_in_fp32=lambda logits, targets:
            F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100),
        cross_entropy_transposed=lambda logits, targets: F.cross_entropy(logits.transpose(1, 2), targets),
    ),
}  # fmt: skip
WRONG = {
    "softmax": named(
        softmax_in_half,
        softmax_sum_of_all=lambda x, dim: powers(x, dim) / powers(x, dim).sum(),
        softmax_sum_without_keepdim=lambda x, dim: powers(x, dim) / powers(x, dim).sum(dim),
        softmax_log=lambda x, dim: normalised(powers(x, dim), dim).log(),
        softmax_in_place=lambda x, dim: normalised(torch.exp(x.sub_(x.amax(dim, keepdim=True))), dim),
        plain=lambda x, dim: normalised(torch.exp(x), dim),
        largest_of_all=lambda x, dim: normalised(torch.exp(x - x.max()), dim),
        always_last=lambda x, dim: normalised(torch.exp(x - x.amax(-1, keepdim=True)), -1),
        clamped=lambda x, dim: normalised(torch.exp(x.clamp(-80, 80)), dim),
        minus_mean=lambda x, dim: normalised(torch.exp(x - x.mean(dim, keepdim=True)), dim),
        minus_largest_size=lambda x, dim: normalised(torch.exp(x - x.abs().amax(dim, keepdim=True)), dim),
        powers_of_two=lambda x, dim: normalised(2 ** (x - x.amax(dim, keepdim=True)), dim),
        repaired_nan=lambda x, dim: torch.nan_to_num(normalised(torch.exp(x), dim)),
    ),
    "cross_entropy": named(
        cross_mean_of_rows, cross_reshaped_for_torch, cross_shifts_with_a_safe_count, cross_shifts_if_it_can,
        cross_rolled,
        cross_log_of_softmax=lambda logits, targets: -torch.log(_shares(logits, targets)).mean(),
        cross_log_of_softmax_and_a_bit=lambda logits, targets: -torch.log(_shares(logits, targets) + 1e-9).mean(),
        over_all_positions=lambda logits, targets: (_picked(logits, targets) * (targets != -100)).mean(),
        ignored_as_token_zero=lambda logits, targets: _picked(logits, targets).mean(),
        in_bits=lambda logits, targets: _picked(logits, targets)[targets != -100].mean() / math.log(2),
        summed=lambda logits, targets: _picked(logits, targets)[targets != -100].sum(),
        softmax_twice=lambda logits, targets:
            F.cross_entropy(logits.softmax(-1).flatten(0, 1), targets.flatten(), ignore_index=-100),
        without_minus=lambda logits, targets: -_picked(logits, targets)[targets != -100].mean(),
        shifts_again=lambda logits, targets:
            F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=-100),
        ignores_zero=lambda logits, targets: _picked(logits, targets)[targets > 0].mean(),
    ),
}  # fmt: skip
LIBRARY = {"softmax": layers.softmax}
