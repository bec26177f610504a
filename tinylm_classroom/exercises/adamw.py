"""Lesson 11: how weights move."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts

Moved = tuple[Tensor, Tensor, Tensor]


def adamw_step(
    param: Tensor, grad: Tensor, m: Tensor, v: Tensor, step: int, lr: float, beta1: float,
    beta2: float, eps: float,
    weight_decay: float, on: frozenset[str] = frozenset(),
) -> Moved:  # fmt: skip
    """One update of AdamW, step counted from 1, and the mistakes that are `on`.

    All tensors are (...).
    """
    others = {"betas exchanged": lambda: (beta2, beta1), "fixed betas": lambda: (0.9, 0.999)}
    beta1, beta2 = chosen(on, (beta1, beta2), others)
    lr = 1e-3 if "fixed lr" in on else lr
    old_m = m
    old_v = v
    if on & {"coupled", "decays twice"}:
        grad = grad + weight_decay * param
    m = _first(m, grad, beta1, on)
    averaged = chosen(on, grad, {"v of m": lambda: m, "v of the surprise": lambda: grad - m})
    v = _second(v, averaged, beta2, on)
    used_m, used_v = (old_m, old_v) if "old moments" in on else (m, v)
    used_m, used_v = _corrected(used_m, used_v, step, beta1, beta2, on)
    if "nesterov" in on:
        used_m = beta1 * used_m + (1 - beta1) * grad / (1 - beta1**step)
    size = _size(used_v, eps, on)
    update = used_m * size if "multiplied" in on else used_m / size
    moved = _moved(param, update.sign() if "sign alone" in on else update, lr, weight_decay, on)
    returned = {
        "corrected moments kept": lambda: (moved, used_m, used_v),
        "old moments kept": lambda: (moved, old_m, old_v),
        "param last": lambda: (m, v, moved),
        "moments exchanged": lambda: (moved, v, m),
    }
    return chosen(on, (moved, m, v), returned)


def _moved(
    param: Tensor, update: Tensor, lr: float, weight_decay: float, on: frozenset[str]
) -> Tensor:
    """The weight after decay and step."""
    fractions = {
        "coupled": lambda: 0.0,
        "no decay": lambda: 0.0,
        "decay behind": lambda: 0.0,
        "decay grows": lambda: -lr * weight_decay,
        "fixed decay": lambda: lr * 0.01,
        "lr squared": lambda: lr**2 * weight_decay,
        "decay without lr": lambda: weight_decay,
        "wd unused": lambda: lr,
    }
    decayed = param * (1 - chosen(on, lr * weight_decay, fractions))
    others = {
        "lr unused": lambda: decayed - update,
        "decay of the step": lambda: param - lr * update * (1 - weight_decay),
        "decay is constant": lambda: param - lr * (update + weight_decay),
        "returns the step": lambda: lr * update,
        "ascends": lambda: decayed + lr * update,
    }
    moved = chosen(on, decayed - lr * update, others)
    return moved * (1 - lr * weight_decay) if "decay behind" in on else moved


def _first(m: Tensor, grad: Tensor, beta1: float, on: frozenset[str]) -> Tensor:
    """The running mean of the gradient."""
    others = {
        "m summed": lambda: beta1 * m + grad,
        "old m whole": lambda: m + (1 - beta1) * grad,
        "m weights exchanged": lambda: (1 - beta1) * m + beta1 * grad,
        "weights exchanged": lambda: (1 - beta1) * m + beta1 * grad,
        "no momentum": lambda: grad,
    }
    return chosen(on, beta1 * m + (1 - beta1) * grad, others)


def _second(v: Tensor, grad: Tensor, beta2: float, on: frozenset[str]) -> Tensor:
    """The running mean of its square."""
    square = chosen(on, grad.square(), {"no square": grad.abs, "v of grad": lambda: grad})
    right = beta2 * v + (1 - beta2) * square
    others = {
        "square of all": lambda: beta2 * v + ((1 - beta2) * grad).square(),
        "largest": lambda: torch.maximum(v, right),
        "all summed": lambda: v + square,
        "v summed": lambda: beta2 * v + square,
        "weights exchanged": lambda: (1 - beta2) * v + beta2 * square,
        "one v": lambda: beta2 * v + (1 - beta2) * square.mean(),
    }
    return chosen(on, right, others)


def _corrected(
    m: Tensor, v: Tensor, step: int, beta1: float, beta2: float, on: frozenset[str]
) -> tuple[Tensor, Tensor]:
    """Both means without their bias towards the zeros that they started from."""
    step = step + chosen(on, 0, {"step from 0": lambda: -1, "one step late": lambda: 1})
    others = {
        "correction by product": lambda: (1 - beta1 * step, 1 - beta2 * step),
        "power of the rest": lambda: ((1 - beta1) ** step, (1 - beta2) ** step),
        "correction of the first step": lambda: (1 - beta1, 1 - beta2),
        "corrections exchanged": lambda: (1 - beta2**step, 1 - beta1**step),
        "correction after the root": lambda: (1 - beta1**step, (1 - beta2**step) ** 2),
        "no correction": lambda: (1.0, 1.0),
        "m uncorrected": lambda: (1.0, 1 - beta2**step),
        "v uncorrected": lambda: (1 - beta1**step, 1.0),
    }
    by_m, by_v = chosen(on, (1 - beta1**step, 1 - beta2**step), others)
    return (m * by_m, v * by_v) if "corrections multiply" in on else (m / by_m, v / by_v)


def _size(v: Tensor, eps: float, on: frozenset[str]) -> Tensor:
    """What the mean gradient is divided by."""
    eps = chosen(on, eps, {"fixed eps": lambda: 1e-8, "no eps": lambda: 0.0})
    others = {
        "eps inside": lambda: (v + eps).sqrt(),
        "eps as a limit": lambda: v.sqrt().clamp(min=eps),
        "v unused": lambda: torch.ones_like(v),
        "squared again": lambda: v.square() + eps,
        "no root": lambda: v + eps,
    }
    return chosen(on, v.sqrt() + eps, others)


PLAIN = (0.1, 0.9, 0.999, 1e-8)  # lr, beta1, beta2, eps
LATE = 100_000  # a step at which nothing of the start is left


def _hand(
    param: float, grad: float, m: float, v: float, step: int, *rest: float
) -> Callable[[Generator], tuple]:
    """Arguments that fit into a sentence."""
    return lambda g: (*(torch.tensor([float(x)]) for x in (param, grad, m, v)), step, *rest)


def _running(
    g: Generator, *shape: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """param, grad, m and v of a training that runs."""
    param, grad, m = (torch.randn(shape, generator=g, dtype=dtype) for _ in range(3))
    return param, grad, m, 0.1 + torch.rand(shape, generator=g, dtype=dtype)


ADAMW_STEP = Exercise(
    name="adamw_step",
    lesson="11",
    order=1,
    reference=adamw_step,
    probes=(
        Probe("the first step has the size of lr", _hand(2, 0.5, 0, 0, 1, *PLAIN, 0.0)),
        Probe(
            "the first step has the size of lr, however large the gradient is",
            _hand(1, -20, 0, 0, 1, 0.01, 0.8, 0.99, 1e-8, 0.0),
        ),
        Probe("m and v are running means", _hand(1, -0.2, 0.095, 0.0005, 3, *PLAIN, 0.0)),
        Probe(
            "each of them is corrected by its own beta",
            _hand(2, 3, 1, 0.5, 4, 0.1, 0.6, 0.9, 1e-8, 0.0),
        ),
        Probe(
            "the weight shrinks by lr times weight_decay of itself",
            _hand(1, 0.5, 0, 0, 1, *PLAIN, 0.1),
        ),
        Probe(
            "the decay has no part in m and v", _hand(-2, 0.5, 0.3, 2, 2, 0.3, 0.7, 0.9, 1e-8, 0.4)
        ),
        Probe(
            "without a gradient, a weight only decays",
            _hand(2, 0, 0, 0, 1, 0.1, 0.9, 0.99, 1e-8, 0.5),
        ),
        Probe(
            "every weight has its own m and v",
            lambda g: (*_running(g, 2, 3), 5, 0.2, 0.8, 0.9, 1e-8, 0.3),
        ),
        Probe(
            "every weight has its own m and v",
            lambda g: (*_running(g, 3, 2), 2, 0.02, 0.5, 0.95, 1e-8, 0.0),
        ),
        Probe(
            "after many steps, the correction is a division by 1",
            _hand(1, 2, 1, 3, LATE, 0.1, 0.8, 0.9, 1e-8, 0.1),
        ),
        Probe(
            "eps is added to the root", _hand(1, 1e-6, 1e-6, 1e-12, LATE, 0.1, 0.5, 0.9, 1e-6, 0.0)
        ),
        Probe("a large eps makes steps small", _hand(1, 2, 2, 4, LATE, 0.1, 0.5, 0.9, 3.0, 0.0)),
        Probe(
            "the tensors may have any shape",
            lambda g: (*_running(g, 2, 2, 2), 7, 0.1, 0.9, 0.95, 1e-8, 0.1),
        ),
        Probe("fp64 stays fp64", lambda g: (*_running(g, 4, dtype=torch.float64), 3, *PLAIN, 0.1)),
    ),
    **texts("adamw_step"),
)

EXERCISES = (ADAMW_STEP,)
