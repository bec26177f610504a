"""Lesson 13: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib.attention import attend, causal_mask


def of_torch(q, k, v, cache_k, cache_v):
    k, v = torch.cat([cache_k, k], dim=2), torch.cat([cache_v, v], dim=2)
    T, S = q.size(2), k.size(2)
    mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), k, v


def with_one_matrix_of_the_past(q, k, v, cache_k, cache_v):
    T, P = q.shape[2], cache_k.shape[2]
    scores = torch.cat((q @ cache_k.mT, (q @ k.mT).masked_fill(torch.ones(T, T).triu(1).bool(), -1e9)), -1)
    weights = torch.softmax(scores / math.sqrt(q.shape[-1]), -1)
    out = weights[..., :P] @ cache_v + weights[..., P:] @ v
    return [out, torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)]


def one_after_the_other(q, k, v, cache_k, cache_v):
    rows = []
    for t in range(q.shape[2]):
        cache_k = torch.cat((cache_k, k[:, :, t : t + 1]), 2)
        cache_v = torch.cat((cache_v, v[:, :, t : t + 1]), 2)
        scores = torch.einsum("bhtd,bhsd->bhts", q[:, :, t : t + 1], cache_k) * q.shape[-1] ** -0.5
        rows.append(scores.softmax(-1) @ cache_v)
    return torch.cat(rows, 2), cache_k, cache_v


def with_room_made_before(q, k, v, cache_k, cache_v):
    B, H, P, D = cache_k.shape
    keys, values = (q.new_zeros(B, H, P + q.shape[2], D) for _ in range(2))
    keys[:, :, :P], keys[:, :, P:] = cache_k, k
    values[:, :, :P], values[:, :, P:] = cache_v, v
    at = torch.arange(P, P + q.shape[2])[:, None]
    scores = q @ keys.transpose(-1, -2) / D**0.5
    if q.shape[2] > 1:
        scores = scores + torch.where(torch.arange(keys.shape[2]) > at, -torch.inf, 0.0)
    return scores.softmax(-1) @ values, keys, values


def by_a_slice_of_the_whole_mask(q, k, v, cache_k, cache_v):
    k, v = torch.concat((cache_k, k), -2), torch.concat((cache_v, v), -2)
    whole = ~torch.triu(torch.ones(k.shape[-2], k.shape[-2], dtype=torch.bool), 1)
    scores = torch.where(whole[-q.shape[-2] :], q.matmul(k.mT) / q.shape[-1] ** 0.5, torch.finfo(q.dtype).min)
    return torch.exp(scores - scores.logsumexp(-1, keepdim=True)).matmul(v), k.clone(), v.clone()


def of_the_library(q, k, v, cache_k, cache_v):
    k, v = torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)
    return attend(q, k, v, causal=True), k, v


def with_a_fill_of_ten_thousand(q, k, v, cache_k, cache_v):
    k, v = torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)
    allowed = torch.arange(k.shape[-2]) <= cache_k.shape[-2] + torch.arange(q.shape[-2])[:, None]
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -1e4)
    return scores.softmax(-1) @ v, k, v


def _cached(q, k, v, cache_k, cache_v, shift=0, causal=True):
    k, v = torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)
    T, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T + shift) if causal else None
    return F.scaled_dot_product_attention(q, k, v, mask), k, v


def cached_new_first(q, k, v, cache_k, cache_v):
    k, v = torch.cat((k, cache_k), -2), torch.cat((v, cache_v), -2)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, mask), k, v


def write_by_pieces(read_on, ids, n):
    kept, piece = {}, ids
    for _ in range(n):
        S, T = ids.shape[1], piece.shape[1]
        logits = read_on(piece, kept, torch.arange(S - T, S), causal_mask(T, S))
        piece = logits[:, -1:].argmax(-1)
        ids = torch.cat((ids, piece), dim=1)
    return ids


@torch.no_grad()
def write_after_the_prefill(read_on, ids, n):
    T, kept = ids.shape[1], {}
    logits = read_on(ids, kept, torch.arange(T), causal_mask(T))
    for step in range(n):
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.hstack((ids, new))
        logits = read_on(new, kept, torch.tensor([T + step]), None)
    return ids


def write_one_by_one(read_on, ids, n):
    out, kept = list(ids.split(1, dim=1)), {}
    T = len(out)
    if n == 0:
        return ids
    for i in range(T + n - 1):
        logits = read_on(out[i], kept, torch.arange(i, i + 1), torch.ones(1, i + 1, dtype=torch.bool))
        if i >= T - 1:
            out.append(logits.softmax(-1)[:, 0].max(-1, keepdim=True).indices)
    return torch.cat(out, dim=1)


def write_into_room(read_on, ids, n):
    B, T = ids.shape
    whole = torch.cat((ids, ids.new_zeros(B, n)), dim=1)
    kept, first = {}, 0
    for end in range(T, T + n):
        mask = torch.tril(torch.ones(end, end, dtype=torch.bool))[first:]
        whole[:, end] = read_on(whole[:, first:end], kept, torch.arange(end)[first:], mask)[:, -1].argmax(-1)
        first = end
    return whole


def writer(positions=lambda T, S: torch.arange(S - T, S), mask=causal_mask, choose=lambda logits: logits[:, -1:]):
    """The loop with other positions, another mask or other logits."""

    def wrong(read_on, ids, n):
        kept, new = {}, ids
        for _ in range(n):
            T, S = new.shape[1], ids.shape[1]
            new = choose(read_on(new, kept, positions(T, S), mask(T, S))).argmax(-1)
            ids = torch.cat((ids, new), dim=1)
        return ids

    return wrong


def write_kept_in_the_loop(read_on, ids, n):
    new = ids
    for _ in range(n):
        kept = {}
        S, T = ids.shape[1], new.shape[1]
        new = read_on(new, kept, torch.arange(S - T, S), causal_mask(T, T))[:, -1:].argmax(-1)
        ids = torch.cat((ids, new), dim=1)
    return ids


def write_without_a_cache(read_on, ids, n):
    for _ in range(n):
        T = ids.shape[1]
        ids = torch.cat((ids, read_on(ids, {}, torch.arange(T), causal_mask(T))[:, -1:].argmax(-1)), dim=1)
    return ids


def write_all_again_into_the_cache(read_on, ids, n):
    kept = {}
    for i in range(n):
        T = ids.shape[1]
        n_kept = i * T - i * (i + 1) // 2  # of the shorter texts before
        logits = read_on(ids, kept, torch.arange(T), causal_mask(T, n_kept + T))
        ids = torch.cat((ids, logits[:, -1:].argmax(-1)), dim=1)
    return ids


def write_from_the_last_token(read_on, ids, n):
    kept, new = {}, ids[:, -1:]
    for i in range(n):
        S = ids.shape[1]
        new = read_on(new, kept, torch.arange(S - 1, S), causal_mask(1, i + 1))[:, -1:].argmax(-1)
        ids = torch.cat((ids, new), dim=1)
    return ids


def write_prompt_forgotten(read_on, ids, n):
    return write_by_pieces(read_on, ids, n)[:, ids.shape[1] :]


def write_n_and_one(read_on, ids, n):
    kept, T = {}, ids.shape[1]
    new = read_on(ids, kept, torch.arange(T), causal_mask(T))[:, -1:].argmax(-1)
    ids = torch.cat((ids, new), dim=1)
    for i in range(n):
        new = read_on(new, kept, torch.tensor([T + i]), None)[:, -1:].argmax(-1)
        ids = torch.cat((ids, new), dim=1)
    return ids


RIGHT = {
    "write_with_cache": named(write_by_pieces, write_after_the_prefill, write_one_by_one, write_into_room),
    "cached_attention": named(
        of_torch, with_one_matrix_of_the_past, one_after_the_other, with_room_made_before, by_a_slice_of_the_whole_mask,
    ),
}  # fmt: skip
WRONG = {
    "write_with_cache": named(
        write_kept_in_the_loop, write_without_a_cache, write_all_again_into_the_cache, write_from_the_last_token,
        write_prompt_forgotten, write_n_and_one,
        write_from_zero=writer(positions=lambda T, S: torch.arange(T)),
        write_at_the_length=writer(positions=lambda T, S: torch.arange(T) + (S if T == 1 else 0)),
        write_one_late=writer(positions=lambda T, S: torch.arange(S - T, S) - (T == 1 and S > 1)),
        write_without_a_mask=writer(mask=lambda T, S: None),
        write_upper_left=writer(mask=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()),
        write_all_positions=writer(choose=lambda logits: logits),
        write_first_position=writer(choose=lambda logits: logits[:, :1]),
        write_lowest=writer(choose=lambda logits: -logits[:, -1:]),
    ),
    "cached_attention": named(
        with_a_fill_of_ten_thousand, cached_new_first,
        no_mask=lambda q, k, v, cache_k, cache_v: _cached(q, k, v, cache_k, cache_v, causal=False),
        one_early=lambda q, k, v, cache_k, cache_v: _cached(q, k, v, cache_k, cache_v, shift=1),
        old_cache_back=lambda q, k, v, cache_k, cache_v: (_cached(q, k, v, cache_k, cache_v)[0], cache_k, cache_v),
        unscaled=lambda q, k, v, cache_k, cache_v: _cached(q * math.sqrt(q.shape[-1]), k, v, cache_k, cache_v),
        strict=lambda q, k, v, cache_k, cache_v: _cached(q, k, v, cache_k, cache_v, shift=-1),
        values_not_kept=lambda q, k, v, *cache: (*_cached(q, k, v, *cache)[:2], v),
        swapped=lambda *arguments: tuple(_cached(*arguments)[i] for i in (0, 2, 1)),
        last_only=lambda *arguments: (_cached(*arguments)[0][..., -1:, :], *_cached(*arguments)[1:]),
        top_left=lambda q, k, v, cache_k, cache_v: _cached(q, k, v, cache_k, cache_v, shift=-cache_k.shape[-2]),
        only_new=lambda q, k, v, *cache: (attend(q, k, v, causal=True), *_cached(q, k, v, *cache)[1:]),
    ),
}  # fmt: skip
LIBRARY = {"cached_attention": of_the_library}
