"""Lesson 11: a limit for the length of the gradient."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def clip_gradients(grads: list[Tensor], max_norm: float, on: frozenset[str] = frozenset()) -> list[Tensor]:
    """The gradients, scaled to a common length of max_norm where it was larger, and the mistakes that are `on`."""
    squares = [g.square().sum() for g in grads]
    norm = torch.stack([s.sqrt() for s in squares]).square().sum().sqrt()
    if apart := _apart(grads, squares, max_norm, on):
        return apart
    norm = _other_norm(grads, norm, on)
    if "fixed limit" in on:
        max_norm = 1.0
    share = max_norm / (norm.item() if "unguarded" in on else norm)
    if "squared" in on:
        share = share**2
    if "inverse" in on:
        share = norm / max_norm
    if "to length 1" in on:
        share = 1 / norm
    if "times the limit" in on:
        share = torch.as_tensor(max_norm)
    if "plus one" in on:
        share = max_norm / (norm + 1)
    limit = max_norm**2 if "against the square" in on else max_norm
    clipped = norm < limit if "the wrong way" in on else norm > limit
    if "limit twice" in on:
        share = share * max_norm
    if "root of the factor" in on:
        share = share**0.5
    if "zeroed" in on and clipped:
        return [torch.zeros_like(g) for g in grads]
    if "never" in on or not (clipped or "always" in on):
        return list(grads)
    if "only the largest" in on:
        largest = max(range(len(grads)), key=lambda i: squares[i].item())
        return [g * share if i == largest else g for i, g in enumerate(grads)]
    return [g * share for g in grads]


def _apart(grads: list[Tensor], squares: list[Tensor], max_norm: float, on: frozenset[str]) -> list[Tensor] | None:
    """Mistakes that treat the tensors, rows or numbers one by one."""
    if "per value" in on:
        return [g.clamp(-max_norm, max_norm) for g in grads]
    if "per tensor" in on:
        return [g * (max_norm / max(s.sqrt().item(), max_norm)) for g, s in zip(grads, squares, strict=True)]
    if "limit shared out" in on:
        part = max_norm / len(grads)
        return [g * (part / max(s.sqrt().item(), part)) for g, s in zip(grads, squares, strict=True)]
    if "as far as the loop is" in on:
        sums = torch.stack(squares).cumsum(0).sqrt().tolist()
        return [g * (max_norm / max(n, max_norm)) for g, n in zip(grads, sums, strict=True)]
    if "per row" in on:
        return [g * (max_norm / g.norm(dim=-1, keepdim=True).clamp(min=max_norm)) for g in grads]
    return None


def _other_norm(grads: list[Tensor], norm: Tensor, on: frozenset[str]) -> Tensor:
    numbers = torch.cat([g.flatten() for g in grads])
    others = {
        "sum of norms": lambda: torch.stack([g.norm() for g in grads]).sum(),
        "mean of norms": lambda: torch.stack([g.norm() for g in grads]).mean(),
        "largest norm": lambda: torch.stack([g.norm() for g in grads]).max(),
        "last norm": lambda: grads[-1].norm(),
        "first norm": lambda: grads[0].norm(),
        "no root": lambda: numbers.square().sum(),
        "absolute values": lambda: numbers.abs().sum(),
        "largest value": lambda: numbers.abs().max(),
        "root mean square": lambda: numbers.square().mean().sqrt(),
        "no squares": lambda: numbers.sum().abs(),
    }
    return next((other() for name, other in others.items() if name in on), norm)


def _gradients(g: Generator, scale: float) -> list[Tensor]:
    return [scale * torch.randn(shape, generator=g) for shape in ((2, 3), (4,), (2, 1, 2))]


CLIP_GRADIENTS = Exercise(
    name="clip_gradients",
    lesson="11",
    order=3,
    reference=clip_gradients,
    probes=(
        Probe("3, 4 and 12 have a length of 13", lambda g: ([torch.tensor([3.0, 4.0]), torch.tensor([12.0])], 1.0)),
        Probe("below the limit nothing changes", lambda g: ([torch.tensor([0.3, -0.4]), torch.tensor([1.2])], 2.0)),
        Probe("at the limit nothing changes", lambda g: ([torch.tensor([3.0, -4.0]), torch.tensor([12.0])], 13.0)),
        Probe(
            "above the limit the length is the limit",
            lambda g: ([torch.tensor([3.0, -4.0]), torch.tensor([12.0])], 6.5),
        ),
        Probe("one tensor", lambda g: ([torch.tensor([[6.0, 8.0]])], 5.0)),
        Probe(
            "the last tensor may be small",
            lambda g: ([torch.tensor([9.0]), torch.tensor([12.0, 0.0]), torch.tensor([0.1])], 3.0),
        ),
        Probe("the first tensor may be small", lambda g: ([torch.tensor([0.1]), torch.tensor([2.0, -2.0])], 2.5)),
        Probe("any shapes", lambda g: (_gradients(g, 1.0), 2.0)),
        Probe("any shapes", lambda g: (_gradients(g, 20.0), 0.5)),
        Probe("just above the limit", lambda g: ([torch.tensor([0.6]), torch.tensor([0.9])], 1.0)),
        Probe("small gradients stay as they are", lambda g: (_gradients(g, 0.01), 1.0)),
        Probe("the gradients may all be 0", lambda g: ([torch.zeros(2), torch.zeros(1, 2)], 1.0)),
        Probe(
            "fp64 stays fp64",
            lambda g: ([torch.tensor([3.0]).double(), torch.tensor([4.0]).double()], 2.0),
            tolerance=1e-4,
        ),
    ),
    **texts("clip_gradients"),
)

EXERCISES = (CLIP_GRADIENTS,)
