"""What each lesson has: a picture to remember, traced shapes, imports needed at once."""

import ast
import re
from pathlib import Path

import pytest

from tinylm_classroom.course.lesson.read import Cell, read_lesson
from tinylm_classroom.folders import NOTEBOOKS

SOURCES = sorted(NOTEBOOKS.glob("source/*.py"))
TRACES = {"trace", "trace_model"}
# A lesson whose experiment is a run that one can stop, change and start again: its training view is the control.


def called(cells: list[Cell]) -> set[str]:
    """The names of the functions that the code of a lesson calls."""
    trees = [ast.parse(cell.text) for cell in cells if cell.kind == "code"]
    calls = [node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {func.id for func in calls if isinstance(func, ast.Name)}


def not_needed_yet(cells: list[Cell]) -> list[str]:
    """What the first cell imports and nothing before the second section uses."""
    sections = [i for i, cell in enumerate(cells) if cell.kind == "markdown" and re.search(r"^## ", cell.text, re.M)]
    code = [cell.text for cell in cells[: sections[1]] if cell.kind == "code"]
    imports = [node for node in ast.parse(code[0]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.asname or alias.name.split(".")[0] for node in imports for alias in node.names]
    used = {n.id for text in code for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    return [name for name in names if name not in used]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_each_lesson_has_its_picture_its_traces_and_its_control(source: Path) -> None:
    lesson = read_lesson(source)
    assert sum("signature" in cell.tags for cell in lesson.cells) == 1
    assert called(lesson.cells) & TRACES
    assert not_needed_yet(lesson.cells) == []


def test_an_import_that_only_a_later_section_uses_is_found() -> None:
    texts = [
        "import math, torch\nfrom a import b as c, d",
        "## 1. A\nWords.",
        "torch.ones(c)",
        "## 2. B",
        "math.pi + d",
    ]
    cells = [Cell(1, "markdown" if text.startswith("##") else "code", text, {}) for text in texts]
    assert not_needed_yet(cells) == ["math", "d"]
    assert called(cells) == set() and called([Cell(1, "code", "trace(f, x)\na.b(c())", {})]) == {"trace", "c"}
