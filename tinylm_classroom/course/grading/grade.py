"""Grading submitted notebooks: each lesson of a student runs in a process of its own and is judged
in this one.
"""

import os
import platform
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import chain
from typing import Any

from torch import Generator

from ...checks.calling import SEED, Outcome, Strange, moved, outcome_of
from ...checks.verdict import is_open, judge, no_function
from ...exercises import find_exercise
from ...exercises.base import Exercise, Probe
from .launch import Limits, answers
from .marks import Mark
from .results import Results
from .submissions import Submission
from .touching import MOST
from .wire import decode_call


def grade(
    found: Sequence[Submission],
    results: Results | None = None,
    jobs: int | None = None,
    limits: Limits | None = None,
) -> Iterator[Mark]:
    """Yields a Mark for each exercise of each submission, as soon as it is known.

    results: what earlier runs have found, which is not run again; each finished submission is
    added.
    jobs: how many processes at a time; as many as there are cores where it is None. Closing the
    generator ends them.
    """
    limits = limits or Limits()
    hidden = [*chain.from_iterable(s.files for s in found)]
    if results:
        hidden.append(results.path)
    known = [results.of(s) if results else None for s in found]
    for marks in known:
        yield from marks or ()
    stop = threading.Event()
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        try:
            waiting = [s for s, marks in zip(found, known, strict=True) if marks is None]
            running = {pool.submit(answers, s, limits, hidden, stop): s for s in waiting}
            for done in as_completed(running):
                submission = running[done]
                marks = _marks(submission, done)
                if results:
                    results.add(submission, marks)
                yield from marks
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


class Received:
    """A learner's function in another process: what has come of it there."""

    def __init__(self, exercise: Exercise, answer: dict[str, Any]):
        self.probes = exercise.probes
        self.outcomes = [
            _outcome(probe, data) for probe, data in zip(self.probes, answer["calls"], strict=False)
        ]
        if not self.outcomes or (self.outcomes[-1].ended and len(self.outcomes) < len(self.probes)):
            raise ValueError("calls are missing")
        self._again = answer["again"]
        self._moved = {(i, place): data for i, place, data in answer["moved"]}

    def again(self, i: int) -> Outcome:
        """What came of a probe with other random numbers; the same as before where it was not
        tried.
        """
        return (
            _outcome(self.probes[i], self._again[i]) if i < len(self._again) else self.outcomes[i]
        )

    def moved(self, i: int, place: int) -> Outcome:
        """What came of a probe with other numbers for one argument; something strange where it was
        not tried.
        """
        data = self._moved.get((i, place))
        return (
            _outcome(moved(self.probes[i], place), data) if data else Outcome(Strange("not tried"))
        )


def _outcome(probe: Probe, data: dict[str, Any]) -> Outcome:
    return outcome_of(decode_call(data, probe.make(Generator().manual_seed(SEED))), probe)


def _marks(submission: Submission, done: Future) -> list[Mark]:
    who = (submission.student, submission.lesson)
    if problem := submission.problem or (
        done.exception() and f"{type(done.exception()).__name__}: {done.exception()}"
    ):
        return [
            Mark(*who, name, "could not be run", "", _line(problem))
            for name in submission.attempts or [""]
        ]
    said = done.result()
    marks = []
    for name, attempt in submission.attempts.items():
        if attempt is None:
            says = submission.taken.get(name, "")
            marks.append(Mark(*who, name, "not attempted", "", _line(says)))
            continue
        answer = said.get(name, {})
        verdict, mistake, says = _judged(find_exercise(name), attempt.problem, answer)
        notes = [submission.taken.get(name, "")]
        if attempt.library:
            notes.append("calls the library's " + ", ".join(attempt.library))
        if attempt.python and (verdict == "could not be run" or mistake == "raises an error"):
            notes.append(_versions(attempt.python))
        says = " ".join([says, *(f"({note})" for note in notes if note)])
        marks.append(
            Mark(*who, name, verdict, mistake, _line(says), _touched(answer.get("touched")))
        )
    return marks


def _versions(python: str) -> str:
    """What is said where a notebook was written with another version of Python, which may be the
    reason.
    """
    theirs, ours = (
        [int(n) for n in version.split(".")[:2]] for version in (python, platform.python_version())
    )
    advice = f": grade it with Python {theirs[0]}.{theirs[1]} or newer" if theirs > ours else ""
    return (
        f"the notebook was written with Python {python}, the grader runs Python "
        f"{platform.python_version()}{advice}"
    )


def _touched(attempts: Any) -> str:
    """What a process says that the code in it tried to change; it may say anything."""
    if not isinstance(attempts, list) or not attempts:
        return ""
    return _line(f"tried to {', to '.join(map(str, attempts[:MOST]))}")


def _judged(exercise: Exercise, problem: str, answer: dict[str, Any]) -> tuple[str, str, str]:
    """A verdict, the mistake's name and what is said of one exercise."""
    if why := problem or answer.get("why"):
        return "could not be run", "", str(why)
    try:
        if "kind" in answer:
            found = no_function(exercise, str(answer["kind"])[:100])
        else:
            found = judge(exercise, Received(exercise, answer)).diagnosis
    except Exception as error:  # values that no function of ours returns
        return (
            "could not be run",
            "",
            f"the answer of its process cannot be read ({type(error).__name__})",
        )
    if found.passed:
        return "right", "", found.message
    if is_open(found):
        return "not attempted", "", ""
    return ("mistake" if found.mistake else "not right"), found.mistake or "", found.message


def _line(text: str) -> str:
    """One line of plain text, without what could move a cursor or turn the reading direction."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:1000]
