"""Everything that the five published documents describe has its place in a lesson, with an assertion or an output."""

import re
from pathlib import Path

import nbformat

from tinylm_lib.classroom.course.source import read_lesson

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DOCUMENTS = {"S0": 43, "S3": 5, "S1": 27, "S2": 19, "S4": 62}
ROWS = [f"{document}-{i}" for document, n in DOCUMENTS.items() for i in range(1, n + 1)]
LESSONS = sorted((NOTEBOOKS / "source").glob("*.py"))


def covered(source: Path) -> dict[str, str]:
    """The rows of a lesson's code cells, each with why it does not count, or an empty text."""
    built = nbformat.read(NOTEBOOKS / f"{source.stem}.ipynb", as_version=4)
    outputs = {cell.id: cell.get("outputs") for cell in built.cells}
    lesson, found = read_lesson(source), {}
    for place, cell in enumerate(lesson.cells):
        for row in cell.meta.get("rows", ()):
            asserts = re.search(r"^\s*assert |assert_close", cell.text, re.M)
            shows = asserts or outputs.get(f"{lesson.number}-{place:03}")
            found[row] = "" if cell.kind == "code" and shows else "its cell neither asserts nor shows anything"
    return found


def test_the_lessons_cover_every_row():
    found = {row: why for source in LESSONS for row, why in covered(source).items()}
    assert len(ROWS) == 156
    assert found == dict.fromkeys(ROWS, "")
