"""Lesson 14: attention in pieces, as FlashAttention computes it."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts

Piece = tuple[Tensor, Tensor, Tensor]
INF = float("inf")


def join_pieces(one: Piece, other: Piece, on: frozenset[str] = frozenset()) -> Piece:
    """Two pieces of attention, each (top, total, mixed), as one, and the mistakes that are `on`.

    top (T, 1), total (T, 1), mixed (T, D). Returns the same three.
    """
    if "0 for -inf" in on:
        one, other = ((piece[0].nan_to_num(neginf=0.0), *piece[1:]) for piece in (one, other))
    top = torch.maximum(one[0], other[0])
    top = chosen(on, top, {
        "smaller top": lambda: torch.minimum(one[0], other[0]),
        "old top": lambda: one[0],
        "one top for all": lambda: top.max() + torch.zeros_like(top),
    })  # fmt: skip
    shrink_one, shrink_other = _factors((one[0] - top).exp(), (other[0] - top).exp(), on)
    if "exponentials of the tops" in on:
        shrink_one = one[0].exp() / top.exp()
        shrink_other = other[0].exp() / top.exp()
    total = (
        one[1] + other[1]
        if "totals as they are" in on
        else shrink_one * one[1] + shrink_other * other[1]
    )
    mixed = (
        one[2] + other[2]
        if "values as they are" in on
        else shrink_one * one[2] + shrink_other * other[2]
    )
    if "divided first" in on:
        mixed = shrink_one * one[2] / one[1] + shrink_other * other[2] / other[1]
    if "larger alone" in on:
        total, mixed = (torch.where(one[0] >= other[0], one[i], other[i]) for i in (1, 2))
    return top, total, mixed / total if "divided" in on else mixed


def _factors(one: Tensor, other: Tensor, on: frozenset[str]) -> tuple[Tensor, Tensor]:
    """The factors of both pieces."""
    plain = torch.ones_like(one)
    return chosen(on, (one, other), {
        "no rescale": lambda: (plain, plain),
        "first as it is": lambda: (plain, other),
        "second as it is": lambda: (one, plain),
        "exchanged": lambda: (other, one),
        "upside down": lambda: (1 / one, 1 / other),
    })  # fmt: skip


def _piece(
    g: Generator, n_queries: int, n_keys: int, size: int, shift: float = 0.0, scale: float = 1.0
) -> Piece:
    """A piece of random scores and values."""
    scores = shift + scale * torch.randn(n_queries, n_keys, generator=g)
    values = torch.randn(n_keys, size, generator=g)
    top = scores.amax(1, keepdim=True)
    weights = (scores - top).exp()
    return top, weights.sum(1, keepdim=True), weights @ values


def _masked(piece: Piece, *queries: int) -> Piece:
    """A piece in which all keys of these queries are masked."""
    rows = torch.zeros(len(piece[0]), 1, dtype=torch.bool)
    rows[list(queries)] = True
    return tuple(
        part.masked_fill(rows, empty) for part, empty in zip(piece, (-INF, 0.0, 0.0), strict=True)
    )


JOIN_PIECES = Exercise(
    name="join_pieces",
    lesson="14",
    order=1,
    reference=join_pieces,
    probes=(
        Probe(
            "one query, the first piece has the larger top",
            lambda g: (_piece(g, 1, 3, 2, 2), _piece(g, 1, 5, 2, -2)),
        ),
        Probe(
            "one query, the second piece has the larger top",
            lambda g: (_piece(g, 1, 3, 2, -2), _piece(g, 1, 5, 2, 2)),
        ),
        Probe(
            "each query has a top of its own", lambda g: (_piece(g, 7, 3, 4), _piece(g, 7, 2, 4))
        ),
        Probe(
            "scores may be far apart",
            lambda g: (_piece(g, 5, 4, 3, scale=9), _piece(g, 5, 6, 3, scale=9)),
        ),
        Probe(
            "large scores do not overflow",
            lambda g: (_piece(g, 4, 3, 2, 300), _piece(g, 4, 3, 2, -300)),
        ),
        Probe(
            "a second piece that is masked changes nothing",
            lambda g: (_piece(g, 3, 4, 2, -4), _masked(_piece(g, 3, 5, 2), 0, 1, 2)),
        ),
        Probe(
            "a first piece that is masked changes nothing",
            lambda g: (_masked(_piece(g, 3, 5, 2), 0, 1, 2), _piece(g, 3, 4, 2, -4)),
        ),
        Probe(
            "each query may be masked in another piece",
            lambda g: (
                _masked(_piece(g, 4, 3, 2, -200), 1),
                _masked(_piece(g, 4, 5, 2, -200), 0, 3),
            ),
        ),
    ),
    **texts("join_pieces"),
)

EXERCISES = (JOIN_PIECES,)
