"""The pictures of lesson 07: a thread is a look, a frame is around the right cell, and small numbers are left out."""

from typing import Any

import pytest
import torch
from matplotlib.patches import PathPatch, Rectangle

from tinylm_classroom.pictures import heads
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.tokenizers import words

SHIPPED = load_pretrained("storyworld")
STORY = storyworld.story(torch.Generator().manual_seed(11))


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(heads)


def test_a_thread_leads_from_a_determining_word_in_the_colour_of_its_head(shown):
    for kinds in (["place", "object"], ["name"], []):
        heads.threads(SHIPPED.model.eval(), SHIPPED.tokenizer, STORY, kinds, layer=2)
    (first, facts), (_, names), (_, none) = shown
    table = facts["table"]
    assert table["looks at"] == table["before it says"] == ["Eastbridge", "Eastbridge", "book", "cup"]
    assert table["head"] == ["head 2", "head 2", "head 0", "head 0"] and min(table["weight"]) > 0.4
    assert len([patch for patch in first.axes[0].patches if isinstance(patch, PathPatch)]) == 4
    assert "".join(text.get_text() for text in first.axes[0].texts) == STORY.text.replace(" ", "")
    assert set(names["table"]["looks at"]) == {"Ivan"} and none["table"]["weight"] == ["-"]
    assert len(words(STORY.text)) == len(STORY.kinds)


def test_the_trained_maps_say_how_far_back_and_every_run_is_a_dot(shown):
    one, two = torch.zeros(1, 12, 12), torch.zeros(2, 12, 12)
    one[0].diagonal(-1).fill_(0.5)
    one[0].diagonal(-2).fill_(0.5)
    two[0].diagonal(-2).fill_(1)
    two[1].diagonal(-1).fill_(0.75)
    heads.trained(one, two, {"1 head": [0.7, 0.75], "2 heads": [0.0, 0.01, 0.02]})
    figure, facts = shown[0]
    written = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    assert written == [["1 back: 0.50", "2 back: 0.50"], ["2 back: 1.00"], ["1 back: 0.75"], ["ln 2"]]
    dots = [line.get_ydata() for line in figure.axes[3].lines if len(line.get_ydata()) != 2 or line.get_marker() == "o"]
    assert [len(each) for each in dots] == [2, 3] and facts["table"]["heads"] == ["1 head", "2 heads"]


def test_the_flow_has_a_part_for_each_head_and_its_map(shown):
    heads.flow(torch.rand(4, 5, 5))
    figure, facts = shown[0]
    assert len(figure.axes[0].images) == 4 and [t.get_text() for t in figure.axes[0].texts].count("+") == 3
    assert facts["table"]["step"][4] == "times its part of W_O" and facts["table"]["shape"][-1] == "(B, T, C)"


def test_each_query_head_is_joined_to_the_keys_of_its_group(shown):
    heads.groups(8, (8, 2, 1))
    figure, facts = shown[0]
    ends = [round(line.get_xdata()[1], 2) for line in figure.axes[0].lines]
    assert [len(set(ends[i : i + 8])) for i in (0, 8, 16)] == [8, 2, 1]
    assert facts["table"]["query heads of each"] == [1, 4, 8]


def test_a_frame_is_around_the_cell_of_its_kind_and_head_and_small_numbers_are_left_out(shown):
    looks = {"name": torch.zeros(3, 4), "place": torch.full((3, 4), 0.049)}
    looks["name"][1, 2] = 0.31
    heads.maps({"looks": looks})
    heads.maps({"looks": looks, "lost": looks}, [("name", 1, 2), ("place", 2, 0)])
    (one, _), (two, facts) = shown
    assert [text.get_text() for text in one.axes[0].texts] == ["0.31"] and not one.axes[0].patches
    corners = [patch.get_xy() for patch in two.axes[1].patches if isinstance(patch, Rectangle)]
    assert corners == [(-0.5, 5.5), (0.5, 7.5)]
    assert facts["table"]["head"][6] == "layer 1, head 2"
    assert facts["table"]["lost: name"][6] == pytest.approx(0.31)


def test_only_heads_that_look_at_names_have_a_bar(shown):
    heads.pushes({(0, 0): (0.1, [9.0]), (1, 1): (0.9, [2.0, 3.0]), (1, 2): (1.0, [-3.0, -4.0])})
    figure, facts = shown[0]
    assert facts["table"] == {"head": ["layer 1, head 1", "layer 1, head 2"], "added": [2.5, -3.5]}
    assert [bar.get_width() for bar in figure.axes[0].patches] == [2.5, -3.5]
    assert [text.get_text() for text in figure.axes[0].texts] == ["+2.5", "\N{MINUS SIGN}3.5"]
