"""The pictures of lesson 18: bars, bands and cells are the numbers that they were given."""

from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import pretrained


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(pretrained)


def written(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_each_next_word_is_a_bar_and_the_title_has_the_likeliest(shown):
    pretrained.answers({"before": {" Rome": 0.25, " the": 0.125}, "after": {" Rome": 0.75, " Bari": 0.0625}})
    figure, facts = shown[0]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.25, 0.125, 0.75, 0.0625]
    assert figure.axes[0].get_title(loc="left") + figure.axes[0].get_title() == "It says Rome: 0.25, then 0.75"
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["Rome", "the", "Rome", "Bari"]
    assert facts["table"]["probability"] == (0.25, 0.125, 0.75, 0.0625)


def test_each_tensor_is_a_band_from_its_row_in_the_file_to_its_row_in_the_model(shown):
    tensors = [
        ("blk.0.ffn_up.weight", "blocks.0.ffn.up_proj.weight", 600),
        ("blk.0.attn_q.weight", "blocks.0.attention.q_proj.weight", 300),
        ("blk.1.attn_q.weight", "blocks.1.attention.q_proj.weight", 300),
        ("token_embd.weight", "embed.weight", 100),
    ]
    pretrained.conversion(tensors)
    ax = shown[0][0].axes[0]
    paths = [band.get_paths()[0].vertices for band in ax.collections]
    edges = [[path[path[:, 0] == side][:, 1] for side in (0, 1)] for path in paths]
    ends = [[float(edge.min() + edge.max()) / 2 for edge in both] for both in edges]
    assert torch.tensor(ends).round(decimals=3).tolist() == [[0, 2], [1, 1], [2, 0]]
    assert written(ax) == ["ffn_up", "ffn.up_proj", "attn_q", "attention.q_proj", "token_embd", "embed"]


def test_the_fingerprints_stop_at_one(shown):
    pretrained.fingerprints({"pairs": [0.0, 0.5], "ids": [3.0, 1.5]}, [0, 20])
    figure, facts = shown[0]
    assert figure.axes[0].images[0].get_array().tolist() == [[0.0, 0.5], [1.0, 1.0]]
    assert facts["table"]["position 20"] == ["0.50", "1.50"]


def test_each_training_is_a_dot(shown):
    pretrained.learned_and_forgotten({"all": [(0.5, 0.9), (0.9, 1.0)], "rank 4": [(0.8, 0.95)]}, (0.1, 0.8))
    lines = shown[0][0].axes[0].lines
    assert [len(line.get_xdata()) for line in lines] == [1, 2, 1]
    assert shown[0][1]["table"]["trained"] == ("all", "all", "rank 4")


def test_each_weight_is_on_one_of_16_lines(shown):
    pretrained.levels(torch.arange(32).remainder(16) / 5)
    ax = shown[0][0].axes[0]
    lines = [line.get_ydata()[0] for line in ax.lines[:16]]
    assert lines == pytest.approx([level / 5 for level in range(16)])
    assert len(ax.lines[16].get_xdata()) == 32 and "16 of 16" in ax.get_title(loc="left") + ax.get_title()


def test_the_tokens_of_each_language_are_a_bar(shown):
    pretrained.languages({"English": 10, "Hindi": 70})
    ax = shown[0][0].axes[0]
    assert [bar.get_width() for bar in ax.patches] == [10, 70] and written(ax) == ["10", "70"]
    assert "Hindi takes 7 times" in ax.get_title(loc="left") + ax.get_title()
