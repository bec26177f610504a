"""The pictures of lesson 01: boxes are tokens, what is marked is what it says, and sums are those of the losses."""

import pytest
import torch

from tinylm_classroom.display.theme import SERIES
from tinylm_classroom.pictures import tokens
from tinylm_lib.text import train_bpe


@pytest.fixture
def shown(record):
    return record(tokens)


@pytest.fixture(scope="module")
def bpe():
    return train_bpe("er er er ha ha 47 47 47", 260)


def colours(ax):
    return [box.get_facecolor() for box in ax.patches]


def test_letters_are_hidden_until_one_is_asked_for(shown, bpe):
    tokens.reads(bpe, "rer")
    tokens.reads(bpe, "rer", "r")
    (hidden, first), (open_, second) = shown
    assert list(first["table"]) == ["id"] and "r" not in {text.get_text() for text in hidden.axes[0].texts}
    assert second["table"]["token"] == ["'r'", "'er'"] and "(1 times in" in second["caption"]
    alone, inside = colours(open_.axes[0])
    assert alone != inside and set(colours(hidden.axes[0])) == {(1.0, 1.0, 1.0, 1.0)}


def test_ten_numbers_are_cut_without_their_space(shown, bpe):
    tokens.numbers(bpe, 4706)
    cuts = shown[0][1]["table"]["cut"]
    assert len(cuts) == 10 and {cut.replace("|", "") for cut in cuts} == {str(4706 + i) for i in range(10)}


def test_scripts_are_bars_as_long_as_their_tokens(shown, bpe):
    tokens.scripts({"English": "ha er", "Thai": "สว"}, bpe)
    figure, facts = shown[0]
    assert [bar.get_width() for bar in figure.axes[0].patches] == facts["table"]["tokens"]
    assert facts["table"]["bytes"] == [5, 6] == [5, facts["table"]["tokens"][1]]


def test_what_a_merge_has_made_is_blue_in_its_row_only(shown):
    cuts = [["h", "a", "h", "a"], ["ha", "ha"], ["haha"]]

    def learn(ids, n):
        pieces = [piece.encode() for piece in cuts[n]]
        return list(range(len(pieces))), dict(enumerate(pieces))

    tokens.growing([0, 1, 0, 1], learn, 2)
    figure, facts = shown[0]
    assert facts["table"] == {"merges": [0, 1, 2], "text": ["h|a|h|a", "ha|ha", "haha"], "tokens": [4, 2, 1]}
    white = [colour == (1.0, 1.0, 1.0, 1.0) for colour in colours(figure.axes[0])]
    assert white == [True] * 4 + [False] * 3


def test_the_sums_are_those_of_the_losses(shown):
    tokens.same_sum({"words": (["ab"], [2.5]), "letters": (["a", "b"], [2.0, 0.5])})
    figure, facts = shown[0]
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said.count("2.50 nats") == 2 and facts["table"]["nats"] == ["2.5000", "2.5000"]


def test_each_seed_is_a_dot_at_the_text_in_view(shown):
    letters = torch.tensor([[1100.0, 1110], [600, 610], [300, 310]])
    tokens.by_text_seen(letters, {"words": (2.5, torch.tensor([400.0, 410]))}, 69.0)
    figure, facts = shown[0]
    dots = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "D")]
    assert [list(line.get_xdata()) for line in dots] == [[1, 1], [2, 2], [3, 3], [2.5, 2.5]]
    assert dots[-1].get_color() == SERIES[1] and facts["table"]["nats per story"][0] == "1100, 1110"
