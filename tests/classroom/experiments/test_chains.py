"""Chains of layers: known sizes, a task that can be solved by hand, and the same start for the same seed."""

import math

import pytest
import torch

from tinylm_classroom.experiments import chains
from tinylm_classroom.experiments.sizes import sizes_and_surest
from tinylm_lib.pretrained import load_pretrained


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2])
def test_an_orthogonal_layer_keeps_the_size_and_a_factor_multiplies_it(factor):
    assert chains.sizes(factor) == pytest.approx([factor**n for n in range(1, 25)], rel=1e-4)


def test_a_norm_after_each_layer_keeps_the_size():
    assert chains.sizes(1.2, lambda x: x / x.square().mean(-1, keepdim=True).sqrt()) == pytest.approx([1.0] * 24)


def test_runs_begin_alike_but_for_their_factor():
    found = chains.starts([0.5, 2.0], [3, 4])
    weights = found.weights.detach()
    assert weights.shape == (24, 4, 32, 32) and torch.allclose(4 * weights[:, :2], weights[:, 2:])
    assert found.tokens[0].equal(found.tokens[2]) and not found.tokens[0].equal(found.tokens[1])
    eye = weights[:, 0] @ weights[:, 0].mT / 0.25
    assert torch.allclose(eye, torch.eye(32).expand(24, -1, -1), atol=1e-5)
    assert found.answers[0, :4].tolist() == [3, 8, 13, 2] and sorted(found.answers[0].tolist()) == list(range(16))
    assert math.log(16) == chains.GUESSING


def test_the_size_in_front_of_the_final_norm_next_to_the_surest_guess():
    shipped = load_pretrained("storyworld")
    sizes, surest = sizes_and_surest(shipped.model.eval(), shipped.tokenizer, seed=3, n_stories=2, n_tokens=20)
    assert sizes.shape == surest.shape == (40,) and sizes.min() > 0
    assert surest.min() > 1 / shipped.tokenizer.vocab_size and surest.max() <= 1
