"""A function taken out of a notebook works alone, and what cannot is refused by name."""

import linecache
import math
from itertools import count
from typing import Any

import pytest
import torch

from tinylm_classroom.workshop.extract import KeepError, extract

NUMBERS = count()


def run(cells: str) -> dict[str, Any]:
    """The names after cells ran as IPython runs them: each has a file name of its own, and linecache knows its text."""
    names = {"__name__": "__main__"}
    for cell in cells.split("\n---\n"):
        name = f"cell {next(NUMBERS)}"
        linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
        exec(compile(cell, name, "exec"), names)
    return names


@pytest.fixture(autouse=True)
def no_cells_of_others(monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})


# What is in the cells (between lines of ---), the arguments for `f`, its result, and what is taken along.
STAND_ALONE = {
    "imports of every kind": (
        """
import math, torch
import torch.nn.functional as F
---
from torch import nn, Tensor as T
from math import pi, tau as full
from typing import Optional
def f(x: T, y: Optional[int] = None):
    return F.relu(x) * math.cos(pi - full / 2) + nn.Identity()(torch.ones(1))
""",
        (torch.tensor([2.0]),), torch.tensor([3.0]),
        ["import math", "import torch", "import torch.nn.functional as F", "from math import pi",
         "from math import tau as full", "from torch import Tensor as T", "from torch import nn",
         "from typing import Optional"],
    ),
    "helpers of helpers, redefined": (
        "def one(x): return x - 100\n---\ndef two(x): return one(x) * 2\n---\ndef f(x): return two(x)\n---\n"
        "def one(x): return x + 1",
        (3,), 8, ["two", "one"],
    ),
    "a name that IPython puts among the variables": (
        "class Shell:\n    def get(self): return self\n---\nget_ipython = Shell().get\n---\n"
        "def f(x):\n    if x > 9: get_ipython()\n    return x", (3,), 3, [],
    ),
    "a module inside a package": (
        "import os.path\n---\ndef f(x): return os.path.join(x, 'b')", ("a",), "a/b", ["import os.path"],
    ),
    "a star": ("from math import *\n---\ndef f(x): return cos(x)", (0,), 1.0, ["from math import cos"]),
    "decorators with and without a wrapper's manners": (
        """
import functools
def twice(g): return lambda *a: 2 * g(*a)
def polite(g): return functools.wraps(g)(lambda *a: 10 * g(*a))
---
@functools.lru_cache(maxsize=None)
def h(x): return x
---
@twice
@polite
def f(x): return h(x) + 1
""",
        (1,), 40, ["import functools", "h", "polite", "twice"],
    ),
    "default values that are expressions": (
        "import math\ndef base(): return 7\n---\n"
        "def f(x, y=base() + math.floor(2.5), *, z=[n for n in range(3)]): return x + y + z[2]",
        (1,), 12, ["import math", "base"],
    ),
    "recursion, alone and of two": (
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)\n---\n"
        "def f(n): return n if even(n) else f(n + 1)",
        (3,), 4, ["even", "odd"],
    ),
    "functions inside, comprehensions, names that are local": (
        """
x = y = z = 5
---
def f(n):
    def inner(x):
        return [x * y for y in range(n)]
    return sum(inner(2) + [z for z in (0,)])
""",
        (4,), 12, [],
    ),
    "classes": (
        """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
class Base:
    def scale(self): return half()
def half(): return 0.5
---
@dataclass
class Size:
    n: int = 3
class Kind(Enum):
    A = 1
---
class Pair(NamedTuple):
    a: int
class Mine(Base):
    step = 1
    def __call__(self, x): return x * self.scale() + self.step
---
def f(x): return Mine()(x) + Size().n + Kind.A.value + Pair(2).a
""",
        (2,), 8.0,
        ["from dataclasses import dataclass", "from enum import Enum", "from typing import NamedTuple",
         "Kind", "Mine", "Base", "half", "Pair", "Size"],
    ),
    "letters of the world": ('def f(x):\n    """Größe → 語."""\n    café = x\n    return café + "é"', ("ü",), "üé", []),
    "an indented definition": ("if True:\n    def f(x):\n        # a comment\n        return x + 1", (1,), 2, []),
    "strings that moving would change": (
        "if True:\n    def f(x):\n        return x + '''\n      a'''", ("",), "\n      a", [],
    ),
    "annotations that are never looked up": (
        "from __future__ import annotations\ndef f(x: Nowhere) -> Never: return x",
        (1,), 1, ["from __future__ import annotations"],
    ),
    "another name for a helper": (
        "def g(x): return x\nsame = g\n---\ndef f(x): return same(x)", (5,), 5, ["g", "same"],
    ),
    "names that nobody has": ("def f(x): return x if x else missing(display)", (1,), 1, []),
}  # fmt: skip


@pytest.mark.parametrize("case", STAND_ALONE)
def test_what_is_taken_out_works_alone(case):
    text, arguments, result, along = STAND_ALONE[case]
    f = run(text)["f"]
    assert f(*arguments) == result
    taken = extract(f)
    assert taken.name == "f" and taken.along == along
    alone = {"__name__": "alone"}
    exec(taken.body, alone)
    assert alone["f"](*arguments) == result
    assert taken == extract(run(text)["f"])  # the same every time


CLOSURE = "def make(a, b):\n    def inner(x): return x + a + b\n    return inner\n"
REFUSED = {
    "a number": (
        "SCALE = 2.0\n---\ndef f(x): return x * SCALE", "`f` uses `SCALE`, a float of your notebook",
        "Define `SCALE` inside the function, or pass it as an argument"),
    "a tensor of a helper": (
        "import torch\nW = torch.ones(2)\n---\ndef h(x): return x @ W\n---\ndef f(x): return h(x)",
        "`h` uses `W`, a Tensor"),
    "a model": ("from torch import nn\nmodel = nn.Linear(2, 2)\n---\ndef f(x): return model(x)", "`model`, a Linear"),
    "a default": ("EPS = 1e-5\ndef f(x, eps=EPS): return x", "`EPS`, a float"),
    "an imported name bound again": ("from math import pi\npi = 3.2\ndef f(x): return pi * x", "`pi`, a float"),
    "a global that it writes": ("n = 0\ndef f(x):\n    global n\n    n += 1\n    return x", "`n`, an int"),
    "an alias of a builtin": (
        "import torch\nexp = torch.exp\ndef f(x): return exp(x)", "Call what `exp` refers to, or define it"),
    "a lambda": ("f = lambda x: x", "This is a lambda"),
    "a helper that is a lambda": ("g = lambda x: x\ndef f(x): return g(x)", "`g` is a lambda"),
    "a closure": (f"{CLOSURE}\nf = make(1, 2)", "remembers `a` and `b` of it", "pass `a` and `b` as an argument"),
    "a helper that is a closure": (f"{CLOSURE}\ng = make(1, 2)\ndef f(x): return g(x)", "`g` was made inside"),
    "a wrapper put around later": (
        "def f(x): return x\n---\ndef loud(g):\n    def inner(x): return g(x)\n    return inner\n---\nf = loud(f)",
        "Write `@` above its `def`"),
    "two of one name": (
        "def g(x): return x\n---\ndef f(x): return g(x) + h(x)\n---\nh = g\n---\ndef g(x): return -x",
        "Two different things are called `g`"),
    "an older self that calls the newer one": (
        "def g(n): return n if n < 1 else g(n - 1)\n---\nf = g\n---\ndef g(n): return 0",
        "Two different things are called `g`"),
    "a class with a method from elsewhere": (
        "class A: pass\ndef g(self): return 1\nA.g = g\n---\ndef f(x): return A().g()", "does not remember how `A`"),
    "a partial": ("import functools\nf = functools.partial(max, 1)", "This is a partial"),
    "a builtin": ("f = len", "This is a builtin_function_or_method"),
    "a method": ("class A:\n    def f(self, x): return x\nf = A().f", "This is a method"),
    "a module": ("from torch import nn\nf = nn.Softmax(-1)", "This is a Softmax"),
    "a class": ("class f: pass", "This is a type"),
    "nothing": ("f = None", "This is a NoneType"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_stand_alone_is_refused_by_name(case):
    text, *words = REFUSED[case]
    with pytest.raises(KeepError) as refused:
        extract(run(text)["f"])
    assert all(word in str(refused.value) for word in words), refused.value


def test_lost_source_is_said_with_a_fix():
    names = {"__name__": "__main__"}
    exec("def f(x): return x\nclass A: pass", names)
    with pytest.raises(KeepError, match=r"does not remember how `f`.*cell of its own"):
        extract(names["f"])
    notebook = run("def h(x): return A()")
    notebook["A"] = names["A"]
    with pytest.raises(KeepError, match="does not remember how `A`"):
        extract(notebook["h"])


def test_the_newest_text_of_a_cell_counts():
    cells = "def f(x): return 1\n---\nclass A:\n    n = 1\n---\ndef f(x): return A.n\n---\nclass A:\n    n = 2"
    assert extract(run(cells)["f"]).body == "class A:\n    n = 2\n\n\ndef f(x): return A.n\n"


def helper(x):
    return math.sqrt(x)


def ordinary(x):
    return helper(x)


def test_a_function_of_an_ordinary_file_can_be_taken_too():
    taken = extract(ordinary)
    assert taken.along == ["import math", "helper"] and taken.body.endswith("def ordinary(x):\n    return helper(x)\n")
