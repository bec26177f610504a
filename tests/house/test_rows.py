"""Everything that the five published documents describe has its place in a lesson, with an assertion or an output."""

import re
from pathlib import Path

import nbformat

from tinylm_classroom.course.lesson.read import read_lesson

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
# The public documents that the course grew from and the number of their rows: each piece of code, formula, number,
# picture or explanation in them is one. A cell that covers a row names it in its header: rows=["S0-13"].
DOCUMENTS = {
    "S0": 43,  # notes in the style of Stanford's CS336 on a Transformer's parts, one by one
    "S1": 27,  # a lecture of CS190C that builds a language model from them
    "S2": 19,  # a notebook on a small GPT, complete
    "S3": 5,  # S0 once more, with more explanation: its additions
    "S4": 62,  # TinyTransformerLM, a model put together and inspected
}
ROWS = {f"{document}-{i}" for document, n in DOCUMENTS.items() for i in range(1, n + 1)}


def covered(source: Path) -> dict[str, str]:
    """The rows of a lesson's code cells, each with why it does not count, or an empty text."""
    folder = NOTEBOOKS / source.parent.relative_to(NOTEBOOKS / "source")  # that of lessons, or of what goes further
    built = nbformat.read(folder / f"{source.stem}.ipynb", as_version=4)
    outputs = {cell.id: cell.get("outputs") for cell in built.cells}
    lesson, found = read_lesson(source), {}
    for place, cell in enumerate(lesson.cells):
        for row in cell.meta.get("rows", ()):
            asserts = re.search(r"^\s*assert |assert_close", cell.text, re.M)
            shows = asserts or outputs.get(f"{lesson.number}-{place:03}")
            found[row] = "" if cell.kind == "code" and shows else "its cell neither asserts nor shows anything"
    return found


def test_every_row_is_covered_by_a_lesson():
    lessons = {path.stem: covered(path) for path in sorted((NOTEBOOKS / "source").rglob("*.py"))}
    assert {name: why for name, found in lessons.items() if (why := {row: w for row, w in found.items() if w})} == {}
    assert set().union(*lessons.values()) == ROWS and len(ROWS) == 156
