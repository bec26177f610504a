"""How long a lesson takes to teach, computed: its plan, which fits into 50 minutes.

A section takes its words at a speaking pace, some minutes for each thing that is looked at, and one
for each drawing and question of its note; an exercise takes the minutes that its header states, as
homework or in a longer session. All are estimates.
"""

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from .notes import board_work
from .read import HEADING, UNTAUGHT, Cell

WORDS_PER_MINUTE = 130
# Minutes for each call: a picture, a prediction with its vote, a view that is moved, a shape trace,
# the library's code.
CALLS = {"predict": 2.0, "control": 2.0, "trace": 1.0, "show": 1.0}
FIGURE = 1.0
STEP = 0.5  # the same picture again, changed or grown
DRAWN = re.compile(r"(?:plt|looking|matching|(?:\w+_)?figures)\.\w+")
VIEW = 2.0
VIEWS = re.compile(r"\w+_view|watch|what_if")
CODE = 0.5  # a visible cell
PLUMBING = {"exercise", "check", "solution"}


class Part(NamedTuple):
    """A section or an exercise of a lesson, and its minutes."""

    name: str
    minutes: int
    is_exercise: bool = False


def parts(cells: Sequence[Cell]) -> list[Part]:
    """The sections of a lesson, each followed by its exercises, from the title on."""
    drawn: set[str] = set()
    found: list[Part] = []
    names = [""]
    groups = [[]]
    boards = [0]
    for before, cell in zip([cells[0], *cells], cells, strict=False):
        if cell.kind == "markdown" and not cell.tags and (heading := HEADING.search(cell.text)):
            names.append(heading[1])
            groups.append([])
            boards.append(board_work(before.text) if "note" in before.tags else 0)
        groups[-1].append(cell)
    for name, group, board in zip(names, groups, boards, strict=True):
        if name == UNTAUGHT:
            continue
        minutes = board + sum(_minutes(cell, drawn) for cell in group)
        found.append(Part(name or "Title", max(1, round(minutes))))
        for cell in group:
            if "exercise" in cell.tags:
                name = f"`{cell.meta['name']}`"
                found.append(Part(name, cell.meta["minutes"], is_exercise=True))
    return found


def taught_minutes(found: Sequence[Part]) -> int:
    """The minutes of the sections, without those of exercises."""
    return sum(part.minutes for part in found if not part.is_exercise)


def plan_table(found: Sequence[Part]) -> str:
    """The plan as a table in Markdown, for the presenter."""
    lines = [f"| {part.name} | {part.minutes} |" for part in found if not part.is_exercise]
    head = [
        "**Plan.** Estimates, computed from words, pictures and predictions.",
        "",
        "| section | minutes |",
        "|---|---|",
    ]
    table = [*head, *lines, f"| **together** | **{taught_minutes(found)}** |"]
    if exercises := [f"{part.name} {part.minutes}" for part in found if part.is_exercise]:
        table += ["", f"Exercises, as homework or in a second hour: {', '.join(exercises)}."]
    return "\n".join(table)


def _minutes(cell: Cell, drawn: set[str]) -> float:
    if (
        cell.meta.get("slide") == "skip"
        or (cell.tags and cell.kind == "markdown")
        or PLUMBING & set(cell.tags)
    ):
        return 0.0
    if cell.kind == "markdown":
        text = cell.text.partition(f"\n## {UNTAUGHT}\n")[0]
        return len(re.sub(r"\$+[^$]*\$+|`[^`]*`", " formula ", text).split()) / WORDS_PER_MINUTE
    tree = ast.parse(cell.text)
    called = [
        ast.unparse(node.func).split(".") for node in ast.walk(tree) if isinstance(node, ast.Call)
    ]
    minutes = 0.0
    for name in called:
        minutes += VIEW if VIEWS.fullmatch(name[-1]) else CALLS.get(name[-1], 0.0)
    pictures = {".".join(name) for name in called if DRAWN.fullmatch(".".join(name))}
    if pictures:
        minutes += FIGURE if pictures - drawn else STEP
        drawn |= pictures
    if "source-hidden" not in cell.tags:
        minutes += CODE
    return minutes
