"""Lesson 15: what to train with so much compute, and one gradient out of many processes."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def compute_optimal(
    flops: float, tokens_per_parameter: float, on: frozenset[str] = frozenset()
) -> tuple[float, float]:
    """Parameters and tokens whose training takes so many FLOPs, and the mistakes that are `on`."""
    ratio = 20.0 if "always 20" in on else tokens_per_parameter
    per_product = {
        "forward only": 2,
        "backward only": 4,
        "six left out": 1,
        "six multiplied": 1 / 6,
    }
    share = flops / next((c for name, c in per_product.items() if name in on), 6)
    if "all to the parameters" in on:
        return share, share * ratio
    sizes = {
        "no root": lambda: share / ratio,
        "cube root": lambda: (share / ratio) ** (1 / 3),
        "ratio unused": lambda: share**0.5,
        "ratio outside the root": lambda: share**0.5 / ratio,
        "times the ratio": lambda: (share * ratio) ** 0.5,
        "ratio added": lambda: (flops / (6 + ratio)) ** 0.5,
        "whole parameters": lambda: float(math.floor((share / ratio) ** 0.5)),
        "six outside the root": lambda: (flops / ratio) ** 0.5 / 6,
    }
    parameters = next(
        (size() for name, size in sizes.items() if name in on), (share / ratio) ** 0.5
    )
    tokens = flops / parameters if "six lost for the tokens" in on else ratio * parameters
    if "tokens are the ratio" in on:
        tokens = ratio
    if "as many tokens as parameters" in on:
        tokens = parameters
    return (tokens, parameters) if "exchanged" in on else (parameters, tokens)


COMPUTE_OPTIMAL = Exercise(
    name="compute_optimal",
    lesson="15",
    reference=compute_optimal,
    probes=(
        Probe(
            "6 FLOPs at one token per parameter train one parameter on one token",
            lambda g: (6.0, 1.0),
        ),
        Probe(
            "480 FLOPs at 20 tokens per parameter train 2 parameters on 40 tokens",
            lambda g: (480.0, 20.0),
        ),
        Probe(
            "at 5 tokens per parameter, 6 times the product is the compute",
            lambda g: (6.0 * 3 * 15, 5.0),
        ),
        Probe("large numbers work", lambda g: (1e21, 20.0)),
        Probe("the numbers need not be whole", lambda g: (1000.0, 3.0)),
        Probe("fewer tokens than parameters work", lambda g: (6.0 * 8 * 2, 0.25)),
        Probe("whole numbers work", lambda g: (6 * 7 * 14, 2)),
    ),
    **texts("compute_optimal"),
)


def all_reduce_mean(
    gradients: list[list[Tensor]], n_targets: list[int], on: frozenset[str] = frozenset()
) -> list[Tensor]:
    """The gradients of the mean loss over the targets of all processes.

    With the mistakes that are `on`.
    """
    if "only the first" in on or "only the last" in on:
        return list(gradients[0 if "only the first" in on else -1])
    shares = _shares(gradients, n_targets, on)
    reduced = []
    for i, of_all in enumerate(zip(*gradients, strict=True)):
        used = (
            [1 / len(shares)] * len(shares)
            if "only the first tensor is weighted" in on and i
            else shares
        )
        total = torch.stack([share * g for share, g in zip(used, of_all, strict=True)]).sum(0)
        if "absolute values" in on:
            total = torch.stack(
                [share * g.abs() for share, g in zip(used, of_all, strict=True)]
            ).sum(0)
        if "one number" in on:
            total = torch.full_like(total, total.mean().item())
        reduced.append(total)
    return reduced


def _shares(gradients: list[list[Tensor]], n_targets: list[int], on: frozenset[str]) -> list[float]:
    """The weight of each process."""
    n = n_targets
    total = sum(n_targets)
    size = len(n_targets)
    busy = sum(k > 0 for k in n)
    others: dict[str, Callable[[], list[float]]] = {
        "mean of means": lambda: [1 / size] * size,
        "mean of those with targets": lambda: [(k > 0) / busy for k in n],
        "sum": lambda: [1.0] * size,
        "weighted and not divided": lambda: [float(k) for k in n],
        "weighted, divided by processes": lambda: [k / size for k in n],
        "divided by all targets": lambda: [1 / total] * size,
        "divided by own targets": lambda: [1 / (max(k, 1) * size) for k in n],
        "weights upside down": lambda: [1 / max(k, 1) / sum(1 / max(j, 1) for j in n) for k in n],
        "weighted and divided twice": lambda: [k / total / size for k in n],
        "weights squared": lambda: [k * k / sum(j * j for j in n) for k in n],
        "roots as weights": lambda: [k**0.5 / sum(j**0.5 for j in n) for k in n],
        "softmax as weights": lambda: torch.tensor(n, dtype=torch.float64).softmax(0).tolist(),
        "divided by the largest": lambda: [k / max(n) for k in n],
        "divided by the tensors": lambda: [1 / len(gradients[0])] * size,
        "weights in reverse": lambda: [k / total for k in reversed(n)],
        "weights of the neighbour": lambda: [k / total for k in n[1:] + n[:1]],
        "whole weights": lambda: [k // total for k in n],
        "last one left out": lambda: [k / total for k in n[:-1]] + [0.0],
        "largest batch only": lambda: [
            float(i == max(range(size), key=lambda j: n[j])) for i in range(size)
        ],
    }
    return next((other() for name, other in others.items() if name in on), [k / total for k in n])


def _ranks(g: Generator, size: int, *shapes: tuple[int, ...]) -> list[list[Tensor]]:
    return [[torch.randn(shape, generator=g) for shape in shapes] for _ in range(size)]


ALL_REDUCE_MEAN = Exercise(
    name="all_reduce_mean",
    lesson="15",
    reference=all_reduce_mean,
    probes=(
        Probe(
            "with equal batches it is the mean over the processes",
            lambda g: ([[torch.tensor([2.0, -4.0])], [torch.tensor([6.0, 8.0])]], [3, 3]),
        ),
        Probe(
            "every target has the same weight, whichever process had it",
            lambda g: ([[torch.tensor([2.0, -4.0])], [torch.tensor([6.0, 8.0])]], [3, 1]),
        ),
        Probe("one process keeps its gradients", lambda g: (_ranks(g, 1, (2, 3), (4,)), [5])),
        Probe(
            "equal batches of any shapes", lambda g: (_ranks(g, 2, (2, 3), (4,), (1, 2, 2)), [4, 4])
        ),
        Probe("unequal batches of any shapes", lambda g: (_ranks(g, 3, (2, 3), (4,)), [1, 2, 5])),
        Probe(
            "the largest batch may come first",
            lambda g: (_ranks(g, 4, (3,), (2, 2), (5,)), [7, 1, 2, 3]),
        ),
        Probe(
            "a process without targets counts nothing",
            lambda g: (
                [*_ranks(g, 2, (2, 3), (4,)), [torch.zeros(2, 3), torch.zeros(4)]],
                [2, 4, 0],
            ),
        ),
        Probe("many targets work", lambda g: (_ranks(g, 2, (2, 3)), [4096, 1024])),
        Probe(
            "fp64 stays fp64",
            lambda g: ([[torch.tensor([3.0]).double()], [torch.tensor([-5.0]).double()]], [1, 3]),
            tolerance=1e-6,
        ),
    ),
    **texts("all_reduce_mean"),
)

EXERCISES = (COMPUTE_OPTIMAL, ALL_REDUCE_MEAN)
