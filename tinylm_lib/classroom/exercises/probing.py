"""Lesson 16: a probe learns to read something in a model's activations."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def _error(w: Tensor, b: Tensor, x: Tensor, y: Tensor, on: frozenset[str]) -> Tensor:
    """The slope of the loss of each example (N) with respect to its score."""
    score = x @ w + (0 if "b not read" in on else b)
    p = {
        "no sigmoid": lambda: score,
        "tanh": lambda: score.tanh(),
        "softmax over examples": lambda: score.softmax(0),
        "rounded": lambda: (score > 0).to(score.dtype),
    }.get(next(iter(on & {"no sigmoid", "tanh", "softmax over examples", "rounded"}), ""), lambda: score.sigmoid())()
    target = 2 * y - 1 if "labels from -1" in on else 1 - y if "labels exchanged" in on else y
    error = p - target
    if "squared error" in on:
        error = 2 * error * p * (1 - p)
    if "size of the error" in on:
        error = error.abs()
    if "only mistakes" in on:
        error = error * ((p > 0.5).to(y.dtype) != y)
    return error


def _gradients(w: Tensor, x: Tensor, error: Tensor, on: frozenset[str]) -> tuple[Tensor, Tensor]:
    """The gradients of w (C) and b ()."""
    n = 1 if "sum" in on else x.numel() if "mean over features, too" in on else len(x)
    dw, db = x.T @ error / n, error.sum() / n
    if "b summed" in on:
        db = error.sum()
    if "w summed" in on:
        dw = x.T @ error
    if "input forgotten" in on:
        dw = (error.sum() / n).expand_as(w)
    if "first example" in on:
        dw, db = x[0] * error[0], error[0]
    if "weight decay" in on:
        dw = dw + w
    if "twice" in on:
        dw, db = 2 * dw, 2 * db
    if "unit step" in on:
        dw = dw / dw.norm()
    if "uphill" in on:
        dw, db = -dw, -db
    return dw, db


def probe_step(
    w: Tensor, b: Tensor, x: Tensor, y: Tensor, lr: float, on: frozenset[str] = frozenset()
) -> tuple[Tensor, Tensor]:
    """One step of gradient descent on the mean loss of a logistic probe, and the mistakes that are `on`.

    w (C), b (): the probe. x (N, C): activations, y (N): labels, 0 or 1. Returns the new w and b.
    """
    dw, db = _gradients(w, x, _error(w, b, x, y, on), on)
    if "gradients" in on:
        return dw, db
    if "w kept" in on:
        dw = torch.zeros_like(w)
    if "b kept" in on:
        db = torch.zeros_like(b)
    lr_w = 1.0 if "no learning rate" in on else lr
    lr_b = lr_w if "b without the rate" not in on else 1.0
    if "old w lost" in on:
        return -lr_w * dw, -lr_b * db
    new = w - lr_w * dw, b - lr_b * db
    if "b from the new w" in on:
        new = new[0], b - lr_b * (torch.sigmoid(x @ new[0] + b) - y).mean()
    if "in place" in on:
        w.copy_(new[0])
        b.copy_(new[1])
        return w, b
    return (new[1], new[0]) if "order exchanged" in on else new


def _probe(g: Generator, N: int, C: int, lr: float = 0.7, size: float = 1.0) -> tuple:
    """A probe that is neither 0 nor trained, activations that are not centred, and labels of both kinds."""
    x = size * (0.4 + torch.randn(N, C, generator=g))
    y = (torch.arange(N) % 3 == 1).float()
    return 0.5 * torch.randn(C, generator=g), torch.tensor(0.8), x, y, lr


PROBE_STEP = Exercise(
    name="probe_step",
    lesson="16",
    reference=probe_step,
    order=3,
    probes=(
        Probe(
            "a probe of zeros, one example with label 1, one with label 0",
            lambda g: (
                torch.zeros(2),
                torch.tensor(0.0),
                torch.tensor([[1.0, 2.0], [3.0, 0.0]]),
                torch.tensor([1.0, 0.0]),
                1.0,
            ),
        ),
        Probe(
            "one example, whose label is 1",
            lambda g: (torch.tensor([1.0]), torch.tensor(0.5), torch.tensor([[2.0]]), torch.tensor([1.0]), 0.5),
        ),
        Probe("the mean over the examples", lambda g: _probe(g, 7, 3)),
        Probe("the rate scales both steps", lambda g: _probe(g, 5, 4, lr=0.01)),
        Probe("as many examples as features", lambda g: _probe(g, 4, 4)),
        Probe("large scores stay finite", lambda g: _probe(g, 6, 3, size=300.0)),
        Probe("one feature", lambda g: _probe(g, 8, 1)),
        Probe("any strides", lambda g: (lambda w, b, x, y, lr: (w, b, x.T.contiguous().T, y, lr))(*_probe(g, 6, 5))),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _probe(g, 6, 3)[:4]), 0.7)),
    ),
    faults={
        "no sigmoid": Fault(
            "the score is taken for a probability", "A sigmoid makes a probability of it, between 0 and 1."
        ),
        "tanh": Fault("a tanh is used", "A probability goes from 0 to 1: use the sigmoid."),
        "softmax over examples": Fault(
            "the examples share one softmax", "Each example has its own probability: use the sigmoid."
        ),
        "rounded": Fault("the score is rounded to 0 or 1", "The loss depends on the probability, not on the decision."),
        "labels from -1": Fault("labels are made -1 and 1", "With the sigmoid the labels are 0 and 1."),
        "labels exchanged": Fault(
            "0 and 1 are exchanged in the labels", "The sigmoid gives the probability of label 1."
        ),
        "squared error": Fault(
            "the squared error is used",
            "The loss is minus the logarithm of the label's probability. Its gradient is simpler: p minus y.",
        ),
        "size of the error": Fault(
            "the sign of the error is lost", "p minus y: too high and too low pull in opposite directions."
        ),
        "only mistakes": Fault("only wrong decisions count", "A right but unsure example has a loss, too."),
        "sum": Fault("the gradients are summed", "The loss is the mean over the examples."),
        "mean over features, too": Fault(
            "the gradients are divided by the features, too", "Only the examples are averaged."
        ),
        "b summed": Fault("the gradient of b is summed", "It is a mean over the examples, like that of w."),
        "w summed": Fault("the gradient of w is summed", "It is a mean over the examples, like that of b."),
        "input forgotten": Fault(
            "the gradient of w does not use x", "A weight matters as much as the feature that it multiplies."
        ),
        "first example": Fault("only the first example is used", "All examples count."),
        "weight decay": Fault("there is weight decay", "None is asked for here."),
        "twice": Fault(
            "the step is twice too long", "The derivative of the loss by the score is p minus y, without a 2."
        ),
        "unit step": Fault("the gradient is normalised", "Take it as it is, times the learning rate."),
        "uphill": Fault("the step goes uphill", "The gradient points to a higher loss: subtract it."),
        "gradients": Fault("the gradients are returned", "Return the new w and the new b."),
        "w kept": Fault("w stays as it is", "Both w and b take a step."),
        "b kept": Fault("b stays as it is", "Both w and b take a step."),
        "no learning rate": Fault("the learning rate is not used", "It multiplies both gradients."),
        "b without the rate": Fault("b moves without the learning rate", "It multiplies both gradients."),
        "old w lost": Fault("the old values are lost", "The step is added to them."),
        "b not read": Fault("b is left out of the score", "The score of an example is w times x, plus b."),
        "b from the new w": Fault("b is computed with the new w", "Both gradients belong to the old probe."),
        "in place": Fault("w and b themselves are changed", "Return new tensors, and leave the old ones alone."),
        "order exchanged": Fault("b is returned before w", "First w, then b."),
    },
    hints=(
        "Three steps: the scores of all examples, their probabilities, the mean gradient.",
        "Lesson 11: the derivative of the loss by the score is the probability minus the label.",
        "w has C numbers, and the errors are N numbers. Which product with x (N, C) gives C numbers?",
    ),
)

EXERCISES = (PROBE_STEP,)
