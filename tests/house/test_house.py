"""The rules of the house (see CONTRIBUTING.md): functions that must also find a planted violation."""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.utils import canonicalize_name

import tinylm_lib
from tinylm_lib import ModelConfig, TrainConfig

ROOT = Path(tinylm_lib.__file__).parents[1]
PACKAGES = ("tinylm_lib", "tinylm_classroom")
DISTRIBUTIONS = packages_distributions()
LAW = (ROOT / "CONTRIBUTING.md").read_text("utf-8")

# Imports go down only: a room, which is a file or a folder, imports from the floors below its own.
FLOORS = {
    package: [re.findall(r"\w+", floor) for floor in block.split("<")]
    for package, block in re.findall(r"^```floors of (\w+)\n(.*?)```", LAW, re.M | re.S)
}
# Lines of code, without docstrings, comments and blanks.
CORE = ["config", "layers", "positions", "feedforward", "attention", "cache", "model", "probabilities", "sampling"]
CORE_CAP, FILE_CAP, FUNCTION_CAP = 1000, 240, 40
CLASSROOM_FILE_CAP, CLASSROOM_FUNCTION_CAP = 410, 58  # pictures and their captions take many lines
COLUMNS = 100
# A module of someone else's, and the rooms that alone may import it.
ONLY_IN = {
    **dict.fromkeys(("matplotlib", "ipywidgets", "IPython", "anywidget"), ("tinylm_classroom",)),
    "tqdm": ("tinylm_classroom", "tinylm_lib/data", "tinylm_lib/runs", "tinylm_lib/commands"),
    "torch.distributed": ("tinylm_lib/training/distributed",),
    **dict.fromkeys(("transformers", "logging", "pickle", "marshal", "shelve", "dill", "joblib"), ()),
}
ABOVE = ("tinylm_lib.__main__", "tinylm_lib.classroom")  # which nobody may import
PRINTERS = ("tinylm_classroom", "tinylm_lib/runs", "tinylm_lib/commands", "tinylm_lib/__main__")
CHOICES = {f.name for config in (ModelConfig, TrainConfig) for f in fields(config) if "choices" in f.metadata}


class Source(NamedTuple):
    """One file of the product: its path in the repository, its text and its tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that it belongs to."""
        return self.path.split("/")[0]

    @property
    def room(self) -> str:
        """The name that FLOORS knows it by: the file, or the folder directly in the package."""
        return self.path.removesuffix(".py").split("/")[1]

    def is_in(self, rooms: Collection[str]) -> bool:
        """Whether the file is one of some rooms, or in one."""
        return any(f"{self.path.removesuffix('.py')}/".startswith(f"{room}/") for room in rooms)

    def at(self, node: ast.AST | int, fix: str) -> str:
        """One violation: where and what to do."""
        return f"{self.path}:{node if isinstance(node, int) else node.lineno}: {fix}"

    def find(self, *kinds: type) -> Iterator:
        """Yields all nodes of some kinds."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))


def source(path: str, text: str) -> Source:
    """Returns a text as a file of the product."""
    return Source(path, text, ast.parse(text))


def product() -> list[Source]:
    """Returns all files of both packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]


def imports(s: Source) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yields (statement, module, name): `tinylm_lib.text.bpe` or `torch.nn`, and what is taken from it, if anything."""
    folders = s.path.split("/")[:-1]
    for node in s.find(ast.Import):
        yield from ((node, alias.name, "") for alias in node.names)
    for node in s.find(ast.ImportFrom):
        above = folders[: len(folders) - node.level + 1] if node.level else []
        for alias in node.names:
            parts = [*above, *([node.module] if node.module else [alias.name])]
            yield node, ".".join(parts), alias.name


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Returns the numbers of the lines that hold code."""
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in kinds]
    lines = {line for t in tokens for line in range(t.start[0], t.end[0] + 1)}
    prose = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return lines - {line for n in prose if isinstance(n.value.value, str) for line in range(n.lineno, n.end_lineno + 1)}


def public(s: Source) -> Iterator:
    """Yields the functions, classes and methods that a user of the library sees."""
    found: list = [s.tree]
    while found:
        node = found.pop()
        if not isinstance(node, ast.Module):
            yield node
        if not isinstance(node, ast.FunctionDef):
            kinds = (ast.FunctionDef, ast.ClassDef)
            found += [child for child in node.body if isinstance(child, kinds) and not child.name.startswith("_")]


def imports_go_down(s: Source) -> list[str]:
    """Relative imports inside a package, each from a lower floor; the library does not know the classroom."""
    floors = FLOORS[s.package]
    if not on_floor(floors, s.room):
        return [s.at(1, f"{s.room} has no floor; add it to the floors of {s.package} in CONTRIBUTING.md")]
    bad = []
    for node, module, _ in imports(s):
        package, *inside = [*module.split("."), "__init__"]
        if package == s.package:
            if not getattr(node, "level", 0):
                bad.append(s.at(node, "import relatively, so that the traced copy of the package stays in itself"))
            elif inside[0] != s.room and on_floor(floors, inside[0]) >= on_floor(floors, s.room):
                bad.append(s.at(node, f"{s.room} may not import {inside[0]}: move the shared part to a lower floor"))
        elif f"{package}.{inside[0]}" in ABOVE:
            bad.append(s.at(node, f"{package}/{inside[0]} is above the classroom"))
        elif package == "tinylm_classroom":
            bad.append(s.at(node, "the library does not know the classroom: use an entry point"))
    return list(dict.fromkeys(bad))


def on_floor(floors: list[list[str]], room: str) -> int:
    """The floor of a room, counted from 1 at the ground; 0 where it has none."""
    return next((i for i, rooms in enumerate(floors, 1) if room in rooms), 0)


def foreign_modules_stay_in_their_room(s: Source) -> list[str]:
    """What a room may import of others; the config imports no torch, and nobody imports a star."""
    bad = [s.at(node, "name what you import") for node, _, name in imports(s) if name == "*"]
    for node, module, name in imports(s):
        for foreign, rooms in [*ONLY_IN.items(), *([("torch", ())] if s.path == "tinylm_lib/config.py" else [])]:
            if f"{module}.{name}.".startswith(f"{foreign}.") and not s.is_in(rooms):
                bad.append(s.at(node, f"{foreign} belongs to {', '.join(rooms) or 'no room of the library'}"))
    return bad


def choices_are_looked_up(s: Source) -> list[str]:
    """No field of a config that holds a name is compared with a string: pick the class from its table instead."""

    def is_choice(node: ast.AST) -> bool:
        owner = node.value if isinstance(node, ast.Attribute) else None
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        field = getattr(node, "attr", getattr(node, "id", ""))
        return field in CHOICES or "config" in name or name == "cfg"

    bad = []
    for node in s.find(ast.Compare, ast.Match, ast.Call) if s.path != "tinylm_lib/config.py" else ():
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            wrong = any(map(is_choice, sides)) and any(map(is_text, sides))
        elif isinstance(node, ast.Match):
            wrong = is_choice(node.subject)
        else:
            wrong = getattr(node.func, "attr", "") in ("startswith", "endswith") and is_choice(node.func.value)
        if wrong:
            bad.append(s.at(node, "a choice is looked up once, in a constructor: make it a row of a table, pick() it"))
    return bad


def files_and_functions_are_short(s: Source) -> list[str]:
    """At most FILE_CAP lines of code in a file and FUNCTION_CAP in a function; more in the classroom."""
    lines, cap, most = code_lines(s.text, s.tree), FILE_CAP, FUNCTION_CAP
    if s.is_in(["tinylm_classroom"]):
        cap, most = CLASSROOM_FILE_CAP, CLASSROOM_FUNCTION_CAP
    bad = [s.at(1, f"{len(lines)} lines of code, more than {cap}: split the room")] if len(lines) > cap else []
    for node in s.find(ast.FunctionDef, ast.AsyncFunctionDef):
        n = sum(node.lineno <= line <= node.end_lineno for line in lines)
        if n > most:
            bad.append(s.at(node, f"{node.name} has {n} lines of code, more than {most}: split it"))
    return bad


def lines_can_be_read(s: Source) -> list[str]:
    """One thing a line: no tuple of unrelated values, no text times a condition, no nested choice or loop."""
    long = [i for i, line in enumerate(s.text.splitlines(), 1) if len(line) > COLUMNS]
    bad = [s.at(i, f"at most {COLUMNS} columns") for i in long]
    for node in s.find(ast.Assign, ast.BinOp, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp):
        if isinstance(node, ast.Assign):
            values = getattr(node.value, "elts", []) if isinstance(node.value, ast.Tuple) else []
            targets = {ast.unparse(part) for target in node.targets for part in getattr(target, "elts", [])}
            if targets and values and not targets & {ast.unparse(value) for value in values}:  # a swap is one thing
                bad.append(s.at(node, "one assignment a line"))
        elif isinstance(node, ast.BinOp):
            sides, kinds = (node.left, node.right), ast.Compare | ast.BoolOp
            repeated = any(isinstance(side, ast.JoinedStr | ast.List) or is_text(side) for side in sides)
            if isinstance(node.op, ast.Mult) and repeated and any(isinstance(side, kinds) for side in sides):
                bad.append(s.at(node, "an if says this, not a product with a condition"))
        elif isinstance(node, ast.IfExp):
            if any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse)):
                bad.append(s.at(node, "a choice in a choice: write ifs"))
        elif len(node.generators) > 1:
            bad.append(s.at(node, "one for in a comprehension: write a loop, or chain.from_iterable"))
    return bad


def is_text(node: ast.AST) -> bool:
    """Whether a node is a string, or several."""
    parts = getattr(node, "elts", [node])
    return bool(parts) and all(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)


def nothing_forbidden(s: Source) -> list[str]:
    """No assert, print, exec, pickled weights, bare except, rooms without a name, or promises to do something later."""
    bad, lower = [], not s.is_in(PRINTERS)
    for node in s.find(ast.Assert, ast.Call, ast.ExceptHandler, ast.Attribute):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Assert) and not s.is_in(["tinylm_classroom"]):
            bad.append(s.at(node, "raise ValueError or TypeError that says what to do; assert vanishes under -O"))
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            bad.append(s.at(node, "name the exception"))
        if name in ("exec", "eval", "builtins.exec", "builtins.eval"):
            bad.append(s.at(node, "nothing that runs text"))
        if name == "print" and lower:
            bad.append(s.at(node, "the library core never prints: return it, the caller shows it"))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.save", "torch.load"):
            bad.append(s.at(node, "no pickle for weights: use training.checkpoint (safetensors)"))
    if s.path.rpartition("/")[2] in ("utils.py", "util.py", "helpers.py", "common.py", "misc.py"):
        bad.append(s.at(1, "name the file by what it holds"))
    late = [i for i, line in enumerate(s.text.splitlines(), 1) if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line)]
    return bad + [s.at(i, "do it now, or write an issue") for i in late]


def public_things_are_documented(s: Source) -> list[str]:
    """Every public thing says what it is; a function of tensors names a shape such as (B, T), or says elementwise."""
    if s.is_in(["tinylm_classroom"]):
        return []
    bad = [] if ast.get_docstring(s.tree) or not s.text.strip() else [s.at(1, "say in one sentence what this file is")]
    item = r"(?:\.\.\.|[\w*/+-]+(?: [-+*/] \w+)*)"
    shape = re.compile(rf"\((?:\.\.\.|[A-Z](?: ?[-+*/] ?\w+)*|{item},|{item}(?:, {item})+|)\)|elementwise")
    for node in public(s):
        text = ast.get_docstring(node)
        if not text:
            bad.append(s.at(node, f"{node.name} needs a docstring: one sentence"))
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            kinds = {ast.unparse(a.annotation).removesuffix(" | None") for a in arguments if a.annotation}
            if kinds & {"Tensor", "torch.Tensor"} and not shape.search(text):
                bad.append(s.at(node, f"{node.name} takes tensors: give shapes, such as (B, T), or say elementwise"))
    return bad


RULES: dict[Callable[[Source], list[str]], dict[str, tuple[str, ...]]] = {
    imports_go_down: {
        "tinylm_lib/layers.py": (
            "from .model import X", "from . import model", "from .training.loop import X", "import tinylm_lib.config",
        ),
        "tinylm_lib/model.py": (
            "def f():\n    from .sampling import X", "import tinylm_classroom",
            "def f():\n    from tinylm_classroom.shapes.trace import X",
        ),
        "tinylm_lib/__main__.py": ("from tinylm_classroom import X",),
        "tinylm_lib/text/base.py": ("from ..storyworld.stories import X", "from .. import model"),
        "tinylm_classroom/shapes/trace.py": (
            "from tinylm_classroom import X", "from ..views import X", "from ..exercises.base import X",
            "from tinylm_lib.__main__ import X", "from tinylm_lib.classroom import X",
        ),
        "tinylm_classroom/nowhere.py": ("x = 1",), "tinylm_lib/nowhere.py": ("x = 1",),
    },
    foreign_modules_stay_in_their_room: {
        "tinylm_lib/config.py": ("import torch", "from torch import nn", "from dataclasses import *"),
        "tinylm_lib/model.py": (
            "import matplotlib.pyplot as plt", "from IPython import display", "import transformers", "import pickle",
        ),
        "tinylm_lib/training/loop.py": (
            "import torch.distributed as dist", "from torch import distributed", "import logging",
        ),
        "tinylm_classroom/views/base.py": ("import transformers",),
    },
    choices_are_looked_up: {
        "tinylm_lib/model.py": (
            "if config.norm == 'rms': pass", "x = 1 if 'rms' != self.config.norm else 2",
            "x = block in ('pre_norm', 'post_norm')", "x = config.name in {'a'}", "x = 'norm' in config.block",
            "x = config.ffn.startswith('swi')", "match config.norm:\n    case 'rms': pass",
        ),
    },
    files_and_functions_are_short: {
        "tinylm_lib/model.py": ("x = 1\n" * (FILE_CAP + 1), "def f():\n" + "    x = 1\n" * FUNCTION_CAP),
        "tinylm_classroom/display/cards.py": ("x = (\n" + "    1,\n" * CLASSROOM_FILE_CAP + ")",),
    },
    lines_can_be_read: {
        "tinylm_lib/model.py": (
            f"x = '{'y' * COLUMNS}'", "a, b = 1, x", "x = 'y' * (n > 1)", "x = f'{n}' * (n > 1 and m)",
            "x = 1 if a else 2 if b else 3", "x = [i for j in k for i in j]", "x = {i: j for j in k for i in j}",
        ),
    },
    nothing_forbidden: {
        "tinylm_lib/model.py": (
            "assert x", "try: x\nexcept: y", "exec('x')", "x = eval('x')", "print(1)", "torch.save(x, y)",
            "f = torch.load", "x = 1  # TODO later",
        ),
        "tinylm_classroom/display/cards.py": ("eval('x')", "'''FIXME'''"), "tinylm_lib/utils.py": ("x = 1",),
    },
    public_things_are_documented: {
        "tinylm_lib/model.py": (
            "x = 1", "'''Say.'''\ndef f(): pass", "'''Say.'''\nclass A: pass",
            "'''Say.'''\nclass A:\n    '''Say.'''\n    def f(self): pass",
            "'''Say.'''\ndef f(x: Tensor | None):\n    '''Do (well) what (the reader) wants.'''",
        ),
    },
}  # fmt: skip
WITH_SHAPES = ("x (B, T)", "x (..., d)", "x (...)", "x (B,)", "w (out, in)", "() to x", "x (D/2)", "it elementwise")
GOOD = {
    imports_go_down: ["from .layers import X", "from .config import X", "import torch"],
    foreign_modules_stay_in_their_room: ["import torch", "from torch import nn"],
    choices_are_looked_up: [
        "x = ids.device.type == 'cpu'", "x = pick(NORMS, config.norm, 'norm')", "x = config.d_ff == 2",
    ],
    files_and_functions_are_short: ["x = 1\n# why\n\n" * FILE_CAP, f"def f():\n    '''Say{chr(10) * 99}.'''"],
    lines_can_be_read: ["a, b = b, a", "a, b = f(x)", "x = 'y' * n", "x = 1 if a else 2", "[i for i in j if i]"],
    nothing_forbidden: ["try: x\nexcept ValueError: y", "model.eval()", "x = 'print'"],
    public_things_are_documented: [f"'''Say.'''\ndef f(x: Tensor):\n    '''Do {words}.'''" for words in WITH_SHAPES],
}  # fmt: skip
PLANTED = [(rule, path, text) for rule, files in RULES.items() for path in files for text in files[path]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_library_keeps_the_rule(rule: Callable[[Source], list[str]]) -> None:
    bad = [violation for s in product() for violation in rule(s)]
    assert not bad, "\n".join(["", *bad])


def test_the_lines_of_the_tools_can_be_read() -> None:
    paths = sorted((ROOT / "tools").rglob("*.py"))
    found = [source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in paths]
    assert len(found) > 10 and [violation for s in found for violation in lines_can_be_read(s)] == []


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_the_rule_finds_a_planted_violation(rule: Callable[[Source], list[str]], path: str, text: str) -> None:
    found = rule(source(path, text))
    assert len(found) == 1, found
    assert found[0].startswith(f"{path}:")


@pytest.mark.parametrize("rule", GOOD, ids=lambda rule: rule.__name__)
def test_the_rule_leaves_good_code_alone(rule: Callable[[Source], list[str]]) -> None:
    assert [violation for text in GOOD[rule] for violation in rule(source("tinylm_lib/model.py", text))] == []


def test_no_folder_has_a_circle() -> None:
    files = {s.path.removesuffix(".py").replace("/", "."): s for s in product()}
    graph = {
        name: {found for _, module, taken in imports(s) for found in (module, f"{module}.{taken}")}
        for name, s in files.items()
    }
    TopologicalSorter({name: found & files.keys() - {name} for name, found in graph.items()}).prepare()


def test_the_core_can_be_read_end_to_end() -> None:
    core = [s for s in product() if s.package == "tinylm_lib" and s.room in CORE]
    sizes = {s.room: len(code_lines(s.text, s.tree)) for s in core}
    assert set(sizes) == set(CORE)
    assert sum(sizes.values()) <= CORE_CAP, f"{sum(sizes.values())} lines of code, more than {CORE_CAP}: {sizes}"


def test_the_tree_has_every_folder_and_every_file_of_the_model() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for package in PACKAGES:
        tree = text[text.index(f"\n{package}/ ") :].split("```")[0].split("\n\n")[0]
        lines = tree[1:].splitlines()
        end = next((i for i, line in enumerate(lines[1:], 1) if not line.startswith(" ")), len(lines))
        drawn = " ".join(re.findall(r"^ +((?:[\w.]+/? ?)+?)(?:  |$)", "\n".join(lines[1:end]), re.M)).split()
        files = {path.name for path in (ROOT / package).glob("*.py") if not path.name.startswith("__")}
        folders = {f"{path.parent.name}/" for path in (ROOT / package).rglob("__init__.py")} - {f"{package}/"}
        assert sorted(drawn) == sorted({*folders, *files, *({"weights/"} if package == "tinylm_lib" else ())})


@cache
def dependencies() -> dict[str, set[str]]:
    """The distributions in pyproject.toml: the library's own under "dependencies", the others under their extra."""
    project, found = (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.")[0], {}
    for line in project.splitlines():
        if start := re.match(r"([\w-]+) = \[", line):
            names = found.setdefault(start[1], set())
        elif shared := re.match(r' +"tinylm-lib\[(\w+)\]",', line):
            names |= found[shared[1]]
        elif wanted := re.match(r' +"([\w-]+)[^"]*",(.*)', line):
            assert re.match(r" +# \w+", wanted[2]), f"say in pyproject.toml why {wanted[1]} is needed"
            names.add(canonicalize_name(wanted[1]))
    return found


def undeclared(s: Source, *extras: str) -> set[str]:
    """What a file imports that neither Python nor the dependencies and some extras bring, and that is not ours."""
    ours = {path.stem for top in ("tests", "tools") for path in (ROOT / top).rglob("*") if path.suffix in ("", ".py")}
    known = {*sys.stdlib_module_names, *ours, *PACKAGES, "tomli"}  # pytest brings the last where tomllib is missing
    allowed = set().union(*(dependencies()[name] for name in ("dependencies", *extras)))
    found = {module.split(".")[0] for _, module, _ in imports(s)} - known
    return {name for name in found if not {canonicalize_name(d) for d in DISTRIBUTIONS.get(name, [name])} & allowed}


@pytest.mark.parametrize(("folder", "but", "extras"), [
    ("tinylm_lib", "-", ["hf"]), ("tinylm_classroom", "tinylm_classroom/course", ["colab"]),
    ("tinylm_classroom/course", "-", ["lab", "course"]), ("notebooks", "notebooks/source", ["test"]),
    ("notebooks/source", "-", ["colab"]), ("tools", "-", ["hf", "lab", "course", "test"]),
    ("tests", "-", ["hf", "lab", "course", "test"]),
])  # fmt: skip
def test_what_is_imported_is_declared(folder: str, but: str, extras: list[str]) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        if not path.is_relative_to(ROOT / but):
            missing = undeclared(source(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")), *extras)
            assert not missing, f"{path}: declare {missing} in pyproject.toml, under {extras}"


def test_an_import_that_is_not_declared_is_found() -> None:
    planted = source("tinylm_lib/x.py", "import pandas, os, torch\nfrom yaml import load\nfrom .a import b")
    assert undeclared(planted, "lab") == {"pandas", "yaml"} and undeclared(planted, "test") == {"pandas"}


def test_lessons_come_through_the_door() -> None:
    for path in (ROOT / "notebooks" / "source").glob("*.py"):
        behind = re.findall(r"tinylm_lib\.classroom|tinylm_classroom\.\w+", path.read_text("utf-8"))
        assert not behind, f"{path.name}: {behind}: offer it in tinylm_classroom/__init__.py"


PROBE = """
import os, sys, threading, torch
def state():
    return {
        "default dtype": torch.get_default_dtype(), "threads of torch": torch.get_num_threads(),
        "random state": torch.get_rng_state().tolist(), "gradients": torch.is_grad_enabled(),
        "running threads": threading.active_count(), "files": sorted(os.listdir()), "environment": dict(os.environ),
        "what shows errors": sys.excepthook,
        "heavy imports": sorted({"matplotlib", "IPython", "ipywidgets", "transformers"} & set(sys.modules)),
    }
module, sys.argv = sys.argv[1], ["tinylm"]
before = state()
__import__(module)
after = state()
print([name for name in before if before[name] != after[name]])
"""
MEDDLING = """
import os, threading, time, torch
torch.manual_seed(3); torch.set_default_dtype(torch.float64); torch.set_num_threads(7); torch.set_grad_enabled(False)
threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
open("left", "w").close(); os.environ["LEFT"] = "1"
import IPython, sys
sys.excepthook = print
"""


@pytest.mark.parametrize("module", ["tinylm_lib", "meddling"])
def test_importing_changes_nothing(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "meddling.py").write_text(MEDDLING)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "code"), str(ROOT))))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = [sys.executable, "-c", PROBE, module]
    done = subprocess.run(command, cwd=tmp_path / "empty", capture_output=True, text=True, check=True, timeout=120)
    changed = ast.literal_eval(done.stdout)  # and nothing else was printed
    assert changed == [] if module == "tinylm_lib" else len(changed) == 9, f"importing {module} changed {changed}"
