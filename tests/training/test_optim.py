"""The schedules and the optimizer against numbers worked out by hand, and against torch's own optimizers."""

import copy
import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.toys import examples, toy_model
from torch import Tensor, nn

from tinylm_lib import TrainConfig, TransformerLM, preset
from tinylm_lib.training import optim
from tinylm_lib.training.optim import MuonAdamW, build_optimizer, orthogonalise, warmup_cosine, warmup_linear

# --- the schedules ---------------------------------------------------------------------------------------------------


PINNED = {
    0: 0, 1: 2e-6, 250: 5.000e-4, 499: 9.98e-4, 500: 1e-3, 2000: 9.458e-4, 5250: 5.500e-4, 9999: 1e-4, 10_000: 1e-4,
    15_000: 1e-4, 19_500: 1e-4,
}  # fmt: skip
QUARTER = math.sqrt(0.5)  # the cosine there
# The learning rates of updates 1, 2, ... for a floor of 0.1, after some updates of warm-up.
EDGES = [
    (warmup_cosine, 0, [0.1 + 0.9 * (1 + QUARTER) / 2, 0.55, 0.1 + 0.9 * (1 - QUARTER) / 2, 0.1, 0.1], 4),
    (warmup_cosine, 0, [0.1, 0.1], 1),
    (warmup_cosine, 1, [1, 0.1, 0.1], 2),
    (warmup_cosine, 2, [0.5, 1, 0.55, 0.1, 0.1], 4),
    (warmup_linear, 2, [0.5, 1, 0.7, 0.4, 0.1, 0.1, 0.1], 5),
    (warmup_linear, 0, [0.91], 10),
    *((schedule, 4, [0.25, 0.5, 0.75, 0.1, 0.1], 4) for schedule in optim.SCHEDULES.values()),
]


def test_pinned_learning_rates() -> None:
    assert {step: warmup_cosine(step, 1e-3, 1e-4, 500, 10_000) for step in PINNED} == pytest.approx(PINNED, abs=5e-8)


@pytest.mark.parametrize(("schedule", "warmup", "expected", "total"), EDGES)
def test_schedules_at_their_edges(schedule: Callable[..., float], warmup: int, expected: list, total: int) -> None:
    rates = [schedule(step, 1.0, 0.1, warmup, total) for step in range(1, len(expected) + 1)]
    assert rates == pytest.approx(expected)
    assert not warmup or schedule(0, 1.0, 0.1, warmup, total) == 0


@pytest.mark.parametrize("schedule", optim.SCHEDULES.values())
@examples(200)
@given(a=st.floats(0, 1), b=st.floats(0, 1), warmup=st.integers(0, 50), decay=st.integers(1, 200))
def test_the_rate_rises_then_falls_between_its_bounds(
    schedule: Callable[..., float], a: float, b: float, warmup: int, decay: int
) -> None:
    peak, floor, total = max(a, b), min(a, b), warmup + decay
    rates = [schedule(step, peak, floor, warmup, total) for step in range(1, total + 5)]
    up, down = rates[: max(warmup, 1)], rates[max(warmup, 1) - 1 :]
    slack = 1e-12
    assert all(y >= x - slack for x, y in itertools.pairwise(up))
    assert all(y <= x + slack for x, y in itertools.pairwise(down))
    assert all(-slack <= r <= peak + slack for r in rates)
    assert rates[total - 1 :] == [floor] * 5
    if warmup:
        assert rates[warmup - 1] == pytest.approx(peak)


# --- orthogonalise ---------------------------------------------------------------------------------------------------


def matrix(r: int, c: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(r, c, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def with_singular_values(values: Tensor, r: int, c: int) -> Tensor:
    u, _, v = torch.linalg.svd(matrix(r, c), full_matrices=False)
    return u * values.double() @ v


@pytest.mark.parametrize(("r", "c"), [(8, 8), (8, 20), (20, 8), (1, 5)])
def test_singular_vectors_stay_and_singular_values_come_near_one(r: int, c: int) -> None:
    values = torch.logspace(0, -2, min(r, c))  # from 1 to 0.01
    x = with_singular_values(values, r, c)
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    (y,) = orthogonalise(3.7 * x[None])
    inside = u.mT @ y @ v.mT
    assert (inside - inside.diagonal().diag()).abs().max() < 1e-9
    assert inside.diagonal().min() > 0.13 and inside.diagonal().max() < 1.87
    torch.testing.assert_close(u @ inside @ v, y, atol=1e-9, rtol=0)


def test_the_coefficients_are_the_best_of_their_degree() -> None:
    """A best polynomial misses 1 by as much upwards as downwards, at four places in turn (Chebyshev)."""
    low, high = 0.001, 1.0
    for step, (a, b, c) in enumerate(optim.POLAR_EXPRESS):
        a, b, c = 1.01 * a, 1.01**3 * b, 1.01**5 * c
        s = torch.linspace(low, high, 200_001, dtype=torch.float64)
        miss = a * s + b * s**3 + c * s**5 - 1
        inner = miss[1:-1][(miss[1:-1] - miss[:-2]) * (miss[2:] - miss[1:-1]) < 0]
        turns = torch.stack([miss[0], *inner, miss[-1]])
        assert len(turns) == 4
        worst = turns.abs().mean()
        torch.testing.assert_close(turns, worst * torch.tensor([-1.0, 1, -1, 1]).double(), atol=2e-3, rtol=0)
        low, high = 1 - worst.item(), 1 + worst.item()
        assert high == pytest.approx((1.9915, 1.9646, 1.8598)[step], abs=1e-3)


def test_a_zero_matrix_stays_zero_next_to_others() -> None:
    x = torch.stack([torch.zeros(3, 5).double(), matrix(3, 5)])
    y = orthogonalise(x)
    assert y[0].eq(0).all()
    torch.testing.assert_close(y[1:], orthogonalise(x[1:]))


@pytest.mark.parametrize(("r", "c"), [(8, 8), (8, 20), (20, 8)])
def test_a_batch_equals_one_by_one_and_low_precision_comes_close(r: int, c: int) -> None:
    x = torch.stack([10.0**i * matrix(r, c, i) for i in range(-3, 3)])
    one_by_one = torch.cat([orthogonalise(m[None]) for m in x])
    torch.testing.assert_close(orthogonalise(x), one_by_one, atol=1e-12, rtol=0)
    # A small singular value grows by up to 8.4 * 4.1 * 3.9 = 135, and its rounding with it; in bf16 it ends before.
    for dtype, units in ((torch.float32, 256), (torch.bfloat16, 64)):
        y = orthogonalise(x.to(dtype))
        assert y.dtype == dtype
        assert (y.double() - one_by_one).norm() / one_by_one.norm() < units * torch.finfo(dtype).eps


# --- the two rules ---------------------------------------------------------------------------------------------------


def muon(weights: list[nn.Parameter], **changes: float) -> MuonAdamW:
    group = {"params": weights, "rule": "muon", "lr": 0.1, "weight_decay": 0.0, **changes}
    return MuonAdamW([group], betas=(0.9, 0.99), eps=1e-8, momentum=0.8)


def copies(weights: list[Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(w.clone()) for w in weights]


def run(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], steps: int = 4, seed: int = 50) -> None:
    """Updates with the same random gradients for the weight of the same number."""
    for step in range(steps):
        for i, w in enumerate(weights):
            gradient = 3 * matrix(*w.shape, seed + 100 * step + i, w.dtype) if w.ndim == 2 else w.detach() + step
            w.grad = gradient
        optimizer.step()


def test_muon_agrees_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has one (a, b, c) for all iterations, and multiplies in bf16."""
    monkeypatch.setattr(optim, "POLAR_EXPRESS", 5 * [(3.4445, -4.7750, 2.0315)])
    start = [matrix(r, c, i, torch.float32) for i, (r, c) in enumerate([(16, 16), (16, 40), (40, 16), (16, 16)])]
    ours, theirs = copies(start), copies(start)
    options = {"momentum": 0.8, "nesterov": True, "adjust_lr_fn": "match_rms_adamw"}
    oracle = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.5, **options)
    run(muon(ours, weight_decay=0.5), ours)
    run(oracle, theirs)
    for w, expected, s in zip(ours, theirs, start, strict=True):
        assert (w - expected).norm() < 0.03 * (expected - s).norm()


def test_without_a_gradient_nothing_moves_and_with_a_zero_one_only_decay() -> None:
    still, zero = nn.Parameter(matrix(3, 4)), nn.Parameter(matrix(3, 4, 1))
    before = [still.clone(), zero.clone()]
    optimizer = muon([still, zero], weight_decay=0.5)
    zero.grad = torch.zeros_like(zero)
    optimizer.step()
    torch.testing.assert_close(still, before[0], atol=0, rtol=0)
    torch.testing.assert_close(zero, 0.95 * before[1])


def test_an_update_does_not_depend_on_the_order_of_the_parameters() -> None:
    start = [matrix(r, c, i) for i, (r, c) in enumerate([(6, 6), (4, 9), (6, 6), (9, 4)])]
    one, other = copies(start), copies(start)
    run(muon(one), one)
    run(muon(other[::-1]), other)
    torch.testing.assert_close([w.data for w in one], [w.data for w in other], atol=1e-9, rtol=0)


def test_momentum_looks_ahead() -> None:
    """By hand: of the gradients g and h, the second step goes along 0.2 h + 0.8 (0.8 * 0.2 g + 0.2 h)."""
    w, g, h = nn.Parameter(torch.zeros(5, 7).double()), matrix(5, 7, 1), matrix(5, 7, 2)
    optimizer = muon([w])
    for gradient in (g, h):
        before = w.detach().clone()
        w.grad = gradient.clone()
        optimizer.step()
    ahead = 0.2 * h + 0.8 * (0.8 * 0.2 * g + 0.2 * h)
    expected = orthogonalise(ahead[None])[0] * -0.1 * 0.2 * math.sqrt(7)
    torch.testing.assert_close(w - before, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(w.grad, h, atol=0, rtol=0, msg="the gradient was changed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_adamw_is_that_of_torch_to_the_bit(dtype: torch.dtype) -> None:
    start = [matrix(4, 6, dtype=dtype), matrix(1, 9, 1, dtype)[0]]
    ours, theirs = copies(start), copies(start)
    group = {"params": ours, "rule": "adamw", "lr": 0.02, "weight_decay": 0.3}
    run(MuonAdamW([group], betas=(0.8, 0.9), eps=1e-3, momentum=0.5), ours)
    run(torch.optim.AdamW(theirs, lr=0.02, weight_decay=0.3, betas=(0.8, 0.9), eps=1e-3, fused=True), theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], start[0])


def test_adamw_by_hand() -> None:
    weight, gradients, pinned = nn.Parameter(torch.ones(1, 1)), [0.5, 0.5, -0.2], [0.890000, 0.781100, 0.716309]
    group = {"params": [weight], "rule": "adamw", "lr": 0.1, "weight_decay": 0.1}
    optimizer = MuonAdamW([group], betas=(0.9, 0.999), eps=1e-8, momentum=0.0)
    m, v, w = 0.0, 0.0, 1.0
    for t, (g, expected) in enumerate(zip(gradients, pinned, strict=True), start=1):
        weight.grad = torch.full_like(weight, g)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g  # Loshchilov and Hutter 2017, algorithm 2
        w -= 0.1 * (m / (1 - 0.9**t) / (math.sqrt(v / (1 - 0.999**t)) + 1e-8) + 0.1 * w)
        assert weight.item() == pytest.approx(w, abs=1e-6)
        assert w == pytest.approx(expected, abs=1e-6)


def test_an_unknown_rule_is_refused_by_name() -> None:
    weight = nn.Parameter(matrix(2, 2))
    with pytest.raises(ValueError, match="rule 'sgd' is unknown; choose one of muon, adamw"):
        muon([weight], rule="sgd")


def test_a_state_follows_the_weights_to_their_device() -> None:
    model = toy_model()
    optimizer = build_optimizer(model, TrainConfig())
    run(optimizer, list(model.parameters()), steps=1)
    elsewhere = copy.deepcopy(model).to("meta")
    moved = build_optimizer(elsewhere, TrainConfig())
    moved.load_state_dict(optimizer.state_dict())
    assert {t.device.type for state in moved.state.values() for t in state.values()} == {"meta"}


def test_a_closure_is_evaluated_with_gradients() -> None:
    w = nn.Parameter(matrix(2, 3))

    def closure() -> Tensor:
        w.grad = None
        loss = w.square().sum()
        loss.backward()
        return loss

    before = w.detach().clone()
    assert muon([w]).step(closure) == before.square().sum()
    assert not torch.equal(w, before)


# --- build_optimizer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["muon", "adamw"])
@pytest.mark.parametrize(("tied", "name"), [(True, "gpt"), (False, "gpt"), (True, "modern"), (False, "modern")])
def test_matrices_of_the_blocks_have_a_rule_and_a_rate_of_their_own(rule: str, tied: bool, name: str) -> None:
    model = toy_model(name, tie_embeddings=tied)
    betas = {"momentum": 0.6, "beta1": 0.8, "beta2": 0.7, "adam_eps": 1e-3}
    config = TrainConfig(optimizer=rule, matrix_lr=0.2, embedding_lr=0.3, weight_decay=0.4, **betas)
    names = {id(p): n for n, p in model.named_parameters()}
    found = {}
    for group in build_optimizer(model, config).param_groups:
        assert (group["momentum"], tuple(group["betas"]), group["eps"]) == (0.6, (0.8, 0.7), 1e-3)
        for p in group["params"]:
            assert names[id(p)] not in found, "updated twice"
            found[names[id(p)]] = (group["rule"], group["lr"], group["weight_decay"])
    for n, p in model.named_parameters():
        other = ("adamw", 0.3, 0.4 if p.ndim == 2 else 0.0)
        assert found.pop(n) == ((rule, 0.2, 0.4) if "_proj.weight" in n else other), n
    assert not found


def test_pinned_counts_with_and_without_decay() -> None:
    for tied, tables in ((True, 5_120_000 - 2_560_000 + 131_072), (False, 5_120_000 + 131_072)):
        model = TransformerLM(preset("gpt", tie_embeddings=tied))
        matrices, others, vectors = (g["params"] for g in build_optimizer(model, TrainConfig()).param_groups)
        assert [sum(p.numel() for p in some) for some in (matrices, others, vectors)] == [3_145_728, tables, 9_728]


def test_frozen_weights_are_left_out_and_empty_groups_too() -> None:
    model = toy_model("gpt")
    frozen = {model.embed.weight.requires_grad_(False), model.position.weight.requires_grad_(False)}
    held = build_optimizer(model, TrainConfig()).param_groups
    assert [group["rule"] for group in held] == ["muon", "adamw"]
    assert {p for group in held for p in group["params"]} == set(model.parameters()) - frozen
