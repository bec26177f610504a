"""Lesson 18: another's file turned into our weights, and where a conversion goes wrong."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def split_fused(fused: Tensor, on: frozenset[str] = frozenset()) -> Any:
    """The weights of q, k and v, each (out, in), of one matrix (in, 3 out), and the mistakes that
    are `on`.
    """
    n_in = fused.shape[0]
    n_out = fused.shape[1] // 3
    turned = fused.T
    of_rows = fused.split(-(-n_in // 3), 0)
    q, k, v = turned.split(n_out)
    return chosen(on, (q, k, v), {
        "not turned": lambda: fused.split(n_out, 1),
        "rows cut": lambda: of_rows,
        "rows cut and turned": lambda: tuple(part.T for part in of_rows),
        "reshaped": lambda: fused.reshape(3, n_out, n_in).unbind(0),
        "every third": lambda: tuple(turned[i::3] for i in range(3)),
        "one tensor": lambda: turned.reshape(3, n_out, n_in),
        "turned twice": lambda: tuple(part.flip(0, 1) for part in (q, k, v)),
        "k first": lambda: (k, q, v),
        "v first": lambda: (v, q, k),
        "k and v exchanged": lambda: (q, v, k),
        "backwards": lambda: (v, k, q),
        "k, v, q": lambda: (k, v, q),
        "q not turned": lambda: (q.T, k, v),
        "k not turned": lambda: (q, k.T, v),
        "v not turned": lambda: (q, k, v.T),
    })  # fmt: skip


def rotary_layout(weight: Tensor, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows (H * D) of every head of a weight (H * D, C), from neighbours to halves, and the
    mistakes that are `on`.
    """
    n_rows, n_in = weight.shape
    D = n_rows // n_heads
    H, D = chosen(on, (n_heads, D), {
        "number and size exchanged": lambda: (D, n_heads), "one head": lambda: (1, n_rows),
    })  # fmt: skip
    heads = chosen(on, weight.reshape(H, D, n_in), {
        "heads interleaved": lambda: weight.reshape(D, H, n_in).transpose(0, 1),
    })  # fmt: skip
    first = heads[:, 0::2]
    second = heads[:, 1::2]
    moved = chosen(on, torch.cat((first, second), 1), {
        "the other way": lambda: (
            heads.reshape(H, 2, D // 2, n_in).transpose(1, 2).reshape(H, D, n_in)
        ),
        "halves first": lambda: heads,
        "halves exchanged": lambda: heads.roll(D // 2, 1),
        "second backwards": lambda: torch.cat((first, second.flip(1)), 1),
        "second first": lambda: torch.cat((second, first), 1),
        "neighbours exchanged": lambda: torch.stack((second, first), 2).reshape(H, D, n_in),
    })  # fmt: skip
    moved = torch.cat((moved[:1], heads[1:])) if "first head only" in on else moved
    return chosen(on, moved.reshape(n_rows, n_in), {
        "columns": lambda: torch.cat((weight[:, 0::2], weight[:, 1::2]), 1),
        "heads kept apart": lambda: moved,
    })  # fmt: skip


def _error_and_size(a: Tensor, b: Tensor, on: frozenset[str]) -> tuple[Tensor, Tensor]:
    """The error of a pair, and the number that it is compared with, times the tolerance."""
    if "NaN in both" in on:
        both = a.isnan() & b.isnan()
        a = a.masked_fill(both, 0.0)
        b = b.masked_fill(both, 0.0)
    difference = chosen(
        on, (a - b).abs(), {"signed": lambda: a - b, "signed, turned": lambda: b - a}
    )
    error = chosen(on, difference.max(), {
        "mean error": difference.mean,
        "summed": difference.sum,
        "each by itself": lambda: (difference / b.abs()).max(),
    })  # fmt: skip
    size = chosen(on, b.abs().max(), {
        "absolute": lambda: torch.ones(()),
        "each by itself": lambda: torch.ones(()),
        "by the mean size": b.abs().mean,
        "largest signed": b.max,
        "by ours": a.abs().max,
    })  # fmt: skip
    return (error / size, torch.ones(())) if "quotient" in on else (error, size)


def first_difference(
    ours: list, theirs: list, tolerance: float, on: frozenset[str] = frozenset()
) -> Any:
    """The index of the first tensor that differs by more than tolerance times the largest number of
    theirs.

    The number of tensors where none does; and the mistakes that are `on`.
    """
    errors, sizes = zip(
        *(_error_and_size(a, b, on) for a, b in zip(ours, theirs, strict=True)), strict=True
    )
    limits = slipped(on, tolerance * torch.stack(sizes), {
        "any bit": torch.zeros_like,
        "one limit for all": lambda limits: torch.full_like(limits, max(limits.tolist())),
    })  # fmt: skip
    wrong = _wrong(torch.stack(errors), limits, on)
    n = len(ours)
    if not wrong:
        return chosen(
            on,
            n,
            {"minus one": lambda: -1, "no result": lambda: None, "the last index": lambda: n - 1},
        )
    return chosen(on, wrong[0], {
        "last": lambda: wrong[-1],
        "largest": lambda: max(wrong, key=lambda i: (errors[i] / sizes[i]).nan_to_num(0.0)),
        "counted from one": lambda: wrong[0] + 1,
        "the last that agrees": lambda: wrong[0] - 1,
    })  # fmt: skip


def _wrong(errors: Tensor, limits: Tensor, on: frozenset[str]) -> list[int]:
    """The indices of the pairs that differ."""
    found = chosen(on, ~(errors <= limits), {
        "NaN is fine": lambda: errors > limits,
        "equal is too much": lambda: ~(errors < limits),
        "the first that agrees": lambda: errors <= limits,
    })  # fmt: skip
    return found.nonzero().flatten().tolist()


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


def _fused(g: Generator, n_in: int, n_out: int) -> tuple:
    return (_normal(g, n_in, 3 * n_out),)


def _rows(n: int, n_heads: int) -> tuple:
    return torch.arange(float(n)).view(n, 1), n_heads


def _parts(
    g: Generator, errors: Sequence[float], tolerance: float = 1e-2, sizes: Sequence[float] = ()
) -> tuple:
    """Pairs of tensors whose largest numbers are `sizes`, 1 without, and whose errors have these
    sizes relative to it.
    """
    theirs = [
        F.normalize(_normal(g, 3, 4 + i), p=float("inf"), dim=(0, 1)) for i in range(len(errors))
    ]
    theirs = [t * size for t, size in zip(theirs, sizes or [1.0] * len(errors), strict=True)]
    moves = [
        error * t.abs().max() * _normal(g, *t.shape).sign()
        for t, error in zip(theirs, errors, strict=True)
    ]
    return [t + move for t, move in zip(theirs, moves, strict=True)], theirs, tolerance


def _one_number(g: Generator, error: float) -> tuple:
    ours, theirs, _ = _parts(g, [0.0, 0.0, 0.0])
    ours[1][1, 2] += error
    return ours, theirs, 0.1


def _negative(g: Generator) -> tuple:
    theirs = [_normal(g, 3, 4) - 50.0 for _ in range(3)]
    return [t + error for t, error in zip(theirs, (0.1, 0.1, 9.0), strict=True)], theirs, 1e-2


def _zeros(g: Generator) -> tuple:
    ours, theirs, tolerance = _parts(g, [0.0, 0.0, 0.3])
    for t in theirs:
        t[0] = 0.0
    ours[:2] = [t + 1e-4 for t in theirs[:2]]
    return ours, theirs, tolerance


def _all_zero(g: Generator) -> tuple:
    return _parts(g, [0.0, 1e-3, 0.3], sizes=[0.0, 1.0, 1.0])


def _too_large(g: Generator) -> tuple:
    ours, theirs, _ = _parts(g, [0.0, 0.0, 0.0])
    ours[1] = 4 * theirs[1]
    return ours, theirs, 0.8


def _not_a_number(g: Generator, in_both: bool = False) -> tuple:
    ours, theirs, tolerance = _parts(g, [0.0, 0.0, 0.5])
    ours[1][0, 0] = float("nan")
    if in_both:
        theirs[1][0, 0] = float("nan")
    return ours, theirs, tolerance


SPLIT_FUSED = Exercise(
    name="split_fused",
    lesson="18",
    order=1,
    reference=split_fused,
    probes=(
        Probe("q, k and v are in this order", lambda g: (torch.tensor([[1.0, 2.0, 3.0]]),)),
        Probe("each of the three is (out, in)", lambda g: (torch.arange(12.0).view(2, 6),)),
        Probe("there may be as many outputs as inputs", lambda g: _fused(g, 6, 6)),
        Probe("the number of outputs may differ from that of inputs", lambda g: _fused(g, 6, 5)),
        Probe("the number of outputs may differ from that of inputs", lambda g: _fused(g, 4, 8)),
    ),
    **texts("split_fused"),
    wider=True,
)
ROTARY_LAYOUT = Exercise(
    name="rotary_layout",
    lesson="18",
    order=2,
    reference=rotary_layout,
    probes=(
        Probe("the rows 0, 1, 2, 3 of a head become 0, 2, 1, 3", lambda g: _rows(4, 1)),
        Probe(
            "the rows 0, 1, 2, 3, 4, 5, 6, 7 of a head become 0, 2, 4, 6, 1, 3, 5, 7",
            lambda g: _rows(8, 1),
        ),
        Probe("every head is reordered by itself", lambda g: _rows(12, 2)),
        Probe("every head is reordered by itself", lambda g: (torch.arange(48.0).view(24, 2), 3)),
        Probe("the columns keep their order", lambda g: (_normal(g, 24, 6), 4)),
    ),
    **texts("rotary_layout"),
    wider=True,
)
FIRST_DIFFERENCE = Exercise(
    name="first_difference",
    lesson="18",
    order=3,
    reference=first_difference,
    probes=(
        Probe(
            "for one pair of equal tensors the result is 1, the number of pairs",
            lambda g: _parts(g, [0.0]),
        ),
        Probe(
            "if the second of three pairs differs, the result is 1",
            lambda g: _parts(g, [0.0, 0.5, 0.0]),
        ),
        Probe(
            "if several pairs differ, the first counts",
            lambda g: _parts(g, [0.0, 0.0, 0.5, 3.0, 0.5]),
        ),
        Probe(
            "the last pair may be the first that differs", lambda g: _parts(g, [0.0, 0.0, 0.0, 0.5])
        ),
        Probe(
            "a difference within the tolerance does not count",
            lambda g: _parts(g, [1e-3, 1e-3, 0.2, 0.0]),
        ),
        Probe(
            "if no pair differs, the result is the number of pairs",
            lambda g: _parts(g, [6e-3, 8e-3, 7e-3]),
        ),
        Probe(
            "the limit depends on the size of theirs",
            lambda g: _parts(g, [1e-3, 1e-3, 0.2], sizes=[50.0] * 3),
        ),
        Probe(
            "the limit depends on the size of theirs",
            lambda g: _parts(g, [1e-3, 0.2, 0.2], sizes=[1e-3] * 3),
        ),
        Probe(
            "each pair has a limit of its own",
            lambda g: _parts(g, [1e-3, 0.2, 0.2], sizes=[50.0, 0.1, 1.0]),
        ),
        Probe("one wrong number is enough", lambda g: _one_number(g, 0.5)),
        Probe("a number may be too small", lambda g: _one_number(g, -0.5)),
        Probe("the largest number of theirs may be negative", _negative),
        Probe("some numbers of theirs may be 0", _zeros),
        Probe("two equal tensors do not differ, even if all their numbers are 0", _all_zero),
        Probe("the tolerance may be 0", lambda g: _parts(g, [0.0, 0.0, 1e-3], 0.0)),
        Probe("ours may be much too large", _too_large),
        Probe("a NaN in ours differs", _not_a_number),
        Probe(
            "a NaN in ours differs, even if theirs has one at the same place",
            lambda g: _not_a_number(g, True),
        ),
    ),
    **texts("first_difference"),
)
EXERCISES = (SPLIT_FUSED, ROTARY_LAYOUT, FIRST_DIFFERENCE)
