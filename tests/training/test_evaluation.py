"""The loss against log-sum-exp in exact order, and the evaluation against one long forward pass."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.toys import SIZES, Modes, evaluation_copy, examples, modes, random_modes, toy_ids, toy_model
from torch import Tensor

from tinylm_lib import evaluate, next_token_loss
from tinylm_lib.data.windows import every_window
from tinylm_lib.training.evaluation import Evaluation, token_log_probs

V, LIMIT = SIZES["vocab_size"], SIZES["max_seq_len"]


def nats(row: list[float], target: int) -> float:
    """-log softmax(row)[target] in Python floats."""
    m = max(row)
    return m + math.log(math.fsum(math.exp(x - m) for x in row)) - row[target]


def mean_nats(logits: Tensor, targets: Tensor) -> float:
    pairs = zip(logits.flatten(0, -2).tolist(), targets.flatten().tolist(), strict=True)
    losses = [nats(row, t) for row, t in pairs if t != -100]
    return math.fsum(losses) / len(losses)


# --- next_token_loss -------------------------------------------------------------------------------------------------


@examples(100)
@given(B=st.integers(1, 3), T=st.integers(1, 5), V=st.integers(1, 9), scale=st.floats(0, 50), seed=st.integers(0, 999))
def test_the_loss_is_the_mean_of_what_counts(B: int, T: int, V: int, scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(B, T, V, generator=generator)
    targets = torch.randint(V, (B, T), generator=generator)
    targets[torch.rand(B, T, generator=generator) < 0.3] = -100
    targets[0, 0] = V - 1
    assert next_token_loss(logits, targets).item() == pytest.approx(mean_nats(logits, targets), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("V", "floor"), [(32, 2.5180), (65, 3.2005), (256, 4.5519), (10_000, 8.2105)])
def test_uniform_predictions_cost_ln_v_and_probabilities_taken_for_logits_not_less_than_a_floor(
    V: int, floor: float
) -> None:
    """What a model that ends in a softmax would be trained on: certain and right still costs ln(e + V - 1) - 1."""
    uniform = next_token_loss(torch.full((2, 3, V), 7.0), torch.zeros(2, 3).long())
    assert uniform.item() == pytest.approx(math.log(V), abs=1e-5)
    certain = torch.zeros(1, 1, V)
    certain[..., 3] = 1
    loss = next_token_loss(certain, torch.tensor([[3]])).item()
    assert loss == pytest.approx(math.log(math.e + V - 1) - 1, abs=1e-5)
    assert loss == pytest.approx(floor, abs=5e-5)
    assert next_token_loss(100 * certain, torch.tensor([[3]])).item() == 0


@pytest.mark.parametrize("gap", [103, 104, 200, 1e30])
def test_a_wide_gap_costs_exactly_the_gap(gap: float) -> None:
    assert next_token_loss(torch.tensor([[[0.0, gap]]]), torch.tensor([[0]])).item() == pytest.approx(gap)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_loss_is_computed_in_fp32(dtype: torch.dtype) -> None:
    logits, targets = 4 * torch.randn(2, 6, 9), torch.randint(9, (2, 6))
    loss = next_token_loss(logits.to(dtype), targets)
    assert (loss.dtype, loss.shape) == (torch.float32, ())
    assert torch.equal(loss, next_token_loss(logits.to(dtype).float(), targets))


def test_the_gradient_is_probability_minus_target() -> None:
    logits = torch.randn(1, 3, 5, requires_grad=True)
    targets = torch.tensor([[2, -100, 0]])
    next_token_loss(logits, targets).backward()
    expected = (logits.detach().softmax(-1) - torch.nn.functional.one_hot(targets.clamp(0), 5)) / 2
    expected[0, 1] = 0
    torch.testing.assert_close(logits.grad, expected)


def test_strided_targets_and_logits_are_taken() -> None:
    logits, targets = torch.randn(3, 5, 7).transpose(1, 2)[:, :-1], torch.randint(5, (3, 7))[:, 1:]
    whole = next_token_loss(logits.contiguous(), targets.contiguous())
    torch.testing.assert_close(next_token_loss(logits, targets), whole)


@pytest.mark.parametrize(
    ("logits", "targets", "says"),
    [
        ((2, 3, 5), torch.full((2, 3), -100), "no target counts: all 6 are -100"),
        ((2, 0, 5), torch.zeros(2, 0).long(), "no target counts: all 0 are -100"),
        ((1, 2, 5), torch.tensor([[0, 5]]), r"targets must be 0\.\.4 .*or -100, got 0 to 5"),
        ((1, 2, 5), torch.tensor([[0, -1]]), r"targets must be 0\.\.4 .*or -100, got -1 to 0"),
        ((1, 3, 5), torch.tensor([[0, -1, -100]]), r"targets must be 0\.\.4 .*or -100, got -100 to 0"),
        ((1, 2, 5), torch.tensor([[-50, -50]]), r"targets must be 0\.\.4 .*or -100, got -50 to -50"),
        ((1, 2, 5), torch.tensor([[-101, -100]]), r"targets must be 0\.\.4 .*or -100, got -101 to -100"),
        ((2, 3, 5), torch.zeros(2, 2).long(), r"got logits \(2, 3, 5\) and targets \(2, 2\)"),
        ((2, 3, 5), torch.zeros(3, 2).long(), r"got logits \(2, 3, 5\) and targets \(3, 2\)"),
        ((2, 3, 5), torch.zeros(6).long(), r"got logits \(2, 3, 5\) and targets \(6,\)"),
    ],
)
def test_targets_that_do_not_fit_are_refused(logits: tuple[int, ...], targets: Tensor, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        next_token_loss(torch.zeros(logits), targets)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_targets_are_integers_of_any_size(dtype: torch.dtype) -> None:
    logits, targets = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    assert torch.equal(next_token_loss(logits, targets.to(dtype)), next_token_loss(logits, targets))
    with pytest.raises(TypeError, match="targets must be integers"):
        next_token_loss(logits, targets.float())


# --- token_log_probs -------------------------------------------------------------------------------------------------


def test_token_log_probs_are_those_of_one_full_pass_per_token() -> None:
    model, ids = toy_model("gpt"), toy_ids(3, 7, seed=2)
    before, quiet = random_modes(model), evaluation_copy(model)
    expected = [
        [-nats(quiet(row[None, : t + 1])[0, -1].tolist(), int(row[t + 1])) for t in range(len(row) - 1)] for row in ids
    ]
    actual = token_log_probs(model, ids)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert not actual.requires_grad and modes(model) == before
    assert token_log_probs(model, ids[:, :1]).shape == (3, 0)
    assert torch.equal(token_log_probs(model, ids.int()), actual)


def test_the_sum_of_a_padded_row_is_that_of_the_text_alone() -> None:
    model, ids, padding = toy_model(), toy_ids(4, 7), torch.tensor([0, 2, 5, 6])
    actual = token_log_probs(model, ids, padding)
    for row, text, n in zip(actual, ids, padding, strict=True):
        alone = token_log_probs(model, text[None, n:])[0]
        torch.testing.assert_close(row, torch.cat((torch.zeros(int(n)).double(), alone)), rtol=1e-9, atol=1e-9)


def test_the_last_token_need_not_fit_into_the_window() -> None:
    model, ids = toy_model(), toy_ids(2, LIMIT + 2)
    whole = token_log_probs(model, ids[:, : LIMIT + 1])
    assert whole.shape == (2, LIMIT)
    torch.testing.assert_close(whole[:, :-1], token_log_probs(model, ids[:, :LIMIT]), rtol=1e-9, atol=1e-9)
    alone = token_log_probs(model, ids[:1, LIMIT - 4 : LIMIT + 1])
    padded = torch.cat((ids[:1, : LIMIT - 4], ids[:1, LIMIT - 4 : LIMIT + 1]), 1)
    found = token_log_probs(model, padded, torch.tensor([LIMIT - 4]))
    torch.testing.assert_close(found[:, LIMIT - 4 :], alone, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="exceed max_seq_len"):
        token_log_probs(model, ids)


@pytest.mark.parametrize(
    ("ids", "padding", "says"),
    [
        (torch.tensor([[1, 2, V]]), None, f"token id {V} is outside"),
        (torch.tensor([[1, 2, -1]]), None, "token id -1 is outside"),
        (torch.tensor([1, 2]), None, r"ids must be \(B, T\)"),
        ([[1, 2]], None, "ids must be a tensor, got list"),
        (torch.tensor([[1, 2, 3]]), torch.tensor([3]), r"padding must be .* in 0\.\.2"),
        (torch.tensor([[1, 2, 3]]), torch.tensor([0, 0]), "padding must be a tensor of 1 integers"),
    ],
)
def test_ids_and_padding_that_do_not_fit_are_refused_though_the_last_is_not_read(
    ids: Any, padding: Any, says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        token_log_probs(toy_model(), ids, padding)


# --- evaluate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tokens", [2, 5, LIMIT, LIMIT + 1, LIMIT + 2, 50, 97])
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_every_token_counts_once_over_ragged_ends(n_tokens: int, batch_size: int) -> None:
    model, tokens, seq_len = toy_model(), toy_ids(1, n_tokens)[0], 5
    quiet, losses = evaluation_copy(model), []
    for start in range(0, n_tokens - 1, seq_len):
        x, y = tokens[start : min(start + seq_len, n_tokens - 1)], tokens[start + 1 : start + 1 + seq_len]
        losses += [nats(row, t) for row, t in zip(quiet(x[None])[0].tolist(), y.tolist(), strict=True)]
    assert len(losses) == n_tokens - 1
    result = evaluate(model, every_window(tokens, batch_size, seq_len))
    assert result.n_tokens == n_tokens - 1
    assert result.nats_per_token == pytest.approx(math.fsum(losses) / len(losses), rel=1e-5)


@pytest.mark.parametrize(("seq_len", "stride"), [(5, 1), (5, 2), (5, 5), (LIMIT, 7), (1, 1)])
@pytest.mark.parametrize("n_tokens", [2, 5, 13, 50])
def test_overlapping_windows_give_each_token_the_context_that_the_stride_promises(
    seq_len: int, stride: int, n_tokens: int
) -> None:
    """By hand: token i counts in the first window that reaches it, and sees that window's tokens before it."""
    model, tokens = toy_model(), toy_ids(1, n_tokens)[0]
    quiet, losses = evaluation_copy(model), []
    for i in range(1, n_tokens):
        begin = next(k for k in range(0, n_tokens, stride) if k + seq_len >= i)
        losses.append(nats(quiet(tokens[None, begin:i])[0, -1].tolist(), tokens[i].item()))
    windows = every_window(tokens, 3, seq_len, stride)
    result = evaluate(model, windows)
    assert result.n_tokens == n_tokens - 1
    assert result.nats_per_token == pytest.approx(math.fsum(losses) / len(losses), rel=1e-5)


class Fixed(torch.nn.Module):
    """Whatever it reads, it gives the right next token (always 0) the same cost: the first id of the window."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, 2)
        logits[..., 1] = torch.log(torch.expm1(ids[:, :1].float()))
        return logits


def test_tokens_weigh_equally_not_windows() -> None:
    """10 tokens at 1 nat and 90 at 3 nats are 2.8 nats per token; the mean of the means would be 2.0."""
    windows = [(torch.full((1, n), cost), torch.zeros(1, n).long()) for n, cost in ((10, 1), (90, 3))]
    result = evaluate(Fixed(), windows, n_bytes=50)
    assert result.nats_per_token == pytest.approx(2.8, abs=1e-6)
    assert result.perplexity == pytest.approx(math.exp(2.8), rel=1e-5)
    assert result.bits_per_byte == pytest.approx(280 / math.log(2) / 50, rel=1e-6)
    assert evaluate(Fixed(), windows) == Evaluation(result.nats_per_token, result.perplexity, None, 100)


def test_windows_that_hold_nothing_are_passed_over() -> None:
    nothing = (torch.zeros(1, 3).long(), torch.full((1, 3), -100))
    something = (torch.full((1, 3), 2), torch.tensor([[0, -100, 0]]))
    result = evaluate(Fixed(), [nothing, something, nothing])
    assert (result.nats_per_token, result.n_tokens) == (pytest.approx(2, abs=1e-6), 2)
    for windows in ([], [nothing], iter([])):
        with pytest.raises(ValueError, match="no token to evaluate"):
            evaluate(Fixed(), windows)


def test_a_hopeless_model_has_infinite_perplexity_not_an_overflow() -> None:
    class Hopeless(Fixed):
        def forward(self, ids: Tensor) -> Tensor:
            return torch.tensor([0.0, 1000.0]).expand(*ids.shape, 2)

    result = evaluate(Hopeless(), [(torch.zeros(1, 3).long(), torch.zeros(1, 3).long())])
    assert (result.nats_per_token, result.perplexity) == (1000, math.inf)


def test_the_mode_comes_back_and_dropout_is_off() -> None:
    model, windows = toy_model("gpt"), [(toy_ids(2, 5), toy_ids(2, 5, seed=1))]
    before, passes = random_modes(model), Modes(model)
    assert evaluate(model, windows) == evaluate(model, windows)
    assert modes(model) == before
    assert passes.training == passes.gradients == [False, False]
    with pytest.raises(ValueError, match="exceed max_seq_len"):
        evaluate(model, [(toy_ids(1, LIMIT + 1), toy_ids(1, LIMIT + 1))])
    assert modes(model) == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("n_bytes", [0, -1, math.nan, "5"])
def test_bytes_that_cannot_be_are_refused(n_bytes: Any) -> None:
    with pytest.raises(ValueError, match=f"n_bytes .*{n_bytes}"):
        evaluate(Fixed(), [(torch.ones(1, 3).long(), torch.zeros(1, 3).long())], n_bytes=n_bytes)
