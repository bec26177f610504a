"""Keeping a function: it is written to `work/parts` with what it needs, once it passes its check
there, too.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tinylm_lib.files import write_whole

from ..checks.verdict import diagnose, is_open
from ..display.cards import message
from ..exercises import find_exercise
from ..folders import WORK
from .extract import KeepError, extract
from .parts import check_in_fresh_process, is_off, part_file, sealed
from .student_modules import CALLABLE


class Kept(NamedTuple):
    """What became of a `keep`: whether the part is in its file now, and what was said.

    Its card has been shown.
    """

    name: str
    kept: bool
    message: str

    def _ipython_display_(self) -> None: ...


def keep(name: str, function: Callable[..., Any]) -> Kept:
    """Write a function that passes its check to `work/parts/name.py`, with what it needs; shows
    what was done.

    The file is checked in a fresh process first. An earlier part that differs is put into
    `work/parts/earlier`.
    Raises KeyError for an unknown name.
    """
    exercise = find_exercise(name)
    diagnosis = diagnose(name, function)
    if is_open(diagnosis):
        return _say(name, False, "nothing to keep yet", [], "open")
    if not diagnosis.passed:
        return _say(name, False, "not kept, it does not pass its check", [diagnosis.message], "bad")
    try:
        extracted = extract(function)
        return _write(name, sealed(exercise, extracted), extracted.along)
    except (KeepError, OSError, UnicodeError) as error:
        return _say(name, False, "right, but it cannot be kept like this", [str(error)], "bad")


def _write(name: str, text: str, along: list[str]) -> Kept:
    path = part_file(name)
    shown = f"`{WORK.name}/parts/{name}.py`"
    called = ["Models that you build call it."] if name in CALLABLE else []
    if is_off():
        lines = [f"In a notebook of your own this writes {shown}.", *called]
        return _say(name, False, "ready to be kept", lines, "good")
    earlier = path.read_bytes() if path.exists() else None
    if earlier == text.encode():
        return _say(name, True, "kept already", [f"{shown} holds this very function."], "good")
    with TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8", newline="\n")
        diagnosis = check_in_fresh_process(name, trial)
    if not diagnosis.passed:
        lines = [
            (
                "It passes in this notebook, and does not in a fresh Python: something that it "
                "needs stayed here."
            )
        ]
        return _say(name, False, "not kept", [*lines, diagnosis.message], "bad")
    lines = [f"It is in {shown}, and has passed its check once more, in a fresh Python."]
    if along:
        lines.append("Taken along: " + ", ".join(f"`{thing}`" for thing in along) + ".")
    lines += called
    if earlier is not None:
        free = (path.parent / "earlier" / f"{name}_{n}.py" for n in count(1))
        aside = next(place for place in free if not place.exists())
        write_whole(aside, earlier)
        lines.append(f"The one that was there before is `{WORK.name}/parts/earlier/{aside.name}`.")
    write_whole(path, text.encode())
    return _say(name, True, "kept", lines, "good")


def _say(name: str, kept: bool, title: str, lines: list[str], tone: str) -> Kept:
    shown = message(f"{name}: {title}", lines, tone)
    shown.show()
    return Kept(name, kept, str(shown))
