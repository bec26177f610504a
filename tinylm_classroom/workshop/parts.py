"""The parts that a student keeps, as files in `work/parts`: written with a seal, and read with
suspicion.

    python -m tinylm_classroom.workshop.parts NAME FILE

checks such a file in a fresh process. It holds a docstring, a seal (`_SEAL` and JSON), imports,
helpers, the function.
All of this is off where outputs must not depend on a student: with TINYLM_WORKSHOP=off in the
environment, and under pytest (which runs nbval) and nbgrader unless it is TINYLM_WORKSHOP=on.
"""

import contextlib
import hashlib
import json
import linecache
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..checks.check import GRADED
from ..checks.surroundings import supply_names_of_a_notebook
from ..checks.verdict import diagnose
from ..exercises import find_exercise, names
from ..exercises.base import Diagnosis, Exercise
from ..folders import ROOT, WORK
from .extract import Extract

PARTS_FOLDER = WORK / "parts"
FRESH_SECONDS = 120
_SEAL = "# tinylm-part: "


class PartState(NamedTuple):
    """A part as it is found: `status` is open, done, stale or broken; `why` says what is wrong with
    the last two.
    """

    name: str
    status: str
    why: str = ""
    function: Callable[..., Any] | None = None

    @property
    def complaint(self) -> str:
        """What is wrong with a stale or a broken part, for its author."""
        reason = (
            "passed an earlier check, not the one of today"
            if self.status == "stale"
            else "does not work"
        )
        return f"`{WORK.name}/parts/{self.name}.py` {reason}. {self.why}"


def is_off() -> bool:
    """Whether the workshop neither reads nor writes parts here."""
    switch = os.environ.get("TINYLM_WORKSHOP")
    others = {"PYTEST_VERSION", "PYTEST_CURRENT_TEST", GRADED}
    return switch == "off" or (switch != "on" and not others.isdisjoint(os.environ))


def part_file(name: str) -> Path:
    """Where the part of this name is kept."""
    return PARTS_FOLDER / f"{name}.py"


def read_parts() -> list[PartState]:
    """All parts in the order of the lessons, none of them kept where the workshop is off."""
    return [
        PartState(name, "open") if is_off() else read_part(name, part_file(name))
        for name in names()
    ]


def parts_of_no_lesson() -> list[str]:
    """The names of kept parts whose exercise is gone; none where the workshop is off."""
    found = [] if is_off() else sorted(PARTS_FOLDER.glob("*.py"))
    texts = {path.stem: path.read_text("utf-8", errors="replace") for path in found}
    return [name for name, text in texts.items() if name not in names() and is_sealed(text)]


def is_sealed(text: str) -> bool:
    """Whether `keep` has written this text."""
    return f"\n{_SEAL}" in text


def read_part(name: str, path: Path) -> PartState:
    """The part of this name, with its function if it is right today.

    What was checked before it was written is checked again only if it, or its exercise, has changed
    since.
    """
    if not path.exists():
        return PartState(name, "open")
    try:
        seal, body, function = _load(name, path)
    except (Exception, SystemExit) as error:  # it is a student's code: it may raise anything
        return PartState(name, "broken", f"It cannot be imported: {_said(error)}")
    is_current = seal.get("exercise_digest") == find_exercise(name).digest
    if is_current and seal.get("body_digest") == _digest(body):
        return PartState(name, "done", "", function)
    diagnosis = diagnose(name, function)
    if diagnosis.passed:
        return PartState(name, "done", "", function)
    return PartState(name, "broken" if is_current or not seal else "stale", diagnosis.message)


def sealed(exercise: Exercise, extracted: Extract) -> str:
    """The text of a part's file.

    The seal holds digests of the exercise and of everything below the seal.
    """
    digests = {"exercise_digest": exercise.digest, "body_digest": _digest(extracted.body)}
    seal = json.dumps({"exercise": exercise.name, "function": extracted.name, **digests})
    title = f"Your {exercise.signature} of lesson {exercise.lesson}, kept from a notebook."
    return f'"""{title}"""\n\n{_SEAL}{seal}\n\n{extracted.body}'


def check_in_fresh_process(name: str, path: Path) -> Diagnosis:
    """What the check says where there is no notebook, only the file."""
    command = [sys.executable, "-m", __name__, name, str(path.resolve())]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=FRESH_SECONDS)
    except subprocess.TimeoutExpired:
        return Diagnosis(False, None, f"It did not end within {FRESH_SECONDS} s.")
    try:
        return Diagnosis(*json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Diagnosis(False, None, f"Its process ended early: {last or done.returncode}")


def main(name: str, path: str) -> None:
    """Prints what the check says of a file, as JSON on the last line."""
    supply_names_of_a_notebook()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            diagnosis = diagnose(name, _load(name, Path(path))[2])
        except (Exception, SystemExit) as error:  # as in `read_part`
            diagnosis = Diagnosis(False, None, _said(error))
    print("\n" + json.dumps(diagnosis), flush=True)


def _load(name: str, path: Path) -> tuple[dict[str, str], str, Callable[..., Any]]:
    """The seal of a part's file, the text below it, and its function.

    A file without a seal is all text.
    """
    above, _, rest = path.read_text(encoding="utf-8").partition(f"\n{_SEAL}")
    line, _, body = rest.partition("\n\n")
    seal, body = (json.loads(line), body) if rest else ({}, above)
    linecache.checkcache(str(path))
    made = runpy.run_path(str(path), run_name=f"part_{name}")
    wanted = seal.get("function", name)
    if wanted not in made:
        raise AttributeError(f"{path.name} has no attribute '{wanted}'")
    return seal, body, made[wanted]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


if __name__ == "__main__":
    main(*sys.argv[1:])
