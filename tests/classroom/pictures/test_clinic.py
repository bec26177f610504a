"""The pictures of lesson 19: a panel for each run, a leaf for each patient, a row for each run of a bisection."""

import math
from typing import Any

import pytest

from tinylm_classroom import patient
from tinylm_classroom.clinic.tree import TREE
from tinylm_classroom.pictures import clinic


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(clinic)


def test_six_runs_have_a_panel_each_and_a_nan_is_named(shown):
    runs = {letter: [5.8, 3.0, 2.0] for letter in "ABCDE"} | {"F": [5.8, math.nan, math.nan]}
    clinic.curves(runs, 0.66)
    figure, facts = shown[0]
    assert [ax.get_title(loc="left") for ax in figure.axes] == [*"ABCDEF"]
    assert [text.get_text() for text in figure.axes[5].texts] == ["NaN"]
    assert facts["table"]["last loss"][5] == "NaN" and "2.0" in facts["table"]["last loss"][0]


def test_the_tree_has_two_leaves_for_each_question_and_the_names_of_who_stops_there(shown):
    clinic.tree(TREE)
    clinic.tree(TREE, {"stuck": (1, 0), "a": (5, 1), "b": (5, 1)})
    (_, empty), (figure, facts) = shown
    assert len(empty["table"]["look at"]) == 2 * len(TREE) and "patients" not in empty["table"]
    assert facts["table"]["patients"] == ["nobody"] * 2 + ["stuck"] + ["nobody"] * 8 + ["a, b"]
    assert {"stuck", "a, b"} <= {text.get_text() for text in figure.axes[0].texts}


def test_flat_curves_have_their_names(shown):
    clinic.flat({"one": [5.84, 5.84], "two": [5.8, 4.9]})
    figure, facts = shown[0]
    assert [text.get_text() for text in figure.axes[0].texts] == ["one", "two", "ln V"]
    assert facts["table"]["patient"] == ["one", "two"]


def test_small_weights_are_not_written(shown):
    who = patient("nonsense")
    clinic.looks(who)
    figure, facts = shown[0]
    written = [float(text.get_text()) for text in figure.axes[0].texts if text.get_visible()]
    assert min(written) >= 0.1 and len(facts["table"]["word"]) == 7


def test_the_first_token_agrees_and_each_has_a_dot(shown):
    clinic.apart(patient("nonsense"), n=5)
    figure, facts = shown[0]
    assert facts["table"]["difference"][0] == "0" != facts["table"]["difference"][1]
    assert figure.axes[0].get_yscale() == "log" and len(facts["table"]["token"]) == 5


def test_a_bisection_has_a_row_for_each_run_and_names_what_is_left(shown):
    clinic.halving(["a", "b", "c", "d"], [(("a", "b"), True), (("c",), False)])
    figure, facts = shown[0]
    assert [text.get_text() for text in figure.axes[0].texts] == ["still ill", "healed"]
    assert facts["alt"].endswith("at the end: c.") and facts["table"]["exchanged"] == ["a, b", "c"]
