"""The presenter's note before a section: its one form, and the answers that it expects from a
class.

    - *the minus is missing* (`no minus`): With a plus in both lines (1, 1) grows.

Such an answer goes by the names between backticks in the brackets: what our checks call a mistake,
or a choice of a prediction.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .read import HEADING, UNTAUGHT, Cell

# The parts of a note in their order, the last how the conclusions of the section were tried, and
# those that are left out where there is nothing to do.
NOTE = ("Say.", "Draw.", "Ask.", "Usual answers.", "Cut if short.", "Tried.")
AT_WILL = {"Draw.", "Ask.", "Usual answers."}
ANSWER = re.compile(r"^- \*.+?\* \(([^)]*)\):.*", re.MULTILINE)
BOARD = re.compile(r"^\*\*(?:Draw|Ask)\.\*\*", re.MULTILINE)
NOTHING = re.compile(r"^\*\*(?:Draw|Ask|Usual answers)\.\*\* None\b.*", re.MULTILINE)


class UsualAnswer(NamedTuple):
    """What a class may say: its names, in small letters, and the whole line of the note."""

    names: frozenset[str]
    text: str


def introduces(note: str, following: str) -> bool:
    """Whether a note is about the section below it.

    A note in the old form is about what is above it.
    """
    return note.startswith(f"**{NOTE[0]}**") and following.startswith("## ")


def usual_answers(note: str) -> list[UsualAnswer]:
    """The answers with names that a note expects, in its order."""
    found = ANSWER.finditer(note.partition(f"**{NOTE[3]}**")[2])
    return [
        UsualAnswer(frozenset(re.findall(r"`([^`]+)`", line[1].casefold())), line[0])
        for line in found
    ]


def board_work(note: str) -> int:
    """How often a note asks to draw or to ask something."""
    return len(BOARD.findall(note))


def note_problems(cells: Sequence[Cell]) -> Iterator[tuple[int, str]]:
    """Each section that is taught without a note in that form directly before it."""
    for before, cell in itertools.pairwise(cells):
        heading = HEADING.match(cell.text) if cell.kind == "markdown" and not cell.tags else None
        if heading and heading[1] != UNTAUGHT:
            said: tuple[str, ...] = ()
            if "note" in before.tags:
                said = tuple(re.findall(r"^\*\*(.+?)\*\*", before.text, re.MULTILINE))
            known = tuple(part for part in NOTE if part in said or part not in AT_WILL)
            if said != known or NOTHING.search(before.text):
                yield (
                    cell.line,
                    (
                        f"a note with {', '.join(NOTE)} must be directly before this section "
                        f"({', '.join(sorted(AT_WILL))} only where there is something), not {said}"
                    ),
                )
