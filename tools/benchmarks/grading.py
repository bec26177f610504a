"""Grading a class: 30 submissions of three lessons, as the tests make them, with what does harm
among them.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from support.submissions import LESSONS, make_submissions

from tinylm_classroom.course.grading.grade import grade
from tinylm_classroom.course.grading.submissions import submissions

from .measure import Row, Settings

STUDENTS = 30


def graded(s: Settings) -> Iterator[Row]:
    """The submissions of a class, each lesson of a student in a process of its own."""
    n_students = 4 if s.quick else STUDENTS
    with TemporaryDirectory() as folder:
        make_submissions(Path(folder), n_students)
        start = time.perf_counter()
        verdicts = Counter(mark.verdict for mark in grade(submissions(Path(folder))))
        seconds = time.perf_counter() - start
    found = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
    note = f"{os.cpu_count()} processes at a time; {found}"
    yield Row(
        f"grading {n_students} submissions of {len(LESSONS)} lessons", seconds, "s", note=note
    )


ROWS = {"grading": graded}
