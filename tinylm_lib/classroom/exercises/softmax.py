"""Lesson 03: scores become probabilities, and probabilities a loss."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def softmax(x: Tensor, dim: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Probabilities that sum to 1 along dim, x (...), and the mistakes that are `on`."""
    if "fixed axis" in on:
        dim = -1
    if "first axis" in on:
        dim = 0
    if "negated" in on:
        x = -x
    powers = _powers(x, dim, on)
    if "all axes" in on:
        return powers / powers.sum()
    if "no sum" in on:
        return powers
    size = powers.sum(dim, keepdim=True)
    if "by the mean" in on:
        size = powers.mean(dim, keepdim=True)
    if "by the largest" in on:
        size = powers.amax(dim, keepdim=True)
    if "epsilon" in on:
        size = size + 0.1
    probs = powers / size
    if "NaN hidden" in on:
        probs = probs.nan_to_num()
    if "twice" in on:
        probs = softmax(probs, dim)
    if "logarithm" in on:
        probs = probs.log()
    return probs.float() if "float" in on else probs


def _powers(x: Tensor, dim: int, on: frozenset[str]) -> Tensor:
    """What each score becomes before it is divided."""
    if "squares" in on:
        return x.square()
    if "no exponential" in on:
        return x
    if "clamped" in on:
        x = x.clamp(-80, 80)
    elif "the largest of all" in on:
        x = x - x.max()
    elif "in place" in on:
        x -= x.amax(dim, keepdim=True)
    elif "mean" in on:
        x = x - x.mean(dim, keepdim=True)
    elif "largest size" in on:
        x = x - x.abs().amax(dim, keepdim=True)
    elif "minimum" in on:
        x = x - x.amin(dim, keepdim=True)
    elif not {"no maximum", "NaN hidden"} & on:
        x = x - x.amax(dim, keepdim=True).detach()
    return 2**x if "base 2" in on else x.exp()


SOFTMAX = Exercise(
    name="softmax",
    lesson="03",
    reference=softmax,
    probes=(
        Probe("probabilities of 2, 1 and 0.1", lambda g: (torch.tensor([2.0, 1.0, 0.1]), -1)),
        Probe("every row sums to 1", lambda g: (torch.randn(3, 5, generator=g), -1)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(3, 5, generator=g), 0)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(2, 3, 4, 5, generator=g), 1)),
        Probe("large scores do not overflow", lambda g: (torch.tensor([20.0, 3.0, 1005.0]), -1)),
        Probe("very negative scores do not all become 0", lambda g: (torch.tensor([-2000.0, -2001.0]), 0)),
        Probe("each row has its own largest score", lambda g: (torch.tensor([[0.0, 1.0], [200.0, 201.0]]), -1)),
        Probe("x stays as it was", lambda g: (torch.randn(4, 4, generator=g).mT, -2)),
        Probe("gradients flow", lambda g: (torch.randn(3, 4, generator=g), -1), gradients=True),
        Probe(
            "gradients flow for large scores, too", lambda g: (200 * torch.randn(3, 4, generator=g), 1), gradients=True
        ),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).double(), -1)),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).bfloat16(), -1)),
    ),
    **texts("softmax"),
)


def cross_entropy(logits: Tensor, targets: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """Mean nats of targets (B, T) under logits (B, T, V), those of -100 left out, and the mistakes that are `on`."""
    logs = _logs(logits, on)
    if "shifts" in on:
        logs, targets = logs[:, :-1], targets[:, 1:]
    if "shifts back" in on:
        logs, targets = logs[:, 1:], targets[:, :-1]
    kept = torch.ones_like(targets, dtype=torch.bool) if "padding counts" in on else targets != -100
    if "drops the wrong ones" in on:
        kept = targets != 0
    picked = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    if "largest" in on:
        picked = logs.amax(-1)
    nats = torch.where(kept, picked if "positive" in on else -picked, torch.zeros_like(picked))
    mean = _mean(nats, kept, on)
    if "perplexity" in on:
        mean = mean.exp()
    return 0.9 * mean - 0.1 * logs.mean() if "smoothed" in on else mean


def _logs(logits: Tensor, on: frozenset[str]) -> Tensor:
    """The logarithms of the probabilities, (B, T, V)."""
    if "on probabilities" in on:
        logits = logits.softmax(-1)
    if "reshaped" in on:
        B, T, V = logits.shape
        logits = logits.reshape(B, V, T).mT
    logs = logits - logits.logsumexp(-1, keepdim=True)
    if "over positions" in on:
        logs = logits - logits.logsumexp(1, keepdim=True)
    if "overflow in the sum" in on:
        logs = logits - logits.exp().sum(-1, keepdim=True).log()
    if "naive" in on:
        logs = (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()
    if "log of softmax" in on:
        logs = logits.softmax(-1).log()
    if "small number added" in on:
        logs = (logits.softmax(-1) + 1e-9).log()
    if "no normalizer" in on:
        logs = logits
    if "base 2" in on:
        logs = logs / math.log(2)
    return logs.exp() if "probability" in on else logs


def _mean(nats: Tensor, kept: Tensor, on: frozenset[str]) -> Tensor:
    """One number for all losses (B, T)."""
    if "padding costs nothing" in on:
        return nats.mean()
    if "by sequence" in on:
        return (nats.sum(-1) / kept.sum(-1)).mean()
    if "per sequence" in on:
        return nats.sum() / len(nats)
    if "sum" in on:
        return nats.sum()
    return nats if "per position" in on else nats.sum() / kept.sum()


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
            "one position: minus the logarithm of the target's probability",
            lambda g: (torch.tensor([[[2.0, 1.0, 0.1]]]), torch.tensor([[1]])),
        ),
        Probe("the mean over all positions", lambda g: (2 * torch.randn(3, 5, 7, generator=g), _ids(g, 3, 5, below=7))),
        Probe(
            "targets of -100 are left out of the sum and of the count",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (0, 2), (2, 4))),
        ),
        Probe(
            "large scores do not overflow",
            lambda g: (torch.tensor([[[1000.0, 0.0, 3.0]]]), torch.tensor([[0]])),
        ),
        Probe(
            "a target whose probability is 0 in fp32 has a finite loss",
            lambda g: (torch.tensor([[[200.0, 0.0, 3.0]]]), torch.tensor([[1]])),
        ),
        Probe("very negative scores", lambda g: (torch.tensor([[[-900.0, -901.0]]]), torch.tensor([[1]]))),
        Probe(
            "slices are accepted",
            lambda g: (torch.randn(3, 9, 7, generator=g)[:, :-1], _ids(g, 3, 9, below=7)[:, 1:]),
        ),
        Probe(
            "gradients flow, also if some targets are -100",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (1, 1))),
            gradients=True,
        ),
        Probe(
            "gradients of large scores",
            lambda g: (300 * torch.randn(2, 3, 7, generator=g), _ids(g, 2, 3, below=7)),
            gradients=True,
        ),
        Probe("fp64 stays fp64", lambda g: (torch.randn(2, 3, 7, generator=g).double(), _ids(g, 2, 3, below=7))),
    ),
    **texts("cross_entropy"),
)

EXERCISES = (SOFTMAX, CROSS_ENTROPY)
