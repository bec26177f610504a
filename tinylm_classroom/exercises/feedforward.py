"""Lesson 08: smooth gates, and the feed-forward that is made of them."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts

OTHER_SILUS = {
    "sigmoid alone": torch.sigmoid,
    "overflows below": lambda x: x / (1 + torch.exp(-x)),
    "overflows above": lambda x: x * torch.exp(x) / (1 + torch.exp(x)),
    "one branch overflows": lambda x: torch.where(
        x < 0, x * x.exp() / (1 + x.exp()), x / (1 + (-x).exp())
    ),
    "tanh": lambda x: x * torch.tanh(x),
    "sigmoid of -x": lambda x: x * torch.sigmoid(-x),
    "added": lambda x: x + torch.sigmoid(x),
    "logarithm": F.logsigmoid,
    "twice": lambda x: x * torch.sigmoid(torch.sigmoid(x)),
    "squared": lambda x: x * torch.sigmoid(x).square(),
    "steeper": lambda x: x * torch.sigmoid(1.702 * x),
    "half as steep": lambda x: x * torch.sigmoid(x / 2),
    "square in the gate": lambda x: x * torch.sigmoid(x * x),
    "beside the gate": lambda x: x + x * torch.sigmoid(x),
    "divided": lambda x: x / torch.sigmoid(x),
    "both signs": lambda x: -x * torch.sigmoid(-x),
    "absolute": lambda x: x.abs() * torch.sigmoid(x),
    "applied twice": lambda x: F.silu(F.silu(x)),
    "bounded": lambda x: F.silu(x.clamp(-20, 20)),
    "tanh alone": torch.tanh,
    "leaky": F.leaky_relu,
    "selu": F.selu,
    "gelu": F.gelu,
    "relu": torch.relu,
    "only above 0": lambda x: torch.relu(x) * torch.sigmoid(x),
    "straight above 0": lambda x: torch.where(x > 0, x, x * torch.sigmoid(x)),
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "hard": F.hardswish,
    "softmax": lambda x: x * x.softmax(-1),
    "slope": lambda x: torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x))),
    "gate cut": lambda x: x * torch.sigmoid(x).detach(),
    "only through the gate": lambda x: x.detach() * torch.sigmoid(x),
}


def silu(x: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """x times its own sigmoid, elementwise, and the mistakes that are `on`."""
    if "in place" in on:
        return x.mul_(torch.sigmoid(x))
    out = next(
        (other for name, other in OTHER_SILUS.items() if name in on), lambda x: x * torch.sigmoid(x)
    )(x)
    return out.float() if "fp32" in on else out


GATES = {
    "no activation": lambda h: h,
    "sigmoid": torch.sigmoid,
    "gelu": F.gelu,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu with tanh": lambda h: F.gelu(h, approximate="tanh"),
    "quick gelu": lambda h: h * torch.sigmoid(1.702 * h),
    "one plus": lambda h: 1 + F.silu(h),
    "softmax": lambda h: h.softmax(-1),
    "silu twice": lambda h: F.silu(F.silu(h)),
    "overflows": lambda h: h / (1 + torch.exp(-h)),
    "gate cut": lambda h: F.silu(h).detach(),
}


def swiglu(
    x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """x (..., C) through w_gate and w_up (F, C), gated, and back through w_down (C, F); the
    mistakes that are `on`.
    """
    if "fp32" in on:
        x = x.float()
        w_gate = w_gate.float()
        w_up = w_up.float()
        w_down = w_down.float()
    w_gate, w_up = chosen(on, (w_gate, w_up), {
        "swapped": lambda: (w_up, w_gate),
        "gate for both": lambda: (w_gate, w_gate),
        "up for both": lambda: (w_up, w_up),
    })  # fmt: skip
    if "not transposed" in on:
        w_gate = w_gate.mT
        w_up = w_up.mT
        w_down = w_down.mT
    if "down not transposed" in on:
        w_down = w_down.mT
    if "flattened" in on:
        x = x.reshape(-1, x.shape[-1])
    gate = (F.silu(x) if "silu of x" in on else x) @ w_gate.mT
    up = x @ w_up.mT
    opened = next((f(gate) for name, f in GATES.items() if name in on), F.silu(gate))
    if "activated twice" in on:
        up = F.silu(up)
    h = chosen(on, opened * up, {
        "added": lambda: opened + up,
        "subtracted": lambda: opened - up,
        "silu of the product": lambda: F.silu(gate * up),
        "no up": lambda: opened,
        "no gate": lambda: F.silu(up),
    })  # fmt: skip
    h = slipped(on, h, {"scaled": lambda h: h / math.sqrt(h.shape[-1])})
    if "not back" in on:
        return h
    return slipped(
        on, h @ w_down.mT, {"activated at the end": F.silu, "x added": lambda out: out + x}
    )


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _ramp(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(-6, 6, 49, dtype=dtype)


def _weights(g: Generator, c: int, f: int) -> tuple[Tensor, Tensor, Tensor]:
    return _x(g, f, c), _x(g, f, c), _x(g, c, f)


def _ffn(g: Generator, *shape: int, f: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _x(g, *shape), *_weights(g, shape[-1], f)


def _closed(g: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every gate is far below 0."""
    w_gate, w_up, w_down = _weights(g, 3, 5)
    return 0.5 + torch.rand(2, 3, generator=g), -1000 * (0.5 + w_gate.abs()), w_up, w_down


FAR = (-1e6, -5000.0, -200.0, 200.0, 5000.0, 1e30)
SILU = Exercise(
    name="silu",
    lesson="08",
    reference=silu,
    probes=(
        Probe("silu(0) is 0", lambda g: (torch.tensor([0.0]),)),
        Probe("silu(1) is 0.7311, and silu(-1) is -0.2689", lambda g: (torch.tensor([1.0, -1.0]),)),
        Probe(
            "silu(-2) is -0.2384, and silu(2) is 1.7616",
            lambda g: (torch.tensor([-2.0, -1.2785, 0.5, 2.0]),),
        ),
        Probe("each number by itself, in any shape", lambda g: (2 * _x(g, 3, 5),)),
        Probe(
            "each number by itself, in any shape", lambda g: (3 * _x(g, 4, 3, 2).transpose(0, 2),)
        ),
        Probe("each number by itself, in any shape", lambda g: (torch.tensor(-0.7),)),
        Probe("from -6 to 6", lambda g: (_ramp(),)),
        Probe("far from 0 nothing overflows", lambda g: (torch.tensor(FAR),)),
        Probe(
            "gradients flow: the slope at 0 is 1/2",
            lambda g: (torch.tensor([-2.0, 0.0, 1.0]),),
            gradients=True,
        ),
        Probe(
            "gradients flow through x and through its gate",
            lambda g: (2 * _x(g, 3, 5),),
            gradients=True,
        ),
        Probe(
            "far from 0 the gradients are finite",
            lambda g: (torch.tensor([-100.0, 1.0, -200.0, 200.0]),),
            gradients=True,
        ),
        Probe(
            "far from 0 the gradients are finite", lambda g: (torch.tensor(FAR),), gradients=True
        ),
        Probe("fp64 in, fp64 out", lambda g: (_ramp(torch.float64),)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 5).bfloat16(),)),
    ),
    **texts("silu"),
)
SWIGLU = Exercise(
    name="swiglu",
    lesson="08",
    reference=swiglu,
    probes=(
        Probe(
            "silu of the gate, times up, times down",
            lambda g: tuple(torch.tensor(values) for values in ([2.0], [[0.5]], [[3.0]], [[10.0]])),
        ),
        Probe("one vector, two features on either side", lambda g: _ffn(g, 2, f=2)),
        Probe(
            "the weights are (out, in): up to F features, and back to C", lambda g: _ffn(g, 3, f=5)
        ),
        Probe("each vector by itself", lambda g: _ffn(g, 4, 3, f=5)),
        Probe("any leading dimensions", lambda g: _ffn(g, 2, 4, 3, f=7)),
        Probe("any leading dimensions", lambda g: _ffn(g, 2, 3, 4, 6, f=5)),
        Probe("inputs of 0 give outputs of 0", lambda g: (torch.zeros(2, 3), *_weights(g, 3, 5))),
        Probe("a dimension of size 1 stays", lambda g: _ffn(g, 1, 4, 3, f=1)),
        Probe(
            "any strides",
            lambda g: (
                _x(g, 3, 4, 2).transpose(0, 2),
                _x(g, 3, 5).mT,
                _x(g, 3, 5).mT,
                _x(g, 5, 3).mT,
            ),
        ),
        Probe(
            "gradients reach x and all three weights", lambda g: _ffn(g, 4, 3, f=5), gradients=True
        ),
        Probe("a gate that is closed has finite gradients", _closed, gradients=True),
        Probe("fp64 in, fp64 out", lambda g: tuple(t.double() for t in _ffn(g, 4, 3, f=5))),
        Probe(
            "bf16 in, bf16 out",
            lambda g: tuple(t.bfloat16() for t in _ffn(g, 4, 3, f=5)),
            tolerance=6e-2,
        ),
    ),
    **texts("swiglu"),
)

EXERCISES = (SILU, SWIGLU)
