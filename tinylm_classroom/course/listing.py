"""Code on a slide: its coloured lines, the essential ones with the rest behind buttons, an exercise
without its solution.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .cells import colored

FOLDED = '<button type="button" class="gap" data-opens>⋯ {} line{}</button>'


def lines_of(source: str) -> list[str]:
    """The coloured lines of some code, without the remarks to our formatter."""
    return colored(re.sub(r"  # fmt: skip$", "", source.strip("\n"), flags=re.M)).split("\n")


def pre(lines: Sequence[str]) -> str:
    """Lines of code as HTML."""
    spans = ""
    for line in _squeezed(lines):
        words = re.sub("<[^>]*>", "", line)
        indent = len(words) - len(words.lstrip(" "))
        style = f' style="--indent: {indent}ch"' if indent else ""
        spans += f'<span class="line"{style}>{line}</span>'
    return f'<pre class="code">{spans}</pre>'


def folded(lines: Sequence[str], shown: Sequence[Sequence[int]]) -> str:
    """Some of the lines as HTML, all of them behind a button."""
    all_of_it = f"<details><summary>All {len(lines)} lines</summary>{pre(lines)}</details>"
    return f'<div class="folded">{pre(list(_essential(lines, shown)))}{all_of_it}</div>'


def _squeezed(lines: Sequence[str]) -> list[str]:
    """The lines with at most one blank line in a row, and none first."""
    return [line for before, line in pairwise(["", *lines]) if before.strip() or line.strip()]


def _essential(lines: Sequence[str], shown: Sequence[Sequence[int]]) -> Iterator[str]:
    """The lines that are shown, and between them a button for those that are not."""
    end = 0
    for first, last in [*shown, (len(lines) + 1, len(lines))]:
        if first > end + 1:
            yield FOLDED.format(first - end - 1, "s" if first - end > 2 else "")
        yield from lines[first - 1 : last]
        end = last


def without_words(source: str) -> str:
    """An exercise without its first comment and its docstrings, which were on the slide before."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            says = node.body[0]
            lines[says.lineno - 1 : says.end_lineno] = [None] * (says.end_lineno - says.lineno + 1)
    return "\n".join(
        line for line in lines if line is not None and not line.startswith("# Exercise ")
    )


def stub_of(source: str, name: str) -> str:
    """An exercise without its solution: the signature and the first lines of its task; the notebook
    has all of it.
    """
    node = next(found for found in ast.parse(source).body if getattr(found, "name", "") == name)
    says = node.body[0]
    is_docstring = isinstance(says, ast.Expr) and isinstance(says.value, ast.Constant)
    end = says.end_lineno if is_docstring else says.lineno - 1
    task = "\n".join([*source.split("\n")[node.lineno - 1 : end], "    ..."])
    begins, more, _ = task.partition("\n\n")
    return f'{begins} ..."""\n    ...' if more else task
