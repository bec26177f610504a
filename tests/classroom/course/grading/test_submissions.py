"""Whose a file is, and of which lesson; nobody who handed something in is missing."""

import json
import os

import pytest

from tinylm_classroom.course.grading import notebook as reading
from tinylm_classroom.course.grading.notebook import given_cells
from tinylm_classroom.course.grading.submissions import left_out, submissions

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
    ("2024_05_ann.ipynb", "2024_05_ann"), ("05_attention.ipynb", "class"), ("ann/05_attention.ipynb.json", "ann"),
    ("ann_05_attention.ipynb.txt", "ann"), ("ANN_05_ATTENTION (1).IPYNB", "ANN"), ("ann.ipynb (1).download", "ann"),
    ("ann/answers.json", "ann"), ("ann_05_attention.txt", "ann"), ("Jose\u0301.ipynb", "Jos\u00e9"),
    ("a\nb\u202e.ipynb", "a?b?"),
])  # fmt: skip
def test_the_student_is_in_the_name(tmp_path, name, student):
    if os.name == "nt" and not name.isprintable():
        pytest.skip("Windows refuses such names")
    notebook(tmp_path / "class" / name, MASK)
    assert list(found(tmp_path / "class")) == [(student, "05")]


@pytest.mark.parametrize(("name", "cells", "lesson", "expected"), [
    ("x.ipynb", [MASK], "05_attention", "05"), ("x.ipynb", [MASK], None, "05"), ("x.ipynb", [], "05_attention", "05"),
    ("x_05_attention.ipynb", [], None, "05"), ("x_05_attention.ipynb", ["def softmax(x, dim): return x"], None, "03"),
    ("x.ipynb", ["def silu(x): return x"], "99_other", "08"),
    ("x_09_lesson.ipynb", ["def swiglu(x): pass"], None, "08"),
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
    (parts / "earlier" / "silu.py").write_text("def silu(x): return x\n")
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
    "binary": (b"\xff\x00PK", "it is not JSON"),
    "merged": (b'{\n"cells": [\n<<<<<<< HEAD\n]}', "the conflict markers of a merge, the first in line 3"),
    "merged at the end": (b'{"cells": []\n>>>>>>> theirs\n}', "conflict markers of a merge, the first in line 2"),
    "old": (b'{"worksheets": [{"cells": []}], "nbformat": 3}', "the old format 3, and format 4 is needed"),
    "older": (b'{"worksheets": [], "nbformat": 2}', "the old format 2"), "pdf": (b"%PDF-1.4", "a PDF file"),
    "zip": (b"PK\x03\x04\x00", "a ZIP archive: unpack it"), "page": (b"\n<!DOCTYPE html>", "a web page"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "wide": ('{"cells": []}'.encode("utf-16"), "text in UTF-16"),
    "list": (b"[1]", "no list of cells"),
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


def test_a_notebook_that_cannot_be_read_counts_for_each_exercise_of_its_lesson(tmp_path):
    notebook(tmp_path / "ann" / "05_attention.ipynb").write_bytes(b"{")
    notebook(tmp_path / "bob" / "05_attention.ipynb", MASK)
    notebook(tmp_path / "bob" / "05_attention (1).ipynb").write_bytes(b"{")
    ann, bob = submissions(tmp_path)
    assert [("05_attention.ipynb: it cannot" in one.problem) for one in ann.attempts.values()] == [True, True]
    assert not bob.attempts["causal_mask"].problem
    assert "05_attention (1).ipynb: it cannot" in bob.attempts["attention"].problem, "it may be there"


def test_every_folder_is_a_student_and_what_is_there_is_said(tmp_path):
    notebook(tmp_path / "ann" / "05_attention.ipynb", MASK)
    for name in ("ben", "cho", "dee", "Eve_1_assignsubmission_onlinetext_"):
        (tmp_path / name).mkdir()
    (tmp_path / "cho" / "report.pdf").touch()
    for i in range(5):
        (tmp_path / "dee" / f"{i}.png").touch()
    notebook(tmp_path / "Eve_1_assignsubmission_file_" / "x.ipynb", MASK)
    (tmp_path / "fay_05_attention.pdf").touch()
    (tmp_path / "marks.xlsx").touch()
    said = {s.student: s.problem for s in submissions(tmp_path)}
    assert said == {
        "ann": "", "ben": "no notebook: the folder is empty", "cho": "no notebook: found report.pdf",
        "dee": "no notebook: found 0.png, 1.png, 2.png and 2 more", "Eve_1": "",
        "fay": "no notebook: found fay_05_attention.pdf",
    }  # fmt: skip
    assert left_out(tmp_path) == ["marks.xlsx"], "it may be the teacher's"


@pytest.mark.parametrize("name", [
    "__MACOSX/ann/._05_attention.ipynb", "ann/._05_attention.ipynb", "._ann.ipynb", ".DS_Store", "Thumbs.db",
    "ann/.~05_attention.ipynb", "ann/.ipynb_checkpoints/05_attention-checkpoint.ipynb", "@eaDir/ann.ipynb",
])  # fmt: skip
def test_files_of_the_system_are_nobody_s(tmp_path, name):
    notebook(tmp_path / "ann" / "05_attention.ipynb", MASK)
    notebook(tmp_path / name).write_bytes(b"\x00\x05\x16\x07")
    assert [(s.student, s.lesson) for s in submissions(tmp_path)] == [("ann", "05")]
    assert left_out(tmp_path) == []


def test_each_lesson_of_which_a_notebook_holds_an_attempt_is_graded(tmp_path):
    cells = [
        MASK,
        "def silu(z): return z",
        "def softmax(x): return x",
        "def swiglu(x, w_gate, w_up, w_down): raise NotImplementedError",
    ]
    notebook(tmp_path / "ann.ipynb", *cells)
    ours = found(tmp_path)
    assert set(ours) == {("ann", "05"), ("ann", "08")}, "softmax takes two arguments, so this one is a helper"
    eight = ours["ann", "08"]
    assert eight.attempts["silu"] and eight.attempts["swiglu"] is None and eight.taken == {"silu": "from ann.ipynb"}


def test_an_answer_of_another_lesson_that_was_checked_counts_and_its_own_notebook_comes_first(tmp_path):
    notebook(tmp_path / "ann" / "all.ipynb", MASK, "def mine(*x): return x", "check('softmax', mine)")
    notebook(tmp_path / "bob" / "a.ipynb", MASK, "def softmax(x, dim): return 1")
    notebook(tmp_path / "bob" / "b.ipynb", "def softmax(x, dim): return 2", lesson="03_softmax")
    ours = found(tmp_path)
    assert ours["ann", "03"].attempts["softmax"].text.endswith("softmax = mine\n")
    assert "return 2" in ours["bob", "03"].attempts["softmax"].text


@pytest.mark.parametrize("lesson", ["02_linear", "20_yours"])
def test_what_a_lesson_gives_to_everybody_is_nobody_s_attempt(tmp_path, lesson):
    """02 gives a wrong function to the diagnosis of `linear`, and 20 defines `linear` by itself."""
    given = sorted(given_cells(lesson[:2]))
    assert given
    notebook(tmp_path / "ann.ipynb", *given, lesson=lesson)
    (one,) = submissions(tmp_path)
    assert not any(one.attempts.values())
    assert one.lesson == lesson[:2]


def test_the_version_is_noted_where_it_is_another_one(tmp_path):
    for name, version in (("ann", "3.99.1"), ("bob", reading.GRADER_PYTHON), ("cem", None), ("dan", "x" * 99)):
        path = notebook(tmp_path / f"{name}.ipynb", MASK)
        data = json.loads(path.read_text())
        data["metadata"]["language_info"] = {"version": version}
        path.write_text(json.dumps(data))
    assert [s.attempts["causal_mask"].python for s in submissions(tmp_path)] == ["3.99.1", "", "", ""]


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
