"""A file that was handed in as a notebook, read with suspicion: its lesson, its cells, and what is
in them.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ...exercises import EXERCISES
from ...folders import NOTEBOOKS, lessons, own
from .attempts import CONFLICT, Attempt, Cells
from .overlooked import SubmittedCell, overlooked

NOTEBOOK_BYTES = 64 * 2**20
CHARACTERS = 200_000  # of all code; the longest lesson has 40,000
STATEMENTS = 2_000  # of all code; the longest lesson has 340
LESSONS = sorted({exercise.lesson for exercise in EXERCISES.values()})
# In a checkout the lessons have their names; where only the library is installed, any word may be
# one.
NAMES = "|".join(f"{lesson}_{lessons().get(lesson, '[a-z]+')}" for lesson in LESSONS)
TOPIC = re.compile(rf"(?:^|[\W_])({NAMES})(?:[ _-]*(?:Copy)?\(?\d+\)?)*(?=$|[\W_])", re.IGNORECASE)
GRADER_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# How files begin that are often handed in under the name of a notebook, and what they are.
FIRST_BYTES = {
    b"%PDF": "a PDF file: ask for the notebook itself",
    b"PK\x03\x04": "a ZIP archive: unpack it",
    b"\x1f\x8b": "a gzip archive: unpack it",
    b"<": "a web page: ask for the notebook itself",
    b"version https://git-lfs": (
        "a Git LFS pointer, not the file: run git lfs pull where it comes from"
    ),
}


class UnreadableError(Exception):
    """Why a file is not a notebook of ours, in words."""


class Notebook(NamedTuple):
    """A notebook. lesson: the one that it is of, two digits; python: the version of Python that it
    names, or "".
    """

    path: Path
    content: bytes
    lesson: str
    cells: list[SubmittedCell]
    code: Cells
    python: str = ""

    def lessons(self) -> set[str]:
        """Its own lesson, and all others of which it holds an attempt."""
        others = [e for e in EXERCISES.values() if e.lesson != self.lesson]
        found = {e.lesson for e in others if self.code.answers(e.name, len(e.parameters))}
        return found | {self.lesson}.intersection(LESSONS)

    def of_no_lesson(self) -> list[str]:
        """The exercises that it answers in a cell of theirs, and for which there is no check: those
        of earlier editions and of lesson 19.
        """
        asked = dict.fromkeys(cell.exercise for cell in self.cells if cell.exercise)
        return [name for name in asked if name not in EXERCISES and self.code.attempt(name)]

    def attempt(self, name: str) -> Attempt | None:
        """The attempt at an exercise; in its own lesson also one that does not count, which says
        why.
        """
        exercise = EXERCISES[name]
        if exercise.lesson == self.lesson:
            found = self.code.attempt(name) or overlooked(name, self.cells, self.code.given)
        else:
            answers = self.code.answers(name, len(exercise.parameters))
            found = self.code.attempt(name) if answers else None
        is_ours = self.python in ("", GRADER_PYTHON) or self.python.startswith(f"{GRADER_PYTHON}.")
        return found if found is None or is_ours else found._replace(python=self.python)


def read_content(path: Path) -> bytes:
    """The bytes of a file.

    Raises UnreadableError for a link, a pipe, and a file that is too large or protected.
    """
    if path.is_symlink():  # to a file of ours, or to another student's
        raise UnreadableError("a link, which is not followed")
    if not path.is_file():
        raise UnreadableError("not a regular file")
    try:
        size = path.stat().st_size
        if size > NOTEBOOK_BYTES:
            raise UnreadableError(
                f"it has {size / 2**20:,.0f} MB, more than {NOTEBOOK_BYTES >> 20}"
            )
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"it cannot be read: {error.strerror}") from None


def looks_like_notebook(path: Path) -> bool:
    """Whether a file without the name of a notebook has the content of one."""
    if (
        path.suffix.casefold() not in ("", ".json", ".txt")
        or path.is_symlink()
        or not path.is_file()
    ):
        return False
    try:
        return path.stat().st_size <= NOTEBOOK_BYTES and b'"cells"' in path.read_bytes()
    except OSError:
        return False


def read_notebook(path: Path, content: bytes) -> Notebook:
    """The notebook of these bytes.

    Raises UnreadableError for everything else, and says what it is.
    """
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError(
            f"it cannot be read as a notebook: it is {_what(content, error)}"
        ) from None
    cells = [*_cells(data)]
    texts = [cell.text for cell in cells if cell.kind == "code"]
    metadata = data.get("metadata")
    named = _inside(metadata, "tinylm", "lesson")
    stated = named[:2] if isinstance(named, str) and named[:2] in {*LESSONS, *lessons()} else ""
    earlier = {text for text in texts if digest_of_cell(text) in earlier_cells()}
    code = read_code(texts, given_cells(stated or topic(path)) | earlier)
    python = _inside(metadata, "language_info", "version")
    is_version = isinstance(python, str) and re.fullmatch(r"\d+\.\d+[\w.+-]{,20}", python)
    found = Notebook(
        path, content, stated or _lesson(path, code), cells, code, python if is_version else ""
    )
    if not found.lessons() and not found.of_no_lesson():
        raise UnreadableError(f"it is of lesson {stated}, and no check is for its exercises")
    return found


def _what(content: bytes, error: Exception) -> str:
    """What a file is that is not JSON."""
    text = content.decode("utf-8", "replace")
    if not content.strip():
        return "empty"
    if conflict := CONFLICT.search(text):
        line = text.count("\n", 0, conflict.start()) + 1
        return (
            f"full of the conflict markers of a merge, the first in line {line}: keep one of the "
            "two versions"
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "text in UTF-16: save it in UTF-8"
    beginning = content.lstrip()
    return next(
        (says for start, says in FIRST_BYTES.items() if beginning.startswith(start)),
        f"not JSON ({error})",
    )


def _cells(data: Any) -> Iterator[SubmittedCell]:
    if isinstance(data, dict) and "worksheets" in data:
        raise UnreadableError(
            f"it is a notebook of the old format {str(data.get('nbformat', 3))[:9]}, and format 4 "
            "is needed. Open it in JupyterLab and save it, or run jupyter nbconvert --to notebook"
        )
    cells = data.get("cells") if isinstance(data, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise UnreadableError("it cannot be read as a notebook: it has no list of cells")
    for cell in cells:
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        named = _inside(cell.get("metadata"), "tinylm", "name")
        exercise = named if isinstance(named, str) and named.isidentifier() else ""
        yield SubmittedCell(str(cell.get("cell_type"))[:20], text, exercise)


def _inside(metadata: Any, *keys: str) -> Any:
    """What is under these keys, None where there is nothing."""
    for key in keys:
        metadata = metadata.get(key) if isinstance(metadata, dict) else None
    return metadata


def read_code(texts: list[str], given: frozenset[str] = frozenset()) -> Cells:
    """Cells of code.

    Raises UnreadableError for many times the code of a lesson, which could take hours to search.
    """
    if (n := sum(map(len, texts))) > CHARACTERS:
        raise UnreadableError(f"its code has {n:,} characters, more than {CHARACTERS:,}")
    code = Cells(texts, given)
    if (n := len(code.statements)) > STATEMENTS:
        raise UnreadableError(f"its code has {n:,} statements, more than {STATEMENTS:,}")
    return code


@cache
def given_cells(lesson: str, notebooks: Path = NOTEBOOKS) -> frozenset[str]:
    """The texts of a lesson's own cells of code; none where only the library is installed."""
    paths = [*notebooks.glob(f"{lesson}_*.ipynb")] if lesson else []
    cells = chain.from_iterable(_cells(json.loads(path.read_text("utf-8"))) for path in paths)
    return frozenset(cell.text for cell in cells if cell.kind == "code")


@cache
def earlier_cells() -> frozenset[str]:
    """Digests of the cells that lessons had in earlier editions, of which students have copies."""
    return frozenset(own("course/grading/earlier.txt").split())


def digest_of_cell(text: str) -> str:
    """What stands for the text of a cell in the list of the earlier ones."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]


def topic(path: Path) -> str:
    """The lesson that a file has in its name, "" for none."""
    found = TOPIC.search(path.name)
    return found[1][:2] if found else ""


def _lesson(path: Path, code: Cells) -> str:
    """The lesson of a notebook that does not name it: by the exercises that it has, or by the name
    of the file.
    """
    defined = [
        e.lesson for name, e in EXERCISES.items() if code.defines(name) or code.attempt(name)
    ]
    if defined:
        return max(LESSONS, key=defined.count)
    if found := topic(path):
        return found
    raise UnreadableError("it has none of our exercises: is it the notebook of another course?")
