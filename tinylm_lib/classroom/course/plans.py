"""How long a lesson takes to teach, computed, and what of it fits into 50, 80 and 110 minutes; the form of a note.

A section takes its words at a speaking pace and some minutes for each thing that is looked at; an exercise takes the
minutes that its header states. All are estimates.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .claims import HEADING
from .grammar import PLANS, Cell, Problem

WORDS_PER_MINUTE = 130
# Minutes for each call: a picture, a prediction with its vote, a view that is moved, a shape trace, the library's code.
CALLS = {"predict": 2.0, "control": 2.0, "trace": 1.0, "show": 1.0}
FIGURE, VIEW, CODE = 1.0, 2.0, 0.25
PLUMBING = {"exercise", "check", "solution"}
TEACHES = re.compile(r"Teaches\*? in about (\d+) minutes?(?:, plus (\d+) of exercises)?\.")
NOTE = ("Say.", "Draw.", "Ask.", "Usual answers.", "Cut if short.")


class Part(NamedTuple):
    """A section or an exercise of a lesson: its name, its minutes and the shortest plan that contains it."""

    name: str
    minutes: int
    plan: int
    is_exercise: bool = False


def parts(cells: Sequence[Cell]) -> list[Part]:
    """The sections of a lesson, each followed by its exercises, from the title on."""
    found: list[Part] = []
    names, groups = [""], [[]]
    for cell in cells:
        if cell.kind == "markdown" and not cell.tags and (heading := HEADING.search(cell.text)):
            names.append(heading[1])
            groups.append([])
        groups[-1].append(cell)
    for name, group in zip(names, groups, strict=True):
        if name in ("What you have now", "Sources"):
            continue
        plan = max((cell.meta["plan"] for cell in group if "plan" in cell.meta and not cell.tags), default=PLANS[0])
        found.append(Part(name or "Title", max(1, round(sum(map(_minutes, group)))), plan))
        for cell in group:
            if "exercise" in cell.tags:
                own = max(plan, cell.meta.get("plan", PLANS[0]))
                found.append(Part(f"`{cell.meta['name']}`", cell.meta["minutes"], own, is_exercise=True))
    return found


def plan_minutes(cells: Sequence[Cell]) -> dict[int, int]:
    """The minutes that each plan takes."""
    return {plan: sum(part.minutes for part in parts(cells) if part.plan <= plan) for plan in PLANS}


def plan_table(cells: Sequence[Cell]) -> str:
    """The plans as a table in Markdown, for the presenter."""
    lines = [f"| part | {' | '.join(f'{plan} minutes' for plan in PLANS)} |", "|---|" + "---|" * len(PLANS)]
    for part in parts(cells):
        name = f"exercise {part.name}" if part.is_exercise else part.name
        lines.append(f"| {name} | {' | '.join(str(part.minutes) if part.plan <= plan else '' for plan in PLANS)} |")
    sums = plan_minutes(cells)
    lines.append(f"| **together** | {' | '.join(f'**{minutes}**' for minutes in sums.values())} |")
    long = [f"The plan for {plan} minutes is too long by {sums[plan] - plan}." for plan in PLANS if sums[plan] > plan]
    said = "All minutes are estimates, computed from words, pictures, predictions and exercises."
    return "\n".join(["**Plans.** " + " ".join([said, *long]), "", *lines])


def title_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    """Other minutes in the title than those of the sections and exercises."""
    exercises = sum(part.minutes for part in parts(cells) if part.is_exercise)
    talk = sum(part.minutes for part in parts(cells)) - exercises
    found = TEACHES.search(" ".join(cells[0].text.split()))
    if not found or (int(found[1]), int(found[2] or 0)) != (talk, exercises):
        more = f", plus {exercises} of exercises" if exercises else ""
        yield 1, f"say in the title cell `*Teaches* in about {talk} minute{'s' * (talk > 1)}{more}.`, as computed"


def note_problems(cells: Sequence[Cell]) -> Iterator[Problem]:
    """Each numbered section without a note in the one form directly before it."""
    for before, cell in itertools.pairwise(cells):
        if cell.kind == "markdown" and not cell.tags and re.match(r"## \d", cell.text):
            said = tuple(re.findall(r"^\*\*(.+?)\*\*", before.text, re.MULTILINE)) if "note" in before.tags else ()
            if said != NOTE:
                yield cell.line, f"a note with {', '.join(NOTE)} must be directly before this section, not {said}"


def _minutes(cell: Cell) -> float:
    if cell.meta.get("slide") == "skip" or (cell.tags and cell.kind == "markdown") or PLUMBING & set(cell.tags):
        return 0.0
    if cell.kind == "markdown":
        return len(re.sub(r"\$+[^$]*\$+|`[^`]*`", " formula ", cell.text).split()) / WORDS_PER_MINUTE
    tree = ast.parse(cell.text)
    called = [ast.unparse(node.func).split(".") for node in ast.walk(tree) if isinstance(node, ast.Call)]
    looked_at = sum(CALLS.get(name[-1], 0.0) + VIEW * name[-1].endswith("_view") for name in called)
    looked_at += FIGURE * any(name[0] in ("figures", "plt") for name in called)
    return looked_at + CODE * ("source-hidden" not in cell.tags)
