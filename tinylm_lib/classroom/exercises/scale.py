"""Lesson 15: what to train with so much compute, and one gradient out of many processes."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def compute_optimal(flops: float, tokens_per_parameter: float, on: frozenset[str] = frozenset()) -> tuple[float, float]:
    """Parameters and tokens whose training takes so many FLOPs, and the mistakes that are `on`."""
    ratio = 20.0 if "always 20" in on else tokens_per_parameter
    per_product = {"forward only": 2, "backward only": 4, "six left out": 1, "six multiplied": 1 / 6}
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
    parameters = next((size() for name, size in sizes.items() if name in on), (share / ratio) ** 0.5)
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
        Probe("6 FLOPs at one token per parameter train one parameter on one token", lambda g: (6.0, 1.0)),
        Probe("480 FLOPs at 20 tokens per parameter train 2 parameters on 40 tokens", lambda g: (480.0, 20.0)),
        Probe("at 5 tokens per parameter, 6 times the product is the compute", lambda g: (6.0 * 3 * 15, 5.0)),
        Probe("large numbers work", lambda g: (1e21, 20.0)),
        Probe("the numbers need not be whole", lambda g: (1000.0, 3.0)),
        Probe("fewer tokens than parameters work", lambda g: (6.0 * 8 * 2, 0.25)),
        Probe("whole numbers work", lambda g: (6 * 7 * 14, 2)),
    ),
    faults={
        "forward only": Fault(
            "2 FLOPs per parameter and token are counted", "The backward pass takes twice as many again."
        ),
        "backward only": Fault("4 FLOPs per parameter and token are counted", "The forward pass counts, too."),
        "six left out": Fault(
            "the 6 is left out", "A parameter costs several FLOPs for each token, forward and backward."
        ),
        "six multiplied": Fault("the 6 multiplies the compute", "For one parameter, does a token cost 6 or a sixth?"),
        "ratio added": Fault("the ratio is added to the 6", "Put tokens = ratio times parameters into the product."),
        "whole parameters": Fault("the parameters are rounded to a whole number", "They need not be whole."),
        "six outside the root": Fault("the 6 stands outside the root", "First solve for the square of the parameters."),
        "no root": Fault("the root is missing", "The tokens grow with the parameters, so parameters occur squared."),
        "cube root": Fault("a cube root is taken", "How often do the parameters occur in the product?"),
        "ratio unused": Fault(
            "parameters and tokens share the compute as equals", "The ratio changes the parameters, too."
        ),
        "ratio outside the root": Fault("the ratio stands outside the root", "First solve for the square."),
        "times the ratio": Fault("the ratio multiplies under the root", "More tokens for each leave fewer parameters."),
        "always 20": Fault("the ratio is always 20", "The caller says which."),
        "all to the parameters": Fault("all compute goes to the parameters", "They share it with the tokens."),
        "tokens are the ratio": Fault("the second number is the ratio", "It is tokens per parameter: times how many?"),
        "as many tokens as parameters": Fault("there are as many tokens as parameters", "Where is the ratio?"),
        "six lost for the tokens": Fault("the tokens are compute over parameters", "Where is the 6?"),
        "exchanged": Fault(
            "the two results are exchanged",
            "First the parameters. Or is the ratio upside down? It is tokens per parameter.",
        ),
    },
    hints=(
        "Two equations: compute is 6 times parameters times tokens, and tokens are the ratio times parameters.",
        "Put the second into the first. The parameters now occur squared.",
        "Solve for the square, take the root, and the tokens follow.",
    ),
)


def all_reduce_mean(
    gradients: list[list[Tensor]], n_targets: list[int], on: frozenset[str] = frozenset()
) -> list[Tensor]:
    """The gradients of the mean loss over all processes' targets, and the mistakes that are `on`."""
    if "only the first" in on or "only the last" in on:
        return list(gradients[0 if "only the first" in on else -1])
    shares = _shares(gradients, n_targets, on)
    reduced = []
    for i, of_all in enumerate(zip(*gradients, strict=True)):
        used = [1 / len(shares)] * len(shares) if "only the first tensor is weighted" in on and i else shares
        total = torch.stack([share * g for share, g in zip(used, of_all, strict=True)]).sum(0)
        if "absolute values" in on:
            total = torch.stack([share * g.abs() for share, g in zip(used, of_all, strict=True)]).sum(0)
        if "one number" in on:
            total = torch.full_like(total, total.mean().item())
        reduced.append(total)
    return reduced


def _shares(gradients: list[list[Tensor]], n_targets: list[int], on: frozenset[str]) -> list[float]:
    """The weight of each process."""
    n, total, size = n_targets, sum(n_targets), len(n_targets)
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
        "largest batch only": lambda: [float(i == max(range(size), key=lambda j: n[j])) for i in range(size)],
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
        Probe("any shapes, equal batches", lambda g: (_ranks(g, 2, (2, 3), (4,), (1, 2, 2)), [4, 4])),
        Probe("any shapes, unequal batches", lambda g: (_ranks(g, 3, (2, 3), (4,)), [1, 2, 5])),
        Probe("the largest batch may come first", lambda g: (_ranks(g, 4, (3,), (2, 2), (5,)), [7, 1, 2, 3])),
        Probe(
            "a process without targets counts nothing",
            lambda g: ([*_ranks(g, 2, (2, 3), (4,)), [torch.zeros(2, 3), torch.zeros(4)]], [2, 4, 0]),
        ),
        Probe("many targets work", lambda g: (_ranks(g, 2, (2, 3)), [4096, 1024])),
        Probe(
            "fp64 stays fp64",
            lambda g: ([[torch.tensor([3.0]).double()], [torch.tensor([-5.0]).double()]], [1, 3]),
            tolerance=1e-6,
        ),
    ),
    faults={
        "mean of means": Fault(
            "every process has the same weight",
            "A process with fewer targets averaged over fewer; each target must have the same weight.",
        ),
        "mean of those with targets": Fault(
            "every process with targets has the same weight", "A process with fewer targets averaged over fewer."
        ),
        "sum": Fault("the gradients are added up", "Then more processes would make larger steps. A mean is expected."),
        "weighted and not divided": Fault("the weighted sum is not divided", "By how many targets in all?"),
        "weighted, divided by processes": Fault(
            "the weighted sum is divided by the number of processes", "The weights are targets: divide by all of them."
        ),
        "divided by all targets": Fault(
            "the sum is divided by all targets without weights",
            "Each gradient is a mean already: times how many targets?",
        ),
        "divided by own targets": Fault(
            "each gradient is divided by its number of targets", "It is a mean already: make it a sum first."
        ),
        "weights upside down": Fault("few targets have more weight than many", "Look at the weights."),
        "weighted and divided twice": Fault(
            "it is divided by the processes as well", "The weights add up to 1 already."
        ),
        "weights squared": Fault("the weights are squared", "Twice the targets, twice the weight."),
        "roots as weights": Fault("the weights are roots", "Twice the targets, twice the weight."),
        "softmax as weights": Fault(
            "the weights are a softmax", "Shares of the targets are meant, without exponentials."
        ),
        "divided by the largest": Fault("it is divided by the largest batch", "By all targets together."),
        "divided by the tensors": Fault("it is divided by the number of tensors", "The mean goes over the processes."),
        "weights in reverse": Fault(
            "the weights are in reverse order", "Weight and gradients of one process belong together."
        ),
        "weights of the neighbour": Fault(
            "each process has its neighbour's weight", "Weight and gradients of one process belong together."
        ),
        "largest batch only": Fault("only the largest batch counts", "All processes have a share."),
        "only the first": Fault("only the first process counts", "All processes have a share."),
        "only the last": Fault("only the last process counts", "Does the sum start again at 0 in the loop?"),
        "only the first tensor is weighted": Fault(
            "only the first tensor is weighted by targets", "The same weights hold for all tensors of a process."
        ),
        "absolute values": Fault("absolute values are averaged", "Gradients that disagree cancel."),
        "one number": Fault("all numbers of a tensor become their mean", "The mean goes over the processes only."),
    },
    hints=(
        "Each process gives the gradient of its own mean loss. What would the sum over its targets be?",
        "Add up these sums over the processes, and divide once, by all targets together.",
        "Do this for the first tensor of every process, then for the second: `zip(*gradients)` sorts them so.",
    ),
)

EXERCISES = (COMPUTE_OPTIMAL, ALL_REDUCE_MEAN)
