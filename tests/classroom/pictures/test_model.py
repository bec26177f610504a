"""The pictures of lesson 10: depth runs upwards, each run is a dot, and the parts of a model add up."""

from math import log
from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import model as pictures
from tinylm_lib import TransformerLM, preset


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(pictures)


def test_each_set_of_stories_is_a_dot_beside_its_bar(shown):
    pictures.orders({"as trained": [0.8, 1.0], "no blocks": [3.9, 4.1], "reversed": [4.4, 4.6]})
    figure, facts = shown[0]
    ax = figure.axes[0]
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.9, 4.0, 4.5])
    assert [list(line.get_xdata()) for line in ax.lines] == [[0.8, 1.0], [3.9, 4.1], [4.4, 4.6]]
    assert facts["table"]["blocks"] == ["as trained", "no blocks", "reversed"]


def test_the_curve_of_the_first_loss_begins_at_ln_v(shown):
    pictures.first_losses({0.01: [5.85, 5.86], 0.2: [8.4, 8.3]}, vocab_size=345, width=128)
    figure, facts = shown[0]
    curve, level, *dots = figure.axes[0].lines
    assert curve.get_ydata()[0] == pytest.approx(log(345)) == level.get_ydata()[0]
    assert [list(dot.get_ydata()) for dot in dots] == [[5.85, 5.86], [8.4, 8.3]]
    assert facts["table"]["ln V + s²/2"][1] == pytest.approx(log(345) + 128 * 0.04 / 2)


def test_the_embedding_is_the_lowest_row_of_the_exchanges_and_small_numbers_are_left_out(shown):
    grid = torch.zeros(3, 4)
    grid[0, 1], grid[2, 3], grid[1, 2] = 0.98, 1.0, 0.049
    pictures.exchanges(grid, "(start) (name) had .", "At the name")
    figure, facts = shown[0]
    ax = figure.axes[0]
    assert {text.get_text(): text.get_position() for text in ax.texts} == {"0.98": (1, 0), "1.00": (3, 2)}
    assert ax.get_ylim()[0] < ax.get_ylim()[1] and ax.get_yticklabels()[0].get_text() == "embedding"
    assert facts["table"]["depth"] == ["embedding", "after block 0", "after block 1"]
    assert "embedding at (name), after block 1 at ." in facts["alt"] and facts["table"]["2 had"][1] == "0.05"


def test_the_parts_of_a_model_are_its_parameters_without_norms(shown):
    config = preset("gpt", vocab_size=50, d_model=8, n_heads=2, n_layers=2, d_ff=16, tie_embeddings=False)
    lm = TransformerLM(config)
    tables, attention, ffn = pictures.parts_of(lm)
    assert (tables, attention, ffn) == (2 * 50 * 8, 2 * 4 * 8 * 8, 2 * (2 * 8 * 16 + 16 + 8))
    pictures.where_parameters({"small": lm})
    figure, facts = shown[0]
    total = sum(p.numel() for p in lm.parameters())
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths == pytest.approx([tables / total, attention / total, ffn / total])
    assert facts["table"]["attention"] == [f"{attention / total:.0%}"]


def test_a_line_for_each_seed_of_each_recipe(shown):
    pictures.growth({"kaiming": [[1.0, 2.0, 8.0], [1.0, 3.0, 6.0]], "gpt2": [[0.5, 0.5, 0.5]]})
    figure, facts = shown[0]
    assert len(figure.axes[0].lines) == 3
    assert facts["table"]["times as large at the end"] == [7.0, 1.0]
