"""Notebooks of an earlier edition are handed in: their answers count, what the lesson itself said there does not."""

import re
from dataclasses import replace

import pytest
from support.second_edition import ANSWERS, LESSONS, another_course, copy_of, exercise_cell, write

from tinylm_classroom.course.grading import notebook as reading
from tinylm_classroom.course.grading.grade import grade
from tinylm_classroom.course.grading.submissions import NO_CELL, submissions
from tinylm_classroom.exercises import EXERCISES

FOLDERS = pytest.mark.parametrize("lesson", LESSONS)


@pytest.fixture
def new_edition(monkeypatch):
    """A course none of whose cells are those of then."""
    monkeypatch.setattr(reading, "given_cells", lambda lesson: frozenset())


@FOLDERS
def test_answers_in_an_old_notebook_are_right_and_what_it_was_not_asked_is_said(tmp_path, new_edition, lesson):
    write(tmp_path / "ann" / f"{lesson}.ipynb", copy_of(lesson, ANSWERS[lesson]))
    marks = {mark.exercise: mark for mark in grade(submissions(tmp_path), jobs=1)}
    assert {marks[name].verdict for name in ANSWERS[lesson]} == {"right"}
    for name in marks.keys() - ANSWERS[lesson].keys():
        assert marks[name].verdict == "not attempted" and marks[name].says == NO_CELL


@FOLDERS
def test_an_old_notebook_that_nobody_has_answered_has_no_attempt_of_any_lesson(tmp_path, new_edition, lesson):
    write(tmp_path / "ann" / f"{lesson}.ipynb", copy_of(lesson))
    (one,) = submissions(tmp_path)
    assert one.lesson == lesson[:2] and not any(one.attempts.values()) and not one.problem
    assert not one.taken.keys() & ANSWERS[lesson].keys()


def test_a_second_exercise_that_the_notebook_of_then_lacks_is_said(tmp_path, new_edition):
    write(tmp_path / "ann" / "13_cache.ipynb", copy_of("13_cache", ["cached_attention"]))
    stub = exercise_cell("write_with_cache", "def write_with_cache():\n    raise NotImplementedError")
    new = copy_of("13_cache", ["cached_attention"])
    write(tmp_path / "bob" / "13_cache.ipynb", new | {"cells": [*new["cells"], stub]})
    marks = {(mark.student, mark.exercise): mark for mark in grade(submissions(tmp_path), jobs=1)}
    assert [marks[name, "cached_attention"].verdict for name in ("ann", "bob")] == ["right", "right"]
    assert [marks[name, "write_with_cache"].verdict for name in ("ann", "bob")] == [
        "not attempted",
        "not attempted",
    ]
    assert [marks[name, "write_with_cache"].says for name in ("ann", "bob")] == [NO_CELL, ""]


def test_an_answer_in_the_notebook_of_then_counts_in_the_lesson_that_asks_for_it_now(tmp_path):
    with another_course(causal_mask=replace(EXERCISES["causal_mask"], lesson="07")):
        write(tmp_path / "ann" / "05_attention.ipynb", copy_of("05_attention", ANSWERS["05_attention"]))
        five, seven = submissions(tmp_path)
        assert five.lesson == "05" and five.attempts.keys() == {"attention"}
        assert seven.lesson == "07" and seven.attempts["causal_mask"].body.startswith("def causal_mask")
        assert seven.taken == {"causal_mask": "from 05_attention.ipynb"}


SEALED = (
    '"""Kept."""\n\n# tinylm-part: {"exercise": "causal_mask", "function": "causal_mask"}\n\n'
    "def causal_mask(n): return n\n"
)


def test_what_no_lesson_asks_for_any_more_is_said_and_costs_nothing_else(tmp_path):
    with another_course(causal_mask=None):
        write(tmp_path / "ann" / "05_attention.ipynb", copy_of("05_attention", ANSWERS["05_attention"]))
        write(tmp_path / "bob" / "05_attention.ipynb", copy_of("05_attention", ["attention"]))
        for name, text in (("causal_mask", SEALED), ("helpers", "def causal_mask(n): return n\n")):
            path = tmp_path / "bob" / "parts" / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        said = {
            (mark.student, mark.exercise): (mark.verdict, mark.says) for mark in grade(submissions(tmp_path), jobs=1)
        }
        assert said["ann", "attention"][0] == said["bob", "attention"][0] == "right"
        gone = "no check is for causal_mask: not graded"
        assert said["ann", ""] == ("could not be run", f"05_attention.ipynb: {gone}")
        assert said["bob", ""] == ("could not be run", f"causal_mask.py: {gone}")
        assert len(said) == 4


def test_a_notebook_of_a_lesson_without_exercises_says_what_it_answers(tmp_path, monkeypatch):
    with another_course(continue_greedily=None):
        monkeypatch.setattr(reading, "LESSONS", [lesson for lesson in reading.LESSONS if lesson != "00"])
        monkeypatch.setattr(reading, "TOPIC", re.compile("(?!)"))
        write(tmp_path / "ann" / "00_start.ipynb", copy_of("00_start", ["continue_greedily"]))
        write(tmp_path / "bob" / "00_start.ipynb", copy_of("00_start"))
        assert [one.problem for one in submissions(tmp_path)] == [
            "00_start.ipynb: no check is for continue_greedily: not graded",
            "00_start.ipynb: it is of lesson 00, and no check is for its exercises",
        ]


OF_02 = (
    "def hasty(x, weight): return x",
    "five_vectors, square_weight = torch.randn(5, 4), torch.randn(4, 4)\n"
    "assert not torch.allclose(hasty(five_vectors, square_weight), five_vectors @ square_weight.T)\n"
    'print(diagnose("linear", hasty).message)',
)
OF_20 = (
    'def linear(x, weight):\n    return torch.einsum("...i,oi->...o", x, weight)\n\n\n'
    "def linear_detached(x, weight):\n    return x @ weight.detach().T",
)


@pytest.mark.parametrize(("lesson", "cells"), [("02_linear", OF_02), ("20_yours", OF_20)])
def test_what_a_lesson_said_of_an_exercise_in_an_earlier_edition_is_nobody_s_attempt(
    tmp_path, new_edition, lesson, cells
):
    """02 gave a wrong function to the diagnosis of `linear`, and 20 defined `linear` by itself."""
    made = [{"cell_type": "code", "source": text} for text in cells]
    write(tmp_path / "ann.ipynb", {"cells": made, "metadata": {"tinylm": {"lesson": lesson}}})
    (one,) = submissions(tmp_path)
    assert not any(one.attempts.values())
    made[-1]["source"] += "  # mine"  # what a student has written counts
    write(tmp_path / "ann.ipynb", {"cells": made, "metadata": {"tinylm": {"lesson": lesson}}})
    (one,) = (each for each in submissions(tmp_path) if each.lesson == "02")
    assert one.attempts["linear"]
