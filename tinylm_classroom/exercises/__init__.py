"""All exercises of the series: what each asks for, and the mistakes that its check names."""

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules

from .base import Exercise

_files = [
    import_module(f".{file.name}", __name__)
    for file in iter_modules(__path__)
    if file.name != "base"
]
_found = chain.from_iterable(file.EXERCISES for file in _files)
EXERCISES: dict[str, Exercise] = {
    e.name: e for e in sorted(_found, key=lambda e: (e.lesson, e.order))
}


def names() -> list[str]:
    """The names of all exercises, in the order of the lessons."""
    return list(EXERCISES)


def find_exercise(name: str) -> Exercise:
    """The exercise of this name.

    Raises KeyError, with the known names, for any other.
    """
    if name not in EXERCISES:
        raise KeyError(
            f"there is no exercise {name!r}; there are {', '.join(EXERCISES)}. If a cell of your "
            "lesson asks for it, your copy is an older one: make lab puts today's next to it"
        )
    return EXERCISES[name]
