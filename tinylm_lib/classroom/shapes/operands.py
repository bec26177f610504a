"""The operands of an operation that failed: as they are written, as boxes to be drawn, and in words."""

import ast
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch

from .comments import Size
from .letters import axis, axis_names, spelled

Letters = Mapping[str, int]


class Given(NamedTuple):
    """One operand: as it is written, and what it was."""

    text: str
    value: Any


class Box(NamedTuple):
    """A shape to be drawn, and the axes of it that disagree."""

    text: str
    size: Size
    wrong: tuple[int, ...] = ()


class Mismatch(NamedTuple):
    """What does not fit: the boxes around their sign, what must hold, and what it probably is (or nothing)."""

    sign: str
    boxes: tuple[Box, ...]
    fact: str
    guess: str = ""


class Case(NamedTuple):
    """A failed operation: its name, its operands by position and by keyword, its error, and the letters known there."""

    name: str
    given: list[Given]
    named: dict[str, Given]
    error: BaseException
    letters: Letters

    def get(self, place: int, name: str) -> Given | None:
        """An operand by position or by keyword."""
        return self.given[place] if place < len(self.given) else self.named.get(name)

    def axis(self, size: Size, place: int) -> str:
        """One axis in words, `C = 64`."""
        return axis(size, place, self.letters)

    def shape(self, box: Box) -> str:
        """A shape in words, `(B, T) = (2, 16)`."""
        return spelled(box.size, axis_names(box.size, self.letters))


def box_of(given: Given | None) -> Box | None:
    """Returns the box of a tensor or a number, None for anything else."""
    value = getattr(given, "value", None)
    if isinstance(value, torch.Tensor | np.ndarray):
        return Box(given.text, tuple(value.shape))
    return Box(given.text, ()) if isinstance(value, bool | int | float) else None


def tensor_box(given: Given | None) -> Box | None:
    """Returns the box of a tensor, None for anything else."""
    return box_of(given) if isinstance(getattr(given, "value", None), torch.Tensor | np.ndarray) else None


def boxes_of(case: Case) -> list[Box]:
    """Returns the boxes of all operands that have axes."""
    return [box for given in [*case.given, *case.named.values()] if (box := box_of(given)) and box.size]


def sizes_given(given: list[Given]) -> Size | None:
    """Returns the sizes that are asked for, one by one or as a tuple."""
    values = [given.value for given in given]
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    return tuple(values) if values and all(type(n) is int for n in values) else None


def turned(box: Box) -> Iterator[tuple[str, Size]]:
    """Yields the box with two of its axes exchanged, the last two first; nobody mistakes a batch for the last axis."""
    n = len(box.size)
    pairs = [pair for pair in combinations(range(n), 2) if n == 2 or pair != (0, n - 1)]
    for i, j in sorted(pairs, key=lambda pair: pair != (n - 2, n - 1)):
        size = list(box.size)
        size[i], size[j] = size[j], size[i]
        if size[i] != size[j]:
            suffix = ".T" if n == 2 else ".transpose(-2, -1)" if (i, j) == (n - 2, n - 1) else f".transpose({i}, {j})"
            undone = box.text.endswith(suffix)
            yield box.text.removesuffix(suffix) if undone else with_suffix(box.text) + suffix, tuple(size)


def with_suffix(text: str) -> str:
    """Returns the text of an operand so that more can be written behind it."""
    simple = isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if simple else f"({text})"
