"""Starting the processes: for a large class, too."""

import json
import sys
from pathlib import Path

import pytest

from tinylm_classroom.course.grading.launch import Limits, answers, permitted
from tinylm_classroom.course.grading.submissions import submissions

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides files")
def test_the_files_of_a_large_class_are_hidden(tmp_path: Path) -> None:
    """Their paths are longer than the 128 KiB that Linux allows an argument of a command."""
    folder = tmp_path / ("a_long_name_" * 15)
    folder.mkdir()
    hidden = [folder / f"student_{i}.ipynb" for i in range(700)]
    for path in hidden:
        path.write_text("secret")
    assert len(str(hidden)) > 2**17
    (tmp_path / "class").mkdir()
    look = f"import torch\ndef causal_mask(n, text=open({str(hidden[-1])!r}).read()):\n    return text"
    cell = {"cell_type": "code", "source": look}
    (tmp_path / "class" / "ann_05_attention.ipynb").write_text(json.dumps({"cells": [cell]}))
    (one,) = submissions(tmp_path / "class")
    result = answers(one, Limits(seconds=120), hidden)["causal_mask"]["calls"][0]["result"]
    assert result == {"text": "" if "files" in permitted() else "secret"}
