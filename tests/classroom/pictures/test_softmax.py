"""The pictures of lesson 03: their bars, points and levels are the numbers that they get."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import softmax

WORDS = ["a", "b", "c"]
TOKENIZER = SimpleNamespace(decode=lambda ids: f" {WORDS[ids[0]]}")
SCORES = torch.tensor([2.0, 1.0, -8.0])
EXACT = torch.tensor([0.75, 0.25, 0.0])


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(softmax)


def numbers(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("n_stages", [1, 2, 3])
def test_columns_grow_from_scores_to_probabilities(shown, n_stages):
    softmax.columns(TOKENIZER, torch.tensor([1, 0, 2]), SCORES, EXACT, n_stages)
    figure, facts = shown[0]
    columns = [["1.0", "2.0", "-8.0"], ["2.72", "7.39", "0.00"], ["0.269", "0.731", "0.0000332"]]
    assert [numbers(ax) for ax in figure.axes] == [*columns[:n_stages], *[[]] * (3 - n_stages)]
    assert [*facts["table"]][1:4] == ["score", "exponential", "probability"][:n_stages]
    assert facts["table"]["word"] == ["b", "a", "c"] and ("exact" in facts["table"]) == (n_stages == 3)
    bars = [bar.get_width() for bar in figure.axes[n_stages - 1].patches]
    want = (SCORES, SCORES.exp(), SCORES.softmax(0))[n_stages - 1][[1, 0, 2]]
    assert bars == pytest.approx(want.tolist())


def test_a_loss_that_is_too_high_for_the_picture_is_named(shown):
    softmax.loss_of_what_comes({"In": math.log(4), "kite": 14.5})
    figure, facts = shown[0]
    assert numbers(figure.axes[0]) == ["In", "kite: 14.5 nats, far above this picture"]
    assert figure.axes[0].lines[1].get_xydata()[0].tolist() == pytest.approx([0.25, math.log(4)])
    assert facts["table"]["probability"][0] == pytest.approx(0.25)


def test_a_table_learns_with_a_curve_for_each_run_and_the_levels_by_name(shown):
    runs = {"stories": [[6.0, 3.0, 2.0], [6.0, 3.5, 2.2]], "shuffled": [[6.0, 5.5, 5.0], [6.0, 5.3, 4.8]]}
    softmax.table_learns(runs, {"2.1, one back": 2.1, "5.0, how common": 5.0})
    figure, facts = shown[0]
    drawn = [list(line.get_ydata()) for line in figure.axes[0].lines]
    assert drawn[:4] == [*runs["stories"], *runs["shuffled"]] and drawn[4:] == [[2.1, 2.1], [5.0, 5.0]]
    assert numbers(figure.axes[0]) == ["stories", "shuffled", "2.1, one back", "5.0, how common"]
    assert "stories ends at 2.1; shuffled ends at 4.9" in facts["alt"]


def test_each_valley_is_lowest_at_its_exact_probability(shown):
    softmax.valleys({"model": 0.6, "sure": 0.95})
    figure, facts = shown[0]
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 99]
    assert [curve.get_xdata()[curve.get_ydata().argmin()].item() for curve in curves] == pytest.approx([0.5, 0.7])
    mean = -(math.log(0.6) + math.log(0.4)) / 2
    assert facts["table"]["mean loss"][0] == pytest.approx(mean) and f"model {mean:.2f}" in numbers(figure.axes[0])


def test_once_and_twice_have_a_dot_for_each_seed(shown):
    at = (2, 20, 200)
    right = {
        "once": torch.tensor([[0.0, 0.5], [1, 1], [1, 1]]),
        "twice": torch.tensor([[0.0, 0], [0.1, 0.2], [0.3, 0.5]]),
    }
    softmax.once_and_twice(at, right)
    figure, facts = shown[0]
    dots = [line.get_ydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert dots[:3] == [[0, 50], [100, 100], [100, 100]] and dots[5] == pytest.approx([30, 50])
    assert facts["table"]["twice"] == ["0 to 0 %", "10 to 20 %", "30 to 50 %"] and "twice 40 %" in facts["alt"]
