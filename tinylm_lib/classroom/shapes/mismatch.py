"""Why an operation on tensors failed, from the shapes of its operands: what disagrees, and what it probably is.

A rule looks at operands whose operation has raised. It returns None where their shapes are in order: then something
else was wrong, and the error speaks for itself.
"""

from collections.abc import Callable
from html import escape
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch

from ..display.cards import CODE, code, paragraph
from .letters import axis_names, chips, has_letters, spelled
from .multiplying import attention, einsum, elementwise, expand, linear, product
from .operands import Box, Case, Letters, Mismatch
from .reshaping import cat, cross_entropy, embedding, index, no_such_axis, view

RULES: dict[str, Callable[[Case], Mismatch | None]] = {
    **dict.fromkeys(("@", "matmul", "mm", "bmm", "mv", "dot"), product),
    **dict.fromkeys(("+", "-", "*", "/", "//", "%", "**", "&", "|", "^"), elementwise),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), elementwise),
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "where", "masked_fill", "addcmul"), elementwise),
    **dict.fromkeys(("maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"), elementwise),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack"), cat),
    **dict.fromkeys(("view", "reshape", "unflatten"), view),
    **dict.fromkeys(("expand", "broadcast_to"), expand),
    **dict.fromkeys(("cross_entropy", "nll_loss"), cross_entropy),
    "linear": linear,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "embedding": embedding,
    "[]": index,
}
WRONG = "#b3400b"  # white on it has a contrast of 6
LONGEST, SHORTEST = 150, 30  # sides of a box, in pixels


def find(case: Case) -> Mismatch | None:
    """Returns what does not fit, None where the shapes are in order or the operation is not known."""
    if not isinstance(case.error, RuntimeError | IndexError | ValueError):
        return None
    name = case.name.rstrip("_") or case.name
    return no_such_axis(case) or (RULES[name](case) if name in RULES else None)


def is_of_torch(called: Any) -> bool:
    """Whether a function is one that the rules know by its name, not a student's of the same name."""
    return isinstance(called, BuiltinFunctionType | MethodDescriptorType) or (
        not isinstance(called, torch.nn.Module) and str(getattr(called, "__module__", "")).startswith("torch.")
    )


def in_words(found: Mismatch, letters: Letters) -> list[str]:
    """The mismatch as lines of plain text: the operands, what must hold, what it probably is."""
    width = max(len(box.text) for box in found.boxes)
    lines = [f"  {box.text:<{width}}  {_shape(box, letters)}{_marked(box, letters)}" for box in found.boxes]
    return [*lines, f"  {found.fact}".replace("`", ""), *([f"  {found.guess}".replace("`", "")] if found.guess else [])]


def _shape(box: Box, letters: Letters) -> str:
    return spelled(box.size, axis_names(box.size, letters))


def _marked(box: Box, letters: Letters) -> str:
    axes = " and ".join(f"axis {i}" for i in box.wrong)
    return f"  <- {axes}" if axes else ""


def drawn(found: Mismatch, letters: Letters) -> list[str]:
    """The mismatch as parts of a card: the operands as boxes, what must hold, what it probably is."""
    sides = [n for box in found.boxes for n in box.size[-2:]]
    scale = LONGEST / max([*sides, 1])
    sign = f'<span style="{CODE};font-size:22px;font-weight:700;margin:0 10px">{escape(found.sign)}</span>'
    boxes = sign.join(_drawn(box, letters, scale) for box in found.boxes)
    row = f'<div style="display:flex;flex-wrap:wrap;align-items:center;margin:10px 0">{boxes}</div>'
    guess = [paragraph(found.guess).replace('<p style="', '<p style="font-weight:700;')] if found.guess else []
    return [row, paragraph(found.fact), *guess]


def _drawn(box: Box, letters: Letters, scale: float) -> str:
    names = axis_names(box.size, letters)
    labels = [_label(name, n, i in box.wrong) for i, (name, n) in enumerate(zip(names, box.size, strict=True))]
    rows, columns = ("", *box.size)[-2:] if len(box.size) > 1 else ("", *box.size, "")[:2] if box.size else ("", "")
    wide, high = (max(SHORTEST, min(LONGEST, round(n * scale))) if n else SHORTEST for n in (columns, rows))
    n = len(box.size)
    edges = "".join(
        f"border-{edge}:6px solid {WRONG};" for edge, place in (("top", n - 1), ("left", n - 2)) if place in box.wrong
    )
    sheets = "box-shadow:5px -5px 0 -1px #8a94a080,10px -10px 0 -2px #8a94a04d;" if n > 2 else ""
    room = 12 if n > 2 else 2
    sheet = (
        f'<div style="width:{wide}px;height:{high}px;margin:{room}px {room}px 0 0;border:2px solid #8a94a0;'
        f'background:#3b82d62e;box-sizing:border-box;{edges}{sheets}"></div>'
    )
    many = f'<div style="margin:2px 0">{" ".join(labels[:-2])} of</div>' if n > 2 else ""
    left = f'<div style="margin-right:8px">{labels[-2]}</div>' if n > 1 else ""
    top = f'<div style="text-align:center">{labels[-1] if n else "one number"}</div>'
    body = f'<div style="display:flex;align-items:center">{left}<div>{top}{sheet}</div></div>'
    return f'<div style="margin:4px 12px 4px 0"><div>{code(box.text)}</div>{many}{body}</div>'


def _label(name: str, n: int, is_wrong: bool) -> str:
    text = f"{name} = {n}" if has_letters([name]) else str(n)
    if is_wrong:
        return f'<b style="background:{WRONG};color:#fff;border-radius:4px;padding:1px 7px">{escape(text)}</b>'
    return f"{chips(name)} = {n}" if has_letters([name]) else str(n)
