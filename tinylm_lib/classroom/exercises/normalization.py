"""Lesson 04: numbers of one size, whatever came in."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe

WHY_FP32 = "In fp16 the square of any number above 256 overflows, and bf16 keeps only two to three digits. Compute in fp32, then cast the result to the dtype of x."


def rms_norm(x: Tensor, weight: Tensor, eps: float, on: frozenset[str] = frozenset()) -> Tensor:
    """x (..., C) divided by its root mean square, times weight (C), and the mistakes that are `on`."""
    dtype = x.dtype
    wide = x if "in its own dtype" in on else x.to(torch.promote_types(dtype, torch.float32))
    if "centred" in on:
        wide = wide - wide.mean(-1, keepdim=True)
    squares = wide.abs() if "no square" in on else wide.square()
    axis = -2 if "over positions" in on and x.ndim > 1 else -1
    mean = squares.sum(axis, keepdim=True) if "sum" in on else squares.mean(axis, keepdim=True)
    if "over everything" in on:
        mean = squares.mean()
    if "unbiased" in on:
        mean = squares.sum(axis, keepdim=True) / (squares.shape[axis] - 1)
    root = _root(mean, eps, on)
    out = wide * root if "multiplied" in on else wide / root
    if "gain plus one" in on:
        out = out * (1 + weight)
    elif "gain added" in on:
        out = out + weight
    elif "gain divides" in on:
        out = out / weight
    elif "gain first" in on:
        out = wide * weight / (wide * weight).square().mean(-1, keepdim=True).add(eps).sqrt()
    elif "no gain" not in on:
        out = out * weight
    return out if "stays fp32" in on else out.to(dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, on: frozenset[str] = frozenset()) -> Tensor:
    """x (..., C) with mean 0 and variance 1, times weight (C), plus bias (C), and the mistakes that are `on`."""
    dtype = x.dtype
    wide = x if "in its own dtype" in on else x.to(torch.promote_types(dtype, torch.float32))
    axis = -2 if "over positions" in on and x.ndim > 1 else -1
    mean = wide.mean() if "over everything" in on else wide.mean(axis, keepdim=True)
    centred = wide if "not centred" in on else wide - mean
    if "variance about 0" in on:
        variance = wide.square().mean(axis, keepdim=True)
    else:
        variance = (wide - mean).square()
        variance = variance.mean() if "over everything" in on else variance.mean(axis, keepdim=True)
    n = x.shape[axis]
    if "unbiased" in on:
        variance = variance * n / (n - 1)
    root = torch.ones_like(variance) if "no division" in on else _root(variance, eps, on)
    out = centred / root
    if "bias first" in on:
        out = (out + bias) * weight
    elif "swapped" in on:
        out = out * bias + weight
    else:
        out = out * (1 + weight) if "gain plus one" in on else out if "no gain" in on else out * weight
        out = out if "no bias" in on else out - bias if "bias subtracted" in on else out + bias
    return out if "stays fp32" in on else out.to(dtype)


def _root(mean: Tensor, eps: float, on: frozenset[str]) -> Tensor:
    """The size of a vector from the mean of its squares."""
    if "no eps" in on:
        eps = 0.0
    if "fixed eps" in on:
        eps = 1e-5
    if "eps outside" in on:
        root = mean.sqrt() + eps
    elif "no root" in on:
        root = mean + eps
    else:
        root = (mean + (eps**2 if "eps squared" in on else eps)).sqrt()
    return root.detach() if "cut" in on else root


def _x(g: Generator, *shape: int, scale: float = 2.0) -> Tensor:
    """Numbers with a mean that is not 0, so that centring shows."""
    return scale * torch.randn(shape, generator=g) + 0.7


def _gain(g: Generator, n: int) -> Tensor:
    return 0.5 + torch.rand(n, generator=g)


COMMON = {
    "over positions": Fault(
        "the mean is taken over positions",
        "Then the result at a position depends on other positions, including later ones. Each vector of C numbers is normalized by itself, along the last axis.",
    ),
    "over everything": Fault(
        "one mean is taken over all numbers",
        "Then texts and positions influence one another. Each vector of C numbers is normalized by itself, along the last axis.",
    ),
    "unbiased": Fault(
        "the sum is divided by C - 1",
        "C - 1 belongs to an estimate from a sample. These are all the numbers, so divide by C. (`var` and `std` divide by C - 1 unless you pass `unbiased=False`.)",
    ),
    "eps outside": Fault(
        "eps is added outside the root",
        "It belongs inside, to the mean of the squares. With a tiny eps the difference is invisible, with a large one it is not.",
    ),
    "eps squared": Fault("eps is squared", "Add eps itself to the mean of the squares, inside the root."),
    "no eps": Fault(
        "eps is not used", "Then a vector of zeros becomes 0 / 0, which is NaN. Add eps to the mean of the squares."
    ),
    "fixed eps": Fault("a fixed eps is used", "Use the `eps` that is passed to the function."),
    "no root": Fault(
        "the root is missing", "The mean of the squares grows with the square of the numbers. What undoes the square?"
    ),
    "cut": Fault(
        "no gradient flows through the root",
        "The size depends on x, so a gradient must flow through it: no `detach`, `.data` or `no_grad` here.",
    ),
    "in its own dtype": Fault("everything is computed in the dtype of x", WHY_FP32),
    "stays fp32": Fault(
        "the result has another dtype than x",
        "The gain is fp32, and the product of a bf16 and an fp32 number is fp32. Where does the cast to the dtype of x belong?",
    ),
    "gain plus one": Fault(
        "1 + weight is used as the gain",
        "Some models store their gains like this, for example Gemma. Here the weight itself is the gain.",
    ),
    "no gain": Fault("the weight is not used", "Each feature has its own gain: multiply the result by the weight."),
}
RMS_NORM = Exercise(
    name="rms_norm",
    lesson="04",
    reference=rms_norm,
    probes=(
        Probe("3 and 4 have a root mean square of 3.54", lambda g: (torch.tensor([3.0, 4.0]), torch.ones(2), 0.0)),
        Probe("a vector of 5 is divided by its size", lambda g: (_x(g, 5), torch.ones(5), 1e-6)),
        Probe("each vector by itself, along the last axis", lambda g: (_x(g, 3, 5), torch.ones(5), 1e-6)),
        Probe("each feature has its gain", lambda g: (_x(g, 2, 3, 5), _gain(g, 5), 1e-6)),
        Probe("eps inside the root", lambda g: (0.5 * _x(g, 3, 5), _gain(g, 5), 0.7)),
        Probe("a vector of zeros stays zero", lambda g: (torch.zeros(2, 4), torch.ones(4), 1e-5)),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 3, 4, 6), _gain(g, 6), 1e-3)),
        Probe("any strides", lambda g: (_x(g, 6, 5, 3).transpose(0, 2), _gain(g, 6), 1e-3)),
        Probe("gradients reach x and weight", lambda g: (_x(g, 3, 5), _gain(g, 5), 0.1), gradients=True),
        Probe("fp16: computed in fp32", lambda g: (300 * _x(g, 3, 8).half(), _gain(g, 8), 1e-5)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8), 1e-5)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8).bfloat16(), 1e-5)),
        Probe("fp64 in, fp64 out", lambda g: (_x(g, 3, 8).double(), _gain(g, 8).double(), 1e-5)),
    ),
    faults={
        "sum": Fault(
            "the squares are summed, not averaged",
            "The root of the sum is the length of the vector (its L2 norm), so the result gets smaller as C grows. Take the mean of the squares.",
        ),
        "centred": Fault(
            "the mean is subtracted", "That is LayerNorm. RMSNorm keeps the mean and divides by the size alone."
        ),
        **COMMON,
        "no square": Fault("absolute values are averaged", "The root mean square needs squares."),
        "multiplied": Fault("x is multiplied by its size", "Large vectors must become smaller, so divide by the size."),
        "gain added": Fault("the weight is added", "It is a gain: it multiplies."),
        "gain divides": Fault("the weight divides", "It is a gain: it multiplies."),
        "gain first": Fault(
            "the gain is applied before the division",
            "Then the size that you divide by depends on the gain. Divide first, then multiply by the gain.",
        ),
    },
    hints=(
        "Read root mean square backwards: square, mean, root. Take the mean along the last axis, and keep this axis with size 1.",
        "Add eps to the mean, before you take the root.",
        "Cast to fp32 first, multiply by the gain there, and cast to the dtype of x last.",
    ),
)
LAYER_NORM = Exercise(
    name="layer_norm",
    lesson="04",
    reference=layer_norm,
    probes=(
        Probe(
            "1, 2 and 6 get mean 0 and variance 1",
            lambda g: (torch.tensor([1.0, 2.0, 6.0]), torch.ones(3), torch.zeros(3), 0.0),
        ),
        Probe(
            "each vector by itself, along the last axis", lambda g: (_x(g, 3, 5), torch.ones(5), torch.zeros(5), 1e-6)
        ),
        Probe("each feature has its gain", lambda g: (_x(g, 2, 3, 5), _gain(g, 5), torch.zeros(5), 1e-6)),
        Probe("and its offset", lambda g: (_x(g, 2, 3, 5), _gain(g, 5), _x(g, 5), 1e-6)),
        Probe("eps inside the root", lambda g: (0.5 * _x(g, 3, 5), _gain(g, 5), _x(g, 5), 0.7)),
        Probe("equal numbers become the offset", lambda g: (torch.full((2, 4), 3.0), _gain(g, 4), _x(g, 4), 1e-5)),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 3, 4, 6), _gain(g, 6), _x(g, 6), 1e-3)),
        Probe("any strides", lambda g: (_x(g, 6, 5, 3).transpose(0, 2), _gain(g, 6), _x(g, 6), 1e-3)),
        Probe(
            "gradients reach x, weight and bias", lambda g: (_x(g, 3, 5), _gain(g, 5), _x(g, 5), 0.1), gradients=True
        ),
        Probe("fp16: computed in fp32", lambda g: (300 * _x(g, 3, 8).half(), _gain(g, 8), _x(g, 8), 1e-5)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8), _x(g, 8), 1e-5)),
        Probe("fp64 in, fp64 out", lambda g: (_x(g, 3, 8).double(), _gain(g, 8).double(), _x(g, 8).double(), 1e-5)),
    ),
    faults={
        "not centred": Fault("the mean is not subtracted", "LayerNorm first subtracts the mean from every vector."),
        "variance about 0": Fault(
            "the squares are not taken about the mean",
            "The variance is the mean of the squares after the mean has been subtracted.",
        ),
        **COMMON,
        "no division": Fault("nothing is divided", "After centring, divide by the size, so that it becomes 1."),
        "no bias": Fault("the bias is not used", "Each feature has its own offset: add the bias at the end."),
        "bias first": Fault(
            "the bias is added before the gain", "Then the gain multiplies the offset, too. Multiply by the gain first."
        ),
        "bias subtracted": Fault("the bias is subtracted", "Add the bias at the end."),
        "swapped": Fault("weight and bias are exchanged", "The weight multiplies, the bias is added."),
    },
    hints=(
        "There are two steps, both along the last axis: subtract the mean, then divide by the root mean square of the result.",
        "Add eps to the variance, before you take the root. `var` divides by C - 1 unless you pass `unbiased=False`.",
        "Cast to fp32 first, apply gain and offset there, and cast to the dtype of x last.",
    ),
)

EXERCISES = (RMS_NORM, LAYER_NORM)
