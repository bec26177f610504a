"""Rules for operations that pair the axes of two tensors: products, and operations element by element."""

import re
from collections.abc import Iterator
from itertools import combinations

from .comments import Size
from .operands import Box, Case, Given, Mismatch, box_of, boxes_of, sizes_given, turned, with_suffix


def product(case: Case) -> Mismatch | None:
    left, right = (box_of(given) for given in (case.get(0, "input"), case.get(1, "other")))
    if left is None or right is None or _multiplies(left.size, right.size):
        return None
    if not left.size or not right.size:
        return Mismatch("@", (left, right), f"`{case.name}` needs axes on both sides; for a number use `*`.")
    inner = max(len(right.size) - 2, 0)
    guess = _product_guess(left, right)
    if left.size[-1] != right.size[inner]:
        which = "only" if len(right.size) == 1 else "first" if inner == 0 else "last but one"
        fact = (
            f"The last axis of the left, {case.axis(left.size, -1)}, must equal the {which} axis of the right, "
            f"{case.axis(right.size, inner)}."
        )
        wrong = (len(left.size) - 1,), (inner,)
    else:
        one, other = _clash(left.size[:-2], right.size[:-2])
        fact = (
            "The last two axes fit. The axes in front of them are paired from the right, and there "
            f"{case.axis(left.size, one)} meets {case.axis(right.size, other)}."
        )
        wrong = (one,), (other,)
    return Mismatch("@", (left._replace(wrong=wrong[0]), right._replace(wrong=wrong[1])), fact, guess)


def _multiplies(a: Size, b: Size) -> bool:
    if not a or not b:
        return False
    a, b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    return a[-1] == b[-2] and _clash(a[:-2], b[:-2]) is None


def _product_guess(left: Box, right: Box) -> str:
    if len(left.size) == len(right.size) == 4:
        for side, fits in ((right, lambda size: (left.size, size)), (left, lambda size: (size, right.size))):
            for text, size in _moved_heads(side):
                if _multiplies(*fits(size)):
                    return (
                        "It looks as if only one side has its heads in front of its positions, "
                        f"because a split into heads forgot `transpose(1, 2)`: `{text}` would fit."
                    )
    repairs = [("right", text, (left.size, size)) for text, size in turned(right)]
    repairs += [("left", text, (size, right.size)) for text, size in turned(left)]
    for side, text, sizes in repairs:
        if _multiplies(*sizes):
            return f"The {side} side looks transposed: `{text}` would fit."
    if _multiplies(right.size, left.size):
        return f"The two sides look exchanged: `{with_suffix(right.text)} @ {with_suffix(left.text)}` would fit."
    return ""


def _moved_heads(box: Box) -> Iterator[tuple[str, Size]]:
    """Yields a shape of four axes with heads and positions exchanged, beneath a transposition that is there already."""
    size = box.size
    inner = re.fullmatch(r"(.*)(\.transpose\(-2, -1\)|\.transpose\(-1, -2\)|\.transpose\(2, 3\)|\.mT)", box.text)
    if inner:
        yield f"{inner[1]}.transpose(1, 2){inner[2]}", (size[0], size[3], size[2], size[1])
    else:
        yield f"{with_suffix(box.text)}.transpose(1, 2)", (size[0], size[2], size[1], size[3])


def linear(case: Case) -> Mismatch | None:
    x, w, bias = (box_of(case.get(i, name)) for i, name in enumerate(("input", "weight", "bias")))
    if x is None or w is None or not x.size or len(w.size) != 2:
        return None
    if bias and bias.size and bias.size != w.size[:1]:
        fact = f"The bias needs one number per output, {case.axis(w.size, 0)}, and has {case.axis(bias.size, -1)}."
        return Mismatch("linear", (w._replace(wrong=(0,)), bias._replace(wrong=(len(bias.size) - 1,))), fact)
    if x.size[-1] == w.size[1]:
        return None
    fact = (
        f"`linear` pairs the last axis of the input, {case.axis(x.size, -1)}, with the last axis of the weight "
        f"(out, in), {case.axis(w.size, 1)}."
    )
    upright = [text for text, size in turned(x) if size[-1] == w.size[1]]
    guess = ""
    if len(x.size) == 4 and x.size[1] * x.size[3] == w.size[1]:
        guess = f"The heads do not look merged yet: `{with_suffix(x.text)}.transpose(1, 2).flatten(2)` would fit."
    elif len(x.size) > 2 and x.size[-2] * x.size[-1] == w.size[1]:
        guess = f"The last two axes do not look merged yet: `{with_suffix(x.text)}.flatten(-2)` would fit."
    elif upright:
        guess = f"The input looks transposed: `{upright[0]}` would fit."
    elif x.size[-1] == w.size[0]:
        guess = (
            f"The weight looks like (in, out); a weight is stored as (out, in): `{with_suffix(w.text)}.T` would fit."
        )
    return Mismatch("linear", (x._replace(wrong=(len(x.size) - 1,)), w._replace(wrong=(1,))), fact, guess)


def einsum(case: Case) -> Mismatch | None:
    equation = getattr(case.get(0, "equation"), "value", None)
    rest = case.given[1:]
    if len(rest) == 1 and isinstance(rest[0].value, tuple | list):
        rest = [Given(f"operand {i}", value) for i, value in enumerate(rest[0].value, 1)]
    boxes = [box_of(given) for given in rest]
    if not isinstance(equation, str) or "." in equation or None in boxes:
        return None
    sides = equation.replace(" ", "").partition("->")[0].split(",")
    if len(sides) != len(boxes):
        return None
    seen: dict[str, tuple[int, int]] = {}
    for i, (letters, box) in enumerate(zip(sides, boxes, strict=True)):
        if len(letters) != len(box.size):
            fact = f"The equation gives `{box.text}` {len(letters)} axes, `{letters}`, but it has {len(box.size)}."
            return Mismatch("einsum", (box,), fact)
        for place, letter in enumerate(letters):
            j, there = seen.setdefault(letter, (i, place))
            if boxes[j].size[there] != box.size[place]:
                fact = (
                    f"In the equation the axis `{letter}` is {boxes[j].size[there]} in `{boxes[j].text}` and "
                    f"{box.size[place]} in `{box.text}`; one letter is one size."
                )
                return Mismatch("einsum", (boxes[j]._replace(wrong=(there,)), box._replace(wrong=(place,))), fact)
    return None


def attention(case: Case) -> Mismatch | None:
    q, k, v = (box_of(case.get(i, name)) for i, name in enumerate(("query", "key", "value")))
    if None in (q, k, v) or min(len(box.size) for box in (q, k, v)) < 2:
        return None
    for one, other, axes, words in (
        (q, k, (-1, -1), "Queries and keys are multiplied along their last axis"),
        (k, v, (-2, -2), "Every key has one value: the last but one axis of both is the position"),
    ):
        if one.size[axes[0]] != other.size[axes[1]]:
            met = f"{case.axis(one.size, axes[0])} meets {case.axis(other.size, axes[1])}"
            wrong = (len(one.size) + axes[0],), (len(other.size) + axes[1],)
            return Mismatch(
                "attend", (one._replace(wrong=wrong[0]), other._replace(wrong=wrong[1])), f"{words}: {met}."
            )
    return None


def elementwise(case: Case) -> Mismatch | None:
    boxes = boxes_of(case)
    for left, right in combinations(boxes, 2):
        if clash := _clash(left.size, right.size):
            one, other = clash
            fact = (
                "Read both shapes from the right: on each axis the sizes must be equal, or one of them 1. "
                f"Here {case.axis(left.size, one)} meets {case.axis(right.size, other)}."
            )
            pair = left._replace(wrong=(one,)), right._replace(wrong=(other,))
            return Mismatch(case.name, pair, fact, _broadcast_guess(left, right, left.size[one], right.size[other]))
    return None


def _clash(a: Size, b: Size) -> tuple[int, int] | None:
    """Returns the first axes from the right, counted from the front, that cannot be paired; None where all can."""
    for back in range(1, min(len(a), len(b)) + 1):
        if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
            return len(a) - back, len(b) - back
    return None


def _broadcast_guess(left: Box, right: Box, n: int, m: int) -> str:
    for box, other in ((right, left), (left, right)):
        for place in range(len(box.size), 0, -1) if len(box.size) < len(other.size) else ():
            size = (*box.size[:place], 1, *box.size[place:])
            if _clash(size, other.size):
                continue
            if place == len(box.size):
                return (
                    f"`{box.text}` looks as if a sum, mean or maximum had dropped its last axis, which keepdim=True "
                    f"keeps: `{with_suffix(box.text)}[..., None]` would fit."
                )
            return f"`{with_suffix(box.text)}.unsqueeze({place})`, with an axis of size 1 in that place, would fit."
    for box, other in ((right, left), (left, right)):
        for text, size in turned(box):
            if _clash(size, other.size) is None:
                return f"`{box.text}` looks transposed: `{text}` would fit."
    if abs(n - m) == 1:
        return "The sizes differ by one: was one position cut off, or added, on one side only?"
    return ""


def expand(case: Case) -> Mismatch | None:
    box, target = box_of(case.get(0, "input")), sizes_given(case.given[1:])
    if box is None or target is None:
        return None
    target = tuple(
        box.size[i - len(target)] if n == -1 and len(target) - i <= len(box.size) else n for i, n in enumerate(target)
    )
    wished = Box(f"{case.name}{target}", target)
    if len(target) < len(box.size):
        return Mismatch(
            "→", (box, wished), f"`{box.text}` has {len(box.size)} axes, more than the {len(target)} asked for."
        )
    for back in range(1, len(box.size) + 1):
        if box.size[-back] not in (1, target[-back]):
            places = len(box.size) - back, len(target) - back
            met = f"{case.axis(box.size, places[0])} should become {target[-back]}"
            fact = f"Only an axis of size 1 can be repeated; here {met}."
            return Mismatch("→", (box._replace(wrong=places[:1]), wished._replace(wrong=places[1:])), fact)
    return None
