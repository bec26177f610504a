"""What goes further than a lesson: a notebook that stands alone, without exercises, plan and deck.

    notebooks/source/more/13_serving.py    becomes    notebooks/more/13_serving.ipynb

Its grammar is that of a lesson; its title cell says what it needs and how long it runs, and nothing
of teaching.
"""

from collections.abc import Iterator
from pathlib import Path

from .read import Cell, Lesson
from .rules import Problem, claim_problems, grammar_problems

FOLDER = "more"
MOST_CELLS = 90
NOT_HERE = ("name", "minutes", "difficulty", "deck")
NOT_THESE = ("exercise", "check", "solution", "note")


def is_more(source: Path) -> bool:
    """Whether a source is not that of a lesson, but of what goes further."""
    return source.parent.name == FOLDER


def check_more(lesson: Lesson) -> None:
    """Raises ValueError with one line per problem: file, line, what is wrong and how to fix it."""
    found = sorted(
        [
            *grammar_problems(lesson),
            *claim_problems(lesson.cells),
            *_problems(lesson.cells),
        ]
    )
    if found:
        lines = (f"{FOLDER}/{lesson.name}.py:{line}: {text}" for line, text in found)
        raise ValueError("\n".join(lines))


def _problems(cells: tuple[Cell, ...]) -> Iterator[Problem]:
    if len(cells) > MOST_CELLS:
        yield 1, f"leave something out: it has {len(cells)} cells, and {MOST_CELLS} are read"
    for cell in cells:
        lessons = [key for key in NOT_HERE if key in cell.meta]
        lessons += [tag for tag in NOT_THESE if tag in cell.tags]
        if lessons:
            yield cell.line, f"remove {', '.join(lessons)}: only a lesson has exercises and a plan"
