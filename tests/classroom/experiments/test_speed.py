"""Operations of a piece of work, seconds of an update, and a roof that no large work is far above."""

import pytest
import torch

from tinylm_classroom.experiments import speed
from tinylm_lib import TrainConfig, TransformerLM, cost, preset, quantization
from tinylm_lib.training import build_optimizer


@pytest.fixture(scope="module")
def model() -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(
        preset("modern", vocab_size=20, d_model=32, n_layers=2, n_heads=2, max_seq_len=32, init="normal")
    ).eval()


def test_operations_are_those_that_python_calls_in_order():
    x = torch.randn(8, 8)
    found = speed.operations(lambda: torch.relu(x @ x), rounds=2)
    assert [(each.name, each.is_product) for each in found] == [("aten::matmul", True), ("aten::relu", False)]
    assert found[0].start == 0 and found[0].end <= found[1].start <= found[1].end


def test_the_groups_know_the_optimizer(model):
    learner = TransformerLM(model.config)
    batch = torch.arange(12).view(2, 6)
    optimizer = build_optimizer(learner, TrainConfig())
    endless = iter(lambda: (batch, batch), None)
    groups = speed.groups(lambda: speed.step_times(learner, endless, optimizer), rounds=1)
    assert tuple(groups) == speed.GROUPS and min(groups.values()) > 0
    assert tuple(speed.step_times(learner, endless, optimizer)) == speed.PARTS


def test_the_middle_of_each_part():
    rounds = [{"a": a, "b": -a} for a in (3.0, 1.0, 2.0)]
    assert speed.middle_of(rounds) == {"a": 2.0, "b": -2.0}


def test_the_next_token_is_read_with_a_cache_again_and_again(model):
    step = speed.next_token(model, n_texts=3, n_kept=7)
    ids = (torch.arange(8) % 20)[None]
    with torch.no_grad():
        expected = model(ids)[:, -1:].expand(3, -1, -1)
    torch.testing.assert_close(step(), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(step(), expected, atol=1e-4, rtol=1e-4)
    assert speed.counted(step) == cost.forward_flops(model.config, 3, 1, n_keys=8)


def test_a_roof_below_large_work_is_measured_again():
    roofs = iter([(100.0, 1.0), (100.0, 2.0), (100.0, 10.0), (100.0, 99.0)])
    work = {"large": (50, 50_000_000, lambda: None), "small": (10**9, 8, lambda: None)}
    peak, bandwidth, best = speed.under_a_roof(lambda: next(roofs), work, lambda run: 50_000_000 / 10)
    assert (peak, bandwidth) == (100.0, 10.0) and best["large"] == 5_000_000


def test_a_roof_that_stays_too_low_ends():
    roofs = iter([(1.0, 1.0)] * speed.ROUNDS)
    work = {"large": (50, 50_000_000, lambda: None)}
    speed.under_a_roof(lambda: next(roofs), work, lambda run: 1e-9)
    assert next(roofs, None) is None


def test_both_kernels_agree_and_the_intensity_is_that_of_2_bytes():
    whole, tiles = speed.by_both_kernels(torch.randn(3, 1, 2, 20, 8))
    torch.testing.assert_close(whole, tiles, atol=1e-5, rtol=1e-4)
    assert speed.intensity_in_bf16(1, 4) == 2 * 16 / (2 * (4 + 4 + 16))


def test_errors_of_one_sign_are_worse(model):
    batch = torch.arange(20)[None]
    batches = [(batch[:, :-1], batch[:, 1:])]
    exact = speed.loss_with_errors(model, batches, 16, True)
    assert abs(speed.loss_with_errors(model, batches, 8, False) - exact) < 0.1
    assert speed.loss_with_errors(model, batches, 2, False) != exact


def test_prices_are_measured_in_turns():
    asked = []

    def price(name: str, n: int = 1) -> float:
        asked.append(name)
        return float(len(asked) * n)

    assert speed.best_in_turns(price, [("a",), ("b", 10)], turns=2) == [1.0, 20.0]
    assert asked == ["a", "b", "a", "b"]


def test_stacked_maps_give_the_same_logits_with_fewer_calls_and_can_be_quantized(model):
    steps = [speed.next_token(each, n_kept=7) for each in (model, speed.stacked(model))]
    torch.testing.assert_close(steps[0](), steps[1](), atol=1e-4, rtol=1e-4)
    before, after = (len(speed.operations(step, rounds=1)) for step in steps)
    assert after == before - model.config.n_layers
    speed.next_token(quantization.quantize_model(speed.stacked(model)), n_kept=7)()
    with pytest.raises(ValueError, match="stack first"):
        speed.stacked(quantization.quantize_model(model))
