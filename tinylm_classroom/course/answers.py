"""What a student has answered in a copy of a lesson, and where it belongs once the lesson is
another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STUB = "raise NotImplementedError"


def exercises(notebook: Mapping[str, Any]) -> dict[str, str]:
    """The text of each exercise's cell, by the exercise's name."""
    found = {}
    for cell in notebook["cells"]:
        metadata = cell.get("metadata", {})
        name = metadata.get("tinylm", {}).get("name")
        if name and "exercise" in metadata.get("tags", ()):
            found[name] = "".join(cell["source"])
    return found


def homes(lessons: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The lesson of each exercise, from the notebooks of the course by their names."""
    found: dict[str, str] = {}
    for lesson, built in lessons.items():
        found |= dict.fromkeys(exercises(built), lesson)
    return found


def what_becomes_of(
    copy: Mapping[str, Any], file: str, new: Mapping[str, Any], home: Mapping[str, str]
) -> Iterator[str]:
    """A line for each kind of answer in an older copy: of the new lesson, of another one, of none.

    file: what the copy is called. home: of each exercise, the lesson that asks for it today.
    """
    here = exercises(new)
    if any(STUB not in text for text in here.values()):
        return  # the solutions, which nobody answers
    written = [name for name, text in exercises(copy).items() if STUB not in text]
    if again := [name for name in written if name in here]:
        yield (
            f"  {file} has your {_listed(again)}: paste into the new one what you want to go on "
            "with; what you have kept counts as before"
        )
    for name in written:
        if name in home and name not in here:
            yield (
                f"  {file} has your {name}, which lesson {home[name]} asks for now: paste it "
                "there; if you have kept it, it counts there"
            )
    if gone := [name for name in written if name not in home]:
        yield f"  {file} has your {_listed(gone)}, which no lesson asks for now: it stays there"


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
