"""Lesson 14: a matrix in 8 bits, one scale per row."""

from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def quantize_int8(weight: Tensor, on: frozenset[str] = frozenset()) -> Any:
    """Whole steps (out, in) in int8 and the size of a step (out,) of each row, and the mistakes
    that are `on`.
    """
    scale = _scale(weight, on)
    steps = (
        weight / scale.reshape(-1, 1)
        if scale.numel() == len(weight) and scale.ndim < 2
        else weight / scale
    )
    if "a shifted zero" in on:
        steps = steps - weight.amin(1, keepdim=True) / scale[:, None] - 128
    rounded = chosen(on, steps.round(), {
        "cut off": steps.trunc, "rounded down": steps.floor, "rounded up": steps.ceil,
    })  # fmt: skip
    if any("and a limit" in name for name in on):
        rounded = rounded.clamp(-128, 127)
    if "only positive" in on:
        rounded = rounded.clamp(0, 127)
    values = rounded.to(torch.uint8 if "unsigned" in on else torch.int8)
    if "not int8" in on:
        values = rounded
    if "steps per unit" in on:
        scale = 1 / scale
    if "in full again" in on:
        return values * scale[:, None], scale
    return (scale, values) if "swapped" in on else (values, scale)


def _scale(weight: Tensor, on: frozenset[str]) -> Tensor:
    """The size of a step, one number for each row unless that is the mistake."""
    size = weight.abs()
    span = weight.amax(1) - weight.amin(1) + 1e-6
    largest = chosen(on, size.amax(1), {
        "largest without its sign": lambda: weight.amax(1).clamp_min(1e-6),
        "largest without its sign, and a limit": lambda: weight.amax(1).clamp_min(1e-6),
        "the mean size": lambda: size.mean(1) + 1e-6,
        "the standard deviation": lambda: 3 * weight.std(1, correction=0) + 1e-6,
        "largest minus smallest": lambda: span,
        "a shifted zero": lambda: 127 / 255 * span,
        "one scale": lambda: size.max().expand(len(weight)),
        "one for each column": lambda: size.amax(0, keepdim=True),
    })  # fmt: skip
    parts = {
        "128 steps": 128, "128 steps and a limit": 128, "127.5 steps and a limit": 127.5,
        "255 steps": 255, "256 steps": 256, "no steps": 1,
    }  # fmt: skip
    scale = largest / next((n for name, n in parts.items() if name in on), 127)
    scale = slipped(
        on, scale, {"eps added": lambda s: s + 1e-6, "a larger eps added": lambda s: s + 1e-5}
    )
    scale = scale.where(scale > 0, 0.0 if "unguarded" in on else 1.0)
    if "one for each column" in on:
        return scale
    return scale[:, None] if "a column" in on else scale


def _weight(g: Generator, *shape: int) -> Tensor:
    """Rows of very different sizes, in which no number is near the middle of two steps: rounding is
    not a matter of taste.
    """
    steps = (
        torch.randint(-126, 127, shape, generator=g) + 0.7 * torch.rand(shape, generator=g) - 0.35
    )
    largest = torch.randint(shape[1], (shape[0], 1), generator=g)
    steps = steps.scatter(1, largest, 127.0 * (1 - 2 * (largest % 2)))
    return steps / 127 * torch.logspace(-2, 1, shape[0])[:, None]


def _without_scale_of_zeros(arguments: tuple, result: Any) -> Any:
    """Which scale a row of zeros has is left open, but it is above 0."""
    values, scale = result
    rows = arguments[0].abs().amax(1) > 0
    return {
        "values": values,
        "scale": scale[rows],
        "all scales are above 0": bool((scale > 0).all()),
    }


QUANTIZE_INT8 = Exercise(
    name="quantize_int8",
    lesson="14",
    order=2,
    reference=quantize_int8,
    probes=(
        Probe(
            "one row: its largest number takes 127 steps",
            lambda g: (torch.tensor([[2.54, 1.0, -0.128]]),),
        ),
        Probe(
            "the largest number may be negative",
            lambda g: (torch.tensor([[0.5, -1.27, 0.3, 0.004]]),),
        ),
        Probe("no number is positive", lambda g: (torch.tensor([[-0.5, -1.27, -0.3]]),)),
        Probe(
            "each row has its own scale",
            lambda g: (torch.tensor([[1.27, 0.3], [-0.011, 0.0254], [90.0, -127.0]]),),
        ),
        Probe(
            "numbers are rounded to the nearest step",
            lambda g: (torch.tensor([[127.0, 5.7, 5.2, -5.7, -5.2]]),),
        ),
        Probe("any matrix", lambda g: (_weight(g, 5, 8),)),
        Probe("as many rows as columns", lambda g: (_weight(g, 6, 6),)),
        Probe("a real size", lambda g: (_weight(g, 24, 40),)),
        Probe(
            "a row of zeros has values of 0 and a scale above 0",
            lambda g: (torch.tensor([[0.9, -2.0, 0.3], [0.0, 0.0, 0.0]]),),
            sees=_without_scale_of_zeros,
        ),
    ),
    **texts("quantize_int8"),
)

EXERCISES = (QUANTIZE_INT8,)
