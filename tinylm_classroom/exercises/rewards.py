"""Lesson 17: the loss whose gradient is that of the mean reward, and what each text of a group gets
for its reward.
"""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def policy_gradient_loss(
    log_probs: Tensor, advantages: Tensor, mask: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """The loss () of written tokens (B, T) with an advantage (B,) for each text, and the mistakes
    that are `on`.
    """
    each = slipped(on, log_probs, {
        "log-probabilities detached": torch.detach,
        "ratio of probabilities": lambda x: (x - x.detach()).exp(),
        "probabilities": torch.exp,
    })  # fmt: skip
    is_square = len(advantages) == log_probs.shape[1]
    weights = slipped(on, _weights(advantages, on)[:, None].expand_as(each), {
        "advantages along the tokens": lambda x: x.mT if is_square else x,
        "advantages unused": torch.ones_like,
    })  # fmt: skip
    counted = counted_tokens(mask, on)
    if "product of two means" in on:
        return -each[counted].mean() * weights[:, 0].mean()
    loss = reduced(-(each * weights).where(counted, 0.0), counted, on)
    return slipped(on, loss, {"absolute value": torch.abs, "wrong sign": torch.neg})


def _weights(advantages: Tensor, on: frozenset[str]) -> Tensor:
    """What each text's log-probabilities are multiplied by (B,)."""
    found = advantages if "advantages with gradient" in on else advantages.detach()
    return chosen(on, found, {
        "only the good": lambda: found.clamp(min=0),
        "only the bad": lambda: found.clamp(max=0),
        "sign of the advantage": found.sign,
        "advantage without sign": found.abs,
        "centred again": lambda: found - found.mean(),
        "normalised again": lambda: (found - found.mean()) / found.std(),
        "softmax of the advantages": lambda: found.softmax(0),
    })  # fmt: skip


def counted_tokens(mask: Tensor, on: frozenset[str]) -> Tensor:
    """The tokens (B, T) that count."""
    return chosen(on, mask, {
        "mask unused": lambda: torch.ones_like(mask),
        "mask upside down": lambda: ~mask,
        "last token only": lambda: mask & (mask.flip(1).cumsum(1) == 1).flip(1),
        "first token missing": lambda: mask & (mask.cumsum(1) > 1),
    })  # fmt: skip


def reduced(losses: Tensor, counted: Tensor, on: frozenset[str]) -> Tensor:
    """One number of losses (B, T), which are 0 where nothing counts."""
    of_texts = losses.sum(1)
    of_each = of_texts / counted.sum(1).clamp(min=1)
    return chosen(on, losses.sum() / counted.sum(), {
        "sum over all tokens": losses.sum,
        "divided by all positions": losses.mean,
        "sum of each text, mean over texts": of_texts.mean,
        "mean of each text first": of_each.mean,
        "one number for each text": lambda: of_each,
        "one number for each token": lambda: losses,
    })  # fmt: skip


def drawn_texts(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and a mask: a prompt of 1 or 2 tokens, then texts of different length."""
    written = torch.randint(2, T, (B, 1), generator=g)
    at = torch.arange(T)
    mask = (at >= 1 + torch.arange(B)[:, None] % 2) & (at <= written)
    return -3 * torch.rand(B, T, generator=g) - 0.1, mask


def _texts(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor, Tensor]:
    log_probs, mask = drawn_texts(g, B, T)
    return log_probs, 2 * torch.randn(B, generator=g), mask


def _two(advantages: list[float], mask: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = torch.tensor([[-0.5, -1.0, -2.0], [-4.0, -0.25, -3.0]])
    return log_probs, torch.tensor(advantages), torch.tensor(mask, dtype=torch.bool)


POLICY_GRADIENT_LOSS = Exercise(
    name="policy_gradient_loss",
    lesson="17",
    reference=policy_gradient_loss,
    probes=(
        Probe(
            "for one token with advantage 1, the loss is minus its log-probability",
            lambda g: (torch.tensor([[-2.0]]), torch.tensor([1.0]), torch.tensor([[True]])),
        ),
        Probe(
            "each text has its own advantage", lambda g: _two([1.0, -2.0], [[1, 1, 1], [1, 1, 1]])
        ),
        Probe("only written tokens count", lambda g: _two([2.0, 1.0], [[0, 1, 1], [0, 1, 1]])),
        Probe(
            "every written token counts the same",
            lambda g: _two([1.0, 3.0], [[0, 1, 1], [0, 1, 0]]),
        ),
        Probe(
            "a text may have no written token", lambda g: _two([1.0, 0.5], [[0, 1, 1], [0, 0, 0]])
        ),
        Probe(
            "all advantages may be negative", lambda g: _two([-1.0, -0.5], [[0, 1, 1], [0, 1, 1]])
        ),
        Probe("texts may differ in length", lambda g: _texts(g, 3, 7)),
        Probe("each text has its own advantage", lambda g: _texts(g, 5, 5)),
        Probe(
            "gradients reach the log-probabilities alone", lambda g: _texts(g, 4, 6), gradients=True
        ),
    ),
    **texts("policy_gradient_loss"),
    wider=True,
)


def group_advantages(rewards: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """How much better each text is than its group, (P, K) for rewards (P, K), and the mistakes that
    are `on`.
    """
    K = rewards.shape[1]
    total = rewards.sum(1, keepdim=True)
    baseline = chosen(on, rewards.mean(1, keepdim=True), {
        "mean over the whole batch": rewards.mean,
        "mean over the beginnings": lambda: rewards.mean(0, keepdim=True),
        "no baseline": lambda: 0.0,
        "sum of the group": lambda: total,
        "median of the group": lambda: rewards.median(1, keepdim=True).values,
        "best of the group": lambda: rewards.amax(1, keepdim=True),
        "worst of the group": lambda: rewards.amin(1, keepdim=True),
        "first of the group": lambda: rewards[:, :1],
        "mean of the others": lambda: (total - rewards) / (K - 1),
        "mean of those above 0": lambda: total / (rewards != 0).sum(1, keepdim=True).clamp(min=1),
        "a fixed baseline": lambda: 0.5,
        "mean on the wrong axis": lambda: rewards.mean(1)[None],
    })  # fmt: skip
    found = slipped(on, rewards - baseline, {
        "only the sign": torch.sign,
        "only above the mean": torch.relu,
        "wrong sign": torch.neg,
        "divided by the spread": lambda x: x / (rewards.std(1, keepdim=True) + 1e-6),
        "divided by the spread of all": lambda x: x / (rewards.std() + 1e-6),
        "divided by the spread, of n": lambda x: (
            x / (rewards.std(1, keepdim=True, correction=0) + 1e-6)
        ),
        "divided by the size": lambda x: x / K,
        "flat": torch.flatten,
    })  # fmt: skip
    return chosen(on, found, {
        "divided by the mean": lambda: rewards / (total / K).clamp(min=1e-6),
        "softmax": lambda: rewards.softmax(1),
    })  # fmt: skip


GROUP_ADVANTAGES = Exercise(
    name="group_advantages",
    lesson="17",
    order=1,
    reference=group_advantages,
    probes=(
        Probe(
            "a reward above the group's mean is positive",
            lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0]]),),
        ),
        Probe(
            "each group has a mean of its own",
            lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]),),
        ),
        Probe(
            "a group whose rewards are equal gets zeros",
            lambda g: (torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]),),
        ),
        Probe("rewards may be any numbers", lambda g: (3 * torch.randn(3, 5, generator=g) + 2,)),
        Probe(
            "there may be as many groups as texts in a group",
            lambda g: (torch.randn(4, 4, generator=g) - 1,),
        ),
        Probe("a group of one text gets 0", lambda g: (torch.tensor([[2.0], [-1.0]]),)),
        Probe("rewards may be large", lambda g: (100 * torch.rand(2, 6, generator=g),)),
    ),
    **texts("group_advantages"),
    wider=True,
)

EXERCISES = (POLICY_GRADIENT_LOSS, GROUP_ADVANTAGES)
