"""Keys and values of the past, kept so that each new token costs one position. Notebook 13."""

from typing import Any

import torch
from torch import Tensor

from .config import ModelConfig
from .layers import cast


class KVCache:
    """Room for `max_len` positions of every layer's keys and values; `.length` are filled.

    One tensor (B, G, max_len, D) per layer for keys and one for values: 2 * L * B * G * max_len * D
    elements.
    Works with gradients on: then a write makes a new tensor, because autograd forbids overwriting
    what it saved.
    """

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int,
        max_len: int,
        device: Any = None,
        dtype: Any = None,
    ):
        if batch_size < 1 or max_len < 1:
            got = f"{batch_size} and {max_len}"
            raise ValueError(f"batch_size and max_len must be at least 1, got {got}")
        self.max_len = max_len
        self.length = 0
        shape = (batch_size, config.n_kv_heads, max_len, config.d_head)
        layers = range(config.n_layers)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]

    def check(self, batch_size: int, n_new: int) -> None:
        """Raise ValueError unless `n_new` more positions of `batch_size` sequences fit."""
        rows = len(self.keys[0])
        if batch_size != rows:
            raise ValueError(f"the cache was made for batch size {rows}, got {batch_size}")
        if self.length + n_new > self.max_len:
            raise ValueError(
                f"the cache holds {self.length} of at most {self.max_len} positions, {n_new} more "
                "do not fit; make it longer or call reset()"
            )

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the newest k and v (B, G, T, D) of a layer after the first `.length` positions.

        Returns all keys and values so far, each (B, G, S, D) in the dtype of k and v. The model
        moves `.length` once all layers are through.
        """
        self.check(k.shape[0], k.shape[-2])
        end = self.length + k.shape[-2]
        self.keys[layer] = _write(self.keys[layer], k, self.length)
        self.values[layer] = _write(self.values[layer], v, self.length)
        keys = self.keys[layer].narrow(2, 0, end)
        values = self.values[layer].narrow(2, 0, end)
        return cast(keys, k.dtype), cast(values, v.dtype)

    def select(self, rows: Tensor) -> None:
        """Keep the sequences `rows` (B,) of the batch, in that order, a row also several times."""
        self.keys = [k.index_select(0, rows) for k in self.keys]
        self.values = [v.index_select(0, rows) for v in self.values]

    def reset(self) -> None:
        """Forget everything; the memory is kept."""
        self.length = 0
        self.keys = [k.detach() for k in self.keys]
        self.values = [v.detach() for v in self.values]


def _write(past: Tensor, new: Tensor, start: int) -> Tensor:
    if torch.is_grad_enabled() or past.requires_grad:
        return past.slice_scatter(new.to(past.dtype), 2, start, start + new.shape[2])
    past.narrow(2, start, new.shape[2]).copy_(new)
    return past
