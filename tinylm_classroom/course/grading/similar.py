"""Submissions that have one text once names, comments and layout are left out of account; a list,
not a verdict.
"""

import ast
from collections.abc import Mapping
from typing import NamedTuple

LONG = 4  # lines of a function; shorter ones are often written alike by people who have never met


class Alike(NamedTuple):
    """Students whose functions have one text: in which exercises, and how many lines each has."""

    students: tuple[str, ...]
    exercises: dict[str, int]


def alike(texts: Mapping[tuple[str, str], str]) -> list[Alike]:
    """Groups of students who share the text of at least one long function, the longest text in
    common first.

    texts: what was handed in for each (student, exercise).
    """
    sharing: dict[tuple[str, str], list[str]] = {}
    for (student, exercise), text in sorted(texts.items()):
        sharing.setdefault((exercise, normal_form(text)), []).append(student)
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    for (exercise, form), students in sharing.items():
        if len(students) > 1 and form:
            groups.setdefault(tuple(students), {})[exercise] = form.count("\n") + 1
    found = [Alike(*group) for group in groups.items() if max(group[1].values()) >= LONG]
    return sorted(found, key=lambda group: (-sum(group.exercises.values()), group.students))


def normal_form(text: str) -> str:
    """The code of a text with its own names numbered, without imports, docstrings and annotations.

    Empty for a stub and for a text that is not Python.
    """
    try:
        tree = ast.parse(text)
        return "" if _is_stub(tree) else ast.unparse(_Normal(tree).visit(tree))
    except (SyntaxError, ValueError, RecursionError):
        return ""


def _is_stub(tree: ast.Module) -> bool:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return bool(functions) and all(_only_raises(function.body) for function in functions)


def _only_raises(body: list[ast.stmt]) -> bool:
    return all(isinstance(node, ast.Raise) for node in _without_text(body))


def _without_text(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without those that are only a constant, such as a docstring."""
    return [
        node
        for node in body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


class _Normal(ast.NodeTransformer):
    """Numbers the names that a text binds itself, in the order in which they appear in it."""

    def __init__(self, tree: ast.Module):
        nodes = [*ast.walk(tree)]
        bound = {
            node.id
            for node in nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        self.own = bound | {
            node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        self.numbers: dict[str, str] = {}

    def _named(self, name: str) -> str:
        return self.numbers.setdefault(name, f"n{len(self.numbers)}") if name in self.own else name

    def visit_Import(self, node: ast.Import) -> None: ...

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._named(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self._named(node.arg))

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        # of a function of the text itself; softmax(dim=-1) keeps its dim
        known = node.arg in self.numbers
        return ast.keyword(self.numbers[node.arg] if known else node.arg, self.visit(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return self.visit(ast.Assign([node.target], node.value, lineno=0)) if node.value else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self._named(node.name)
        node.returns = None
        node.body = _without_text(node.body) or [ast.Pass()]
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.name = self._named(node.name)
        node.body = _without_text(node.body) or [ast.Pass()]
        return self.generic_visit(node)
