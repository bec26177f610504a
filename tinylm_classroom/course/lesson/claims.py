"""What a lesson's source must have besides its form: its deck, its lines to change, and how its
conclusions were tried.
"""

import re
from collections.abc import Iterator, Sequence

from . import tries
from .read import ESSENTIAL, EVIDENCE_MARK, SUMMARY, Cell, essential, last_heading, solved

DECK_LINES = 5
IN_THIS_RUN = "in this run"


def source_problems(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """What is wrong with the deck, the lines to change and the conclusions."""
    titles: list[str] = []
    for cell in cells:
        if "deck" in cell.meta:
            if cell.meta["deck"] in titles:
                yield (
                    cell.line,
                    f"give the slide a title of its own: {cell.meta['deck']!r} is taken",
                )
            titles.append(cell.meta["deck"])
            if cell.kind == "code" and _lines_on_slide(cell) > DECK_LINES:
                yield (
                    cell.line,
                    f"a slide shows at most {DECK_LINES} lines of code: fold the cell, or mark "
                    f"`{ESSENTIAL}` lines",
                )
        if cell.kind == "code":
            yield from ((cell.line + line, says) for line, says in tries.problems(cell.text))
    yield from _untried(cells)


def _lines_on_slide(cell: Cell) -> int:
    if {"source-hidden", "exercise"} & set(cell.tags):
        return 0
    marked = essential(cell.text)
    return (
        sum(last - first + 1 for first, last in marked)
        if marked
        else solved(cell.text).strip().count("\n") + 1
    )


def _untried(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """The bullets of the summary without one mark, and those that nobody tried to refute."""
    tried = {cell.meta.get("evidence"): cell.meta.get("tried") for cell in cells}
    section = ""
    said = 0
    for cell in cells:
        for text in re.split(r"\n\n+|\n(?=- |## )", cell.text) if cell.kind == "markdown" else ():
            section = last_heading(text, section)
            if section != SUMMARY or not text.startswith("- "):
                continue
            marks = EVIDENCE_MARK.findall(text)
            if len(marks) != 1:
                yield cell.line, f"mark this with one evidence: {text[:60]!r}"
            elif not tried.get(marks[0]):
                said += 1
                if said > 1 or IN_THIS_RUN not in text:
                    yield (
                        cell.line,
                        f"try to refute {marks[0]!r} and mark it with tried=, or say "
                        f"{IN_THIS_RUN!r}, at most once in a lesson: {text[:60]!r}",
                    )
