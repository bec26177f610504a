"""Exact predictions and those of a model, what nobody has counted, and a rule learned with softmax once or twice."""

import math

import pytest
import torch

from tinylm_classroom import exact_after, gaps, learn_rule, levels_of_guessing, never_read
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained


@pytest.fixture(scope="module")
def shipped():
    return load_pretrained("storyworld")


def test_the_exact_probabilities_are_those_of_the_reader(shipped):
    row = exact_after("One", shipped.tokenizer)  # then comes one of 14 words for the weather
    assert row.shape == (345,) and row.sum() == pytest.approx(1)
    assert row[row > 0].tolist() == pytest.approx([1 / 14] * 14)
    assert row[shipped.tokenizer.encode(" foggy")] > 0 and row[shipped.tokenizer.encode(" kite")] == 0


def test_entropy_and_divergence_add_up_to_the_mean_loss_and_an_exact_model_adds_nothing(shipped):
    model, tokenizer = shipped.model.eval(), shipped.tokenizer
    found = gaps(model, tokenizer, [3, 4])
    stories = [storyworld.story(torch.Generator().manual_seed(seed)) for seed in (3, 4)]
    n_tokens = [len(storyworld.words(story.text + "\n")) for story in stories]
    assert [len(each) for each in found] == [sum(n_tokens)] * 3
    assert found.divergence.min() > -1e-5 and found.divergence.mean() == pytest.approx(0.02, abs=0.015)
    assert found.entropy[1].item() == pytest.approx(math.log(14), abs=1e-5)  # the weather
    ids = torch.tensor([tokenizer.encode(f"\n{stories[0].text}\n")])
    with torch.no_grad():
        by_hand = torch.nn.functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="none")
    torch.testing.assert_close(found.loss[: n_tokens[0]], by_hand)


def test_levels_are_named_by_their_numbers(shipped):
    levels = levels_of_guessing(shipped.tokenizer)
    assert [name.split(",")[0] for name in levels] == ["5.8", "5.0", "2.1"]
    assert all(name.startswith(f"{level:.1f}") for name, level in levels.items())


def test_runs_that_were_never_read():
    read, new = torch.tensor([1, 2, 3, 1]), torch.tensor([1, 2, 1, 3, 1])
    assert [never_read(read, new, n) for n in (1, 2, 3)] == [0, 0.5, 1]


@pytest.mark.parametrize("twice", [False, True])
def test_the_rule_is_learned_and_a_second_softmax_slows_it_down(twice):
    right = learn_rule(twice, (0, 1), (0, 20, 60), deviation=1.0)  # (3, 2)
    assert right.shape == (3, 2) and right[0].max() < 0.2
    assert (right[1] == 1).all() != twice and right[2].mean() > right[0].mean() + 0.3
    alone = learn_rule(twice, (1,), (20,), deviation=1.0)  # each seed for itself
    torch.testing.assert_close(alone[0, 0], right[1, 1])


def test_from_equal_scores_one_update_breaks_the_tie():
    """So a start from zeros cannot show what a second softmax does."""
    assert learn_rule(True, (0,), (0, 1), deviation=0.0).flatten().tolist() == [1 / 32, 1]
