"""Lesson 03: right variants of its exercises, and the library's own."""

import math

import torch
import torch.nn.functional as F

from tinylm_lib import layers


def softmax_by_logsumexp(x, dim):
    return torch.exp(x - torch.logsumexp(x, dim=dim, keepdim=True))


def softmax_with_its_own_maximum(x, dim):
    shifted = x - torch.max(x, dim=dim, keepdim=True).values
    e = torch.exp(shifted)
    return torch.div(e, torch.sum(e, dim=dim, keepdim=True))


def softmax_last_axis_first(x, dim):
    x = x.movedim(dim, -1)
    e = math.e ** (x - x.amax(-1)[..., None])
    return (e / e.sum(-1)[..., None]).movedim(-1, dim)


def softmax_through_fp64(x, dim):
    return F.softmax(x.double(), dim).to(x.dtype)


def cross_entropy_of_torch(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)


def cross_entropy_transposed(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


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


RIGHT = {
    "softmax": [
        softmax_by_logsumexp, softmax_with_its_own_maximum, softmax_last_axis_first, softmax_through_fp64,
        torch.softmax,
    ],
    "cross_entropy": [
        cross_entropy_of_torch, cross_entropy_transposed, cross_entropy_by_logsumexp, cross_entropy_by_selection,
        cross_entropy_by_one_hot,
    ],
}  # fmt: skip
LIBRARY = {"softmax": layers.softmax}
