"""What pytest sees in notebooks (notebooks/conftest.py): what is compared, what is refused, and cells run again."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

pytestmark = pytest.mark.slow
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def cell(code: str, *outputs: nbformat.NotebookNode, count: int | None = 1, tags: tuple[str, ...] = ()):
    return v4.new_code_cell(code, execution_count=count, outputs=list(outputs), metadata={"tags": list(tags)})


def printed(text: str) -> nbformat.NotebookNode:
    return v4.new_output("stream", name="stdout", text=text)


def shown(html: str) -> nbformat.NotebookNode:
    return v4.new_output("display_data", {"text/html": html, "text/plain": "Figure"})


def show(html: str, **more: str) -> str:
    return f"display({ {'text/html': html, 'text/plain': 'Figure', **more} }, raw=True)"


PIXELS = '<img src="data:image/png;base64,AAAA">1'
DIVIDED = v4.new_output("error", ename="ZeroDivisionError", evalue="division by zero")
UNKNOWN = v4.new_output("stream", name="stderr", text="UsageError: Line magic function `%nosuch` not found.\n")
CELLS = {
    "a fresh output": (True, cell("print(1)", printed("1\n"))),
    "a stale output": (False, cell("print(2)", printed("1\n"))),
    "another measurement": (True, cell("print('took   ⟨98.7 s⟩')", printed("took ⟨1,234 s⟩\n"))),
    "another unit": (False, cell("print('took ⟨98.7 ms⟩')", printed("took ⟨98.7 s⟩\n"))),
    "another version": (True, cell("print('Python ⟨3.13.1⟩')", printed("Python ⟨3.11.7⟩\n"))),
    "another address": (True, cell("print('<x at 0x7f0000000001>')", printed("<x at 0x7f0000000002>\n"))),
    "another temporary file": (True, cell("print('in /tmp/abc/x.py:1')", printed("in /tmp/def/x.py:1\n"))),
    "other pixels": (True, cell(show(PIXELS), shown(PIXELS.replace("AAAA", "BBBB")))),
    "another number in a table": (False, cell(show("<td>1.2</td>"), shown("<td>1.3</td>"))),
    "another alt text": (False, cell(show('<img alt="a">'), shown('<img alt="b">'))),
    "other data of a view": (True, cell(show("x", **{"application/vnd.tinylm.view+json": "1"}), shown("x"))),
    "an exception that stays away": (False, cell("x = 1", tags=("raises-exception",))),
    "an exception that comes": (True, cell("1 / 0", DIVIDED, tags=("raises-exception",))),
    "an unknown magic": (False, cell("%nosuch", UNKNOWN)),
}
ONE = cell("print(1)", printed("1\n"))
PICTURE = v4.new_output("display_data", {"image/png": "AAAA"})
UNSEEN = {
    "never_run": ("a code cell was never run", [ONE, cell("x = 1", count=None)]),
    "without_outputs": ("no cell has an output that could be compared", [cell("x = 1")]),
    "empty": ("no cell has an output that could be compared", []),
    "mostly_ignored": (
        "1 of 2 output cells are not compared",
        [ONE, cell("print(2)", printed("2\n"), tags=("nbval-ignore-output",))],
    ),
    "bare_picture": ("1 of 2 output cells are not compared", [ONE, cell("f", PICTURE)]),
}
GOING_BACK = {
    "a name that a later cell changes": (False, ["x = 1", "y = x + 1", "x = 'one'"]),
    "a name that each section sets again": (True, ["x = 1", "x = 'one'", "z = x + '!'"]),
    "a cell that changes what it reads": (False, ["x = [3]", "x.pop()"]),
    "an exception that must come": (True, ["1 / 0", "x = 1"]),
    "an exception that comes only once": (False, ["seen = []", "assert seen; seen.append(1)", "seen.append(2)"]),
}


def nbval(folder: Path, *arguments: str) -> str:
    """What pytest says in a folder that is configured like ours."""
    for name in ("conftest.py", "sanitize.cfg"):
        shutil.copy(NOTEBOOKS / name, folder / name)
    options = ["-c", NOTEBOOKS.parent / "pyproject.toml", "--rootdir", folder, "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "-rA", "--color=no", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def write(path: Path, cells: list[nbformat.NotebookNode]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=cells), path)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """What strict nbval says of one notebook per hole, of one with a cell per hole, and of some that go back."""
    folder = tmp_path_factory.mktemp("nbval")
    books = {name: cells for name, (_, cells) in UNSEEN.items()} | {"cells": [one for _, one in CELLS.values()]}
    for number, (name, (_, codes)) in enumerate(GOING_BACK.items()):
        raises = ("raises-exception",) if "exception" in name else ()
        cells = [cell(code, tags=raises if code.startswith(("1 / 0", "assert")) else ()) for code in codes]
        books[f"back_{number}"] = [*cells, ONE]
    for name, cells in books.items():
        write(folder / f"{name}.ipynb", cells)
    return nbval(folder, "--nbval", "--going-back", "--continue-on-collection-errors", ".")


@pytest.mark.parametrize("case", CELLS)
def test_nbval_sees_each_cell_as_it_is(report, case):
    passes, place = CELLS[case][0], list(CELLS).index(case)
    assert re.search(rf"{'PASSED' if passes else 'FAILED'} cells\.ipynb::Cell {place}\b", report), report


@pytest.mark.parametrize("name", UNSEEN)
def test_nbval_refuses_a_notebook_in_which_little_is_compared(report, name):
    assert f"{name}.ipynb: {UNSEEN[name][0]}" in report
    assert f"ERROR {name}.ipynb" in report


def test_nbval_prints_what_was_compared_and_what_was_blanked(report):
    assert "cells.ipynb: 13 outputs compared, 0 ignored; 3 numbers blanked" in report
    assert re.search(r"^all: \d+ outputs compared, 0 ignored; 3 numbers blanked$", report, re.M)


@pytest.mark.parametrize("case", GOING_BACK)
def test_each_cell_runs_again_in_the_state_that_the_whole_left(report, case):
    number, passes = list(GOING_BACK).index(case), GOING_BACK[case][0]
    assert f"{'PASSED' if passes else 'FAILED'} back_{number}.ipynb::going back" in report, report


def test_a_cell_that_fails_when_it_runs_again_is_named_with_its_error(report):
    assert 'Cell 1: TypeError: can only concatenate str (not "int") to str\ny = x + 1' in report


def test_the_obvious_commands_need_no_option(tmp_path):
    write(tmp_path / "one.ipynb", [cell("print('took ⟨98.7 s⟩')", printed("took ⟨1,234 s⟩\n"))])
    write(tmp_path / "solutions" / "two.ipynb", [cell("print(2)", printed("2\n"))])
    write(tmp_path / "more" / "three.ipynb", [cell("print(5)", printed("5\n"))])
    write(tmp_path / "stale.ipynb", [cell("print(3)", printed("4\n"))])
    said = nbval(tmp_path, "--nbval", "one.ipynb")
    assert "1 passed" in said and "PASSED one.ipynb::Cell 0" in said
    said = nbval(tmp_path, "--nbval", ".")
    assert "1 failed, 1 passed" in said and "two.ipynb" not in said, "the solutions are collected, too"
    assert "three.ipynb" not in said, "what goes further is collected, too"
    assert "2 passed" in nbval(tmp_path, "--nbval-lax", ".")
    assert "PASSED more/three.ipynb::Cell 0" in nbval(tmp_path, "--nbval", "solutions", "more")
    said = nbval(tmp_path, "--nbval", "--going-back", "solutions")
    assert "1 passed" in said and "PASSED solutions/two.ipynb::Cell 0" in said and "going back" not in said


def test_a_cell_that_does_not_end_is_stopped(tmp_path):
    write(tmp_path / "endless.ipynb", [ONE, cell("while True: pass")])
    said = nbval(tmp_path, "--nbval", "--going-back", "--nbval-cell-timeout=1", ".")
    assert "Timeout of 1 seconds exceeded" in said
    assert "SKIPPED" in said and "did not reach the end" in said
