"""Learning from rewards against closed forms: languages of three tokens, in which every text can be listed."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.models import normal
from support.toys import (
    DeviceReads,
    chi_square,
    chi_square_bound,
    evaluation_copy,
    examples,
    modes,
    random_modes,
    toy_config,
    toy_ids,
    toy_model,
)
from torch import Tensor

from tinylm_lib import TransformerLM, model, rewards, token_log_probs
from tinylm_lib.rewards import (
    Rollouts,
    dpo_loss,
    group_advantages,
    kl_divergence,
    kl_penalty,
    policy_loss,
    reinforce,
    rollouts,
)

pytestmark = pytest.mark.usefixtures("one_thread")

STOP, LONGEST = 2, 3  # of the language: a text ends with its first 2, or after three tokens
TEXTS = [
    text
    for n in range(1, LONGEST + 1)
    for text in itertools.product(range(3), repeat=n)
    if STOP not in text[:-1] and (text[-1] == STOP or n == LONGEST)
]


def small_language(seed: int = 0, **changes: Any) -> TransformerLM:
    """A model of three tokens in fp64."""
    return toy_model(seed=seed, vocab_size=3, **changes)


def log_prob(model: TransformerLM, prompt: Iterable[int], text: Iterable[int], temperature: float = 1.0) -> Tensor:
    """The log-probabilities of the tokens of a text after a prompt, alone in its batch: (N,)."""
    prompt, text = list(prompt), list(text)
    logits = model(torch.tensor([prompt + text[:-1]]))[0, len(prompt) - 1 :] / temperature
    return torch.stack([row[t] - row.exp().sum().log() for row, t in zip(logits, text, strict=True)])


def listed(model: TransformerLM, prompt: tuple[int, ...] = (0, 1)) -> tuple[Tensor, Tensor]:
    """The log-probabilities of every token of all texts (B, N), and where there are tokens."""
    rows = [log_prob(model, prompt, text) for text in TEXTS]
    mask = torch.tensor([[n < len(text) for n in range(LONGEST)] for text in TEXTS])
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), mask


def gradient(value: Tensor, model: TransformerLM) -> Tensor:
    grads = torch.autograd.grad(value, list(model.parameters()), retain_graph=True, allow_unused=True)
    return torch.cat([g.flatten() for g in grads if g is not None])


def worth(text: tuple[int, ...]) -> float:
    """Some reward that is different for different texts."""
    return math.sin(1 + sum((3 * i + 1) * (t + 1) for i, t in enumerate(text)))


def test_the_texts_of_the_small_language_are_all_there_are() -> None:
    assert len(TEXTS) == 1 + 2 + 4 * 3
    log_probs, _ = listed(small_language())
    assert log_probs.sum(1).exp().sum().item() == pytest.approx(1, abs=1e-12)


# --- the policy gradient ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_its_expected_gradient_is_that_of_the_expected_reward(seed: int) -> None:
    """All texts, each weighted by its probability: the sum of probability times reward can be differentiated itself."""
    model = small_language(seed)
    log_probs, mask = listed(model)
    values = torch.tensor([worth(text) for text in TEXTS]).double()
    exact = gradient((log_probs.sum(1).exp() * values).sum(), model)
    weights = log_probs.detach().sum(1).exp()
    loss = policy_loss(log_probs, log_probs.detach(), weights * values, mask)
    found = gradient(-loss * mask.sum(), model)
    assert (found - exact).abs().max() < 1e-12 < exact.abs().max()


@pytest.mark.parametrize("K", [2, 3])
def test_with_the_mean_of_a_group_the_expected_gradient_is_shorter_by_one_member(K: int) -> None:
    """Each answer is in its own mean, so a fraction 1/K of what it says is taken away; the direction is exact."""
    model = small_language(4)
    log_probs, mask = listed(model)
    log_probs, mask = log_probs[-4:], mask[-4:]  # texts of one length, so that the mean over tokens is a constant
    values, share = (
        torch.tensor([0.3, -1.0, 2.0, 0.7]).double(),
        log_probs.sum(1).softmax(0),
    )  # as if there were no others
    exact = gradient((share * values).sum(), model)
    groups = torch.tensor(list(itertools.product(range(4), repeat=K)))
    weights = share.detach()[groups].prod(1, keepdim=True)
    advantages = (weights * group_advantages(values[groups])).flatten()
    rows = groups.flatten()
    loss = policy_loss(log_probs[rows], log_probs.detach()[rows], advantages, mask[rows])
    found = gradient(-loss * mask[rows].sum() / K, model)
    assert (found - (1 - 1 / K) * exact).abs().max() < 1e-12 < exact.abs().max()


@pytest.mark.parametrize(("ratio", "advantage", "loss", "slope"), [
    (1.0, 2.0, -2.0, -2.0), (1.1, 2.0, -2.2, -2.2), (1.5, 2.0, -2.4, 0.0), (0.5, 2.0, -1.0, -1.0),
    (1.5, -2.0, 3.0, 3.0), (0.9, -2.0, 1.8, 1.8), (0.5, -2.0, 1.6, 0.0), (7.0, 0.0, 0.0, 0.0),
])  # fmt: skip
def test_the_clip_has_known_answers(ratio: float, advantage: float, loss: float, slope: float) -> None:
    """slope: of the loss over the logarithm of the probability."""
    log_probs = torch.tensor([[math.log(ratio) - 1.5]], dtype=torch.float64, requires_grad=True)
    found = policy_loss(log_probs, torch.tensor([[-1.5]]).double(), torch.tensor([advantage]), torch.ones(1, 1) > 0)
    found.backward()
    assert found.item() == pytest.approx(loss) and log_probs.grad.item() == pytest.approx(slope)


def test_another_clip_and_none() -> None:
    log_probs, mask = torch.tensor([[math.log(1.5)]]), torch.tensor([[True]])
    for clip, expected in ((0.4, -1.4), (0.6, -1.5), (math.inf, -1.5)):
        found = policy_loss(log_probs, torch.zeros(1, 1), torch.ones(1), mask, clip)
        assert found.item() == pytest.approx(expected)


def test_every_token_of_an_answer_weighs_the_same_and_no_other_counts() -> None:
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    log_probs = torch.zeros(2, 4, requires_grad=True)
    old = torch.tensor([[0.0, 0, -math.inf, math.nan], [0.0, 0, 0, 0]])
    loss = policy_loss(log_probs, old, torch.tensor([3.0, -1.0]), mask)
    loss.backward()
    assert loss.item() == pytest.approx(-(3 * 2 - 1 * 4) / 6)
    expected = torch.tensor([[-3.0, -3, 0, 0], [1.0, 1, 1, 1]]) / 6
    torch.testing.assert_close(log_probs.grad, expected)


# --- advantages ------------------------------------------------------------------------------------------------------


def test_advantages_by_hand() -> None:
    given = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 1], [5, 5, 5, 5]])
    centred = torch.tensor([[0.5, -0.5, -0.5, 0.5], [-0.25, -0.25, -0.25, 0.75], [0, 0, 0, 0]])
    assert torch.equal(group_advantages(given), centred)
    deviations = torch.tensor([[0.5], [math.sqrt(3) / 4], [1.0]])
    torch.testing.assert_close(group_advantages(given, scale="std"), centred / deviations, rtol=5e-4, atol=0)


@examples(60)
@given(P=st.integers(1, 4), K=st.integers(1, 6), scale=st.sampled_from(["none", "std"]), seed=st.integers(0, 99))
def test_the_advantages_of_a_group_sum_to_zero_and_a_constant_or_single_reward_has_none(
    P: int, K: int, scale: str, seed: int
) -> None:
    given = normal(P, K, dtype=torch.float64, seed=seed)
    found = group_advantages(given, scale)
    assert found.shape == (P, K) and found.sum(1).abs().max() < 1e-12
    assert group_advantages(given[:, :1], scale).tolist() == [[0.0]] * P
    assert group_advantages(given[:, :1].expand(P, K), scale).abs().max() < 1e-9
    shifted = group_advantages(
        given + torch.arange(P)[:, None], scale
    )  # what all answers to a prompt share is no merit
    assert (shifted - found).abs().max() < 1e-9


def test_rewards_in_half_precision_are_compared_in_fp32() -> None:
    found = group_advantages(torch.tensor([[256.0, 257, 258]], dtype=torch.bfloat16))
    assert found.dtype == torch.float32  # bf16 has no 257, and no -2/3
    assert found[0].tolist() == pytest.approx([-2 / 3, -2 / 3, 4 / 3], abs=1e-4)


# --- distances -------------------------------------------------------------------------------------------------------


@examples(60)
@given(V=st.integers(1, 7), scale=st.floats(0, 9), seed=st.integers(0, 99))
def test_the_divergence_is_the_sum_over_all_tokens_and_k3_has_it_as_its_mean(V: int, scale: float, seed: int) -> None:
    logits, other = scale * normal(2, V, dtype=torch.float64, seed=seed)
    p, q = (
        [math.exp(x - math.log(math.fsum(map(math.exp, row)))) for x in row]
        for row in (logits.tolist(), other.tolist())
    )
    exact = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    assert kl_divergence(logits, other).item() == pytest.approx(exact, rel=1e-9, abs=1e-12)
    log_p, log_q = logits.log_softmax(-1), other.log_softmax(-1)
    each = [kl_penalty(log_p[None, i : i + 1], log_q[None, i : i + 1], torch.ones(1, 1) > 0).item() for i in range(V)]
    assert min(each) >= 0
    assert math.fsum(a * x for a, x in zip(p, each, strict=True)) == pytest.approx(exact, rel=1e-7, abs=1e-12)


def test_the_divergence_of_shapes_zeros_and_half_precision() -> None:
    logits, other = normal(2, 3, 5), normal(2, 3, 5, seed=2)
    assert kl_divergence(logits, other).shape == (2, 3) and (kl_divergence(logits, logits) == 0).all()
    certain = torch.tensor([0.0, -math.inf, -math.inf], requires_grad=True)
    found = kl_divergence(certain, torch.tensor([1.0, 1.0, 2.0]))
    found.backward()
    assert found.item() == pytest.approx(math.log(2 + math.e)) and certain.grad.isfinite().all()
    assert kl_divergence(logits.bfloat16(), other.bfloat16()).dtype == torch.float32


def test_the_gradient_of_the_penalty_is_in_expectation_that_of_the_other_divergence() -> None:
    """The draws are not differentiated, and what is left is the gradient of KL(reference || policy)."""
    logits, other = normal(5, dtype=torch.float64).requires_grad_(), normal(5, dtype=torch.float64, seed=2)
    log_p, log_q = logits.log_softmax(-1), other.log_softmax(-1)
    each = [kl_penalty(log_p[None, i : i + 1], log_q[None, i : i + 1], torch.ones(1, 1) > 0) for i in range(5)]
    (found,) = torch.autograd.grad((log_p.detach().exp() * torch.stack(each)).sum(), logits, retain_graph=True)
    (exact,) = torch.autograd.grad(kl_divergence(other, logits), logits)
    torch.testing.assert_close(found, exact)


def test_the_penalty_is_a_mean_over_the_tokens_that_count() -> None:
    mask = torch.tensor([[True, False], [True, True]])
    here, there = torch.tensor([[-1.0, -math.inf], [-2.0, -3.0]]), torch.tensor([[-1.5, -math.inf], [-2.0, -2.0]])
    by_hand = (math.exp(-0.5) - 1 + 0.5 + 0 + math.e - 1 - 1) / 3
    assert kl_penalty(here, there, mask).item() == pytest.approx(by_hand)


# --- preferences -----------------------------------------------------------------------------------------------------


def test_dpo_starts_at_log_2_and_its_gradient_is_known() -> None:
    chosen, rejected, beta = normal(3).double().requires_grad_(), normal(3, seed=2).double().requires_grad_(), 0.3
    at_start = dpo_loss(chosen, rejected, chosen.detach(), rejected.detach(), beta)
    assert at_start.item() == pytest.approx(math.log(2))
    ref_chosen, ref_rejected = normal(3, seed=3).double(), normal(3, seed=4).double()
    loss = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta)
    loss.backward()
    margins = [beta * (c - rc - r + rr) for c, r, rc, rr in zip(
        *(x.tolist() for x in (chosen, rejected, ref_chosen, ref_rejected)), strict=True
    )]  # fmt: skip
    assert loss.item() == pytest.approx(sum(math.log(1 + math.exp(-m)) for m in margins) / 3)
    slopes = [-beta / (1 + math.exp(m)) / 3 for m in margins]
    assert chosen.grad.tolist() == pytest.approx(slopes)
    assert rejected.grad.tolist() == pytest.approx([-s for s in slopes])


# --- rollouts --------------------------------------------------------------------------------------------------------

PROMPTS = [[0, 1, 1, 0], [1], [0, 0]]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_each_answer_is_that_of_its_prompt_and_its_log_probs_are_those_of_the_text_alone(temperature: float) -> None:
    model = small_language(1)
    chance = torch.Generator().manual_seed(0)
    found = rollouts(model, PROMPTS, 5, 6, stop_ids=[STOP], temperature=temperature, generator=chance)
    texts = found.texts()
    assert len(texts) == 15 and {len(text) for text in texts} > {4}
    assert not found.log_probs.requires_grad and found.temperature == temperature
    for i, text in enumerate(texts):
        prompt = PROMPTS[i // 5]
        answer, n = text[len(prompt) :], int(found.mask[i].sum())
        assert text[: len(prompt)] == prompt and len(answer) == n
        assert STOP not in answer[:-1] and (answer[-1] == STOP or n == 6)
        assert found.mask[i].tolist() == [column < n for column in range(found.mask.shape[1])]
        alone = log_prob(model, prompt, answer, temperature)
        assert (found.log_probs[i, :n] - alone).abs().max() < 1e-12


def test_log_probs_at_temperature_1_are_those_of_token_log_probs() -> None:
    model = toy_model(std=0.2)
    found = rollouts(model, [[3, 4], [5]], 3, 5, stop_ids=[])
    assert found.mask.all() and found.mask.shape == (6, 5)
    torch.testing.assert_close(found.log_probs, token_log_probs(model, found.ids, found.padding)[:, -5:])


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_texts_are_drawn_as_often_as_they_are_probable(temperature: float) -> None:
    model = small_language(2, std=0.1)
    found = rollouts(model, [[0, 1]], 6000, LONGEST, stop_ids=[STOP], temperature=temperature)
    counts = Counter(tuple(text[2:]) for text in found.texts())
    with torch.no_grad():
        shares = torch.stack([log_prob(model, (0, 1), text, temperature).sum().exp() for text in TEXTS])
    assert set(counts) <= set(TEXTS)
    counted = torch.tensor([counts[text] for text in TEXTS]).double()
    assert chi_square(counted, shares) < chi_square_bound(len(TEXTS) - 1)


def test_several_stop_ids_and_pads_that_are_stop_ids_end_an_answer_once() -> None:
    found = rollouts(small_language(1), PROMPTS, 8, 6, stop_ids=[0, STOP])
    for text, prompt in zip(found.texts(), [p for p in PROMPTS for _ in range(8)], strict=True):
        assert set(text[len(prompt) : -1]) <= {1}


def test_a_generator_repeats_the_texts_and_modes_and_gradients_stay_as_they_were() -> None:
    model = small_language(3, residual_dropout=0.5)
    before = random_modes(model)
    first, again, other = (
        rollouts(model, PROMPTS, 4, 6, stop_ids=[STOP], generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert torch.equal(first.ids, again.ids) and torch.equal(first.log_probs, again.log_probs)
    assert first.ids.shape != other.ids.shape or not torch.equal(first.ids, other.ids)
    assert modes(model) == before and all(p.grad is None for p in model.parameters())


# --- the loop --------------------------------------------------------------------------------------------------------


def run(model: TransformerLM, n_batches: int = 1, reward: Any = None, lr: float = 0.1, **options: Any) -> list[Any]:
    options = {"n_each": 4, "max_new_tokens": 5, "stop_ids": [STOP], **options}
    reference = options.pop("reference", None) or small_language(9)
    adam = options.pop("adam", None)
    optimizer = torch.optim.Adam(model.parameters(), adam) if adam else torch.optim.SGD(model.parameters(), lr)
    prompts = itertools.repeat(PROMPTS, n_batches)
    return list(reinforce(model, reference, prompts, reward or (lambda ids: worth(tuple(ids))), optimizer, **options))


@pytest.mark.parametrize(("scale", "beta"), [("none", 0.0), ("none", 0.7), ("std", 0.0)])
def test_an_update_is_the_one_that_its_texts_say(scale: str, beta: float) -> None:
    """The gradient of each text alone, in Python sums; another temperature would show."""
    torch.manual_seed(0)
    model, before, reference = (small_language(seed, std=0.2) for seed in (5, 5, 9))
    options = {"scale": scale, "beta": beta, "temperature": 1.5, "clip_norm": math.inf}
    (update,) = run(model, reference=reference, **options)
    texts = update.rollouts.texts()
    values = [[worth(tuple(text)) for text in texts[i : i + 4]] for i in range(0, 12, 4)]
    assert update.step == 1 and update.rewards.tolist() == [pytest.approx(row, abs=1e-6) for row in values]
    total, n_tokens, kl, entropy = torch.zeros(()).double(), 0, 0.0, 0.0
    for i, text in enumerate(texts):
        group, prompt = values[i // 4], PROMPTS[i // 4]
        mean = sum(group) / 4
        spread = {"none": 1.0, "std": math.sqrt(sum((x - mean) ** 2 for x in group) / 4) or 1.0}[scale]
        here, there = (log_prob(m, prompt, text[len(prompt) :], 1.5) for m in (before, reference))
        r = (there.detach() - here).exp()
        penalty = (r - 1 - r.log()).sum()
        total = total - (group[i % 4] - mean) / spread * here.sum() + beta * penalty
        kl, n_tokens = kl + penalty.item(), n_tokens + len(here)
        rows = (before(torch.tensor([text[:-1]]))[0, len(prompt) - 1 :] / 1.5).softmax(-1)
        entropy -= (rows * rows.log()).sum().item()
    expected = gradient(total / n_tokens, before)
    pairs = zip(before.parameters(), model.parameters(), strict=True)
    found = torch.cat([(old - new).detach().flatten() / 0.1 for old, new in pairs])
    assert (found - expected).abs().max() < 2e-3 * expected.abs().max()  # advantages are fp32, and std has its 1e-4
    assert update.kl.item() == pytest.approx(kl / n_tokens) and update.entropy.item() == pytest.approx(
        entropy / n_tokens
    )
    assert update.grad_norm.item() == pytest.approx(expected.norm().item(), rel=2e-3)


@pytest.mark.parametrize(("beta", "expected"), [(0.0, (0.95, 1.0)), (1.0, (0.4, 0.8))])
def test_a_reward_is_learned_and_a_penalty_holds_the_model_near_its_start(
    beta: float, expected: tuple[float, float]
) -> None:
    """Texts of five tokens without a stop, worth the fraction of ones among them: at first about a third to a half."""
    torch.manual_seed(1)
    model = small_language(6, std=0.3)
    options = {"reward": lambda ids: ids[-5:].count(1) / 5, "stop_ids": [], "beta": beta, "n_each": 8}
    updates = run(model, 80, reference=evaluation_copy(model), adam=0.01, **options)
    means = [update.rewards.mean().item() for update in updates]
    assert updates[0].kl.item() == 0 and means[0] < 0.6
    assert expected[0] <= sum(means[-10:]) / 10 <= expected[1]
    assert [update.step for update in updates] == list(range(1, 81))


def test_more_updates_of_the_same_texts_use_the_probabilities_of_the_model_that_wrote() -> None:
    model = small_language(7)
    updates = run(model, 2, n_updates=3, lr=0.3, clip_norm=math.inf)
    assert [update.step for update in updates] == [1, 2, 3, 4, 5, 6]
    written = [update.rollouts for update in updates]
    assert all(
        torch.equal(one.ids, written[0].ids) and torch.equal(one.log_probs, written[0].log_probs) for one in written[:3]
    )
    assert written[3].ids.shape != written[0].ids.shape or not torch.equal(written[3].ids, written[0].ids)
    first = small_language(7)
    for row, text, n in zip(written[0].log_probs, written[0].texts(), written[0].mask.sum(1), strict=True):
        assert (row[:n] - log_prob(first, text[:-n], text[-n:])).abs().max() < 1e-12
    gains = group_advantages(updates[0].rewards).flatten()
    by_hand = -(gains[:, None] * written[0].mask).sum() / written[0].mask.sum()
    assert updates[0].loss.item() == pytest.approx(by_hand.item(), abs=1e-6)  # no ratio differs from 1
    assert updates[1].loss.item() < updates[0].loss.item()


def test_dropout_is_off_and_the_reference_is_left_alone() -> None:
    model = small_language(8, residual_dropout=0.5).train()
    reference = copy.deepcopy(model)
    weights = copy.deepcopy(reference.state_dict())
    updates = run(model, 2, reference=reference)
    assert updates[0].kl.item() == 0 < updates[1].kl.item()
    assert all(torch.equal(weights[name], value) for name, value in reference.state_dict().items())
    assert reference.training and all(p.grad is None for p in reference.parameters())


def test_frozen_parameters_stay() -> None:
    model = small_language(8)
    model.embed.weight.requires_grad_(False)
    before = model.embed.weight.clone()
    run(model, 2)
    assert torch.equal(model.embed.weight, before)


def test_weights_in_fp32_learn_from_products_in_bf16() -> None:
    model = TransformerLM(toy_config(vocab_size=3))
    updates = run(model, 2, precision="bf16", reference=evaluation_copy(TransformerLM(toy_config(vocab_size=3))))
    for update in updates:
        assert update.rollouts.log_probs.dtype == update.loss.dtype == torch.float32
        assert all(value.isfinite() for value in (update.loss, update.kl, update.entropy, update.grad_norm))
    assert updates[0].loss.item() == pytest.approx(updates[0].loss.item())
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_an_update_itself_reads_nothing_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more updates of the same texts wait for nothing: what is read is read by writing and by the reward."""
    for module in (rewards, model):
        monkeypatch.setattr(module, "values_at_hand", lambda x: False)
    counts = []
    for n_updates in (1, 3):
        torch.manual_seed(0)
        with DeviceReads() as device:
            run(small_language(8), n_updates=n_updates)
        counts.append(device.total)
    assert counts[0] == counts[1] > 0


# --- what is refused -------------------------------------------------------------------------------------------------

ONE, MASK = torch.zeros(2, 3), torch.ones(2, 3) > 0


@pytest.mark.parametrize(("call", "message"), [
    (lambda: group_advantages(torch.zeros(6)), r"rewards must be \(P, K\).*got \(6,\); use view"),
    (lambda: group_advantages(ONE, scale="max"), "scale 'max' is unknown; choose one of none, std"),
    (lambda: policy_loss(ONE, ONE[:, :2], torch.zeros(2), MASK), r"old_log_probs must be \(2, 3\).*got \(2, 2\)"),
    (lambda: policy_loss(ONE, ONE, torch.zeros(3), MASK), r"advantages must be \(2,\), one of each answer, got \(3,\)"),
    (lambda: policy_loss(ONE, ONE, ONE, MASK), r"advantages must be \(2,\).*got \(2, 3\)"),
    (lambda: policy_loss(ONE, ONE, torch.zeros(2), MASK, clip=0), "clip must be positive, got 0"),
    (lambda: policy_loss(ONE, ONE, torch.zeros(2), ~MASK), r"no token counts: the mask \(2, 3\) is False everywhere"),
    (lambda: kl_penalty(ONE, ONE[0], MASK), r"reference_log_probs must be \(2, 3\).*got \(3,\)"),
    (lambda: kl_penalty(ONE, ONE, ~MASK), "no token counts"),
    (lambda: dpo_loss(ONE[0], ONE[0], ONE[0], ONE[0, :2]), r"ref_rejected must be \(3,\).*got \(2,\)"),
    (lambda: dpo_loss(*[ONE[0]] * 4, beta=0), "beta must be positive and finite, got 0"),
    (lambda: rollouts(small_language(), PROMPTS, 0, 3, stop_ids=[2]), "n_each must be an integer of at least 1, got 0"),
    (lambda: rollouts(small_language(), PROMPTS, 2, 0, stop_ids=[2]), "max_new_tokens must be .* at least 1, got 0"),
    (lambda: rollouts(small_language(), PROMPTS, 2, 9, stop_ids=[2]), "4 prompt tokens and 9 new ones exceed"),
    (lambda: rollouts(small_language(), PROMPTS, 2, 3, stop_ids=[5]), "stop id must be an integer in 0..2 .*, got 5"),
    (lambda: rollouts(small_language(), [[]], 2, 3, stop_ids=[2]), "prompts must be lists of at least one id"),
    (lambda: rollouts(small_language(), PROMPTS, 2, 3, stop_ids=[2], temperature=0), "temperature must be positive"),
    (lambda: run(small_language(), n_each=1), "n_each must be at least 2, .* got 1"),
    (lambda: run(small_language(), beta=-1), "beta must be 0 or positive and finite, got -1"),
    (lambda: run(small_language(), n_updates=0), "n_updates must be an integer of at least 1, got 0"),
    (lambda: run(small_language(), scale="max"), "scale 'max' is unknown"),
    (lambda: run(small_language(), precision="fp8"), "precision 'fp8' is unknown"),
    (lambda: run(small_language(), reward=lambda ids: math.nan), "a text got the reward nan; return a finite number"),
])  # fmt: skip
def test_what_cannot_be_followed_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_reference_that_is_the_model_itself_is_refused_at_the_call() -> None:
    model = small_language()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match=r"reference is the model itself.*use copy.deepcopy"):
        reinforce(model, model, [PROMPTS], len, optimizer, n_each=2, max_new_tokens=3, stop_ids=[2])


def test_rollouts_are_a_frozen_record() -> None:
    found = rollouts(small_language(), PROMPTS, 2, 3, stop_ids=[STOP])
    assert isinstance(found, Rollouts)
    with pytest.raises(AttributeError):
        found.ids = toy_ids(1, 2)  # type: ignore[misc]
