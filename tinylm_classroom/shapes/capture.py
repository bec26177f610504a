"""Every value inside a model while it reads, caught by hooks: the model itself neither returns nor
keeps any of it.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tinylm_lib.attention import Attention, causal_mask
from tinylm_lib.layers import evaluation_mode, softmax
from tinylm_lib.model import TransformerLM


class Stages(NamedTuple):
    """One layer's attention, stage by stage. The key-value heads are repeated, so that every stage
    has H heads.

    q (B, H, T, D), k and v (B, H, S, D); scores q.k, scaled by 1 / sqrt(D), masked with -inf in the
    future, weights that sum to 1, all (B, H, T, S); mixed (B, H, T, D), the weighted sum of v.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    scaled: Tensor
    masked: Tensor
    weights: Tensor
    mixed: Tensor


@dataclass
class Captured:
    """What went in and out of every submodule, by name, in the order of the run; `logits` is the
    model's result.
    """

    model: TransformerLM
    ids: Tensor
    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None

    def attention(self, layer: int) -> Stages:
        """Recompute a layer's attention from the q, k and v that were caught.

        Raises AssertionError unless the stages end in what the layer itself passed to its output
        projection.
        """
        name = f"blocks.{layer}.attention"
        module = self.model.get_submodule(name)
        q = self.outputs[f"{name}.rotation.q"]
        k = self.outputs[f"{name}.rotation.k"]
        v = module.split(self.outputs[f"{name}.v_proj"])  # (B, G, T, D)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        scores = q @ k.transpose(-2, -1)  # (B, H, T, S)
        scaled = scores / math.sqrt(q.shape[-1])
        masked = scaled.masked_fill(~causal_mask(q.shape[-2], k.shape[-2], q.device), -math.inf)
        weights = softmax(masked, dim=-1)
        mixed = weights @ v  # (B, H, T, D)
        torch.testing.assert_close(mixed.transpose(1, 2).flatten(2), self.inputs[f"{name}.o_proj"])
        return Stages(q, k, v, scores, scaled, masked, weights, mixed)


def capture(model: TransformerLM, ids: Tensor) -> Captured:
    """Run the model on ids (B, T), in evaluation mode and without gradients, and keep every value
    on its way.

    The rotation is one module shared by all layers: its two calls per layer are kept under
    `blocks.N.attention.rotation.q` and `.k`.
    """
    caught = Captured(model, ids)
    layers = [name for name, module in model.named_modules() if isinstance(module, Attention)]
    # in the order of the run
    turns = iter([f"{name}.rotation.{turned}" for name, turned in product(layers, "qk")])

    def keep(name: str, module: nn.Module, args: Any, output: Any) -> None:
        caught.inputs[name] = args[0].clone()
        caught.outputs[name] = output.clone()

    def keep_turn(module: nn.Module, args: Any, output: Any) -> None:
        keep(next(turns), module, args, output)

    hooks = []
    for name, module in model.named_modules():
        if name.endswith(".rotation"):
            hooks.append(module.register_forward_hook(keep_turn))
        elif name and not isinstance(module, nn.ModuleList):
            hooks.append(module.register_forward_hook(partial(keep, name)))
    try:
        with evaluation_mode(model):
            caught.logits = model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return caught
