"""Chains of linear maps, the simplest deep networks: how sizes change in them, and a task to learn.

Each layer is an orthogonal matrix, which keeps the size of every vector, times a factor.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

N_LAYERS = 24
WIDTH = 32
N_TOKENS = 16
GUESSING = math.log(N_TOKENS)  # nats, the loss of a chain that knows nothing
EXAMPLE = 5  # the seed of the one vector whose way is drawn


class Starts(NamedTuple):
    """What R runs start from: vectors for the tokens (R, V, C), weights (24, R, C, C), a readout
    (R, C, V) that is not trained, and the token (R, V) that answers each token.
    """

    tokens: Tensor
    weights: Tensor
    readout: Tensor
    answers: Tensor


class Trained(NamedTuple):
    """What has become of the runs: losses (factors, seeds), and what leaves the last layer for each
    token (factors, seeds, V, C).
    """

    losses: Tensor
    ends: Tensor


def sizes(factor: float, norm: Callable[[Tensor], Tensor] | None = None) -> list[float]:
    """The size of one vector after each of the 24 layers; a norm, if any, follows each layer."""
    x = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(EXAMPLE))
    x = x / x.square().mean().sqrt()
    found = []
    for weight in factor * starts([1.0], [EXAMPLE]).weights[:, 0].detach():
        x = x @ weight
        x = x if norm is None else norm(x)
        found.append(x.square().mean().sqrt().item())
    return found


def starts(factors: Sequence[float], seeds: Sequence[int]) -> Starts:
    """A run for each factor and each seed, all seeds of the first factor first.

    The task: after token t, name token 5t + 3, counted modulo 16.
    """
    tokens = []
    weights = []
    readouts = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        tokens.append(torch.randn(N_TOKENS, WIDTH, generator=generator))
        readouts.append(torch.randn(WIDTH, N_TOKENS, generator=generator) / math.sqrt(WIDTH))
        drawn = torch.randn(N_LAYERS, WIDTH, WIDTH, generator=generator)
        weights.append(torch.linalg.qr(drawn).Q)
    each = torch.tensor(factors).repeat_interleave(len(seeds))[:, None, None]  # (R, 1, 1)
    n = len(factors)
    answers = (5 * torch.arange(N_TOKENS) + 3) % N_TOKENS
    return Starts(
        torch.stack(tokens).repeat(n, 1, 1),
        (each * torch.stack(weights, dim=1).repeat(1, n, 1, 1)).requires_grad_(),
        torch.stack(readouts).repeat(n, 1, 1),
        answers.expand(n * len(seeds), -1),
    )
