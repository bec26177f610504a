"""What the grader says of one exercise in one submission."""

from collections.abc import Iterable
from dataclasses import dataclass

VERDICTS = ("right", "mistake", "not right", "not attempted", "could not be run")


@dataclass(frozen=True)
class Mark:
    """A verdict on one exercise of one student.

    student: the name of the file or folder; lesson: two digits, or "" where it is unknown;
    exercise: its name, or "".
    verdict: one of VERDICTS; a "mistake" has a name, which is in `mistake`, and what is "not right"
    has none.
    says: one line of plain text: what the check says, or why it could not be run.
    touched: one line for the teacher: what the code tried to change outside of itself, or "".
    """

    student: str
    lesson: str
    exercise: str
    verdict: str
    mistake: str = ""
    says: str = ""
    touched: str = ""

    @property
    def points(self) -> int | None:
        """1 for a right exercise, 0 for any other; None where nothing is known of an exercise."""
        return int(self.verdict == "right") if self.exercise else None


def stopped(marks: Iterable[Mark]) -> list[tuple[Mark, list[str]]]:
    """What could not be run, with its exercises: one entry where the same is said of several in a
    lesson.
    """
    found: dict[tuple[str, str, str], tuple[Mark, list[str]]] = {}
    for mark in marks:
        if mark.verdict == "could not be run":
            _, exercises = found.setdefault((mark.student, mark.lesson, mark.says), (mark, []))
            exercises += filter(None, [mark.exercise])
    return list(found.values())
