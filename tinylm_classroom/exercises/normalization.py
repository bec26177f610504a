"""Lesson 04: numbers of one size, whatever came in."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts


def rms_norm(x: Tensor, weight: Tensor, eps: float, on: frozenset[str] = frozenset()) -> Tensor:
    """x (..., C) divided by its root mean square, times weight (C).

    With the mistakes that are `on`.
    """
    wide = _wide(x, on)
    centred = wide - wide.mean(-1, keepdim=True)
    wide = centred if "centred" in on else wide
    squares = chosen(on, wide.square(), {
        "no square": lambda: wide.abs(),
        "variance": lambda: centred.square(),
        "standard deviation": lambda: centred.square() * x.shape[-1] / (x.shape[-1] - 1),
    })  # fmt: skip
    axis = -2 if "over positions" in on and x.ndim > 1 else -1
    mean = chosen(on, squares.mean(axis, keepdim=True), {
        "sum": lambda: squares.sum(axis, keepdim=True),
        "over everything": lambda: squares.mean(),
        "unbiased": lambda: squares.sum(axis, keepdim=True) / (squares.shape[axis] - 1),
    })  # fmt: skip
    root = _root(mean, eps, on)
    out = wide * root if "multiplied" in on else wide / root
    gained = wide * weight
    out = chosen(on, out * weight, {
        "gain plus one": lambda: out * (1 + weight),
        "gain added": lambda: out + weight,
        "gain divides": lambda: out / weight,
        "gain first": lambda: gained / gained.square().mean(-1, keepdim=True).add(eps).sqrt(),
        "no gain": lambda: out,
    })  # fmt: skip
    return _narrow(out, x, on)


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """x (..., C) with mean 0 and variance 1, times weight (C), plus bias (C), and the mistakes that
    are `on`.
    """
    wide = _wide(x, on)
    axis = -2 if "over positions" in on and x.ndim > 1 else -1
    mean = wide.mean() if "over everything" in on else wide.mean(axis, keepdim=True)
    mean = mean.detach() if "mean cut" in on else mean
    about = wide if "variance about 0" in on else wide - mean
    variance = chosen(on, about.square().mean(axis, keepdim=True), {
        "over everything": lambda: about.square().mean(),
        "two means": lambda: wide.square().mean(axis, keepdim=True) - mean.square(),
    })  # fmt: skip
    if "unbiased" in on:
        variance = variance * x.shape[axis] / (x.shape[axis] - 1)
    root = torch.ones_like(variance) if "no division" in on else _root(variance, eps, on)
    out = (wide if "not centred" in on else wide - mean) / root
    gain = chosen(
        on, out * weight, {"gain plus one": lambda: out * (1 + weight), "no gain": lambda: out}
    )
    out = chosen(on, gain + bias, {
        "bias first": lambda: (out + bias) * weight,
        "swapped": lambda: out * bias + weight,
        "no bias": lambda: gain,
        "bias subtracted": lambda: gain - bias,
    })  # fmt: skip
    return _narrow(out, x, on)


def _wide(x: Tensor, on: frozenset[str]) -> Tensor:
    """x in the dtype that is computed in."""
    return (
        x
        if {"no casts", "in its own dtype"} & on
        else x.to(torch.promote_types(x.dtype, torch.float32))
    )


def _narrow(out: Tensor, x: Tensor, on: frozenset[str]) -> Tensor:
    """The result in the dtype of x."""
    return out if {"no casts", "stays fp32"} & on else out.to(x.dtype)


def _root(mean: Tensor, eps: float, on: frozenset[str]) -> Tensor:
    """The size of a vector from the mean of its squares."""
    eps = chosen(
        on, eps, {"no eps": lambda: 0.0, "fixed eps": lambda: 1e-5, "eps squared": lambda: eps**2}
    )
    root = chosen(on, (mean + eps).sqrt(), {
        "eps outside": lambda: mean.sqrt() + eps,
        "no root": lambda: mean + eps,
    })  # fmt: skip
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
        Probe(
            "3 and 4 are divided by their root mean square, 3.54",
            lambda g: (torch.tensor([3.0, 4.0]), torch.ones(2), 0.0),
        ),
        Probe(
            "a vector of 5 numbers is divided by its size",
            lambda g: (_x(g, 5), torch.ones(5), 1e-6),
        ),
        Probe(
            "each vector is normalized by itself, along the last axis",
            lambda g: (_x(g, 3, 5), torch.ones(5), 1e-6),
        ),
        Probe(
            "each feature is multiplied by its gain", lambda g: (_x(g, 2, 3, 5), _gain(g, 5), 1e-6)
        ),
        Probe("eps is added inside the root", lambda g: (0.5 * _x(g, 3, 5), _gain(g, 5), 0.7)),
        Probe("a vector of zeros stays zero", lambda g: (torch.zeros(2, 4), torch.ones(4), 1e-5)),
        Probe(
            "x may have any leading dimensions", lambda g: (_x(g, 2, 3, 4, 6), _gain(g, 6), 1e-3)
        ),
        Probe(
            "transposed tensors are accepted",
            lambda g: (_x(g, 6, 5, 3).transpose(0, 2), _gain(g, 6), 1e-3),
        ),
        Probe(
            "gradients reach x and weight",
            lambda g: (_x(g, 3, 5), _gain(g, 5), 0.1),
            gradients=True,
        ),
        Probe(
            "an x in fp16 is computed in fp32",
            lambda g: (300 * _x(g, 3, 8).half(), _gain(g, 8), 1e-5),
        ),
        Probe(
            "the result has the dtype of x", lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8), 1e-5)
        ),
        Probe(
            "the result has the dtype of x",
            lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8).bfloat16(), 1e-5),
        ),
        Probe(
            "the result has the dtype of x",
            lambda g: (_x(g, 3, 8).double(), _gain(g, 8).double(), 1e-5),
        ),
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
            "each vector is normalized by itself, along the last axis",
            lambda g: (_x(g, 3, 5), torch.ones(5), torch.zeros(5), 1e-6),
        ),
        Probe(
            "each feature is multiplied by its gain",
            lambda g: (_x(g, 2, 3, 5), _gain(g, 5), torch.zeros(5), 1e-6),
        ),
        Probe(
            "each feature has its offset added",
            lambda g: (_x(g, 2, 3, 5), _gain(g, 5), _x(g, 5), 1e-6),
        ),
        Probe(
            "eps is added inside the root",
            lambda g: (0.5 * _x(g, 3, 5), _gain(g, 5), _x(g, 5), 0.7),
        ),
        Probe(
            "a vector of equal numbers becomes the offset",
            lambda g: (torch.full((2, 4), 3.0), _gain(g, 4), _x(g, 4), 1e-5),
        ),
        Probe(
            "x may have any leading dimensions",
            lambda g: (_x(g, 2, 3, 4, 6), _gain(g, 6), _x(g, 6), 1e-3),
        ),
        Probe(
            "transposed tensors are accepted",
            lambda g: (_x(g, 6, 5, 3).transpose(0, 2), _gain(g, 6), _x(g, 6), 1e-3),
        ),
        Probe(
            "gradients reach x, weight and bias",
            lambda g: (_x(g, 3, 5), _gain(g, 5), _x(g, 5), 0.1),
            gradients=True,
        ),
        Probe(
            "a mean of 1000 loses no digits",
            lambda g: (1000 + torch.randn(3, 8, generator=g), _gain(g, 8), _x(g, 8), 1e-5),
            tolerance=1e-3,
        ),
        Probe(
            "an x in fp16 is computed in fp32",
            lambda g: (300 * _x(g, 3, 8).half(), _gain(g, 8), _x(g, 8), 1e-5),
        ),
        Probe(
            "the result has the dtype of x",
            lambda g: (_x(g, 3, 8).bfloat16(), _gain(g, 8), _x(g, 8), 1e-5),
        ),
        Probe(
            "the result has the dtype of x",
            lambda g: (_x(g, 3, 8).double(), _gain(g, 8).double(), _x(g, 8).double(), 1e-5),
        ),
    ),
    **texts("layer_norm"),
)

EXERCISES = (RMS_NORM, LAYER_NORM)
