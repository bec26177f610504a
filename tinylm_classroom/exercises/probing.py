"""Lesson 16: a probe learns to read something in a model's activations."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def _error(w: Tensor, b: Tensor, x: Tensor, y: Tensor, on: frozenset[str]) -> Tensor:
    """The slope of the loss of each example (N) with respect to its score."""
    score = x @ w + (0 if "b not read" in on else b)
    p = chosen(on, score.sigmoid(), {
        "no sigmoid": lambda: score,
        "tanh": score.tanh,
        "softmax over examples": lambda: score.softmax(0),
        "rounded": lambda: (score > 0).to(score.dtype),
    })  # fmt: skip
    target = slipped(
        on, y, {"labels from -1": lambda y: 2 * y - 1, "labels exchanged": lambda y: 1 - y}
    )
    is_mistake = (p > 0.5).to(y.dtype) != y
    return slipped(on, p - target, {
        "squared error": lambda error: 2 * error * p * (1 - p),
        "half the squared error": lambda error: error * p * (1 - p),
        "size of the error": torch.abs,
        "only mistakes": lambda error: error * is_mistake,
    })  # fmt: skip


def _gradients(w: Tensor, x: Tensor, error: Tensor, on: frozenset[str]) -> tuple[Tensor, Tensor]:
    """The gradients of w (C) and b ()."""
    n = chosen(on, len(x), {"sum": lambda: 1, "mean over features, too": x.numel})
    dw = x.T @ error
    db = error.sum()
    dw = dw if "w summed" in on else dw / n
    db = db if "b summed" in on else db / n
    dw = slipped(on, dw, {
        "input forgotten": lambda _: (error.sum() / n).expand_as(w),
        "first example": lambda _: x[0] * error[0],
        "weight decay": lambda dw: dw + w,
        "unit step": lambda dw: dw / dw.norm(),
    })  # fmt: skip
    db = error[0] if "first example" in on else db
    scale = chosen(on, 1, {"twice": lambda: 2, "uphill": lambda: -1})
    return scale * dw, scale * db


def _one_by_one(w: Tensor, b: Tensor, x: Tensor, y: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """A step for each example, from where the one before has led."""
    for row, label in zip(x, y, strict=True):
        error = (row @ w + b).sigmoid() - label
        w = w - lr * error * row
        b = b - lr * error
    return w, b


def probe_step(
    w: Tensor, b: Tensor, x: Tensor, y: Tensor, lr: float, on: frozenset[str] = frozenset()
) -> tuple[Tensor, Tensor]:
    """One step of gradient descent on the mean loss of a logistic probe, and the mistakes that are
    `on`.

    w (C), b (): the probe. x (N, C): activations, y (N): labels, 0 or 1. Returns the new w and b.
    """
    dw, db = _gradients(w, x, _error(w, b, x, y, on), on)
    dw = torch.zeros_like(w) if "w kept" in on else dw
    db = torch.zeros_like(b) if "b kept" in on else db
    lr_w = 1.0 if "no learning rate" in on else lr
    lr_b = 1.0 if "b without the rate" in on else lr_w
    new = w - lr_w * dw, b - lr_b * db
    return chosen(on, new, {
        "gradients": lambda: (dw, db),
        "old w lost": lambda: (-lr_w * dw, -lr_b * db),
        "one example after the other": lambda: _one_by_one(w, b, x, y, lr),
        "one example after the other, of the mean": lambda: _one_by_one(w, b, x, y, lr / len(x)),
        "b from the new w": lambda: (new[0], b - lr_b * ((x @ new[0] + b).sigmoid() - y).mean()),
        "in place": lambda: (w.copy_(new[0]), b.copy_(new[1])),
        "order exchanged": lambda: (new[1], new[0]),
    })  # fmt: skip


def _probe(g: Generator, N: int, C: int, lr: float = 0.7, size: float = 1.0) -> tuple:
    """A probe that is neither 0 nor trained, activations that are not centred, and labels of both
    kinds.
    """
    x = size * (0.4 + torch.randn(N, C, generator=g))
    y = (torch.arange(N) % 3 == 1).float()
    return 0.5 * torch.randn(C, generator=g), torch.tensor(0.8), x, y, lr


def _by_hand() -> tuple:
    """Scores of 0, labels 1 and 0."""
    return (
        torch.zeros(2),
        torch.tensor(0.0),
        torch.tensor([[1.0, 2.0], [3.0, 0.0]]),
        torch.tensor([1.0, 0.0]),
        1.0,
    )


PROBE_STEP = Exercise(
    name="probe_step",
    lesson="16",
    reference=probe_step,
    order=2,
    probes=(
        Probe("w and b take a step down the gradient", lambda g: _by_hand()),
        Probe(
            "an example with label 1 makes its score larger",
            lambda g: (
                torch.tensor([1.0]),
                torch.tensor(0.5),
                torch.tensor([[2.0]]),
                torch.tensor([1.0]),
                0.5,
            ),
        ),
        Probe("the loss is averaged over the examples", lambda g: _probe(g, 7, 3)),
        Probe("the learning rate scales both steps", lambda g: _probe(g, 5, 4, lr=0.01)),
        Probe("there may be as many examples as features", lambda g: _probe(g, 4, 4)),
        Probe("scores may be large", lambda g: _probe(g, 6, 3, size=300.0)),
        Probe("there may be one feature", lambda g: _probe(g, 8, 1)),
    ),
    **texts("probe_step"),
    wider=True,
)

EXERCISES = (PROBE_STEP,)
