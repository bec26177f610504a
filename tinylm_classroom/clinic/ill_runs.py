"""Lesson 19: six runs of which one is healthy, and what halving and walking down a tree need."""

from .measurements import floor
from .parts import HEALTHY
from .patient import Patient, patient
from .tree import TREE, walk

PARTS = [*HEALTHY]
RUNS = {
    "A": "slower",
    "B": "NaN",
    "C": "healthy",
    "D": "too good",
    "E": "left behind",
    "F": "stuck",
}

__all__ = ["PARTS", "TREE", "floor", "six", "walk"]


class Healthy(Patient):
    """A patient's run with healthy parts only."""

    @property
    def _faults(self) -> dict:
        return {}


def six(seed: int) -> dict[str, tuple[Patient, str]]:
    """Six runs, each with a seed of its own, and what they are: {letter: (run, name)}."""
    runs = {}
    for i, (letter, name) in enumerate(RUNS.items()):
        if name == "healthy":
            runs[letter] = Healthy(patient("left behind").case, seed + i), name
        else:
            runs[letter] = patient(name, seed + i), name
    return runs
