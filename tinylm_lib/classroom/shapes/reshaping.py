"""Rules for operations that put tensors together, cut them anew, or look something up in them."""

import ast
import math
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from .letters import axis_names
from .operands import Box, Case, Given, Mismatch, boxes_of, sizes_given, tensor_box, with_suffix


def cat(case: Case) -> Mismatch | None:
    """`cat` and `stack`: the first tensor, and the first that does not fit it."""
    boxes = _parts(case.get(0, "tensors"))
    stacked, along = case.name == "stack", getattr(case.get(1, "dim"), "value", 0)
    for first, box in zip(boxes[:1] * len(boxes), boxes[1:], strict=False):
        if len(box.size) != len(first.size):
            return _other_number_of_axes(case, first, box)
        differ = tuple(i for i, (n, m) in enumerate(zip(first.size, box.size, strict=True)) if n != m)
        wrong = tuple(i for i in differ if stacked or i != along % len(first.size))
        if wrong:
            rule = "`stack` needs equal shapes"
            if not stacked:
                rule = f"`{case.name}` along axis {along % len(first.size)} lets only that axis differ"
            met = f"{case.axis(first.size, wrong[0])} against {case.axis(box.size, wrong[0])}"
            guess = f"They differ in axis {differ[0]} alone: `torch.cat(..., dim={differ[0]})` would fit."
            pair = first._replace(wrong=wrong), box._replace(wrong=wrong)
            return Mismatch(case.name, pair, f"{rule}; axis {wrong[0]} is {met}.", guess if len(differ) == 1 else "")
    return None


def _parts(parts: Given | None) -> list[Box]:
    """Returns the boxes of the tensors in a list or tuple, none at all if anything else is in it."""
    if parts is None or not isinstance(parts.value, tuple | list):
        return []
    written = ast.parse(parts.text, mode="eval").body
    texts = [ast.unparse(part) for part in getattr(written, "elts", ())]
    if len(texts) != len(parts.value):
        texts = [f"{parts.text}[{i}]" for i in range(len(parts.value))]
    boxes = [tensor_box(Given(text, value)) for text, value in zip(texts, parts.value, strict=True)]
    return [] if None in boxes else boxes


def _other_number_of_axes(case: Case, first: Box, box: Box) -> Mismatch:
    fact = f"`{case.name}` needs the same number of axes everywhere: {case.shape(first)} against {case.shape(box)}."
    short, long = sorted((first, box), key=lambda box: len(box.size))
    guess = ""
    if len(long.size) - len(short.size) == 1:
        guess = f"`{short.text}` looks as if it had lost an axis: a slice `[:, -1:]` or `keepdim=True` keeps it."
    return Mismatch(case.name, (first, box), fact, guess)


def view(case: Case) -> Mismatch | None:
    """`view`, `reshape` and `unflatten`: numbers that do not fill the new shape, or do not stand in its order."""
    box, target = tensor_box(case.get(0, "input")), _target(case)
    if box is None or target is None:
        return None
    have, known = math.prod(box.size), math.prod(n for n in target if n != -1)
    if have == known or (-1 in target and known and have % known == 0):
        fact = "The numbers suffice, but in memory they stand in another order: a transpose only relabels the axes."
        guess = "`.reshape(...)` copies where it must; so does `.contiguous()` in front of `.view(...)`."
        return Mismatch("→", (box,), fact, guess) if "stride" in str(case.error) else None
    numbers = _product(axis_names(box.size, case.letters), have)
    places = _product([str(n) for n in target if n != -1], known)
    verb = "are no multiple of" if -1 in target else "cannot fill"
    fact = f"`{case.name}` keeps every number, but {numbers} numbers {verb} {places} places."
    odd = [i for i, n in enumerate(target) if n > 0 and n not in box.size and have % (known // n) == 0]
    wished = Box(f"{case.name}{target}", target)
    if not odd or -1 in target:
        return Mismatch("→", (box, wished), fact)
    right = f"With {have // (known // target[odd[0]])} in place of {target[odd[0]]} it would fit."
    return Mismatch("→", (box, wished._replace(wrong=(odd[0],))), fact, right)


def _product(names: Sequence[str], n: int) -> str:
    text = " * ".join(names)
    return str(n) if text in ("", str(n)) else f"{text} = {n}"


def _target(case: Case) -> tuple[int, ...] | None:
    """Returns the whole shape that is asked for."""
    box, shape = tensor_box(case.get(0, "input")), case.named.get("shape")
    if case.name != "unflatten":
        return sizes_given([shape] if shape else case.given[1:])
    dim, cut = case.get(1, "dim"), case.get(2, "sizes")
    sizes = sizes_given([cut]) if cut else None
    if box is None or not box.size or dim is None or type(dim.value) is not int or sizes is None:
        return None
    place = dim.value % len(box.size)
    return (*box.size[:place], *sizes, *box.size[place + 1 :])


def embedding(case: Case) -> Mismatch | None:
    """Ids that are no integers, or no rows of the table."""
    ids, table = case.get(0, "input"), case.get(1, "weight")
    rows, asked = tensor_box(table), tensor_box(ids)
    if rows is None or asked is None or not rows.size or not isinstance(ids.value, Tensor):
        return None
    boxes = (asked, rows._replace(wrong=(0,)))
    if ids.value.is_floating_point():
        kind = str(ids.value.dtype).removeprefix("torch.")
        fact = f"`{ids.text}` holds {kind} numbers, but a row is looked up by an integer."
        return Mismatch(case.name, (asked, rows), fact, f"`{with_suffix(ids.text)}.long()` would fit.")
    wrong = _outside(ids.value, rows.size[0])
    if wrong is None:
        return None
    fact = f"Row {wrong} is asked for, but the table has the rows 0 to {rows.size[0] - 1}: {case.axis(rows.size, 0)}."
    guess = "The ids look like those of a larger vocabulary."
    if wrong < 0:
        guess = "A negative id does not count from the end."
    return Mismatch(case.name, boxes, fact, guess)


def _outside(ids: Tensor, n: int) -> int | None:
    """Returns an id below 0 or from n on, None where there is none."""
    low, high = (int(end) for end in ids.aminmax()) if ids.numel() else (0, 0)
    return low if low < 0 else high if high >= n else None


def index(case: Case) -> Mismatch | None:
    """An index outside an axis, and a mask of another shape than what it selects from."""
    box, chosen = tensor_box(case.get(0, "input")), case.get(1, "index")
    out = re.search(r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)", str(case.error))
    if box and out and int(out[2]) < len(box.size):
        fact = f"Axis {out[2]} has the places 0 to {int(out[3]) - 1}, and {out[1]} is none of them."
        return Mismatch("[ ]", (box._replace(wrong=(int(out[2]),)),), fact)
    mask = tensor_box(chosen)
    if box is None or mask is None or chosen.value.dtype != torch.bool:
        return None
    wrong = tuple(i for i, n in enumerate(mask.size) if i >= len(box.size) or box.size[i] != n)
    if not wrong:
        return None
    fact = f"A mask has the shape of what it selects from: {case.shape(box)} against {case.shape(mask)}."
    pair = box._replace(wrong=tuple(i for i in wrong if i < len(box.size))), mask._replace(wrong=wrong)
    return Mismatch("[ ]", pair, fact)


def cross_entropy(case: Case) -> Mismatch | None:
    """Classes on another axis than 1, another number of targets than of rows, a target that is no class."""
    scores, targets = case.get(0, "input"), case.get(1, "target")
    x, y = tensor_box(scores), tensor_box(targets)
    if x is None or y is None or not x.size or targets.value.is_floating_point():
        return None
    classes = min(1, len(x.size) - 1)
    places = [i for i in range(len(x.size)) if i != classes]
    rest = tuple(x.size[i] for i in places)
    if rest == y.size:
        wrong = _outside(targets.value[targets.value != -100], x.size[classes])
        fact = f"A target is {wrong}, but there are scores for the classes 0 to {x.size[classes] - 1} only."
        return None if wrong is None else Mismatch(case.name, (x._replace(wrong=(classes,)), y), fact)
    if len(x.size) > 2 and x.size[:-1] == y.size:
        found = case.axis(x.size, 1)
        fact = f"`{case.name}` looks for the classes on axis 1 and finds {found} there; yours are on the last axis."
        flat = f"`{with_suffix(x.text)}.flatten(0, -2)` and `{with_suffix(y.text)}.flatten()`"
        guess = f"{flat} would fit: one row of scores for each target."
        return Mismatch(case.name, (x._replace(wrong=(1,)), y), fact, guess)
    fact = f"Each row of scores needs one target: {case.shape(x)} against {case.shape(y)}."
    wrong = [i for i, (n, m) in enumerate(zip(rest, y.size, strict=False)) if n != m]
    guess = ""
    if len(rest) == len(y.size) and all(abs(rest[i] - y.size[i]) == 1 for i in wrong):
        guess = "The sizes differ by one: was the last position cut off on one side only?"
    pair = x._replace(wrong=tuple(places[i] for i in wrong)), y._replace(wrong=tuple(wrong))
    return Mismatch(case.name, pair, fact, guess)


def no_such_axis(case: Case) -> Mismatch | None:
    """Any operation along an axis that its tensor does not have."""
    out = re.search(r"Dimension out of range \(expected to be in range of \[.*\], but got (-?\d+)\)", str(case.error))
    boxes = boxes_of(case)
    if not out or not boxes:
        return None
    n = len(boxes[0].size)
    axes, back = (", ".join(map(str, places)) for places in (range(n), range(-n, 0)))
    many = "one axis" if n == 1 else f"{n} axes"
    fact = f"`{boxes[0].text}` has {many}: {axes}, or from the end {back}. There is no axis {out[1]}."
    return Mismatch(case.name, (boxes[0],), fact)
