"""Lesson 11: how far weights move."""

import math
from collections.abc import Callable

from torch import Generator

from .base import Exercise, Probe, texts


def warmup_cosine(
    step: int, peak: float, floor: float, warmup_steps: int, total_steps: int, on: frozenset[str] = frozenset()
) -> float:
    """The learning rate of a step, counted from 1, and the mistakes that are `on`."""
    if "from 0" in on:
        step = step - 1
    if "warm-up one shorter" in on:
        warmup_steps = warmup_steps - 1
    if "one ahead" in on:
        step = step + 1
    if "peak unused" in on:
        peak = 1.0
    if "floor unused" in on:
        floor = 0.0
    if "ends exchanged" in on:
        peak, floor = floor, peak
    if step < warmup_steps and "no warm-up" not in on:
        if "share of all steps" in on:
            warmup_steps = total_steps
        by = -1 if "counted from both ends" in on else 1 if "one step more to the peak" in on else 0
        return _warming((step + by) / (warmup_steps + by), peak, floor, on)
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    if step > total_steps and "floor for one step" in on:
        return 0.0
    if step >= total_steps and "goes on" not in on:
        return {"ends at 0": 0.0, "back to the peak": peak}.get(
            next(iter(on & {"ends at 0", "back to the peak"}), ""), floor
        )
    if "from the first step" in on:
        done = step / total_steps
    if "length not reduced" in on:
        done = (step - warmup_steps) / total_steps
    if "start not subtracted" in on:
        done = step / (total_steps - warmup_steps)
    if "one step ahead" in on or "one step behind" in on:
        done += (1 if "one step ahead" in on else -1) / (total_steps - warmup_steps)
    if "one early" in on:
        done = (step - warmup_steps) / (total_steps - warmup_steps - 1)
    if "one late" in on:
        done = (step - warmup_steps) / (total_steps - warmup_steps + 1)
    return _falling(done, peak, floor, on)


def _warming(share: float, peak: float, floor: float, on: frozenset[str]) -> float:
    if "steps" in on:
        return 0.0
    if "peak at once" in on:
        return peak
    if "bent warm-up" in on:
        return peak * share**2
    if "root warm-up" in on:
        return peak * share**0.5
    if "cosine warm-up" in on:
        return peak * (1 - math.cos(math.pi * share)) / 2
    if "waits at the floor" in on:
        return floor
    if "never below the floor" in on:
        return max(floor, peak * share)
    return floor + (peak - floor) * share if "from the floor" in on else peak * share


def _falling(done: float, peak: float, floor: float, on: frozenset[str]) -> float:
    """From peak at 0 down to floor at 1."""
    turn = math.radians(math.pi * done) if "degrees" in on else math.pi * done
    if "fades geometrically" in on:
        return peak * (floor / peak) ** done if floor else peak * (1 - done)
    if "brackets missing" in on:
        return floor + (peak - floor) * 1 + math.cos(turn) / 2
    if "quarter" in on:
        return floor + (peak - floor) * math.cos(turn / 2)
    if "whole turn" in on:
        turn = 2 * turn
    if "no pi" in on:
        turn = done
    share = (1 + math.cos(turn)) / 2
    if "upwards" in on:
        share = (1 - math.cos(turn)) / 2
    if "not halved" in on:
        share = 2 * share
    if "straight" in on:
        share = 1 - done
    if "sine" in on:
        share = (1 + math.sin(turn)) / 2
    if "quarter of a sine" in on:
        share = 1 - math.sin(turn / 2)
    if "parabola" in on:
        share = (1 - done) ** 2
    if "cosine alone" in on:
        share = math.cos(turn)
    if "stays up" in on:
        share = 1.0
    if "floor left out" in on:
        return (peak - floor) * share
    if "floor added" in on:
        return floor + peak * share
    if "floor as a limit" in on:
        return max(floor, peak * share)
    if "floor at the end only" in on:
        return peak * share
    return floor + (peak - floor) * share


def _at(step: int, *rest: float) -> Callable[[Generator], tuple]:
    return lambda g: (step, *rest)


WARMUP_COSINE = Exercise(
    name="warmup_cosine",
    lesson="11",
    order=2,
    reference=warmup_cosine,
    probes=(
        Probe("the first step has its share of the peak", _at(1, 8.0, 3.0, 4, 12)),
        Probe("the warm-up is a straight line from 0", _at(3, 8.0, 3.0, 4, 12)),
        Probe("it ends at the peak", _at(4, 8.0, 3.0, 4, 12)),
        Probe("half-way down is the middle of peak and floor", _at(8, 8.0, 3.0, 4, 12)),
        Probe("the fall is half a cosine", _at(5, 8.0, 3.0, 4, 12)),
        Probe("the fall is half a cosine", _at(10, 8.0, 3.0, 4, 12)),
        Probe("the floor is reached with the last step", _at(11, 8.0, 3.0, 4, 12)),
        Probe("the floor is reached with the last step", _at(12, 8.0, 3.0, 4, 12)),
        Probe("after that it stays at the floor", _at(13, 8.0, 3.0, 4, 12)),
        Probe("after that it stays at the floor", _at(20, 8.0, 3.0, 4, 12)),
        Probe("a floor of 0", _at(9, 3.0, 0.0, 2, 11)),
        *(
            Probe("real numbers", _at(step, 1e-3, 1e-4, 500, 10_000), tolerance=2e-5)
            for step in (250, 500, 2000, 5250, 9000)
        ),
        *(
            Probe("after that it stays at the floor", _at(step, 1e-3, 1e-4, 500, 10_000))
            for step in (10_000, 15_000, 19_500)
        ),
    ),
    **texts("warmup_cosine"),
)

EXERCISES = (WARMUP_COSINE,)
