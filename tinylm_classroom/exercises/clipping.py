"""Lesson 11: a limit for the length of the gradient."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts


def clip_gradients(
    grads: list[Tensor], max_norm: float, on: frozenset[str] = frozenset()
) -> list[Tensor]:
    """The gradients, scaled to a common length of max_norm where it was larger, and the mistakes
    that are `on`.
    """
    norms = torch.stack([g.norm() for g in grads])
    if apart := _apart(grads, norms, max_norm, on):
        return apart
    norm = _measured(grads, norms, on)
    max_norm = 1.0 if "fixed limit" in on else max_norm
    factors = {
        "unguarded": lambda: max_norm / norm.item(),
        "squared": lambda: (max_norm / norm) ** 2,
        "inverse": lambda: norm / max_norm,
        "to length 1": lambda: 1 / norm,
        "times the limit": lambda: max_norm,
        "plus one": lambda: max_norm / (norm + 1),
        "limit twice": lambda: max_norm**2 / norm,
        "root of the factor": lambda: (max_norm / norm) ** 0.5,
        "zeroed": lambda: 0.0,
    }
    factor = chosen(on, max_norm / norm, factors)
    limit = max_norm**2 if "against the square" in on else max_norm
    clipped = norm < limit if "the wrong way" in on else norm > limit
    if "never" in on or not (clipped or "always" in on):
        return list(grads)
    shrinks = range(len(grads)) if "only the largest" not in on else [int(norms.argmax())]
    return [g * factor if i in shrinks else g for i, g in enumerate(grads)]


def _apart(
    grads: list[Tensor], norms: Tensor, max_norm: float, on: frozenset[str]
) -> list[Tensor] | None:
    """Mistakes that treat the tensors, rows or numbers one by one."""

    def each(lengths: Tensor, limit: float) -> list[Tensor]:
        return [g * (limit / max(n, limit)) for g, n in zip(grads, lengths.tolist(), strict=True)]

    others = {
        "per value": lambda: [g.clamp(-max_norm, max_norm) for g in grads],
        "per tensor": lambda: each(norms, max_norm),
        "limit shared out": lambda: each(norms, max_norm / len(grads)),
        "as far as the loop is": lambda: each(norms.square().cumsum(0).sqrt(), max_norm),
        "per row": lambda: [
            g * (max_norm / g.norm(dim=-1, keepdim=True).clamp(min=max_norm)) for g in grads
        ],
    }
    return chosen(on, None, others)


def _measured(grads: list[Tensor], norms: Tensor, on: frozenset[str]) -> Tensor:
    """The length of all numbers together."""
    numbers = torch.cat([g.flatten() for g in grads])
    others = {
        "sum of norms": norms.sum,
        "mean of norms": norms.mean,
        "largest norm": norms.max,
        "last norm": lambda: norms[-1],
        "first norm": lambda: norms[0],
        "all but the last": lambda: norms[: max(1, len(norms) - 1)].norm(),
        "no root": lambda: numbers.square().sum(),
        "absolute values": lambda: numbers.abs().sum(),
        "largest value": lambda: numbers.abs().max(),
        "root mean square": lambda: numbers.square().mean().sqrt(),
        "no squares": lambda: numbers.sum().abs(),
    }
    return chosen(on, norms.norm(), others)


def _gradients(g: Generator, scale: float) -> list[Tensor]:
    return [scale * torch.randn(shape, generator=g) for shape in ((2, 3), (4,), (2, 1, 2))]


def _numbers(*tensors: list[float]) -> list[Tensor]:
    return [torch.tensor(numbers, dtype=torch.float32) for numbers in tensors]


CLIP_GRADIENTS = Exercise(
    name="clip_gradients",
    lesson="11",
    order=3,
    reference=clip_gradients,
    probes=(
        Probe("3, 4 and 12 together have a length of 13", lambda g: (_numbers([3, 4], [12]), 1.0)),
        Probe("below the limit nothing changes", lambda g: (_numbers([0.3, -0.4], [1.2]), 2.0)),
        Probe("at the limit nothing changes", lambda g: (_numbers([3, -4], [12]), 13.0)),
        Probe(
            "above the limit the length becomes the limit", lambda g: (_numbers([3, -4], [12]), 6.5)
        ),
        Probe("the list may have one tensor", lambda g: ([torch.tensor([[6.0, 8.0]])], 5.0)),
        Probe("all tensors are measured together", lambda g: (_numbers([4], [5, 2], [6]), 3.0)),
        Probe("all tensors are measured together", lambda g: (_numbers([9], [12, 0], [0.1]), 3.0)),
        Probe("all tensors are measured together", lambda g: (_numbers([0.1], [2, -2]), 2.5)),
        Probe("the tensors may have any shapes", lambda g: (_gradients(g, 1.0), 2.0)),
        Probe("the tensors may have any shapes", lambda g: (_gradients(g, 20.0), 0.5)),
        Probe("a length just above the limit is too long", lambda g: (_numbers([0.6], [0.9]), 1.0)),
        Probe("small gradients stay as they are", lambda g: (_gradients(g, 0.01), 1.0)),
        Probe("the gradients may all be 0", lambda g: ([torch.zeros(2), torch.zeros(1, 2)], 1.0)),
        Probe(
            "fp64 stays fp64",
            lambda g: ([t.double() for t in _numbers([3], [4])], 2.0),
            tolerance=1e-4,
        ),
    ),
    **texts("clip_gradients"),
)

EXERCISES = (CLIP_GRADIENTS,)
