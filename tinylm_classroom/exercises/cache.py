"""Lesson 13: keys and values of the past are kept, and only the newest positions are computed."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .attention import EPS, attention
from .base import Exercise, Probe, chosen, texts
from .positions import rotate

ReadOn = Callable[[Tensor, dict, Tensor, Tensor | None], Tensor]


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


def write_with_cache(
    read_on: ReadOn, ids: Tensor, n: int, on: frozenset[str] = frozenset()
) -> Tensor:
    """(B, T + n): ids (B, T) and n more, each the most probable one, and the mistakes that are
    `on`.

    read_on(new, kept, positions, mask) gives the logits (B, N, V) of the tokens new (B, N) and adds
    them to `kept`.
    """
    start = ids
    n += ("one more" in on) - ("one less" in on and n > 0)
    kept: dict = {}
    new = ids[:, -1:] if "prompt not read" in on else ids
    for _ in range(n):
        if on & {"a new cache each time", "no cache"}:
            kept = {}
        if on & {"everything again", "no cache"}:
            new = ids
        read = _reading(ids.shape[1], new.shape[1], _n_kept(kept), on)
        new = _likeliest(read_on(new, kept, *read), on)
        ids = torch.cat((new, ids) if "put in front" in on else (ids, new), dim=1)
    if "new ones only" in on:
        return ids[:, start.shape[1] :]
    return ids[0] if "one axis" in on else ids


def _n_kept(kept: dict) -> int:
    """How many positions a cache holds, that of `Reader` or an empty one."""
    return next((keys.shape[-2] for keys, _ in kept.values()), 0)


def _reading(S: int, T: int, P: int, on: frozenset[str]) -> tuple[Tensor, Tensor]:
    """The positions (T,) of the last T of S tokens, and their mask (T, P + T)."""
    first = chosen(on, S - T, {
        "positions restart": lambda: 0,
        "one position ahead": lambda: S - T + (P > 0),
        "one position behind": lambda: max(0, S - T - 1),
    })  # fmt: skip
    keys = torch.arange(P + T)
    queries = torch.arange(T)[:, None]
    mask = chosen(on, keys <= P + queries, {
        "no mask": lambda: keys >= 0 * queries,
        "mask from the left": lambda: keys <= queries,
        "strict mask": lambda: keys < P + queries,
    })  # fmt: skip
    return torch.arange(first, first + T), mask


def _likeliest(logits: Tensor, on: frozenset[str]) -> Tensor:
    """The next token, (B, 1)."""
    last = logits[:, -1:]
    return chosen(on, last.argmax(-1), {
        "first position": lambda: logits[:, :1].argmax(-1),
        "all positions": lambda: logits.argmax(-1),
        "least probable": lambda: last.argmin(-1),
        "one for all texts": lambda: last[:1].argmax(-1).expand(len(logits), 1),
    })  # fmt: skip


class Reader:
    """A toy of two layers that reads on as the lesson's `read_on` does, and counts its tokens."""

    def __init__(self, g: Generator, n_tokens: int, width: int = 8):
        self.table = torch.randn(n_tokens, width, generator=g)
        self.maps = torch.randn(2, 3, width, width, generator=g) / width**0.5
        self.head = torch.randn(width, n_tokens, generator=g)
        self.calls: list[str] = []

    def __call__(
        self, ids: Tensor, kept: dict, positions: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """The logits (B, T, V) of new tokens ids (B, T)."""
        self.calls += ids.shape[1] * ["token"]
        x = self.table[ids]  # (B, T, C)
        for layer, (to_q, to_k, to_v) in enumerate(self.maps):
            q = rotate(3 * x @ to_q, positions, 100.0)  # (B, T, C)
            k = rotate(x @ to_k, positions, 100.0)  # (B, T, C)
            v = x @ to_v  # (B, T, C)
            if layer in kept:
                k = torch.cat((kept[layer][0], k), dim=1)
                v = torch.cat((kept[layer][1], v), dim=1)
            kept[layer] = (k, v)
            x = x + 2 * attention(q, k, v, mask)
        return x @ self.head


def _writing(
    n_tokens: int, n_read: int, n: int, batch_size: int = 1
) -> Callable[[Generator], tuple]:
    def make(g: Generator) -> tuple:
        reader = Reader(g, n_tokens)
        return reader, torch.randint(n_tokens, (batch_size, n_read), generator=g), n

    return make


def _each_once(arguments: tuple, result: object) -> bool:
    """Whether no token was read twice; the last one may be read, too."""
    return len(arguments[0].calls) <= arguments[1].shape[1] + arguments[2]


WRITE_WITH_CACHE = Exercise(
    name="write_with_cache",
    lesson="13",
    reference=write_with_cache,
    probes=(
        Probe("the first new token: the most probable one after the prompt", _writing(23, 6, 1)),
        Probe("the second new token depends on all before it", _writing(23, 6, 2)),
        Probe("n = 0 adds nothing", _writing(11, 4, 0)),
        Probe("a prompt may be a single token", _writing(23, 1, 6)),
        Probe("the text is that of reading everything again", _writing(31, 7, 12)),
        Probe("the text is that of reading everything again", _writing(19, 5, 16)),
        Probe("each text of a batch is continued", _writing(17, 4, 5, batch_size=3)),
        Probe("no token is read twice", _writing(23, 6, 5), sees=_each_once),
    ),
    **texts("write_with_cache"),
)

EXERCISES = (CACHED_ATTENTION, WRITE_WITH_CACHE)
