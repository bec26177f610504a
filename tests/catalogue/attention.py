"""Lesson 05: right variants of its exercises, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import attention as library


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
            scores = scores.masked_fill(~mask[t], -1e4)
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
    s = q @ k.mT
    return (s if mask is None else s.masked_fill(~mask, -math.inf)).softmax(-1) @ v


def _scores(q, k):
    return q @ k.mT / math.sqrt(q.shape[-1])


def attention_by_heads(q, k, v, mask=None):
    s = q @ k.mT / math.sqrt(q.shape[-2])
    return (s if mask is None else s.masked_fill(~mask, -math.inf)).softmax(-1) @ v


def attention_zero_fill(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(~mask, 0.0)).softmax(-1) @ v


def attention_times_mask(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s * mask).softmax(-1) @ v


def attention_masks_weights(q, k, v, mask=None):
    w = _scores(q, k).softmax(-1)
    return (w if mask is None else w * mask) @ v


def attention_masks_and_renormalizes_wrongly(q, k, v, mask=None):
    w = _scores(q, k).softmax(-1)
    if mask is not None:
        w = w * mask
        w = w / w.sum(-2, keepdim=True)
    return w @ v


def attention_always_causal(q, k, v, mask=None):
    s = _scores(q, k)
    return s.masked_fill(~torch.tril(torch.ones(s.shape[-2:], dtype=torch.bool)), -math.inf).softmax(-1) @ v


def attention_reversed_mask(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(mask, -1e9)).softmax(-1) @ v


def attention_small_fill(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(~mask, -10.0)).softmax(-1) @ v


def attention_softmax_queries(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(~mask, -math.inf)).softmax(-2).nan_to_num() @ v


def attention_sigmoid(q, k, v, mask=None):
    w = _scores(q, k).sigmoid()
    return (w if mask is None else w * mask) @ v


def attention_mean(q, k, v, mask=None):
    w = torch.ones(q.shape[-2], k.shape[-2]) if mask is None else mask.float()
    return (w / w.sum(-1, keepdim=True)).expand(*q.shape[:-1], -1) @ v


def attention_hard(q, k, v, mask=None):
    s = _scores(q, k)
    s = s if mask is None else s.masked_fill(~mask, -math.inf)
    return F.one_hot(s.argmax(-1), s.shape[-1]).to(v.dtype) @ v


def attention_global_max(q, k, v, mask=None):
    s = _scores(q, k)
    s = s if mask is None else s.masked_fill(~mask, -math.inf)
    e = (s - s.max()).exp()
    return e / (e.sum(-1, keepdim=True) + 1) @ v


def attention_returns_weights(q, k, v, mask=None):
    s = _scores(q, k)
    w = (s if mask is None else s.masked_fill(~mask, -math.inf)).softmax(-1)
    return w @ v, w


def attention_weights_only(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(~mask, -math.inf)).softmax(-1)


def attention_log_weights(q, k, v, mask=None):
    s = _scores(q, k)
    return (s if mask is None else s.masked_fill(~mask, -1e9)).log_softmax(-1) @ v


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
        attention_unscaled, attention_by_heads, attention_zero_fill, attention_times_mask, attention_masks_weights,
        attention_masks_and_renormalizes_wrongly, attention_always_causal, attention_reversed_mask,
        attention_small_fill, attention_softmax_queries, attention_sigmoid, attention_mean, attention_hard,
        attention_global_max, attention_returns_weights, attention_weights_only, attention_log_weights,
        cosine=lambda q, k, v, mask=None: attention_unscaled(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, mask),
        values_are_keys=lambda q, k, v, mask=None: attention_unscaled(q / math.sqrt(q.shape[-1]), k, k, mask),
        roles_swapped=lambda q, k, v, mask=None: attention_unscaled(k / math.sqrt(q.shape[-1]), q, v, mask),
        temperature=lambda q, k, v, mask=None: attention_unscaled(q / q.shape[-1], k, v, mask),
    ),
}  # fmt: skip
LIBRARY = {"causal_mask": library.causal_mask, "attention": library.attend}
