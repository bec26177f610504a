"""How a model knows word order: something added to x once, or a rotation of q and k in every layer.

Notebook 06.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import LAYOUTS, POSITIONS, ModelConfig, RopeScaling
from .layers import at_least_fp32, cast, pick, truncated_normal_


class Positions(NamedTuple):
    """Where the tokens of a forward pass are, and what all layers look up for them."""

    at: Tensor  # (T) integers, or (B, T) where the sequences of a batch differ
    rows: tuple[Tensor, Tensor] | None = None  # cos and sin, each (..., T, D)
    mask: Tensor | None = None  # bool (B, 1, 1, S), True where a key is allowed: not padding


def frequencies(d: int, base: float = 10_000.0) -> Tensor:
    """How fast each pair of coordinates rotates: base^(-2i/d) radians per position.

    i counts the pairs, from 0. Returns (d/2,) in fp64.
    Raises ValueError for an odd d.
    Source: Vaswani et al. 2017, section 3.5; Su et al. 2021, equation 15.
    """
    if d % 2:
        raise ValueError(f"positions rotate pairs of coordinates, so d must be even, got {d}")
    return base ** (-torch.arange(0, d, 2, dtype=torch.float64, device="cpu") / d)


def stretch(speeds: Tensor, scaling: RopeScaling) -> Tensor:
    """Slow down the slow frequencies, keep the fast ones, blend between. Source: as `RopeScaling`.

    speeds (D/2): radians per position. Returns (D/2,).
    """
    turns = scaling.original_max_seq_len * speeds / (2 * math.pi)
    low = scaling.low_freq_factor
    high = scaling.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * speeds + (1 - keep) * speeds / scaling.factor


def angles(max_seq_len: int, speeds: Tensor) -> Tensor:
    """position * speed for every position and pair. speeds (D/2).

    Returns (max_seq_len, D/2), radians, fp64.
    """
    return torch.outer(torch.arange(max_seq_len, dtype=torch.float64, device="cpu"), speeds)


def sinusoidal_table(max_seq_len: int, d_model: int) -> Tensor:
    """The fixed position vectors [sin a_0, cos a_0, sin a_1, cos a_1, ...].

    The angles are a_i = position * 10000^(-2i/C). Returns (max_seq_len, C) in fp32.
    Raises ValueError for an odd d_model.
    Source: Vaswani et al. 2017, section 3.5.
    """
    a = angles(max_seq_len, frequencies(d_model))
    return torch.stack((a.sin(), a.cos()), dim=-1).flatten(-2).float()


class Unchanged(nn.Module):
    """No position: returns x. Used in both columns of POSITIONS."""

    vectors = 0  # of C parameters each, per position
    # d_model of what is added, and d_head of what is applied to q and k, are multiples of this
    multiple = 1

    def rows(self, positions: Tensor) -> None:
        """positions (...). There is nothing to look up."""

    def forward(self, x: Tensor, positions: Tensor | Positions) -> Tensor:
        """x (...). Returns x."""
        return x

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Unchanged":
        """Build from a model's config."""
        return cls()


class LearnedPosition(nn.Module):
    """One learned vector per position, added to x.

    Initial weights: N(0, 0.02^2) cut off at three of these.
    """

    vectors = 1
    multiple = 1

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(truncated_normal_(torch.empty(max_seq_len, d_model), std=0.02))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, C), positions (T,) or (B, T). Returns (B, T, C)."""
        return x + F.embedding(positions, self.weight)  # (B, T, C)

    @classmethod
    def from_config(cls, config: ModelConfig) -> "LearnedPosition":
        """Build from a model's config."""
        return cls(config.max_seq_len, config.d_model)


class Tables(nn.Module):
    """Fixed tables that follow the module to its device, but never to a lower precision.

    They are not in the state dict.
    """

    def tables(self) -> dict[str, Tensor]:
        """The tables by name, computed on the CPU in fp64, in fp32 or as integers."""
        raise NotImplementedError

    def build(self, device: Any = None) -> None:
        """Compute the tables and put them on `device`; default the current default device."""
        device = device or torch.get_default_device()
        for name, table in self.tables().items():
            self.register_buffer(name, table.to(device), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> "Tables":
        # What `to` and its relatives call. fn may also cast or empty what it moves, so it only
        # shows the new device.
        here = next(self.buffers()).device
        there = fn(torch.empty(0, device=here)).device
        if there != here:
            self.build(there)
        return self


class SinusoidalPosition(Tables):
    """The fixed vectors of `sinusoidal_table`, added to x."""

    vectors = 0
    multiple = 2
    table: Tensor

    def __init__(self, max_seq_len: int, d_model: int):
        super().__init__()
        self.max_seq_len = max_seq_len
        self.d_model = d_model
        self.build()

    def tables(self) -> dict[str, Tensor]:
        """`table` (max_seq_len, C)."""
        return {"table": sinusoidal_table(self.max_seq_len, self.d_model)}

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (B, T, C), positions (T,) or (B, T). Returns (B, T, C) in the dtype of x."""
        return x + F.embedding(positions, self.table).to(x.dtype)  # (B, T, C)

    @classmethod
    def from_config(cls, config: ModelConfig) -> "SinusoidalPosition":
        """Build from a model's config."""
        return cls(config.max_seq_len, config.d_model)


# Where the two coordinates of a pair are: how to unfold D into pairs, and which of the two new axes
# is the pair. Llama's checkpoints on the hub have halves.
LAYOUTS |= {
    "interleaved": ((-1, 2), -1),  # (0, 1), (2, 3), ...: GPT-J and the RoPE paper
    "halves": ((2, -1), -2),  # (0, D/2), (1, D/2 + 1), ...: GPT-NeoX
}


class Rotary(Tables):
    """Rotate each pair of coordinates by an angle that grows with the position.

    So q.k sees only the offset. layout: which coordinates form a pair, a key of LAYOUTS. scaling:
    Llama 3's stretch for long contexts.
    Raises ValueError for an odd d_head and an unknown layout.
    Source: Su et al. 2021, "RoFormer", equations 14, 15 and 34. Notebook 06.
    """

    multiple = 2
    cos: Tensor
    sin: Tensor
    partner: Tensor

    def __init__(
        self,
        d_head: int,
        max_seq_len: int,
        base: float = 10_000.0,
        layout: str = "interleaved",
        scaling: RopeScaling | None = None,
    ):
        super().__init__()
        self.d_head = d_head
        self.max_seq_len = max_seq_len
        self.base = base
        self.scaling = scaling
        self.unfolded, self.pair = pick(LAYOUTS, layout, "rope_layout")
        self.build()

    def tables(self) -> dict[str, Tensor]:
        """`cos` and `sin`, each (max_seq_len, D): by what a coordinate and its partner count.

        The first of a pair subtracts. `partner` (D): the other coordinate of each one's pair.
        """
        speeds = frequencies(self.d_head, self.base)
        if self.scaling is not None:
            speeds = stretch(speeds, self.scaling)
        a = angles(self.max_seq_len, speeds)
        cos = torch.stack((a.cos(), a.cos()), self.pair)
        sin = torch.stack((-a.sin(), a.sin()), self.pair)
        pairs = torch.arange(self.d_head, device="cpu").unflatten(-1, self.unfolded)
        partner = pairs.flip(self.pair).flatten(-2)
        return {"cos": cos.flatten(-2).float(), "sin": sin.flatten(-2).float(), "partner": partner}

    def rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Look up `cos` and `sin` of positions (...). Returns two of (..., D)."""
        return F.embedding(positions, self.cos), F.embedding(positions, self.sin)

    def forward(self, x: Tensor, positions: Tensor | Positions) -> Tensor:
        """Rotate x (..., T, D) to `positions`: (T,) integers, or (B, T) for x (B, ..., T, D).

        `Positions` with their `rows`, looked up once, serve many layers. A tensor is looked up
        here. Computed in fp32. Returns (..., T, D) in the dtype of x.
        Raises ValueError when the shapes do not fit, IndexError (on CPU) for a position outside the
        table.
        """
        at, rows, _ = positions if isinstance(positions, Positions) else Positions(positions)
        self._check(x, at)
        cos, sin = self.rows(at) if rows is None else rows
        if at.ndim == 2:
            batch = (len(x), *[1] * (x.ndim - 3), *cos.shape[1:])
            cos = cos.view(batch)
            sin = sin.view(batch)
        z = at_least_fp32(x)
        turned = torch.addcmul(z * cos, z.index_select(-1, self.partner), sin)  # (..., T, D)
        return cast(turned, x.dtype)

    def _check(self, x: Tensor, positions: Tensor) -> None:
        fits = positions.ndim in (1, 2) and x.ndim > positions.ndim and x.shape[-1] == self.d_head
        if not fits or positions.shape != (*x.shape[: positions.ndim - 1], x.shape[-2]):
            raise ValueError(
                f"Rotary takes x (..., T, D) with D = {self.d_head} and positions (T,) or (B, T), "
                f"got x {tuple(x.shape)} and positions {tuple(positions.shape)}"
            )

    @classmethod
    def from_config(cls, config: ModelConfig) -> "Rotary":
        """Build from a model's config."""
        sizes = (config.d_head, config.max_seq_len)
        return cls(*sizes, config.rope_base, config.rope_layout, config.rope_scaling)


# What these columns cannot hold: ALiBi (Press et al. 2022), which adds to the scores, and torch's
# kernel keeps those.
POSITIONS |= {
    #              added to x, once     applied to q and k, in every layer
    "none": (Unchanged, Unchanged),
    "learned": (LearnedPosition, Unchanged),
    "sinusoidal": (SinusoidalPosition, Unchanged),
    "rotary": (Unchanged, Rotary),
}
