"""Cuts an executed notebook into slides: each cell gets the slide type that JupyterLab and
reveal.js know.

A title or a section begins a slide. Every figure, view, trace, prediction and exercise is a
subslide of its own, what answers a prediction comes on a key, plumbing is skipped, and a subslide
that is full is followed by another one. What the source says with the key `slide` comes before
these rules.
"""

import ast
import re
from math import ceil

from nbformat import NotebookNode

from ...views.base import MIME

ROWS = 16  # lines of text on a slide
LETTERS = 74  # in such a line
LEAD_ROWS = 2.6  # of a sentence that may introduce a picture on its slide
AFTER_ROWS = 3.6  # that may stay with the picture before them
CODE_ROW = 0.72  # of a line of text: the height of a line of code
CODE_LINES = 12  # that a slide shows of a cell
TOOLS = {"check", "hint", "keep", "progress"}  # calls that a reader makes alone


def cut(notebook: NotebookNode) -> None:
    """Writes `metadata.slideshow.slide_type` of each cell; a cell without one continues the slide
    before it.

    Cutting twice changes nothing.
    """
    room = 0.0
    asked = False
    led = False
    for cell, following in zip(notebook.cells, [*notebook.cells[1:], None], strict=True):
        given = cell.metadata.get("slideshow", {}).get("slide_type")
        kind = given or _kind(cell, following, room, asked, led)
        if kind:
            cell.metadata["slideshow"] = {"slide_type": kind}
        if kind in ("skip", "notes"):
            continue
        begins = kind in ("slide", "subslide")
        led = (
            begins
            and cell.cell_type == "markdown"
            and rows(cell) <= LEAD_ROWS
            and kind == "subslide"
        )
        asked = is_prediction(cell) or (asked and not begins)
        room = 0 if _ends(cell) else (ROWS if begins else room) - rows(cell)


def rows(cell: NotebookNode) -> float:
    """About how many lines of text a cell is high on a slide."""
    if cell.cell_type == "markdown":
        return _text_rows(cell.source)
    folded = _is_folded(cell) or any(map(is_rich, cell.outputs))
    code = 0 if folded else min(cell.source.count("\n") + 1, CODE_LINES + 1)
    printed = sum(
        _printed(output).rstrip().count("\n") + 1 for output in cell.outputs if _printed(output)
    )
    return (
        CODE_ROW * (code + printed)
        + (0.6 if code else 0)
        + (0.6 if printed else 0)
        + sum(map(_rich_rows, cell.outputs))
    )


def is_plumbing(cell: NotebookNode) -> bool:
    """Whether a cell is left out of the slides: it only prepares, or belongs to a reader who is
    alone with it.
    """
    if cell.cell_type != "code":
        return cell.cell_type == "raw"
    if "check" in cell.metadata.get("tags", ()) or not cell.source.strip():
        return True
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:
        return False
    if all(_is_call_of(statement, TOOLS) for statement in statements):
        return True
    return not cell.outputs and (_is_folded(cell) or all(map(_only_prepares, statements)))


def is_rich(output: NotebookNode) -> bool:
    """Whether an output is a picture, a view, a trace or a card."""
    return "text/html" in output.get("data", {})


def is_prediction(cell: NotebookNode) -> bool:
    """Whether a cell asks for a prediction."""
    views = [output.get("data", {}).get(MIME) for output in cell.get("outputs", ())]
    return any(view and view["module"] == "predict" for view in views)


def _kind(
    cell: NotebookNode, following: NotebookNode | None, room: float, asked: bool, led: bool
) -> str | None:
    """The slide type by the rules; None continues."""
    if is_plumbing(cell):
        return "skip"
    if cell.cell_type == "markdown" and re.match(r"##? ", cell.source):
        return "slide"
    if cell.source.startswith("### ") or {"exercise", "solution"} & {
        *cell.metadata.get("tags", ())
    }:
        return "subslide"
    if any(map(is_rich, cell.get("outputs", ()))):
        return None if led else "subslide"
    wanted = rows(cell)
    if cell.source.rstrip().endswith(":") and following and not _rich_rows_of(following):
        both = wanted + rows(following)
        wanted = both if both <= ROWS else wanted
    if wanted > room:
        return "subslide"
    return "fragment" if asked else None


def _text_rows(source: str) -> float:
    source = re.sub(r"\$\$.*?\$\$", "\n\n$$\n\n", source, flags=re.S)
    # a text may begin on the line below its heading
    source = re.sub(r"^(#+ .*)$", r"\1\n", source, flags=re.M)
    found = 0.0
    for piece in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )", source.strip()):
        words = " ".join(re.sub(r"\]\([^)]*\)|[*_`$\\]", "", piece).split())
        found += 2 if piece.startswith(("#", "$$")) else ceil(len(words) / LETTERS) + 0.4
    return found


def _printed(output: NotebookNode) -> str:
    if output.output_type in ("stream", "error"):
        return output.get("text") or output.evalue or " "
    return "" if is_rich(output) else output.data.get("text/plain", "")


def _rich_rows(output: NotebookNode) -> float:
    """Of outputs without lines: a question has a height, and a line or two fit next to a picture or
    a card.
    """
    if not is_rich(output):
        return 0
    asked = output.data.get(MIME, {"module": ""})
    if asked["module"] != "predict":
        return ROWS - AFTER_ROWS
    data = asked["data"]
    return (
        4 + _text_rows(data["question"]) + _text_rows(data["because"]) + len(data.get("items", ()))
    )


def _rich_rows_of(cell: NotebookNode) -> float:
    return sum(map(_rich_rows, cell.get("outputs", ())))


def _is_folded(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def _ends(cell: NotebookNode) -> bool:
    """Whether nothing may follow a cell on its slide: the solution of an exercise is near."""
    return bool({"exercise", "solution"} & {*cell.metadata.get("tags", ())})


def _is_call_of(statement: ast.stmt, names: set[str]) -> bool:
    call = getattr(statement, "value", None)
    return (
        isinstance(statement, ast.Expr)
        and isinstance(call, ast.Call)
        and getattr(call.func, "id", "") in names
    )


def _only_prepares(statement: ast.stmt) -> bool:
    """Whether a statement imports, or calls something only for its effect.

    Such a call is `_ = torch.manual_seed(6)`.
    """
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    targets = [getattr(name, "id", "") for name in getattr(statement, "targets", ())]
    return isinstance(statement, ast.Assign) and targets == ["_"]
