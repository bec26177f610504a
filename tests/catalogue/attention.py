"""Lesson 05: right variants of its exercises, and the library's own."""

import math

import torch
import torch.nn.functional as F

from tinylm_lib import attention as library


def mask_by_tril(n):
    return torch.tril(torch.ones(n, n, dtype=torch.bool))


def mask_by_triu(n):
    return ~torch.triu(torch.ones((n, n)), diagonal=1).bool()


def mask_by_comparison(n):
    p = torch.arange(n)
    return p.unsqueeze(0) <= p.unsqueeze(1)


def mask_by_lists(n):
    return torch.tensor([[j <= i for j in range(n)] for i in range(n)])


def mask_by_cumsum(n):
    return torch.eye(n).cumsum(0).T.flip(0, 1).bool()


def by_torch(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


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


RIGHT = {
    "causal_mask": [mask_by_tril, mask_by_triu, mask_by_comparison, mask_by_lists, mask_by_cumsum],
    "attention": [
        by_torch, by_einsum, by_additive_mask, query_by_query, scaled_before, one_leading_axis_at_a_time,
    ],
}  # fmt: skip
LIBRARY = {"causal_mask": library.causal_mask, "attention": library.attend}
