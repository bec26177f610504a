"""The rules of operations on tensors: which axes must agree, and what a mismatch probably is.

A rule looks at operands whose operation has raised. It returns None where their shapes are in
order: then something else was wrong, and the error speaks for itself.
"""

import ast
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor

from .comments import Size
from .letters import axis_names
from .mismatch import Case, Mismatch, Operand

OUT_OF_RANGE = "An index is out of range"

Repairs = Iterator[tuple[bool, str]]  # whether it would fit, and what to say then


def mismatch_of(case: Case) -> Mismatch | None:
    """Returns what does not fit, None where the shapes are in order or no rule is known."""
    if not isinstance(case.error, RuntimeError | IndexError | ValueError):
        return None
    rule = _RULES.get(case.name.rstrip("_") or case.name)
    return _no_such_axis(case) or (rule(case) if rule else None)


def is_of_torch(called: Any) -> bool:
    """Whether the rules know a function by its name: a student's may have the same."""
    return isinstance(called, BuiltinFunctionType | MethodDescriptorType) or (
        not isinstance(called, torch.nn.Module)
        and str(getattr(called, "__module__", "")).startswith("torch.")
    )


def _guess(repairs: Repairs) -> str:
    return next((words for fits, words in repairs if fits), "")


def _turned(one: Operand) -> Iterator[tuple[str, Size]]:
    """Yields two of the axes exchanged, the last two first; nobody mistakes a batch for the last
    axis.
    """
    n = len(one.size)
    pairs = [pair for pair in combinations(range(n), 2) if n == 2 or pair != (0, n - 1)]
    for i, j in sorted(pairs, key=lambda pair: pair != (n - 2, n - 1)):
        size = list(one.size)
        size[i], size[j] = size[j], size[i]
        if size[i] != size[j]:
            suffix = f".transpose({i}, {j})"
            if n == 2:
                suffix = ".T"
            elif (i, j) == (n - 2, n - 1):
                suffix = ".transpose(-2, -1)"
            undone = one.text.removesuffix(suffix)
            yield undone if undone != one.text else one.term + suffix, tuple(size)


def _product(case: Case) -> Mismatch | None:
    left, right = case.operands("input", "other")
    if None in (left.size, right.size) or _multiplies(left.size, right.size):
        return None
    if not left.size or not right.size:
        fact = f"`{case.name}` needs axes on both sides; for a number use `*`."
        return Mismatch("@", (left, right), fact)
    inner = max(len(right.size) - 2, 0)
    guess = _guess(_product_repairs(left, right))
    if left.size[-1] != right.size[inner]:
        which = {1: "only", 2: "first"}.get(len(right.size), "last but one")
        fact = f"The last axis of the left, {{}}, must equal the {which} axis of the right, {{}}."
        return case.clash("@", left, -1, right, inner, fact, guess)
    one, other = _clash(left.size[:-2], right.size[:-2])
    fact = (
        "The last two axes fit. The axes in front of them are paired from the right, and there {} "
        "meets {}."
    )
    return case.clash("@", left, one, right, other, fact, guess)


def _multiplies(a: Size, b: Size) -> bool:
    if not a or not b:
        return False
    a = (1, *a) if len(a) == 1 else a
    b = (*b, 1) if len(b) == 1 else b
    return a[-1] == b[-2] and _clash(a[:-2], b[:-2]) is None


def _product_repairs(left: Operand, right: Operand) -> Repairs:
    sides = (
        ("right", right, lambda size: (left.size, size)),
        ("left", left, lambda size: (size, right.size)),
    )
    for _, side, both in sides if len(left.size) == len(right.size) == 4 else ():
        text, size = _moved_heads(side)
        words = (
            "It looks as if only one side has its heads in front of its positions, because a split "
            f"into heads forgot `transpose(1, 2)`: `{text}` would fit."
        )
        yield _multiplies(*both(size)), words
    for name, side, both in sides:
        for text, size in _turned(side):
            yield _multiplies(*both(size)), f"The {name} side looks transposed: `{text}` would fit."
    words = f"The two sides look exchanged: `{right.term} @ {left.term}` would fit."
    yield _multiplies(right.size, left.size), words


def _moved_heads(one: Operand) -> tuple[str, Size]:
    """Returns four axes with heads and positions exchanged, beneath a transposition that is there
    already.
    """
    a, b, c, d = one.size
    inner = re.fullmatch(r"(.*)(\.transpose\((?:-2, -1|-1, -2|2, 3)\)|\.mT)", one.text)
    if inner:
        return f"{inner[1]}.transpose(1, 2){inner[2]}", (a, d, c, b)
    return f"{one.term}.transpose(1, 2)", (a, c, b, d)


def _elementwise(case: Case) -> Mismatch | None:
    fact = (
        "Read both shapes from the right: on each axis the sizes must be equal, or one of them 1. "
        "Here {} meets {}."
    )
    for left, right in combinations(case.with_axes(), 2):
        if clash := _clash(left.size, right.size):
            guess = _guess(_broadcast_repairs(left, right, clash))
            return case.clash(case.name, left, clash[0], right, clash[1], fact, guess)
    return None


def _clash(a: Size, b: Size) -> tuple[int, int] | None:
    """Returns the first axes from the right, counted from the front, that cannot be paired; None
    where all can.
    """
    for back in range(1, min(len(a), len(b)) + 1):
        if a[-back] != b[-back] and 1 not in (a[-back], b[-back]):
            return len(a) - back, len(b) - back
    return None


def _broadcast_repairs(left: Operand, right: Operand, clash: tuple[int, int]) -> Repairs:
    pairs = (right, left), (left, right)
    for one, other in pairs:
        n = len(one.size)
        for place in range(n, 0, -1) if n < len(other.size) else ():
            words = f"`{one.term}.unsqueeze({place})`, with an axis of size 1 there, would fit."
            if place == n:
                words = (
                    f"`{one.text}` looks as if a sum, mean or maximum had dropped its last axis, "
                    f"which keepdim=True keeps: `{one.term}[..., None]` would fit."
                )
            yield not _clash((*one.size[:place], 1, *one.size[place:]), other.size), words
    for one, other in pairs:
        for text, size in _turned(one):
            words = f"`{one.text}` looks transposed: `{text}` would fit."
            yield not _clash(size, other.size), words
    by_one = abs(left.size[clash[0]] - right.size[clash[1]]) == 1
    yield by_one, "The sizes differ by one: was one position cut off, or added, on one side only?"


def _linear(case: Case) -> Mismatch | None:
    x, w, bias = case.operands("input", "weight", "bias")
    if not x.size or len(w.size or ()) != 2:
        return None
    if bias.size and bias.size != w.size[:1]:
        fact = "The bias needs one number per output, {}, and has {}."
        return case.clash("linear", w, 0, bias, -1, fact)
    if x.size[-1] == w.size[1]:
        return None
    fact = (
        "`linear` pairs the last axis of the input, {}, with the last axis of the weight (out, "
        "in), {}."
    )
    return case.clash("linear", x, -1, w, 1, fact, _guess(_linear_repairs(x, w)))


def _linear_repairs(x: Operand, w: Operand) -> Repairs:
    n = w.size[1]
    heads = len(x.size) == 4 and x.size[1] * x.size[3]
    words = f"The heads do not look merged yet: `{x.term}.transpose(1, 2).flatten(2)` would fit."
    yield heads == n, words
    merged = len(x.size) > 2 and x.size[-2] * x.size[-1]
    words = f"The last two axes do not look merged yet: `{x.term}.flatten(-2)` would fit."
    yield merged == n, words
    for text, size in _turned(x):
        yield size[-1] == n, f"The input looks transposed: `{text}` would fit."
    words = (
        f"The weight looks like (in, out); a weight is stored as (out, in): `{w.term}.T` would fit."
    )
    yield x.size[-1] == w.size[0], words


def _einsum(case: Case) -> Mismatch | None:
    equation = case.operands("equation")[0].value
    operands = case.given[1:]
    if len(operands) == 1 and isinstance(operands[0].value, tuple | list):
        operands = [
            Operand.of(f"operand {i}", value) for i, value in enumerate(operands[0].value, 1)
        ]
    if (
        not isinstance(equation, str)
        or "." in equation
        or any(one.size is None for one in operands)
    ):
        return None
    sides = equation.replace(" ", "").partition("->")[0].split(",")
    seen: dict[str, tuple[Operand, int]] = {}
    for letters, one in zip(sides, operands, strict=False) if len(sides) == len(operands) else ():
        if len(letters) != len(one.size):
            fact = (
                f"The equation gives `{one.text}` {len(letters)} axes, `{letters}`, but it has "
                f"{len(one.size)}."
            )
            return Mismatch("einsum", (one,), fact)
        for place, letter in enumerate(letters):
            other, there = seen.setdefault(letter, (one, place))
            if other.size[there] != one.size[place]:
                fact = (
                    f"In the equation the axis `{letter}` is {other.size[there]} in `{other.text}` "
                    f"and {one.size[place]} in `{one.text}`; one letter is one size."
                )
                return Mismatch("einsum", (other.marked(there), one.marked(place)), fact)
    return None


def _attention(case: Case) -> Mismatch | None:
    q, k, v = case.operands("query", "key", "value")
    if min(len(one.size or ()) for one in (q, k, v)) < 2:
        return None
    if q.size[-1] != k.size[-1]:
        fact = "Queries and keys are multiplied along their last axis: {} meets {}."
        return case.clash("attend", q, -1, k, -1, fact)
    fact = "Every key has one value: the last but one axis of both is the position: {} meets {}."
    return case.clash("attend", k, -2, v, -2, fact) if k.size[-2] != v.size[-2] else None


def _sizes_given(given: Sequence[Operand]) -> Size | None:
    """Returns the requested sizes, given one by one or as a tuple."""
    values = [one.value for one in given]
    if len(values) == 1 and isinstance(values[0], tuple | list):
        values = list(values[0])
    return tuple(values) if values and all(type(n) is int for n in values) else None


def _expand(case: Case) -> Mismatch | None:
    one = case.operands("input")[0]
    target = _sizes_given(case.given[1:])
    if one.size is None or target is None:
        return None
    n = len(one.size)
    m = len(target)
    kept = range(m - n, m)  # where -1 means the size that is there
    target = tuple(
        one.size[i - m] if size == -1 and i in kept else size for i, size in enumerate(target)
    )
    wished = Operand(f"{case.name}{target}", None, target)
    if m < n:
        fact = f"`{one.text}` has {n} axes, more than the {m} requested ones."
        return Mismatch("→", (one, wished), fact)
    for back in range(-1, -n - 1, -1):
        if one.size[back] not in (1, target[back]):
            fact = (
                f"Only an axis of size 1 can be repeated; here {{}} should become {target[back]}."
            )
            return case.clash("→", one, back, wished, back, fact)
    return None


def _cat(case: Case) -> Mismatch | None:
    """`cat` and `stack`: the first tensor, and the first that does not fit it."""
    parts, dim = case.operands("tensors", "dim")
    first, *others = _parts(parts) or [None]
    for one in others:
        n = len(first.size)
        if len(one.size) != n:
            return _other_number_of_axes(case, first, one)
        along = None if case.name == "stack" else (dim.value or 0) % n
        differ = [i for i in range(n) if first.size[i] != one.size[i]]
        wrong = [i for i in differ if i != along]
        if wrong:
            rule = "`stack` needs equal shapes"
            if along is not None:
                rule = f"`{case.name}` along axis {along} lets only that axis differ"
            met = f"{case.axis(first, wrong[0])} against {case.axis(one, wrong[0])}"
            fact = f"{rule}; axis {wrong[0]} is {met}."
            guess = ""
            if len(differ) == 1:
                cat = f"`torch.cat(..., dim={differ[0]})`"
                guess = f"They differ in axis {differ[0]} alone: {cat} would fit."
            pair = first.marked(*wrong), one.marked(*wrong)
            return Mismatch(case.name, pair, fact, guess)
    return None


def _parts(parts: Operand) -> list[Operand]:
    """Returns the tensors in a list or tuple, none at all if anything else is in it."""
    if not isinstance(parts.value, tuple | list):
        return []
    texts = [
        ast.unparse(part) for part in getattr(ast.parse(parts.text, mode="eval").body, "elts", ())
    ]
    if len(texts) != len(parts.value):
        texts = [f"{parts.text}[{i}]" for i in range(len(parts.value))]
    found = [Operand.of(text, value) for text, value in zip(texts, parts.value, strict=True)]
    return [] if any(one.size is None for one in found) else found


def _other_number_of_axes(case: Case, first: Operand, one: Operand) -> Mismatch:
    fact = (
        f"`{case.name}` needs the same number of axes everywhere: {case.shape(first)} against "
        f"{case.shape(one)}."
    )
    short, long = sorted((first, one), key=lambda one: len(one.size))
    guess = ""
    if len(long.size) - len(short.size) == 1:
        guess = (
            f"`{short.text}` looks as if it had lost an axis: a slice `[:, -1:]` or "
            "`keepdim=True` keeps it."
        )
    return Mismatch(case.name, (first, one), fact, guess)


def _view(case: Case) -> Mismatch | None:
    """`view`, `reshape` and `unflatten`: numbers that do not fill the new shape, or are not in its
    order.
    """
    one = case.operands("input")[0]
    target = _target(case)
    if one.size is None or target is None:
        return None
    rest = -1 in target
    sizes = [n for n in target if n != -1]
    have = math.prod(one.size)
    known = math.prod(sizes)
    if have == known or (rest and known and have % known == 0):
        fact = (
            "The numbers suffice, but in memory they are in another order: a transpose only "
            "relabels the axes."
        )
        guess = (
            "`.reshape(...)` copies where it must; so does `.contiguous()` in front of "
            "`.view(...)`."
        )
        return Mismatch("→", (one,), fact, guess) if "stride" in str(case.error) else None
    numbers = _product_in_words(axis_names(one.size, case.letters), have)
    verb = "is not a multiple of" if rest else "does not equal"
    filled = _product_in_words(map(str, sizes), known)
    fact = f"`{case.name}` keeps every number, but {numbers} {verb} {filled}."
    wished = Operand(f"{case.name}{target}", None, target)
    for i, n in enumerate(target if known and not rest else ()):
        if n > 0 and n not in one.size and have % (known // n) == 0:
            right = f"With {have // (known // n)} instead of {n} it would fit."
            return Mismatch("→", (one, wished.marked(i)), fact, right)
    return Mismatch("→", (one, wished), fact)


def _product_in_words(names: Iterable[str], n: int) -> str:
    text = " * ".join(names)
    return str(n) if text in ("", str(n)) else f"{text} = {n}"


def _target(case: Case) -> Size | None:
    """Returns the whole shape that is requested."""
    if case.name != "unflatten":
        return _sizes_given([case.named["shape"]] if "shape" in case.named else case.given[1:])
    one, dim, cut = case.operands("input", "dim", "sizes")
    sizes = _sizes_given([cut])
    if not one.size or type(dim.value) is not int or sizes is None:
        return None
    place = dim.value % len(one.size)
    return (*one.size[:place], *sizes, *one.size[place + 1 :])


def _embedding(case: Case) -> Mismatch | None:
    """Ids that are not integers, or not rows of the table."""
    ids, table = case.operands("input", "weight")
    if not isinstance(ids.value, Tensor) or not table.size:
        return None
    if ids.value.is_floating_point():
        kind = str(ids.value.dtype).removeprefix("torch.")
        fact = f"`{ids.text}` holds {kind} numbers, but a row is looked up by an integer."
        return Mismatch(case.name, (ids, table), fact, f"`{ids.term}.long()` would fit.")
    wrong = _outside(ids.value, table.size[0])
    if wrong is None:
        return None
    fact = (
        f"Row {wrong} is looked up, but the table has the rows 0 to {table.size[0] - 1}: "
        f"{case.axis(table, 0)}."
    )
    guess = "A negative id does not count from the end."
    if wrong > 0:
        guess = "The ids look like those of a larger vocabulary."
    return Mismatch(case.name, (ids, table.marked(0)), fact, guess, OUT_OF_RANGE)


def _outside(ids: Tensor, n: int) -> int | None:
    """Returns an id below 0 or from n on, None where there is none."""
    low, high = (int(end) for end in ids.aminmax()) if ids.numel() else (0, 0)
    if low < 0:
        return low
    return high if high >= n else None


def _index(case: Case) -> Mismatch | None:
    """An index outside an axis, and a mask of another shape than what it selects from."""
    one, mask = case.operands("input", "index")
    said = r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)"
    out = re.search(said, str(case.error))
    if one.size and out and int(out[2]) < len(one.size):
        fact = f"Axis {out[2]} is empty."
        if out[3] != "0":
            fact = f"Axis {out[2]} has the indices 0 to {int(out[3]) - 1}, not {out[1]}."
        return Mismatch("[ ]", (one.marked(int(out[2])),), fact, title=OUT_OF_RANGE)
    if one.size is None or getattr(mask.value, "dtype", None) != torch.bool:
        return None
    wrong = [i for i, n in enumerate(mask.size) if one.size[i : i + 1] != (n,)]
    fact = (
        f"A mask has the shape of what it selects from: {case.shape(one)} against "
        f"{case.shape(mask)}."
    )
    pair = one.marked(*(i for i in wrong if i < len(one.size))), mask.marked(*wrong)
    return Mismatch("[ ]", pair, fact) if wrong else None


def _cross_entropy(case: Case) -> Mismatch | None:
    """Classes on another axis than 1, another number of targets than of rows, a target that is not
    a class.
    """
    x, y = case.operands("input", "target")
    if not x.size or not isinstance(y.value, Tensor) or y.value.is_floating_point():
        return None
    classes = min(1, len(x.size) - 1)
    places = [i for i in range(len(x.size)) if i != classes]
    rest = tuple(x.size[i] for i in places)
    if rest == y.size:
        wrong = _outside(y.value[y.value != -100], x.size[classes])
        if wrong is None:
            return None
        last = x.size[classes] - 1
        fact = f"A target is {wrong}, but there are scores for the classes 0 to {last} only."
        return Mismatch(case.name, (x.marked(classes), y), fact, title=OUT_OF_RANGE)
    if len(x.size) > 2 and x.size[:-1] == y.size:
        found = case.axis(x, 1)
        fact = (
            f"`{case.name}` looks for the classes on axis 1 and finds {found} there; yours are on "
            "the last axis."
        )
        flat = f"`{x.term}.flatten(0, -2)` and `{y.term}.flatten()`"
        guess = f"{flat} would fit: one row of scores for each target."
        return Mismatch(case.name, (x.marked(1), y), fact, guess)
    fact = f"Each row of scores needs one target: {case.shape(x)} against {case.shape(y)}."
    wrong = [i for i, (n, m) in enumerate(zip(rest, y.size, strict=False)) if n != m]
    by_one = len(rest) == len(y.size) and all(abs(rest[i] - y.size[i]) == 1 for i in wrong)
    guess = ""
    if by_one:
        guess = "The sizes differ by one: was the last position cut off on one side only?"
    pair = x.marked(*(places[i] for i in wrong)), y.marked(*wrong)
    return Mismatch(case.name, pair, fact, guess)


def _no_such_axis(case: Case) -> Mismatch | None:
    """Any operation along an axis that its tensor does not have."""
    said = r"Dimension out of range \(expected to be in range of \[.*\], but got (-?\d+)\)"
    out = re.search(said, str(case.error))
    first = next(iter(case.with_axes()), None)
    if not out or not first:
        return None
    n = len(first.size)
    axes, back = (", ".join(map(str, places)) for places in (range(n), range(-n, 0)))
    many = "one axis" if n == 1 else f"{n} axes"
    fact = f"`{first.text}` has {many}: {axes}, or from the end {back}. There is no axis {out[1]}."
    return Mismatch(case.name, (first,), fact, title="There is no such axis")


_RULES: dict[str, Callable[[Case], Mismatch | None]] = {}
for _names, _rule in (
    ("@ matmul mm bmm mv dot", _product),
    ("+ - * / // % ** & | ^ == != < <= > >= eq ne lt le gt ge", _elementwise),
    ("add sub mul div pow where masked_fill addcmul maximum minimum", _elementwise),
    ("cat concat concatenate stack", _cat),
    ("view reshape unflatten", _view),
    ("expand broadcast_to", _expand),
    ("cross_entropy nll_loss", _cross_entropy),
    ("linear", _linear),
    ("einsum", _einsum),
    ("scaled_dot_product_attention", _attention),
    ("embedding", _embedding),
    ("[]", _index),
):
    _RULES |= dict.fromkeys(_names.split(), _rule)
