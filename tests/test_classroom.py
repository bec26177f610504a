"""The old door: what students kept, copied and handed in before the course had a package of its own still works."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import v4

import tinylm_classroom
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_classroom.workshop.parts import read_part
from tinylm_lib import classroom

SAYS = "tinylm_lib.classroom is tinylm_classroom now: write `from tinylm_classroom import {}`"


def test_every_name_of_the_new_door_is_behind_the_old_one() -> None:
    for name in ("check", "figures", "doctor", "OWN_RECIPE"):
        with pytest.warns(FutureWarning, match=SAYS.format(name)):
            assert getattr(classroom, name) is getattr(tinylm_classroom, name)
    with pytest.raises(AttributeError, match="the classroom has no 'gone'"):
        _ = classroom.gone


def test_the_warning_names_the_line_of_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from tinylm_lib.classroom import measured\nprint(measured.__name__)\n", "utf-8")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "measured\n" and SAYS.format("measured") in done.stderr and "mine.py:1" in done.stderr


def test_a_part_that_was_kept_through_the_old_door_is_read(tmp_path: Path) -> None:
    path = tmp_path / "softmax.py"
    path.write_text(
        '"""Your softmax(x, dim) of lesson 03, kept from a notebook."""\n\nimport torch\n'
        "from tinylm_lib.classroom import figures\n\n\n"
        "def softmax(x, dim):\n    e = torch.exp(x - x.amax(dim, keepdim=True))\n"
        "    return e / e.sum(dim, keepdim=True)\n",
        "utf-8",
    )
    with pytest.warns(FutureWarning, match=SAYS.format("figures")):
        assert read_part("softmax", path).status == "done"


@pytest.mark.slow
def test_a_copy_of_an_earlier_lesson_runs(tmp_path: Path) -> None:
    """Lesson 05 solved, as it was before: with the old import, and nothing else changed."""
    lesson = nbformat.read(NOTEBOOKS / "solutions" / "05_attention.ipynb", as_version=4)
    for cell in lesson.cells:
        cell.source = cell.source.replace("from tinylm_classroom import", "from tinylm_lib.classroom import")
    assert sum("from tinylm_lib.classroom import" in cell.source for cell in lesson.cells) > 1
    lesson.cells.append(v4.new_code_cell("check.__module__"))
    options = {"extra_arguments": ["--log-level=ERROR"], "resources": {"metadata": {"path": str(tmp_path)}}}
    NotebookClient(lesson, timeout=120, kernel_name="python3", **options).execute()
    printed = [output for cell in lesson.cells for output in cell.get("outputs", ())]
    assert "tinylm_classroom" in printed[-1].data["text/plain"]
    assert any(output.get("name") == "stderr" and "FutureWarning" in output.text for output in printed)
