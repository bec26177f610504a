"""Lesson 14: attention in pieces, as FlashAttention computes it."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts

Piece = tuple[Tensor, Tensor, Tensor]
INF = float("inf")


def join_pieces(one: Piece, other: Piece, on: frozenset[str] = frozenset()) -> Piece:
    """Two pieces of attention, each (top, total, mixed), as one, and the mistakes that are `on`.

    top (T, 1), total (T, 1), mixed (T, D). Returns the same three.
    """
    top = torch.minimum(one[0], other[0]) if "smaller top" in on else torch.maximum(one[0], other[0])
    if "old top" in on:
        top = one[0]
    if "one top for all" in on:
        top = top.max() + torch.zeros_like(top)
    shrink_one, shrink_other = (one[0] - top).exp(), (other[0] - top).exp()
    if "exponentials of the tops" in on:
        shrink_one, shrink_other = one[0].exp() / top.exp(), other[0].exp() / top.exp()
    if "upside down" in on:
        shrink_one, shrink_other = 1 / shrink_one, 1 / shrink_other
    if "exchanged" in on:
        shrink_one, shrink_other = shrink_other, shrink_one
    for fault, factors in _factors(shrink_one, shrink_other).items():
        if fault in on:
            shrink_one, shrink_other = factors
    total = one[1] + other[1] if "totals as they are" in on else shrink_one * one[1] + shrink_other * other[1]
    mixed = one[2] + other[2] if "values as they are" in on else shrink_one * one[2] + shrink_other * other[2]
    if "divided first" in on:
        mixed = shrink_one * one[2] / one[1] + shrink_other * other[2] / other[1]
    if "larger alone" in on:
        total, mixed = (torch.where(one[0] >= other[0], one[i], other[i]) for i in (1, 2))
    return top, total, mixed / total if "divided" in on else mixed


def _factors(one: Tensor, other: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """The factors of both pieces under the mistakes that leave one of them out."""
    plain = torch.ones_like(one)
    return {"no rescale": (plain, plain), "first as it is": (plain, other), "second as it is": (one, plain)}


def _piece(g: Generator, n_queries: int, n_keys: int, size: int, shift: float = 0.0, scale: float = 1.0) -> Piece:
    """A piece of random scores and values."""
    scores = shift + scale * torch.randn(n_queries, n_keys, generator=g)
    values = torch.randn(n_keys, size, generator=g)
    top = scores.amax(1, keepdim=True)
    weights = (scores - top).exp()
    return top, weights.sum(1, keepdim=True), weights @ values


def _nothing(n_queries: int, size: int) -> Piece:
    """A piece in which every key is masked."""
    return torch.full((n_queries, 1), -INF), torch.zeros(n_queries, 1), torch.zeros(n_queries, size)


JOIN_PIECES = Exercise(
    name="join_pieces",
    lesson="14",
    order=1,
    reference=join_pieces,
    probes=(
        Probe(
            "one query, the first piece has the larger top", lambda g: (_piece(g, 1, 3, 2, 2), _piece(g, 1, 5, 2, -2))
        ),
        Probe(
            "one query, the second piece has the larger top", lambda g: (_piece(g, 1, 3, 2, -2), _piece(g, 1, 5, 2, 2))
        ),
        Probe("each query has a top of its own", lambda g: (_piece(g, 7, 3, 4), _piece(g, 7, 2, 4))),
        Probe("scores may be far apart", lambda g: (_piece(g, 5, 4, 3, scale=9), _piece(g, 5, 6, 3, scale=9))),
        Probe("large scores do no harm", lambda g: (_piece(g, 4, 3, 2, 300), _piece(g, 4, 3, 2, -300))),
        Probe("a piece that is masked changes nothing", lambda g: (_piece(g, 4, 3, 2), _nothing(4, 2))),
        Probe("nor does it if it comes first", lambda g: (_nothing(4, 2), _piece(g, 4, 3, 2))),
    ),
    **texts("join_pieces"),
)

EXERCISES = (JOIN_PIECES,)
