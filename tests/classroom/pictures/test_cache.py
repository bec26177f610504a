"""The pictures of lesson 13: which positions a call computes, and what a mistake with a cache breaks."""

from types import SimpleNamespace

import pytest
import torch

from tinylm_classroom.pictures import cache

TOKENIZER = SimpleNamespace(decode=lambda ids: {0: "\n"}.get(ids[0], f" w{ids[0]}"))


@pytest.fixture
def shown(record):
    return record(cache)


def test_each_call_is_a_row_and_what_was_there_before_is_not_new(shown):
    written = torch.arange(7)[None]
    same = torch.tensor([[False] * 6, [True] * 4 + [False] * 2, [True] * 5 + [False]])
    cache.calls(TOKENIZER, written, [4, 5, 6])
    cache.calls(TOKENIZER, written, [4, 5, 6], same)
    (whole, plain), (both, facts) = shown
    assert plain["table"] == {"call": [1, 2, 3], "computed": [4, 5, 6]} and facts["table"]["of them new"] == [4, 1, 1]
    assert whole.axes[0].images[0].get_array().sum() == 3 * 15
    kinds = torch.tensor(both.axes[1].images[0].get_array().tolist())
    assert kinds.flatten().bincount(minlength=4).tolist() == [3, 9, 0, 6]
    assert "Only 6 are new" in both.axes[1].get_title("left") and "(line end)" in [
        t.get_text() for t in whole.axes[0].get_xticklabels()
    ]


def test_the_seconds_of_a_text_end_with_their_names(shown):
    cache.seconds([0.1, 0.2, 0.3, 0.4], [0.2, 0.6, 1.2, 2.0])
    figure, facts = shown[0]
    assert [line.get_ydata()[-1] for line in figure.axes[0].lines] == [2.0, 0.4]
    assert facts["table"]["tokens"] == [1, 2, 3, 4] and len(facts["table"]["with a cache"]) == 4


def test_a_cache_is_judged_inside_the_prompt_and_in_single_steps():
    texts = torch.tensor([[1, 2, 3, 0, 1, 2]])
    right = 9.0 * torch.nn.functional.one_hot(texts.roll(-1), 4).float()  # (B, T, V), sure of the next one
    wrong = right.clone()
    wrong[:, 3:] = wrong[:, 3:].flip(-1)
    rows = cache.judged({"right": right, "wrong steps": wrong}, texts)
    assert rows["right"][:2] == pytest.approx((0.0004, 0.0004), abs=1e-3) and rows["right"][2] == 0
    inside, steps, other = rows["wrong steps"]
    assert inside == rows["right"][0] and steps > 4 and other == 1


def test_the_mistakes_are_drawn_with_both_losses(shown):
    cache.mistakes({"right": (1.0, 1.1, 0.0), "no mask": (2.0, 1.2, 0.25)})
    figure, facts = shown[0]
    assert sorted(bar.get_width() for bar in figure.axes[0].patches) == [1.0, 1.1, 1.2, 2.0]
    assert facts["table"]["other most probable token"] == ["0%", "25%"]
