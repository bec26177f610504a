"""The pictures of lesson 06: every run is a dot, and means are those of the data."""

import pytest
import torch

from tinylm_classroom.pictures import positions


@pytest.fixture
def shown(record):
    return record(positions)


def test_two_sentences_are_joined_word_by_word(shown):
    weights = [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5]]
    positions.last_looks([["a", "b", "."], ["b", "a", "."]], weights)
    figure, facts = shown[0]
    ends = [tuple(float(x) for x in line.get_xdata()) for line in figure.axes[0].lines]
    assert ends == [(0, 1), (1, 0), (2, 2)]
    assert facts["table"]["in the other sentence"] == [0.25, 0.25, 0.5]
    positions.last_looks([["a", "."]], [[0.5, 0.5]])
    assert not shown[1][0].axes[0].lines and set(shown[1][1]["table"]) == {"word", "weight"}


def test_each_kind_has_a_row_of_maps_and_its_weight_on_the_diagonal(shown):
    even, found = torch.full((16, 16), 1 / 16), torch.eye(16).roll(2, 0)
    positions.counting({"without": {0: even, 9: even}, "with": {0: even, 9: found}}, back=2)
    figure, facts = shown[0]
    assert len(figure.axes) == 4 and [ax.get_title() for ax in figure.axes] == ["0 updates", "9 updates", "", ""]
    assert facts["table"]["weight 2 back, with"] == pytest.approx([1 / 16, 1])


def test_each_head_is_a_dot_in_each_span_of_positions(shown):
    rows = [torch.cat((torch.ones(14), torch.full((48,), low))) for low in (0.25, 0.5)]
    positions.beyond({"a": rows, "b": rows}, back=2, trained=16)
    figure, facts = shown[0]
    dots = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 2]
    assert len(dots) == 8 and [line.get_ydata()[0] for line in dots[:4]] == [1.0, 0.25, 0.25, 0.25]
    assert facts["table"]["positions"] == ["2 to 15", "16 to 31", "32 to 47", "48 to 63"]
    assert facts["table"]["a"] == ["1.00 to 1.00", *["0.25 to 0.50"] * 3]


def test_losses_are_averaged_by_span_and_a_second_line_changes_the_title(shown):
    sets = [torch.arange(8.0).expand(3, 8) * scale for scale in (0.1, 0.3)]
    positions.long_texts({"whole text": sets}, step=4, trained=4)
    positions.long_texts({"whole text": sets, "window": sets}, step=4, trained=4)
    (first, facts), (second, _) = shown
    assert facts["table"]["whole text"] == ["0.30", "1.10"] and facts["table"]["positions"] == ["0 to 3", "4 to 7"]
    titles = [figure.axes[0].get_title(loc="left") or figure.axes[0].get_title() for figure in (first, second)]
    assert "rises" in titles[0] and "is gone" in titles[1]


def test_waves_and_arrows_are_drawn_as_they_are(shown):
    table = torch.linspace(-1, 1, 64).view(8, 8)
    positions.waves(table)
    positions.circle([(1, 0), (0, 1)])
    (wave, facts), (circle, told) = shown
    assert torch.as_tensor(wave.axes[0].images[0].get_array()).equal(table)
    assert facts["table"]["position"] == [
        0,
        1,
        6,
        7,
    ]
    assert told["table"] == {"position": [0, 1], "first": [1, 0], "second": [0, 1]} and len(circle.axes[0].texts) == 4
