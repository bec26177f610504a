"""What a choice does before and early in training."""

from math import log

import pytest
import torch

from tinylm_classroom.experiments.choices import kept_bytes, overfit, repeats, stream_sizes
from tinylm_lib import ModelConfig, preset
from tinylm_lib.cost import training_bytes


def test_twice_the_texts_keep_twice_the_bytes_and_parameters_are_not_counted() -> None:
    config = preset("tiny_transformer", "tiny")
    one, two, four = (kept_bytes(config, n_texts, 32) for n_texts in (1, 2, 4))
    assert (four - two) == pytest.approx(2 * (two - one), rel=0.01) and one < training_bytes(config)
    assert kept_bytes(config, 1, 64) > 2 * one


def test_blocks_that_add_nothing_leave_the_stream_as_it_was() -> None:
    sizes = stream_sizes("zero_residual", seed=1)
    assert len(sizes) == 13 and max(sizes) == min(sizes)
    assert stream_sizes("kaiming", seed=1)[-1] > 3 * stream_sizes("kaiming", seed=1)[0]


def test_a_spoiled_model_begins_at_ln_v_and_learns_later() -> None:
    config = ModelConfig(vocab_size=30, d_model=32, n_heads=2, n_layers=1)
    batch = torch.randint(30, (4, 9), generator=torch.Generator().manual_seed(0))
    right, spoiled = (overfit(config, batch, spoiled=spoiled, seed=0) for spoiled in (False, True))
    assert spoiled.first == pytest.approx(log(30), abs=0.01) and right.last < right.first
    assert spoiled.last > right.last + 0.3 and spoiled.gradient < right.gradient / 10


def test_only_scaled_embeddings_are_repeated() -> None:
    again, on_next, on_itself = repeats(scaled=True, seed=0)
    assert again > 0.9 and on_itself < log(10_000) - 2 < on_next
    assert repeats(scaled=False, seed=0)[0] < 0.5
