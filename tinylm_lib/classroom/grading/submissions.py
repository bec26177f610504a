"""Submitted notebooks in a folder, read with suspicion: whose they are, of which lesson, and what was attempted."""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..exercises import EXERCISES
from ..folders import lessons
from .attempts import Attempt, Cells

NOTEBOOK_BYTES = 64 * 2**20
CHARACTERS, STATEMENTS = 200_000, 2_000  # of all code; the longest lesson has 40,000 and 340
LESSONS = sorted({exercise.lesson for exercise in EXERCISES.values()})
# In a checkout the lessons have their names; where only the library is installed, any word may be one.
NAMES = "|".join(f"{lesson}_{lessons().get(lesson, '[a-z]+')}" for lesson in LESSONS)
TOPIC = re.compile(rf"(?:^|[\W_])({NAMES})(?:[ _-]*(?:Copy)?\(?\d+\)?)*(?=$|[\W_])")
PLATFORM = re.compile(r"(?<=\d)_assignsubmission_\w+$")  # Moodle appends it to a student's name and number


@dataclass(frozen=True)
class Submission:
    """What a student handed in for one lesson.

    attempts: by exercise, None for one that was not attempted; problem: why nothing could be read, or "".
    taken: a remark on where it was found; files: those that it was read from; digest: of their contents.
    """

    student: str
    lesson: str
    attempts: dict[str, Attempt | None] = field(default_factory=dict)
    problem: str = ""
    taken: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    files: tuple[Path, ...] = ()


class _UnreadableError(Exception):
    """Why a file is not a notebook of ours, in words."""


def submissions(folder: Path) -> list[Submission]:
    """All submissions in a folder that holds a notebook or a folder for each student, in the order of their names.

    Raises FileNotFoundError for a path that is not a folder, or holds no notebooks.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give the one that holds the submitted notebooks")
    files: dict[str, list[Path]] = {}
    for path in _files(folder):
        files.setdefault(_student(folder, path), []).append(path)
    found = [one for student in sorted(files) for one in _of_student(student, files[student])]
    found += [
        Submission(path.name, "", problem=f"{path.name}: a link to a folder, which is not followed")
        for path in sorted(folder.iterdir()) if path.is_symlink() and path.is_dir()
    ]  # fmt: skip
    if not found:
        raise FileNotFoundError(f"{folder} holds no notebooks (*.ipynb); put one, or a folder, for each student there")
    return found


def _files(folder: Path) -> Iterator[Path]:
    """All notebooks and kept parts below a folder, the likeliest first; links to folders are not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "earlier")
        for name in sorted(names, key=lambda name: (len(name), name)):
            path = Path(place, name)
            if path.suffix == ".ipynb" or (path.suffix == ".py" and path.parent.name == "parts"):
                yield path


def _student(folder: Path, path: Path) -> str:
    """The folder below the given one, or the name of the file without the lesson's."""
    inside = path.relative_to(folder).parts
    if len(inside) > 1 and inside[0] not in ("parts", "work"):
        name = PLATFORM.sub("", inside[0])
    else:
        name = TOPIC.sub("", path.stem).strip(" _-") if path.suffix == ".ipynb" else ""
    return "".join(c if c.isprintable() else "?" for c in name or folder.resolve().name)


def _of_student(student: str, paths: list[Path]) -> Iterator[Submission]:
    """A submission for each lesson, from its first notebook that has an attempt, and from kept parts."""
    parts = {p.stem: p for p in paths if p.suffix == ".py" and p.stem in EXERCISES}
    read: dict[str, list[tuple[Path, bytes, Cells]]] = {}
    for path in (path for path in paths if path.suffix == ".ipynb"):
        try:
            content = _content(path)
            lesson, cells = _notebook(path, content)
            read.setdefault(lesson, []).append((path, content, cells))
        except Exception as error:  # a file may hold anything, and the others must not suffer
            if not isinstance(error, _UnreadableError):
                error = f"it cannot be read ({type(error).__name__})"
            lesson = m[1][:2] if (m := TOPIC.search(path.stem)) else ""
            problem = f"{path.name}: {error}"
            yield Submission(student, lesson, problem=problem, digest=problem, files=(path,))
    for lesson in sorted({*read, *(EXERCISES[name].lesson for name in parts)}):
        yield _of_lesson(student, lesson, read.get(lesson, []), parts)


def _of_lesson(
    student: str, lesson: str, notebooks: list[tuple[Path, bytes, Cells]], parts: dict[str, Path]
) -> Submission:
    attempts: dict[str, Attempt | None] = {}
    taken: dict[str, str] = {}
    digest = hashlib.sha256(b"".join(content for _, content, _ in notebooks))
    for name in (name for name, exercise in EXERCISES.items() if exercise.lesson == lesson):
        tried = [(path, attempt) for path, _, cells in notebooks if (attempt := cells.attempt(name))]
        path, attempts[name] = next((one for one in tried if not one[1].problem), (*tried, (None, None))[0])
        if path and len(notebooks) > 1:
            taken[name] = f"from {path.name}"
        elif not path and name in parts:
            taken[name] = f"from the kept part {parts[name].name}, since the notebook has no attempt"
            try:
                content = _content(parts[name])
                digest.update(content)
                attempts[name] = _part(name, content)
            except _UnreadableError as error:
                attempts[name] = Attempt(problem=str(error))
    files = (*(path for path, _, _ in notebooks), *(path for name, path in parts.items() if name in attempts))
    return Submission(student, lesson, attempts, "", taken, digest.hexdigest()[:16], files)


def _content(path: Path) -> bytes:
    if path.is_symlink():  # to a file of ours, or to another student's
        raise _UnreadableError("a link, which is not followed")
    if not path.is_file():
        raise _UnreadableError("not a regular file")
    try:
        size = path.stat().st_size
        if size > NOTEBOOK_BYTES:
            raise _UnreadableError(f"it has {size / 2**20:,.0f} MB, more than {NOTEBOOK_BYTES >> 20}")
        return path.read_bytes()
    except OSError as error:
        raise _UnreadableError(f"it cannot be read: {error.strerror}") from None


def _notebook(path: Path, content: bytes) -> tuple[str, Cells]:
    """Its lesson, and its cells of code."""
    try:
        notebook = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        why = "empty" if not content.strip() else f"not JSON ({error})"
        raise _UnreadableError(f"it cannot be read as a notebook: it is {why}") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise _UnreadableError("it cannot be read as a notebook: it has no list of cells")
    sources = [cell.get("source", "") for cell in cells if cell.get("cell_type") == "code"]
    texts = ["".join(map(str, source)) if isinstance(source, list) else str(source) for source in sources]
    code = _cells(texts)
    return _lesson(path, notebook, code), code


def _cells(texts: list[str]) -> Cells:
    """The cells. Raises _UnreadableError for many times the code of a lesson, which could take hours to search."""
    if (n := sum(map(len, texts))) > CHARACTERS:
        raise _UnreadableError(f"its code has {n:,} characters, more than {CHARACTERS:,}")
    code = Cells(texts)
    if (n := len(code.statements)) > STATEMENTS:
        raise _UnreadableError(f"its code has {n:,} statements, more than {STATEMENTS:,}")
    return code


def _lesson(path: Path, notebook: dict, code: Cells) -> str:
    """From the metadata that our builder writes, or the exercises that it defines, or its name."""
    ours = notebook.get("metadata")
    for key in ("tinylm", "lesson"):
        ours = ours.get(key) if isinstance(ours, dict) else None
    if isinstance(ours, str) and ours[:2] in LESSONS:
        return ours[:2]
    defined = [exercise.lesson for name, exercise in EXERCISES.items() if code.defines(name) or code.attempt(name)]
    if defined:
        return max(LESSONS, key=defined.count)
    if found := TOPIC.search(path.stem):
        return found[1][:2]
    raise _UnreadableError("it has none of our exercises: is it the notebook of another course?")


def _part(name: str, content: bytes) -> Attempt:
    """A kept part, which needs no notebook; its seal says what the function is called there."""
    text = content.decode("utf-8", errors="replace")
    called = re.search(r'^# tinylm-part: .*"function": "(\w+)"', text, re.M)
    alias = f"\n\n{name} = {called[1]}\n" if called and called[1] != name else ""
    return _cells([text + alias]).attempt(name) or Attempt(problem=f"the kept part does not define `{name}`")
