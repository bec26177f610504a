"""A student in the middle of the course gets new lessons: what was written in the old ones stays, and is named."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from matplotlib import pyplot
from support.second_edition import ANSWERS, LESSONS, USES, copy_of, exercise_cell, write

from tinylm_classroom.course import lab
from tinylm_classroom.course.answers import STUB, exercises
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_classroom.workshop import parts

GOES_ON = "paste into the new one what you want to go on with; what you have kept counts as before"


def notebook(*cells: dict) -> dict:
    return {"cells": [*cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def stub(name: str) -> dict:
    return exercise_cell(name, f"def {name}():\n    {STUB}")


@pytest.fixture
def student(tmp_path: Path) -> tuple[Path, Path]:
    """A course of the second edition, and the work folder of a student who has got it with `make lab`."""
    for lesson in LESSONS:
        write(tmp_path / "course" / f"{lesson}.ipynb", LESSONS[lesson])
    assert lab.refresh(tmp_path / "course", tmp_path / "work") == []
    return tmp_path / "course", tmp_path / "work"


def answer(path: Path, lesson: str) -> bytes:
    """All exercises of a copy answered, as a student does it; returns the file."""
    data = json.loads(path.read_text("utf-8"))
    for cell in data["cells"]:
        name = cell["metadata"].get("tinylm", {}).get("name")
        cell["source"] = ANSWERS[lesson].get(name, cell["source"])
    path.write_text(json.dumps(data), "utf-8")
    return path.read_bytes()


@pytest.mark.parametrize("lesson", LESSONS)
def test_today_s_lesson_comes_next_to_an_answered_copy_which_stays_and_is_named(student, lesson):
    """With the built notebook of today, which has the exercises of then: pasted, they are the student's again."""
    course, work = student
    before = answer(work / f"{lesson}.ipynb", lesson)
    today = json.loads((NOTEBOOKS / f"{lesson}.ipynb").read_text("utf-8"))
    today["cells"].append({"id": "new", "cell_type": "markdown", "metadata": {}, "source": "new"})
    write(course / f"{lesson}.ipynb", today)
    had = " and ".join(ANSWERS[lesson])
    assert lab.refresh(course, work) == [
        f"{lesson} has changed, and you have edited yours: the new one is {lesson} (new).ipynb, yours stays as it is",
        f"  {lesson}.ipynb has your {had}: {GOES_ON}",
    ]
    assert (work / f"{lesson}.ipynb").read_bytes() == before
    new = json.loads((work / f"{lesson} (new).ipynb").read_text("utf-8"))
    assert ANSWERS[lesson].keys() <= exercises(new).keys() and all(STUB in text for text in exercises(new).values())
    assert lab.refresh(course, work) == []


def test_an_exercise_that_moved_or_went_is_said_with_where_it_is(student):
    course, work = student
    before = answer(work / "05_attention.ipynb", "05_attention")
    write(course / "05_attention.ipynb", notebook(stub("another")))
    write(course / "13_cache.ipynb", notebook(stub("cached_attention"), stub("attention")))
    _, *said = lab.refresh(course, work)[:3]
    assert said == [
        "  05_attention.ipynb has your attention, which lesson 13_cache asks for now: paste it there; "
        "if you have kept it, it counts there",
        "  05_attention.ipynb has your causal_mask, which no lesson asks for now: it stays there",
    ]
    assert (work / "05_attention.ipynb").read_bytes() == before


def test_a_copy_that_was_changed_elsewhere_or_has_only_stubs_names_no_answers(student):
    course, work = student
    data = json.loads((work / "13_cache.ipynb").read_text("utf-8"))
    data["cells"][0]["source"] += "\nmine = 1"
    write(work / "13_cache.ipynb", data)
    write(course / "13_cache.ipynb", notebook(stub("cached_attention"), stub("write_with_cache")))
    (said,) = lab.refresh(course, work)
    assert said.startswith("13_cache has changed, and you have edited yours")


def test_the_solutions_of_a_presenter_are_nobody_s_answers(tmp_path):
    course, work = tmp_path / "solutions", tmp_path / "work"
    write(course / "05_attention.ipynb", copy_of("05_attention", ["attention", "causal_mask"]))
    lab.refresh(course, work)
    data = json.loads((work / "05_attention.ipynb").read_text("utf-8"))
    data["cells"][0]["source"] += "\nmine = 1"
    write(work / "05_attention.ipynb", data)
    write(course / "05_attention.ipynb", notebook(exercise_cell("attention", "def attention(): return 1")))
    assert len(lab.refresh(course, work)) == 1


@pytest.mark.parametrize("lesson", LESSONS)
def test_an_old_copy_runs_in_the_course_of_today(lesson, tmp_path, monkeypatch):
    """Its imports are there, its checks find its answers right, and `keep` keeps them."""
    monkeypatch.setenv("TINYLM_WORKSHOP", "off")
    monkeypatch.setattr(parts, "PARTS_FOLDER", tmp_path)
    names: dict = {"__name__": "__main__"}
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pyplot.rc_context():  # a copy of then sets its style for good
        for cell in copy_of(lesson, ANSWERS[lesson])["cells"]:
            code = compile(cell["source"], cell["id"], "exec")
            eval(code, names)
    for name in ANSWERS[lesson]:
        assert names["check"](name, names[name]).passed


@pytest.mark.parametrize("lesson", LESSONS)
def test_what_an_old_copy_uses_of_the_course_is_there(lesson):
    names: dict = {}
    for statement in ["from tinylm_classroom import figures", *USES[lesson]]:
        exec(statement, names)
