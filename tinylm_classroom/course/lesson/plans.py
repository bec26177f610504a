"""How long a lesson takes to teach, computed, and what of it fits into 50, 80 and 110 minutes.

A section takes its words at a speaking pace, some minutes for each thing that is looked at, and one
for each drawing and question of its note; an exercise takes the minutes that its header states, as
homework or in a longer session. All are estimates.
"""

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from .notes import board_work
from .read import HEADING, PLANS, UNTAUGHT, Cell

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
    """A section or an exercise of a lesson: its name, its minutes and the shortest plan that
    contains it.
    """

    name: str
    minutes: int
    plan: int
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
        plan = max(
            (cell.meta["plan"] for cell in group if "plan" in cell.meta and not cell.tags),
            default=PLANS[0],
        )
        minutes = board + sum(_minutes(cell, drawn) for cell in group)
        found.append(Part(name or "Title", max(1, round(minutes)), plan))
        for cell in group:
            if "exercise" in cell.tags:
                own = max(plan, cell.meta.get("plan", PLANS[1]))
                found.append(
                    Part(f"`{cell.meta['name']}`", cell.meta["minutes"], own, is_exercise=True)
                )
    return found


def plan_minutes(taught: Sequence[Part]) -> dict[int, int]:
    """The minutes that each plan takes."""
    return {plan: sum(part.minutes for part in taught if part.plan <= plan) for plan in PLANS}


def plan_table(taught: Sequence[Part]) -> str:
    """The plans as a table in Markdown, for the presenter."""
    lines = [
        f"| part | {' | '.join(f'{plan} minutes' for plan in PLANS)} |",
        "|---|" + "---|" * len(PLANS),
    ]
    for part in taught:
        name = f"exercise {part.name}" if part.is_exercise else part.name
        lines.append(
            f"| {name} | "
            f"{' | '.join(str(part.minutes) if part.plan <= plan else '' for plan in PLANS)} |"
        )
    sums = plan_minutes(taught)
    lines.append(f"| **together** | {' | '.join(f'**{minutes}**' for minutes in sums.values())} |")
    long = [
        f"The plan for {plan} minutes is too long by {sums[plan] - plan}."
        for plan in PLANS
        if sums[plan] > plan
    ]
    said = "All minutes are estimates, computed from words, pictures, predictions and exercises."
    return "\n".join(["**Plans.** " + " ".join([said, *long]), "", *lines])


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
