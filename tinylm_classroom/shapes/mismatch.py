"""What does not fit in an operation on tensors: its operands in words, and as boxes to scale."""

import ast
from html import escape
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from ..display.cards import CODE, code, paragraph, unmarked
from .comments import Letters, Size
from .letters import axis_in_words, axis_names, chips, spelled, used_letters

_WRONG = "#b3400b"  # white on it has a contrast of 6
# sides of a box, in pixels
_LONGEST = 150
_SHORTEST = 30


class Operand(NamedTuple):
    """One operand: as it is written, what it is, its shape (None: it has none), and the axes of it
    that disagree.
    """

    text: str
    value: Any
    size: Size | None
    wrong: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, value: Any) -> "Operand":
        """An operand by its value: a tensor, a number, which has no axes, or anything else."""
        if isinstance(value, torch.Tensor | np.ndarray):
            return cls(text, value, tuple(value.shape))
        return cls(text, value, () if isinstance(value, bool | int | float) else None)

    @property
    def term(self) -> str:
        """The text so that more can be written behind it."""
        simple = ast.Name | ast.Attribute | ast.Call | ast.Subscript
        return (
            self.text
            if isinstance(ast.parse(self.text, mode="eval").body, simple)
            else f"({self.text})"
        )

    def marked(self, *axes: int) -> "Operand":
        """The operand with axes that disagree, counted from the front or the end."""
        return self._replace(wrong=tuple(i % len(self.size) for i in axes))


class Mismatch(NamedTuple):
    """What does not fit: the operands around their sign, what must hold, what it probably is (or
    nothing), a title.
    """

    sign: str
    operands: tuple[Operand, ...]
    fact: str
    guess: str = ""
    title: str = "These shapes do not fit"


class Case(NamedTuple):
    """A failed operation: its name, its operands by position and by keyword, its error, and the
    letters known there.
    """

    name: str
    given: list[Operand]
    named: dict[str, Operand]
    error: BaseException
    letters: Letters

    def operands(self, *names: str) -> list[Operand]:
        """The operands by position or by keyword, one without a value where there is none."""
        absent = {name: Operand("", None, None) for name in names}
        named = [{**absent, **self.named}[name] for name in names[len(self.given) :]]
        return [*self.given[: len(names)], *named]

    def with_axes(self) -> list[Operand]:
        """All operands that have axes."""
        return [one for one in [*self.given, *self.named.values()] if one.size]

    def axis(self, one: Operand, place: int) -> str:
        """One axis in words, `C = 64`."""
        return axis_in_words(one.size, place, self.letters)

    def shape(self, one: Operand) -> str:
        """A shape in words, `(B, T) = (2, 16)`."""
        return spelled(one.size, axis_names(one.size, self.letters))

    def clash(
        self, sign: str, one: Operand, i: int, other: Operand, j: int, fact: str, guess: str = ""
    ) -> Mismatch:
        """The mismatch of axis i of one operand with axis j of the other; `{}` in the fact are
        these axes in words.
        """
        met = self.axis(one, i), self.axis(other, j)
        return Mismatch(sign, (one.marked(i), other.marked(j)), fact.format(*met), guess)


def in_words(found: Mismatch, letters: Letters) -> list[str]:
    """The mismatch as lines of plain text: the operands, what must hold, what it probably is."""
    width = max(len(one.text) for one in found.operands)
    lines = []
    for one in found.operands:
        mark = f"  <- {' and '.join(f'axis {i}' for i in one.wrong)}" if one.wrong else ""
        lines.append(
            f"  {one.text:<{width}}  {spelled(one.size, axis_names(one.size, letters))}{mark}"
        )
    return [*lines, *(f"  {unmarked(words)}" for words in (found.fact, found.guess) if words)]


def drawn(found: Mismatch, letters: Letters) -> list[str]:
    """The mismatch as parts of a card: the operands as boxes, what must hold, what it may be."""
    sides = chain.from_iterable(one.size[-2:] for one in found.operands)
    scale = _LONGEST / max([1, *sides])
    style = f"{CODE};font-size:22px;font-weight:700;margin:0 10px"
    sign = f'<span style="{style}">{escape(found.sign)}</span>'
    boxes = sign.join(_box(one, letters, scale) for one in found.operands)
    row = f'<div style="display:flex;flex-wrap:wrap;align-items:center;margin:10px 0">{boxes}</div>'
    parts = [row, paragraph(found.fact)]
    if found.guess:
        parts.append(paragraph(found.guess).replace('<p style="', '<p style="font-weight:700;'))
    return parts


def _box(one: Operand, letters: Letters, scale: float) -> str:
    n = len(one.size)
    names = axis_names(one.size, letters)
    labels = [
        _label(name, size, i in one.wrong)
        for i, (name, size) in enumerate(zip(names, one.size, strict=True))
    ]
    high, wide = (
        max(_SHORTEST, min(_LONGEST, round(side * scale))) for side in (0, 0, *one.size)[-2:]
    )
    edges = "".join(
        f"border-{edge}:6px solid {_WRONG};"
        for edge, place in (("top", n - 1), ("left", n - 2))
        if place in one.wrong
    )
    sheets = "box-shadow:5px -5px 0 -1px #8a94a080,10px -10px 0 -2px #8a94a04d;" if n > 2 else ""
    room = 12 if n > 2 else 2
    sheet = (
        f'<div style="width:{wide}px;height:{high}px;margin:{room}px {room}px 0 0;'
        "border:2px solid #8a94a0;background:#3b82d62e;box-sizing:border-box;"
        f'{edges}{sheets}"></div>'
    )
    many = f'<div style="margin:2px 0">{" ".join(labels[:-2])} of</div>' if n > 2 else ""
    left = f'<div style="margin-right:8px">{labels[-2]}</div>' if n > 1 else ""
    top = f'<div style="text-align:center">{labels[-1] if n else "one number"}</div>'
    body = f'<div style="display:flex;align-items:center">{left}<div>{top}{sheet}</div></div>'
    return f'<div style="margin:4px 12px 4px 0"><div>{code(one.text)}</div>{many}{body}</div>'


def _label(name: str, n: int, is_wrong: bool) -> str:
    before = f"{name} = " if used_letters([name]) else ""
    if is_wrong:
        style = f"background:{_WRONG};color:#fff;border-radius:4px;padding:1px 7px"
        return f'<b style="{style}">{escape(before)}{n}</b>'
    return f"{chips(before)}{n}"
