"""A class that hands in notebooks: right variants and mistakes of the catalogue, stubs, and what does harm."""

import ast
import json
import random
from collections.abc import Iterator, Sequence
from importlib import import_module
from inspect import getsource
from pathlib import Path
from typing import NamedTuple

from tinylm_classroom.exercises import EXERCISES
from tinylm_classroom.folders import NOTEBOOKS

CATALOGUE = {"05": "attention", "06": "positions", "07": "heads", "11": "training"}
LESSONS = ("05", "06", "11")
SLOW = ("adamw_of_torch", "rate_of_torch")  # torch.optim loads a large part of torch at its first use
# What a few students hand in instead of an attempt: by name, the exercise, its code, and the verdict.
HARMFUL = {
    "endless": ("attention", "while True:\n        pass", "wrong"),
    "huge": ("attention", "return torch.zeros(25_000_000_000)", "wrong"),
    "leaves": ("rotate", "import os\n    os._exit(0)", "could not be run"),
    "loud": ("sinusoidal", 'while True:\n        print("right" * 1_000_000)', "wrong"),
    "foreign": ("rotate", "import a_package_that_nobody_has\n    return x", "wrong"),
    "patches": (
        "causal_mask",
        "import tinylm_classroom.checks.calling as c\n    c.same = c.agrees = lambda *a, **k: True\n"
        "    return torch.zeros(n, n)",
        "wrong",
    ),
    "pretends": (
        "next_token_pairs",
        "class Same(list):\n        __eq__ = lambda self, other: True\n    return Same([ids, ids])",
        "wrong",
    ),
}


class Planted(NamedTuple):
    """What a submission holds for an exercise: the verdict that it should get, the variant's name, its code."""

    verdict: str
    variant: str
    code: str = ""


def make_submissions(
    folder: Path, students: int = 30, lessons: Sequence[str] = LESSONS, seed: int = 1
) -> dict[tuple[str, str], Planted]:
    """Writes a folder of notebooks for each student, and returns what was planted for each (student, exercise).

    Every fourth student does harm in one exercise; the second one copies from the first, under other names.
    """
    draw = random.Random(seed)
    exercises = [name for name, exercise in EXERCISES.items() if exercise.lesson in lessons]
    harmful = [name for name, (exercise, *_) in HARMFUL.items() if exercise in exercises]
    planted: dict[tuple[str, str], Planted] = {}
    for i in range(students):
        student, chosen = f"student_{i + 1:02}", {}
        for name in exercises:
            kind = draw.choices(("right", "wrong", "not attempted"), (6, 3, 1))[0]
            chosen[name] = draw.choice(variants(name, kind))
        if i == 1:
            chosen = {name: copied(name, planted["student_01", name]) for name in exercises}
        if i % 4 == 3 and harmful:
            what = harmful[i // 4 % len(harmful)]
            name, body, verdict = HARMFUL[what]
            signature = EXERCISES[name].signature.replace("mask)", "mask=None)")
            chosen[name] = Planted(verdict, what, f"def {signature}:\n    {body}")
        planted |= {(student, name): one for name, one in chosen.items()}
        for lesson in lessons:
            write_notebook(folder / student, lesson, {name: one.code for name, one in chosen.items()})
    return planted


def write_notebook(folder: Path, lesson: str, codes: dict[str, str]) -> Path:
    """Writes the student's copy of a lesson with these codes in its exercises, where they are not empty."""
    path = next(NOTEBOOKS.glob(f"{lesson}_*.ipynb"))
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
            if code := codes.get(cell["metadata"].get("tinylm", {}).get("name")):
                cell["source"] = code
    folder.mkdir(parents=True, exist_ok=True)
    (folder / path.name).write_text(json.dumps(notebook), encoding="utf-8")
    return folder / path.name


def variants(name: str, kind: str) -> list[Planted]:
    """All that the catalogue has for an exercise: `right`, `wrong`, or the stub."""
    if kind == "not attempted":
        return [Planted(kind, "stub")]
    catalogue = _Catalogue(CATALOGUE[EXERCISES[name].lesson])
    table = catalogue.tables["RIGHT" if kind == "right" else "WRONG"][name]
    return [
        Planted(kind, variant, catalogue.code(name, node)) for variant, node in table.items() if variant not in SLOW
    ]


def copied(name: str, planted: Planted) -> Planted:
    """The same code under other names and with a comment."""
    if not planted.code:
        return planted
    tree = ast.parse(planted.code)
    local = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local -= {name, *(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in local:
            node.id = f"my_{node.id}"
    return planted._replace(code=f"# I wrote this alone\n{ast.unparse(tree)}")


class _Catalogue:
    """A file of tests/catalogue as text: its variants by exercise, and what they need."""

    def __init__(self, topic: str):
        module = import_module(f"catalogue.{topic}")
        tree = ast.parse(getsource(module))
        self.needs = {name: node for node in tree.body for name in _bound(node)}
        dicts = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
        self.tables = {
            name: {key.value: dict(_named(value)) for key, value in zip(d.keys, d.values, strict=True)}
            for name, d in dicts.items()
            if name in ("RIGHT", "WRONG")
        }

    def code(self, name: str, node: ast.expr) -> str:
        """A function of the exercise's name, below the helpers and imports that it needs."""
        own = node
        if isinstance(node, ast.Name) and isinstance(self.needs[node.id], ast.FunctionDef):
            own = ast.parse(ast.unparse(self.needs[node.id])).body[0]
            for part in ast.walk(own):
                if isinstance(part, ast.Name) and part.id == own.name:
                    part.id = name
            own.name = name
        elif isinstance(node, ast.Lambda):
            own = ast.FunctionDef(name, node.args, [ast.Return(node.body)], [], lineno=0)
        else:
            own = ast.Assign([ast.Name(name, ast.Store())], node, lineno=0)
        return "\n\n\n".join([*map(ast.unparse, self._above(own, {name})), ast.unparse(ast.fix_missing_locations(own))])

    def _above(self, node: ast.AST, seen: set[str]) -> Iterator[ast.AST]:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.needs and part.id not in seen:
                seen.add(part.id)
                yield from self._above(self.needs[part.id], seen)
                yield self.needs[part.id]


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)]


def _named(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The variants in a call of `catalogue.named`."""
    yield from ((argument.id, argument) for argument in call.args)
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords)
