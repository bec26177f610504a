"""Lesson 17: the loss whose gradient is that of the mean reward, and what each text of a group gets for its reward."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, in_fp64, texts


def policy_gradient_loss(
    log_probs: Tensor, advantages: Tensor, mask: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """The loss () of written tokens (B, T) with an advantage (B,) for each text, and the mistakes that are `on`."""
    each = log_probs.detach() if "log-probabilities detached" in on else log_probs
    each = each.exp() if "probabilities" in on else each
    weights = _weights(advantages, on)[:, None].expand_as(each)
    if "advantages along the tokens" in on and len(advantages) == log_probs.shape[1]:
        weights = weights.mT
    if "advantages unused" in on:
        weights = torch.ones_like(weights)
    counted = torch.ones_like(mask) if "mask unused" in on else ~mask if "mask upside down" in on else mask
    if "last token only" in on:
        counted = mask & (mask.flip(1).cumsum(1) == 1).flip(1)
    if "first token missing" in on:
        counted = mask & (mask.cumsum(1) > 1)
    if "product of two means" in on:
        return -each[counted].mean() * weights[:, 0].mean()
    gained = (each * weights).where(counted, 0.0)
    loss = _reduced(-gained, counted, on)
    if "absolute value" in on:
        return loss.abs()
    return -loss if "wrong sign" in on else loss


def _weights(advantages: Tensor, on: frozenset[str]) -> Tensor:
    """What each text's log-probabilities are multiplied by (B,)."""
    found = advantages if "advantages with gradient" in on else advantages.detach()
    others = {
        "only the good": lambda: found.clamp(min=0),
        "only the bad": lambda: found.clamp(max=0),
        "sign of the advantage": lambda: found.sign(),
        "advantage without sign": lambda: found.abs(),
        "centred again": lambda: found - found.mean(),
        "softmax of the advantages": lambda: found.softmax(0),
    }
    return next((other() for name, other in others.items() if name in on), found)


def _reduced(losses: Tensor, counted: Tensor, on: frozenset[str]) -> Tensor:
    """One number of losses (B, T), which are 0 where nothing counts."""
    of_texts, n_tokens = losses.sum(1), counted.sum(1)
    if "sum over all tokens" in on:
        return losses.sum()
    if "divided by all positions" in on:
        return losses.mean()
    if "sum of each text, mean over texts" in on:
        return of_texts.mean()
    if "mean of each text first" in on:
        return (of_texts / n_tokens.clamp(min=1)).mean()
    if "one number for each text" in on:
        return of_texts / n_tokens.clamp(min=1)
    return losses.sum() / counted.sum()


def _texts(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, advantages, and a mask: a prompt of one token or two, then texts of different length."""
    written = torch.randint(2, T, (B, 1), generator=g)
    at = torch.arange(T)
    mask = (at >= 1 + torch.arange(B)[:, None] % 2) & (at <= written)
    return -3 * torch.rand(B, T, generator=g) - 0.1, 2 * torch.randn(B, generator=g), mask


def _two(advantages: list[float], mask: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = torch.tensor([[-0.5, -1.0, -2.0], [-4.0, -0.25, -3.0]])
    return log_probs, torch.tensor(advantages), torch.tensor(mask, dtype=torch.bool)


POLICY_GRADIENT_LOSS = Exercise(
    name="policy_gradient_loss",
    lesson="17",
    reference=policy_gradient_loss,
    probes=(
        Probe(
            "one token, advantage 1: minus its log-probability",
            lambda g: (torch.tensor([[-2.0]]), torch.tensor([1.0]), torch.tensor([[True]])),
        ),
        Probe("each text has its own advantage", lambda g: _two([1.0, -2.0], [[1, 1, 1], [1, 1, 1]])),
        Probe("only written tokens count", lambda g: _two([2.0, 1.0], [[0, 1, 1], [0, 1, 1]])),
        Probe("every written token counts the same", lambda g: _two([1.0, 3.0], [[0, 1, 1], [0, 1, 0]])),
        Probe("a text may have no written token", lambda g: _two([1.0, 0.5], [[0, 1, 1], [0, 0, 0]])),
        Probe("advantages may all be below 0", lambda g: _two([-1.0, -0.5], [[0, 1, 1], [0, 1, 1]])),
        Probe("texts of different length", lambda g: _texts(g, 3, 7)),
        Probe("as many texts as tokens", lambda g: _texts(g, 5, 5)),
        Probe("the gradient reaches the log-probabilities alone", lambda g: _texts(g, 4, 6), gradients=True),
        Probe("fp64 stays fp64", lambda g: in_fp64(_texts(g, 2, 5)), tolerance=1e-6),
    ),
    **texts("policy_gradient_loss"),
)


def group_advantages(rewards: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """How much better each text is than its group, (P, K) for rewards (P, K), and the mistakes that are `on`."""
    others = {
        "mean over the whole batch": lambda: rewards.mean(),
        "mean over the beginnings": lambda: rewards.mean(0, keepdim=True),
        "no baseline": lambda: torch.zeros_like(rewards[:, :1]),
        "sum of the group": lambda: rewards.sum(1, keepdim=True),
        "median of the group": lambda: rewards.median(1, keepdim=True).values,
        "best of the group": lambda: rewards.amax(1, keepdim=True),
        "worst of the group": lambda: rewards.amin(1, keepdim=True),
        "first of the group": lambda: rewards[:, :1],
        "mean of the others": lambda: (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1),
        "mean of those above 0": lambda: (
            rewards.sum(1, keepdim=True) / (rewards != 0).sum(1, keepdim=True).clamp(min=1)
        ),
        "a fixed baseline": lambda: torch.full_like(rewards[:, :1], 0.5),
        "mean on the wrong axis": lambda: rewards.mean(1)[None],
    }
    baseline = next((other() for name, other in others.items() if name in on), rewards.mean(1, keepdim=True))
    found = rewards - baseline
    spread = _spread(rewards, found, on)
    if "divided by the mean" in on:
        return rewards / baseline.clamp(min=1e-6)
    if "softmax" in on:
        return rewards.softmax(1)
    if "only the sign" in on:
        found = found.sign()
    if "only above the mean" in on:
        found = found.clamp(min=0)
    if "flat" in on:
        found = found.flatten()
    return (-found if "wrong sign" in on else found) / spread


def _spread(rewards: Tensor, found: Tensor, on: frozenset[str]) -> Tensor | float:
    """What the differences are divided by."""
    if "divided by the spread" in on:
        return rewards.std(1, keepdim=True) + 1e-6
    if "divided by the spread of all" in on:
        return rewards.std() + 1e-6
    if "divided by the spread, of n" in on:
        return rewards.std(1, keepdim=True, correction=0) + 1e-6
    return found.shape[1] if "divided by the size" in on else 1.0


GROUP_ADVANTAGES = Exercise(
    name="group_advantages",
    lesson="17",
    order=1,
    reference=group_advantages,
    probes=(
        Probe("a reward above the group's mean is positive", lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0]]),)),
        Probe(
            "each group has a mean of its own",
            lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]),),
        ),
        Probe(
            "a group whose rewards are equal gets zeros",
            lambda g: (torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]),),
        ),
        Probe("rewards may be any numbers", lambda g: (3 * torch.randn(3, 5, generator=g) + 2,)),
        Probe("as many groups as texts in a group", lambda g: (torch.randn(4, 4, generator=g) - 1,)),
        Probe("a group of one text gets 0", lambda g: (torch.tensor([[2.0], [-1.0]]),)),
        Probe("large rewards", lambda g: (100 * torch.rand(2, 6, generator=g),)),
        Probe("any strides", lambda g: (torch.randn(6, 3, generator=g).mT,)),
        Probe("fp64 stays fp64", lambda g: (torch.randn(2, 3, generator=g).double(),), tolerance=1e-6),
    ),
    **texts("group_advantages"),
)

EXERCISES = (POLICY_GRADIENT_LOSS, GROUP_ADVANTAGES)
