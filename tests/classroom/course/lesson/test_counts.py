"""What a lesson asks of a reader is counted, and a lesson outside its limits is named."""

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course.lesson.counts import LIMITS, copies, counts, excesses, table_of
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_classroom.views.base import MIME


def code(source: str, *shown: dict, folded: bool = False, tags: tuple[str, ...] = ()) -> NotebookNode:
    outputs = [v4.new_output("display_data", data=data) for data in shown]
    meta = {"tags": list(tags), **({"jupyter": {"source_hidden": True}} if folded else {})}
    return v4.new_code_cell(source, outputs=outputs, metadata=meta)


FIGURE = {"text/html": "<figure><img></figure>"}
ASKED = {"question": "How many?", "because": "Three.", "key": "3", "feedback": [["4", "One too many."]]}


def lesson() -> NotebookNode:
    view = {MIME: {"module": "attention", "data": {}}, "text/html": "<figure></figure>"}
    vote = {MIME: {"module": "predict", "data": ASKED}, "text/html": "<div></div>"}
    cells = [
        v4.new_markdown_cell("# 05 Halves\n*Teaches* in about 9 minutes."),
        code("import math\n\nx = 1"),
        code("draw(x)", FIGURE, folded=True),
        code("predict()", vote, folded=True),
        v4.new_markdown_cell("## 1. One\nThis does not show why. Perhaps it is so."),
        code("attention_view()", view),
        code("def half(): ...\n    raise NotImplementedError", tags=("exercise",)),
        code("check('half')", tags=("check",)),
        code("draw(2)", FIGURE),
        code("word = 'a'  # try 'b'\nassert x\nassert word"),
        v4.new_markdown_cell("The end."),
        code("# Checked: it.\nassert x", folded=True),
    ]
    return v4.new_notebook(cells=cells)


def test_everything_is_counted_once() -> None:
    found = counts(lesson())
    assert {name: found[name] for name in LIMITS if name != "kilobytes"} == {
        "cells": 12,
        "words": 7 + 11 + 2,
        "words of a prediction": 8,
        "visible lines": 2 + 1 + 1 + 1 + 3,
        "longest visible line": 21,
        "folded lines": 1 + 1 + 2,
        "minutes": 9,
        "exercises": 1,
        "visible lines before a picture": 2,
        "folded lines before a picture": 1,
        "cells before something to do": 3,
        "cells in a row without": 3,
        "percent of other tasks": 75,
        "visible asserts": 2,
        "caveats of a section": 2,
        "pictures": 1,
        "views": 1,
        "predictions": 1,
    }


def test_a_count_outside_its_limits_is_named_with_them() -> None:
    found = counts(lesson())
    wrong = excesses(found, "05")
    assert "pictures: 1, at least 4 and at most 6" in wrong and len(wrong) == 3
    assert "cells: 80, at least 0 and at most 70" in excesses(found | {"cells": 80}, "00")
    assert not any("cells: 80" in text for text in excesses(found | {"cells": 80}, "05"))


def test_the_table_has_a_column_for_each_lesson_and_marks_what_is_outside(tmp_path) -> None:
    nbformat.write(lesson(), tmp_path / "05_halves.ipynb")
    nbformat.write(v4.new_notebook(cells=[v4.new_markdown_cell("# 06 Empty")]), tmp_path / "06_empty.ipynb")
    lines = table_of(tmp_path).splitlines()
    assert lines[0].split() == ["limit", "05", "06"] and len(lines) == len(LIMITS) + 1
    row = next(line for line in lines if line.startswith("visible asserts"))
    assert row.split()[-2:] == ["2", "0"] and "!" in next(line for line in lines if line.startswith("pictures"))


@pytest.mark.parametrize(("name", "notebook"), copies(NOTEBOOKS).items())
def test_each_lesson_keeps_its_limits(name: str, notebook: NotebookNode) -> None:
    assert excesses(counts(notebook), name[:2]) == [], table_of(NOTEBOOKS)
