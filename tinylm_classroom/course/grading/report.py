"""What the grader found: a table for the terminal, CSV and JSON for other programs, pages to read;
see `pages`.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from tinylm_lib.files import whole_file

from ...display.cards import unmarked
from ...exercises import EXERCISES
from .marks import Mark, stopped
from .pages import CHECKED, Pages, in_order

FORMULA = ("=", "+", "-", "@")  # a spreadsheet computes a cell that begins with one of these


def write_report(folder: Path, pages: Pages) -> Path:
    """Writes the tables, marks.json, a page for each student and class.html; returns the path of
    this last one.
    """
    mark_of_excel = "\ufeff"  # without which it reads another encoding
    _write(folder / "marks.csv", mark_of_excel + as_csv(pages.marks))
    _write(folder / "marks_table.csv", mark_of_excel + as_gradebook(pages.marks))
    marks = [asdict(mark) | {"points": mark.points} for mark in in_order(pages.marks)]
    _write(folder / "marks.json", json.dumps(marks, indent=1) + "\n")
    for student, name in pages.files.items():
        _write(folder / name, pages.of_student(student))
    return _write(folder / "class.html", pages.of_class())


def as_csv(marks: Iterable[Mark]) -> str:
    """A row for each student and exercise."""
    names = [field.name for field in fields(Mark)]
    names.insert(names.index("verdict") + 1, "points")
    shown = [
        replace(mark, says=unmarked(mark.says), touched=unmarked(mark.touched))
        for mark in in_order(marks)
    ]
    return _csv([names, *([getattr(mark, name) for name in names] for mark in shown)])


def as_gradebook(marks: Sequence[Mark]) -> str:
    """A row for each student, the points in each exercise and in all; empty where nothing was
    handed in.
    """
    lessons = {mark.lesson for mark in marks}
    exercises = [name for name, exercise in EXERCISES.items() if exercise.lesson in lessons]
    rows: dict[str, dict[str, int]] = {}
    for mark in in_order(marks):
        points = rows.setdefault(mark.student, {})
        if mark.points is not None:
            points[mark.exercise] = mark.points
    head = ["student", *(f"{EXERCISES[name].lesson} {name}" for name in exercises), "points"]
    return _csv(
        [
            head,
            *(
                [who, *map(points.get, exercises), sum(points.values())]
                for who, points in rows.items()
            ),
        ]
    )


def _csv(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; a cell that a spreadsheet would compute begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        cells = (in_a_line(str("" if value is None else value)) for value in row)
        writer.writerow("'" + cell if cell.lstrip().startswith(FORMULA) else cell for cell in cells)
    return text.getvalue()


def as_table(marks: Sequence[Mark]) -> str:
    """A line for each student, right of checked in each lesson and in all; below them what needs
    a look.
    """
    lessons = sorted({mark.lesson for mark in marks if mark.lesson})
    rows = [["student", *lessons, "all"]]
    for student in dict.fromkeys(mark.student for mark in in_order(marks)):
        mine = [mark for mark in marks if mark.student == student]
        parts = [[mark for mark in mine if mark.lesson == lesson] for lesson in lessons]
        rows.append([in_a_line(student), *map(_right_of_checked, [*parts, mine])])
    width = max(len(row[0]) for row in rows)
    lines = [f"{first:<{width}}" + "".join(f"{cell:>9}" for cell in rest) for first, *rest in rows]
    lines.append(
        "\nright/checked of all exercises; what could not be run is not checked, but named below; "
        "- is a lesson that was not handed in"
    )
    problems = [
        (*_place(mark, exercises), mark.says) for mark, exercises in stopped(in_order(marks))
    ]
    touched = [
        (*_place(mark, [mark.exercise]), mark.touched) for mark in in_order(marks) if mark.touched
    ]
    for title, found in (
        ("could not be run", problems),
        ("tried to change something outside", touched),
    ):
        lines += [f"\n{title}:"] if found else []
        lines += [
            in_a_line(f"  {' '.join(filter(None, place))}: {unmarked(says)}")
            for *place, says in found
        ]
    return "\n".join(lines)


def _place(mark: Mark, exercises: Sequence[str]) -> tuple[str, str, str]:
    return mark.student, mark.lesson, ", ".join(exercises)


def in_a_line(text: str) -> str:
    """A text without line breaks and other characters that do not print."""
    return "".join(c if c.isprintable() else " " for c in text)


def _right_of_checked(marks: Sequence[Mark]) -> str:
    right = sum(mark.verdict == "right" for mark in marks)
    checked = sum(mark.verdict in CHECKED for mark in marks)
    exercises = sum(bool(mark.exercise) for mark in marks)
    return f"{right}/{checked} of {exercises}" if marks else "-"


def _write(path: Path, text: str) -> Path:
    with whole_file(path) as file:
        # the name of a file may hold what is not text
        file.write(text.encode("utf-8", "backslashreplace"))
    return path
