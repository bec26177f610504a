"""Whose a file is, of which lesson, and what is said of files that are not what they should be."""

import json
import os

import pytest

from tinylm_lib.classroom.grading import notebook as reading
from tinylm_lib.classroom.grading.submissions import submissions

MASK = "def causal_mask(n): return n"


def notebook(path, *cells, lesson="05_attention"):
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [{"cell_type": "code", "source": [text]} for text in cells]
    path.write_text(json.dumps({"cells": made, "metadata": {"tinylm": {"lesson": lesson}} if lesson else {}}), "utf-8")
    return path


def found(folder):
    return {(s.student, s.lesson): s for s in submissions(folder)}


@pytest.mark.parametrize(("name", "student"), [
    ("ann.ipynb", "ann"), ("ann_05_attention.ipynb", "ann"), ("05_attention_ann.ipynb", "ann"),
    ("05_attention-ann lee.ipynb", "ann lee"), ("leeann_12345_67890_05_attention.ipynb", "leeann_12345_67890"),
    ("leeann_12345_67890_05_attention-2.ipynb", "leeann_12345_67890"), ("ann/05_attention.ipynb", "ann"),
    ("Ann Lee_4711_assignsubmission_file_/05_attention.ipynb", "Ann Lee_4711"), ("ann/lesson/x.ipynb", "ann"),
    ("ann_05_attention-Copy1.ipynb", "ann"), ("ann_05_attention (1).ipynb", "ann"),
    ("2024_05_ann.ipynb", "2024_05_ann"), ("05_attention.ipynb", "class"), ("a\nb\u202e.ipynb", "a?b?"),
])  # fmt: skip
def test_the_student_is_in_the_name(tmp_path, name, student):
    if os.name == "nt" and not name.isprintable():
        pytest.skip("Windows refuses such names")
    notebook(tmp_path / "class" / name, MASK)
    assert list(found(tmp_path / "class")) == [(student, "05")]


@pytest.mark.parametrize(("name", "cells", "lesson", "expected"), [
    ("x.ipynb", [MASK], "05_attention", "05"), ("x.ipynb", [MASK], None, "05"), ("x.ipynb", [], "05_attention", "05"),
    ("x_05_attention.ipynb", [], None, "05"), ("x_05_attention.ipynb", ["def softmax(x, dim): return x"], None, "03"),
    ("x.ipynb", ["def silu(x): return x"], "99_other", "08"), ("x_09_lesson.ipynb", ["def gelu(x): pass"], None, "08"),
])  # fmt: skip
def test_the_lesson_is_in_the_metadata_the_exercises_or_the_name(tmp_path, name, cells, lesson, expected):
    notebook(tmp_path / name, *cells, lesson=lesson)
    (one,) = submissions(tmp_path)
    assert one.lesson == expected and not one.problem


def test_every_exercise_of_the_lesson_is_there(tmp_path):
    notebook(tmp_path / "x.ipynb", MASK)
    (one,) = submissions(tmp_path)
    assert list(one.attempts) == ["causal_mask", "attention"] and one.attempts["attention"] is None


def test_a_kept_part_counts_where_the_notebook_has_no_attempt(tmp_path):
    notebook(tmp_path / "ann" / "05_attention.ipynb", MASK)
    parts = tmp_path / "ann" / "work" / "parts"
    (parts / "earlier").mkdir(parents=True)
    seal = '"""Kept."""\n\n# tinylm-part: {"exercise": "attention", "function": "mine"}\n\n'
    (parts / "attention.py").write_text(seal + "def mine(q): return q\n")
    (parts / "causal_mask.py").write_text("def causal_mask(n): return 2\n")
    (parts / "softmax.py").write_text("import torch\n\ndef softmax(x, dim): return torch.softmax(x, dim)\n")
    (parts / "linear.py").write_text("x = 1\n")
    (parts / "earlier" / "gelu.py").write_text("def gelu(x): return x\n")
    ours = found(tmp_path)
    assert set(ours) == {("ann", "05"), ("ann", "03"), ("ann", "02")}
    five = ours["ann", "05"]
    assert five.attempts["attention"].text == "def mine(q): return q\n\nattention = mine\n"
    assert "return n" in five.attempts["causal_mask"].text and "causal_mask" not in five.taken
    assert "kept part attention.py" in five.taken["attention"]
    assert "does not define `linear`" in ours["ann", "02"].attempts["linear"].problem
    assert ours["ann", "03"].attempts["softmax"] and ours["ann", "03"].attempts["cross_entropy"] is None


def test_of_two_notebooks_of_a_lesson_each_exercise_comes_from_the_first_with_an_attempt(tmp_path):
    notebook(tmp_path / "ann" / "05_attention.ipynb", MASK)
    notebook(
        tmp_path / "ann" / "05_attention-Copy1.ipynb", "def causal_mask(n): return 2", "def attention(q): return q"
    )
    (one,) = submissions(tmp_path)
    assert "return n" in one.attempts["causal_mask"].text and one.taken["causal_mask"] == "from 05_attention.ipynb"
    assert one.taken["attention"] == "from 05_attention-Copy1.ipynb"


BAD = {
    "empty": (b"", "it is empty"), "text": (b"hello", "it is not JSON"), "cut": (b'{"cells": [', "it is not JSON"),
    "binary": (b"\xff\x00PK", "it is not JSON"), "list": (b"[1]", "no list of cells"),
    "cells": (b'{"cells": {"a": 1}}', "no list of cells"), "inside": (b'{"cells": [1]}', "no list of cells"),
    "deep": (b"[" * 100_000, "it cannot be read"),
    "other": (b'{"cells": [{"cell_type": "code", "source": "x = 1"}]}', "the notebook of another course?"),
    "long": (json.dumps({"cells": [{"cell_type": "code", "source": "#" * 200_001}]}).encode(), "200,001 characters"),
    "many": (json.dumps({"cells": [{"cell_type": "code", "source": "x\n" * 2_001}]}).encode(), "2,001 statements"),
    "odd": (b'{"cells": [{"cell_type": "code", "source": 3}, {"source": null}], "metadata": 4}', "of another course?"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_notebook_of_ours_is_one_line(tmp_path, name):
    (tmp_path / "bad.ipynb").write_bytes(BAD[name][0])
    notebook(tmp_path / "good.ipynb", MASK)
    bad, good = submissions(tmp_path)
    assert BAD[name][1] in bad.problem and "\n" not in bad.problem and not bad.attempts
    assert good.attempts["causal_mask"]


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "NOTEBOOK_BYTES", 2**20)
    path = notebook(tmp_path / "big.ipynb", MASK)
    path.write_bytes(path.read_bytes() + b" " * 2**21)
    assert "it has 2 MB, more than 1" in submissions(tmp_path)[0].problem


@pytest.mark.skipif(os.name == "nt", reason="Windows makes links and pipes for administrators only")
def test_what_leads_out_of_the_folder_is_not_followed(tmp_path):
    outside = notebook(tmp_path / "secret" / "x.ipynb", MASK)
    notebook(tmp_path / "class" / "good.ipynb", MASK)
    (tmp_path / "class" / "linked.ipynb").symlink_to(outside)
    (tmp_path / "class" / "copied.ipynb").symlink_to("good.ipynb")
    (tmp_path / "class" / "folder").symlink_to(outside.parent)
    (tmp_path / "class" / "loop").symlink_to(tmp_path / "class")
    os.mkfifo(tmp_path / "class" / "pipe.ipynb")
    ours = {s.student: s.problem for s in submissions(tmp_path / "class")}
    assert set(ours) == {"good", "linked", "copied", "folder", "loop", "pipe"} and not ours["good"]
    assert "linked.ipynb: a link, which" in ours["linked"] and "a link to a folder" in ours["folder"]
    assert "copied.ipynb: a link, which" in ours["copied"], "another student's work is not one's own"
    assert "not a regular file" in ours["pipe"]


def test_students_of_one_name_are_two_and_a_file_s_problem_is_its_own(tmp_path):
    for number in (11, 12):
        notebook(tmp_path / f"Li Wei_{number}_assignsubmission_file_" / "05_attention.ipynb", MASK)
        notebook(tmp_path / "ann" / f"{number}.ipynb").write_bytes(b"")
    first, second, *anns = submissions(tmp_path)
    assert (first.student, second.student) == ("Li Wei_11", "Li Wei_12")
    assert len({ann.digest for ann in anns}) == 2, "the results of one would be those of the other"


def test_a_kept_part_that_nobody_can_read_costs_its_exercise_only(tmp_path):
    notebook(tmp_path / "ann" / "05_attention.ipynb", MASK)
    (tmp_path / "ann" / "parts").mkdir()
    (tmp_path / "ann" / "parts" / "attention.py").write_text("!ls\n" * 600 + "def attention(q): return q\n")
    (one,) = submissions(tmp_path)
    assert one.attempts["causal_mask"] and one.attempts["attention"].problem


@pytest.mark.parametrize(("name", "says"), [("nothing", "is not a folder"), (".", "holds no notebooks")])
def test_a_folder_without_notebooks_is_said(tmp_path, name, says):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    notebook(tmp_path / ".ipynb_checkpoints" / "x.ipynb", MASK)
    with pytest.raises(FileNotFoundError, match=says):
        submissions(tmp_path / name)
