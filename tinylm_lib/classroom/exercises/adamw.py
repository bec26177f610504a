"""Lesson 11: how weights move."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts

Moved = tuple[Tensor, Tensor, Tensor]


def adamw_step(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor, step: int, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float, on: frozenset[str] = frozenset(),
) -> Moved:  # fmt: skip
    """One update of AdamW, all tensors (...), step counted from 1, and the mistakes that are `on`."""
    if "betas exchanged" in on:
        beta1, beta2 = beta2, beta1
    if "fixed betas" in on:
        beta1, beta2 = 0.9, 0.999
    if "fixed lr" in on:
        lr = 1e-3
    old_m, old_v = m, v
    if "coupled" in on or "decays twice" in on:
        grad = grad + weight_decay * param
    m = _first(m, grad, beta1, on)
    v = _second(v, m if "v of m" in on else grad - m if "v of the surprise" in on else grad, beta2, on)
    used_m, used_v = (old_m, old_v) if "old moments" in on else (m, v)
    used_m, used_v = _corrected(used_m, used_v, step, beta1, beta2, on)
    if "nesterov" in on:
        used_m = beta1 * used_m + (1 - beta1) * grad / (1 - beta1**step)
    size = _size(used_v, eps, on)
    update = used_m * size if "multiplied" in on else used_m / size
    if "sign alone" in on:
        update = update.sign()
    moved = _moved(param, update, lr, weight_decay, on)
    if "corrected moments kept" in on:
        m, v = used_m, used_v
    if "old moments kept" in on:
        m, v = old_m, old_v
    if "param last" in on:
        return m, v, moved
    return (moved, v, m) if "moments exchanged" in on else (moved, m, v)


def _moved(param: Tensor, update: Tensor, lr: float, weight_decay: float, on: frozenset[str]) -> Tensor:
    """The weight after decay and step."""
    decayed = param
    if not {"coupled", "no decay", "decay behind"} & on:
        decayed = param * (1 + lr * weight_decay if "decay grows" in on else 1 - _decay(lr, weight_decay, on))
    if "lr unused" in on:
        return decayed - update
    if "decay of the step" in on:
        return param - lr * update * (1 - weight_decay)
    if "decay is constant" in on:
        return param - lr * (update + weight_decay)
    if "returns the step" in on:
        return lr * update
    moved = decayed + lr * update if "ascends" in on else decayed - lr * update
    return moved * (1 - lr * weight_decay) if "decay behind" in on else moved


def _decay(lr: float, weight_decay: float, on: frozenset[str]) -> float:
    if "fixed decay" in on:
        weight_decay = 0.01
    if "lr squared" in on:
        return lr**2 * weight_decay
    return weight_decay if "decay without lr" in on else lr if "wd unused" in on else lr * weight_decay


def _first(m: Tensor, grad: Tensor, beta1: float, on: frozenset[str]) -> Tensor:
    """The running mean of the gradient."""
    if "m summed" in on:
        return beta1 * m + grad
    if "old m whole" in on:
        return m + (1 - beta1) * grad
    if "m weights exchanged" in on or "weights exchanged" in on:
        return (1 - beta1) * m + beta1 * grad
    return grad if "no momentum" in on else beta1 * m + (1 - beta1) * grad


def _second(v: Tensor, grad: Tensor, beta2: float, on: frozenset[str]) -> Tensor:
    """The running mean of its square."""
    square = grad.abs() if "no square" in on else grad if "v of grad" in on else grad.square()
    if "square of all" in on:
        return beta2 * v + ((1 - beta2) * grad).square()
    if "largest" in on:
        return torch.maximum(v, beta2 * v + (1 - beta2) * square)
    if "all summed" in on:
        return v + square
    if "v summed" in on:
        return beta2 * v + square
    if "weights exchanged" in on:
        return (1 - beta2) * v + beta2 * square
    return square.mean() * (1 - beta2) + beta2 * v if "one v" in on else beta2 * v + (1 - beta2) * square


def _corrected(
    m: Tensor, v: Tensor, step: int, beta1: float, beta2: float, on: frozenset[str]
) -> tuple[Tensor, Tensor]:
    """Both means without their bias towards the zeros that they started from."""
    if "step from 0" in on:
        step = step - 1
    if "one step late" in on:
        step = step + 1
    by_m, by_v = 1 - torch.tensor(beta1).double() ** step, 1 - torch.tensor(beta2).double() ** step
    if "correction by product" in on:
        by_m, by_v = 1 - torch.tensor(beta1 * step), 1 - torch.tensor(beta2 * step)
    if "power of the rest" in on:
        by_m, by_v = torch.tensor(1 - beta1).double() ** step, torch.tensor(1 - beta2).double() ** step
    if "correction of the first step" in on:
        by_m, by_v = torch.tensor(1 - beta1), torch.tensor(1 - beta2)
    if "corrections exchanged" in on:
        by_m, by_v = by_v, by_m
    if "no correction" in on or "m uncorrected" in on:
        by_m = torch.tensor(1.0)
    if "no correction" in on or "v uncorrected" in on:
        by_v = torch.tensor(1.0)
    if "corrections multiply" in on:
        return m * by_m.to(m.dtype), v * by_v.to(v.dtype)
    return m / by_m.to(m.dtype), v / by_v.to(v.dtype)


def _size(v: Tensor, eps: float, on: frozenset[str]) -> Tensor:
    """What the mean gradient is divided by."""
    if "fixed eps" in on:
        eps = 1e-8
    if "eps inside" in on:
        return (v + eps).sqrt()
    if "eps as a limit" in on:
        return v.sqrt().clamp(min=eps)
    if "v unused" in on:
        return torch.ones_like(v)
    if "squared again" in on:
        return v.square() + eps
    return (v if "no root" in on else v.sqrt()) + (0 if "no eps" in on else eps)


PLAIN = (0.1, 0.9, 0.999, 1e-8)  # lr, beta1, beta2, eps


def _hand(param: float, grad: float, m: float, v: float, step: int, *rest: float) -> Callable[[Generator], tuple]:
    """Arguments that fit into a sentence."""
    return lambda g: (*(torch.tensor([float(x)]) for x in (param, grad, m, v)), step, *rest)


def _running(g: Generator, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """param, grad, m and v of a training that runs."""
    param, grad, m = (torch.randn(shape, generator=g, dtype=dtype) for _ in range(3))
    return param, grad, m, 0.1 + torch.rand(shape, generator=g, dtype=dtype)


ADAMW_STEP = Exercise(
    name="adamw_step",
    lesson="11",
    order=1,
    reference=adamw_step,
    probes=(
        Probe("the first step has the size of lr", _hand(1, 0.5, 0, 0, 1, *PLAIN, 0.0)),
        Probe(
            "the first step has the size of lr, whatever the gradient's",
            _hand(1, -20, 0, 0, 1, 0.01, 0.8, 0.99, 1e-8, 0.0),
        ),
        Probe("the moments run on", _hand(1, -0.2, 0.095, 0.0005, 3, *PLAIN, 0.0)),
        Probe("both are corrected, by their own beta and step", _hand(2, 3, 1, 0.5, 4, 0.1, 0.6, 0.9, 1e-8, 0.0)),
        Probe("decay pulls by lr times weight_decay", _hand(1, 0.5, 0, 0, 1, *PLAIN, 0.1)),
        Probe("decay does not pass through the moments", _hand(-2, 0.5, 0.3, 2, 2, 0.3, 0.7, 0.9, 1e-8, 0.4)),
        Probe("without a gradient only decay is left", _hand(2, 0, 0, 0, 1, 0.1, 0.9, 0.99, 1e-8, 0.5)),
        Probe("every number by itself", lambda g: (*_running(g, 2, 3), 5, 0.2, 0.8, 0.9, 1e-8, 0.3)),
        Probe("every number by itself", lambda g: (*_running(g, 3, 2), 2, 0.02, 0.5, 0.95, 1e-8, 0.0)),
        Probe("eps is added behind the root", _hand(1, 1e-6, 1e-6, 1e-12, 100_000, 0.1, 0.5, 0.9, 1e-6, 0.0)),
        Probe("a large eps makes steps small", _hand(1, 2, 2, 4, 100_000, 0.1, 0.5, 0.9, 3.0, 0.0)),
        Probe("later, nothing needs correcting", _hand(1, 2, 1, 3, 100_000, 0.1, 0.8, 0.9, 1e-8, 0.1)),
        Probe("any shape", lambda g: (*_running(g, 2, 2, 2), 7, 0.1, 0.9, 0.95, 1e-8, 0.1)),
        Probe("fp64 stays fp64", lambda g: (*_running(g, 4, dtype=torch.float64), 3, *PLAIN, 0.1)),
    ),
    **texts("adamw_step"),
)

EXERCISES = (ADAMW_STEP,)
