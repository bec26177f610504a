"""Lesson 09: a stream to which each part adds, and what it becomes without one of them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts
from .block import SIMPLE, Part, Recorded

NAMES = ("square", "add_ten", "halve")  # parts that can be followed in the head


def stream_without(
    x: Tensor,
    parts: Sequence[Part],
    out: int | None = None,
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """The stream x (..., C) after all parts but number `out`, each of which reads it as it is then
    and adds to it; and the mistakes that are `on`.
    """
    start = x
    last = len(parts) - 1
    out = _number(out, last, on)
    additions = []
    for i, part in _ordered(parts, on):
        if i == out and _skips(part, x, on):
            x = _at_the_gap(x, part, on)
            if "stops there" in on:
                break
            continue
        reads = start if "reads the start" in on else x
        made = part(reads.detach() if "parts cut" in on else reads)
        additions.append(made)
        x = _joined(x, made, on)
    if "subtracted afterwards" in on and out is not None:
        x = x - additions[out]
    if "x missing" in on:
        x = x - start
    return x.float() if "fp32" in on else x


def _number(out: int | None, last: int, on: frozenset[str]) -> int | None:
    """The part that is left out, or another one by a mistake that is `on`."""
    if "None leaves out the first" in on:
        return out or 0
    if "the first stays" in on:
        return out or None
    if out is None:
        return None
    if "counted from 1" in on:
        return out - 1
    return last - out if "counted from the end" in on else out


def _ordered(parts: Sequence[Part], on: frozenset[str]) -> list[tuple[int, Part]]:
    numbered = list(enumerate(parts))
    return numbered[::-1] if "backwards" in on else numbered


def _skips(part: Part, x: Tensor, on: frozenset[str]) -> bool:
    """Whether the part adds nothing."""
    if "called in vain" in on:
        part(x)
    return "subtracted afterwards" not in on


def _at_the_gap(x: Tensor, part: Part, on: frozenset[str]) -> Tensor:
    """The stream where a part is missing."""
    gaps: dict[str, Callable[[], Tensor]] = {
        "plus sign missing": lambda: part(x),
        "stream emptied": lambda: 0 * x,
        "only halved": lambda: x + part(x) / 2,
        "subtracted at once": lambda: x - part(x),
    }
    return chosen(on, None, gaps) if on & gaps.keys() else x


def _joined(x: Tensor, made: Tensor, on: frozenset[str]) -> Tensor:
    """The stream after a part."""
    if "in place" in on:
        x += made
        return x
    if "replaced" in on:
        return made
    return (x.detach() if "stream cut" in on else x) + made


class Parts(list):
    """The parts in their order, and the calls of all of them."""

    def __init__(self, parts: Sequence[Recorded], calls: list[str]):
        super().__init__(parts)
        self.calls = calls


def _numbers(out: int | None, names: Sequence[str] = NAMES) -> Callable[[Generator], tuple]:
    """The number 2, and parts that can be followed in the head."""

    def make(g: Generator) -> tuple:
        calls: list[str] = []
        parts = Parts([Recorded(name, SIMPLE[name], calls) for name in names], calls)
        return torch.tensor([2.0]), parts, out

    return make


def _maps(
    out: int | None, *shape: int, dtype: torch.dtype = torch.float32
) -> Callable[[Generator], tuple]:
    """x of this shape, and four parts, each with a map of its own."""

    def make(g: Generator) -> tuple:
        x = torch.randn(shape, generator=g).to(dtype)
        maps = torch.randn(4, shape[-1], shape[-1], generator=g).to(dtype)
        calls: list[str] = []
        parts = [
            Recorded(f"part {i}", lambda z, m=m: torch.tanh(z @ m) + 0.3, calls)
            for i, m in enumerate(maps)
        ]
        return x, Parts(parts, calls), out

    return make


def _calls(arguments: tuple, result: Any) -> list[str]:
    return arguments[1].calls


STREAM_WITHOUT = Exercise(
    name="stream_without",
    lesson="09",
    reference=stream_without,
    probes=(
        Probe("a part adds to the stream: 2 + 4", _numbers(None, ("square",))),
        Probe("with None every part adds: 2, 6, 22, 33", _numbers(None)),
        Probe("without part 1 the last one reads 6: 6 + 3", _numbers(1)),
        Probe("without part 0 the next one reads x: 2, 14, 21", _numbers(0)),
        Probe("without the last part the others stay: 2, 6, 22", _numbers(2)),
        Probe("the part that is left out is not called", _numbers(1), sees=_calls),
        Probe("any dimensions are possible", _maps(2, 2, 3, 5)),
        Probe("any dimensions are possible", _maps(None, 5)),
        Probe(
            "gradients reach x along the stream and through the parts",
            _maps(1, 2, 4, 3),
            gradients=True,
        ),
        Probe("fp64 stays fp64", _maps(3, 4, 3, dtype=torch.float64)),
    ),
    **texts("stream_without"),
)

EXERCISES = (STREAM_WITHOUT,)
