"""Lesson 18: a frozen matrix with an update of low rank next to it, and both merged into one."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def _scale(a: Tensor, b: Tensor, weight: Tensor, alpha: float, on: frozenset[str]) -> float:
    """alpha / r, unless that is the mistake."""
    r = len(a)
    ways = {
        "no factor": 1.0, "alpha alone": alpha, "divided by r alone": 1 / r, "upside down": r / alpha,
        "times r": alpha * r, "divided by the input's width": alpha / weight.shape[1],
        "divided by the output's width": alpha / weight.shape[0], "the root of r": alpha / r**0.5,
    }  # fmt: skip
    scale = next((other for fault, other in ways.items() if fault in on), alpha / r)
    return -scale if "subtracted" in on else scale


def lora_linear(
    x: Tensor, weight: Tensor, a: Tensor, b: Tensor, alpha: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """x (..., in) through a weight (out, in) and its update (alpha / r) b a, and the mistakes that are `on`.

    a (r, in), b (out, r). Returns (..., out).
    """
    scale, y = _scale(a, b, weight, alpha, on), F.linear(x, weight)
    into = x.detach() if "x detached" in on else x
    if "reads the output" in on:
        into = y @ weight
    down = F.linear(into, a)
    if "an activation between" in on:
        down = down.relu()
    made = F.linear(down, b)
    if "update alone" in on:
        return scale * made
    if "everything scaled" in on:
        return scale * (y + made)
    if "weight alone" in on:
        return y
    if "multiplied" in on:
        return y * (scale * made)
    if "a forgotten" in on:
        return y + scale * F.linear(a.sum(1), b)
    return y + scale * made


def merged_weight(weight: Tensor, a: Tensor, b: Tensor, alpha: float, on: frozenset[str] = frozenset()) -> Tensor:
    """weight (out, in) + (alpha / r) b a in the weight's dtype, rounded once, and the mistakes that are `on`."""
    made = _scale(a, b, weight, alpha, on) * (b.double() @ a.double())
    if "reshaped" in on:
        made = _scale(a, b, weight, alpha, on) * (a.T @ b.T).double().reshape(weight.shape)
    if "one rank" in on:
        made = _scale(a, b, weight, alpha, on) * torch.outer(b[:, 0], a[0]).double()
    if "twice" in on:
        made = 2 * made
    if "update alone" in on:
        return made.to(weight.dtype)
    if "everything scaled" in on:
        return (_scale(a, b, weight, alpha, on) * (weight + b.double() @ a.double())).to(weight.dtype)
    if "in place" in on:
        return weight.copy_((weight.double() + made).to(weight.dtype))
    whole = weight.double() + made
    return whole.float() if "stays wide" in on else whole.to(weight.dtype)


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=g)


LORA_LINEAR = Exercise(
    name="lora_linear",
    lesson="18",
    order=4,
    reference=lora_linear,
    probes=(
        Probe("b is 0: the result is that of the weight alone", lambda g: _lora(g, 4, 3, 2, 5.0, zero=True)),
        Probe("one input, one output, rank 1", lambda g: (*(torch.tensor([[n]]) for n in (2.0, 3.0, 5.0, 7.0)), 1.0)),
        Probe("alpha is 1", lambda g: _lora(g, 4, 3, 1, 1.0)),
        Probe("alpha is as large as the rank", lambda g: _lora(g, 5, 4, 2, 2.0)),
        Probe("the update has the factor alpha / r", lambda g: _lora(g, 6, 5, 3, 8.0)),
        Probe("so it is for several texts", lambda g: _lora(g, 6, 7, 2, 3.0, 2, 3)),
        Probe("gradients reach everything", lambda g: _lora(g, 4, 6, 3, 5.0, 2), gradients=True),
        Probe("a single vector", lambda g: (_normal(g, 6), _normal(g, 4, 6), _normal(g, 2, 6), _normal(g, 4, 2), 3.0)),
    ),
    **texts("lora_linear"),
)
MERGED_WEIGHT = Exercise(
    name="merged_weight",
    lesson="18",
    order=5,
    reference=merged_weight,
    probes=(
        Probe("b is 0: the weight stays", lambda g: _lora(g, 4, 3, 2, 5.0, zero=True)[1:]),
        Probe("one number, rank 1", lambda g: (*(torch.tensor([[n]]) for n in (3.0, 5.0, 7.0)), 1.0)),
        Probe("alpha is as large as the rank", lambda g: _lora(g, 5, 4, 2, 2.0)[1:]),
        Probe("the update has the factor alpha / r", lambda g: _lora(g, 6, 5, 3, 8.0)[1:]),
        Probe("as many outputs as inputs", lambda g: _lora(g, 6, 6, 3, 2.0)[1:]),
        Probe("a weight in bf16 stays in bf16", lambda g: _in_bf16(g)),
    ),
    **texts("merged_weight"),
)
EXERCISES = (LORA_LINEAR, MERGED_WEIGHT)


def _lora(g: Generator, n_in: int, n_out: int, r: int, alpha: float, *leading: int, zero: bool = False) -> tuple:
    x = _normal(g, *(leading or (3,)), n_in)
    b = torch.zeros(n_out, r) if zero else _normal(g, n_out, r)
    return x, _normal(g, n_out, n_in), _normal(g, r, n_in), b, alpha


def _in_bf16(g: Generator) -> tuple:
    _, weight, a, b, alpha = _lora(g, 6, 5, 3, 4.0)
    return weight.bfloat16(), a, b, alpha
