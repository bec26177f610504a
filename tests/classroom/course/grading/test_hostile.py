"""Submissions that attack the grader: each is one line, the marks of its neighbours are right, and nothing is left."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tinylm_classroom.course.grading.confine import descendants
from tinylm_classroom.course.grading.grade import grade
from tinylm_classroom.course.grading.launch import Limits, permitted
from tinylm_classroom.course.grading.marks import VERDICTS, Mark
from tinylm_classroom.course.grading.submissions import submissions

pytest.importorskip("resource", reason="Windows has no limits for processes; what is left is a time limit")
pytestmark = pytest.mark.slow

RIGHT_MASK = "import torch\ndef causal_mask(n):\n    return torch.ones(n, n, dtype=torch.bool).tril()"
RIGHT = """
import math, torch
def attention(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v
"""
NOT_RUN, MISTAKE, RAISES = "could not be run", "mistake", "raises an error"


def body(*lines: str, result: str = "q") -> str:
    """An `attention` that does something and returns something wrong."""
    inside = "\n    ".join([*lines, f"return {result}"])
    return f"import os, sys, ctypes, time, torch\ndef attention(q, k, v, mask=None):\n    {inside}"


EVERY_FD = "for fd in range(1, 256):\n        try: os.write(fd, {})\n        except OSError: pass"
PRETENDERS = """
import torch
class Equal(torch.Tensor):
    def __torch_function__(*_, **__): return True
    def __eq__(self, other): return True
    def equal(self, other): return True
    def detach(self): return Always()
    def to(self, *_, **__): return Always()
class Always:
    shape, dtype, ndim = (), torch.float32, 0
    def __eq__(self, other): return True
    def __getattr__(self, name): return lambda *_, **__: True
"""
PATCHED = """
import torch, sys
yes = lambda *_, **__: True
torch.allclose = torch.equal = torch.isclose = torch.Tensor.__eq__ = torch.Tensor.equal = torch.Tensor.allclose = yes
from tinylm_classroom.checks import calling, verdict
calling.same = calling.agrees = verdict.same = verdict.agrees = verdict.diagnose = verdict.judge = yes
for name in list(sys.modules):
    if "grading" in name and hasattr(sys.modules[name], "judge"): sys.modules[name].judge = yes
def attention(q, k, v, mask=None):
    return q
"""
# What a cell holds, and the verdict and the mistake of `attention`.
HOSTILE: dict[str, tuple[str, str, str]] = {
    "endless": (body("while True: pass"), MISTAKE, "does not end"),
    "endless_catches": (
        body("while True:", "    try: time.sleep(9)", "    except BaseException: pass"), MISTAKE, "does not end"
    ),
    "huge": (body("x = torch.ones(25, 1000, 1000, 1000)"), MISTAKE, RAISES),
    "huge_bytes": (body("x = bytearray(10 ** 11)"), MISTAKE, RAISES),
    "exits": (body("os._exit(0)"), NOT_RUN, ""),
    "exits_at_once": ("import os\nos._exit(0)\ndef attention(q, k, v, mask=None): os", MISTAKE, "nothing returned"),
    "exits_at_definition": ("import os\nend = os._exit(0)\ndef attention(q, k, v, mask=end): return q", NOT_RUN, ""),
    "exits_politely": (body("sys.exit(0)"), MISTAKE, RAISES),
    "crashes": (body("ctypes.string_at(0)"), NOT_RUN, ""),
    "patches": (PATCHED, MISTAKE, ""),
    "prints": (body("for _ in range(2000): print('right ' * 100_000)"), MISTAKE, ""),
    "writes_everywhere": (body(EVERY_FD.format("b'x' * 9_000_000")), NOT_RUN, ""),
    "forges_a_mark": (
        body(EVERY_FD.format("""b'{"verdict": "right", "exercise": "attention", "passed": true}\\n'"""), "os._exit(0)"),
        NOT_RUN, "",
    ),
    "forges_values": (
        body(EVERY_FD.format("""b'{"exercise": "attention", "calls": [{"__class__": "x"}], "again": []}\\n'""")),
        NOT_RUN, "",
    ),
    "raises_a_mark": (body("raise ValueError('x\\\\nann 05 attention right\\\\x1b[2J')"), MISTAKE, RAISES),
    "tensor_pretends": (PRETENDERS + "def attention(q, k, v, mask=None): return q.as_subclass(Equal)", MISTAKE, ""),
    "object_pretends": (PRETENDERS + "def attention(q, k, v, mask=None): return Always()", MISTAKE, "wrong type"),
    "deletes": (
        body("import shutil", "shutil.rmtree({folder!r}, ignore_errors=True)", "shutil.rmtree('..', True)"), MISTAKE, ""
    ),
    "kills": (body("os.kill(os.getppid(), 9) if os.getppid() else None", "os.kill(0, 15)", "time.sleep(60)"), "", ""),
    "unknown_package": ("import no_such_package as n\ndef attention(q, k, v, mask=None): return n.f(q)", NOT_RUN, ""),
    "modules_swapped": (
        "import sys, types\nfor name in ('json', 'base64', 'torch'): sys.modules[name] = types.ModuleType('x')\n"
        "def attention(q, k, v, mask=None): return sys and q", MISTAKE, "",
    ),
    "many_processes": (
        body("while True:", "    try: os.fork()", "    except OSError: pass"), "", "",
    ),
    "leaves_a_process": (
        body(
            "if not os.fork():", "    os.setsid()", "    if not os.fork():",
            "        while True: time.sleep(0.1)", "    os._exit(0)", "os.wait()",
        ), "", "",
    ),
    "answers_twice": (body("os.fork()", "os.write(3, b'{}')"), "", ""),
    "many_files": (
        body("for i in range(9999):", "    with open(f'{i}', 'wb') as f: f.write(b'x' * 10_000_000)"), MISTAKE, RAISES
    ),
    "nested": (body("x = []", "for _ in range(10**6): x = [x]", result="x"), "", ""),
}  # fmt: skip


def notebook(path: Path, *cells: str, **metadata: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": []} for text in cells]
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(whole), "utf-8")


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Mark]]:
    """The marks of all hostile submissions and of an honest neighbour on each side, by student and exercise."""
    folder = tmp_path_factory.mktemp("submitted")
    for name in ("aaron", "zoe"):
        notebook(folder / f"{name}.ipynb", RIGHT_MASK, RIGHT)
    for name, (cell, _, _) in HOSTILE.items():
        notebook(folder / f"{name}.ipynb", cell.replace("{folder!r}", repr(str(folder))), RIGHT_MASK)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    found: dict[str, dict[str, Mark]] = {}
    for mark in grade(submissions(folder), limits=Limits(seconds=60)):
        assert found.setdefault(mark.student, {}).setdefault(mark.exercise, mark) is mark
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before or "files" not in permitted()
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_an_attack_is_one_line(marks: dict[str, dict[str, Mark]], name: str) -> None:
    mark, (_, verdict, mistake) = marks[name]["attention"], HOSTILE[name]
    assert mark.verdict != "right" and mark.verdict in VERDICTS, mark
    assert not verdict or mark.verdict == verdict, mark
    assert not mistake or mark.mistake == mistake, mark
    assert mark.says.isprintable() and len(mark.says) > 10, mark


@pytest.mark.parametrize("name", ["aaron", "zoe", *HOSTILE])
def test_it_costs_the_others_nothing(marks: dict[str, dict[str, Mark]], name: str) -> None:
    assert marks[name]["causal_mask"].verdict == "right", marks[name]
    assert name in HOSTILE or marks[name]["attention"].verdict == "right"


FORKING = """
import os, time
def attention(q, k, v, mask=None):
    if not os.fork():
        os.setsid()
        while True: time.sleep(0.1)
    while True: time.sleep(0.1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends processes with the one that started them")
def test_a_killed_grader_leaves_no_process(tmp_path: Path) -> None:
    notebook(tmp_path / "class" / "ann.ipynb", FORKING)
    program = "import sys, pathlib\nfrom tinylm_classroom.course.grading.grade import grade\n"
    program += "from tinylm_classroom.course.grading.submissions import submissions\n"
    program += "if __name__ == '__main__': list(grade(submissions(pathlib.Path(sys.argv[1]))))"
    grader = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "class")])
    try:
        wait_for(lambda: len(descendants(grader.pid)) >= 3, "the fork of the submission")  # S, the child, its child
        left = descendants(grader.pid)
    finally:
        grader.kill()
        grader.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in left), "the end of all")


def wait_for(holds: Callable[[], bool], what: str) -> None:
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
