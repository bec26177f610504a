"""Everything that the five published documents describe has its place in a lesson, with an assertion or an output."""

import re
from pathlib import Path

import nbformat
import pytest

from tinylm_lib.classroom.course.source import read_lesson

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
DOCUMENTS = {"S0": 43, "S3": 5, "S1": 27, "S2": 19, "S4": 62}
ROWS = [f"{document}-{i}" for document, n in DOCUMENTS.items() for i in range(1, n + 1)]
PLAN = {
    "00": "S0-1 S0-2 S0-3 S1-1 S2-1 S4-1",
    "01": "S1-4 S4-25",
    "02": "S0-5 S0-6 S0-7 S0-8 S0-9 S0-10 S0-11 S0-12 S1-3 S1-5 S1-6",
    "03": "S0-13 S0-14 S0-15 S1-11 S1-12 S1-13 S2-14 S4-22 S4-26",
    "04": "S0-16 S0-17 S0-18 S1-7 S1-8",
    "05": "S0-19 S0-20 S0-21 S0-22 S0-23 S3-1 S1-19 S1-20 S4-23 S4-46",
    "06": "S0-24 S0-25 S0-26 S0-27 S3-2 S1-14 S1-15 S1-16 S4-6 S4-49",
    "07": "S0-33 S0-34 S0-35 S3-3 S3-4 S3-5 S1-21 S1-22 S1-23 S2-4",
    "08": "S0-28 S0-29 S0-30 S0-31 S0-32 S1-9 S1-10 S1-17 S1-18 S2-5 S4-45",
    "09": "S0-36 S0-37 S0-38 S1-24 S2-6 S4-7 S4-43",
    "10": "S0-4 S0-39 S0-40 S0-41 S0-42 S0-43 S1-2 S1-25 S1-26 S1-27 S2-2 S2-3 S2-7 S2-8 S2-9 S2-10 S2-12 S2-18 S4-2 "
    "S4-3 S4-8 S4-9 S4-10 S4-11 S4-12 S4-13 S4-14 S4-15 S4-16 S4-17 S4-18 S4-19 S4-20 S4-27 S4-28 S4-29 S4-30 S4-31 "
    "S4-32 S4-33 S4-34 S4-42 S4-44 S4-47 S4-57 S4-62 S2-17 S4-5 S4-35 S4-36 S4-37",
    "11": "S2-13 S2-15 S2-16 S2-19 S4-21 S4-24 S4-50 S4-52 S4-54 S4-55 S4-56 S4-58",
    "12": "S2-11 S4-38 S4-39 S4-40 S4-41",
    "13": "S4-48",
    "14": "S4-51 S4-53 S4-61",
    "15": "S4-4 S4-59 S4-60",
}
WRITTEN = {path.name[:2]: path for path in sorted((NOTEBOOKS / "source").glob("*.py"))}


def covered(source: Path) -> dict[str, str]:
    """The rows of a lesson's code cells, each with why it does not count, or an empty text."""
    built = nbformat.read(NOTEBOOKS / f"{source.stem}.ipynb", as_version=4)
    outputs = {cell.id: cell.get("outputs") for cell in built.cells}
    lesson, found = read_lesson(source), {}
    for place, cell in enumerate(lesson.cells):
        for row in cell.meta.get("rows", ()):
            shows = outputs.get(f"{lesson.number}-{place:03}") or re.search(
                r"^\s*assert |assert_close", cell.text, re.M
            )
            found[row] = "" if cell.kind == "code" and shows else "its cell neither asserts nor shows anything"
    return found


def test_every_row_has_one_lesson():
    planned = [row for rows in PLAN.values() for row in rows.split()]
    assert sorted(planned) == sorted(ROWS) and len(ROWS) == 156


@pytest.mark.parametrize("number", WRITTEN)
def test_a_written_lesson_covers_its_rows(number):
    found, wanted = covered(WRITTEN[number]), PLAN[number].split()
    assert [row for row in wanted if row not in found] == []
    assert {row: why for row, why in found.items() if why} == {}
    assert [row for row in found if row not in ROWS] == []
