"""Checks that name the mistake, as cards: what holds, what does not, and hints."""

import os
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from ..display.cards import Card, card, fold, inline, message, paragraph, unmarked
from ..exercises import find_exercise
from ..exercises.base import Diagnosis, Exercise
from .calling import SECONDS, still_running
from .surroundings import never_ran, ready_made
from .verdict import Examined, examine, is_open
from .wording import NEAREST

MARKS = {True: ("✓", "#1f8f6a"), False: ("✗", "#d9541e"), None: ("·", "#8a94a0")}
GRADED = "NBGRADER_EXECUTION"  # set by nbgrader where it runs or validates a notebook
READY_MADE = (
    "`{}` does this whole step, and an engineer would call it. Build the step once yourself to see "
    "inside."
)


class Result(Diagnosis):
    """A diagnosis whose card has been shown: a notebook shows nothing more of it."""

    def _ipython_display_(self) -> None: ...


class Interrupted(KeyboardInterrupt):
    """The reader stopped a check.

    A notebook shows the message alone, without a traceback through our code.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


def check(name: str, function: Callable[..., Any]) -> Result:
    """Shows a card that says what holds, or which mistake it looks like, and returns the same as a
    Diagnosis.

    Raises KeyError for an unknown name, and Interrupted, below a card, if the reader stops it.
    Where nbgrader runs the notebook, it raises AssertionError for a function that is not right,
    because a cell that raises gets no points.
    """
    exercise = find_exercise(name)
    try:
        found = examine(exercise, function)
    except KeyboardInterrupt:
        _stopped(exercise).show()
        raise Interrupted(f"you stopped the check of {name}") from None
    if said := never_ran(function):
        message(f"{exercise.name}: a cell did not run", [said], "open").show()
    if not (said and is_open(found.diagnosis)):
        _card(exercise, found, ready_made(exercise.name, function)).show()
    if GRADED in os.environ and not found.diagnosis.passed:
        raise AssertionError(_in_words(found.diagnosis.message))
    return Result(*found.diagnosis)


def hint(name: str) -> Card:
    """A card of folded hints, from a nudge to a plan; open one at a time.

    Raises KeyError for an unknown name.
    """
    return hints_card(name, find_exercise(name).hints)


def hints_card(title: str, hints: Sequence[str]) -> Card:
    """A card of hints, each folded by itself."""
    folds = [fold(f"Hint {i} of {len(hints)}", paragraph(text)) for i, text in enumerate(hints, 1)]
    text = f"{title}: {len(hints)} hints, folded; open one at a time"
    return card(f"{title}: hints", folds, text, "open")


def _stopped(exercise: Exercise) -> Card:
    """What an interrupted check says."""
    advice = (
        f"`{exercise.name}` was running. A check gives all calls {SECONDS:.0f} seconds and then "
        "stops by itself, so a function that takes longer has a loop that does not end, or too "
        "many rounds. Look at its condition."
    )
    state = (
        "Your function has ended, and the notebook is as it was before. Change the function and "
        "check again."
    )
    if still_running():
        state = (
            "Your function cannot be stopped and slows down everything: save the notebook and "
            "restart the kernel."
        )
    return message(f"{exercise.name}: you stopped the check", [advice, state], "open")


def _card(exercise: Exercise, found: Examined, ready: str | None = None) -> Card:
    (passed, mistake, said), _, shapes = found
    if is_open(found.diagnosis):
        text = f"Write `{exercise.signature}`, run its cell, then run this one again."
        return card(said, [paragraph(text)], said, "open")
    rows: dict[str, bool | None] = {}
    for probe, state in zip_longest(exercise.probes, found.states):
        rows[probe.holds] = state if rows.get(probe.holds, True) else False
    if False in rows.values():  # what comes behind the first failure may only follow from it
        first = list(rows.values()).index(False)
        rows = {
            holds: state if i <= first else None for i, (holds, state) in enumerate(rows.items())
        }
    item = (
        '<li style="margin:1px 0">'
        '<b style="color:{1};display:inline-block;width:1.5em">{0}</b>{2}</li>'
    )
    items = "".join(item.format(*MARKS[state], inline(holds)) for holds, state in rows.items())
    listing = f'<ul style="list-style:none;padding:0;margin:8px 0">{items}</ul>'
    if passed:
        text = "\n".join([f"{exercise.name}: right", *(f"  ✓ {unmarked(holds)}" for holds in rows)])
        said = READY_MADE.format(ready) if ready else ""
        parts = [listing, paragraph(said)] if ready else [listing]
        return card(
            f"{exercise.name}: right",
            parts,
            "\n".join(filter(None, [text, unmarked(said)])),
            "good",
        )
    title = f"{exercise.name}: {'not right yet' if mistake is None or NEAREST in said else mistake}"
    parts = [
        paragraph(said.partition("\n")[0]),
        shapes.html if shapes else "",
        fold("What was checked", listing),
    ]
    return card(title, parts, f"{exercise.name}: not right yet\n{_in_words(said)}", "bad")


def _in_words(said: str) -> str:
    """A message as plain text: its first line is marked, what follows shows shapes."""
    first, *shapes = said.split("\n", 1)
    return "\n".join([unmarked(first), *shapes])
