"""Lesson 18: another's file turned into our weights, and where a conversion goes wrong."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def split_fused(fused: Tensor, on: frozenset[str] = frozenset()) -> Any:
    """The weights of q, k and v, each (out, in), of one matrix (in, 3 out), and the mistakes that are `on`."""
    n_in, n_out = fused.shape[0], fused.shape[1] // 3
    turned = fused.T
    ways = {
        "not turned": lambda: fused.split(n_out, 1),
        "rows cut": lambda: fused.split(-(-n_in // 3), 0),
        "rows cut and turned": lambda: [part.T for part in fused.split(-(-n_in // 3), 0)],
        "reshaped": lambda: fused.reshape(3, n_out, n_in).unbind(0),
        "every third": lambda: [turned[i::3] for i in range(3)],
        "one tensor": lambda: turned.reshape(3, n_out, n_in),
        "turned twice": lambda: [part.flip(0, 1) for part in turned.split(n_out)],
    }
    way = next((f for fault, f in ways.items() if fault in on), None)
    parts = way() if way else turned.split(n_out)
    orders = {
        "k first": (1, 0, 2), "v first": (2, 0, 1), "k and v exchanged": (0, 2, 1), "backwards": (2, 1, 0),
        "k, v, q": (1, 2, 0),
    }  # fmt: skip
    order = next((o for fault, o in orders.items() if fault in on), None)
    if order:
        parts = [parts[i] for i in order]
    for fault, i in (("q not turned", 0), ("k not turned", 1), ("v not turned", 2)):
        if fault in on:
            parts = [part.T if j == i else part for j, part in enumerate(parts)]
    return parts if isinstance(parts, Tensor) else tuple(parts)


def rotary_layout(weight: Tensor, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows (H * D) of every head of a weight (H * D, C), from neighbours to halves, and the mistakes that are `on`."""
    n_rows, n_in = weight.shape
    H, D = n_heads, n_rows // n_heads
    if "number and size exchanged" in on:
        H, D = D, H
    if "one head" in on:
        H, D = 1, n_rows
    if "columns" in on:
        return torch.cat((weight[:, 0::2], weight[:, 1::2]), 1)
    heads = weight.reshape(D, H, n_in).transpose(0, 1) if "heads interleaved" in on else weight.reshape(H, D, n_in)
    if "the other way" in on:
        return heads.reshape(H, 2, D // 2, n_in).transpose(1, 2).reshape(n_rows, n_in)
    first, second = heads[:, 0::2], heads[:, 1::2]
    if "halves first" in on:
        first, second = heads[:, : D // 2], heads[:, D // 2 :]
    if "second backwards" in on:
        second = second.flip(1)
    if "second first" in on:
        first, second = second, first
    if "neighbours exchanged" in on:
        moved = torch.stack((heads[:, 1::2], heads[:, 0::2]), 2).reshape(H, D, n_in)
    else:
        moved = torch.cat((first, second), 1)
    if "first head only" in on:
        moved = torch.cat((moved[:1], heads[1:]))
    if "heads kept apart" in on:
        return moved
    return moved.reshape(n_rows, n_in)


def first_difference(ours: list, theirs: list, tolerance: float, on: frozenset[str] = frozenset()) -> Any:
    """The index of the first tensor that differs by more than tolerance times the largest number of theirs.

    The number of tensors where none does; and the mistakes that are `on`.
    """
    errors = []
    for a, b in zip(ours, theirs, strict=True):
        difference = a - b if "signed" in on else b - a if "signed, turned" in on else (a - b).abs()
        error = difference.mean() if "mean error" in on else difference.sum() if "summed" in on else difference.max()
        size = b.abs().max()
        sizes = {
            "absolute": torch.ones(()), "by the mean size": b.abs().mean(), "largest signed": b.max(),
            "by ours": a.abs().max(),
        }  # fmt: skip
        size = next((other for fault, other in sizes.items() if fault in on), size)
        if "each by itself" in on:
            error, size = (difference / b.abs()).max(), torch.ones(())
        errors.append((error.item(), size.item()))
    limit = 0.0 if "any bit" in on else tolerance
    wrong = [not error <= limit * size for error, size in errors]
    if "NaN is fine" in on:
        wrong = [error > limit * size for error, size in errors]
    found = [i for i, bad in enumerate(wrong) if bad]
    if "last" in on:
        found.reverse()
    if "largest" in on and found:
        found = [max(found, key=lambda i: errors[i][0] / errors[i][1] if errors[i][1] else 0.0)]
    if "the first that agrees" in on:
        found = [i for i, bad in enumerate(wrong) if not bad]
    if "how many" in on:
        return len(found)
    none = {"minus one": -1, "no result": None, "the last index": len(ours) - 1}
    if not found:
        return next((value for fault, value in none.items() if fault in on), len(ours))
    return found[0] + ("counted from one" in on) - ("the last that agrees" in on)


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


def _fused(g: Generator, n_in: int, n_out: int) -> tuple:
    return (_normal(g, n_in, 3 * n_out),)


SPLIT_FUSED = Exercise(
    name="split_fused",
    lesson="18",
    order=1,
    reference=split_fused,
    probes=(
        Probe(
            "three numbers for one input are the weights of q, k and v in this order",
            lambda g: (torch.tensor([[1.0, 2.0, 3.0]]),),
        ),
        Probe("each of the three is (out, in)", lambda g: (torch.arange(12.0).view(2, 6),)),
        Probe("so it is for as many outputs as inputs", lambda g: _fused(g, 6, 6)),
        Probe("so it is for another number of outputs", lambda g: _fused(g, 6, 5)),
        Probe("so it is for another number of outputs", lambda g: _fused(g, 4, 8)),
    ),
    faults={
        "not turned": Fault(
            "the parts are still (in, out)",
            "The file stores a matrix as (in, out), our `Linear` as (out, in). With as many inputs as outputs nothing "
            "fails, so compare a single row.",
        ),
        "rows cut": Fault(
            "the inputs are cut into three parts", "Every input belongs to all three. Which axis has 3 times `out`?"
        ),
        "rows cut and turned": Fault(
            "the inputs are cut into three parts", "Every input belongs to all three. Which axis has 3 times `out`?"
        ),
        "reshaped": Fault(
            "the numbers are only counted off into another shape",
            "A reshape does not exchange rows and columns. Which operation does?",
        ),
        "every third": Fault(
            "every third column belongs to one part", "The columns of q come first, all together, then those of k."
        ),
        "one tensor": Fault("the three are still one tensor", "Three separate matrices are expected."),
        "turned twice": Fault("rows and columns run backwards", "Exchange the axes; keep the order on each."),
        "k first": Fault("q and k are exchanged", "The order in the file is q, k, v."),
        "k and v exchanged": Fault("k and v are exchanged", "The order in the file is q, k, v."),
        "v first": Fault("v comes first", "The order in the file is q, k, v."),
        "backwards": Fault("the order is v, k, q", "The order in the file is q, k, v."),
        "k, v, q": Fault("q comes last", "The order in the file is q, k, v."),
        "q not turned": Fault("k and v are (out, in), and q is not", "All three are stored in the same way."),
        "k not turned": Fault("q and v are (out, in), and k is not", "All three are stored in the same way."),
        "v not turned": Fault("q and k are (out, in), and v is not", "All three are stored in the same way."),
    },
    hints=(
        "Write the shape of the file's matrix down, and below it the shapes of the three that you need.",
        "Exchange the two axes first. Then the three lie one below the other.",
        "Cut into three parts of equal height: `split` and `chunk` do that.",
    ),
)
ROTARY_LAYOUT = Exercise(
    name="rotary_layout",
    lesson="18",
    order=2,
    reference=rotary_layout,
    probes=(
        Probe("one head of four rows 0, 1, 2, 3", lambda g: (torch.arange(4.0).view(4, 1), 1)),
        Probe("one head of eight rows", lambda g: (torch.arange(8.0).view(8, 1), 1)),
        Probe("every head is reordered, and stays where it is", lambda g: (torch.arange(12.0).view(12, 1), 2)),
        Probe("every head is reordered, and stays where it is", lambda g: (torch.arange(48.0).view(24, 2), 3)),
        Probe("the columns stay", lambda g: (_normal(g, 24, 6), 4)),
        Probe("a real size", lambda g: (_normal(g, 64, 40), 8)),
    ),
    faults={
        "the other way": Fault(
            "the rows go the other way, from halves to neighbours",
            "In the result the partner of row 0 is half a head further down. Try one head of four rows.",
        ),
        "one head": Fault(
            "all rows are reordered as one head",
            "Every head has its own pairs: no row may leave its head. Which rows belong to head 0?",
        ),
        "number and size exchanged": Fault(
            "the number of heads and the size of a head are exchanged", "A head has rows / n_heads rows."
        ),
        "columns": Fault("the columns are reordered", "A row of the weight makes one coordinate of a head."),
        "heads interleaved": Fault(
            "a head takes every so-many-th row", "The rows of a head are next to each other: head 0 comes first."
        ),
        "halves first": Fault(
            "the rows stay as they are", "The first half takes rows 0, 2, 4, ..., one of each pair of neighbours."
        ),
        "second backwards": Fault("the second half runs backwards", "It takes rows 1, 3, 5, ... in this order."),
        "second first": Fault(
            "the second coordinates of the pairs come first", "Row 0 is the first of its pair and stays at the top."
        ),
        "neighbours exchanged": Fault(
            "the two rows of every pair are exchanged", "Partners should be half a head apart in the result."
        ),
        "first head only": Fault("only the first head is reordered", "Every head is rotated in the same way."),
        "heads kept apart": Fault("the heads have an axis of their own", "The result has the shape of the weight."),
    },
    hints=(
        "Take one head of four rows. The pairs are rows 0 and 1, rows 2 and 3. Where should each row be afterwards?",
        "Give the rows two axes: heads, and rows of a head. Within a head, take every second row, then the others.",
        "`heads[:, 0::2]` has the first coordinate of each pair. Join the two parts and merge the axes again.",
    ),
)
FIRST_DIFFERENCE = Exercise(
    name="first_difference",
    lesson="18",
    order=3,
    reference=first_difference,
    probes=(
        Probe("two equal tensors: the result is 1, their number", lambda g: _parts(g, [0.0])),
        Probe("the second of three is wrong: the result is 1", lambda g: _parts(g, [0.0, 0.5, 0.0])),
        Probe("of several wrong ones the first counts", lambda g: _parts(g, [0.0, 0.0, 0.5, 3.0, 0.5])),
        Probe("the last may be the first that is wrong", lambda g: _parts(g, [0.0, 0.0, 0.0, 0.5])),
        Probe("a small difference is rounding", lambda g: _parts(g, [1e-3, 1e-3, 0.2, 0.0], 1e-2)),
        Probe("nothing but rounding: the result is their number", lambda g: _parts(g, [6e-3, 8e-3, 7e-3], 1e-2)),
        Probe("what counts as small depends on the size of theirs", lambda g: _parts(g, [1e-3, 1e-3, 0.2], 1e-2, 50.0)),
        Probe("what counts as small depends on the size of theirs", lambda g: _parts(g, [1e-3, 0.2, 0.2], 1e-2, 1e-3)),
        Probe("one wrong number among many right ones is enough", lambda g: _one_number(g, 0.1, 0.5)),
        Probe("it may be too small", lambda g: _one_number(g, 0.1, -0.5)),
        Probe("the largest number of theirs may be negative", lambda g: _negative(g)),
        Probe("some numbers of theirs are 0", lambda g: _zeros(g)),
        Probe("ours may be much too large", lambda g: _too_large(g)),
        Probe("a tensor with NaN is wrong", lambda g: _not_a_number(g)),
    ),
    faults={
        "last": Fault("the last wrong one is returned", "Errors travel on: what comes after the cause is wrong, too."),
        "largest": Fault(
            "the one with the largest error is returned",
            "Errors usually grow on their way. The cause is where the first one appears.",
        ),
        "absolute": Fault(
            "the error is compared with the tolerance alone",
            "An error of 0.01 is much where numbers are small and nothing where they are large. Relate it to theirs.",
        ),
        "by the mean size": Fault("the mean size of theirs counts", "The text says the largest absolute value."),
        "largest signed": Fault("the largest number of theirs counts, with its sign", "Its absolute value counts."),
        "by ours": Fault("the size of ours counts", "Ours may be wrong. Theirs is what we trust."),
        "each by itself": Fault(
            "each number's error is related to this number alone", "A right number near 0 would count as wrong."
        ),
        "signed": Fault("an error counts only where ours is too large", "It may be too small as well."),
        "signed, turned": Fault("an error counts only where ours is too small", "It may be too large as well."),
        "mean error": Fault("the mean error counts", "One wrong number among thousands would not be seen."),
        "summed": Fault("all errors are added up", "Rounding in many numbers would add up to a large error."),
        "any bit": Fault(
            "the smallest difference counts", "Two right programs round differently: that is what tolerance is for."
        ),
        "NaN is fine": Fault(
            "a NaN is not seen",
            "NaN > 0.1 is False, and so is NaN <= 0.1. Ask the question so that False is the alarm.",
        ),
        "the first that agrees": Fault("the first one that agrees is returned", "The first that differs is expected."),
        "the last that agrees": Fault("the result is one too small", "Return the one that differs itself."),
        "how many": Fault("the number of wrong ones is returned", "Return the index of the first one."),
        "minus one": Fault("-1 is returned where all agree", "The text says: the number of tensors."),
        "no result": Fault("None is returned where all agree", "The text says: the number of tensors."),
        "the last index": Fault(
            "the last one counts as wrong where all agree", "The result is then the number of tensors."
        ),
        "counted from one": Fault("the tensors are counted from 1", "The first one has the index 0."),
    },
    hints=(
        "Walk through the pairs in their order and stop at the first that differs.",
        "The error of a pair is the largest absolute difference; it is too large if it exceeds tolerance times the "
        "largest absolute value of theirs.",
        "What does your comparison say to a NaN? Turn it around, so that only a proof of being small counts as small.",
    ),
)
EXERCISES = (SPLIT_FUSED, ROTARY_LAYOUT, FIRST_DIFFERENCE)


def _parts(g: Generator, errors: list[float], tolerance: float = 1e-2, size: float = 1.0) -> tuple:
    """Pairs of tensors whose largest number is `size`, and whose errors have these sizes relative to it."""
    theirs = [F.normalize(_normal(g, 3, 4 + i), p=float("inf"), dim=(0, 1)) * size for i in range(len(errors))]
    signs = [_normal(g, *t.shape).sign() for t in theirs]
    ours = [t + error * size * sign for t, error, sign in zip(theirs, errors, signs, strict=True)]
    return ours, theirs, tolerance


def _one_number(g: Generator, tolerance: float, error: float) -> tuple:
    ours, theirs, _ = _parts(g, [0.0, 0.0, 0.0])
    ours[1] = ours[1].clone()
    ours[1][1, 2] += error
    return ours, theirs, tolerance


def _negative(g: Generator) -> tuple:
    theirs = [_normal(g, 3, 4) - 50.0 for _ in range(3)]
    return [t + error for t, error in zip(theirs, (0.1, 0.1, 9.0), strict=True)], theirs, 1e-2


def _zeros(g: Generator) -> tuple:
    ours, theirs, tolerance = _parts(g, [0.0, 0.0, 0.3])
    for t in theirs:
        t[0] = 0.0
    ours[:2] = [t + 1e-4 for t in theirs[:2]]
    return ours, theirs, tolerance


def _too_large(g: Generator) -> tuple:
    ours, theirs, _ = _parts(g, [0.0, 0.0, 0.0])
    ours[1] = 4 * theirs[1]
    return ours, theirs, 0.8


def _not_a_number(g: Generator) -> tuple:
    ours, theirs, tolerance = _parts(g, [0.0, 0.0, 0.5])
    ours[1] = ours[1].clone()
    ours[1][0, 0] = float("nan")
    return ours, theirs, tolerance
