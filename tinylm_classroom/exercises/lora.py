"""Lesson 18: a frozen matrix with an update of low rank next to it."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts


def _scale(a: Tensor, weight: Tensor, alpha: float, on: frozenset[str]) -> float:
    """alpha / r, unless that is the mistake."""
    r = len(a)
    scale = chosen(on, alpha / r, {
        "no factor": lambda: 1.0,
        "alpha alone": lambda: alpha,
        "divided by r alone": lambda: 1 / r,
        "upside down": lambda: r / alpha,
        "times r": lambda: alpha * r,
        "rounded down": lambda: alpha // r,
        "divided by the input's width": lambda: alpha / weight.shape[1],
        "divided by the output's width": lambda: alpha / weight.shape[0],
        "the root of r": lambda: alpha / r**0.5,
    })  # fmt: skip
    return -scale if "subtracted" in on else scale


def lora_linear(
    x: Tensor, weight: Tensor, a: Tensor, b: Tensor, alpha: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """x (..., in) through a weight (out, in) and its update (alpha / r) b a, and the mistakes that
    are `on`.

    a (r, in), b (out, r). Returns (..., out).
    """
    y = F.linear(x, weight)
    read = chosen(on, x, {"x detached": x.detach, "reads the output": lambda: y @ weight})
    down = a.sum(1) if "a forgotten" in on else F.linear(read, a)
    down = down.relu() if "an activation between" in on else down
    made = F.linear(down, b)
    update = _scale(a, weight, alpha, on) * made
    return chosen(on, y + update, {
        "update alone": lambda: update,
        "everything scaled": lambda: _scale(a, weight, alpha, on) * (y + made),
        "weight alone": lambda: y,
        "multiplied": lambda: y * update,
    })  # fmt: skip


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


def _lora(
    g: Generator, n_in: int, n_out: int, r: int, alpha: float, *leading: int, zero: bool = False
) -> tuple:
    x = _normal(g, *(leading or (3,)), n_in)
    b = torch.zeros(n_out, r) if zero else _normal(g, n_out, r)
    return x, _normal(g, n_out, n_in), _normal(g, r, n_in), b, alpha


def _one_vector(g: Generator) -> tuple:
    x, *others = _lora(g, 6, 4, 2, 5.0)
    return x[0], *others


LORA_LINEAR = Exercise(
    name="lora_linear",
    lesson="18",
    order=2,
    reference=lora_linear,
    probes=(
        Probe(
            "if b is 0, the result is that of the weight alone",
            lambda g: _lora(g, 4, 3, 2, 5.0, zero=True),
        ),
        Probe(
            "the update is added",
            lambda g: (*(torch.tensor([[n]]) for n in (2.0, 3.0, 5.0, 7.0)), 1.0),
        ),
        Probe("the update is b of a of x", lambda g: _lora(g, 4, 3, 1, 1.0)),
        Probe("r is a size of a", lambda g: _lora(g, 7, 5, 3, 3.0)),
        Probe("the update has the factor alpha / r", lambda g: _lora(g, 6, 5, 3, 8.0)),
        Probe("x may have several axes", lambda g: _lora(g, 6, 7, 2, 5.0, 2, 3)),
        Probe("gradients reach all tensors", lambda g: _lora(g, 4, 6, 3, 5.0, 2), gradients=True),
        Probe("x may be a single vector", _one_vector),
    ),
    **texts("lora_linear"),
    wider=True,
)
EXERCISES = (LORA_LINEAR,)
