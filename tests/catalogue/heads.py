"""Lesson 07: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import ModelConfig
from tinylm_lib.attention import Attention


def split_by_view(x, n_heads):
    B, T, C = x.size()
    return x.view(B, T, n_heads, C // n_heads).transpose(1, 2)


def split_by_chunks(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1), dim=1)


def split_by_slices(x, n_heads):
    d = x.shape[2] // n_heads
    return torch.cat([x[:, None, :, h * d : (h + 1) * d] for h in range(n_heads)], dim=1)


def split_time_last(x, n_heads):
    B, T, C = x.shape
    return x.transpose(1, 2).reshape(B, n_heads, C // n_heads, T).transpose(2, 3)


def merge_by_contiguous(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).contiguous().view(B, T, H * D)


def merge_by_cat(x):
    return torch.cat(list(x.unbind(1)), dim=-1)


def of_torch(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (split_by_view(F.linear(x, w), n_heads) for w in (w_q, w_k, w_v))
    return F.linear(merge_by_contiguous(F.scaled_dot_product_attention(q, k, v, is_causal=True)), w_o)


def fused(x, w_q, w_k, w_v, w_o, n_heads):
    B, T, C = x.shape
    q, k, v = (x @ torch.cat((w_q, w_k, w_v)).T).view(B, T, 3, n_heads, C // n_heads).permute(2, 0, 3, 1, 4)
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
    return (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(B, T, C) @ w_o.T


def head_by_head(x, w_q, w_k, w_v, w_o, n_heads):
    D, T = w_q.shape[0] // n_heads, x.shape[1]
    out = 0
    for h in range(n_heads):
        block = slice(h * D, (h + 1) * D)
        q, k, v = x @ w_q[block].T, x @ w_k[block].T, x @ w_v[block].T
        scores = q @ k.mT / D**0.5 + torch.full((T, T), -1e9).triu(1)
        out = out + scores.softmax(-1) @ v @ w_o[:, block].T
    return out


def by_einsum(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (torch.einsum("btc,hdc->bhtd", x, w.reshape(n_heads, -1, x.shape[-1])) for w in (w_q, w_k, w_v))
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
    p = torch.arange(x.shape[1])
    weights = torch.where(p[:, None] >= p, scores, torch.tensor(-torch.inf, dtype=x.dtype)).softmax(-1)
    return torch.einsum("bhts,bhsd,ohd->bto", weights, v, w_o.reshape(w_o.shape[0], n_heads, -1))


def position_by_position(x, w_q, w_k, w_v, w_o, n_heads):
    rows = []
    for t in range(x.shape[1]):
        seen = x[:, : t + 1]
        q, k, v = (
            split_by_chunks(F.linear(y, w), n_heads) for y, w in ((x[:, t : t + 1], w_q), (seen, w_k), (seen, w_v))
        )
        rows.append(merge_by_cat(F.scaled_dot_product_attention(q, k, v)))
    return F.linear(torch.cat(rows, 1), w_o)


def of_the_library(x, w_q, w_k, w_v, w_o, n_heads):
    layer = Attention(config(x.shape[-1], n_heads))
    weights = {f"{name}_proj.weight": w for name, w in (("q", w_q), ("k", w_k), ("v", w_v), ("o", w_o))}
    return torch.func.functional_call(layer, weights, (x, torch.arange(x.shape[1])))


def split_of_the_library(x, n_heads):
    return Attention(config(x.shape[-1], n_heads)).split(x)


def config(d_model, n_heads):
    return ModelConfig(
        vocab_size=8, d_model=d_model, n_heads=n_heads, n_layers=1, d_ff=8, max_seq_len=16, position="none"
    )


def split_reshaped(x, n_heads):
    B, T, C = x.shape
    return x.reshape(B, n_heads, T, C // n_heads)


def split_interleaved(x, n_heads):
    return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)


def _mha(x, w_q, w_k, w_v, w_o, n_heads, causal=True, scale=None, split=None, out=True):
    def heads(w):
        return (split or (lambda y, h: y.unflatten(-1, (h, -1)).transpose(1, 2)))(x @ w.T, n_heads)

    y = F.scaled_dot_product_attention(heads(w_q), heads(w_k), heads(w_v), is_causal=causal, scale=scale)
    y = y.transpose(1, 2).flatten(2)
    return y @ w_o.T if out else y


def with_a_fill_of_ten_thousand(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (split_by_chunks(x @ w.T, n_heads) for w in (w_q, w_k, w_v))
    later = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(later, -1e4)
    return merge_by_cat(scores.softmax(-1) @ v) @ w_o.T


RIGHT = {
    "split_heads": named(
        split_by_view, split_by_chunks, split_by_slices, split_time_last,
        split_by_unflatten=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).permute(0, 2, 1, 3).contiguous(),
        split_by_einsum=lambda x, n_heads: torch.einsum("bthd->bhtd", x.reshape(*x.shape[:2], n_heads, -1)),
    ),
    "merge_heads": named(
        merge_by_contiguous, merge_by_cat,
        merge_by_permute=lambda x: x.permute(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1),
        merge_by_columns=lambda x:
            torch.stack([x[:, h, :, d] for h in range(x.shape[1]) for d in range(x.shape[3])], -1),
    ),
    "multi_head_attention": named(of_torch, fused, head_by_head, by_einsum, position_by_position),
}  # fmt: skip
WRONG = {
    "split_heads": named(
        split_reshaped, split_interleaved,
        not_moved=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)),
        heads_first=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).permute(2, 0, 1, 3),
        wrong_axes=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).permute(0, 2, 3, 1),
        reversed=lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).transpose(1, 2).flip(1),
    ),
    "merge_heads": named(
        reshaped=lambda x: x.reshape(x.shape[0], x.shape[2], -1),
        interleaved=lambda x: x.permute(0, 2, 3, 1).flatten(2),
        sum=lambda x: x.sum(1),
        mean=lambda x: x.mean(1),
        positions=lambda x: x.transpose(1, 2).flatten(1, 2),
        transposed=lambda x: x.transpose(1, 2).flatten(2).mT,
        heads_and_features=lambda x: x.transpose(1, 3).reshape(x.shape[0], x.shape[2], -1),
    ),
    "multi_head_attention": named(
        with_a_fill_of_ten_thousand,
        not_causal=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, n_heads, causal=False),
        no_output=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, n_heads, out=False),
        scaled_by_width=lambda x, w_q, w_k, w_v, w_o, n_heads:
            _mha(x, w_q, w_k, w_v, w_o, n_heads, scale=x.shape[-1] ** -0.5),
        unscaled=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, n_heads, scale=1.0),
        one_head=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, 1),
        order=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_k, w_q, w_v, w_o, n_heads),
        keys_twice=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_k, w_o, n_heads),
        weights_transposed=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q.T, w_k.T, w_v.T, w_o.T, n_heads),
        output_transposed=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o.T, n_heads),
        split_wrong=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, n_heads, split=split_reshaped),
        residual=lambda x, w_q, w_k, w_v, w_o, n_heads: x + _mha(x, w_q, w_k, w_v, w_o, n_heads),
        interleaved=lambda x, w_q, w_k, w_v, w_o, n_heads:
            _mha(x, w_q, w_k, w_v, w_o, n_heads, split=split_interleaved),
        head_size_as_count=lambda x, w_q, w_k, w_v, w_o, n_heads: _mha(x, w_q, w_k, w_v, w_o, x.shape[-1] // n_heads),
    ),
}  # fmt: skip
LIBRARY = {"split_heads": split_of_the_library, "multi_head_attention": of_the_library}
