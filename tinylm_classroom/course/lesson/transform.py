"""Third step: the cells of a lesson become the student's notebook and the solution's, not yet
executed.

`[[heads-removed]]` becomes a link to the section of that evidence, and nothing in that section
itself. Marks in a row share one pair of parentheses and name a section once. A prediction is in
ROT13: GitHub, Colab and editors fold no cell, and its answer would stand above the question.
"""

import ast
import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any
from urllib.parse import quote

from nbformat import NotebookNode, v4

from .plans import parts, plan_table
from .read import EVIDENCE_MARK, Cell, Lesson, essential, last_heading, solved, stub

MARKS_IN_A_ROW = re.compile(rf"(?:{EVIDENCE_MARK.pattern})+")
PLAIN = "?,:&!()'"
IN_ROT13 = '''
# A question: run this cell. It is in ROT13, because it also holds the answer.
import codecs

rot13 = r"""{}"""
eval(codecs.decode(rot13, "rot13"))
'''


def to_notebook(lesson: Lesson, role: str) -> NotebookNode:
    """The lesson for the role `student` or `solution`, not yet executed; a cell's id is its
    position in the source.

    In the solution's the plan for the presenter follows the title.
    """
    left_out = {"solution", "note"} if role == "student" else set()
    make = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    cells = [
        make[cell.kind](
            _text(cell, role), id=f"{lesson.number}-{place:03}", metadata=_metadata(cell) | graded
        )
        for place, (cell, graded) in enumerate(_graded(linked(lesson.cells), role))
        if not left_out & set(cell.tags)
    ]
    if role == "solution":
        note = {"tags": ["note"], "slideshow": {"slide_type": "notes"}}
        table = plan_table(parts(lesson.cells))
        cells.insert(1, v4.new_markdown_cell(table, id=f"{lesson.number}-plan", metadata=note))
    return v4.new_notebook(cells=cells)


def linked(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, their marks replaced by links to the sections that hold the evidence.

    JupyterLab compares a link with a heading as it is written, so few signs are escaped.
    """
    # the section before each cell, and that after the last
    ends = list(accumulate(cells, _section, initial=""))
    places = {
        cell.meta["evidence"]: end
        for cell, end in zip(cells, ends, strict=False)
        if "evidence" in cell.meta
    }

    def link(section: str) -> str:
        number = re.match(r"(\d+)\. ", section)
        shown = f"section {number[1]}" if number else section
        return f"[{shown}](#{quote(section.replace(' ', '-'), safe=PLAIN)})"

    def links(marks: re.Match[str], before: str) -> str:
        here = last_heading(marks.string[: marks.start()], before)
        elsewhere = dict.fromkeys(
            places[name] for name in EVIDENCE_MARK.findall(marks[0]) if places[name] != here
        )
        return f" ({', '.join(map(link, elsewhere))})" if elsewhere else ""

    def text(cell: Cell, before: str) -> str:
        return (
            MARKS_IN_A_ROW.sub(partial(links, before=before), cell.text)
            if cell.kind == "markdown"
            else cell.text
        )

    return [
        replace(cell, text=text(cell, before)) for cell, before in zip(cells, ends, strict=False)
    ]


def _section(before: str, cell: Cell) -> str:
    """The section that a cell ends in."""
    return last_heading(cell.text, before) if cell.kind == "markdown" else before


def _text(cell: Cell, role: str) -> str:
    if "exercise" not in cell.tags:
        return _covered(solved(cell.text)) if cell.kind == "code" else cell.text
    headline = (
        "# Exercise {name}: difficulty {difficulty} of 5, about {minutes} minutes\n"
    ).format(**cell.meta)
    return headline + (stub(cell.text) if role == "student" else solved(cell.text))


def _covered(code: str) -> str:
    """The code of a cell; if it ends with a prediction, that is in ROT13."""
    last = next(reversed(ast.parse(code).body), None)
    value = getattr(last, "value", None)
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "predict":
        return code
    lines = code.split("\n")
    asked = codecs.encode("\n".join(lines[last.lineno - 1 :]), "rot13")
    return "\n".join([*lines[: last.lineno - 1], IN_ROT13.strip().format(asked)]).lstrip()


def _graded(cells: Iterable[Cell], role: str) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """Each cell with what nbgrader reads in a student's copy: where the answer is, and which check
    earns its points.
    """
    name = ""
    points = 0
    for cell in cells:
        kind: dict[str, Any] = {}
        if "exercise" in cell.tags:
            name = cell.meta["name"]
            points = cell.meta["difficulty"]
            kind = {"grade_id": name, "solution": True, "grade": False, "locked": False}
        elif "check" in cell.tags and f'check("{name}"' in cell.text:
            kind = {
                "grade_id": f"check-{name}",
                "solution": False,
                "grade": True,
                "locked": True,
                "points": points,
            }
        yield (
            cell,
            {"nbgrader": {"schema_version": 3, "task": False, **kind}}
            if kind and role == "student"
            else {},
        )


def _metadata(cell: Cell) -> dict[str, Any]:
    slide = "notes" if "note" in cell.tags else cell.meta.get("slide")
    facts = {
        key: cell.meta[key]
        for key in ("name", "difficulty", "minutes", "rows", "deck")
        if key in cell.meta
    }
    parts = {
        "tags": cell.tags,
        "slideshow": slide and {"slide_type": slide},
        "jupyter": "source-hidden" in cell.tags and {"source_hidden": True},
        "cellView": "source-hidden" in cell.tags and "form",  # the same in Colab
        "tinylm": facts | ({"essential": lines} if (lines := essential(cell.text)) else {}),
    }
    return {key: value for key, value in parts.items() if value}
