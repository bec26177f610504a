"""What the grader found: a table for the terminal, CSV and JSON for other programs, pages to read; see `pages`."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from ...files import whole_file
from ..display.cards import plain
from .marks import Mark
from .pages import ATTEMPTED, Pages, in_order

FORMULA = ("=", "+", "-", "@")  # a spreadsheet computes a cell that begins with one of these


def write_report(folder: Path, pages: Pages) -> Path:
    """Writes marks.csv, marks.json, a page for each student and class.html; returns the path of this last one."""
    _write(folder / "marks.csv", "\ufeff" + as_csv(pages.marks))  # without the mark Excel reads another encoding
    _write(folder / "marks.json", json.dumps([asdict(mark) for mark in in_order(pages.marks)], indent=1) + "\n")
    for student, name in pages.files.items():
        _write(folder / name, pages.of_student(student))
    return _write(folder / "class.html", pages.of_class())


def as_csv(marks: Iterable[Mark]) -> str:
    """A row for each student and exercise; a cell that a spreadsheet would compute begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Mark))
    for mark in in_order(marks):
        cells = map(in_a_line, asdict(replace(mark, says=plain(mark.says))).values())
        writer.writerow("'" + cell if cell.lstrip().startswith(FORMULA) else cell for cell in cells)
    return text.getvalue()


def as_table(marks: Sequence[Mark]) -> str:
    """A line for each student, right of attempted in each lesson and in all; below them what could not be run."""
    lessons = sorted({mark.lesson for mark in marks if mark.lesson})
    rows = [["student", *lessons, "all"]]
    for student in dict.fromkeys(mark.student for mark in in_order(marks)):
        mine = [mark for mark in marks if mark.student == student]
        parts = [[mark for mark in mine if mark.lesson == lesson] for lesson in lessons]
        rows.append([in_a_line(student), *map(_right_of_attempted, [*parts, mine])])
    width = max(len(row[0]) for row in rows)
    lines = [f"{first:<{width}}" + "".join(f"{cell:>9}" for cell in rest) for first, *rest in rows]
    lines.append("\nright/attempted of all exercises; - is a lesson that was not handed in")
    stopped = [mark for mark in in_order(marks) if mark.verdict == "could not be run"]
    lines += ["\ncould not be run:"] if stopped else []
    for mark in stopped:
        where = " ".join(filter(None, (mark.student, mark.lesson, mark.exercise)))
        lines.append(in_a_line(f"  {where}: {plain(mark.says)}"))
    return "\n".join(lines)


def in_a_line(text: str) -> str:
    """A text without line breaks and other characters that do not print."""
    return "".join(c if c.isprintable() else " " for c in text)


def _right_of_attempted(marks: Sequence[Mark]) -> str:
    right = sum(mark.verdict == "right" for mark in marks)
    attempted = sum(mark.verdict in ATTEMPTED for mark in marks)
    exercises = sum(bool(mark.exercise) for mark in marks)
    return f"{right}/{attempted} of {exercises}" if marks else "-"


def _write(path: Path, text: str) -> Path:
    with whole_file(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))  # the name of a file may hold what is not text
    return path
