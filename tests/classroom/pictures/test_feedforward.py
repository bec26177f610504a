"""The pictures of lesson 08: grounds where a unit is active, misses in orange, one dot for each run and each word."""

from typing import Any

import pytest
import torch
from matplotlib.patches import FancyBboxPatch, Polygon

from tinylm_classroom.pictures import feedforward


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(feedforward)


SAID = ["One", " day", ",", " Mia", " met", " Tom", "."]
ACTIVE = [0.0, 11.0, -0.2, 3.0, 0.0, 0.9, 0.0]


def test_only_words_with_an_active_unit_have_a_ground_and_every_unit_has_the_whole_text(shown):
    feedforward.units(SAID, {3: ACTIVE, 5: ACTIVE[::-1]})
    figure, facts = shown[0]
    for ax in figure.axes:
        assert "".join(text.get_text() for text in ax.texts) == "Oneday,MiametTom."
        assert len([patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]) == 2
    assert [ax.get_ylabel() for ax in figure.axes] == ["unit 3", "unit 5"]
    assert facts["table"]["word"][1:3] == ["day", ","] and facts["table"]["unit 3"] == ACTIVE
    assert "unit 3 is most active at day" in facts["alt"] and "unit 5 is most active at Tom" in facts["alt"]


def test_what_a_unit_raises_is_written_below_its_text(shown):
    feedforward.units(SAID, {3: ACTIVE}, {3: ["end", "light"]})
    figure, facts = shown[0]
    assert figure.axes[0].texts[-1].get_text() == "then it raises:  end,  light"
    assert "unit 3 raises end, light" in facts["alt"]


def test_a_plane_misses_by_its_largest_difference_and_the_sheet_has_one_fold(shown):
    for plane in ((0.5, 0.5, -0.25), (1.0, 1.0, -1.0)):
        feedforward.plane_and_sheet(plane)
    (best, facts), (steep, _) = shown
    assert facts["table"]["plane"] == [-0.25, 0.25, 0.25, 0.75] and facts["table"]["sheet"] == [0, 0, 0, 1]
    assert best.axes[0].get_title() == "plane: misses by 0.25"
    assert steep.axes[0].get_title() == "plane: misses by 1.00"
    assert [len([line for line in ax.lines if line.get_linewidth() == 5]) for ax in best.axes] == [4, 0]
    assert len([line for line in steep.axes[0].lines if line.get_linewidth() == 5]) == 1
    assert [len([patch for patch in ax.patches if isinstance(patch, Polygon)]) for ax in best.axes] == [2, 3]


def test_every_run_is_a_dot_and_a_few_that_fail_say_how_many_units_are_alive(shown):
    few = torch.tensor([0.0, 0.125, 0.001, 0.0, 0.0])
    alive = torch.tensor([3, 1, 2, 4, 5])
    feedforward.runs({"ReLU": few, "none": few + 0.06}, {"ReLU": alive, "none": alive})
    figure, facts = shown[0]
    for ax in figure.axes:
        assert sum(len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o") == 5
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "number: units alive"]
    assert not figure.axes[1].texts
    assert [ax.get_title() for ax in figure.axes] == ["ReLU: 4 of 5 learn", "none: 0 of 5 learn"]
    assert facts["table"]["runs that fail"] == [1, 5]


def test_slopes_are_those_of_the_functions(shown):
    feedforward.curves({"ReLU": torch.relu, "SiLU": torch.nn.functional.silu})
    _, facts = shown[0]
    table = facts["table"]
    at = table["x"].index("-1")
    assert table["SiLU"][at] == "-0.2689" and table["slope of ReLU"][at] == "0.0000"
    assert table["slope of SiLU"][table["x"].index("0")] == "0.5000"


def test_the_branches_meet_in_a_product(shown):
    feedforward.branches()
    figure, facts = shown[0]
    assert [text.get_text() for text in figure.axes[0].texts].count("×") == 1
    assert facts["table"]["shape"] == ["(B, T, F)"] * 3 + ["(B, T, C)"]


def test_a_word_is_a_dot_after_each_beginning_and_three_misses_are_named(shown):
    words = [f"w{i}" for i in range(20)]
    said = [*words[:12], *["a", "a", "b", "c", "d", "d", "d", "d"]]
    probs = {"In the": [1 - i / 40 for i in range(20)], "By the": [0.0] * 19 + [0.9]}
    feedforward.written(words, probs, said)
    feedforward.written(words, probs, words)
    (figure, facts), (whole, _) = shown
    ax = figure.axes[0]
    assert ax.get_title(loc="left").endswith("12 of 20")
    assert [len(line.get_xdata()) for line in ax.lines] == [20, 20]
    texts = [text.get_text() for text in ax.texts]
    assert "write w19, it says d" in texts and sum(text.startswith("write") for text in texts) == 3
    assert "w19, as always" in texts
    assert not [text for text in whole.axes[0].texts if text.get_text().startswith("write")]
    assert facts["table"]["word"][0] == "w19" and len(facts["table"]["word"]) == 20
