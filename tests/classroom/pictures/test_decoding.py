"""The pictures of lesson 12: a dart frames its boxes, a cross is on what cannot be, errors are drawn."""

from typing import Any

import pytest
import torch
from matplotlib.colors import to_hex

from tinylm_classroom.experiments.decoding import recorded, two_words
from tinylm_classroom.pictures import decoding

TREE = two_words({" red": 0.6, " old": 0.4}, {" red": {" kite": 0.5, " hat": 0.5}, " old": {" kite": 0.9, " hat": 0.1}})


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(decoding)


def boxes(figure: Any) -> list[tuple[float, float, str, float]]:
    """Column, height, colour and width of the edge of each box."""
    bars = figure.axes[0].patches
    return [(b.get_x() + b.get_width() / 2, b.get_height(), to_hex(b.get_facecolor()), b.get_linewidth()) for b in bars]


def test_a_dart_frames_one_box_of_each_column_and_names_its_words(shown):
    decoding.texts(TREE, "A tree", dart=0.7)
    figure, facts = shown[0]
    framed = [(round(x), round(height, 3)) for x, height, _, edge in boxes(figure) if edge > 2]
    assert framed == [(1, 0.388), (2, 0.348)]  # the frames lie inside of the boxes
    assert facts["alt"].endswith("The dart at 0.7 writes: old kite.")
    assert facts["table"]["their probability"] == pytest.approx([1, 1])


def test_what_cannot_be_is_orange_and_has_a_cross_and_its_probability_is_in_the_table(shown):
    decoding.texts(TREE, "A tree", possible=lambda text: not text.endswith("hat"))
    decoding.texts(TREE, "A tree")
    (figure, facts), (plain, unmarked) = shown
    wrong = [round(height, 2) for _, height, color, _ in boxes(figure) if color == decoding.WRONG]
    assert wrong == [0.3, 0.04] and facts["table"]["impossible"] == pytest.approx([0, 0.34])
    assert [text.get_text() for text in figure.axes[0].texts].count("✗ hat") == 1  # the other box is too small
    assert decoding.WRONG not in [color for *_, color, _ in boxes(plain)] and "impossible" not in unmarked["table"]


def test_a_word_has_the_same_colour_in_each_branch_and_a_framed_tree_has_numbers(shown):
    decoding.texts(TREE, "A tree", framed=[" old kite"])
    figure, _ = shown[0]
    colors = [color for x, _, color, _ in boxes(figure) if x > 1.5]
    assert colors[0] == colors[2] != colors[1] == colors[3]
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["red  0.60", "old  0.40"]


def test_the_rules_keep_what_they_say(shown):
    decoding.rules(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    figure, facts = shown[0]
    n_cut = [[text.get_text() for text in ax.texts].count("✗") for ax in figure.axes]
    assert n_cut == [0, 0, 2, 1, 2, 1]
    assert all(sum(column) == pytest.approx(1) for column in facts["table"].values())


def test_each_story_is_a_dot(shown):
    decoding.gifts([0.4, 0.5, 0.6])
    figure, facts = shown[0]
    assert list(figure.axes[0].lines[1].get_xdata()) == [0.4, 0.5, 0.6] and "3 stories" in facts["alt"]


def test_the_record_is_drawn_with_two_standard_errors(shown):
    dial = recorded("all", "temperature")[:5]
    decoding.trade_off(dial, {"true stories": recorded("all", "true")[0]}, "A title")
    decoding.same_events({"all stories": dial, "after a gift": recorded("a gift", "temperature")})
    (one, facts), (two, events) = shown
    first = one.axes[0].containers[0]
    (sideways, upwards) = first.lines[2]
    low, high = upwards.get_segments()[0][:, 1]
    assert (high - low) / 4 == pytest.approx(dial[0].part_error)
    left, right = sideways.get_segments()[0][:, 0]
    assert (right - left) / 4 == pytest.approx(dial[0].error)
    assert facts["table"]["stories"][-1] == "true stories" and len(two.axes[0].containers) == 2
    assert events["table"]["after a gift"] == [run.part for run in recorded("a gift", "temperature")]


def test_the_drawn_sequences_are_counted(shown):
    decoding.typical([-10.0 + i / 10 for i in range(100)], 5.0, "A title")
    _, facts = shown[0]
    assert sum(facts["table"]["sequences"]) == 100
