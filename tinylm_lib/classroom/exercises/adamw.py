"""Lesson 11: how weights move."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe

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
    faults={
        "coupled": Fault(
            "the decay is added to the gradient", "That is Adam with L2: the decay is then divided by the root, too."
        ),
        "no decay": Fault("weight_decay is not used", "Beside the step, a weight shrinks by a share of itself."),
        "decay without lr": Fault("the decay is not multiplied by lr", "It should be small when the steps are small."),
        "wd unused": Fault("the weight decays by lr alone", "Its share is lr times weight_decay."),
        "decay grows": Fault("the weight grows by its decay", "Look at the sign."),
        "decay behind": Fault("the weight decays behind the step", "The decay is a share of the weight that came in."),
        "decays twice": Fault(
            "the decay is added to the gradient, too",
            "It is applied once, to the weight; the gradient never hears of it.",
        ),
        "decay of the step": Fault("the step decays, not the weight", "The weight shrinks by a share of itself."),
        "decay is constant": Fault("every weight decays by the same amount", "It shrinks by a share of itself."),
        "fixed decay": Fault("a fixed decay is used", "The caller says which: weight_decay."),
        "lr squared": Fault("the decay is multiplied by lr twice", "Its share is lr times weight_decay."),
        "fixed lr": Fault("a fixed lr is used", "The caller says which."),
        "fixed betas": Fault("fixed betas are used", "The caller says which."),
        "ascends": Fault("the step goes up the gradient", "Down is where the loss falls: look at the sign."),
        "lr unused": Fault("lr is not used", "It sets the size of the step."),
        "returns the step": Fault("the step is returned", "The new parameter is asked for."),
        "no correction": Fault(
            "the moments are not corrected", "They start at 0 and are too small at first. By which share?"
        ),
        "m uncorrected": Fault(
            "the first moment is not corrected", "It starts at 0 as well, and is too small at first."
        ),
        "v uncorrected": Fault(
            "the second moment is not corrected", "It starts at 0 as well, and is too small at first."
        ),
        "corrections exchanged": Fault("the corrections are exchanged", "beta1 belongs to m, beta2 to v."),
        "corrections multiply": Fault(
            "the moments are multiplied by their correction", "They are too small at first: divide."
        ),
        "correction of the first step": Fault(
            "the correction is that of step 1", "What a moment still lacks falls with each step."
        ),
        "correction by product": Fault(
            "beta is multiplied by step", "What is left of the start is beta to the power of step."
        ),
        "step from 0": Fault(
            "steps are counted from 0", "At step 1 a moment has seen one gradient. Is 1 subtracted somewhere?"
        ),
        "one step late": Fault(
            "step is counted one too far", "At step 1 a moment has seen one gradient. Is 1 added somewhere?"
        ),
        "corrected moments kept": Fault("the corrected moments are returned", "The running means go on uncorrected."),
        "moments exchanged": Fault("m and v are returned in the wrong order", "First m, then v."),
        "power of the rest": Fault(
            "1 - beta is raised to the power of step",
            "What is left of the start is beta to the power of step; the rest is there.",
        ),
        "old moments kept": Fault("the old moments are returned", "Without the new ones nothing runs on."),
        "param last": Fault("the parameter is returned last", "It comes first, then m and v."),
        "old moments": Fault("the step uses the old moments", "The new gradient counts already."),
        "betas exchanged": Fault(
            "beta1 and beta2 are exchanged", "beta1 belongs to the gradient, beta2 to its square."
        ),
        "weights exchanged": Fault(
            "beta and 1 - beta are exchanged", "Most of a running mean is kept: beta is near 1."
        ),
        "m weights exchanged": Fault(
            "beta1 and 1 - beta1 are exchanged", "Most of a running mean is kept: beta is near 1."
        ),
        "m summed": Fault("the whole gradient is added to m", "A mean takes a share of 1 - beta1."),
        "old m whole": Fault("the old m is kept whole", "A mean keeps a share of beta1."),
        "all summed": Fault("v is the sum of all squares", "That is AdaGrad; here old squares fade by beta2."),
        "v summed": Fault("the whole square is added to v", "A mean takes a share of 1 - beta2."),
        "no momentum": Fault("m is the gradient alone", "It is a running mean."),
        "no square": Fault("absolute values are averaged in v", "Squares are."),
        "v of grad": Fault(
            "the gradient is not squared in v", "v is the running mean of squares; a root is taken of it later."
        ),
        "v of m": Fault("the first moment is squared in v", "It is the gradient whose squares are averaged."),
        "v of the surprise": Fault(
            "v averages how far the gradient is from m",
            "That is AdaBelief; here the squares of the gradient are averaged.",
        ),
        "square of all": Fault("1 - beta2 is squared with the gradient", "The square is taken first, then its share."),
        "one v": Fault("all numbers share one v", "Each has its own."),
        "largest": Fault("v never falls", "That is AMSGrad; here v is a plain running mean."),
        "nesterov": Fault("the momentum looks ahead", "That is NAdam; here the running mean is used as it is."),
        "v unused": Fault("the step is not divided by the root of v", "That makes every weight move at its own scale."),
        "multiplied": Fault(
            "m is multiplied by the root of v", "Where gradients are large, steps should not be: divide."
        ),
        "squared again": Fault("v is squared", "It holds squares already: take the root."),
        "sign alone": Fault("only the sign of m counts", "The step is m divided by the root of v."),
        "no root": Fault("the root is missing", "v has the size of a squared gradient."),
        "eps inside": Fault(
            "eps is added inside the root", "A tiny gradient then moves nothing: eps is added to the root."
        ),
        "eps as a limit": Fault("eps is a lower limit of the root", "It is added to it."),
        "no eps": Fault("eps is not used", "Where no gradient ever came, 0 / 0 is NaN."),
        "fixed eps": Fault("a fixed eps is used", "The caller says which."),
    },
    hints=(
        "Three lines: two running means, and a step. New = beta times old + (1 - beta) times what came.",
        "After t steps from zero a running mean lacks beta to the power of t: divide by what is there.",
        "The weight first shrinks by the fraction lr times weight_decay, then it moves; the gradient has no decay in it.",
    ),
)

EXERCISES = (ADAMW_STEP,)
