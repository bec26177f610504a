"""The schedule and the optimizer against numbers worked out by hand."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from toys import examples, toy_model

from tinylm_lib import TrainConfig, TransformerLM, preset
from tinylm_lib.optim import build_optimizer, warmup_cosine

# --- warmup_cosine ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "lr"),
    [
        (0, 0),
        (1, 2e-6),
        (250, 5.000e-4),
        (499, 9.98e-4),
        (500, 1e-3),
        (2000, 9.458e-4),
        (5250, 5.500e-4),
        (9999, 1e-4),
        (10_000, 1e-4),
        (15_000, 1e-4),
        (19_500, 1e-4),
    ],
)
def test_pinned_learning_rates(step: int, lr: float) -> None:
    assert warmup_cosine(step, 1e-3, 1e-4, 500, 10_000) == pytest.approx(lr, abs=5e-8)


@pytest.mark.parametrize(
    ("warmup", "total", "expected"),
    [
        (0, 4, [None, 0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.1 + 0.9 * (1 - math.sqrt(0.5)) / 2, 0.1, 0.1]),
        (0, 1, [None, 0.1, 0.1]),
        (1, 2, [0, 1, 0.1, 0.1]),
        (2, 4, [0, 0.5, 1, 0.55, 0.1, 0.1]),
    ],
)
def test_schedules_at_their_edges(warmup: int, total: int, expected: list[float | None]) -> None:
    for step, lr in enumerate(expected):
        if lr is not None:
            assert warmup_cosine(step, 1.0, 0.1, warmup, total) == pytest.approx(lr)


def test_a_warm_up_that_lasts_the_whole_run_rises_to_the_peak_in_time() -> None:
    rates = [warmup_cosine(step, 1.0, 0.1, 4, 4) for step in range(1, 4)]
    assert rates == [0.25, 0.5, 0.75]
    assert warmup_cosine(5, 1.0, 0.1, 4, 4) == 0.1


@examples(200)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 50), st.integers(1, 200))
def test_the_rate_rises_then_falls_between_its_bounds(a: float, b: float, warmup: int, decay: int) -> None:
    peak, floor, total = max(a, b), min(a, b), warmup + decay
    rates = [warmup_cosine(step, peak, floor, warmup, total) for step in range(1, total + 5)]
    up, down = rates[: max(warmup, 1)], rates[max(warmup, 1) - 1 :]
    slack = 1e-12
    assert all(y >= x - slack for x, y in itertools.pairwise(up))
    assert all(y <= x + slack for x, y in itertools.pairwise(down))
    assert all(-slack <= r <= peak + slack for r in rates)
    assert rates[total - 1 :] == [floor] * 5
    if warmup:
        assert rates[warmup - 1] == pytest.approx(peak)


# --- build_optimizer -------------------------------------------------------------------------------------------------


def groups(optimizer: torch.optim.Optimizer) -> dict[float, list[nn.Parameter]]:
    return {group["weight_decay"]: group["params"] for group in optimizer.param_groups}


@pytest.mark.parametrize(("tied", "decayed"), [(True, 5_836_800), (False, 5_836_800 + 2_560_000)])
def test_pinned_counts_with_and_without_decay(tied: bool, decayed: int) -> None:
    model = TransformerLM(preset("gpt", tie_embeddings=tied))
    with_decay, without = (groups(build_optimizer(model, TrainConfig(weight_decay=0.3)))[decay] for decay in (0.3, 0.0))
    assert sum(p.numel() for p in with_decay) == decayed
    assert sum(p.numel() for p in without) == 9_728
    assert len(with_decay) + len(without) == 52 + (not tied)
    assert all(p.ndim >= 2 for p in with_decay)
    assert all(p.ndim < 2 for p in without)


@pytest.mark.parametrize("name", ["modern", "gpt"])
def test_every_parameter_is_updated_once_and_frozen_ones_are_not(name: str) -> None:
    model = toy_model(name)
    model.embed.weight.requires_grad_(False)
    held = [p for group in build_optimizer(model, TrainConfig()).param_groups for p in group["params"]]
    assert len({id(p) for p in held}) == len(held)
    assert {id(p) for p in held} == {id(p) for p in model.parameters()} - {id(model.embed.weight)}


def test_a_model_without_vectors_or_without_matrices_is_optimised() -> None:
    for model in (nn.Linear(3, 2, bias=False), nn.LayerNorm(3)):
        assert len(build_optimizer(model, TrainConfig()).param_groups) == 1


def test_the_train_config_arrives() -> None:
    config = TrainConfig(peak_lr=0.02, weight_decay=0.3, beta1=0.8, beta2=0.7, adam_eps=1e-3)
    for group in build_optimizer(toy_model(), config).param_groups:
        assert (group["lr"], tuple(group["betas"]), group["eps"]) == (0.02, (0.8, 0.7), 1e-3)


def stepped(weight: nn.Parameter, gradients: list[float], **changes: float) -> list[float]:
    """The value of a weight after each update."""
    model = nn.ParameterList([weight])
    optimizer = build_optimizer(model, TrainConfig(**changes))
    values = []
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        values.append(weight.item())
    return values


def test_adamw_by_hand() -> None:
    options = {"peak_lr": 0.1, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.999, "adam_eps": 1e-8}
    values = stepped(nn.Parameter(torch.ones(1, 1)), [0.5, 0.5, -0.2], **options)
    assert values == pytest.approx([0.890000, 0.781100, 0.716309], abs=1e-6)
    m, v, w, expected = 0.0, 0.0, 1.0, []
    for t, g in enumerate([0.5, 0.5, -0.2], start=1):  # Loshchilov and Hutter 2017, algorithm 2
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= 0.1 * (m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.1 * w)
        expected.append(w)
    assert values == pytest.approx(expected, abs=1e-6)


def test_vectors_do_not_decay_and_eps_stands_outside_the_root() -> None:
    assert stepped(nn.Parameter(torch.ones(1)), [0.0, 0.0], peak_lr=0.1) == [1, 1]
    assert stepped(nn.Parameter(torch.ones(1, 1)), [0.0], peak_lr=0.1, weight_decay=0.5) == [pytest.approx(0.95)]
    (tiny,) = stepped(nn.Parameter(torch.zeros(1)), [1e-6], peak_lr=0.1, adam_eps=1e-8)
    assert tiny == pytest.approx(-0.1 * 1e-6 / (1e-6 + 1e-8), rel=1e-4)
