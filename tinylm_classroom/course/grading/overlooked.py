"""Where a function is that a notebook seems to lack, and why it did not count there: read, and
never run.
"""

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ...folders import PACKAGES
from .attempts import Attempt


class SubmittedCell(NamedTuple):
    """A cell of a notebook: its type, its text, and the exercise that it is the cell of, or ""."""

    kind: str
    text: str
    exercise: str = ""


def overlooked(
    name: str, cells: Sequence[SubmittedCell], given: Collection[str] = ()
) -> Attempt | None:
    """An attempt whose problem is the place where a definition of this name was found, None for no
    such place.

    given: the texts of cells that are not the student's own. A definition comes before an import,
    the last one first.
    """
    found: list[tuple[int, int, str, SubmittedCell]] = []
    for number, cell in enumerate(cells, 1):
        if cell.text not in given:
            found += [(rank, -number, why, cell) for rank, why in _reasons(name, cell)]
    if not found:
        return None
    _, number, why, cell = min(found)
    return Attempt(body=cell.text, problem=f"cell {-number} of the notebook {why}")


def _reasons(name: str, cell: SubmittedCell) -> Iterator[tuple[int, str]]:
    """Yields a rank and what a cell has of a function that does not count, as the end of a sentence
    about the cell.
    """
    definition = re.compile(rf"^[ \t]*(?:async )?def {name}\b|^{name}[ \t]*=[ \t]*lambda\b", re.M)
    first = cell.text.lstrip().partition("\n")[0][:80].strip()
    if cell.kind != "code":
        if definition.search(cell.text):
            yield 0, f"defines `{name}`, but it is a {cell.kind} cell. Change its type to code"
    elif first.startswith("%%"):
        if definition.search(cell.text):
            yield (
                0,
                (
                    f"defines `{name}`, but it begins with `{first}`, so it is not run as code. "
                    "Remove this line"
                ),
            )
    elif name in cell.text or name.replace("_", "") in cell.text.replace("_", "").casefold():
        tree = _tree(cell.text)
        for node in ast.walk(tree):
            yield from ((1, why) for why in _defined(name, node, tree))
        if re.search(rf"^[ \t]*#[# \t]*(?:async )?def {name}\b", cell.text, re.M):
            yield (
                2,
                (
                    f"has a definition of `{name}` that is commented out. Remove the `#` in front "
                    "of its lines"
                ),
            )
        for node in ast.walk(tree):
            yield from ((3, why) for why in _imported(name, node))


def _tree(text: str) -> ast.Module:
    """A cell without its magics; empty for one that is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a doubtful escape
            return ast.parse(re.sub(r"^[ \t]*[!%].*", "", text, flags=re.M))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _defined(name: str, node: ast.AST, tree: ast.Module) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        if name in [part.name for part in node.body if isinstance(part, ast.FunctionDef)]:
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            yield f"defines `{name}` inside the {kind} `{node.name}`. Define it at the left margin"
        if (
            isinstance(node, ast.FunctionDef)
            and node in tree.body
            and _is_misspelt(node.name, name)
        ):
            yield f"defines `{node.name}`, but the exercise is called `{name}`. Rename the function"
    elif (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and f"def {name}(" in node.value
    ):
        yield f"has a definition of `{name}` inside a string. Remove the quotation marks around it"


def _imported(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and name in [
        alias.asname or alias.name for alias in node.names
    ]:
        module = "." * node.level + (node.module or "")
        # lessons import from it what was written earlier
        if module.partition(".")[0] not in PACKAGES:
            yield (
                f"imports `{name}` from `{module}` instead of defining it. Write the function in a "
                "cell"
            )


def _is_misspelt(written: str, name: str) -> bool:
    """Whether two names differ, but only in capitals and underscores."""
    return (
        written != name and written.replace("_", "").casefold() == name.replace("_", "").casefold()
    )
