"""Learning from rewards: a model writes, each text gets a number, and the better texts become more
likely. Notebook 17.

Nobody has to write down the right text; it is enough to judge one. `reinforce` is the whole loop:
several answers to each prompt (`rollouts`), what each is worth compared with the others
(`group_advantages`), and a step that makes the better ones more likely (`policy_loss`) while it
stays near the model before (`kl_penalty`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .inputs import check_number, check_size
from .layers import at_least_fp32, evaluation_mode, pick, values_at_hand
from .model import TransformerLM
from .sampling import generate
from .training.loop import PRECISIONS
from .writing import pad_left

Prompts = Sequence[Sequence[int]]


def group_advantages(rewards: Tensor, scale: str = "none") -> Tensor:
    """How much better each answer is than the mean of the answers to the same prompt.

    rewards (P, K): K answers to each of P prompts. scale: "none", or "std" to divide by each
    group's standard deviation, so that a prompt that is nearly always or nearly never solved weighs
    as much as any other.
    Returns (P, K); a group of equal rewards has only zeros, so nothing is learned from it.
    Raises ValueError for another shape or scale.
    Source: Shao et al. 2024, "DeepSeekMath", section 4.1.2 (GRPO, with std); Liu et al. 2025,
    "Understanding R1-Zero-Like Training", section 3 (Dr. GRPO, without: the division prefers
    prompts that are too easy or too hard).
    """
    if rewards.ndim != 2:
        raise ValueError(
            f"rewards must be (P, K), K answers to each prompt, got {tuple(rewards.shape)}; use "
            "view(-1, K)"
        )
    rewards = at_least_fp32(rewards)
    centred = rewards - rewards.mean(1, keepdim=True)
    return pick(SCALES, scale, "scale")(centred)


def _unscaled(centred: Tensor) -> Tensor:
    return centred


def _by_deviation(centred: Tensor) -> Tensor:
    return centred / (centred.square().mean(1, keepdim=True).sqrt() + 1e-4)  # no division by 0


SCALES = {"none": _unscaled, "std": _by_deviation}


def policy_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2
) -> Tensor:
    """The loss whose gradient makes answers with a positive advantage more likely, and the others
    less.

    Every answer token of the batch weighs the same, so a long answer weighs more than a short one.
    Once the probability of a token has changed by the factor 1 + clip or 1 - clip in the direction
    of its advantage, its gradient is 0.
    log_probs, old_log_probs (B, N): of each token, by the model that learns and by the model that
    wrote, in nats.
    advantages (B,): of each answer. mask (B, N): True for the tokens of the answers. clip: math.inf
    never clips.
    Returns ().
    Raises ValueError for shapes that do not fit, a clip that is not positive and, on CPU, a mask
    without any token.
    Source: Schulman et al. 2017, "Proximal Policy Optimization", equation 7; Yu et al. 2025,
    "DAPO", section 3.3, for the mean over all tokens.
    """
    check_number("clip", clip, Real, lambda c: c > 0, "positive")
    _check_shapes(mask, log_probs=log_probs, old_log_probs=old_log_probs)
    if advantages.shape != log_probs.shape[:1]:
        raise ValueError(
            f"advantages must be ({len(log_probs)},), one of each answer, got "
            f"{tuple(advantages.shape)}"
        )
    ratio = (log_probs - old_log_probs).where(mask, 0.0).exp()  # (B, N)
    gain = advantages[:, None].to(ratio.dtype)  # (B, 1)
    return -_mean(torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain), mask)


def kl_penalty(log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    """The distance KL(policy || reference) in nats per token, estimated from the tokens that the
    policy drew.

    With r = reference / policy, the probability of the drawn token, each token adds r - 1 - log r:
    never negative, and its mean over the policy's draws is the divergence. As a loss it pulls
    towards the reference, but along the gradient of KL(reference || policy): the draws themselves
    are not differentiated.
    log_probs, reference_log_probs (B, N): of each token. mask (B, N): True for the tokens that
    count.
    Returns (), the mean over the tokens that count.
    Raises ValueError for shapes that do not fit and, on CPU, a mask without any token.
    Source: Schulman 2020, "Approximating KL Divergence" (k3); Shao et al. 2024, equation 4.
    """
    _check_shapes(mask, log_probs=log_probs, reference_log_probs=reference_log_probs)
    log_ratio = (reference_log_probs - log_probs).where(mask, 0.0)  # (B, N)
    return _mean(log_ratio.expm1() - log_ratio, mask)


def kl_divergence(logits: Tensor, reference_logits: Tensor) -> Tensor:
    """KL(policy || reference) of two distributions over the vocabulary: exact, because it sums over
    all tokens.

    logits, reference_logits (..., V). Returns (...), in nats, in fp32 at least.
    """
    log_p, log_q = (at_least_fp32(x).log_softmax(-1) for x in (logits, reference_logits))
    p = log_p.exp()
    return (p * (log_p - log_q).where(p > 0, 0.0)).sum(-1)  # (..., V) -> (...)


def dpo_loss(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float = 0.1
) -> Tensor:
    """Learn from pairs of answers, of which one is preferred, without rewards and without writing.

    chosen, rejected (B,): log-probabilities of the two whole answers of each pair, by the model
    that learns.
    ref_chosen, ref_rejected (B,): the same by the reference. beta: how strongly the model is held
    at the reference.
    Returns (), in nats: log 2 where the model is the reference.
    Raises ValueError for shapes that do not fit and a beta that is not positive.
    Source: Rafailov et al. 2023, "Direct Preference Optimization", equation 7; beta 0.1 as in its
    appendix B.
    """
    check_number("beta", beta, Real, lambda b: 0 < b < math.inf, "positive and finite")
    _check_shapes(chosen, rejected=rejected, ref_chosen=ref_chosen, ref_rejected=ref_rejected)
    return -F.logsigmoid(beta * ((chosen - ref_chosen) - (rejected - ref_rejected))).mean()


def _check_shapes(like: Tensor, **tensors: Tensor) -> None:
    for name, x in tensors.items():
        if x.shape != like.shape:
            raise ValueError(
                f"{name} must be {tuple(like.shape)} as the other tensors are, got {tuple(x.shape)}"
            )


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of the values (B, N) that count, in mask (B, N)."""
    if values_at_hand(mask) and not mask.any():
        raise ValueError(
            f"no token counts: the mask {tuple(mask.shape)} is False everywhere; mark the answers' "
            "tokens"
        )
    return values.where(mask, 0.0).sum() / mask.sum()


@dataclass(frozen=True)
class Rollouts:
    """Texts that a model wrote, as one batch: the answers to a prompt are in neighbouring rows.

    ids (B, T): padding, prompt and answer of each row; the answers are in the last N columns.
    padding (B,): how many ids of each row are padding. mask (B, N): True for the tokens of the
    answers, up to and including the stop id. log_probs (B, N): of these tokens, at the temperature,
    by the model that wrote them; no gradient flows through them. All are on the device of the
    model.
    """

    ids: Tensor
    padding: Tensor
    mask: Tensor
    log_probs: Tensor
    temperature: float = 1.0

    def texts(self) -> list[list[int]]:
        """The ids of each text, prompt and answer, without padding.

        Reading them makes a device wait.
        """
        ends = self.ids.shape[1] - self.mask.shape[1] + self.mask.sum(1)  # (B)
        rows = zip(self.ids.tolist(), self.padding.tolist(), ends.tolist(), strict=True)
        return [row[start:end] for row, start, end in rows]


def rollouts(
    model: TransformerLM,
    prompts: Prompts,
    n_each: int,
    max_new_tokens: int,
    *,
    stop_ids: Sequence[int],
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Rollouts:
    """Let a model write `n_each` answers to each prompt, by plain sampling, so that log_probs are
    those of the draws.

    prompts: lists of ids, also of different length. stop_ids: an answer ends with the first of
    these, or after max_new_tokens. generator: source of randomness, on the model's device; default
    torch's global one.
    Raises TypeError or ValueError for prompts and options that cannot be followed, and where the
    longest prompt and max_new_tokens exceed max_seq_len.
    """
    texts = _write(model, prompts, n_each, max_new_tokens, stop_ids, temperature, generator)
    with evaluation_mode(model):
        return replace(texts, log_probs=_chosen(_next_log_probs(model, texts), texts))


def _write(
    model: TransformerLM,
    prompts: Prompts,
    n_each: int,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    temperature: float,
    generator: torch.Generator | None,
) -> Rollouts:
    """As `rollouts`, but nobody has read the texts yet: of the log-probabilities there are none,
    (B, 0).
    """
    check_size("n_each", n_each)
    warmth = "positive and finite"
    check_number("temperature", temperature, Real, lambda t: 0 < t < math.inf, warmth)
    check_size("max_new_tokens", max_new_tokens)
    device = model.embed.weight.device
    ids, pads = pad_left(prompts)
    repeated = ids.repeat_interleave(n_each, 0)  # (B, T)
    pads = pads.repeat_interleave(n_each)  # (B)
    options: dict[str, Any] = {
        "stop_ids": stop_ids,
        "temperature": temperature,
        "overflow": "error",
        "generator": generator,
    }
    padding = pads.to(device) if pads.any() else None  # reading it costs more than not having it
    ids = generate(
        model, repeated.to(device), max_new_tokens, padding=padding, **options
    )  # (B, T + N)
    new = ids[:, repeated.shape[1] :]  # (B, N)
    stops = torch.isin(new, new.new_tensor(stop_ids)).long()  # (B, N)
    mask = stops.cumsum(1) == stops  # (B, N)
    return Rollouts(
        ids, pads.to(device), mask, new.new_empty((len(new), 0), dtype=torch.float32), temperature
    )


def _next_log_probs(model: nn.Module, texts: Rollouts) -> Tensor:
    """What a model says of the tokens of the answers, at the temperature: log-probabilities (B, N,
    V).
    """
    logits = model(texts.ids[:, :-1], padding=texts.padding)[:, -texts.mask.shape[1] :]  # (B, N, V)
    return (at_least_fp32(logits) / texts.temperature).log_softmax(-1)


def _chosen(log_probs: Tensor, texts: Rollouts) -> Tensor:
    """Of log-probabilities (B, N, V), those of the tokens that were drawn."""
    new = texts.ids[:, -log_probs.shape[1] :, None].long()  # (B, N, 1)
    return log_probs.gather(-1, new).squeeze(-1)  # (B, N, 1) -> (B, N)


class Update(NamedTuple):
    """One update: number from 1, rewards (P, K) of its texts and the texts themselves, and of the
    model before it: distance from the reference and entropy in nats per answer token, loss, and
    gradient norm before clipping.
    """

    step: int
    rewards: Tensor
    kl: Tensor
    entropy: Tensor
    loss: Tensor
    grad_norm: Tensor
    rollouts: Rollouts


def reinforce(
    model: TransformerLM,
    reference: TransformerLM,
    prompts: Iterable[Prompts],
    reward: Callable[[list[int]], float],
    optimizer: torch.optim.Optimizer,
    *,
    n_each: int,
    max_new_tokens: int,
    stop_ids: Sequence[int],
    beta: float = 0.0,
    clip: float = 0.2,
    scale: str = "none",
    temperature: float = 1.0,
    n_updates: int = 1,
    clip_norm: float = 1.0,
    precision: str = "fp32",
    generator: torch.Generator | None = None,
) -> Iterator[Update]:
    """Let the model write, reward its texts and update it, again and again, yielding an `Update`
    after each update.

    reference: the model that the distance is measured from, such as a copy of the model before; it
    is not changed.
    prompts: yields the prompts of each batch; with the last of them the loop ends. reward: gets the
    ids of one text, prompt and answer, and returns a finite number. n_each, max_new_tokens,
    stop_ids, temperature, generator: as in `rollouts`. beta: weight of `kl_penalty` in the loss.
    scale: as in `group_advantages`. n_updates: how many updates the texts of a batch are used for.
    clip: as in `policy_loss`; it matters from the second of these on. clip_norm: largest gradient
    norm, math.inf never clips. precision: of products, as in `TrainConfig`. Dropout is off
    throughout, because the log-probabilities must be those of the model that wrote. A device waits
    for each batch, because the reward reads the texts; nothing else is read, and the tensors of an
    `Update` stay there.
    Raises TypeError or ValueError for options that cannot be followed, and for a reward that is not
    finite.
    Source: Williams 1992 (the gradient); Shao et al. 2024, algorithm 1.
    """
    if reference is model:
        raise ValueError(
            "reference is the model itself, so the distance is always 0; use copy.deepcopy(model)"
        )
    two = "at least 2, or no answer has another to compare with"
    check_number("n_each", n_each, Integral, lambda n: n >= 2, two)
    check_number("beta", beta, Real, lambda b: 0 <= b < math.inf, "0 or positive and finite")
    check_size("n_updates", n_updates)
    pick(SCALES, scale, "scale")
    in_precision = pick(PRECISIONS, precision, "precision")
    options = (n_each, max_new_tokens, stop_ids, temperature, generator)

    def write(batch: Prompts) -> Rollouts:
        return _write(model, batch, *options)

    weigh = partial(group_advantages, scale=scale)
    what = (model, reference, prompts, write, reward, weigh, optimizer, in_precision)
    return _updates(*what, beta, clip, n_updates, clip_norm)


def _updates(
    model: TransformerLM,
    reference: TransformerLM,
    prompts: Iterable[Prompts],
    write: Callable[[Prompts], Rollouts],
    reward: Callable[[list[int]], float],
    weigh: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    in_precision: Callable[[str], AbstractContextManager],
    beta: float,
    clip: float,
    n_updates: int,
    clip_norm: float,
) -> Iterator[Update]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    steps = count(1)
    device = model.embed.weight.device
    for batch in prompts:
        with in_precision(device.type):
            texts = write(batch)
            with evaluation_mode(reference):
                reference_log_probs = _chosen(_next_log_probs(reference, texts), texts)  # (B, N)
        rewards = _rewards(reward, texts, len(batch))
        advantages = weigh(rewards).flatten().to(device)  # (B)
        for i in range(n_updates):
            model.eval()
            with in_precision(device.type):
                log_probs = _next_log_probs(model, texts)  # (B, N, V)
                policy_log_probs = _chosen(log_probs, texts)  # (B, N)
                if i == 0:  # it is still the model that wrote
                    texts = replace(texts, log_probs=policy_log_probs.detach())
                kl = kl_penalty(policy_log_probs, reference_log_probs, texts.mask)
                chosen = (policy_log_probs, texts.log_probs, advantages, texts.mask)
                loss = policy_loss(*chosen, clip) + beta * kl
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, clip_norm)
            optimizer.step()
            entropy = _mean(-(log_probs.detach().exp() * log_probs.detach()).sum(-1), texts.mask)
            yield Update(next(steps), rewards, kl.detach(), entropy, loss.detach(), norm, texts)


def _rewards(reward: Callable[[list[int]], float], texts: Rollouts, n_prompts: int) -> Tensor:
    """The reward of each text, (P, K), on the CPU. Raises ValueError for one that is not a finite
    number.
    """
    rewards = [float(reward(text)) for text in texts.texts()]
    if bad := [r for r in rewards if not math.isfinite(r)]:
        raise ValueError(
            f"a text got the reward {bad[0]}; return a finite number, such as 0.0 for the worst"
        )
    return torch.tensor(rewards).view(n_prompts, -1)  # (P, K)
