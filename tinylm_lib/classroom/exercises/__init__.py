"""All exercises of the series: what each asks for, and the mistakes that its check knows by name."""

from . import (
    adamw,
    attention,
    beams,
    block,
    cache,
    clipping,
    feedforward,
    heads,
    initialization,
    linear,
    model,
    normalization,
    positions,
    sampling,
    scale,
    softmax,
    speed,
    step_size,
    tokens,
    training,
    truncation,
)
from .base import Exercise

LESSONS = (
    tokens,
    linear,
    softmax,
    normalization,
    attention,
    positions,
    heads,
    feedforward,
    block,
    model,
    initialization,
    training,
    adamw,
    step_size,
    clipping,
    sampling,
    truncation,
    beams,
    cache,
    speed,
    scale,
)
ALL: dict[str, Exercise] = {exercise.name: exercise for lesson in LESSONS for exercise in lesson.EXERCISES}


def names() -> list[str]:
    """The names of all exercises, in the order of the lessons."""
    return list(ALL)


def find_exercise(name: str) -> Exercise:
    """The exercise of this name.

    Raises KeyError, with the known names, for any other.
    """
    if name not in ALL:
        raise KeyError(f"there is no exercise {name!r}; there are {', '.join(ALL)}")
    return ALL[name]
