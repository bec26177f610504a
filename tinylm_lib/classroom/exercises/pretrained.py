"""Lesson 18: another's file turned into our weights, and where a conversion goes wrong."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


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
    **texts("split_fused"),
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
    **texts("rotary_layout"),
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
    **texts("first_difference"),
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
