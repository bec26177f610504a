"""Lesson 12: from scores to probabilities."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def apply_temperature(logits: Tensor, temperature: float, on: frozenset[str] = frozenset()) -> Tensor:
    """The probabilities of softmax(logits / temperature), (..., V), and the mistakes that are `on`."""
    if "temperature unused" in on:
        temperature = 1.0
    if "never colder" in on:
        temperature = max(temperature, 1.0)
    if "never warmer" in on:
        temperature = min(temperature, 1.0)
    if "squared" in on:
        temperature = temperature**2
    if "root" in on:
        temperature = temperature**0.5
    if "one more" in on:
        temperature = 1 + temperature
    axis = 0 if "over the batch" in on else -1
    if "of probabilities" in on:
        logits = logits.softmax(axis)
    if "of their logarithm" in on:
        logits = logits.clamp(min=1e-9).log()
    scores = logits * temperature if "multiplied" in on else logits / temperature
    if "negated" in on:
        scores = -scores
    if "limited" in on:
        scores = logits / max(temperature, 0.1)
    if "whole temperatures" in on:
        scores = logits / max(1, int(temperature)) if temperature >= 1 else scores
    if "of exponentials" in on:
        scores = logits.exp() / temperature
    if "in bits" in on:
        scores = scores * math.log(2)
    if "only the largest" in on:
        return torch.zeros_like(scores).scatter(axis, scores.argmax(axis, keepdim=True), 1.0)
    if "no softmax" in on:
        return scores
    if "powers not shared out" in on:
        return logits.softmax(axis) ** (1 / temperature)
    return _shared(logits, scores, temperature, axis, on)


def _shared(logits: Tensor, scores: Tensor, temperature: float, axis: int, on: frozenset[str]) -> Tensor:
    """Softmax of the scores."""
    if "sigmoid" in on:
        return scores.sigmoid()
    if "no exponential" in on:
        return scores / scores.sum(axis, keepdim=True)
    if "maximum undivided" in on or "maximum of all" in on:
        largest = scores.max() if "maximum of all" in on else logits.amax(axis, keepdim=True)
        powers = (scores - largest).exp()
        return powers / powers.sum(axis, keepdim=True)
    if "sorted" in on:
        return scores.softmax(axis).sort(axis, descending=True).values
    probs = scores.exp() / scores.exp().sum(axis, keepdim=True) if "naive" in on else scores.softmax(axis)
    if "over everything" in on:
        probs = scores.flatten().softmax(0).view_as(scores)
    if "divided behind" in on:
        probs = logits.softmax(axis) / temperature
    if "twice" in on:
        probs = probs.softmax(axis)
    return probs.log() if "logarithm" in on else probs


def _scores(g: Generator, *shape: int) -> Tensor:
    return 2 * torch.randn(shape, generator=g)


APPLY_TEMPERATURE = Exercise(
    name="apply_temperature",
    lesson="12",
    reference=apply_temperature,
    probes=(
        Probe("a temperature of 1 is plain softmax", lambda g: (torch.tensor([2.0, 1.0, 0.1]), 1.0)),
        Probe("above 1 the probabilities come closer", lambda g: (torch.tensor([2.0, 1.0, 0.1]), 2.0)),
        Probe("below 1 they move apart", lambda g: (torch.tensor([2.0, 1.0, 0.1]), 0.5)),
        Probe("scores may be negative", lambda g: (torch.tensor([-3.0, -1.0, -2.0]), 0.7)),
        Probe("each row sums to 1", lambda g: (_scores(g, 3, 5), 1.6)),
        Probe("each row sums to 1", lambda g: (_scores(g, 5, 4), 0.3)),
        Probe("as many rows as tokens", lambda g: (_scores(g, 4, 4), 0.8)),
        Probe("each row by itself", lambda g: (torch.tensor([[400.0, 401.0], [-1.0, 1.0]]), 1.5)),
        Probe("one row", lambda g: (_scores(g, 1, 6), 3.0)),
        Probe("equal scores stay equal", lambda g: (torch.full((4,), 5.0), 0.25)),
        Probe("large scores do not overflow", lambda g: (torch.tensor([[900.0, 901.0, 3.0]]), 2.0)),
        Probe("a low temperature does not overflow", lambda g: (torch.tensor([2.0, 1.9, -1.0]), 0.01)),
        Probe("a high temperature nearly levels", lambda g: (_scores(g, 2, 6), 50.0)),
        Probe("any strides", lambda g: (_scores(g, 6, 3).T, 0.6)),
    ),
    **texts("apply_temperature"),
)

EXERCISES = (APPLY_TEMPERATURE,)
