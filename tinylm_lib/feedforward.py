"""The part of a block that looks at one position at a time. Notebook 08."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .config import FFNS, ModelConfig
from .layers import Linear, dropout, gelu, gelu_tanh, pick, silu


class MLP(nn.Module):
    """down(activation(up(x))): the classic feed-forward.

    Source: Vaswani et al. 2017, equation 2.
    """

    matrices = 2  # of C*F parameters each
    ratio = 4.0  # d_ff / d_model, where d_ff is derived

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.activation = activation
        self.up_proj = Linear(config.d_model, config.d_ff, bias=config.ffn_bias)
        self.down_proj = Linear(config.d_ff, config.d_model, bias=config.ffn_bias)
        self.dropout = dropout(config.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C). Returns (..., C)."""
        h = self.activation(self.up_proj(x))  # (..., C) -> (..., F)
        return self.dropout(self.down_proj(h))  # (..., F) -> (..., C)


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)): one branch decides how much of the other passes.

    Source: Shazeer 2020, "GLU Variants Improve Transformer", equation 6.
    """

    matrices = 3
    ratio = 8 / 3

    def __init__(self, config: ModelConfig, activation: Callable[[Tensor], Tensor]):
        super().__init__()
        self.activation = activation
        self.gate_proj = Linear(config.d_model, config.d_ff, bias=config.ffn_bias)
        self.up_proj = Linear(config.d_model, config.d_ff, bias=config.ffn_bias)
        self.down_proj = Linear(config.d_ff, config.d_model, bias=config.ffn_bias)
        self.dropout = dropout(config.ffn_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., C). Returns (..., C)."""
        h = self.activation(self.gate_proj(x)) * self.up_proj(x)  # (..., C) -> (..., F)
        return self.dropout(self.down_proj(h))  # (..., F) -> (..., C)


FFNS |= {
    "swiglu": (GatedMLP, silu),
    "geglu": (GatedMLP, gelu),
    "gelu": (MLP, gelu),
    "gelu_tanh": (MLP, gelu_tanh),
    "relu": (MLP, torch.relu),
}


def feed_forward(config: ModelConfig) -> nn.Module:
    """The feed-forward that the config names."""
    kind, activation = pick(FFNS, config.ffn, "ffn")
    return kind(config, activation)
