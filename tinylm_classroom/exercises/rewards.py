"""Lesson 17: the loss whose gradient is that of the mean reward."""

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

EXERCISES = (POLICY_GRADIENT_LOSS,)
