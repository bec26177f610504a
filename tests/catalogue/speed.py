"""Lesson 14: right variants of its exercises, mistakes, and the library's own."""

import torch

from catalogue import named
from tinylm_lib import TransformerLM, cost


def flops_by_parts(config, batch_size, seq_len):
    C, D = config.d_model, config.d_head
    q = o = 2 * C * config.n_heads * D
    k = v = 2 * C * config.n_kv_heads * D
    ffn = (3 if config.ffn in ("swiglu", "geglu") else 2) * 2 * C * config.d_ff
    attention = 2 * (2 * config.n_heads * D * seq_len)
    token = config.n_layers * (q + k + v + o + ffn + attention) + 2 * C * config.vocab_size
    return 3 * batch_size * seq_len * token


def flops_by_six(config, batch_size, seq_len):
    wide, narrow = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
    n = 2 * config.d_model * (wide + narrow)
    n += {"swiglu": 3, "geglu": 3}.get(config.ffn, 2) * config.d_model * config.d_ff
    n *= config.n_layers
    n += config.vocab_size * config.d_model
    return 6 * n * batch_size * seq_len + 12 * config.n_layers * wide * batch_size * seq_len**2


def flops_of_a_built_model(config, batch_size, seq_len):
    with torch.device("meta"):
        model = TransformerLM(config)
    n = sum(p.numel() for p in model.blocks.parameters() if p.ndim == 2) + config.d_model * config.vocab_size
    scores = 2 * config.n_layers * config.n_heads * config.d_head * seq_len
    return 6 * batch_size * seq_len * (n + scores)


def flops_with_a_gate_in_swiglu_alone(config, batch_size, seq_len):
    wide, narrow = config.n_heads * config.d_head, config.n_kv_heads * config.d_head
    ffn = (3 if config.ffn == "swiglu" else 2) * config.d_model * config.d_ff
    block = 2 * config.d_model * (wide + narrow) + ffn + 2 * wide * seq_len
    return 6 * batch_size * seq_len * (config.n_layers * block + config.d_model * config.vocab_size)


def flops_without_the_masked_half(config, batch_size, seq_len):
    masked = config.n_layers * config.n_heads * config.d_head * seq_len
    return flops_by_six(config, batch_size, seq_len) - 6 * batch_size * seq_len * masked


def joined_by_logsumexp(one, other):
    top = torch.maximum(one[0], other[0])
    both = torch.cat([one[0] + one[1].log(), other[0] + other[1].log()], dim=1)
    total = (both.logsumexp(1, keepdim=True) - top).exp()
    return top, total, sum((piece[0] - top).exp() * piece[2] for piece in (one, other))


def joined_by_stacking(one, other):
    tops, totals, mixed = (torch.stack(both) for both in zip(one, other, strict=True))
    top = tops.amax(0)
    factors = torch.exp(tops - top)
    return top, (factors * totals).sum(0), (factors * mixed).sum(0)


def joined_query_by_query(one, other):
    rows = []
    for t in range(len(one[0])):
        first, second = ([part[t] for part in piece] for piece in (one, other))
        high, low = (first, second) if first[0] >= second[0] else (second, first)
        factor = torch.exp(low[0] - high[0])
        rows.append((high[0], high[1] + factor * low[1], high[2] + factor * low[2]))
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def joined_from_zero(one, other):
    total = one[0].exp() * one[1] + other[0].exp() * other[1]
    mixed = one[0].exp() * one[2] + other[0].exp() * other[2]
    top = torch.maximum(one[0], other[0])
    return top, total / top.exp(), mixed / top.exp()


def joined_as_results(one, other):
    top, total, mixed = joined_by_stacking(one, other)
    return top, total, mixed / total


def joined_with_a_new_top_alone(one, other):
    return torch.maximum(one[0], other[0]), *(first + second for first, second in zip(one[1:], other[1:], strict=True))


def joined_with_a_top_of_0_where_masked(one, other):
    tops = [piece[0].masked_fill(piece[0] == -torch.inf, 0.0) for piece in (one, other)]
    return joined_by_stacking((tops[0], *one[1:]), (tops[1], *other[1:]))


def joined_as_a_loop_meets_them(one, other):
    factor = torch.exp(one[0] - torch.maximum(one[0], other[0]))
    return torch.maximum(one[0], other[0]), factor * one[1] + other[1], factor * one[2] + other[2]


RIGHT = {
    "training_flops": named(flops_by_parts, flops_by_six, flops_of_a_built_model),
    "join_pieces": named(joined_by_logsumexp, joined_by_stacking, joined_query_by_query),
}  # fmt: skip
WRONG = {
    "training_flops": named(
        flops_with_a_gate_in_swiglu_alone, flops_without_the_masked_half,
        flops_as_a_float=lambda config, batch_size, seq_len: 6.0 * (flops_by_six(config, batch_size, seq_len) / 6),
    ),
    "join_pieces": named(
        joined_from_zero, joined_as_results, joined_with_a_new_top_alone, joined_as_a_loop_meets_them,
        joined_with_a_top_of_0_where_masked,
    ),
}  # fmt: skip
LIBRARY = {"training_flops": cost.training_flops}
