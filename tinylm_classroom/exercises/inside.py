"""Lesson 16: put an activation from another text into the stream."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def _exchanged(B: int, T: int, at: Tensor, on: frozenset[str]) -> Tensor:
    """The positions (B, T) that are exchanged."""
    places = torch.arange(T).expand(B, T)
    own = at[:, None]
    return chosen(on, places == own, {
        "position of the first text": lambda: places == at[0],
        "all positions for all texts": lambda: torch.isin(places, at),
        "from there on": lambda: places >= own,
        "up to there": lambda: places <= own,
        "one later": lambda: places == own + 1,
        "one earlier": lambda: places == own - 1,
        "first text only": lambda: (places == own) & (torch.arange(B) == 0)[:, None],
        "counted from the end": lambda: places == T - 1 - own,
        "whole text": lambda: places >= 0,
        "position taken as a text": lambda: _texts_at(B, at).expand(B, T),
        "the last position": lambda: places == T - 1,
        "nowhere": lambda: places < 0,
    })  # fmt: skip


def _texts_at(B: int, at: Tensor) -> Tensor:
    """Which texts (B, 1) have these numbers; torch raises IndexError where there is none."""
    found = torch.zeros(B, 1, dtype=torch.bool)
    found[at] = True
    return found


def patch(stream: Tensor, other: Tensor, at: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """A copy of stream (B, T, C) with the vectors of other at the positions at (B), and the
    mistakes that are `on`.
    """
    if "runs exchanged" in on:
        stream, other = other, stream
    other = slipped(on, other, {
        "read at the same place of the first text": lambda x: x[0].expand_as(x),
        "next text": lambda x: x.roll(-1, 0),
        "averaged over positions": lambda x: x.mean(1, keepdim=True).expand_as(x),
        "averaged over texts": lambda x: x.mean(0, keepdim=True).expand_as(x),
        "half": lambda x: (stream + x) / 2,
        "added": lambda x: stream + x,
        "set to 0": torch.zeros_like,
    })  # fmt: skip
    where = _exchanged(*stream.shape[:2], at, on)
    patched = torch.where(where[..., None], other, stream)
    return chosen(on, patched, {
        "only the vectors": lambda: other[torch.arange(len(at)), at],
        "in place": lambda: stream.copy_(patched),
        "only the last text": lambda: torch.cat((stream[:-1], patched[-1:])),
    })  # fmt: skip


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _two_runs(g: Generator, B: int, T: int, C: int, *at: int) -> tuple[Tensor, Tensor, Tensor]:
    return _x(g, B, T, C), _x(g, B, T, C), torch.tensor(at)


def _numbered(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


PATCH = Exercise(
    name="patch",
    lesson="16",
    reference=patch,
    probes=(
        Probe(
            "one vector of one text is replaced",
            lambda g: (_numbered(1, 3, 2), 10 + _numbered(1, 3, 2), torch.tensor([1])),
        ),
        Probe("the first position can be replaced", lambda g: _two_runs(g, 1, 4, 3, 0)),
        Probe("the last position can be replaced", lambda g: _two_runs(g, 1, 4, 3, 3)),
        Probe("each text has a position of its own", lambda g: _two_runs(g, 3, 5, 2, 2, 0, 0)),
        Probe("each text has a position of its own", lambda g: _two_runs(g, 3, 5, 2, 3, 0, 1)),
        Probe(
            "several texts may have the same position", lambda g: _two_runs(g, 4, 6, 3, 2, 5, 2, 1)
        ),
        Probe(
            "there may be as many texts as positions", lambda g: _two_runs(g, 4, 4, 3, 1, 3, 0, 1)
        ),
        Probe("there may be as many positions as features", lambda g: _two_runs(g, 2, 5, 5, 4, 1)),
    ),
    **texts("patch"),
    wider=True,
)


EXERCISES = (PATCH,)
