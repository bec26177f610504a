"""Lesson 08: right variants of its exercises, mistakes, and the library's own."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import feedforward, layers


def silu_of_a_safe_exponential(x):
    small = torch.exp(-x.abs())
    return x * torch.where(x >= 0, torch.ones_like(x), small) / (1 + small)


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


def swiglu_by_features(x, w_gate, w_up, w_down):
    out = torch.zeros_like(x)
    for gate, up, down in zip(w_gate, w_up, w_down.T, strict=True):
        out = out + (F.silu((x * gate).sum(-1)) * (x * up).sum(-1))[..., None] * down
    return out


def swiglu_of_library(x, w_gate, w_up, w_down):
    config = SimpleNamespace(d_model=x.shape[-1], d_ff=len(w_gate), ffn_bias=False, ffn_dropout=0.0)
    weights = {"gate_proj.weight": w_gate, "up_proj.weight": w_up, "down_proj.weight": w_down}
    return torch.func.functional_call(feedforward.GatedMLP(config, layers.silu), weights, (x,))


def silu_derivative(x):
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))


RIGHT = {
    "silu": named(
        F.silu, silu_of_a_safe_exponential,
        silu_by_sigmoid=lambda x: torch.sigmoid(x) * x,
        silu_by_tanh=lambda x: x * (torch.tanh(x / 2) + 1) * 0.5,
        silu_by_softmax=lambda x: x * torch.stack([x, torch.zeros_like(x)]).softmax(0)[0],
        silu_by_logsigmoid=lambda x: x * F.logsigmoid(x).exp(),
        silu_by_softplus_in_double=lambda x: (x.double() * torch.exp(-F.softplus(-x.double()))).to(x.dtype),
        silu_clamped=lambda x: x / (1 + torch.exp(-x.clamp(min=-80.0))),
    ),
    "swiglu": named(
        swiglu_of_torch, swiglu_by_sigmoid, swiglu_fused, swiglu_by_einsum, swiglu_by_features,
        swiglu_in_double=lambda x, w_gate, w_up, w_down:
            swiglu_of_torch(x.double(), w_gate.double(), w_up.double(), w_down.double()).to(x.dtype),
    ),
}  # fmt: skip
WRONG = {
    "silu": named(
        silu_derivative,
        tanh=lambda x: x * torch.tanh(x),
        own_sigmoid=lambda x: x * (1 / (1 + torch.exp(-x))),
        beta=lambda x: x * torch.sigmoid(1.702 * x),
        relu_gate=lambda x: torch.relu(x) * torch.sigmoid(x),
        softplus=lambda x: F.softplus(x),
        minus=lambda x: x * torch.sigmoid(-x),
    ),
    "swiglu": named(
        other_branch=lambda x, w_gate, w_up, w_down: ((x @ w_gate.T) * F.silu(x @ w_up.T)) @ w_down.T,
        both=lambda x, w_gate, w_up, w_down: (F.silu(x @ w_gate.T) * F.silu(x @ w_up.T)) @ w_down.T,
        after_product=lambda x, w_gate, w_up, w_down: F.silu((x @ w_gate.T) * (x @ w_up.T)) @ w_down.T,
        gelu=lambda x, w_gate, w_up, w_down: (F.gelu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T,
        relu=lambda x, w_gate, w_up, w_down: (F.relu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T,
        no_down=lambda x, w_gate, w_up, w_down: F.silu(x @ w_gate.T) * (x @ w_up.T),
        last_too=lambda x, w_gate, w_up, w_down: F.silu((F.silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T),
        residual=lambda x, w_gate, w_up, w_down: x + (F.silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T,
        ungated=lambda x, w_gate, w_up, w_down: F.silu(x @ w_up.T) @ w_down.T,
    ),
}  # fmt: skip
LIBRARY = {"silu": layers.silu, "swiglu": swiglu_of_library}
