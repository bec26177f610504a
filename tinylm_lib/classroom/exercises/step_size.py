"""Lesson 11: how far weights move."""

import math
from collections.abc import Callable

from torch import Generator

from .base import Exercise, Fault, Probe


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
    faults={
        "no warm-up": Fault("there is no warm-up", "Up to warmup_steps the rate rises from 0 to the peak."),
        "steps": Fault("the rate stays 0 and then jumps", "Is the share rounded down to a whole number (`//`)?"),
        "peak at once": Fault("the warm-up has the peak from the beginning", "It rises from 0 in a straight line."),
        "bent warm-up": Fault("the warm-up is a parabola", "It rises in a straight line."),
        "root warm-up": Fault("the warm-up rises like a root", "It rises in a straight line."),
        "cosine warm-up": Fault("the warm-up is a cosine, too", "It rises in a straight line."),
        "waits at the floor": Fault("the warm-up stays at the floor", "It rises from 0 in a straight line."),
        "never below the floor": Fault(
            "the floor holds in the warm-up, too", "It rises from 0: the floor is for the end."
        ),
        "share of all steps": Fault("the warm-up rises over all steps", "It has reached the peak at warmup_steps."),
        "counted from both ends": Fault("the first step has a rate of 0", "It has its share: step 1 of warmup_steps."),
        "one step more to the peak": Fault(
            "1 is added to step and warmup_steps", "Step 1 has one share of warmup_steps."
        ),
        "warm-up one shorter": Fault("the peak is reached one step early", "Step warmup_steps has it."),
        "from the floor": Fault("the warm-up starts at the floor", "It starts from 0."),
        "from 0": Fault(
            "steps are counted from 0",
            "They count from 1: the first step moves already, and step warmup_steps has the peak.",
        ),
        "one ahead": Fault(
            "step is counted one too far", "Step warmup_steps has the peak, step total_steps the floor."
        ),
        "from the first step": Fault(
            "the cosine runs from the first step", "It begins where the warm-up ends, at the peak."
        ),
        "length not reduced": Fault(
            "the fall is as long as the whole training", "Its length is what the warm-up leaves."
        ),
        "one early": Fault("the floor is reached one step early", "Step total_steps is the first at the floor."),
        "one late": Fault("the floor is missed by one step", "Step total_steps has it."),
        "goes on": Fault(
            "the cosine goes on behind the end", "It would rise again: after total_steps the rate stays at the floor."
        ),
        "floor for one step": Fault("nothing is left after total_steps", "The floor is, for ever."),
        "start not subtracted": Fault(
            "the warm-up is not subtracted from step", "The fall begins at warmup_steps, with nothing done."
        ),
        "one step ahead": Fault("the cosine is one step ahead", "At warmup_steps nothing of the fall is done."),
        "one step behind": Fault(
            "the cosine is one step behind", "At warmup_steps nothing of the fall is done, and not less."
        ),
        "ends at 0": Fault("nothing is left after the end", "The floor is."),
        "back to the peak": Fault("the peak comes back after the end", "The floor is what is left."),
        "degrees": Fault("the angle is in degrees", "`cos` counts in radians: half a turn is pi."),
        "no pi": Fault("pi is missing", "The cosine falls from 1 to -1 in half a turn, which is pi."),
        "quarter": Fault("a quarter of a cosine is used", "Half a turn: flat at the beginning and at the end."),
        "whole turn": Fault("a whole cosine is used", "Half a turn: from its highest to its lowest value."),
        "upwards": Fault("the rate rises where it should fall", "Look at the sign of the cosine."),
        "not halved": Fault("1 + cos is not halved", "It runs from 2 to 0; a share runs from 1 to 0."),
        "cosine alone": Fault("the cosine itself is the share", "It runs from 1 to -1; a share runs from 1 to 0."),
        "sine": Fault("a sine is used", "The cosine starts at its highest value: at the peak."),
        "quarter of a sine": Fault(
            "a quarter of a sine is used", "Half a cosine: flat at the beginning and at the end."
        ),
        "parabola": Fault("the rate falls like a parabola", "Half a cosine is asked for."),
        "fades geometrically": Fault("the rate fades by a constant factor", "Half a cosine is asked for."),
        "brackets missing": Fault(
            "only the cosine is halved",
            "The whole share, 1 + cos, is halved, and then multiplied: see to the brackets.",
        ),
        "straight": Fault("the rate falls in a straight line", "Half a cosine is asked for."),
        "stays up": Fault("the rate does not fall", "Behind the warm-up comes half a cosine."),
        "floor unused": Fault("the floor is not used", "The fall ends there, and stays there."),
        "floor at the end only": Fault("the fall runs to 0", "It runs from peak to floor."),
        "floor left out": Fault(
            "the floor is subtracted, and not added again", "The curve runs between floor and peak."
        ),
        "floor added": Fault(
            "the floor is added to the whole curve", "The fall starts at the peak: how high is it above the floor?"
        ),
        "floor as a limit": Fault(
            "the curve is cut off at the floor", "It ends there by itself: scale what lies between."
        ),
        "peak unused": Fault("the peak is not used", "The rate is asked for, not a share of it."),
        "ends exchanged": Fault("peak and floor are exchanged", "The warm-up ends at the peak."),
    },
    hints=(
        "Three parts: before warmup_steps, from there to total_steps, and after.",
        "For the middle part, first find the fraction of the way that is done, from 0 to 1.",
        "cos runs from 1 to -1 over half a turn. Turn that into 1 to 0, then into peak to floor.",
    ),
)

EXERCISES = (WARMUP_COSINE,)
