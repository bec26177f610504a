"""The library's modules with a student's functions inside: the same parameters, called by the student's code.

Each adapter is a subclass that shares everything with the module it replaces and keeps the student's functions by the
names of their exercises in `.parts`. What an exercise does not ask for (a bias, dropout, grouped heads) stays outside.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...attention import Attention, attend, causal_mask
from ...feedforward import MLP, GatedMLP
from ...layers import Embedding, LayerNorm, Linear, RMSNorm, gelu, silu
from ...model import PreNormBlock, TransformerLM
from ...positions import Positions, Rotary, SinusoidalPosition, Unchanged

Functions = Mapping[str, Callable[..., Any]]


class YourLinear(Linear):
    """Calls `linear`; a bias is added behind it."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.parts["linear"](x, self.weight)
        return y if self.bias is None else y + self.bias


class YourEmbedding(Embedding):
    """Calls `embedding`."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.parts["embedding"](ids, self.weight)


class YourRMSNorm(RMSNorm):
    """Calls `rms_norm`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["rms_norm"](x, self.weight, self.eps)


class YourLayerNorm(LayerNorm):
    """Calls `layer_norm`."""

    def forward(self, x: Tensor) -> Tensor:
        return self.parts["layer_norm"](x, self.weight, self.bias, self.eps)


class YourSinusoidalPosition(SinusoidalPosition):
    """Takes its table from `sinusoidal`."""

    def tables(self) -> dict[str, Tensor]:
        return {"table": self.parts["sinusoidal"](self.max_seq_len, self.d_model).float()}


class YourRotary(Rotary):
    """Calls `rotate`, which turns neighbours: where this model pairs other coordinates, they are brought together."""

    def rows(self, positions: Tensor) -> None:
        """positions (T,). There is nothing to look up: `rotate` computes its own angles."""

    def forward(self, x: Tensor, positions: Tensor | Positions) -> Tensor:
        at = positions.at if isinstance(positions, Positions) else positions
        neighbours = x.unflatten(-1, self.unfolded).movedim(self.pair, -1).flatten(-2)  # (..., T, D)
        turned = self.parts["rotate"](neighbours, at, self.base)  # (..., T, D)
        return turned.unflatten(-1, (-1, 2)).movedim(-1, self.pair).flatten(-2)  # (..., T, D)


class YourAttention(Attention):
    """Calls `multi_head_attention`, or with a cache, positions, groups and the rest of the model, its pieces."""

    def split(self, x: Tensor) -> Tensor:
        split_heads = self.parts.get("split_heads")
        return split_heads(x, x.shape[-1] // self.d_head) if split_heads else super().split(x)

    def forward(self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None) -> Tensor:
        """x (B, T, C). Returns (B, T, C)."""
        whole = self.parts.get("multi_head_attention")
        if whole and extend is None:
            weights = (self.q_proj.weight, self.k_proj.weight, self.v_proj.weight, self.o_proj.weight)
            return whole(x, *weights, x.shape[-1] // self.d_head)
        return super().forward(x, positions, extend)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, H, T, D), k and v (B, G, S, D), the newest last. Returns (B, T, H*D)."""
        merge_heads = self.parts.get("merge_heads", lambda y: y.transpose(-3, -2).flatten(-2))
        return merge_heads(self._mixed(q, k, v))  # (B, T, H*D)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, H, T, D), k and v (B, G, S, D), the newest last. Returns (B, H, T, D)."""
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
        T, S = q.shape[-2], k.shape[-2]
        if "cached_attention" in self.parts and S > T:
            (old_k, new_k), (old_v, new_v) = (x.split((S - T, T), dim=-2) for x in (k, v))
            return self.parts["cached_attention"](q, new_k, new_v, old_k, old_v)[0]
        allowed = self.parts.get("causal_mask", causal_mask)(S)[S - T :].to(q.device)  # (T, S)
        attention = partial(attend, dropout=self.dropout if self.training else 0.0)
        if "softmax" in self.parts:
            attention = partial(explicit_attention, self.parts["softmax"])
        return self.parts.get("attention", attention)(q, k, v, allowed)


class YourGatedMLP(GatedMLP):
    """Calls `swiglu`, or an activation on its own."""

    def forward(self, x: Tensor) -> Tensor:
        if "swiglu" not in self.parts:
            return super().forward(x)
        weights = (self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)
        return self.dropout(self.parts["swiglu"](x, *weights))


class YourMLP(MLP):
    """Calls an activation: `silu` or `gelu`."""


class YourPreNormBlock(PreNormBlock):
    """Calls `pre_norm_block`."""

    def forward(self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None) -> Tensor:
        """x (B, T, C). Returns (B, T, C)."""
        return self.parts["pre_norm_block"](
            x,
            self.attn_norm,
            lambda z: self.dropout(self.attention(z, positions, extend)),
            self.ffn_norm,
            lambda z: self.dropout(self.ffn(z)),
        )


def explicit_attention(softmax: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Attention written out, so that it can call a student's softmax; the lowest score stands where none is allowed."""
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, torch.finfo(q.dtype).min)
    return softmax(scores, -1) @ v


def always(module: nn.Module) -> str:
    """No reason not to."""
    return ""


def unscaled(module: Rotary) -> str:
    """Why `rotate` cannot turn by these angles."""
    return "it knows no stretched frequencies" if module.scaling else ""


def undropped(module: Attention) -> str:
    """Why these attention weights are out of a function's reach."""
    return "this model drops attention weights in training" if module.dropout else ""


def plain_heads(module: Attention) -> str:
    """Why this attention is more than `multi_head_attention`."""
    weights = [p.weight.shape for p in (module.q_proj, module.k_proj, module.v_proj, module.o_proj)]
    reasons = {
        "it knows no positions": not isinstance(module.rotation, Unchanged),
        "it knows no norms of q and k": not isinstance(module.q_norm, nn.Identity),
        "it knows no biases": any(p.bias is not None for p in (module.q_proj, module.o_proj)),
        "it knows no grouped or narrower heads": len(set(weights)) > 1 or weights[0][0] != weights[0][1],
    }
    return next((reason for reason, holds in reasons.items() if holds), undropped(module))


def unbiased_swiglu(module: GatedMLP) -> str:
    """Why this feed-forward is another than `swiglu`."""
    return "" if module.activation is silu and module.up_proj.bias is None else "this model's feed-forward is another"


def activates(activation: Callable[[Tensor], Tensor]) -> Callable[[MLP | GatedMLP], str]:
    """Whether a feed-forward uses this activation."""
    return lambda module: "" if module.activation is activation else "this model's activation is another"


class Place(NamedTuple):
    """What replaces a kind of module, and for each part that it can call a function: why not, empty if it can."""

    adapter: type[nn.Module]
    parts: Mapping[str, Callable[[Any], str]]


PLACES: dict[type[nn.Module], Place] = {
    Linear: Place(YourLinear, {"linear": always}),
    Embedding: Place(YourEmbedding, {"embedding": always}),
    RMSNorm: Place(YourRMSNorm, {"rms_norm": always}),
    LayerNorm: Place(YourLayerNorm, {"layer_norm": always}),
    SinusoidalPosition: Place(YourSinusoidalPosition, {"sinusoidal": always}),
    Rotary: Place(YourRotary, {"rotate": unscaled}),
    Attention: Place(
        YourAttention,
        {
            "multi_head_attention": plain_heads,
            "cached_attention": undropped,
            "attention": undropped,
            "softmax": undropped,
            "causal_mask": always,
            "split_heads": always,
            "merge_heads": always,
        },
    ),
    GatedMLP: Place(YourGatedMLP, {"swiglu": unbiased_swiglu, "silu": activates(silu), "gelu": activates(gelu)}),
    MLP: Place(YourMLP, {"silu": activates(silu), "gelu": activates(gelu)}),
    PreNormBlock: Place(YourPreNormBlock, {"pre_norm_block": always}),
}
# A part that does the work of others brings its own.
INSTEAD_OF = {"attention": ("softmax",), "swiglu": ("silu",)}


def callable_parts(model: nn.Module) -> set[str]:
    """The parts that a model of the library could call."""
    known = [(module, PLACES[type(module)]) for module in model.modules() if type(module) in PLACES]
    return {name for module, place in known for name, reason in place.parts.items() if not reason(module)}


class Fitting:
    """Puts functions into a model. Afterwards `used` says how often each is, `unused` why one is nowhere."""

    def __init__(self, functions: Functions):
        self.functions = functions
        self.used: dict[str, int] = {}
        self.unused: dict[str, str] = {}
        self.done: dict[nn.Module, nn.Module] = {}

    def fit(self, module: nn.Module) -> nn.Module:
        """The module, or the adapter in its place; what is below it is fitted, too."""
        if module not in self.done:
            chosen = self._chosen(module)
            self.done[module] = fitted = _adapted(module, chosen) if chosen else module
            for name, child in module.named_children():
                if name not in _weights_only(module, chosen):
                    setattr(fitted, name, self.fit(child))
        return self.done[module]

    def _chosen(self, module: nn.Module) -> Functions:
        place, chosen = PLACES.get(type(module)), {}
        for name, reason in place.parts.items() if place else ():
            if name in self.functions:
                if why := reason(module):
                    self.unused.setdefault(name, why)
                else:
                    chosen[name] = self.functions[name]
        for name in [name for larger in INSTEAD_OF if larger in chosen for name in INSTEAD_OF[larger]]:
            if chosen.pop(name, None):
                self.unused[name] = "your larger part brings its own"
        for name in chosen:
            self.used[name] = self.used.get(name, 0) + 1
        return chosen


def _weights_only(module: nn.Module, chosen: Functions) -> tuple[str, ...]:
    """The children that are never called, because the module itself multiplies by their weights."""
    if isinstance(module, TransformerLM):
        return ("lm_head",)
    return ("gate_proj", "up_proj", "down_proj") if "swiglu" in chosen else ()


def _adapted(module: nn.Module, functions: Functions) -> nn.Module:
    kind = PLACES[type(module)].adapter
    adapter = kind.__new__(kind)
    adapter.__dict__.update(vars(module))  # the same parameters, buffers and submodules
    adapter.parts = dict(functions)
    for name in functions.keys() & {"silu", "gelu"}:
        adapter.activation = functions[name]
    if "sinusoidal" in functions:
        adapter.build(adapter.table.device)
    return adapter
