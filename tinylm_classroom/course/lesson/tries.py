"""Lines that a reader is invited to change, and a run of a lesson with another value in each.

    word = "kite"  # try "fan", "book" and 3

The values are Python, so that the build can try the first of them.
"""

import ast
import re
from collections.abc import Iterator

from nbformat import NotebookNode, v4

LINE = re.compile(r"(?m)^(?P<name> *[\w, ]+ = )(?P<value>.+?)  # try (?P<values>.+)$")
INVITES = re.compile(r"# try\b")
SAVED = "import torch as _torch\n_state_of_torch = _torch.get_rng_state()"
RESTORED = "_ = _torch.set_rng_state(_state_of_torch)"


def values_of(line: re.Match[str]) -> list[str]:
    """The values that a line names, as Python.

    Raises: ValueError if they are not literals.
    """
    listed = re.sub(r",? and ", ", ", line["values"].rstrip("."))
    try:
        values = ast.parse(f"[{listed}]", mode="eval").body.elts
        _ = [ast.literal_eval(value) for value in values]
    except (SyntaxError, ValueError) as error:
        says = f"after `# try` write values as Python: `# try 3, 5 and 'kite'`, not {line[0]!r}"
        raise ValueError(says) from error
    return [ast.unparse(value) for value in values]


def problems(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a cell that invite a change and do not say which: (line from 1, what to do)."""
    for place, text in enumerate(source.split("\n"), 1):
        line = LINE.match(text)
        if not INVITES.search(text):
            continue
        if not line:
            yield place, f"write a line to change as `name = value  # try other`, not {text!r}"
            continue
        try:
            values_of(line)
        except ValueError as error:
            yield place, str(error)


def changed(source: str) -> str:
    """The cell with the first value that each of its lines names."""
    return LINE.sub(lambda line: f"{line['name']}{values_of(line)[0]}", source)


def with_other_values(notebook: NotebookNode) -> NotebookNode | None:
    """The lesson, in which each cell with a line to change runs first with another value; None if
    there is no such line.

    The random numbers after it are those of the lesson.
    """
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and LINE.search(cell.source):
            cells += map(v4.new_code_cell, (SAVED, changed(cell.source), RESTORED))
        cells.append(cell)
    if len(cells) == len(notebook.cells):
        return None
    return v4.new_notebook(cells=cells)
