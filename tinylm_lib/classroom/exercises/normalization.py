"""Lesson 04: numbers of one size, whatever came in."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


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
    **texts("rms_norm"),
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
    **texts("layer_norm"),
)

EXERCISES = (RMS_NORM, LAYER_NORM)
