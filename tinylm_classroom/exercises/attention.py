"""Lesson 05: every position looks back and fetches."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts

INF = float("inf")
# A score of size s is rounded by up to s EPS / 2, which is then the relative error of its attention
# weight.
EPS = torch.finfo(torch.float32).eps


def causal_mask(n: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Who may look at whom: (n, n), True where key j is not later than query i, and the mistakes
    that are `on`.
    """
    n += ("one larger" in on) - ("one smaller" in on)
    i = torch.arange(n)[:, None]
    j = torch.arange(n)
    allowed = chosen(on, j <= i, {
        "future": lambda: j >= i, "strict": lambda: j < i, "one too many": lambda: j <= i + 1,
        "inverted": lambda: j > i, "only itself": lambda: j == i, "others only": lambda: j != i,
        "flipped": lambda: i + j < n, "everything": lambda: j >= 0 * i,
        "nothing": lambda: j < 0 * i,
    })  # fmt: skip
    scores = torch.zeros(n, n)
    return chosen(on, allowed, {
        "numbers": lambda: allowed.float(),
        "additive": lambda: scores.masked_fill(~allowed, -INF),
        "additive, -1e9": lambda: scores.masked_fill(~allowed, -1e9),
        "additive, lowest": lambda: scores.masked_fill(~allowed, torch.finfo(torch.float32).min),
        "more axes": lambda: allowed[None, None],
    })  # fmt: skip


CAUSAL_MASK = Exercise(
    name="causal_mask",
    lesson="05",
    reference=causal_mask,
    probes=(
        Probe("row i is True up to column i", lambda g: (3,)),
        Probe("a single position sees itself", lambda g: (1,)),
        Probe("the same holds for every n", lambda g: (4,)),
        Probe("the same holds for every n", lambda g: (7,)),
        Probe("the same holds for every n", lambda g: (130,)),
    ),
    **texts("causal_mask"),
)


AFTER = {"mask after softmax", "shared out again"}


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, on: frozenset[str] = frozenset()
) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v over the allowed keys, and the mistakes that are `on`.

    q (..., T, d_k), k (..., S, d_k), v (..., S, d_v), mask (T, S). Returns (..., T, d_v).
    """
    scores = _scores(q, k, v, on)
    if mask is None and "always causal" in on:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = _hide(scores, mask, on)
    weights = _share(scores, on)
    if mask is not None and on & AFTER:
        weights = weights * mask
        if "shared out again" in on:
            weights = weights / weights.sum(-1, keepdim=True)
    if "scaled later" in on:
        weights = weights / q.shape[-1] ** 0.5
    if "weights returned" in on:
        return weights
    out = weights @ (k if "keys for values" in on else v)
    return (out, weights) if "weights too" in on else out


def _scores(q: Tensor, k: Tensor, v: Tensor, on: frozenset[str]) -> Tensor:
    """How well each key answers each query: (..., T, S)."""
    d_k = q.shape[-1]
    divisors = {
        "no scale": 1, "scaled later": 1, "by d_k": d_k, "multiplied": d_k**-0.5,
        "fourth root": d_k**0.25, "by d_v": v.shape[-1] ** 0.5, "by the keys": k.shape[-2] ** 0.5,
        "fixed scale": 8.0,
    }  # fmt: skip
    divisor = next((by for fault, by in divisors.items() if fault in on), d_k**0.5)
    if "roles exchanged" in on:
        q, k = k, q
    if "keys meet keys" in on:
        q = k
    return q @ k.mT / divisor


def _hide(scores: Tensor, mask: Tensor, on: frozenset[str]) -> Tensor:
    """The scores, -inf where the mask forbids."""
    if on & {"mask ignored", *AFTER}:
        return scores
    if on & {"inverted", "inverted, finite"}:
        mask = ~mask
    if "mask transposed" in on:
        mask = mask.mT
    if "any mask is causal" in on:
        mask = torch.ones_like(mask).tril()
    if "mask added" in on:
        return scores + mask
    if "0 times infinity" in on:
        return scores + ~mask * -INF
    fills = {
        "zero fill": 0.0, "weak fill": -1000.0, "very weak fill": -10.0,
        "inverted, finite": -1e9, "strict, finite": -1e9,
    }  # fmt: skip
    return scores.masked_fill(
        ~mask, next((fill for fault, fill in fills.items() if fault in on), -INF)
    )


def _share(scores: Tensor, on: frozenset[str]) -> Tensor:
    """The scores as weights that sum to 1 for each query."""
    s = scores
    return chosen(on, s.softmax(-1), {
        "over queries": lambda: s.softmax(-2),
        "axis from the front": lambda: s.softmax(1),
        "first axis": lambda: s.softmax(0),
        "over everything": lambda: s.flatten(-2).softmax(-1).view_as(s),
        "no softmax": lambda: s,
        "no exponential": lambda: s / s.sum(-1, keepdim=True),
        "one maximum": lambda: (s - s.max()).exp() / (s - s.max()).exp().sum(-1, keepdim=True),
        "overflow": lambda: s.exp() / s.exp().sum(-1, keepdim=True),
        "twice": lambda: s.softmax(-1).softmax(-1),
        "sigmoid": lambda: s.sigmoid(),
        "equal weights": lambda: (s > -INF).to(s.dtype) / (s > -INF).sum(-1, keepdim=True),
        "logarithm": lambda: s.log_softmax(-1),
    })  # fmt: skip


def _qkv(
    g: Generator, *lead: int, sizes: tuple[int, int, int, int] = (3, 5, 4, 6)
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v for sizes (T, S, d_k, d_v), all behind the leading sizes."""
    T, S, d_k, d_v = sizes
    return tuple(torch.randn(*lead, *size, generator=g) for size in ((T, d_k), (S, d_k), (S, d_v)))


def _mask(g: Generator, T: int, S: int) -> Tensor:
    """Random, with an allowed and a forbidden key for each query: read the wrong way round, it
    leaves no row empty.
    """
    one = torch.randint(S, (T, 1), generator=g)
    other = (one + torch.randint(1, S, (T, 1), generator=g)) % S
    mask = torch.rand(T, S, generator=g) < 0.5
    return (mask | (torch.arange(S) == one)) & (torch.arange(S) != other)


def _far_below(g: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All scores near -65,536: every weak fill would win against them.

    Whole numbers and a root of 4: exact.
    """
    q, k, v = _qkv(g, sizes=(3, 5, 16, 6))
    q = q.round()
    k = k.round()
    q[:, 0] = 512.0
    k[:, 0] = -512.0
    return q, k, v, _mask(g, 3, 5)


def _strided(g: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = _qkv(g, 2, sizes=(3, 5, 4, 6))
    return (*(t.mT.contiguous().mT for t in (q, k, v)), _mask(g, 5, 3).T)


ATTENTION = Exercise(
    name="attention",
    lesson="05",
    reference=attention,
    probes=(
        Probe(
            "the weights of a query sum to 1",
            lambda g: (
                torch.tensor([[1.0]]),
                torch.tensor([[0.5], [2.0]]),
                torch.tensor([[1.0, 10.0], [1.0, 10.0]]),
            ),
        ),
        Probe(
            "the weights are the softmax of the scores",
            lambda g: (
                torch.tensor([[1.0]]),
                torch.tensor([[-1.0], [0.5]]),
                torch.tensor([[10.0, 1.0], [20.0, 4.0]]),
            ),
        ),
        Probe("a single key gets all the weight", lambda g: _qkv(g, sizes=(3, 1, 2, 2))),
        Probe(
            "the scores are divided by the root of d_k",
            lambda g: (
                torch.tensor([[1.0, 2.0]]),
                torch.tensor([[2.0, 1.0], [3.0, -0.5]]),
                torch.tensor([[10.0], [20.0]]),
            ),
        ),
        Probe("every query has its own weights", lambda g: _qkv(g)),
        Probe(
            "rows of the scores belong to queries, columns to keys",
            lambda g: _qkv(g, sizes=(4, 4, 3, 5)),
        ),
        Probe(
            "a query sees only the keys that are allowed",
            lambda g: (
                torch.tensor([[1.0], [2.0]]),
                torch.tensor([[1.0], [0.5], [-1.0]]),
                torch.tensor([[1.0], [2.0], [6.0]]),
                torch.tensor([[True, False, False], [True, True, False]]),
            ),
        ),
        Probe(
            "a forbidden key changes nothing, however high its score",
            lambda g: (
                torch.tensor([[10.0]]),
                torch.tensor([[1.0], [30.0]]),
                torch.tensor([[2.0], [5.0]]),
                torch.tensor([[True, False]]),
            ),
        ),
        Probe("any mask, not only a causal one", lambda g: (*_qkv(g), _mask(g, 3, 5))),
        Probe(
            "any mask, not only a causal one",
            lambda g: (*_qkv(g, sizes=(4, 4, 3, 5)), _mask(g, 4, 4)),
        ),
        Probe("any number of leading axes", lambda g: _qkv(g, 2, sizes=(4, 3, 6, 5))),
        Probe(
            "any number of leading axes",
            lambda g: (*_qkv(g, 2, 3, sizes=(4, 5, 6, 7)), _mask(g, 4, 5)),
        ),
        Probe(
            "any number of leading axes",
            lambda g: (*_qkv(g, 2, 1, 3, sizes=(5, 4, 2, 3)), _mask(g, 5, 4)),
        ),
        Probe(
            "large scores do not overflow",
            lambda g: tuple((30 * t).round() for t in _qkv(g)),
            tolerance=2 * 4096 * EPS,
        ),
        Probe("a mask holds for very low scores, too", _far_below, tolerance=2 * 65_536 * EPS),
        Probe("any strides", _strided),
        Probe(
            "gradients reach q, k and v", lambda g: (*_qkv(g, 2), _mask(g, 3, 5)), gradients=True
        ),
        Probe("gradients without a mask", lambda g: (*_qkv(g), None), gradients=True),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _qkv(g)), _mask(g, 3, 5))),
        Probe("bf16 stays bf16", lambda g: tuple(t.bfloat16() for t in _qkv(g)), tolerance=4e-2),
    ),
    **texts("attention"),
)

EXERCISES = (CAUSAL_MASK, ATTENTION)
