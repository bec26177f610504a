"""The pictures of lesson 16: bars, dots and cells are the numbers that they were given."""

from typing import Any

import pytest
import torch

from tinylm_classroom.experiments import owners
from tinylm_classroom.experiments.reading import WORDS
from tinylm_classroom.pictures import inside
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(inside)


def written(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_the_two_stories_are_written_out_with_a_bar_for_each_name(shown):
    said = owners.cast(1, seed=1)[0]
    inside.two_stories(SHIPPED.model.eval(), SHIPPED.tokenizer, said)
    figure, facts = shown[0]
    told = " ".join(written(figure.axes[0]))
    assert "Then Mia gave Carlos the white chair." in told and told.endswith("belonged to ___")
    lengths = [bar.get_width() / 15 for bar in figure.axes[0].patches]
    assert lengths == pytest.approx(facts["table"]["probability"]) and lengths[1] > 0.99 > 0.6 > lengths[2] > 0.4


def test_each_owner_is_a_dot_and_the_right_ones_are_counted(shown):
    found = {
        "one gift": (torch.tensor([1.0, 0.9]), torch.tensor([True, True])),
        "only a trade": (torch.tensor([0.5]), torch.tensor([False])),
    }
    inside.by_event(found)
    figure, facts = shown[0]
    assert [len(line.get_xdata()) for line in figure.axes[0].lines[:2]] == [2, 1]
    assert written(figure.axes[0]) == ["2 of 2 right", "0 of 1 right"] and facts["table"]["right"] == [
        "2 of 2",
        "0 of 1",
    ]


def test_the_maps_have_the_embedding_at_the_bottom_and_no_number_near_white(shown):
    read, used = torch.full((4, len(WORDS)), 0.5), torch.zeros(4, len(WORDS))
    read[0, 3], used[3, -1] = 0.97, 0.99
    inside.maps(read, used)
    figure, facts = shown[0]
    assert written(figure.axes[0]) == ["1.0"] and written(figure.axes[1]) == ["1.0"]
    assert figure.axes[0].images[0].get_array()[3, 3] == pytest.approx(0.94)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][3] == "embedding"
    assert facts["table"]["Used, after block 2"][-1] == pytest.approx(0.99)


def test_each_line_of_probes_has_its_name_in_its_colour(shown):
    inside.probed({"one": [0.5, 0.6, 0.7, 0.8], "two": [0.5, 0.5, 0.5, 0.79]})
    ax = shown[0][0].axes[0]
    names = {text.get_text(): text for text in ax.texts}
    assert {names[name].get_color() for name in ("one", "two")} == {line.get_color() for line in ax.lines[:2]}
    assert abs(names["one"].get_position()[1] - names["two"].get_position()[1]) > 0.08


def test_each_direction_is_a_dot(shown):
    curves = {"a": [0.0] * 7, "b": [0.5] * 7, "c": [1.0] * 7}
    inside.steered([-2, -1, -0.5, 0, 0.5, 1, 2], curves, {"the probe's": [0.4], "any direction": [0.1, 0.2]})
    figure, facts = shown[0]
    left, right = figure.axes
    assert [len(line.get_xdata()) for line in right.lines] == [1, 2] and written(left) == ["a", "b", "c"]
    assert facts["table"]["largest change"] == [0.4, 0.2]


def test_the_marks_name_the_head_with_the_largest_number(shown):
    values = torch.zeros(2, 4)
    values[1, 2] = 0.9
    inside.marks({"this model": torch.zeros(2, 4), "another start": values})
    figure, facts = shown[0]
    assert written(figure.axes[1])[:4] == ["0.00", "0.00", "0.90", "0.00"]
    assert "another start: layer 1, head 2" in facts["alt"]
