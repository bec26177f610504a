"""Lesson 12: from scores to probabilities."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def apply_temperature(
    logits: Tensor, temperature: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """The probabilities softmax(logits / temperature), (..., V), and the mistakes that are `on`."""
    temperature = _changed(temperature, on)
    axis = 0 if "over the batch" in on else -1
    logits = slipped(on, logits, {
        "of probabilities": lambda logits: logits.softmax(axis),
        "of their logarithm": lambda logits: logits.clamp(min=1e-9).log(),
    })  # fmt: skip
    scores = chosen(on, logits / temperature, {
        "multiplied": lambda: logits * temperature,
        "of exponentials": lambda: logits.exp() / temperature,
    })  # fmt: skip
    scores = slipped(
        on, scores, {"negated": torch.neg, "in bits": lambda scores: scores * math.log(2)}
    )
    largest = scores.max() if "maximum of all" in on else logits.amax(axis, keepdim=True)
    powers = logits.softmax(axis) ** (1 / temperature)
    probs = chosen(on, scores.softmax(axis), {
        "only the largest": lambda: (
            torch.zeros_like(scores).scatter(axis, scores.argmax(axis, keepdim=True), 1.0)
        ),
        "no softmax": lambda: scores,
        "powers not shared out": lambda: powers,
        "powers of probabilities": lambda: powers / powers.sum(axis, keepdim=True),
        "sigmoid": lambda: scores.sigmoid(),
        "no exponential": lambda: scores / scores.sum(axis, keepdim=True),
        "maximum undivided": lambda: _plain_softmax(scores - largest, axis),
        "maximum of all": lambda: _plain_softmax(scores - largest, axis),
        "naive": lambda: _plain_softmax(scores, axis),
        "over everything": lambda: scores.flatten().softmax(0).view_as(scores),
        "divided behind": lambda: logits.softmax(axis) / temperature,
    })  # fmt: skip
    return slipped(on, probs, {
        "sorted": lambda probs: probs.sort(axis, descending=True).values,
        "twice": lambda probs: probs.softmax(axis),
        "logarithm": torch.log,
    })  # fmt: skip


def _changed(temperature: float, on: frozenset[str]) -> float:
    """The temperature under the mistakes that take another one."""
    return slipped(on, temperature, {
        "temperature unused": lambda _: 1.0,
        "never colder": lambda t: max(t, 1.0),
        "never warmer": lambda t: min(t, 1.0),
        "squared": lambda t: t**2,
        "root": lambda t: t**0.5,
        "one more": lambda t: 1 + t,
        "limited": lambda t: max(t, 0.1),
        "whole temperatures": lambda t: int(t) if t >= 1 else t,
    })  # fmt: skip


def _plain_softmax(scores: Tensor, axis: int) -> Tensor:
    """Softmax without a maximum taken off."""
    return scores.exp() / scores.exp().sum(axis, keepdim=True)


def _scores(g: Generator, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=g)


APPLY_TEMPERATURE = Exercise(
    name="apply_temperature",
    lesson="12",
    reference=apply_temperature,
    probes=(
        Probe(
            "a temperature of 1 is plain softmax", lambda g: (torch.tensor([2.0, 1.0, 0.1]), 1.0)
        ),
        Probe(
            "above 1 the probabilities come closer together",
            lambda g: (torch.tensor([2.0, 1.0, 0.1]), 2.0),
        ),
        Probe(
            "below 1 the probabilities move apart", lambda g: (torch.tensor([2.0, 1.0, 0.1]), 0.5)
        ),
        Probe("scores may be negative", lambda g: (torch.tensor([-3.0, -1.0, -2.0]), 0.7)),
        Probe("each row sums to 1", lambda g: (_scores(g, 3, 5), 1.6)),
        Probe("each row sums to 1", lambda g: (_scores(g, 5, 4), 0.3)),
        Probe("there may be as many rows as tokens", lambda g: (_scores(g, 4, 4), 0.8)),
        Probe(
            "each row is a distribution of its own",
            lambda g: (torch.tensor([[400.0, 401.0], [-1.0, 1.0]]), 1.5),
        ),
        Probe("a single row keeps its two axes", lambda g: (_scores(g, 1, 6), 3.0)),
        Probe("equal scores get equal probabilities", lambda g: (torch.full((4,), 5.0), 0.25)),
        Probe("large scores do not overflow", lambda g: (torch.tensor([[900.0, 901.0, 3.0]]), 2.0)),
        Probe(
            "a low temperature does not overflow", lambda g: (torch.tensor([2.0, 1.9, -1.0]), 0.01)
        ),
        Probe(
            "at a high temperature the probabilities are nearly equal",
            lambda g: (_scores(g, 2, 6), 50.0),
        ),
        Probe(
            "a long row has probabilities at a low temperature, too",
            lambda g: (torch.randn(1, 4096, generator=g), 0.02),
        ),
        Probe("transposed logits are accepted", lambda g: (_scores(g, 6, 3).T, 0.6)),
    ),
    **texts("apply_temperature"),
    wider=True,
)

EXERCISES = (APPLY_TEMPERATURE,)
