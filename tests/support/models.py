"""Small models for the tests: sizes that cannot be mistaken for each other, and weights that make every part matter."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tinylm_lib import ModelConfig, TransformerLM, preset
from tinylm_lib.presets import FAMILIES

# Pairwise different, and H * D differs from C: a swapped axis or a wrong divisor cannot hide.
SIZES = {
    "vocab_size": 41, "max_seq_len": 37, "d_model": 20, "n_layers": 2, "n_heads": 6, "n_kv_heads": 3, "d_head": 8,
    "d_ff": 28,
}  # fmt: skip
NO_DROPOUT = dict.fromkeys(("embedding_dropout", "attention_dropout", "ffn_dropout", "residual_dropout"), 0.0)

# Every family, and what no family chooses.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in FAMILIES},
    "one head per key": ("llama", {"n_kv_heads": 6}),
    "one key for all heads": ("modern", {"n_kv_heads": 1}),
    "post-norm, rms, interleaved": ("modern", {"block": "post_norm", "rope_layout": "interleaved"}),
    "post-norm, layer": ("tiny_transformer", {"block": "post_norm"}),
    "no positions, geglu": ("cs190c", {"position": "none", "ffn": "geglu", "ffn_bias": True}),
    "relu, xavier": ("gpt", {"ffn": "relu", "init": "xavier"}),
}
# Two layers of six products (q or k, scores, mixture, output, up, down), and the head; as many go backward.
N_PRODUCTS = 13


def tiny(name: str, **changes: Any) -> ModelConfig:
    """The config of an entry of MODELS at SIZES, without dropout, with any field replaced."""
    family, choices = MODELS[name]
    return preset(family, **{**SIZES, **NO_DROPOUT, **choices, **changes})


def scrambled(config: ModelConfig, std: float = 0.4, seed: int = 1) -> TransformerLM:
    """A model in evaluation mode with random matrices, biases and gains, so that no part is 0, 1 or small."""
    return scramble(TransformerLM(config).eval(), std, seed)


def scramble(model: nn.Module, std: float, seed: int) -> nn.Module:
    """Any model with random weights instead of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_gain = p.ndim == 1 and not name.endswith("bias")
            p.copy_(is_gain + std * torch.randn(p.shape, generator=generator))
    return model


def rounding(result: Tensor, n_products: int) -> float:
    """How far a result (...) may be from the same in exact numbers, or computed in another order.

    Each of so many products, one behind the other, rounds sums whose terms are several times as large as the result, by
    a few units in the last place: 32 of them for a product.
    """
    return 32 * n_products * torch.finfo(result.dtype).eps * result.abs().max().item()


def assert_same_on(device: torch.device, found: Tensor, expected: Tensor, n_products: int = N_PRODUCTS) -> None:
    """A result (...) is on the device and the one of the CPU, but for the rounding of so many products."""
    assert found.device == device
    assert (found.detach().cpu() - expected.detach()).abs().max() <= rounding(expected.detach(), n_products)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """All numbers in one row: a gradient that is 0 but for rounding is then compared with the others."""
    return torch.cat([x.detach().flatten() for x in tensors])


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Standard normal numbers, the same in every precision."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def some_ids(batch_size: int, length: int, vocab_size: int = SIZES["vocab_size"], seed: int = 2) -> Tensor:
    """Random token ids (B, T)."""
    return torch.randint(vocab_size, (batch_size, length), generator=torch.Generator().manual_seed(seed))
