"""Grading a class: 30 submissions of three lessons."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tinylm_lib.classroom.exercises import EXERCISES
from tinylm_lib.classroom.exercises.base import Exercise
from tinylm_lib.classroom.grading.grade import grade
from tinylm_lib.classroom.grading.submissions import submissions

from .measure import Row, Settings

STUDENTS, LESSONS = 30, ("05", "11", "12")
# Each is our own reference, every second one with a mistake, another for each student.
CELL = """
from tinylm_lib.classroom.exercises import find_exercise
def {name}(*arguments):
    return find_exercise("{name}").reference(*arguments, on=frozenset({faults}))
"""


def cell(exercise: Exercise, student: int) -> str:
    """What one student wrote."""
    faults = [*exercise.faults]
    chosen = [faults[student % len(faults)]] if student % 2 else []
    return CELL.format(name=exercise.name, faults=chosen)


def class_of(folder: Path, n_students: int) -> None:
    """A folder of notebooks, one for each student and lesson."""
    for student in range(n_students):
        for lesson in LESSONS:
            texts = [cell(exercise, student) for exercise in EXERCISES.values() if exercise.lesson == lesson]
            cells = [{"cell_type": "code", "source": text} for text in texts]
            path = folder / f"student{student:02}" / f"{lesson}.ipynb"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"cells": cells, "metadata": {"tinylm": {"lesson": lesson}}}), "utf-8")


def graded(s: Settings) -> Iterator[Row]:
    """The submissions of a class, each lesson of a student in a process of its own."""
    n_students = 4 if s.quick else STUDENTS
    with TemporaryDirectory() as folder:
        class_of(Path(folder), n_students)
        start = time.perf_counter()
        verdicts = Counter(mark.verdict for mark in grade(submissions(Path(folder))))
        seconds = time.perf_counter() - start
    found = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
    note = f"{os.cpu_count()} processes at a time; {found}"
    yield Row(f"grading {n_students} submissions of {len(LESSONS)} lessons", seconds, "s", note=note)


ROWS = {"grading": graded}
