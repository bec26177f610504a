"""What is taken out of a notebook: the last attempt, with all that it refers to, in an order in which it runs."""

import runpy

import pytest

from tinylm_classroom.course.grading.attempts import Cells

STUB = 'def scale(x):\n    """x (N)."""\n    raise NotImplementedError'


def run(tmp_path, *cells: str, name: str = "scale"):
    """The function that an attempt's text defines, as the child would get it."""
    (tmp_path / "text.py").write_text(Cells(cells).attempt(name).text)
    return runpy.run_path(str(tmp_path / "text.py"))[name]


GOOD = {  # each gives 6 for 2
    "plain": ["def scale(x): return 3 * x"],
    "the last": ["def scale(x): return x", "def scale(x): return 3 * x"],
    "an attempt before the stub": ["def scale(x): return 3 * x", STUB],
    "a constant": ["THREE = 3", "def scale(x): return THREE * x"],
    "a constant below": ["def scale(x): return THREE * x", "THREE = 3"],
    "a constant that was changed": ["THREE = 4", "def scale(x): return THREE * x", "THREE = 3"],
    "a constant from another, in a strange order": ["THREE = ONE + 2", "ONE = 1", "def scale(x): return THREE * x"],
    "a constant that grows": ["THREE = 1", "THREE = THREE + 1", "THREE += 1", "def scale(x): return THREE * x"],
    "a table that is filled": [
        "TABLE = {}", "TABLE['a'] = 1", "TABLE.update(b=2)", "def scale(x): return sum(TABLE.values()) * x",
    ],
    "a table filled in a loop": [
        "table = {}\nfor i in range(3):\n    table[i] = i", "def scale(x): return sum(table.values()) * x",
    ],
    "helpers of helpers": [
        "def scale(x): return helper(x)", "def helper(x): return inner(x) + x", "def inner(x): return 2 * x",
    ],
    "helpers that call one another": [
        "def scale(x): return even(4) * x", "def even(n): return n or odd(n)", "def odd(n): return even(n)",
        "def even(n): return 3 if n < 2 else odd(1)",
    ],
    "a helper whose name the lesson uses again": [
        "def turn(x): return 2 * x\n\ndef scale(x): return x + turn(x)", "turn = len", "print(turn('ab'))",
    ],
    "recursion": ["def scale(x, n=3): return x + scale(x, n - 1) if n else 0"],
    "a class": ["class Base:\n    n = 3", "class Scale(Base):\n    def of(self, x): return self.n * x",
                "def scale(x): return Scale().of(x)"],
    "a default": ["three = 3", "def scale(x, n=three): return n * x"],
    "a decorator": ["def thrice(f): return lambda x: 3 * f(x)", "@thrice\ndef scale(x): return x"],
    "wrapped below": ["def scale(x): return x", "def thrice(f): return lambda x: 3 * f(x)", "scale = thrice(scale)\n"],
    "an annotation": ["from math import prod", "Number = int", "def scale(x: Number) -> Number: return prod((3, x))"],
    "an import of several": ["import math, no_such_package", "def scale(x): return math.prod((3, x))"],
    "a submodule": ["import os\nimport os.path", "def scale(x): return 3 * len(os.path.join('', 'ab'[:x]))"],
    "an import that may fail": [
        "try:\n    import no_such_package as n\nexcept ImportError:\n    n = 3", "def scale(x): return n * x",
    ],
    "a star": ["from math import *", "def scale(x): return prod((3, x))"],
    "a lambda": ["scale = lambda x: 3 * x"],
    "another name": ["def triple(x): return 3 * x", "scale = triple"],
    "only checked under another name": [STUB, "def triple(x): return 3 * x", "check('scale', triple)"],
    "a library's import above, and an own one": ["from tinylm_lib.layers import scale", "def scale(x): return 3 * x"],
    "a condition": ["if True:\n    def scale(x): return 3 * x"],
    "a statement that is timed": ["%time three = 3", "def scale(x): return three * x"],
    "magics": [
        "%%time\n%matplotlib inline\n!pip install x\ndef scale(x): return 3 * x", "%%bash\nrm -rf scale", "?scale",
    ],
    "broken cells around": ["def scale(x: return", "x = (", "def scale(x): return 3 * x", "print 'old'"],
    "a future import": [
        "from __future__ import annotations", "def scale(x: Missing) -> Missing: return 3 * x",
    ],
    "a walrus and a comprehension": ["y = [k for k in range(4)][-1]", "def scale(x): return (n := y) * x"],
    "a global counter": ["n = 3", "def scale(x):\n    global n\n    n += 0\n    return n * x"],
}  # fmt: skip


@pytest.mark.parametrize("cells", GOOD.values(), ids=GOOD)
def test_an_attempt_runs_on_its_own(tmp_path, cells):
    assert run(tmp_path, *cells)(2) == 6


@pytest.mark.parametrize("cells", [
    [], ["x = 1"], [STUB], [STUB, STUB], ["def scale(x): pass"], ["def scale(x): ..."], ["from lib import scale"],
    ["scale = 3"], ["def scale(x): raise NotImplementedError('later')"], ["print(scale(3))"],
])  # fmt: skip
def test_what_is_no_attempt(cells):
    assert Cells(cells).attempt("scale") is None


def test_only_what_is_needed_is_taken():
    cells = ["import torch\nfrom math import prod\nimport os", "data = open('x')", "torch.testing.assert_close(1, 1)"]
    found = Cells([*cells, "# why\ndef scale(x):\n    return torch.add(x,  x)  # twice"]).attempt("scale")
    assert found.text == "import torch\n\ndef scale(x):\n    return torch.add(x,  x)\n"


CHAIN = "\n".join(f"def f{i}(x): return f{i + 1}(x)" for i in range(1500)) + "\ndef f1500(x): return x"


@pytest.mark.parametrize("cells", [
    [CHAIN, "def scale(x): return f0(x)"], [STUB, "check('scale', twice)\ncheck('twice', scale)"],
], ids=["a chain", "a circle"])  # fmt: skip
def test_a_chain_without_end_is_said(cells):
    assert "a chain that is too long, or never ends" in Cells(cells).attempt("scale").problem


@pytest.mark.parametrize("cell", [
    "\n" * 150_000 + "def scale(x): return x", "def scale(x): return x" + "\n" * 150_000 + "= (", "x=1\n" * 4000,
], ids=["blank lines", "blank lines in a broken cell", "many statements"])  # fmt: skip
def test_the_time_to_read_a_cell_grows_no_faster_than_the_cell(cell):
    """Each of these took minutes, and would run into the time limit of the tests."""
    Cells([cell]).attempt("scale")


def test_statements_are_cut_by_bytes_and_by_every_kind_of_line_end():
    found = Cells(["é = 'ö'; scale = lambda x: 'ä' + x; b = 1\r\nc = 2\rd = 3"])
    assert [s.text for s in found.statements] == ["é = 'ö'", "scale = lambda x: 'ä' + x", "b = 1", "c = 2", "d = 3"]


def test_a_broken_cell_says_its_line():
    found = Cells([STUB, "# mine\ndef scale(x):\n    return (x"]).attempt("scale")
    assert found.text == "" and found.problem == "its cell has a syntax error, line 3: '(' was never closed"


@pytest.mark.parametrize("text", [
    "<<<<<<< local\ndef scale(x): return x\n=======\n>>>>>>> remote", "def scale(x):\n=======\n    return x",
])  # fmt: skip
def test_conflict_markers_in_a_cell_are_named(text):
    line = 1 + text.startswith("def")
    assert f"conflict markers of a merge in line {line}" in Cells([text]).attempt("scale").problem


def test_what_a_lesson_checks_itself_is_no_attempt():
    cells = [STUB, "def hasty(x): return x", "diagnose('scale', hasty)"]
    assert Cells(cells, given=cells).attempt("scale") is None and Cells(cells).attempt("scale")


@pytest.mark.parametrize(("cells", "names"), [
    (["from tinylm_lib.layers import softmax", "def scale(x): return softmax(x, 0)"], ("softmax",)),
    (["from tinylm_lib import attention as a", "def scale(x): return a.attend(x, x, x)"], ("attend",)),
    (["import tinylm_lib.layers", "def scale(x): return tinylm_lib.layers.gelu(x)"], ("gelu", "layers")),
    (["def scale(x): return __import__('tinylm_lib.layers').layers.gelu(x)"], ("tinylm_lib",)),
    (["from tinylm_lib.layers import softmax", "def scale(x): return x.softmax(0)"], ()),
])  # fmt: skip
def test_what_is_taken_from_the_library_is_named(cells, names):
    assert Cells(cells).attempt("scale").library == names
