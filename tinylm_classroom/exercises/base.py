"""What an exercise is: a reference whose mistakes can be switched on, probes that tell them apart,
and hints.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Generator

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same code under another name
    import tomli as tomllib


class Diagnosis(NamedTuple):
    """What a check found: whether all is right, the mistake's name if it is known, and what to tell
    the learner.
    """

    passed: bool
    mistake: str | None
    message: str


class Fault(NamedTuple):
    """A mistake that has a name: how it `looks` (behind "It looks like") and `why` that is wrong
    and where to look.
    """

    looks: str
    why: str


@dataclass(frozen=True)
class Probe:
    """One call of the learner's function.

    holds: what is true of a right function here, a sentence without a full stop.
    make: the arguments, made from a generator again at each call.
    gradients: whether the gradients of all floating-point arguments are compared, too.
    n_live: of the first so many of these alone, where it is given: the caller may have frozen the
    others.
    sees: (arguments, result) -> what is compared; the result itself where it is None.
    tolerance: relative to the largest number; None takes what the dtype allows.
    """

    holds: str
    make: Callable[[Generator], tuple]
    gradients: bool = False
    n_live: int | None = None
    sees: Callable[[tuple, Any], Any] | None = None
    tolerance: float | None = None


def chosen(on: frozenset[str], right: Any, others: Mapping[str, Callable[[], Any]]) -> Any:
    """What the first fault of `others` that is on computes, or what is right if none is."""
    return next((other() for fault, other in others.items() if fault in on), right)


def slipped(on: frozenset[str], value: Any, slips: Mapping[str, Callable[[Any], Any]]) -> Any:
    """The value after each slip that is on: a sign, a factor, an axis, a dtype."""
    for fault, slip in slips.items():
        if fault in on:
            value = slip(value)
    return value


@dataclass(frozen=True)
class Exercise:
    """A function to be written.

    lesson: its number, two digits.
    reference: the same signature, and `on`, the set of the faults that it shall make.
    probes: in an order in which the first that fails is the cause.
    hints: from a nudge to a plan, never the answer.
    order: in its lesson, where this has exercises in several files.
    wider: its text names no dtype of the result, so that one with more digits is right, too.
    """

    name: str
    lesson: str
    reference: Callable[..., Any]
    probes: tuple[Probe, ...]
    faults: Mapping[str, Fault]
    hints: tuple[str, ...]
    order: int = 0
    wider: bool = False

    @property
    def parameters(self) -> list[str]:
        """The names of the arguments, in their order."""
        return [name for name in inspect.signature(self.reference).parameters if name != "on"]

    @property
    def signature(self) -> str:
        """The call as the lesson states it: `softmax(x, dim)`."""
        return f"{self.name}({', '.join(self.parameters)})"

    @property
    def digest(self) -> str:
        """A short hash of all files that say what is right, since they use one another: it changes
        with the check.
        """
        return _digest(Path(inspect.getfile(self.reference)).parent)


def texts(name: str) -> dict[str, Any]:
    """The faults and hints of an exercise, as the TOML file next to its reference says them.

    A fault is its two texts, or the name of the exercise that has a fault of the same name with the
    same texts.
    """
    written = written_texts()
    if name not in written:
        raise ValueError(f"there are no texts of {name}: write the section [{name}] in a .toml")
    faults = {}
    for fault, said in written[name]["faults"].items():
        faults[fault] = Fault(*(written[said]["faults"][fault] if isinstance(said, str) else said))
    return {"faults": faults, "hints": tuple(written[name]["hints"])}


@cache
def written_texts() -> dict[str, Any]:
    """What all files of texts say, by exercise: `hints`, `faults`, and `rests_on`.

    rests_on: for what each probe demands, the words of the exercise's text in its lesson that
    demand it.
    """
    written = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        written.update(tomllib.loads(path.read_text("utf-8")))
    return written


@cache
def _digest(folder: Path) -> str:
    source = b"".join(
        path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".py", ".toml")
    )
    return hashlib.sha256(source).hexdigest()[:12]
