"""The pictures of lesson 17: every run is a dot or a line, and the numbers are those of the record."""

from typing import Any

import pytest
import torch

from tinylm_classroom.experiments import judging
from tinylm_classroom.pictures import rewards

RECORDED = judging.recorded_rewards()
RUNS = RECORDED.runs[0.0, True, 0.0, 16]


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(rewards)


def dots(ax: Any) -> list[int]:
    return [len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]


def test_a_run_has_a_dot_for_each_update_and_the_others_are_lines(shown):
    rewards.judged([0.1] * 8 + [0.5] * 8, [0.02, 0.07], RUNS, RECORDED.coin)
    figure, facts = shown[0]
    left, right = figure.axes
    assert dots(left) == [16] and len(left.lines) == 7 and dots(right) == [5, 3, 2]
    assert list(left.lines[-1].get_ydata()) == pytest.approx([0.1, 0.1, 0.5, 0.5])
    assert facts["table"]["updates"] == ["1 to 4", "13 to 16"]


def test_the_estimates_of_each_baseline_are_a_row_and_the_chosen_one_is_in_the_title(shown):
    found = {"none": torch.tensor([-1.0, 1.0]), "best": torch.tensor([0.2, 0.2])}
    rewards.estimates(found, 0.2, "best")
    figure, facts = shown[0]
    assert figure.axes[0].get_title(loc="left") == "Baseline best: 0.20 ± 0.00 on average, spread 0.00"
    assert facts["table"]["mean"] == ["0.00", "0.20"] and facts["table"]["baseline"] == ["none", "best"]


def test_every_run_with_and_without_a_baseline_is_a_dot(shown):
    rewards.without_baseline(judging.without_baseline(RECORDED).runs, RECORDED.start)
    figure, facts = shown[0]
    assert dots(figure.axes[0]) == [5] * 6
    assert facts["table"]["with"] == [facts["table"]["with"][0]] * 3 and facts["table"]["without"][2] < 0.2


def test_the_mix_and_the_care_are_between_before_and_after(shown):
    rewards.avoided(RECORDED.start.kinds, [portrait.kinds for _, portrait in RUNS])
    figure, facts = shown[0]
    assert dots(figure.axes[0]) == [1, 5, 5, 5]
    before, mix, care, after = facts["table"]["possible"]
    assert before < care < mix < after
    assert [text.get_text() for text in figure.axes[0].texts] == [f"{each:.2f}" for each in (before, mix, care, after)]


def test_each_model_with_a_penalty_is_a_mark_in_both_charts(shown):
    rewards.penalties(judging.with_penalty(RECORDED), [(0.0, 0.2), (1.0, 0.9)])
    figure, facts = shown[0]
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in left.lines] == [2, 3, 3, 3, 3]
    assert [len(line.get_xdata()) for line in right.lines] == [3, 3, 3, 3]
    assert facts["table"]["beta"][::3] == ["0.00", "0.03", "0.10", "0.30"]


def test_each_run_of_pairs_is_a_line_from_where_it_starts(shown):
    rewards.margins({"DPO": RECORDED.pairs[0.0], "both": RECORDED.pairs[1.0]}, RECORDED.start.kinds)
    figure, facts = shown[0]
    ranks, moves, stories = figure.axes
    assert [len(ax.lines) for ax in (ranks, stories)] == [6, 6] and len(moves.lines) == 6
    assert {line.get_ydata()[0] for line in ranks.lines} == {0.5}
    assert facts["table"]["step"] == list(judging.PAIR_LOOKS)
