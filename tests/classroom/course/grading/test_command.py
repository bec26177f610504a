"""The command grades a class that was made as it was planted, continues where it stopped, and refuses in one line."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.submissions import make_submissions, write_notebook

from tinylm_classroom.checks.verdict import diagnose
from tinylm_classroom.course.grading import command
from tinylm_classroom.course.grading.pages import LOOKS
from tinylm_lib.__main__ import main

MASK = "import torch\ndef causal_mask(n):\n    return torch.ones(n, n).bool().tril()"


def grade(*arguments: object) -> int:
    """The exit status of the command."""
    try:
        return main(["grade", *map(str, arguments)])
    except SystemExit as end:
        return end.code


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """The folder of a class of one."""
    write_notebook(tmp_path / "class" / "ann", "05", {"causal_mask": MASK})
    return tmp_path / "class"


def test_a_class_is_graded_and_what_is_done_is_kept(one, capsys):
    assert grade(one) == 0
    shown = capsys.readouterr()
    assert "1/1 of 2" in shown.out and "1/1 ann 05" in shown.err and "already" not in shown.err
    to = one.with_name("class_graded")
    tables = {"marks.csv", "marks_table.csv", "marks.json"}
    assert {p.name for p in to.iterdir()} == {"class.html", "results.jsonl", "students"} | tables
    assert os.name != "posix" or to.stat().st_mode & 0o77 == 0, "marks are nobody else's business"
    assert grade(one) == 0
    again = capsys.readouterr()
    assert "1 of them are graded already" in again.err and again.out == shown.out


def test_an_interrupted_command_says_that_what_is_finished_is_kept(one, capsys, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(command, "grade", stopped)
    assert grade(one) == 130
    assert "the same command continues" in capsys.readouterr().err


def test_only_the_lessons_asked_for(one, capsys):
    write_notebook(one / "ann", "06", {})
    assert grade(one, "--lessons", "06") == 0
    assert [m["lesson"] for m in json.loads((one.with_name("class_graded") / "marks.json").read_text())] == ["06", "06"]
    assert grade(one, "--lessons", "07") == 2
    assert "holds nothing of lesson 07" in capsys.readouterr().err


REFUSED = {
    "no folder": (["{0}/nowhere"], "nowhere is not a folder"),
    "a file": (["{0}/ann/05_attention.ipynb"], "is not a folder"),
    "no notebooks": (["{0}/../empty"], "holds no notebooks"),
    "a target inside": (["{0}", "--to", "{0}/ann/marks"], "is among the submissions"),
    "the target itself": (["{0}", "--to", "{0}"], "is among the submissions"),
    "a file as the target": (["{0}", "--to", "{0}/../file"], "cannot be written"),
}


@pytest.mark.parametrize(("arguments", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_is_one_line(one, arguments, said, capsys):
    (one.parent / "empty").mkdir()
    (one.parent / "file").touch()
    before = sorted(one.rglob("*"))
    assert grade(*(argument.format(one) for argument in arguments)) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1 and sorted(one.rglob("*")) == before


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--seconds", "nan"], ["--lessons", "99"], ["--unknown"], []])
def test_a_wrong_flag_is_refused_with_the_usage(one, arguments, capsys):
    assert grade(*([one] if arguments else []), *arguments) == 2
    assert "usage: python -m tinylm_lib grade" in capsys.readouterr().err


def test_a_terminal_gets_a_bar(one, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert grade(one) == 0
    shown = capsys.readouterr()
    assert "1/1 ann" not in shown.err and "grading" in shown.err and "grading:" not in shown.out


@pytest.mark.slow
def test_a_class_gets_the_verdicts_that_were_planted(tmp_path):
    planted = make_submissions(tmp_path / "class", students=12)
    assert grade(tmp_path / "class", "--to", tmp_path / "to") == 0
    marks = {(m["student"], m["exercise"]): m for m in json.loads((tmp_path / "to" / "marks.json").read_text())}
    assert marks.keys() == planted.keys()
    for key, mark in marks.items():
        assert LOOKS[mark["verdict"]][1] == planted[key].verdict, (planted[key], mark)
    text = (tmp_path / "to" / "class.html").read_text("utf-8")
    assert "student_01</a> and <a" in text and "student_02</a>" in text, "who copied is listed"
    student, exercise = next(key for key, one in planted.items() if one.verdict == "wrong" and key[1] == "rotate")
    scope: dict = {}
    exec("import torch, math\nimport torch.nn.functional as F\n" + planted[student, exercise].code, scope)
    assert diagnose(exercise, scope[exercise]).mistake == marks[student, exercise]["mistake"]
