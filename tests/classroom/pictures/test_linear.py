"""The pictures of lesson 02: what they draw is what was computed, and a row is a question."""

from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import linear

WEIGHT = torch.tensor([[0.0, 1, 2], [-1, 0, 1]])
X = torch.tensor([[1.0, 2, 3], [4, 5, 6]])


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(linear)


def numbers(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def test_the_widest_directions_come_first_and_the_first_rows_are_on_the_positive_side():
    rows = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.3, 0.0], [-1.0, -0.3, 0.05]])
    for first in (torch.tensor([True, False, False]), torch.tensor([False, True, False])):
        plane = linear.in_plane(rows, first)
        assert (plane[first].mean(0) > -1e-6).all()
        assert plane[:, 0].var() > plane[:, 1].var() and (plane[0, 0] - plane[1, 0]).abs() > 1.8


def test_the_map_names_each_cloud_once_in_the_second_table(shown):
    tables = {"before": torch.randn(9, 5), "after": torch.randn(9, 5)}
    kinds = {name: torch.tensor([i, i + 1, i + 2]) for i, name in enumerate(("girls", "boys", "traits"))}
    linear.word_map(tables, kinds)
    figure, facts = shown[0]
    assert [numbers(ax) for ax in figure.axes] == [[], ["girls", "boys", "traits"]]
    assert [ax.get_title() for ax in figure.axes] == ["before", "after"]
    assert facts["table"]["kind, mean of"] == [*kinds] and "9 words" in facts["alt"]


def test_three_grids_are_to_scale_and_show_the_product(shown):
    linear.three_grids(X, WEIGHT, ["kite", "lamp"], ["a", "b", "c"], ["fun in wind?", "can it sing?"])
    figure, facts = shown[0]
    assert [numbers(ax) for ax in figure.axes] == [
        ["1", "2", "3", "4", "5", "6"], ["0", "1", "2", "-1", "0", "1"], ["8", "2", "17", "2"],
    ]  # fmt: skip
    assert figure.get_supxlabel() == "1·0 + 2·1 + 3·2 = 8"
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["fun in wind?", "can it sing?"]
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["wind?", "sing?"]
    assert {ax.get_ylim() for ax in figure.axes} == {(1.5, -0.5)}
    assert facts["table"]["fun in wind?"] == [8, 17] and "8" in facts["alt"]


def test_slope_and_chain_compute_the_gradient_that_backward_finds(shown):
    weights = torch.tensor([1.5, 2.0], requires_grad=True)
    ((weights @ torch.tensor([3.0, -1.0]) - 4) ** 2).backward()
    linear.slope([3.0, -1.0], 4.0, [1.5, 2.0])
    linear.chain([3.0, -1.0], 4.0, [1.5, 2.0])
    (slope, _), (chain, facts) = shown
    assert weights.grad[0] == -9 and any("slope -9" in text for text in numbers(slope.axes[0]))
    assert "back from the loss: -3 · 1 · 3 = -9" in numbers(chain.axes[0])
    assert facts["table"]["slope"] == [3, 1, -3] and facts["table"]["from"][0] == "weight 1.5"


def test_found_questions_are_rows_with_a_dot_for_each_run(shown):
    asked = []

    def learn(words: range, updates: int, seed: int = 2) -> torch.Tensor:
        asked.append(seed)
        return WEIGHT + (seed + 1) / (1 + updates)

    linear.found_questions(learn, WEIGHT, ["windy?", "sing?"], ["a", "b", "c"], (0, 4))
    figure, facts = shown[0]
    grids, dots = figure.axes[:3], figure.axes[3]
    assert [ax.get_title() for ax in grids] == ["at the start", "100 updates", "hidden"]
    assert numbers(grids[2]) == ["0.0", "1.0", "2.0", "-1.0", "0.0", "1.0"]
    assert [label.get_text() for label in grids[0].get_yticklabels()] == ["windy?", "sing?"]
    drawn = [line.get_ydata() for line in dots.lines]
    assert [len(each) for each in drawn] == [2] * 4 and drawn[0] == pytest.approx([1, 5])
    assert set(asked) == {0, 2, 4} and "0 updates, at most 5.0" in facts["alt"]
    assert facts["table"]["weight of"] == ["a", "b", "c"] * 2 and facts["table"]["question"][3] == "sing?"


def test_fit_and_test_counts_each_half_of_each_split(shown):
    made = torch.tensor([True, True, False, False])
    splits = [(made, torch.tensor([False, True, True, True])), (~made, torch.tensor([True, True, False, False]))]
    linear.fit_and_test(splits)
    figure, facts = shown[0]
    assert [list(line.get_ydata()) for line in figure.axes[0].lines[:2]] == [[1, 0], [2, 2]]
    assert facts["table"]["right"] == ["0 to 1", "2 to 2"]
