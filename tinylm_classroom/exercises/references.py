"""Lesson 17: what compares a model with the one it started from: a penalty on the distance, and the
loss of DPO.
"""

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from .base import Exercise, Probe, slipped, texts
from .base import chosen as chosen_of
from .rewards import counted_tokens, drawn_texts, reduced


def kl_penalty(
    log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """The mean () of r - log r - 1 over written tokens, r = p_reference / p, and the mistakes that
    are `on`.
    """
    log_ratio = slipped(on, reference_log_probs - log_probs, {
        "exchanged": torch.neg,
        "nothing detached": torch.detach,
        "cut off": lambda x: x.clamp(-1, 1),
    })  # fmt: skip
    ratio = log_ratio.exp()
    each = chosen_of(on, ratio - log_ratio - 1, {
        "log-ratio alone": lambda: -log_ratio,
        "log-ratio, weighted": lambda: -log_probs.exp() * log_ratio,
        "half the square": lambda: log_ratio.square() / 2,
        "absolute difference": log_ratio.abs,
        "no minus one": lambda: ratio - log_ratio,
        "plus one": lambda: ratio - log_ratio + 1,
        "plus the logarithm": lambda: ratio + log_ratio - 1,
        "no exponential": lambda: log_ratio - log_ratio - 1 + log_ratio,
        "ratio alone": lambda: ratio,
        "ratio minus one": lambda: ratio - 1,
        "ratio of logarithms": lambda: _of_ratio(reference_log_probs / log_probs),
        "difference of probabilities": lambda: (
            reference_log_probs.exp() - log_probs.exp() - log_ratio - 1
        ),
        "logarithm of base 2": lambda: ratio - log_ratio / 0.6931471805599453 - 1,
    })  # fmt: skip
    counted = counted_tokens(mask, on)
    found = reduced(each.where(counted, 0.0), counted, on)
    return -found if "wrong sign" in on else found


def _of_ratio(r: Tensor) -> Tensor:
    return r - r.log() - 1


def _pair(
    ps: list[list[float]], qs: list[list[float]], mask: list[list[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities of the model and of the reference, as logarithms."""
    return torch.tensor(ps).log(), torch.tensor(qs).log(), torch.tensor(mask, dtype=torch.bool)


def _two(*mask: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    return _pair([[0.9, 0.5, 0.2], [0.3, 0.6, 0.5]], [[0.1, 0.3, 0.4], [0.6, 0.2, 0.5]], [*mask])


def _compared(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor, Tensor]:
    log_probs, mask = drawn_texts(g, B, T)
    return log_probs, log_probs + torch.randn(B, T, generator=g), mask


KL_PENALTY = Exercise(
    name="kl_penalty",
    lesson="17",
    order=1,
    reference=kl_penalty,
    probes=(
        Probe(
            "equal models have the distance 0",
            lambda g: _pair([[0.5, 0.25]], [[0.5, 0.25]], [[1, 1]]),
        ),
        Probe(
            "for r = 0.5 a token has 0.5 - log 0.5 - 1", lambda g: _pair([[0.8]], [[0.4]], [[1]])
        ),
        Probe("for r = 2 a token has 2 - log 2 - 1", lambda g: _pair([[0.4]], [[0.8]], [[1]])),
        Probe("r may be far from 1", lambda g: _pair([[0.9, 0.05]], [[0.01, 0.8]], [[1, 1]])),
        Probe("only written tokens count", lambda g: _two([0, 1, 1], [0, 1, 1])),
        Probe("every written token counts the same", lambda g: _two([0, 1, 1], [0, 1, 0])),
        Probe("texts may differ in length", lambda g: _compared(g, 3, 7)),
        Probe("there may be as many texts as tokens", lambda g: _compared(g, 5, 5)),
        Probe(
            "gradients reach the model's log-probabilities",
            lambda g: _compared(g, 4, 6),
            gradients=True,
            n_live=1,
        ),
    ),
    **texts("kl_penalty"),
    wider=True,
)


def dpo_loss(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    beta: float,
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """The mean loss () of B pairs, each argument a text's log-probability (B,), and the mistakes
    that are `on`.
    """
    good = chosen - ref_chosen
    bad = rejected - ref_rejected
    margin = chosen_of(on, good - bad, {
        "chosen and rejected exchanged": lambda: bad - good,
        "reference unused": lambda: chosen - rejected,
        "reference alone": lambda: ref_chosen - ref_rejected,
        "reference added": lambda: chosen - rejected + ref_chosen - ref_rejected,
        "only the chosen": lambda: good,
        "only the rejected": lambda: -bad,
        "sum of both": lambda: good + bad,
        "ratios": lambda: good.exp() - bad.exp(),
        "ratio of logarithms": lambda: (
            (chosen / ref_chosen).log() - (rejected / ref_rejected).log()
        ),
        "beta on the chosen alone": lambda: good - bad / beta,
    })  # fmt: skip
    inside = chosen_of(on, beta, {
        "beta in front": lambda: 1.0,
        "beta unused": lambda: 1.0,
        "divided by beta": lambda: 1 / beta,
    })  # fmt: skip
    scaled = slipped(
        on, inside * margin, {"mean inside": torch.mean, "cut off": lambda x: x.clamp(-20, 20)}
    )
    loss = chosen_of(on, -logsigmoid(scaled), {
        "no logarithm": lambda: -scaled.sigmoid(),
        "no sigmoid": lambda: -scaled,
        "hinge": lambda: (1 - scaled).clamp(min=0),
        "squared": lambda: (scaled - 0.5).square(),
        "overflow": lambda: -scaled.sigmoid().log(),
        "small number added": lambda: -(scaled.sigmoid() + 1e-8).log(),
        "one minus": lambda: 1 - scaled.sigmoid(),
    })  # fmt: skip
    loss = slipped(on, loss, {"beta in front": lambda x: beta * x, "wrong sign": torch.neg})
    return chosen_of(
        on,
        loss.mean(),
        {"one number for each pair": lambda: loss, "sum over the pairs": loss.sum},
    )


def _pairs(g: Generator, B: int, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    ref_chosen, ref_rejected = (-20 - 5 * torch.rand(B, generator=g) for _ in range(2))
    chosen, rejected = (r + scale * torch.randn(B, generator=g) for r in (ref_chosen, ref_rejected))
    return chosen, rejected, ref_chosen, ref_rejected


def _one(*log_probs: float) -> tuple:
    return *(torch.tensor([x]) for x in log_probs), 1.0


DPO_LOSS = Exercise(
    name="dpo_loss",
    lesson="17",
    order=2,
    reference=dpo_loss,
    probes=(
        Probe(
            "a model equal to its reference has a loss of log 2",
            lambda g: _one(-3.0, -5.0, -3.0, -5.0),
        ),
        Probe(
            "a chosen text that has become more probable lowers the loss",
            lambda g: _one(-2.0, -5.0, -3.0, -5.0),
        ),
        Probe(
            "a rejected text that has become more probable raises it",
            lambda g: _one(-3.0, -3.5, -3.0, -5.0),
        ),
        Probe("only the change from the reference counts", lambda g: _one(-9.0, -4.0, -8.0, -2.0)),
        Probe("beta scales the difference", lambda g: (*_pairs(g, 1, 3.0), 0.1)),
        Probe("the loss is the mean over the pairs", lambda g: (*_pairs(g, 5, 2.0), 0.5)),
        Probe("the loss is the mean over the pairs", lambda g: (*_pairs(g, 3, 2.0), 2.0)),
        Probe(
            "gradients reach chosen and rejected",
            lambda g: (*_pairs(g, 4, 2.0), 0.3),
            gradients=True,
            n_live=2,
        ),
        Probe(
            "a large difference gives a large, finite loss",
            lambda g: _one(-400.0, -10.0, -20.0, -15.0),
        ),
    ),
    **texts("dpo_loss"),
    wider=True,
)

EXERCISES = (KL_PENALTY, DPO_LOSS)
