"""Honest notebooks: what the grader says is what the check says, and what is done is not done again."""

import json
import os
import platform
import runpy
import socket
import threading

import pytest

from tinylm_classroom.checks.verdict import diagnose
from tinylm_classroom.course.grading import grade as grading
from tinylm_classroom.course.grading.grade import grade
from tinylm_classroom.course.grading.launch import Limits, permitted
from tinylm_classroom.course.grading.marks import VERDICTS
from tinylm_classroom.course.grading.results import Results
from tinylm_classroom.course.grading.submissions import submissions
from tinylm_classroom.exercises import find_exercise

pytestmark = pytest.mark.usefixtures("one_thread")
STUB = "def cross_entropy(logits, targets):\n    raise NotImplementedError"
# softmax, and what is said of it
HONEST = {
    "right": ("def softmax(x, dim):\n    return x.softmax(dim)", "right", ""),
    "order": (
        "def softmax(x, dim):\n    return shares(x.exp() if SMALL else (x - top(x, dim)).exp(), dim)",
        "right",
        "",
    ),
    "mistake": ("def softmax(x, dim):\n    return x.exp() / x.exp().sum(dim, keepdim=True)", "mistake", "no maximum"),
    "axis": ("def softmax(x, dim):\n    return x.softmax(-1)", "mistake", "fixed axis"),
    "detached": ("def softmax(x, dim):\n    return x.detach().softmax(dim)", "mistake", "no gradient"),
    "writes": ("def softmax(x, dim):\n    x -= x.amax(dim, keepdim=True)\n    return x.softmax(dim)", "mistake", ""),
    "chance": ("def softmax(x, dim):\n    return x + torch.rand(1)", "mistake", "random"),
    "ignores": ("def softmax(x, dim):\n    return torch.ones_like(x) * x.shape[-1] ** 0.7", "mistake", ""),
    "raises": ("def softmax(x, dim):\n    return x.sofmax(dim)", "mistake", "raises an error"),
    "displays": ("def softmax(x, dim):\n    display(x.shape)\n    return x.softmax(dim)", "right", ""),
    "magics": (
        "from IPython import get_ipython as g\ndef softmax(x, dim):\n    %time\n    files = !ls\n"
        "    for f in files: print(f)\n    g().kernel.do_it()\n    return x.softmax(dim)",
        "right",
        "",
    ),
    "guarded": ("if __name__ == '__main__':\n    def softmax(x, dim):\n        return x.softmax(dim)", "right", ""),
    "stub": ("def softmax(x, dim):\n    raise NotImplementedError", "not attempted", ""),
    "begun": ("def softmax(x, dim):\n    x = x.exp()\n    raise NotImplementedError", "not attempted", ""),
    "broken": ("def softmax(x, dim):\n    return x.softmax(dim", "could not be run", ""),
    "no_function": ("softmax = torch.ones(3)", "mistake", "no function"),
    "missing": (
        "import no_such_package\ndef softmax(x, dim, n=no_such_package.n):\n    return x",
        "could not be run",
        "",
    ),
}
BELOW = """SMALL = False
def shares(x, dim):
    return x / x.sum(dim, keepdim=True)
def top(x, dim):
    return x.amax(dim, keepdim=True)"""


def notebook(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [{"cell_type": "code", "source": text} for text in cells]
    path.write_text(json.dumps({"cells": made, "metadata": {"tinylm": {"lesson": "03_softmax"}}}), "utf-8")


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("honest")
    for name, (cell, _, _) in HONEST.items():
        notebook(folder / f"{name}.ipynb", "%matplotlib inline", STUB, cell, BELOW, "import torch", "x = 1 /")
    return {(mark.student, mark.exercise): mark for mark in grade(submissions(folder), limits=Limits(seconds=120))}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_notebook_gets_its_verdict(marks, name):
    mark, (_, verdict, mistake) = marks[name, "softmax"], HONEST[name]
    assert mark.verdict == verdict and mark.mistake in (mistake, mark.mistake if not mistake else ""), mark
    assert marks[name, "cross_entropy"].verdict == "not attempted"


@pytest.mark.parametrize("name", ["mistake", "axis", "detached", "writes", "chance", "ignores"])
def test_the_grader_says_what_the_check_says(marks, name, tmp_path):
    (tmp_path / "own.py").write_text("import torch\n" + HONEST[name][0])
    found = diagnose("softmax", runpy.run_path(str(tmp_path / "own.py"))["softmax"])
    assert marks[name, "softmax"].mistake == found.mistake
    assert marks[name, "softmax"].says == " ".join(found.message.split())


def test_what_could_not_be_run_says_why(marks):
    assert marks["broken", "softmax"].says == "its cell has a syntax error, line 2: '(' was never closed"
    assert "No module named 'no_such_package'" in marks["missing", "softmax"].says


def test_what_is_done_is_not_done_again_and_a_line_that_was_cut_off_is(tmp_path, monkeypatch):
    folder, results = tmp_path / "class", tmp_path / "marks.jsonl"
    for name in ("ann", "bob", "cem"):
        notebook(folder / f"{name}.ipynb", STUB)

    def run_again() -> list[str]:
        return sorted(map(str, grade(submissions(folder), Results(results))))

    first = run_again()
    lines = results.read_bytes().splitlines(keepends=True)
    results.write_bytes(lines[0] + lines[1] + lines[2][:40])
    run = []
    real = grading.answers
    monkeypatch.setattr(grading, "answers", lambda s, *rest: run.append(s.student) or real(s, *rest))
    assert run_again() == first and len(run) == 1
    assert run_again() == first and len(run) == 1
    notebook(folder / "bob.ipynb", "def softmax(x, dim): pass")
    assert len(run_again()) == 6 and run[1:] == ["bob"]


def test_an_error_of_ours_costs_one_submission_only(tmp_path, monkeypatch):
    for name in ("ann", "bob"):
        notebook(tmp_path / f"{name}.ipynb", STUB)
    real = grading.answers

    def fails(submission, *rest):
        if submission.student == "ann":
            raise OSError("no more processes")
        return real(submission, *rest)

    monkeypatch.setattr(grading, "answers", fails)
    *anns, bob, _ = sorted(grade(submissions(tmp_path)), key=lambda mark: mark.student)
    assert [(ann.verdict, ann.says) for ann in anns] == [("could not be run", "OSError: no more processes")] * 2
    assert bob.student == "bob"


CLOSED = """
import socket
def softmax(x, dim):
    socket.create_connection(("127.0.0.1", PORT), 5).sendall(b"here")
    return x.softmax(dim)
"""


def test_a_socket_reaches_nobody(tmp_path):
    if "network" not in permitted():
        pytest.skip("this system permits no network namespaces")
    with socket.create_server(("127.0.0.1", 0)) as server:
        notebook(tmp_path / "ann.ipynb", CLOSED.replace("PORT", str(server.getsockname()[1])))
        mark = next(mark for mark in grade(submissions(tmp_path)) if mark.exercise == "softmax")
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert mark.mistake == "raises an error" and "unreachable" in mark.says


READS = """
import glob, os
def softmax(x, dim):
    own = [os.path.join(place, name) for place, _, names in os.walk(".") for name in names]
    seen = [open(path).read() for path in [*glob.glob("FOLDER/**", recursive=True), *own] if os.path.isfile(path)]
    raise ValueError(f"{len(seen)} files, {sum('secret' in text for text in seen)} with the word, {sorted(os.environ)}")
"""


def test_other_submissions_and_the_environment_are_not_to_be_read(tmp_path, monkeypatch):
    if "files" not in permitted():
        pytest.skip("this system permits no mounts of our own")
    monkeypatch.setenv("TOKEN_OF_THE_GRADER", "secret")
    folder = tmp_path / "class"
    notebook(folder / "ann.ipynb", READS.replace("FOLDER", str(folder)).replace("secret", "sec' 'ret"))
    notebook(folder / "bob.ipynb", "answer = 'secret'\ndef softmax(x, dim): return answer")
    mark = next(
        m
        for m in grade(submissions(folder), Results(tmp_path / "m.jsonl"))
        if (m.student, m.exercise) == ("ann", "softmax")
    )
    assert "1 files, 0 with the word" in mark.says and "TOKEN" not in mark.says, mark


def test_the_probes_of_one_submission_leave_the_grader_as_it_was(tmp_path):
    before = (sorted(os.environ.items()), os.getcwd(), threading.active_count())
    notebook(tmp_path / "ann.ipynb", "import torch, os\nos.chdir('/')\ndef softmax(x, dim): return x.softmax(dim)")
    assert {mark.verdict for mark in grade(submissions(tmp_path))} <= set(VERDICTS)
    assert (sorted(os.environ.items()), os.getcwd(), threading.active_count()) == before


def test_the_library_is_named_where_it_is_called(tmp_path):
    notebook(
        tmp_path / "ann.ipynb", "from tinylm_lib.layers import softmax as s\ndef softmax(x, dim): return s(x, dim)"
    )
    mark = next(mark for mark in grade(submissions(tmp_path)) if mark.exercise == "softmax")
    assert mark.verdict == "right" and mark.says.endswith("(calls the library's softmax)")
    assert find_exercise("softmax").lesson == mark.lesson


def test_a_newer_python_is_named_with_both_versions(tmp_path):
    newer = {"language_info": {"version": "3.99.1"}, "tinylm": {"lesson": "03_softmax"}}
    texts = {
        "syntax": "def softmax(x, dim):\n    return x ?? dim",
        "library": "from itertools import no_such_name as n\ndef softmax(x, dim, n=n): return x",
        "call": "import itertools\ndef softmax(x, dim): return itertools.no_such_name(x)",
        "right": "def softmax(x, dim): return x.softmax(dim)",
    }
    for name, text in texts.items():
        cells = [{"cell_type": "code", "source": text}]
        (tmp_path / f"{name}.ipynb").write_text(json.dumps({"cells": cells, "metadata": newer}))
    says = {m.student: m.says for m in grade(submissions(tmp_path)) if m.exercise == "softmax"}
    versions = f"with Python 3.99.1, the grader runs Python {platform.python_version()}: grade it with Python 3.99 or"
    assert {name: versions in text for name, text in says.items()} == {name: name != "right" for name in texts}


TOUCHES = {
    "tried to write `/nowhere/x`, to delete `/nowhere/y`, to delete `/nowhere`": (
        "open('/nowhere/x', 'w')", "pathlib.Path('/nowhere/y').unlink()", "shutil.rmtree('/nowhere')",
        "os.mkdir('/no')",
    ),
    "tried to write `x`, to create `/nowhere/z`, to run `rm x`": (
        "open('x', 'a')", "os.mkdir('/nowhere/z')", "os.system('rm x')", "1 / 0",
    ),
    "": ("open(__file__).read()", "print(x)", "open(os.devnull, 'w')", "open('/nowhere/x')"),
}  # fmt: skip


def test_an_attempt_to_change_something_outside_is_noted_although_nothing_came_of_it(tmp_path):
    for i, lines in enumerate(TOUCHES.values()):
        tried = "\n".join(f"    with contextlib.suppress(Exception): {line}" for line in lines)
        above = "import contextlib, os, pathlib, shutil\ndef softmax(x, dim):"
        notebook(tmp_path / f"{i}.ipynb", f"{above}\n{tried}\n    return x.softmax(dim)")
    marks = sorted((m for m in grade(submissions(tmp_path)) if m.exercise == "softmax"), key=lambda m: m.student)
    assert [mark.touched for mark in marks] == list(TOUCHES)
    assert {mark.verdict for mark in marks} == {"right"}
