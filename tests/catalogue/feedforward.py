"""Lesson 08: right variants of its exercises, and the library's own."""

import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F

from tinylm_lib import feedforward, layers


def silu_by_sigmoid(x):
    return torch.sigmoid(x) * x


def silu_by_tanh(x):
    return x * (torch.tanh(x / 2) + 1) * 0.5


def silu_by_softmax(x):
    return x * torch.stack([x, torch.zeros_like(x)]).softmax(0)[0]


def silu_by_logsigmoid(x):
    return x * F.logsigmoid(x).exp()


def silu_of_a_safe_exponential(x):
    small = torch.exp(-x.abs())
    return x * torch.where(x >= 0, torch.ones_like(x), small) / (1 + small)


def silu_by_softplus_in_double(x):
    return (x.double() * torch.exp(-F.softplus(-x.double()))).to(x.dtype)


def silu_clamped(x):
    return x / (1 + torch.exp(-x.clamp(min=-80.0)))


def gelu_by_erf(x):
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_by_erfc(x):
    return x * torch.erfc(-x * 2**-0.5) / 2


def gelu_by_distribution(x):
    return x * torch.distributions.Normal(0.0, 1.0).cdf(x)


def gelu_by_ndtr(x):
    return torch.mul(x, torch.special.ndtr(x))


def gelu_in_double(x):
    return F.gelu(x.to(torch.float64), approximate="none").to(x.dtype)


def swiglu_of_torch(x, w_gate, w_up, w_down):
    return F.linear(F.silu(F.linear(x, w_gate)) * F.linear(x, w_up), w_down)


def swiglu_by_sigmoid(x, w_gate, w_up, w_down):
    gate = x @ w_gate.T
    return ((x @ w_up.T) * gate * gate.sigmoid()) @ w_down.T


def swiglu_fused(x, w_gate, w_up, w_down):
    gate, up = (x @ torch.cat([w_gate, w_up]).mT).chunk(2, dim=-1)
    return torch.einsum("...f,cf->...c", F.silu(gate).mul(up), w_down)


def swiglu_by_einsum(x, w_gate, w_up, w_down):
    gate = torch.einsum("...c,fc->...f", x, w_gate)
    up = torch.einsum("...c,fc->...f", x, w_up)
    return torch.einsum("...f,cf->...c", F.silu(gate) * up, w_down)


def swiglu_in_double(x, w_gate, w_up, w_down):
    return swiglu_of_torch(x.double(), w_gate.double(), w_up.double(), w_down.double()).to(x.dtype)


def swiglu_by_features(x, w_gate, w_up, w_down):
    out = torch.zeros_like(x)
    for gate, up, down in zip(w_gate, w_up, w_down.T, strict=True):
        out = out + (F.silu((x * gate).sum(-1)) * (x * up).sum(-1))[..., None] * down
    return out


def swiglu_of_library(x, w_gate, w_up, w_down):
    config = SimpleNamespace(d_model=x.shape[-1], d_ff=len(w_gate), ffn_bias=False, ffn_dropout=0.0)
    weights = {"gate_proj.weight": w_gate, "up_proj.weight": w_up, "down_proj.weight": w_down}
    return torch.func.functional_call(feedforward.GatedMLP(config, layers.silu), weights, (x,))


RIGHT = {
    "silu": [
        F.silu, silu_by_sigmoid, silu_by_tanh, silu_by_softmax, silu_by_logsigmoid, silu_of_a_safe_exponential,
        silu_by_softplus_in_double, silu_clamped,
    ],
    "gelu": [F.gelu, gelu_by_erf, gelu_by_erfc, gelu_by_distribution, gelu_by_ndtr, gelu_in_double],
    "swiglu": [
        swiglu_of_torch, swiglu_by_sigmoid, swiglu_fused, swiglu_by_einsum, swiglu_in_double, swiglu_by_features,
    ],
}  # fmt: skip
LIBRARY = {"silu": layers.silu, "gelu": layers.gelu, "swiglu": swiglu_of_library}
