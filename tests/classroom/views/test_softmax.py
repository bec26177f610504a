"""The view of softmax: it stores the scores and names the largest probability."""

import math

import pytest
import torch
from support.views import table_rows

from tinylm_classroom.views.softmax import OVERFLOWS_ABOVE, softmax_view

SCORES, NAMES = torch.tensor([12.55478, 10.5282, -0.5, 3.98]), [" Jamal", " Carlos", "<b>", "."]


def test_it_stores_the_scores_and_names_the_largest_probability():
    view = softmax_view(SCORES, NAMES)
    assert view.data == {"names": ["Jamal", "Carlos", "<b>", "."], "scores": [12.5548, 10.5282, -0.5, 3.98]}
    total = sum(math.exp(score) for score in view.data["scores"])
    percent = 100 * math.exp(12.5548) / total
    says = f"Jamal, with the score 12.55, gets {percent:.1f} % of the probability."
    assert repr(view) == f"Softmax of 4 scores, step by step. {says}"
    assert view.html.count(says) == 2 and "<b>" not in view.html


def test_its_table_holds_scores_exponentials_and_probabilities():
    assert table_rows(softmax_view([2.0, 1.0, 0.1], ["a", "b", "c"]).html)[1:] == [
        ["a", "2.00", "1.00", "0.659"], ["b", "1.00", "0.368", "0.242"], ["c", "0.10", "0.150", "0.099"]
    ]  # fmt: skip


def test_fp32_overflows_where_it_says():
    just_below, just_above = torch.tensor([OVERFLOWS_ABOVE - 1e-4, OVERFLOWS_ABOVE + 1e-4]).exp()
    assert just_below.isfinite() and just_above.isinf()


def test_scores_far_apart_and_all_negative_are_drawn():
    assert "gets 100.0 %" in repr(softmax_view([20.0, 3.0, 1005.0], ["a", "b", "c"]))
    assert "gets 50.0 %" in repr(softmax_view([-200.0, -200.0], ["a", "b"]))
    assert "gets 50.0 %" in repr(softmax_view([0.0, 0.0], ["a", "b"]))


@pytest.mark.parametrize(("scores", "names", "message"), [
    ([1.0], ["a"], r"2 to 8 numbers, got the shape \(1,\)"), ([0.0] * 9, list("abcdefghi"), r"got the shape \(9,\)"),
    ([[1.0, 2.0]], ["a", "b"], r"one row of 2 to 8 numbers, got the shape \(1, 2\)"),
    ([1.0, math.nan], ["a", "b"], "must be finite, got nan: leave it out"),
    ([1.0, -math.inf], ["a", "b"], "must be finite, got -inf"), ([1.0, 2.0], ["a"], "names must be 2 different words"),
    ([1.0, 2.0], ["a", " a"], "names must be 2 different words"),
    ([1.0, 2.0], ["a", " "], "names must be 2 different words"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(scores, names, message):
    with pytest.raises(ValueError, match=message):
        softmax_view(scores, names)
