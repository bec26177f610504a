"""Copies of lessons 00, 05 and 13 as students had them before the third edition: exercises, checks, ids, metadata."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinylm_classroom.exercises import EXERCISES
from tinylm_classroom.exercises.base import Exercise

LESSONS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
ANSWERS: dict[str, dict[str, str]] = {name: lesson.pop("answers") for name, lesson in LESSONS.items()}
# what their cells import from us, and the figures that they draw, one statement each
USES: dict[str, list[str]] = {name: lesson.pop("uses") for name, lesson in LESSONS.items()}


def copy_of(lesson: str, answered: Iterable[str] = ()) -> dict[str, Any]:
    """A student's copy, some of its exercises answered."""
    cells = []
    for cell in LESSONS[lesson]["cells"]:
        name = cell["metadata"].get("tinylm", {}).get("name")
        cells.append(cell | ({"source": ANSWERS[lesson][name]} if name in answered else {}))
    return LESSONS[lesson] | {"cells": cells, "metadata": {"tinylm": {"lesson": lesson, "version": "of then"}}}


def write(path: Path, notebook: dict[str, Any]) -> Path:
    """The notebook in a file, its folder made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook), "utf-8")
    return path


def exercise_cell(name: str, source: str) -> dict[str, Any]:
    """The cell of an exercise."""
    metadata = {"tags": ["exercise"], "tinylm": {"name": name, "difficulty": 1, "minutes": 5}}
    return {"id": name, "cell_type": "code", "metadata": metadata, "source": source, "outputs": []}


@contextmanager
def another_course(**changed: Exercise | None) -> Iterator[None]:
    """A course in which exercises are others, or are no more; afterwards all are there in their order."""
    before = dict(EXERCISES)
    after = {name: each for name, each in (before | changed).items() if each}
    EXERCISES.clear()
    EXERCISES.update(after)
    try:
        yield
    finally:
        EXERCISES.clear()
        EXERCISES.update(before)
