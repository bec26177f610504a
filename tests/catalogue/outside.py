"""Mistakes written without sight of the catalogue, for lessons 01, 02 and 05 to 09: what share is caught, and named?"""

import itertools
import math
from collections import Counter

import torch
import torch.nn.functional as F


# 01 tokens
def counts_overlaps_once(ids):
    pairs, last = Counter(), None
    for pair in itertools.pairwise(ids):
        if pair != last:
            pairs[pair] += 1
        last = pair
    return max(pairs, key=lambda p: (pairs[p], p))


def only_every_second_pair(ids):
    pairs = Counter(zip(ids[::2], ids[1::2], strict=False))
    return max(pairs, key=lambda p: (pairs[p], p))


def first_pair_of_a_tie(ids):
    return Counter(itertools.pairwise(ids)).most_common(1)[0][0]


def least_common(ids):
    pairs = Counter(itertools.pairwise(ids))
    return min(pairs, key=lambda p: (pairs[p], p))


def with_its_count(ids):
    return Counter(itertools.pairwise(ids)).most_common(1)[0]


def most_common_single(ids):
    return Counter(ids).most_common(2)[0][0], Counter(ids).most_common(2)[1][0]


def pair_sorted(ids):
    pairs = Counter(tuple(sorted(p)) for p in itertools.pairwise(ids))
    return max(pairs, key=lambda p: (pairs[p], p))


def merges_only_the_first(ids, pair, new_id):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == tuple(pair):
            return [*ids[:i], new_id, *ids[i + 2 :]]
    return ids


def merges_from_the_right(ids, pair, new_id):
    out, i = [], len(ids) - 1
    while i >= 0:
        if i > 0 and (ids[i - 1], ids[i]) == tuple(pair):
            out.append(new_id)
            i -= 2
        else:
            out.append(ids[i])
            i -= 1
    return out[::-1]


def loses_the_last(ids, pair, new_id):
    out, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == tuple(pair):
            out.append(new_id)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def keeps_the_second(ids, pair, new_id):
    out = []
    for i, x in enumerate(ids):
        out.append(new_id if i + 1 < len(ids) and (x, ids[i + 1]) == tuple(pair) else x)
    return out


def merges_either_order(ids, pair, new_id):
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and {ids[i], ids[i + 1]} == set(pair):
            out.append(new_id)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def in_the_caller_s_list(ids, pair, new_id):
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == tuple(pair):
            ids[i : i + 2] = [new_id]
        i += 1
    return ids


# 02 linear
def linear_not_transposed(x, weight):
    return x @ weight.reshape(weight.shape[1], weight.shape[0])


def linear_only_one_row(x, weight):
    return (weight @ x.reshape(-1, x.shape[-1])[0]).expand(*x.shape[:-1], -1)


def linear_mean(x, weight):
    return (x @ weight.T) / x.shape[-1]


def linear_scaled_by_root(x, weight):
    return (x @ weight.T) / math.sqrt(x.shape[-1])


def linear_with_ones(x, weight):
    return x @ weight.T + torch.ones(weight.shape[0])


def linear_relu(x, weight):
    return torch.relu(x @ weight.T)


def linear_numpy(x, weight):
    return torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T)


def linear_flat(x, weight):
    return x.reshape(-1, x.shape[-1]) @ weight.T


def linear_abs(x, weight):
    return x @ weight.abs().T


def linear_float(x, weight):
    return (x.float() @ weight.float().T).float()


def embedding_columns(ids, weight):
    return weight.T[ids] if int(ids.max()) < weight.shape[1] else weight[ids]


def embedding_indexed(ids, weight):
    return weight[ids]


def embedding_modulo(ids, weight):
    return weight[ids % len(weight)]


def embedding_clamped(ids, weight):
    return F.embedding(ids.clamp(0, len(weight) - 1), weight)


def embedding_scaled(ids, weight):
    return F.embedding(ids, weight) * weight.shape[1] ** 0.5


def embedding_one_short(ids, weight):
    return F.embedding((ids - 1).clamp(min=0), weight)


def embedding_unit(ids, weight):
    return F.normalize(F.embedding(ids, weight), dim=-1)


def embedding_detached(ids, weight):
    return torch.stack([weight[i].detach() for i in ids.flatten()]).view(*ids.shape, -1)


def embedding_onehot_int(ids, weight):
    return F.one_hot(ids, len(weight)) @ weight


# 05 attention
def mask_upper(n):
    return torch.triu(torch.ones(n, n, dtype=torch.bool))


def mask_strict(n):
    return torch.tril(torch.ones(n, n, dtype=torch.bool), -1)


def mask_ones(n):
    return torch.ones(n, n, dtype=torch.bool)


def mask_eye(n):
    return torch.eye(n, dtype=torch.bool)


def mask_float(n):
    return torch.tril(torch.ones(n, n))


def mask_additive(n):
    return torch.full((n, n), -math.inf).triu(1)


def mask_band(n):
    i = torch.arange(n)
    return (i[:, None] >= i) & (i[:, None] - i < 3)


def mask_batched(n):
    return torch.tril(torch.ones(1, n, n, dtype=torch.bool))


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


def attention_cosine(q, k, v, mask=None):
    return attention_unscaled(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, mask)


def attention_hard(q, k, v, mask=None):
    s = _scores(q, k)
    s = s if mask is None else s.masked_fill(~mask, -math.inf)
    return F.one_hot(s.argmax(-1), s.shape[-1]).to(v.dtype) @ v


def attention_values_are_keys(q, k, v, mask=None):
    return attention_unscaled(q / math.sqrt(q.shape[-1]), k, k, mask)


def attention_roles_swapped(q, k, v, mask=None):
    return attention_unscaled(k / math.sqrt(q.shape[-1]), q, v, mask)


def attention_temperature(q, k, v, mask=None):
    return attention_unscaled(q / q.shape[-1], k, v, mask)


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


# 06 positions
def sinusoidal_halves(n, d):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)
    return torch.cat((angles.sin(), angles.cos()), -1)


def sinusoidal_from_one(n, d):
    angles = torch.arange(1, n + 1)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def sinusoidal_all_sines(n, d):
    return (torch.arange(n)[:, None] / 10_000 ** (torch.arange(d) / d)).sin()


def sinusoidal_single_exponent(n, d):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(d // 2) / d)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def sinusoidal_cos_first(n, d):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(1)


def sinusoidal_times(n, d):
    angles = torch.arange(n)[:, None] * 10_000 ** (torch.arange(0, d, 2) / d)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def sinusoidal_degrees(n, d):
    angles = torch.deg2rad(torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def sinusoidal_other_base(n, d):
    angles = torch.arange(n)[:, None] / 1_000 ** (torch.arange(0, d, 2) / d)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def sinusoidal_cos_of_next(n, d):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(d) / d)
    return torch.where(torch.arange(d) % 2 == 0, angles.sin(), angles.cos())


def sinusoidal_transposed(n, d):
    return sinusoidal_cos_first(n, d).roll(1, -1).T


def _rotated(x, positions, base, sign=1.0, exponent=2.0, start=0):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-exponent * torch.arange(start, start + d // 2) / d)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angles.cos() - sign * b * angles.sin(), sign * a * angles.sin() + b * angles.cos()), -1)


def rotate_backwards(x, positions, base):
    return _rotated(x, positions, base, sign=-1.0).flatten(-2)


def rotate_slow(x, positions, base):
    return _rotated(x, positions, base, exponent=1.0).flatten(-2)


def rotate_from_one(x, positions, base):
    return _rotated(x, positions, base, start=1).flatten(-2)


def rotate_own_positions(x, positions, base):
    return _rotated(x, torch.arange(x.shape[-2]), base).flatten(-2)


def rotate_fixed_base(x, positions, base):
    return _rotated(x, positions, 10_000).flatten(-2)


def rotate_by_halves(x, positions, base):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * torch.arange(d // 2) / d)
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()), -1)


def rotate_no_minus(x, positions, base):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * torch.arange(d // 2) / d)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angles.cos() + b * angles.sin(), a * angles.sin() + b * angles.cos()), -1).flatten(-2)


def rotate_concatenated(x, positions, base):
    return _rotated(x, positions, base).movedim(-1, -2).flatten(-2)


def rotate_only_first_pair(x, positions, base):
    return torch.cat((_rotated(x, positions, base).flatten(-2)[..., :2], x[..., 2:]), -1)


def rotate_position_offset(x, positions, base):
    return _rotated(x, positions - positions[0], base).flatten(-2)


def rotate_swapped_functions(x, positions, base):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * torch.arange(d // 2) / d)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * angles.sin() - b * angles.cos(), a * angles.cos() + b * angles.sin()), -1).flatten(-2)


def rotate_added(x, positions, base):
    return x + _rotated(torch.ones_like(x), positions, base).flatten(-2)


# 07 heads
def split_reshaped(x, n_heads):
    B, T, C = x.shape
    return x.reshape(B, n_heads, T, C // n_heads)


def split_not_moved(x, n_heads):
    return x.unflatten(-1, (n_heads, -1))


def split_interleaved(x, n_heads):
    return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)


def split_heads_first(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(2, 0, 1, 3)


def split_wrong_axes(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(0, 2, 3, 1)


def split_reversed(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2).flip(1)


def merge_reshaped(x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def merge_interleaved(x):
    return x.permute(0, 2, 3, 1).flatten(2)


def merge_sum(x):
    return x.sum(1)


def merge_mean(x):
    return x.mean(1)


def merge_positions(x):
    return x.transpose(1, 2).flatten(1, 2)


def merge_transposed(x):
    return x.transpose(1, 2).flatten(2).mT


def _mha(x, w_q, w_k, w_v, w_o, n_heads, causal=True, scale=None, split=None, out=True, values=None):
    def heads(w):
        return (split or (lambda y, h: y.unflatten(-1, (h, -1)).transpose(1, 2)))(x @ w.T, n_heads)

    y = F.scaled_dot_product_attention(heads(w_q), heads(w_k), heads(w_v), is_causal=causal, scale=scale)
    y = y.transpose(1, 2).flatten(2)
    return y @ w_o.T if out else y


def mha_not_causal(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, causal=False)


def mha_no_output(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, out=False)


def mha_scaled_by_width(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, scale=x.shape[-1] ** -0.5)


def mha_unscaled(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, scale=1.0)


def mha_one_head(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, 1)


def mha_order(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_k, w_q, w_v, w_o, n_heads)


def mha_keys_twice(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_k, w_o, n_heads)


def mha_weights_transposed(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q.T, w_k.T, w_v.T, w_o.T, n_heads)


def mha_output_transposed(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o.T, n_heads)


def mha_split_wrong(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, split=split_reshaped)


def mha_residual(x, w_q, w_k, w_v, w_o, n_heads):
    return x + _mha(x, w_q, w_k, w_v, w_o, n_heads)


def mha_interleaved(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, n_heads, split=split_interleaved)


def mha_head_size_as_count(x, w_q, w_k, w_v, w_o, n_heads):
    return _mha(x, w_q, w_k, w_v, w_o, x.shape[-1] // n_heads)


# 08 feed-forward
def silu_tanh(x):
    return x * torch.tanh(x)


def silu_own_sigmoid(x):
    return x * (1 / (1 + torch.exp(-x)))


def silu_beta(x):
    return x * torch.sigmoid(1.702 * x)


def silu_relu_gate(x):
    return torch.relu(x) * torch.sigmoid(x)


def silu_softplus(x):
    return F.softplus(x)


def silu_minus(x):
    return x * torch.sigmoid(-x)


def silu_derivative(x):
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))


def gelu_erf_without_root(x):
    return 0.5 * x * (1 + torch.erf(x))


def gelu_no_half(x):
    return x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_density(x):
    return x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_of_tanh(x):
    return F.gelu(x, approximate="tanh")


def gelu_cdf(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_minus(x):
    return 0.5 * x * (1 - torch.erf(x / math.sqrt(2)))


def swiglu_other_branch(x, w_gate, w_up, w_down):
    return ((x @ w_gate.T) * F.silu(x @ w_up.T)) @ w_down.T


def swiglu_both(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate.T) * F.silu(x @ w_up.T)) @ w_down.T


def swiglu_after_product(x, w_gate, w_up, w_down):
    return F.silu((x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def swiglu_gelu(x, w_gate, w_up, w_down):
    return (F.gelu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def swiglu_relu(x, w_gate, w_up, w_down):
    return (F.relu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def swiglu_no_down(x, w_gate, w_up, w_down):
    return F.silu(x @ w_gate.T) * (x @ w_up.T)


def swiglu_last_too(x, w_gate, w_up, w_down):
    return F.silu((F.silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T)


def swiglu_residual(x, w_gate, w_up, w_down):
    return x + (F.silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T


def swiglu_ungated(x, w_gate, w_up, w_down):
    return F.silu(x @ w_up.T) @ w_down.T


# 09 block
def block_post(x, norm1, attention, norm2, ffn):
    x = norm1(x + attention(x))
    return norm2(x + ffn(x))


def block_parallel(x, norm1, attention, norm2, ffn):
    return x + attention(norm1(x)) + ffn(norm2(x))


def block_no_first_residual(x, norm1, attention, norm2, ffn):
    x = attention(norm1(x))
    return x + ffn(norm2(x))


def block_normed_residual(x, norm1, attention, norm2, ffn):
    h = norm1(x)
    x = h + attention(h)
    h = norm2(x)
    return h + ffn(h)


def block_one_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return x + ffn(norm1(x))


def block_ffn_first(x, norm1, attention, norm2, ffn):
    x = x + ffn(norm2(x))
    return x + attention(norm1(x))


def block_sandwich(x, norm1, attention, norm2, ffn):
    x = x + norm1(attention(x))
    return x + norm2(ffn(x))


def block_extra_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return norm2(x + ffn(norm2(x)))


def block_halves(x, norm1, attention, norm2, ffn):
    x = x + 0.5 * attention(norm1(x))
    return x + 0.5 * ffn(norm2(x))


def block_last_from_start(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return x + ffn(norm2(h))


def block_ffn_without_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return x + ffn(x)


def block_in_place(x, norm1, attention, norm2, ffn):
    x += attention(norm1(x))
    x += ffn(norm2(x))
    return x


# 13 cache
def _cached(q, k, v, cache_k, cache_v, rotate=0, shift=0, causal=True):
    k, v = torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)
    T, S = q.shape[-2], k.shape[-2]
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T + shift) if causal else None
    return F.scaled_dot_product_attention(q, k, v, mask), k, v


def cached_new_first(q, k, v, cache_k, cache_v):
    k, v = torch.cat((k, cache_k), -2), torch.cat((v, cache_v), -2)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])
    return F.scaled_dot_product_attention(q, k, v, mask), k, v


def cached_top_left(q, k, v, cache_k, cache_v):
    k, v = torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), k, v


def cached_no_mask(q, k, v, cache_k, cache_v):
    return _cached(q, k, v, cache_k, cache_v, causal=False)


def cached_one_early(q, k, v, cache_k, cache_v):
    return _cached(q, k, v, cache_k, cache_v, shift=1)


def cached_values_not_kept(q, k, v, cache_k, cache_v):
    out, keys, _ = _cached(q, k, v, cache_k, cache_v)
    return out, keys, v


def cached_only_new(q, k, v, cache_k, cache_v):
    return (
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        torch.cat((cache_k, k), -2),
        torch.cat((cache_v, v), -2),
    )


def cached_old_cache_back(q, k, v, cache_k, cache_v):
    return _cached(q, k, v, cache_k, cache_v)[0], cache_k, cache_v


def cached_swapped(q, k, v, cache_k, cache_v):
    out, keys, values = _cached(q, k, v, cache_k, cache_v)
    return out, values, keys


def cached_unscaled(q, k, v, cache_k, cache_v):
    return _cached(q * math.sqrt(q.shape[-1]), k, v, cache_k, cache_v)


def cached_last_only(q, k, v, cache_k, cache_v):
    out, keys, values = _cached(q, k, v, cache_k, cache_v)
    return out[..., -1:, :], keys, values


def cached_strict(q, k, v, cache_k, cache_v):
    return _cached(q, k, v, cache_k, cache_v, shift=-1)


def _all(prefix):
    return [f for name, f in globals().items() if name.startswith(prefix) and callable(f)]


WRONG = {
    "most_common_pair": [
        counts_overlaps_once, only_every_second_pair, first_pair_of_a_tie, least_common, with_its_count,
        most_common_single, pair_sorted,
    ],
    "bpe_merge_step": [
        merges_only_the_first, merges_from_the_right, loses_the_last, keeps_the_second, merges_either_order,
        in_the_caller_s_list,
    ],
    "linear": _all("linear_"),
    "embedding": _all("embedding_"),
    "causal_mask": _all("mask_"),
    "attention": _all("attention_"),
    "sinusoidal": _all("sinusoidal_"),
    "rotate": _all("rotate_"),
    "split_heads": _all("split_"),
    "merge_heads": _all("merge_"),
    "multi_head_attention": _all("mha_"),
    "silu": _all("silu_"),
    "gelu": _all("gelu_"),
    "swiglu": _all("swiglu_"),
    "pre_norm_block": _all("block_"),
    "cached_attention": _all("cached_"),
}  # fmt: skip
