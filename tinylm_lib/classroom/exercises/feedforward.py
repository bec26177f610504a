"""Lesson 08: smooth gates, and the feed-forward that is made of them."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe

OTHER_SILUS = {
    "sigmoid alone": torch.sigmoid,
    "overflows below": lambda x: x / (1 + torch.exp(-x)),
    "overflows above": lambda x: x * torch.exp(x) / (1 + torch.exp(x)),
    "one branch overflows": lambda x: torch.where(x < 0, x * x.exp() / (1 + x.exp()), x / (1 + (-x).exp())),
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
    for name, other in OTHER_SILUS.items():
        if name in on:
            return other(x)
    if "in place" in on:
        return x.mul_(torch.sigmoid(x))
    out = x * torch.sigmoid(x)
    return out.float() if "fp32" in on else out


def _phi(x: Tensor) -> Tensor:
    """The probability that a draw from a standard normal distribution is below x, elementwise."""
    return (1 + torch.erf(x / math.sqrt(2))) / 2


OTHER_GELUS = {
    "share alone": _phi,
    "tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "relu": torch.relu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "leaky": F.leaky_relu,
    "tanh without the cube": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * x)),
    "tanh for erf": lambda x: 0.5 * x * (1 + torch.tanh(x / math.sqrt(2))),
    "of -x": lambda x: -x * _phi(-x),
    "square": lambda x: x.square() * _phi(x),
    "applied twice": lambda x: F.gelu(F.gelu(x)),
    "bounded": lambda x: F.gelu(x.clamp(-5, 5)),
    "only through the gate": lambda x: x.detach() * _phi(x),
    "product last": lambda x: 0.5 * x + torch.erf(x / math.sqrt(2)),
    "no root of 2": lambda x: x * (1 + torch.erf(x)) / 2,
    "times the root": lambda x: x * (1 + torch.erf(x * math.sqrt(2))) / 2,
    "divided by 2": lambda x: x * (1 + torch.erf(x / 2)) / 2,
    "root of 2 / pi": lambda x: x * (1 + torch.erf(x * math.sqrt(2 / math.pi))) / 2,
    "not halved": lambda x: x * (1 + torch.erf(x / math.sqrt(2))),
    "no one": lambda x: x * torch.erf(x / math.sqrt(2)) / 2,
    "erf alone": lambda x: x * torch.erf(x / math.sqrt(2)),
    "share above": lambda x: x * (1 - _phi(x)),
    "density": lambda x: x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi),
    "added": lambda x: x + _phi(x),
    "straight above 0": lambda x: torch.where(x > 0, x, x * _phi(x)),
    "only above 0": lambda x: torch.relu(x) * _phi(x),
    "rounded constants": lambda x: 0.5 * x * (1 + torch.erf(x / 1.414)),
    "slope": lambda x: _phi(x) + x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi),
    "gate cut": lambda x: x * _phi(x).detach(),
}


def gelu(x: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """x times the probability that a standard normal draw is below x, elementwise, and the mistakes that are `on`."""
    for name, other in OTHER_GELUS.items():
        if name in on:
            return other(x)
    if "in place" in on:
        return x.mul_(_phi(x))
    out = x * _phi(x)
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


def swiglu(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """x (..., C) through w_gate and w_up (F, C), gated, and back through w_down (C, F); the mistakes that are `on`."""
    if "fp32" in on:
        x, w_gate, w_up, w_down = x.float(), w_gate.float(), w_up.float(), w_down.float()
    if "swapped" in on:
        w_gate, w_up = w_up, w_gate
    if "gate for both" in on:
        w_up = w_gate
    if "up for both" in on:
        w_gate = w_up
    if "not transposed" in on:
        w_gate, w_up, w_down = w_gate.mT, w_up.mT, w_down.mT
    if "down not transposed" in on:
        w_down = w_down.mT
    if "flattened" in on:
        x = x.reshape(-1, x.shape[-1])
    gate, up = (F.silu(x) if "silu of x" in on else x) @ w_gate.mT, x @ w_up.mT
    opened = next((f(gate) for name, f in GATES.items() if name in on), F.silu(gate))
    if "activated twice" in on:
        up = F.silu(up)
    h = opened + up if "added" in on else opened - up if "subtracted" in on else opened * up
    if "silu of the product" in on:
        h = F.silu(gate * up)
    if "no up" in on:
        h = opened
    if "no gate" in on:
        h = F.silu(up)
    if "scaled" in on:
        h = h / math.sqrt(h.shape[-1])
    if "not back" in on:
        return h
    out = h @ w_down.mT
    if "activated at the end" in on:
        out = F.silu(out)
    return out + x if "x added" in on else out


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
        Probe("silu(-2) is -0.2384, and silu(2) is 1.7616", lambda g: (torch.tensor([-2.0, -1.2785, 0.5, 2.0]),)),
        Probe("each number by itself, in any shape", lambda g: (2 * _x(g, 3, 5),)),
        Probe("each number by itself, in any shape", lambda g: (3 * _x(g, 4, 3, 2).transpose(0, 2),)),
        Probe("each number by itself, in any shape", lambda g: (torch.tensor(-0.7),)),
        Probe("from -6 to 6", lambda g: (_ramp(),)),
        Probe("far from 0 nothing overflows", lambda g: (torch.tensor(FAR),)),
        Probe("gradients flow: the slope at 0 is 1/2", lambda g: (torch.tensor([-2.0, 0.0, 1.0]),), gradients=True),
        Probe("gradients flow through x and through its gate", lambda g: (2 * _x(g, 3, 5),), gradients=True),
        Probe("far from 0 the gradients are finite", lambda g: (torch.tensor([-100.0, 1.0, -200.0, 200.0]),), gradients=True),
        Probe("far from 0 the gradients are finite", lambda g: (torch.tensor(FAR),), gradients=True),
        Probe("fp64 in, fp64 out", lambda g: (_ramp(torch.float64),)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 5).bfloat16(),)),
    ),
    faults={
        "sigmoid alone": Fault("the sigmoid is returned", "It is the gate, between 0 and 1. What passes through it?"),
        "overflows below": Fault("exp(-x) overflows for very negative x", "Below -88 it is inf in fp32. The result looks right, -0, but in the backward pass 0 times inf is NaN, which spreads through all weights. `torch.sigmoid` has no such problem."),
        "overflows above": Fault("exp(x) overflows for large x", "Above 88 it is inf in fp32, and inf / inf is NaN. `torch.sigmoid` has no such problem."),
        "one branch overflows": Fault("both branches of `torch.where` are computed, and the one that is not used overflows", "Its gradient is 0 times inf, which is NaN. Make the input of each branch harmless first, or use `torch.sigmoid`."),
        "tanh": Fault("the gate is a tanh", "It lies between -1 and 1; the sigmoid lies between 0 and 1."),
        "sigmoid of -x": Fault("the gate is that of -x", "Large numbers should pass and very negative ones should not. Check the sign in the gate."),
        "added": Fault("x and its gate are added", "The gate multiplies."),
        "logarithm": Fault("the logarithm of the sigmoid is returned", "The gate multiplies x; no logarithm is needed."),
        "twice": Fault("the sigmoid is taken twice", "The gate is the sigmoid of x itself."),
        "squared": Fault("the gate is applied twice", "x times sigmoid(x), once."),
        "steeper": Fault("x is multiplied by 1.702 inside the gate", "That is a quick approximation of GELU. Here the gate is the sigmoid of x."),
        "half as steep": Fault("x is halved inside the gate", "The gate is the sigmoid of x. (A tanh of x / 2 can be turned into it.)"),
        "square in the gate": Fault("x is squared inside the gate", "The gate is the sigmoid of x itself."),
        "beside the gate": Fault("x is added to the gated x", "Expected is only what the gate lets through."),
        "divided": Fault("x is divided by its gate", "The gate lets a part of x through, so it multiplies."),
        "both signs": Fault("both signs are reversed", "Large numbers should pass and very negative ones should not. This is SiLU of -x."),
        "absolute": Fault("the sign of x is lost", "silu(-1) is -0.2689: what multiplies the gate is x itself."),
        "applied twice": Fault("SiLU is applied twice", "Apply it once."),
        "bounded": Fault("x is bounded", "Large numbers pass almost unchanged, however large they are. You may bound a number inside the gate against overflow, but x itself must stay."),
        "tanh alone": Fault("this is tanh", "SiLU is x times a gate between 0 and 1."),
        "leaky": Fault("this is the leaky ReLU", "SiLU is smooth: x times a gate between 0 and 1."),
        "selu": Fault("this is SELU", "SiLU, also known as swish, is x times a gate between 0 and 1."),
        "gelu": Fault("this is GELU", "Its gate is the normal distribution; that of SiLU is the sigmoid."),
        "relu": Fault("this is ReLU", "SiLU is smooth and lets a little through below 0: silu(-1) is -0.2689."),
        "only above 0": Fault("negative numbers are cut off", "SiLU lets a little through below 0: silu(-1) is -0.2689."),
        "straight above 0": Fault("positive numbers are passed on unchanged", "The gate holds for them, too: silu(1) is 0.7311."),
        "softplus": Fault("this is softplus", "Its slope is the sigmoid; of SiLU the sigmoid is the gate."),
        "mish": Fault("this is Mish", "Its gate is tanh(softplus(x)); that of SiLU is the sigmoid."),
        "elu": Fault("this is ELU", "It is straight above 0 and an exponential below; SiLU is x times a sigmoid everywhere."),
        "hard": Fault("this is the hard version of SiLU", "It approximates the sigmoid by straight lines. Use the sigmoid itself."),
        "softmax": Fault("the gate is a softmax", "Then the numbers of a row influence one another. A sigmoid looks at one number."),
        "slope": Fault("the slope of SiLU is returned", "autograd finds the slope by itself."),
        "gate cut": Fault("no gradient flows through the gate", "The gate depends on x as well: no `detach`, `.data` or `no_grad` here."),
        "only through the gate": Fault("a gradient flows only through the gate", "x occurs twice in the formula, and both need a gradient: no `detach`, `.data` or `no_grad` here."),
        "in place": Fault("the caller's x is changed", "Make a new tensor: `*=` and names that end in `_` write into the old one."),
        "fp32": Fault("the result is always fp32", "The result should have the dtype of the input, also in bf16 and fp64."),
    },
    hints=(
        "A gate is a number between 0 and 1 that determines how much of x passes. Here it is computed from x itself.",
        "The sigmoid is 1 / (1 + exp(-x)). What is exp(-x) for x = -100 in fp32, and what does that do to the gradient?",
        "PyTorch has a sigmoid whose gradients stay finite.",
    ),
)  # fmt: skip
GELU = Exercise(
    name="gelu",
    lesson="08",
    reference=gelu,
    probes=(
        Probe("gelu(0) is 0", lambda g: (torch.tensor([0.0]),)),
        Probe("gelu(1) is 0.8413, and gelu(-1) is -0.1587", lambda g: (torch.tensor([1.0, -1.0]),)),
        Probe("gelu(2) is 1.9545", lambda g: (torch.tensor([-2.0, -0.7518, 0.5, 2.0]),)),
        Probe("each number by itself, in any shape", lambda g: (2 * _x(g, 3, 5),)),
        Probe("each number by itself, in any shape", lambda g: (2 * _x(g, 4, 3, 2).transpose(0, 2),)),
        Probe("each number by itself, in any shape", lambda g: (torch.tensor(-0.7),)),
        Probe("exact, not an approximation", lambda g: (_ramp(),), tolerance=1e-5),
        Probe("far from 0 nothing overflows", lambda g: (torch.tensor(FAR),)),
        Probe("gradients flow: the slope at 0 is 1/2", lambda g: (torch.tensor([-2.0, 0.0, 1.0]),), gradients=True),
        Probe("gradients flow through x and through its gate", lambda g: (2 * _x(g, 3, 5),), gradients=True),
        Probe("far from 0 the gradients are finite", lambda g: (torch.tensor(FAR),), gradients=True),
        Probe("fp64 in, fp64 out", lambda g: (_ramp(torch.float64),)),
        Probe("bf16 in, bf16 out", lambda g: (_x(g, 3, 5).bfloat16(),)),
    ),
    faults={
        "tanh": Fault("this is the approximation with tanh", "It differs by up to 0.0005 (GPT-2 uses it). The exact form is expected: which function gives the probability below x?"),
        "quick": Fault("this is the approximation x * sigmoid(1.702 x)", "It differs by up to 0.02. The exact form is expected: which function gives the probability below x?"),
        "share alone": Fault("the probability below x is returned", "It is the gate, between 0 and 1. What passes through it?"),
        "silu": Fault("this is SiLU", "Its gate is the sigmoid; that of GELU is the normal distribution."),
        "relu": Fault("this is ReLU", "GELU is smooth and lets a little through below 0: gelu(-1) is -0.1587."),
        "softplus": Fault("this is softplus", "GELU is x times the probability that a standard normal draw is below x."),
        "mish": Fault("this is Mish", "Its gate is tanh(softplus(x)); that of GELU is the normal distribution."),
        "elu": Fault("this is ELU", "GELU is x times the probability that a standard normal draw is below x, for every x."),
        "leaky": Fault("this is the leaky ReLU", "GELU is smooth: x times a gate between 0 and 1."),
        "tanh without the cube": Fault("this is the approximation with tanh, without its cubic term", "The exact form is expected: which function gives the probability below x?"),
        "tanh for erf": Fault("tanh is used instead of erf", "The two look alike, but only erf gives the probability below x."),
        "of -x": Fault("both signs are reversed", "Large numbers should pass and very negative ones should not. This is GELU of -x."),
        "square": Fault("x multiplies twice", "x times its gate, once."),
        "applied twice": Fault("GELU is applied twice", "Apply it once."),
        "bounded": Fault("x is bounded", "Large numbers pass unchanged, however large."),
        "only through the gate": Fault("a gradient flows only through the gate", "x occurs twice in the formula, and both need a gradient: no `detach`, `.data` or `no_grad` here."),
        "product last": Fault("the 1 is multiplied and erf is added", "Look at your parentheses: compute the probability first, 1 + erf and half of that, then multiply by x."),
        "no root of 2": Fault("x is not divided by the root of 2 inside erf", "erf belongs to a normal distribution of variance 1/2."),
        "times the root": Fault("x is multiplied by the root of 2 inside erf", "erf belongs to a normal distribution of variance 1/2: is it wider or narrower than ours?"),
        "divided by 2": Fault("x is divided by 2 inside erf", "Divide by the root of 2."),
        "root of 2 / pi": Fault("x is multiplied by the root of 2/pi inside erf", "That number belongs to the approximation with tanh."),
        "not halved": Fault("1 + erf is not halved", "erf is between -1 and 1, a probability between 0 and 1."),
        "no one": Fault("the 1 before erf is missing", "erf is between -1 and 1, a probability between 0 and 1."),
        "erf alone": Fault("the gate is erf itself", "erf is between -1 and 1, a probability between 0 and 1."),
        "share above": Fault("the gate is the probability above x", "Large numbers should pass and very negative ones should not. Check the sign in the gate."),
        "density": Fault("the gate is the density of the normal distribution", "The gate is the probability below x, which is the integral of the density."),
        "added": Fault("x and its gate are added", "The gate multiplies."),
        "straight above 0": Fault("positive numbers are passed on unchanged", "The gate holds for them, too: gelu(1) is 0.8413."),
        "only above 0": Fault("negative numbers are cut off", "GELU lets a little through below 0: gelu(-1) is -0.1587."),
        "rounded constants": Fault("a constant has been rounded", "1.414 is not the root of 2: let `math.sqrt` compute it."),
        "slope": Fault("the slope of GELU is returned", "autograd finds the slope by itself."),
        "gate cut": Fault("no gradient flows through the gate", "The gate depends on x as well: no `detach`, `.data` or `no_grad` here."),
        "in place": Fault("the caller's x is changed", "Make a new tensor: `*=` and names that end in `_` write into the old one."),
        "fp32": Fault("the result is always fp32", "The result should have the dtype of the input, also in bf16 and fp64."),
    },
    hints=(
        "The gate is the probability that a draw from a standard normal distribution is below x: 0.5 at 0, 0.8413 at 1.",
        "The error function gives it: `torch.erf` runs from -1 to 1 and belongs to variance 1/2. How must you stretch and shift it?",
        "A probability runs from 0 to 1: bring erf into this range, then multiply by x.",
    ),
)  # fmt: skip
SWIGLU = Exercise(
    name="swiglu",
    lesson="08",
    reference=swiglu,
    probes=(
        Probe("silu of the gate, times up, times down", lambda g: tuple(torch.tensor(values) for values in ([2.0], [[0.5]], [[3.0]], [[10.0]]))),
        Probe("one vector, two features on either side", lambda g: _ffn(g, 2, f=2)),
        Probe("the weights are (out, in): up to F features, and back to C", lambda g: _ffn(g, 3, f=5)),
        Probe("each vector by itself", lambda g: _ffn(g, 4, 3, f=5)),
        Probe("any leading dimensions", lambda g: _ffn(g, 2, 4, 3, f=7)),
        Probe("any leading dimensions", lambda g: _ffn(g, 2, 3, 4, 6, f=5)),
        Probe("inputs of 0 give outputs of 0", lambda g: (torch.zeros(2, 3), *_weights(g, 3, 5))),
        Probe("a dimension of size 1 stays", lambda g: _ffn(g, 1, 4, 3, f=1)),
        Probe("any strides", lambda g: (_x(g, 3, 4, 2).transpose(0, 2), _x(g, 3, 5).mT, _x(g, 3, 5).mT, _x(g, 5, 3).mT)),
        Probe("gradients reach x and all three weights", lambda g: _ffn(g, 4, 3, f=5), gradients=True),
        Probe("a gate that is closed has finite gradients", _closed, gradients=True),
        Probe("fp64 in, fp64 out", lambda g: tuple(t.double() for t in _ffn(g, 4, 3, f=5))),
        Probe("bf16 in, bf16 out", lambda g: tuple(t.bfloat16() for t in _ffn(g, 4, 3, f=5)), tolerance=6e-2),
    ),
    faults={
        "swapped": Fault("silu is applied to the up route instead of the gate", "Which of the two routes decides how much passes?"),
        "no activation": Fault("nothing is applied to the gate", "Then it is not a gate: silu belongs between its map and the product."),
        "sigmoid": Fault("the gate passes through a sigmoid", "That is the older GLU; SwiGLU takes silu."),
        "gelu": Fault("the gate passes through GELU", "That is GeGLU; SwiGLU takes silu."),
        "relu": Fault("the gate passes through ReLU", "That is ReGLU; SwiGLU takes silu."),
        "tanh": Fault("the gate passes through tanh", "SwiGLU takes silu."),
        "gelu with tanh": Fault("the gate passes through the approximate GELU", "That is GeGLU; SwiGLU takes silu."),
        "quick gelu": Fault("x is multiplied by 1.702 inside the gate", "That is a quick approximation of GELU; SwiGLU takes silu."),
        "one plus": Fault("1 is added to the gate", "Expected is only what the gate lets through."),
        "silu of x": Fault("silu is applied before the map to the gate", "First the map, then silu of its result."),
        "subtracted": Fault("up is subtracted from the gate", "The gate decides how much of the other passes: it multiplies."),
        "softmax": Fault("the gate passes through softmax", "Then features influence one another; silu looks at one number."),
        "silu twice": Fault("silu is applied to the gate twice", "Once is enough: does your map apply it as well?"),
        "activated twice": Fault("silu is applied to both routes", "Only the gate is activated."),
        "added": Fault("gate and up are added", "The gate decides how much of the other passes: it multiplies."),
        "silu of the product": Fault("silu is applied to the product of the two routes", "Only the gate is activated, before the product."),
        "gate for both": Fault("w_gate is used for both routes, so that the gate multiplies itself", "Two routes, two weights."),
        "up for both": Fault("w_up is used for both routes", "Two routes, two weights."),
        "no up": Fault("the up route is missing", "A gate alone is the classic feed-forward: what does it multiply?"),
        "no gate": Fault("the gate is missing and silu applied to the up route alone", "That is the classic feed-forward: the gate has a weight of its own."),
        "not back": Fault("the result is not mapped back", "w_down leads from F features back to C."),
        "activated at the end": Fault("silu is applied to the result", "The last map is linear: only the gate is activated."),
        "not transposed": Fault("the weights are used as if they were (in, out)", "They are (out, in): one row per output. Square weights hide the question."),
        "down not transposed": Fault("w_down is used as if it were (in, out)", "It is (C, F): one row per output, as in the other two."),
        "scaled": Fault("the features are divided by the root of their number", "Nothing is scaled here; that belongs to attention."),
        "x added": Fault("x itself is added", "The residual connection belongs to the block around this part."),
        "flattened": Fault("the leading dimensions are flattened into one, or one is added", "(..., C) becomes (..., C): all axes before the last one stay as they are."),
        "overflows": Fault("exp(-x) overflows in your silu", "For a gate below -88 it is inf in fp32. The result looks right, but in the backward pass 0 times inf is NaN. `torch.sigmoid` has no such problem."),
        "gate cut": Fault("no gradient flows through the gate", "w_gate could not learn: no `detach`, `.data` or `no_grad` here."),
        "fp32": Fault("the result is always fp32", "The result should have the dtype of the input, also in bf16 and fp64."),
    },
    hints=(
        "Two routes lead from x to F units: silu is applied to one, which decides how much of the other passes.",
        "Three linear maps, one silu, and one product, number by number. The weights are (out, in), as in lesson 02.",
        "Write the shape after each line: (..., C), twice (..., F), their product (..., F), and (..., C) again.",
    ),
)  # fmt: skip

EXERCISES = (SILU, SWIGLU, GELU)
