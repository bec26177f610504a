"""One percent-format source becomes two notebooks, the student's and the solution's; see `grammar`."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
from nbformat import NotebookNode, v4

from .claims import claim_problems, linked
from .grammar import Cell, essential, grammar_problems, solved, stub
from .plans import Part, parts, plan_table, title_problems

FILE_NAME = re.compile(r"(\d\d)_([a-z]+)\.py")
HEADER = re.compile(r"# %%(?= |$)")


@dataclass(frozen=True)
class Lesson:
    """A checked lesson: its name `NN_topic`, its number `NN`, its cells in order and what of them is taught when."""

    name: str
    number: str
    cells: tuple[Cell, ...]
    taught: tuple[Part, ...]


def read_lesson(path: Path) -> Lesson:
    """One lesson source, read and checked.

    Raises: ValueError with one line per problem: file, line, what is wrong and how to fix it.
    """
    named = FILE_NAME.fullmatch(path.name)
    if not named:
        says = "rename it to NN_topic.py, two digits and one lower-case word: 05_attention.py"
        raise ValueError(f"{path.name}:1: {says}")
    cells = read_cells(path)
    found, taught = grammar_problems(cells, *named.groups()), []
    if not found:
        taught = parts(cells)
        found = sorted([*title_problems(cells[0].text, taught), *claim_problems(cells)])
    if found:
        raise ValueError("\n".join(f"{path.name}:{line}: {text}" for line, text in found))
    return Lesson(path.stem, named[1], cells, tuple(taught))


def to_notebook(lesson: Lesson, role: str) -> NotebookNode:
    """The lesson for the role `student` or `solution`, not yet executed; a cell's id is its position in the source.

    In the solution's the plans for the presenter follow the title.
    """
    left_out = {"solution", "note"} if role == "student" else set()
    make = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    cells = [
        make[cell.kind](_text(cell, role), id=f"{lesson.number}-{place:03}", metadata=_metadata(cell) | graded)
        for place, (cell, graded) in enumerate(_graded(linked(lesson.cells), role))
        if not left_out & set(cell.tags)
    ]
    if role == "solution":
        note = {"tags": ["note"], "slideshow": {"slide_type": "notes"}}
        cells.insert(1, v4.new_markdown_cell(plan_table(lesson.taught), id=f"{lesson.number}-plan", metadata=note))
    return v4.new_notebook(cells=cells)


def read_cells(path: Path) -> tuple[Cell, ...]:
    """The cells of a source, not yet checked."""
    text = path.read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if HEADER.match(line)]
    nodes = jupytext.reads(text, fmt="py:percent").cells
    if not nodes or len(lines) != len(nodes):
        says = "begin with a `# %%` header, and let no string hold a line that looks like one"
        raise ValueError(f"{path.name}:1: {says}")
    for node in nodes:
        node.metadata.pop("lines_to_next_cell", None)  # jupytext's own note
    both = zip(lines, nodes, strict=True)
    return tuple(Cell(line, node.cell_type, node.source, dict(node.metadata)) for line, node in both)


def _text(cell: Cell, role: str) -> str:
    if "exercise" not in cell.tags:
        return solved(cell.text) if cell.kind == "code" else cell.text
    headline = "# Exercise {name}: difficulty {difficulty} of 5, about {minutes} minutes\n".format(**cell.meta)
    return headline + (stub(cell.text) if role == "student" else solved(cell.text))


def _graded(cells: Iterable[Cell], role: str) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Each cell with what nbgrader reads in a student's copy: where the answer is, and which check earns its points."""
    name, points = "", 0
    for cell in cells:
        kind: dict[str, Any] = {}
        if "exercise" in cell.tags:
            name, points = cell.meta["name"], cell.meta["difficulty"]
            kind = {"grade_id": name, "solution": True, "grade": False, "locked": False}
        elif "check" in cell.tags and f'check("{name}"' in cell.text:
            kind = {"grade_id": f"check-{name}", "solution": False, "grade": True, "locked": True, "points": points}
        yield cell, {"nbgrader": {"schema_version": 3, "task": False, **kind}} if kind and role == "student" else {}


def _metadata(cell: Cell) -> dict[str, Any]:
    slide = "notes" if "note" in cell.tags or cell.meta.get("slide") == "say" else cell.meta.get("slide")
    facts = {key: cell.meta[key] for key in ("name", "difficulty", "minutes", "plan", "rows") if key in cell.meta}
    parts = {
        "tags": cell.tags,
        "slideshow": slide and {"slide_type": slide},
        "jupyter": "source-hidden" in cell.tags and {"source_hidden": True},
        "tinylm": facts | ({"essential": lines} if (lines := essential(cell.text)) else {}),
    }
    return {key: value for key, value in parts.items() if value}
