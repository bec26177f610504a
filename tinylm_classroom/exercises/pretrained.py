"""Lesson 18: the rows of another's file in the order of our rotary positions."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts


def rotary_layout(weight: Tensor, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows (H * D) of every head of a weight (H * D, C), from neighbours to halves, and the
    mistakes that are `on`.
    """
    n_rows, n_in = weight.shape
    D = n_rows // n_heads
    H, D = chosen(on, (n_heads, D), {
        "number and size exchanged": lambda: (D, n_heads), "one head": lambda: (1, n_rows),
    })  # fmt: skip
    heads = chosen(on, weight.reshape(H, D, n_in), {
        "heads interleaved": lambda: weight.reshape(D, H, n_in).transpose(0, 1),
    })  # fmt: skip
    first = heads[:, 0::2]
    second = heads[:, 1::2]
    moved = chosen(on, torch.cat((first, second), 1), {
        "the other way": lambda: (
            heads.reshape(H, 2, D // 2, n_in).transpose(1, 2).reshape(H, D, n_in)
        ),
        "halves first": lambda: heads,
        "halves exchanged": lambda: heads.roll(D // 2, 1),
        "second backwards": lambda: torch.cat((first, second.flip(1)), 1),
        "second first": lambda: torch.cat((second, first), 1),
        "neighbours exchanged": lambda: torch.stack((second, first), 2).reshape(H, D, n_in),
    })  # fmt: skip
    moved = torch.cat((moved[:1], heads[1:])) if "first head only" in on else moved
    return chosen(on, moved.reshape(n_rows, n_in), {
        "columns": lambda: torch.cat((weight[:, 0::2], weight[:, 1::2]), 1),
        "heads kept apart": lambda: moved,
    })  # fmt: skip


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


def _rows(n: int, n_heads: int) -> tuple:
    return torch.arange(float(n)).view(n, 1), n_heads


ROTARY_LAYOUT = Exercise(
    name="rotary_layout",
    lesson="18",
    order=1,
    reference=rotary_layout,
    probes=(
        Probe("the rows 0, 1, 2, 3 of a head become 0, 2, 1, 3", lambda g: _rows(4, 1)),
        Probe(
            "the rows 0, 1, 2, 3, 4, 5, 6, 7 of a head become 0, 2, 4, 6, 1, 3, 5, 7",
            lambda g: _rows(8, 1),
        ),
        Probe("every head is reordered by itself", lambda g: _rows(12, 2)),
        Probe("every head is reordered by itself", lambda g: (torch.arange(48.0).view(24, 2), 3)),
        Probe("the columns keep their order", lambda g: (_normal(g, 24, 6), 4)),
    ),
    **texts("rotary_layout"),
    wider=True,
)
EXERCISES = (ROTARY_LAYOUT,)
