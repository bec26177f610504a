"""The library's modules with a student's functions inside: the same parameters, called by the
student's code.

Each adapter is a subclass that shares everything with the module it replaces and keeps the
student's functions by the names of their exercises in `.parts`. What an exercise does not ask for
(a bias, dropout, grouped heads) stays outside.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_lib.feedforward import MLP, GatedMLP
from tinylm_lib.layers import Embedding, LayerNorm, Linear, RMSNorm, silu
from tinylm_lib.model import PreNormBlock, TransformerLM
from tinylm_lib.positions import Positions, Rotary, SinusoidalPosition, Unchanged

Functions = Mapping[str, Callable[..., Any]]
UNPADDED = (
    "your parts do not handle padding; give prompts of one length, or use the library's own model"
)


def _calling(
    kind: type[nn.Module], name: str, call: Callable[..., Any], method: str = "forward"
) -> type[nn.Module]:
    """A subclass with a method that is `call`, which takes the module, the student's function and
    the inputs.
    """
    return type(
        f"Your{kind.__name__}",
        (kind,),
        {method: lambda self, *inputs: call(self, self.parts[name], *inputs)},
    )


class YourRotary(Rotary):
    """Calls `rotate`, which turns neighbours: where this model pairs other coordinates, they are
    brought together.
    """

    def rows(self, positions: Tensor) -> None:
        """positions (T,). There is nothing to look up: `rotate` computes its own angles.

        Raises ValueError for the positions (B, T) of padded texts, which no part of the lessons
        knows.
        """
        if positions.ndim == 2:
            raise ValueError(UNPADDED)

    def forward(self, x: Tensor, positions: Tensor | Positions) -> Tensor:
        at = positions.at if isinstance(positions, Positions) else positions
        pairs = x.unflatten(-1, self.unfolded).movedim(self.pair, -1)  # (..., T, D/2, 2)
        neighbours = pairs.flatten(-2)  # (..., T, D)
        turned = self.parts["rotate"](neighbours, at, self.base)  # (..., T, D)
        return turned.unflatten(-1, (-1, 2)).movedim(-1, self.pair).flatten(-2)  # (..., T, D)


class YourAttention(Attention):
    """Calls `multi_head_attention`, or with a cache, positions, groups and the rest of the model,
    its pieces.
    """

    def split(self, x: Tensor) -> Tensor:
        split_heads = self.parts.get("split_heads")
        return split_heads(x, x.shape[-1] // self.d_head) if split_heads else super().split(x)

    def forward(
        self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None
    ) -> Tensor:
        """x (B, T, C).

        Returns (B, T, C). Raises ValueError for padded texts, which no part of the lessons knows.
        """
        if isinstance(positions, Positions) and positions.mask is not None:
            raise ValueError(UNPADDED)
        whole = self.parts.get("multi_head_attention")
        if whole and extend is None:
            weights = (
                self.q_proj.weight,
                self.k_proj.weight,
                self.v_proj.weight,
                self.o_proj.weight,
            )
            return whole(x, *weights, x.shape[-1] // self.d_head)
        return super().forward(x, positions, extend)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: None = None) -> Tensor:
        """q (B, H, T, D), k and v (B, G, S, D), the newest last. Returns (B, T, H*D)."""
        merge_heads = self.parts.get("merge_heads", lambda y: y.transpose(-3, -2).flatten(-2))
        return merge_heads(self._mixed(q, k, v))  # (B, T, H*D)

    def _mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q (B, H, T, D), k and v (B, G, S, D), the newest last. Returns (B, H, T, D)."""
        n = q.shape[1] // k.shape[1]  # heads of a group
        k, v = (x.repeat_interleave(n, dim=1) for x in (k, v))  # (B, H, S, D)
        T = q.shape[-2]
        S = k.shape[-2]
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


def explicit_attention(
    softmax: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, allowed: Tensor
) -> Tensor:
    """Attention written out, so that it can call a student's softmax; forbidden scores become the
    lowest one.
    """
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, torch.finfo(q.dtype).min)
    return softmax(scores, -1) @ v


def _linear(module: Linear, function: Callable[..., Tensor], x: Tensor) -> Tensor:
    y = function(x, module.weight)
    return y if module.bias is None else y + module.bias


def _table(module: SinusoidalPosition, function: Callable[..., Tensor]) -> dict[str, Tensor]:
    return {"table": function(module.max_seq_len, module.d_model).float()}


def _block(
    module: PreNormBlock, function: Callable[..., Tensor], x: Tensor, *around: Any
) -> Tensor:
    return function(
        x,
        module.attn_norm,
        lambda z: module.dropout(module.attention(z, *around)),
        module.ffn_norm,
        lambda z: module.dropout(module.ffn(z)),
    )


# The class that replaces a module's, and the parts that it can call.
ADAPTERS: dict[type[nn.Module], tuple[type[nn.Module], tuple[str, ...]]] = {
    kind: (_calling(kind, name, *call), (name,))
    for kind, name, *call in (
        (Linear, "linear", _linear),
        (Embedding, "embedding", lambda m, f, ids: f(ids, m.weight)),
        (RMSNorm, "rms_norm", lambda m, f, x: f(x, m.weight, m.eps)),
        (LayerNorm, "layer_norm", lambda m, f, x: f(x, m.weight, m.bias, m.eps)),
        (SinusoidalPosition, "sinusoidal", _table, "tables"),
        (PreNormBlock, "pre_norm_block", _block),
    )
} | {
    Rotary: (YourRotary, ("rotate",)),
    Attention: (YourAttention, (
        "multi_head_attention", "cached_attention", "attention", "softmax",
        "causal_mask", "split_heads", "merge_heads",
    )),
    GatedMLP: (YourGatedMLP, ("swiglu", "silu")),
    MLP: (MLP, ("silu",)),
}  # fmt: skip
CALLABLE = {*chain.from_iterable(names for _, names in ADAPTERS.values())}


def _has_grouped_or_narrow_heads(attention: Attention) -> bool:
    """Whether the matrices of queries and keys are not of one square shape."""
    sizes = {*attention.q_proj.weight.shape, *attention.k_proj.weight.shape}
    return len(sizes) > 1


# Why a part cannot replace what a module does, and where that holds.
_DROPS = {"this model drops attention weights in training": lambda attention: attention.dropout}
_OBSTACLES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "rotate": {"it does not handle stretched frequencies": lambda rotary: rotary.scaling},
    "multi_head_attention": {
        "it does not handle positions": lambda a: not isinstance(a.rotation, Unchanged),
        "it does not handle norms of q and k": lambda a: not isinstance(a.q_norm, nn.Identity),
        "it has no biases": lambda a: any(p.bias is not None for p in (a.q_proj, a.o_proj)),
        "it does not handle grouped or narrower heads": _has_grouped_or_narrow_heads,
        **_DROPS,
    },
    **dict.fromkeys(("cached_attention", "attention", "softmax"), _DROPS),
    "swiglu": {
        "this model's feed-forward is another": (
            lambda ffn: ffn.activation is not silu or ffn.up_proj.bias is not None
        ),
    },
    "silu": {"this model's activation is another": lambda ffn: ffn.activation is not silu},
}
# A part that does the work of others brings its own.
_INSTEAD_OF = {"attention": ("softmax",), "swiglu": ("silu",)}


def callable_parts(model: nn.Module) -> set[str]:
    """The parts that a model of the library could call."""
    found: set[str] = set()
    for module in model.modules():
        found |= {name for name, why in _places(module).items() if not why}
    return found


def _places(module: nn.Module) -> dict[str, str]:
    """The parts that have to do with a module, and why it cannot call them; empty where it can."""
    _, known = ADAPTERS.get(type(module), (None, ()))
    obstacles = {name: _OBSTACLES.get(name, {}).items() for name in known}
    return {
        name: next((why for why, holds in each if holds(module)), "")
        for name, each in obstacles.items()
    }


class Fitting:
    """Puts functions into a model.

    Afterwards `used` says how often each is, `unused` why one is nowhere.
    """

    def __init__(self, functions: Functions):
        self.functions = functions
        self.used: Counter[str] = Counter()
        self.unused: dict[str, str] = {}

    def fit(self, model: nn.Module) -> nn.Module:
        """The same model: its modules call the functions from now on, with the parameters that they
        have.
        """
        never_called = {*chain.from_iterable(map(self._weights_only, model.modules()))}
        for module in model.modules():
            chosen = self._chosen(module) if module not in never_called else {}
            self.used.update(chosen.keys())
            if chosen:
                _adapt(module, chosen)
        return model

    def _chosen(self, module: nn.Module) -> Functions:
        chosen = {}
        for name, why in _places(module).items():
            if name in self.functions and why:
                self.unused.setdefault(name, why)
            elif name in self.functions:
                chosen[name] = self.functions[name]
        smaller = [*chain.from_iterable(_INSTEAD_OF.get(larger, ()) for larger in chosen)]
        for name in smaller:
            if chosen.pop(name, None):
                self.unused[name] = "your larger part brings its own"
        return chosen

    def _weights_only(self, module: nn.Module) -> list[nn.Module]:
        """The children that are never called, because the module itself multiplies by their
        weights.
        """
        if isinstance(module, TransformerLM):
            return [child for name, child in module.named_children() if name == "lm_head"]
        has_swiglu = "swiglu" in self.functions and _places(module).get("swiglu") == ""
        return [module.gate_proj, module.up_proj, module.down_proj] if has_swiglu else []


def _adapt(module: nn.Module, functions: Functions) -> None:
    """Only the class becomes another one, as in torch's own parametrizations: parameters and
    submodules stay.
    """
    module.__class__, _ = ADAPTERS[type(module)]
    module.parts = functions
    if "silu" in functions:
        module.activation = functions["silu"]
    if "sinusoidal" in functions:
        module.build(module.table.device)
