"""Lesson 11: how far weights move."""

import math
from collections.abc import Callable

from torch import Generator

from .base import Exercise, Probe, chosen, texts


def warmup_cosine(
    step: int,
    peak: float,
    floor: float,
    warmup_steps: int,
    total_steps: int,
    on: frozenset[str] = frozenset(),
) -> float:
    """The learning rate of a step, counted from 1, and the mistakes that are `on`."""
    step = step + chosen(on, 0, {"from 0": lambda: -1, "one ahead": lambda: 1})
    warmup_steps = warmup_steps - ("warm-up one shorter" in on)
    ends = {
        "peak unused": lambda: (1.0, floor),
        "floor unused": lambda: (peak, 0.0),
        "floor times peak": lambda: (peak, floor * peak),
        "ends exchanged": lambda: (floor, peak),
    }
    peak, floor = chosen(on, (peak, floor), ends)
    if step < warmup_steps and "no warm-up" not in on:
        return _warming(step, peak, floor, warmup_steps, total_steps, on)
    if step >= total_steps and "goes on" not in on:
        after = {
            "ends at 0": lambda: 0.0,
            "back to the peak": lambda: peak,
            "floor for one step": lambda: floor if step == total_steps else 0.0,
        }
        return chosen(on, floor, after)
    gone = step - warmup_steps
    length = total_steps - warmup_steps
    parts = {
        "from the first step": lambda: step / total_steps,
        "length not reduced": lambda: gone / total_steps,
        "start not subtracted": lambda: step / length,
        "one step ahead": lambda: (gone + 1) / length,
        "one step behind": lambda: (gone - 1) / length,
        "one early": lambda: gone / (length - 1),
        "one late": lambda: gone / (length + 1),
    }
    return _falling(chosen(on, gone / length, parts), peak, floor, on)


def _warming(
    step: int, peak: float, floor: float, warmup_steps: int, total_steps: int, on: frozenset[str]
) -> float:
    """From 0 at step 0 up to peak at warmup_steps."""
    parts = {
        "share of all steps": lambda: step / total_steps,
        "counted from both ends": lambda: (step - 1) / (warmup_steps - 1),
        "one step more to the peak": lambda: (step + 1) / (warmup_steps + 1),
    }
    done = chosen(on, step / warmup_steps, parts)
    others = {
        "steps": lambda: 0.0,
        "peak at once": lambda: peak,
        "bent warm-up": lambda: peak * done**2,
        "root warm-up": lambda: peak * done**0.5,
        "cosine warm-up": lambda: peak * (1 - math.cos(math.pi * done)) / 2,
        "waits at the floor": lambda: floor,
        "never below the floor": lambda: max(floor, peak * done),
        "from the floor": lambda: floor + (peak - floor) * done,
    }
    return chosen(on, peak * done, others)


def _falling(done: float, peak: float, floor: float, on: frozenset[str]) -> float:
    """From peak at 0 down to floor at 1."""
    angles = {
        "degrees": lambda: math.radians(math.pi * done),
        "whole turn": lambda: 2 * math.pi * done,
        "no pi": lambda: done,
    }
    angle = chosen(on, math.pi * done, angles)
    heights = {
        "quarter": lambda: math.cos(angle / 2),
        "upwards": lambda: (1 - math.cos(angle)) / 2,
        "not halved": lambda: 1 + math.cos(angle),
        "straight": lambda: 1 - done,
        "sine": lambda: (1 + math.sin(angle)) / 2,
        "quarter of a sine": lambda: 1 - math.sin(angle / 2),
        "parabola": lambda: (1 - done) ** 2,
        "cosine alone": lambda: math.cos(angle),
        "stays up": lambda: 1.0,
    }
    height = chosen(on, (1 + math.cos(angle)) / 2, heights)
    others = {
        "fades geometrically": lambda: (
            peak * (floor / peak) ** done if floor else peak * (1 - done)
        ),
        "brackets missing": lambda: floor + (peak - floor) * 1 + math.cos(angle) / 2,
        "floor left out": lambda: (peak - floor) * height,
        "floor added": lambda: floor + peak * height,
        "floor as a limit": lambda: max(floor, peak * height),
        "floor at the end only": lambda: peak * height,
    }
    return chosen(on, floor + (peak - floor) * height, others)


def _at(step: int, *rest: float) -> Callable[[Generator], tuple]:
    return lambda g: (step, *rest)


WARMUP_COSINE = Exercise(
    name="warmup_cosine",
    lesson="11",
    order=2,
    reference=warmup_cosine,
    probes=(
        Probe("the first step already has a rate above 0", _at(1, 8.0, 3.0, 4, 12)),
        Probe("the warm-up is a straight line from 0", _at(3, 8.0, 3.0, 4, 12)),
        Probe("the warm-up ends at the peak", _at(4, 8.0, 3.0, 4, 12)),
        Probe("half-way down, the rate is the mean of peak and floor", _at(8, 8.0, 3.0, 4, 12)),
        Probe("the rate falls along half a cosine", _at(5, 8.0, 3.0, 4, 12)),
        Probe("the rate falls along half a cosine", _at(10, 8.0, 3.0, 4, 12)),
        Probe("the floor is reached at total_steps", _at(11, 8.0, 3.0, 4, 12)),
        Probe("the floor is reached at total_steps", _at(12, 8.0, 3.0, 4, 12)),
        Probe("after total_steps the rate stays at the floor", _at(13, 8.0, 3.0, 4, 12)),
        Probe("after total_steps the rate stays at the floor", _at(20, 8.0, 3.0, 4, 12)),
        Probe("the floor may be 0", _at(9, 3.0, 0.0, 2, 11)),
        *(
            Probe(
                "the numbers of a real run work as well",
                _at(step, 1e-3, 1e-4, 500, 10_000),
                tolerance=2e-5,
            )
            for step in (250, 500, 2000, 5250, 9000)
        ),
        *(
            Probe(
                "after total_steps the rate stays at the floor", _at(step, 1e-3, 1e-4, 500, 10_000)
            )
            for step in (10_000, 15_000, 19_500)
        ),
    ),
    **texts("warmup_cosine"),
)

EXERCISES = (WARMUP_COSINE,)
