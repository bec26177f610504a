"""What a lesson asks of a reader, counted over the student's built copy, and
the limits that it keeps.

Something to do is a prediction, an exercise and its check, a view, a control, or a cell with a line
to change: `word = "kite"  # try "fan"`.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain, takewhile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from ...display import frames
from ...views.base import MIME
from .links import SETUP
from .read import HEADING, UNTAUGHT
from .rules import TEACHES
from .transform import IN_ROT13
from .tries import LINE

HEAD_OF_ROT13 = IN_ROT13.split("\n")

# name: (least, most)
LIMITS = {
    "cells": (0, 90),
    "words": (0, 1900),
    "words of a prediction": (0, 100),
    "visible lines": (0, 180),
    "longest visible line": (0, 88),
    "folded lines": (0, 120),
    "minutes": (0, 45),
    "exercises": (1, 3),
    "visible lines before a picture": (0, 10),
    "folded lines before a picture": (0, 3),
    "cells before something to do": (0, 5),
    "cells in a row without": (0, 8),
    "percent of other tasks": (50, 100),
    "visible asserts": (0, 6),
    "caveats of a section": (0, 1),
    "pictures": (4, 6),
    "views": (1, 2),
    "predictions": (4, 7),
    "kilobytes": (0, 1500),
}
# What a lesson may have by its number: the first evening, the patients.
OTHER_LIMITS = {
    "00": {"cells": (0, 70), "views": (1, 3)},
    "19": {"cells": (0, 95)},
}
CAVEAT = re.compile(
    r"\b(?:(?:does|do|did) not (?:show|prove|say|tell)|not shown|not tried|in this run|perhaps|"
    r"cannot conclude|says? nothing about|no claim|it depends|for (?:this|our) (?:model|seed) only)"
    r"\b",
    re.IGNORECASE,
)


def counts(notebook: NotebookNode) -> dict[str, int]:
    """What there is in a student's copy, by the names of `LIMITS`."""
    cells = [cell for cell in notebook.cells if cell.source.strip() and cell.id != SETUP]
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    code = [cell for cell in cells if cell.cell_type == "code"]
    visible = _all(_lines, (cell for cell in code if not _folded(cell)))
    tasks = [_task(cell) for cell in cells]
    first = list(takewhile(lambda cell: not (_pictures(cell) or _views(cell)), code))
    before = code[: len(first) + 1]
    waits = list(accumulate(tasks, lambda wait, task: 0 if task else wait + 1, initial=0))
    own = [task for task in tasks if task not in ("", "check")]
    taught = TEACHES.search(" ".join(texts[0].split()))
    found = [
        len(cells),
        sum(map(_words, texts)),
        max(map(_words, _all(_predictions, code)), default=0),
        len(visible),
        max(map(len, visible), default=0),
        sum(len(_lines(cell)) for cell in code if _folded(cell)),
        int(taught[1]) if taught else 0,
        tasks.count("exercise"),
        sum(len(_lines(cell)) for cell in before if not _folded(cell)),
        sum(len(_lines(cell)) for cell in before if _folded(cell)),
        len(list(takewhile(lambda task: not task, tasks))),
        max(waits),
        100 - round(100 * own.count("line") / max(1, len(own))),
        len(re.findall(r"(?m)^ *assert\b", "\n".join(visible))),
        max(len(CAVEAT.findall(section)) for section in _sections(texts)),
        len(set(_all(_pictures, code))),
        len(set(_all(_views, code))),
        tasks.count("prediction"),
        len(json.dumps(notebook)) // 1000,
    ]
    return dict(zip(LIMITS, found, strict=True))


def excesses(found: Mapping[str, int], number: str) -> list[str]:
    """Where the counts of a lesson are outside its limits, each with the limit."""
    limits = LIMITS | OTHER_LIMITS.get(number, {})
    return [
        f"{name}: {found[name]}, at least {least} and at most {most}"
        for name, (least, most) in limits.items()
        if not least <= found[name] <= most
    ]


def copies(folder: Path) -> dict[str, NotebookNode]:
    """The students' copies in a folder, by name."""
    return {path.stem: nbformat.read(path, as_version=4) for path in sorted(folder.glob("*.ipynb"))}


def table_of(folder: Path) -> str:
    """The counts of all lessons: a line for each count, a column for each lesson, marked
    where it is outside its limits; empty without such lessons.
    """
    lessons = {name[:2]: counts(notebook) for name, notebook in copies(folder).items()}
    if not lessons:
        return ""
    width = max(map(len, LIMITS))
    lines = [f"{'':{width}} {'limit':>9}" + "".join(f" {name:>6}" for name in lessons)]
    for name, (least, most) in LIMITS.items():
        limit = f"{least} to {most}" if least else f"{most}"
        row = ""
        for number, found in lessons.items():
            outside = any(text.startswith(f"{name}:") for text in excesses(found, number))
            row += f" {found[name]:>5}{'!' if outside else ' '}"
        lines.append(f"{name:{width}} {limit:>9}{row}")
    return "\n".join(lines)


def _all(
    found: Callable[[NotebookNode], Iterable[str]], cells: Iterable[NotebookNode]
) -> list[str]:
    return list(chain.from_iterable(map(found, cells)))


def _task(cell: NotebookNode) -> str:
    """What there is to do in a cell, as one word; an empty one for nothing."""
    if cell.cell_type != "code":
        return ""
    for tag in ("exercise", "check"):
        if tag in cell.metadata.get("tags", ()):
            return tag
    if any(True for _ in _predictions(cell)):
        return "prediction"
    if _views(cell) or any(frames.MIME in output.get("data", {}) for output in cell.outputs):
        return "view"
    return "line" if LINE.search(cell.source) else ""


def _words(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))


def _lines(cell: NotebookNode) -> list[str]:
    """The lines of code that a reader meets: those of an exercise are the reader's own."""
    if "exercise" in cell.metadata.get("tags", ()):
        return []
    return [line for line in cell.source.split("\n") if line.strip() and line not in HEAD_OF_ROT13]


def _folded(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def _shown(cell: NotebookNode) -> Iterator[dict]:
    for output in cell.outputs:
        if view := output.get("data", {}).get(MIME):
            yield view


def _views(cell: NotebookNode) -> list[str]:
    return [view["module"] for view in _shown(cell) if view["module"] != "predict"]


def _predictions(cell: NotebookNode) -> Iterator[str]:
    """The words of each prediction: the question, the choices, what is said of them, and why."""
    for view in _shown(cell):
        if view["module"] == "predict":
            asked = view["data"]
            wrong = [f"{guess} {says}" for guess, says in asked["feedback"]]
            yield " ".join([asked["question"], asked["because"], str(asked["key"]), *wrong])


def _pictures(cell: NotebookNode) -> list[str]:
    """The picture of a cell, by the call that draws it: two of one function are one picture."""
    html = [output.get("data", {}).get("text/html", "") for output in cell.get("outputs", ())]
    if _views(cell) or not any("<figure" in text for text in html):
        return []
    last = ast.parse(cell.source).body[-1]
    call = getattr(last, "value", None)
    name = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return [cell.id if name in ("", "figures.display") else name]


def _sections(texts: list[str]) -> list[str]:
    """The words of each section, without the sources."""
    whole = "\n\n".join(texts).partition(f"\n## {UNTAUGHT}\n")[0]
    return re.split(HEADING.pattern, whole, flags=re.MULTILINE)[::2]
