"""Lesson 05: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import attention


def mask_by_comparison(n):
    p = torch.arange(n)
    return p.unsqueeze(0) <= p.unsqueeze(1)


def by_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-1e9, dtype=scores.dtype))
    return torch.einsum("...ts,...sd->...td", torch.softmax(scores, dim=-1), v)


def by_additive_mask(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores + torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))
    return F.softmax(scores, -1).matmul(v)


def query_by_query(q, k, v, mask=None):
    rows = []
    for t in range(q.shape[-2]):
        scores = (k * q[..., t : t + 1, :]).sum(-1) / torch.sqrt(torch.tensor(float(q.shape[-1])))
        if mask is not None:
            scores = scores.masked_fill(~mask[t], -1e9)
        weights = torch.exp(scores - scores.logsumexp(-1, keepdim=True))
        rows.append((weights.unsqueeze(-1) * v).sum(-2))
    return torch.stack(rows, dim=-2)


def scaled_before(q, k, v, mask=None):
    q = q / q.shape[-1] ** 0.5
    scores = (k @ q.transpose(-1, -2)).transpose(-1, -2)
    if mask is not None:
        scores = torch.where(mask, scores, scores.new_tensor(-torch.inf))
    return scores.float().softmax(-1).to(q.dtype) @ v


def one_leading_axis_at_a_time(q, k, v, mask=None):
    if q.ndim > 2:
        return torch.stack([one_leading_axis_at_a_time(*parts, mask) for parts in zip(q, k, v, strict=True)])
    scores = q.mm(k.t()).div(math.sqrt(q.shape[1]))
    if mask is not None:
        scores[~mask] = torch.finfo(scores.dtype).min
    return torch.nan_to_num(scores.softmax(1)).mm(v)


def mask_band(n):
    i = torch.arange(n)
    return (i[:, None] >= i) & (i[:, None] - i < 3)


def attention_unscaled(q, k, v, mask=None):
    return masked(q @ k.mT, mask).softmax(-1) @ v


def _scores(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def attention_masks_and_renormalizes_wrongly(q, k, v, mask=None):
    w = _scores(q, k).softmax(-1)
    if mask is not None:
        w = w * mask
        w = w / w.sum(-2, keepdim=True)
    return w @ v


def attention_mean(q, k, v, mask=None):
    w = torch.ones(q.shape[-2], k.shape[-2]) if mask is None else mask.float()
    return (w / w.sum(-1, keepdim=True)).expand(*q.shape[:-1], -1) @ v


def attention_global_max(q, k, v, mask=None):
    s = masked(_scores(q, k), mask)
    e = (s - s.max()).exp()
    return e / (e.sum(-1, keepdim=True) + 1) @ v


def masked(scores, mask, fill=-math.inf):
    return scores if mask is None else scores.masked_fill(~mask, fill)


RIGHT = {
    "causal_mask": named(
        mask_by_comparison,
        mask_by_tril=lambda n: torch.tril(torch.ones(n, n, dtype=torch.bool)),
        mask_by_triu=lambda n: ~torch.triu(torch.ones((n, n)), diagonal=1).bool(),
        mask_by_lists=lambda n: torch.tensor([[j <= i for j in range(n)] for i in range(n)]),
        mask_by_cumsum=lambda n: torch.eye(n).cumsum(0).T.flip(0, 1).bool(),
    ),
    "attention": named(
        by_einsum, by_additive_mask, query_by_query, scaled_before, one_leading_axis_at_a_time,
        by_torch=lambda q, k, v, mask=None: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    ),
}  # fmt: skip
WRONG = {
    "causal_mask": named(
        mask_band,
        upper=lambda n: torch.triu(torch.ones(n, n, dtype=torch.bool)),
        strict=lambda n: torch.tril(torch.ones(n, n, dtype=torch.bool), -1),
        ones=lambda n: torch.ones(n, n, dtype=torch.bool),
        eye=lambda n: torch.eye(n, dtype=torch.bool),
        float=lambda n: torch.tril(torch.ones(n, n)),
        additive=lambda n: torch.full((n, n), -math.inf).triu(1),
        batched=lambda n: torch.tril(torch.ones(1, n, n, dtype=torch.bool)),
    ),
    "attention": named(
        attention_unscaled, attention_masks_and_renormalizes_wrongly, attention_mean, attention_global_max,
        cosine=lambda q, k, v, mask=None: attention_unscaled(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, mask),
        values_are_keys=lambda q, k, v, mask=None: attention_unscaled(q / math.sqrt(q.shape[-1]), k, k, mask),
        roles_swapped=lambda q, k, v, mask=None: attention_unscaled(k / math.sqrt(q.shape[-1]), q, v, mask),
        temperature=lambda q, k, v, mask=None: attention_unscaled(q / q.shape[-1], k, v, mask),
        by_heads=lambda q, k, v, mask=None: masked(q @ k.mT / math.sqrt(q.shape[-2]), mask).softmax(-1) @ v,
        zero_fill=lambda q, k, v, mask=None: masked(_scores(q, k), mask, 0.0).softmax(-1) @ v,
        fill_of_ten_thousand=lambda q, k, v, mask=None: masked(_scores(q, k), mask, -1e4).softmax(-1) @ v,
        small_fill=lambda q, k, v, mask=None: masked(_scores(q, k), mask, -10.0).softmax(-1) @ v,
        times_mask=lambda q, k, v, mask=None: (_scores(q, k) * (1 if mask is None else mask)).softmax(-1) @ v,
        masks_weights=lambda q, k, v, mask=None: masked(_scores(q, k).softmax(-1), mask, 0.0) @ v,
        sigmoid=lambda q, k, v, mask=None: masked(_scores(q, k).sigmoid(), mask, 0.0) @ v,
        always_causal=lambda q, k, v, mask=None:
            masked(_scores(q, k), torch.ones(q.shape[-2], k.shape[-2]).tril().bool()).softmax(-1) @ v,
        reversed_mask=lambda q, k, v, mask=None:
            masked(_scores(q, k), None if mask is None else ~mask, -1e9).softmax(-1) @ v,
        softmax_queries=lambda q, k, v, mask=None: masked(_scores(q, k), mask).softmax(-2).nan_to_num() @ v,
        hard=lambda q, k, v, mask=None: F.one_hot(masked(_scores(q, k), mask).argmax(-1), k.shape[-2]).to(v.dtype) @ v,
        returns_weights=lambda q, k, v, mask=None:
            (masked(_scores(q, k), mask).softmax(-1) @ v, masked(_scores(q, k), mask).softmax(-1)),
        weights_only=lambda q, k, v, mask=None: masked(_scores(q, k), mask).softmax(-1),
        log_weights=lambda q, k, v, mask=None: masked(_scores(q, k), mask, -1e9).log_softmax(-1) @ v,
    ),
}  # fmt: skip
LIBRARY = {"causal_mask": attention.causal_mask, "attention": attention.attend}
