"""Lesson 17: what compares a model with the one it started from: a penalty on the distance, and the loss of DPO."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from .base import Exercise, Probe, in_fp64, texts


def kl_penalty(
    log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """The mean () of r - log r - 1 over written tokens, r = p_reference / p, and the mistakes that are `on`."""
    log_ratio = reference_log_probs - log_probs
    if "exchanged" in on:
        log_ratio = -log_ratio
    if "nothing detached" in on:
        log_ratio = log_ratio.detach()
    others: dict[str, Callable[[], Tensor]] = {
        "log-ratio alone": lambda: -log_ratio,
        "log-ratio, weighted": lambda: -log_probs.exp() * log_ratio,
        "half the square": lambda: log_ratio.square() / 2,
        "absolute difference": lambda: log_ratio.abs(),
        "no minus one": lambda: log_ratio.exp() - log_ratio,
        "plus one": lambda: log_ratio.exp() - log_ratio + 1,
        "plus the logarithm": lambda: log_ratio.exp() + log_ratio - 1,
        "no exponential": lambda: log_ratio - log_ratio - 1 + log_ratio,
        "ratio alone": lambda: log_ratio.exp(),
        "ratio minus one": lambda: log_ratio.exp() - 1,
        "ratio of logarithms": lambda: reference_log_probs / log_probs - log_ratio - 1,
        "difference of probabilities": lambda: reference_log_probs.exp() - log_probs.exp() - log_ratio - 1,
        "logarithm of base 2": lambda: log_ratio.exp() - log_ratio / 0.6931471805599453 - 1,
    }
    each = next((other() for name, other in others.items() if name in on), log_ratio.exp() - log_ratio - 1)
    counted = torch.ones_like(mask) if "mask unused" in on else ~mask if "mask upside down" in on else mask
    each = each.where(counted, 0.0)
    if "sum over all tokens" in on:
        found = each.sum()
    elif "divided by all positions" in on:
        found = each.mean()
    elif "sum of each text, mean over texts" in on:
        found = each.sum(1).mean()
    elif "mean of each text first" in on:
        found = (each.sum(1) / counted.sum(1).clamp(min=1)).mean()
    elif "one number for each token" in on:
        return each
    else:
        found = each.sum() / counted.sum()
    return -found if "wrong sign" in on else found


def _pair(ps: list[list[float]], qs: list[list[float]], mask: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of the model and of the reference, as logarithms."""
    return torch.tensor(ps).log(), torch.tensor(qs).log(), torch.tensor(mask, dtype=torch.bool)


def _drawn(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor, Tensor]:
    at, written = torch.arange(T), torch.randint(2, T, (B, 1), generator=g)
    mask = (at >= 1 + torch.arange(B)[:, None] % 2) & (at <= written)
    log_probs = -3 * torch.rand(B, T, generator=g) - 0.1
    return log_probs, log_probs + torch.randn(B, T, generator=g), mask


KL_PENALTY = Exercise(
    name="kl_penalty",
    lesson="17",
    order=2,
    reference=kl_penalty,
    probes=(
        Probe("equal models have no distance", lambda g: _pair([[0.5, 0.25]], [[0.5, 0.25]], [[1, 1]])),
        Probe("half as probable for the reference: 0.5 - log 0.5 - 1", lambda g: _pair([[0.5]], [[0.25]], [[1]])),
        Probe("twice as probable for the reference: 2 - log 2 - 1", lambda g: _pair([[0.25]], [[0.5]], [[1]])),
        Probe(
            "only written tokens count",
            lambda g: _pair(
                [[0.9, 0.5, 0.2], [0.3, 0.6, 0.5]], [[0.1, 0.3, 0.4], [0.6, 0.2, 0.5]], [[0, 1, 1], [0, 1, 1]]
            ),
        ),
        Probe(
            "every written token counts the same",
            lambda g: _pair(
                [[0.9, 0.5, 0.2], [0.3, 0.6, 0.5]], [[0.1, 0.3, 0.4], [0.6, 0.2, 0.5]], [[0, 1, 1], [0, 1, 0]]
            ),
        ),
        Probe("texts of different length", lambda g: _drawn(g, 3, 7)),
        Probe("as many texts as tokens", lambda g: _drawn(g, 5, 5)),
        Probe("the gradient reaches the model's log-probabilities", lambda g: _drawn(g, 4, 6), gradients=True),
        Probe("fp64 stays fp64", lambda g: in_fp64(_drawn(g, 2, 5)), tolerance=1e-6),
    ),
    **texts("kl_penalty"),
)


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """The mean loss () of B pairs, each argument a text's log-probability (B,), and the mistakes that are `on`."""
    good, bad = chosen - ref_chosen, rejected - ref_rejected
    others: dict[str, Callable[[], Tensor]] = {
        "chosen and rejected exchanged": lambda: bad - good,
        "reference unused": lambda: chosen - rejected,
        "reference alone": lambda: ref_chosen - ref_rejected,
        "reference added": lambda: chosen - rejected + ref_chosen - ref_rejected,
        "only the chosen": lambda: good,
        "only the rejected": lambda: -bad,
        "sum of both": lambda: good + bad,
        "ratios": lambda: good.exp() - bad.exp(),
    }
    margin = next((other() for name, other in others.items() if name in on), good - bad)
    inside = 1.0 if {"beta in front", "beta unused"} & on else 1 / beta if "divided by beta" in on else beta
    scaled = inside * margin
    if "mean inside" in on:
        scaled = scaled.mean()
    losses: dict[str, Callable[[], Tensor]] = {
        "no logarithm": lambda: -scaled.sigmoid(),
        "no sigmoid": lambda: -scaled,
        "hinge": lambda: (1 - scaled).clamp(min=0),
        "squared": lambda: (scaled - 0.5).square(),
        "overflow": lambda: -scaled.sigmoid().log(),
        "one minus": lambda: 1 - scaled.sigmoid(),
    }
    loss = next((other() for name, other in losses.items() if name in on), -logsigmoid(scaled))
    if "beta in front" in on:
        loss = beta * loss
    if "wrong sign" in on:
        loss = -loss
    if "one number for each pair" in on:
        return loss
    return loss.sum() if "sum over the pairs" in on else loss.mean()


def _pairs(g: Generator, B: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ref_chosen, ref_rejected = (-20 - 5 * torch.rand(B, generator=g) for _ in range(2))
    chosen, rejected = (r + scale * torch.randn(B, generator=g) for r in (ref_chosen, ref_rejected))
    return chosen, rejected, ref_chosen, ref_rejected


DPO_LOSS = Exercise(
    name="dpo_loss",
    lesson="17",
    order=3,
    reference=dpo_loss,
    probes=(
        Probe(
            "a model equal to its reference has a loss of log 2",
            lambda g: (*(torch.tensor([x]) for x in (-3.0, -5.0, -3.0, -5.0)), 1.0),
        ),
        Probe(
            "a chosen text that has become more probable lowers the loss",
            lambda g: (*(torch.tensor([x]) for x in (-2.0, -5.0, -3.0, -5.0)), 1.0),
        ),
        Probe(
            "a rejected text that has become more probable raises it",
            lambda g: (*(torch.tensor([x]) for x in (-3.0, -3.5, -3.0, -5.0)), 1.0),
        ),
        Probe(
            "only the change against the reference counts",
            lambda g: (*(torch.tensor([x]) for x in (-9.0, -4.0, -8.0, -2.0)), 1.0),
        ),
        Probe("beta scales the difference", lambda g: (*_pairs(g, 1, 3.0), 0.1)),
        Probe("the mean over the pairs", lambda g: (*_pairs(g, 5, 2.0), 0.5)),
        Probe("the mean over the pairs", lambda g: (*_pairs(g, 3, 2.0), 2.0)),
        Probe("the gradient reaches the model", lambda g: (*_pairs(g, 4, 2.0), 0.3), gradients=True),
        Probe(
            "a large difference stays finite",
            lambda g: (*(torch.tensor([x]) for x in (-400.0, -10.0, -20.0, -15.0)), 1.0),
        ),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _pairs(g, 3)), 0.2), tolerance=1e-6),
    ),
    **texts("dpo_loss"),
)

EXERCISES = (KL_PENALTY, DPO_LOSS)
