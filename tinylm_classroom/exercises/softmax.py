"""Lesson 03: scores become probabilities, and probabilities a loss."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def softmax(x: Tensor, dim: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Probabilities that sum to 1 along dim, x (...), and the mistakes that are `on`."""
    dim = chosen(on, dim, {"fixed axis": lambda: -1, "first axis": lambda: 0})
    powers = _powers(-x if "negated" in on else x, dim, on)
    size = chosen(on, powers.sum(dim, keepdim=True), {
        "all axes": lambda: powers.sum(),
        "no sum": lambda: 1,
        "by the mean": lambda: powers.mean(dim, keepdim=True),
        "by the largest": lambda: powers.amax(dim, keepdim=True),
        "epsilon": lambda: powers.sum(dim, keepdim=True) + 0.1,
    })  # fmt: skip
    return slipped(on, powers / size, {
        "NaN hidden": torch.nan_to_num,
        "twice": lambda probs: softmax(probs, dim),
        "logarithm": torch.log,
        "float": Tensor.float,
    })  # fmt: skip


def _powers(x: Tensor, dim: int, on: frozenset[str]) -> Tensor:
    """What each score becomes before it is divided."""
    if "squares" in on:
        return x.square()
    if "no exponential" in on:
        return x
    if "in place" in on:
        x -= x.amax(dim, keepdim=True)
    largest = chosen(on, x.amax(dim, keepdim=True).detach(), {
        "no maximum": lambda: 0,
        "NaN hidden": lambda: 0,
        "clamped": lambda: 0,
        "the largest of all": lambda: x.max(),
        "mean": lambda: x.mean(dim, keepdim=True),
        "largest size": lambda: x.abs().amax(dim, keepdim=True),
        "minimum": lambda: x.amin(dim, keepdim=True),
    })  # fmt: skip
    x = (x.clamp(-80, 80) if "clamped" in on else x) - largest
    return 2**x if "base 2" in on else x.exp()


SOFTMAX = Exercise(
    name="softmax",
    lesson="03",
    reference=softmax,
    probes=(
        Probe(
            "the scores 2, 1 and 0.1 have the probabilities 0.659, 0.242 and 0.099",
            lambda g: (torch.tensor([2.0, 1.0, 0.1]), -1),
        ),
        Probe("every row sums to 1", lambda g: (torch.randn(3, 5, generator=g), -1)),
        Probe(
            "`dim` names the axis, counted from either end",
            lambda g: (torch.randn(3, 5, generator=g), 0),
        ),
        Probe(
            "`dim` names the axis, counted from either end",
            lambda g: (torch.randn(2, 3, 4, 5, generator=g), 1),
        ),
        Probe("large scores do not overflow", lambda g: (torch.tensor([20.0, 3.0, 1005.0]), -1)),
        Probe(
            "very negative scores do not all become 0",
            lambda g: (torch.tensor([-2000.0, -2001.0]), 0),
        ),
        Probe(
            "each row has its own largest score",
            lambda g: (torch.tensor([[0.0, 1.0], [200.0, 201.0]]), -1),
        ),
        Probe("`x` stays as it was", lambda g: (torch.randn(4, 4, generator=g).mT, -2)),
        Probe(
            "gradients flow back to x",
            lambda g: (torch.randn(3, 4, generator=g), -1),
            gradients=True,
        ),
        Probe(
            "gradients flow for large scores, too",
            lambda g: (200 * torch.randn(3, 4, generator=g), 1),
            gradients=True,
        ),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).double(), -1)),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).bfloat16(), -1)),
    ),
    **texts("softmax"),
)


def cross_entropy(logits: Tensor, targets: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """Mean nats of targets (B, T) under logits (B, T, V), those of -100 left out, and the mistakes
    that are `on`.
    """
    logs = _logs(logits, on)
    if "shifts" in on:
        logs = logs[:, :-1]
        targets = targets[:, 1:]
    if "shifts back" in on:
        logs = logs[:, 1:]
        targets = targets[:, :-1]
    if "rolled" in on:
        targets = targets.roll(-1, -1)
    kept = chosen(on, targets != -100, {
        "padding counts": lambda: torch.ones_like(targets, dtype=torch.bool),
        "drops the wrong ones": lambda: targets != 0,
    })  # fmt: skip
    picked = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    if "largest" in on:
        picked = logs.amax(-1)
    nats = torch.where(kept, picked if "positive" in on else -picked, 0.0)
    mean = chosen(on, nats.sum() / kept.sum(), {
        "padding costs nothing": lambda: nats.mean(),
        "by sequence": lambda: (nats.sum(-1) / kept.sum(-1)).mean(),
        "per sequence": lambda: nats.sum() / len(nats),
        "sum": lambda: nats.sum(),
        "per position": lambda: nats,
    })  # fmt: skip
    return slipped(
        on, mean, {"perplexity": torch.exp, "smoothed": lambda mean: 0.9 * mean - 0.1 * logs.mean()}
    )


def _logs(logits: Tensor, on: frozenset[str]) -> Tensor:
    """The logarithms of the probabilities, (B, T, V)."""
    B, T, V = logits.shape
    logits = slipped(on, logits, {
        "on probabilities": lambda x: x.softmax(-1),
        "reshaped": lambda x: x.reshape(B, V, T).mT,
    })  # fmt: skip
    logs = chosen(on, logits - logits.logsumexp(-1, keepdim=True), {
        "over positions": lambda: logits - logits.logsumexp(1, keepdim=True),
        "overflow in the sum": lambda: logits - logits.exp().sum(-1, keepdim=True).log(),
        "naive": lambda: (logits.exp() / logits.exp().sum(-1, keepdim=True)).log(),
        "log of softmax": lambda: logits.softmax(-1).log(),
        "small number added": lambda: (logits.softmax(-1) + 1e-9).log(),
        "no normalizer": lambda: logits,
    })  # fmt: skip
    return slipped(on, logs, {"base 2": lambda logs: logs / math.log(2), "probability": torch.exp})


def _ids(g: Generator, *shape: int, below: int) -> Tensor:
    return torch.randint(below, shape, generator=g)


def _padded(g: Generator, *columns: tuple[int, int]) -> Tensor:
    targets = _ids(g, 3, 5, below=7)
    for row, start in columns:
        targets[row, start:] = -100
    return targets


CROSS_ENTROPY = Exercise(
    name="cross_entropy",
    lesson="03",
    reference=cross_entropy,
    probes=(
        Probe(
            "the loss is minus the logarithm of the target's probability",
            lambda g: (torch.tensor([[[2.0, 1.0, 0.1], [2.0, 1.0, 0.1]]]), torch.tensor([[1, 1]])),
        ),
        Probe(
            "the result is the mean over all positions",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _ids(g, 3, 5, below=7)),
        ),
        Probe(
            "targets of -100 are left out of the sum and of the count",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (0, 2), (2, 4))),
        ),
        Probe(
            "large scores do not overflow",
            lambda g: (
                torch.tensor([[[1000.0, 0.0, 3.0], [5.0, 990.0, 0.0]]]),
                torch.tensor([[0, 1]]),
            ),
        ),
        Probe(
            "a target whose probability is 0 in fp32 has a finite loss",
            lambda g: (
                torch.tensor([[[200.0, 0.0, 3.0], [1.0, 0.0, 150.0]]]),
                torch.tensor([[1, 0]]),
            ),
        ),
        Probe(
            "very negative scores have a finite loss",
            lambda g: (
                torch.tensor([[[-900.0, -901.0], [-800.0, -802.0]]]),
                torch.tensor([[1, 0]]),
            ),
        ),
        Probe(
            "slices of longer tensors are accepted",
            lambda g: (torch.randn(3, 9, 7, generator=g)[:, :-1], _ids(g, 3, 9, below=7)[:, 1:]),
        ),
        Probe(
            "gradients flow back to logits, also if some targets are -100",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (1, 1))),
            gradients=True,
        ),
        Probe(
            "gradients of large scores are finite",
            lambda g: (300 * torch.randn(2, 3, 7, generator=g), _ids(g, 2, 3, below=7)),
            gradients=True,
        ),
    ),
    **texts("cross_entropy"),
    wider=True,
)

EXERCISES = (SOFTMAX, CROSS_ENTROPY)
