"""All exercises of the series: what each asks for, and the mistakes that its check knows by name."""

from importlib import import_module

from .base import Exercise

# The files of this folder that hold exercises, in the order of the lessons.
_FILES = (
    "tokens", "linear", "softmax", "normalization", "attention", "positions", "heads", "feedforward", "block", "model",
    "initialization", "training", "adamw", "step_size", "clipping", "sampling", "truncation", "beams", "cache", "speed",
    "scale",
)  # fmt: skip
EXERCISES: dict[str, Exercise] = {
    exercise.name: exercise for file in _FILES for exercise in import_module(f".{file}", __name__).EXERCISES
}


def names() -> list[str]:
    """The names of all exercises, in the order of the lessons."""
    return list(EXERCISES)


def find_exercise(name: str) -> Exercise:
    """The exercise of this name.

    Raises KeyError, with the known names, for any other.
    """
    if name not in EXERCISES:
        raise KeyError(f"there is no exercise {name!r}; there are {', '.join(EXERCISES)}")
    return EXERCISES[name]
