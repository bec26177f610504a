"""Every position looks back and fetches. Notebooks 05 and 07."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig
from .inputs import check_attention
from .layers import Linear, RMSNorm, pick
from .positions import POSITIONS, Positions

# With fewer keys torch's mask-free kernel for CPUs returns 0 for a NaN query (torch 2.13, AVX-512).
FEWEST_KEYS_WITHOUT_MASK = 16


def causal_mask(
    n_queries: int, n_keys: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Who may look at whom: key j is allowed for query i when it is not later. True = allowed.

    The queries are the last `n_queries` of the `n_keys` positions (default as many), so query i is
    at i + S - T.
    Returns (T, S), bool.
    Raises ValueError for fewer keys than queries.
    """
    n_keys = n_queries if n_keys is None else n_keys
    if n_keys < n_queries:
        why = "a query can see its own position"
        raise ValueError(f"n_keys {n_keys} must be at least n_queries {n_queries}: {why}")
    return torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_queries)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(q k^T / sqrt(d_k)) v, for each query over the keys it is allowed to see.

    q (..., H, T, d_k), k (..., G, S, d_k), v (..., G, S, d_v): query head h uses key-value head h
    // (H / G). With fewer than three dimensions there is no head axis.
    mask: bool, broadcast to (..., H, T, S), True = allowed. causal: also allow no later key; the
    queries are the last T of the S positions. dropout: fraction of the weights set to 0 (0 to 1).

    A row without any allowed key returns 0. A NaN query returns NaN. A NaN in a masked value may
    still spread, because its weight is 0 and 0 * NaN is NaN.
    Returns (..., T, d_v).
    Raises TypeError for a mask that is not bool, ValueError for shapes that do not fit.
    Source: Vaswani et al. 2017, equation 1; Ainslie et al. 2023 (grouped queries).
    """
    check_attention(q, k, v, mask)
    T = q.shape[-2]
    S = k.shape[-2]
    causal = causal and T > 1  # a single query is the last: no key is later
    if causal and (mask is not None or T != S):  # otherwise the kernel knows the mask
        allowed = causal_mask(T, S, q.device)  # (T, S)
        mask = allowed if mask is None else mask & allowed
        causal = False
    return _kernel(q, k, v, mask, causal, dropout)


def _kernel(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: float
) -> Tensor:
    """torch's fused attention, and a way around two of its weaknesses on the CPU.

    causal: only where T = S.
    """
    if q.device.type == "cpu" and q.dtype.itemsize < 4:  # fp32 is 3 times faster going backward
        with torch.autocast("cpu", enabled=False):
            return _kernel(q.float(), k.float(), v.float(), mask, causal, dropout).to(q.dtype)
    T = q.shape[-2]
    S = k.shape[-2]
    if q.device.type == "cpu" and mask is None and S < FEWEST_KEYS_WITHOUT_MASK:
        mask = causal_mask(S) if causal else torch.ones(T, S, dtype=torch.bool)
        causal = False
    if causal:
        causal = True  # in a graph for every T it was a symbol, which the kernel does not take
    grouped = q.ndim > 2 and q.shape[-3] != k.shape[-3]
    return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, enable_gqa=grouped)


class Attention(nn.Module):
    """Causal self-attention with H query heads that share G key-value heads.

    Source: Vaswani et al. 2017, section 3.2; Ainslie et al. 2023 (G < H); Henry et al. 2020 (norms
    of q and k).
    """

    def __init__(self, config: ModelConfig, rotation: nn.Module | None = None):
        super().__init__()
        C = config.d_model
        D = config.d_head
        self.d_head = D
        self.dropout = config.attention_dropout
        self.q_proj = Linear(C, config.n_heads * D, bias=config.qkv_bias)
        self.k_proj = Linear(C, config.n_kv_heads * D, bias=config.qkv_bias)
        self.v_proj = Linear(C, config.n_kv_heads * D, bias=config.qkv_bias)
        self.q_norm = RMSNorm(D, config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(D, config.norm_eps) if config.qk_norm else nn.Identity()
        _, rotated = pick(POSITIONS, config.position, "position")
        self.rotation = rotation or rotated.from_config(config)
        self.o_proj = Linear(config.n_heads * D, C, bias=config.o_bias)

    def split(self, x: Tensor) -> Tensor:
        """Cut the last dimension into heads. x (B, T, H*D). Returns (B, H, T, D)."""
        return x.view(*x.shape[:-1], -1, self.d_head).transpose(-3, -2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend, and put the heads side by side.

        q (B, H, T, D), k and v (B, G, S, D). mask: as in `attend`; no later key is allowed in any
        case.
        Returns (B, T, H*D).
        """
        dropout = self.dropout if self.training else 0.0
        y = attend(q, k, v, mask, causal=True, dropout=dropout)  # (B, H, T, D)
        return y.transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)

    def forward(
        self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None
    ) -> Tensor:
        """x (B, T, C), positions (T,) or (B, T), or `Positions`. Returns (B, T, C).

        extend: stores new keys and values in a cache and returns all of them, as two tensors.
        """
        q = self.q_norm(self.split(self.q_proj(x)))  # (B, T, C) -> (B, H, T, D)
        k = self.k_norm(self.split(self.k_proj(x)))  # (B, T, C) -> (B, G, T, D)
        v = self.split(self.v_proj(x))  # (B, T, C) -> (B, G, T, D)
        q = self.rotation(q, positions)  # (B, H, T, D)
        k = self.rotation(k, positions)  # (B, G, T, D)
        if extend is not None:
            k, v = extend(k, v)  # (B, G, S, D), (B, G, S, D)
        mask = positions.mask if isinstance(positions, Positions) else None
        return self.o_proj(self.mix(q, k, v, mask))  # (B, T, C)
