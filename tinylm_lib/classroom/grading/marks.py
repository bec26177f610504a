"""What the grader says of one exercise in one submission."""

from dataclasses import dataclass

VERDICTS = ("right", "mistake", "not right", "not attempted", "could not be run")


@dataclass(frozen=True)
class Mark:
    """A verdict on one exercise of one student.

    student: the name of the file or folder; lesson: two digits, or "" where it is unknown; exercise: its name, or "".
    verdict: one of VERDICTS; a "mistake" has a name, which is in `mistake`, and what is "not right" has none.
    says: one line of plain text: what the check says, or why it could not be run.
    """

    student: str
    lesson: str
    exercise: str
    verdict: str
    mistake: str = ""
    says: str = ""
