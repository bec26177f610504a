"""Lesson 12: from scores to probabilities."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


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
    faults={
        "temperature unused": Fault(
            "the temperature has no effect",
            "It is not used, or it cancels when you divide by the sum. It divides the scores, before softmax.",
        ),
        "multiplied": Fault(
            "the scores are multiplied by the temperature",
            "A higher temperature should bring the probabilities closer together, and here it moves them apart.",
        ),
        "negated": Fault("the signs are turned", "The largest score has the largest probability at every temperature."),
        "squared": Fault("the temperature is applied twice", "Once is enough."),
        "root": Fault("the root of the temperature is taken", "The scores are divided by the temperature itself."),
        "one more": Fault("1 is added to the temperature", "At 1 nothing changes."),
        "never colder": Fault("temperatures below 1 are not used", "They sharpen."),
        "never warmer": Fault("temperatures above 1 are not used", "They level."),
        "of probabilities": Fault(
            "probabilities are divided by the temperature", "It acts on the scores, before softmax; softmax comes once."
        ),
        "of their logarithm": Fault("the logarithm of the logits is taken", "Logits are logarithms already."),
        "divided behind": Fault(
            "the probabilities are divided by the temperature",
            "They no longer sum to 1. Divide the logits instead, before softmax.",
        ),
        "no softmax": Fault("the scores are returned", "Probabilities are expected."),
        "twice": Fault("softmax is applied twice", "The softmax of probabilities is nearly flat."),
        "logarithm": Fault("logarithms are returned", "Probabilities are expected."),
        "only the largest": Fault(
            "the largest score gets everything", "That is greedy choice, the limit of a falling temperature."
        ),
        "over the batch": Fault("rows compete with one another", "The tokens are the last axis."),
        "over everything": Fault("all rows share one sum", "Each row is a text of its own."),
        "naive": Fault("the exponential overflows", "Large scores, or small temperatures: take the maximum off first."),
        "maximum undivided": Fault(
            "the largest of the undivided scores is taken off",
            "It must be the largest of what goes into the exponential.",
        ),
        "maximum of all": Fault(
            "the largest score of all rows is taken off", "A row far below it vanishes: each has its own."
        ),
        "powers not shared out": Fault(
            "probabilities are raised to a power, and not normalized again", "They no longer sum to 1."
        ),
        "sigmoid": Fault("each score is squeezed by itself", "Probabilities of tokens sum to 1: softmax."),
        "no exponential": Fault(
            "the scores themselves are divided by their sum", "Softmax takes the exponential of each first."
        ),
        "of exponentials": Fault(
            "exponentials are divided by the temperature", "It divides the scores, before any exponential."
        ),
        "sorted": Fault("the probabilities come back in falling order", "Each belongs to its token."),
        "whole temperatures": Fault("the temperature is rounded down", "1.6 is not 1."),
        "limited": Fault("low temperatures are not used", "The smaller, the sharper; nothing is said of a limit."),
        "in bits": Fault("powers of 2 are taken", "Softmax takes powers of e."),
    },
    hints=(
        "Which of the two happens first: the temperature, or softmax?",
        "At 2 the probabilities should come closer together. Try it with two scores.",
        "Does it overflow? Take the maximum off the scores before any exponential, as in lesson 03.",
    ),
)

EXERCISES = (APPLY_TEMPERATURE,)
