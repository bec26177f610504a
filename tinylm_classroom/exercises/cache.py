"""Lesson 13: keys and values of the past are kept, and only the newest positions are computed."""

import torch
from torch import Generator, Tensor

from .attention import EPS, attention
from .base import Exercise, Probe, chosen, texts


def cached_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache_k: Tensor,
    cache_v: Tensor,
    on: frozenset[str] = frozenset(),
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal attention of the newest T positions to these and to P cached ones, and the mistakes
    that are `on`.

    q, k, v (B, H, T, D), cache_k and cache_v (B, H, P, D). Returns (B, H, T, D) and the caches (B,
    H, P + T, D).
    """
    keys, values = _extended(k, v, cache_k, cache_v, on)
    seen_k, seen_v = chosen(on, (keys, values), {
        "only the past": lambda: (cache_k, cache_v),
        "only the new": lambda: (k, v),
        "old values": lambda: (keys, torch.cat((cache_v, torch.zeros_like(v)), -2)),
    })  # fmt: skip
    queries = q[..., -1:, :] if "last query only" in on else q
    out = attention(
        queries,
        seen_k,
        seen_v,
        _allowed(queries.shape[-2], seen_k.shape[-2], cache_k.shape[-2], on),
        on,
    )
    keys, values = chosen(on, (keys, values), {
        "caches not extended": lambda: (cache_k, cache_v),
        "cache_k not extended": lambda: (cache_k, values),
        "cache_v not extended": lambda: (keys, cache_v),
        "only the new returned": lambda: (k, v),
    })  # fmt: skip
    return chosen(on, (out, keys, values), {
        "caches first": lambda: (keys, values, out),
        "values before keys": lambda: (out, values, keys),
        "only the result": lambda: out,
    })  # fmt: skip


def _extended(
    k: Tensor, v: Tensor, cache_k: Tensor, cache_v: Tensor, on: frozenset[str]
) -> tuple[Tensor, Tensor]:
    """The cached keys and values, then the new ones."""
    if "new before old" in on:
        return torch.cat((k, cache_k), -2), torch.cat((v, cache_v), -2)
    if "keys in both" in on:
        v = k
        cache_v = cache_k
    for axis, fault in enumerate(("joined along the batch", "joined along the heads")):
        if fault in on:
            return torch.cat((cache_k, k), axis), torch.cat((cache_v, v), axis)
    if "joined along the features" in on:
        return torch.cat((cache_k, k), -1), torch.cat((cache_v, v), -1)
    if "oldest dropped" in on and cache_k.shape[-2]:
        n = k.shape[-2]
        cache_k = cache_k[..., n:, :]
        cache_v = cache_v[..., n:, :]
    if "last new only" in on:
        k = k[..., -1:, :]
        v = v[..., -1:, :]
    return torch.cat((cache_k, k), -2), torch.cat((cache_v, v), -2)


def _allowed(T: int, S: int, P: int, on: frozenset[str]) -> Tensor | None:
    """Which of S keys the last T positions may see: (T, S), True = allowed."""
    if "no mask" in on or ("mask only without a past" in on and P):
        return None
    first = S - T
    if "mask from the left" in on or ("chunks masked from the left" in on and T > 1):
        first = 0
    first += ("one too many" in on) - bool(on & {"strict", "strict, finite"})
    i = torch.arange(T)[:, None]
    j = torch.arange(S)
    return j >= i + first if "future" in on else j <= i + first


def _new(g: Generator, T: int, P: int, B: int = 2, H: int = 3, D: int = 4) -> tuple[Tensor, ...]:
    """q, k and v of T new positions, and caches of P."""
    return tuple(torch.randn(B, H, n, D, generator=g) for n in (T, T, T, P, P))


def _small(g: Generator) -> tuple[Tensor, ...]:
    """Two positions of two features, in numbers that can be read."""
    return tuple(
        torch.tensor([[[row]]])
        for row in ([1.0, 2.0], [2.0, 1.0], [1.0, 3.0], [0.5, 1.0], [4.0, 2.0])
    )


def _far_below(g: Generator) -> tuple[Tensor, ...]:
    """All scores near -131,072: every weak fill would win against them.

    Whole numbers, so that their sums are exact.
    """
    q, k, v, cache_k, cache_v = _new(g, 3, 2)
    q, k, cache_k = (t.round() for t in (q, k, cache_k))
    q[..., 0] = 512.0
    k[..., 0] = -512.0
    cache_k[..., 0] = -512.0
    return q, k, v, cache_k, cache_v


def _out(arguments: tuple, result: object) -> object:
    return result[0] if isinstance(result, list | tuple) and len(result) == 3 else result


def _caches(arguments: tuple, result: object) -> object:
    return (
        torch.stack(result[1:]) if isinstance(result, list | tuple) and len(result) == 3 else result
    )


CACHED_ATTENTION = Exercise(
    name="cached_attention",
    lesson="13",
    reference=cached_attention,
    probes=(
        Probe("the result, the keys and the values so far", _small),
        Probe(
            "without a past, one position fetches its own value", lambda g: _new(g, 1, 0), sees=_out
        ),
        Probe(
            "one new position sees the whole past and itself", lambda g: _new(g, 1, 5), sees=_out
        ),
        Probe("without a past it is causal attention", lambda g: _new(g, 5, 0), sees=_out),
        Probe(
            "in a chunk, each sees the past and no later one", lambda g: _new(g, 2, 5), sees=_out
        ),
        Probe(
            "in a chunk, each sees the past and no later one",
            lambda g: _new(g, 5, 1, 3, 2, 6),
            sees=_out,
        ),
        Probe("as many new positions as old ones", lambda g: _new(g, 3, 3, 2, 1, 5), sees=_out),
        Probe("new keys and values come after the old ones", lambda g: _new(g, 1, 3), sees=_caches),
        Probe("new keys and values come after the old ones", lambda g: _new(g, 2, 5), sees=_caches),
        Probe("the first chunk becomes the cache", lambda g: _new(g, 4, 0), sees=_caches),
        Probe(
            "the mask holds for very low scores, too",
            _far_below,
            sees=_out,
            tolerance=2 * 65_536 * EPS,
        ),
        Probe(
            "any strides", lambda g: tuple(t.mT.contiguous().mT for t in _new(g, 2, 3)), sees=_out
        ),
        Probe("gradients reach all five", lambda g: _new(g, 3, 2), gradients=True),
        Probe("fp64 stays fp64", lambda g: tuple(t.double() for t in _new(g, 2, 4))),
    ),
    **texts("cached_attention"),
)

EXERCISES = (CACHED_ATTENTION,)
