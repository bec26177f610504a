"""Submissions in a folder: whose they are, of which lesson, and what was attempted."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ...exercises import EXERCISES
from ...workshop.parts import is_sealed
from .attempts import Attempt
from .notebook import (
    TOPIC,
    Notebook,
    UnreadableError,
    looks_like_notebook,
    read_code,
    read_content,
    read_notebook,
    topic,
)

# Moodle appends it to a student's name and number
PLATFORM = re.compile(r"(?<=\d)_assignsubmission_\w+$")
# anywhere: browsers and mail programs append to names
IS_NOTEBOOK = re.compile(r"\.ipynb(?![a-z])", re.IGNORECASE)
# What operating systems put into folders and archives, in small letters; names that begin with a
# dot are hidden anyway.
OF_THE_SYSTEM = {
    "__macosx",
    "thumbs.db",
    "desktop.ini",
    "$recycle.bin",
    "system volume information",
    "@eadir",
}

NO_CELL = (
    "the notebook has no cell for this exercise, as a copy of an earlier edition of the lesson has "
    "none: make lab puts today's next to it"
)


@dataclass(frozen=True)
class Submission:
    """What a student handed in for one lesson.

    attempts: by exercise, None for one that was not attempted; problem: why nothing could be read,
    or "".
    taken: a remark on where it was found; files: those that it was read from; digest: of their
    contents.
    """

    student: str
    lesson: str
    attempts: dict[str, Attempt | None] = field(default_factory=dict)
    problem: str = ""
    taken: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    files: tuple[Path, ...] = ()


def submissions(folder: Path) -> list[Submission]:
    """All submissions in a folder that holds a notebook or a folder for each student, in the order
    of their names.

    Raises FileNotFoundError for a path that is not a folder, or holds nothing of a student.
    """
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; give the one that holds the submitted notebooks"
        )
    found: list[Submission] = []
    for student, paths in sorted(_students(folder).items()):
        found += _of_student(student, paths)
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and path.is_dir():
            why = f"{path.name}: a link to a folder, which is not followed"
            found.append(Submission(path.name, "", problem=why))
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no notebooks (*.ipynb); put one, or a folder, for each student there"
        )
    return found


def left_out(folder: Path) -> list[str]:
    """The names of files next to the students' that belong to nobody: no notebooks, and without a
    lesson's name.
    """
    used = {*chain.from_iterable(_students(folder).values())}
    return [path.name for path in _files(folder) if path.parent == folder and path not in used]


def _students(folder: Path) -> dict[str, list[Path]]:
    """The files of each student; a folder without any is a student, too."""
    found: dict[str, list[Path]] = {}
    for path in folder.iterdir():
        is_own = path.is_dir() and not path.is_symlink() and path.name not in ("parts", "work")
        if is_own and not _is_of_the_system(path.name):
            found.setdefault(_called(path.name), [])
    for path in _files(folder):
        inside = path.relative_to(folder).parts
        is_loose = len(inside) == 1 or inside[0] in ("parts", "work")
        if not is_loose:
            found.setdefault(_called(inside[0]), []).append(path)
        elif _is_notebook(path) or _is_part(path) or topic(path) or looks_like_notebook(path):
            found.setdefault(
                _called(_without_lesson(path)) or _called(folder.resolve().name), []
            ).append(path)
    return found


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder but those of the system, the likeliest first; links to folders are
    not followed.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not _is_of_the_system(name) and name != "earlier"
        )
        for name in sorted(names, key=lambda name: (len(name), name)):
            if not _is_of_the_system(name):
                yield Path(place, name)


def _is_of_the_system(name: str) -> bool:
    return name.startswith((".", "~$")) or name.casefold() in OF_THE_SYSTEM


def _is_notebook(path: Path) -> bool:
    return IS_NOTEBOOK.search(path.name) is not None


def _is_part(path: Path) -> bool:
    return path.suffix == ".py" and path.parent.name == "parts"


def _without_lesson(path: Path) -> str:
    """The name of a file without the lesson's and without what says that it is a notebook."""
    if path.suffix == ".py":
        return ""
    stem = IS_NOTEBOOK.split(path.name)[0] if _is_notebook(path) else path.stem
    return TOPIC.sub("", stem).strip(" _-")


def _called(name: str) -> str:
    """A student's name from a file's or a folder's, in one form: macOS writes letters with accents
    in two parts.
    """
    name = unicodedata.normalize("NFC", PLATFORM.sub("", name))
    return "".join(c if c.isprintable() else "?" for c in name)


def _of_student(student: str, paths: list[Path]) -> Iterator[Submission]:
    """A submission for each lesson of which there is an attempt in a notebook or a kept part."""
    parts = {p.stem: p for p in paths if _is_part(p) and p.stem in EXERCISES}
    likely = [path for path in paths if _is_notebook(path)] or [
        path for path in paths if looks_like_notebook(path)
    ]
    if not likely and not parts:
        problem = f"no notebook: {_listed(paths)}"
        yield Submission(student, "", problem=problem, digest=problem)
    read: list[Notebook] = []
    unread: dict[str, dict[Path, str]] = {}
    for path in likely:
        try:
            read.append(read_notebook(path, read_content(path)))
        except Exception as error:  # a file may hold anything, and the others must not suffer
            why = (
                error
                if isinstance(error, UnreadableError)
                else (f"it cannot be read ({type(error).__name__})")
            )
            unread.setdefault(topic(path), {})[path] = f"{path.name}: {why}"
    for path, problem in (*unread.pop("", {}).items(), *_of_no_lesson(paths, read)):
        yield Submission(student, "", problem=problem, digest=problem, files=(path,))
    known = {*chain.from_iterable(notebook.lessons() for notebook in read)}
    for lesson in sorted({*known, *unread, *(EXERCISES[name].lesson for name in parts)}):
        here = [notebook for notebook in read if lesson in notebook.lessons()]
        here.sort(key=lambda notebook: notebook.lesson != lesson)
        yield _of_lesson(student, lesson, here, parts, unread.get(lesson, {}))


def _of_no_lesson(paths: Sequence[Path], read: Sequence[Notebook]) -> Iterator[tuple[Path, str]]:
    """The files that answer exercises without a check, and what is said of each."""
    found = {notebook.path: notebook.of_no_lesson() for notebook in read}
    found |= {p: [p.stem] for p in paths if _is_part(p) and p.stem not in EXERCISES and _is_kept(p)}
    for path, exercises in found.items():
        if exercises:
            yield path, f"{path.name}: no check is for {', '.join(exercises)}: not graded"


def _is_kept(path: Path) -> bool:
    try:
        return is_sealed(read_content(path).decode("utf-8", errors="replace"))
    except UnreadableError:
        return False


def _listed(paths: Sequence[Path]) -> str:
    if not paths:
        return "the folder is empty"
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"found {', '.join(path.name for path in paths[:3])}{more}"


def _of_lesson(
    student: str,
    lesson: str,
    notebooks: list[Notebook],
    parts: dict[str, Path],
    unread: dict[Path, str],
) -> Submission:
    """What there is of one lesson; what has no attempt may be in one of the files that could not be
    read.
    """
    attempts: dict[str, Attempt | None] = {}
    taken: dict[str, str] = {}
    problem = "; ".join(unread.values())
    own = [notebook for notebook in notebooks if notebook.lesson == lesson]
    digest = hashlib.sha256(b"".join(notebook.content for notebook in notebooks) + problem.encode())
    for name in (name for name, exercise in EXERCISES.items() if exercise.lesson == lesson):
        tried = [
            (notebook, attempt) for notebook in notebooks if (attempt := notebook.attempt(name))
        ]
        found, attempts[name] = next(
            (one for one in tried if not one[1].problem), (*tried, (None, None))[0]
        )
        if found and (len(notebooks) > 1 or found.lesson != lesson):
            taken[name] = f"from {found.path.name}"
        elif not found and name in parts:
            taken[name] = (
                f"from the kept part {parts[name].name}, since the notebook has no attempt"
            )
            try:
                content = read_content(parts[name])
                digest.update(content)
                attempts[name] = _part(name, content)
            except UnreadableError as error:
                attempts[name] = Attempt(problem=str(error))
        elif not found and problem:
            attempts[name] = Attempt(problem=problem)
        elif not found and own and not any(notebook.code.defines(name) for notebook in own):
            taken[name] = NO_CELL
    kept = [path for name, path in parts.items() if name in attempts]
    files = (*(notebook.path for notebook in notebooks), *unread, *kept)
    return Submission(student, lesson, attempts, "", taken, digest.hexdigest()[:16], files)


def _part(name: str, content: bytes) -> Attempt:
    """A kept part, which needs no notebook; its seal says what the function is called there."""
    text = content.decode("utf-8", errors="replace")
    called = re.search(r'^# tinylm-part: .*"function": "(\w+)"', text, re.M)
    alias = f"\n\n{name} = {called[1]}\n" if called and called[1] != name else ""
    return read_code([text + alias]).attempt(name) or Attempt(
        problem=f"the kept part does not define `{name}`"
    )
