"""What a model costs, from its config alone: parameters, floating-point operations, bytes.

Notebooks 10 and 14.
"""

from typing import NamedTuple

from .config import ModelConfig
from .feedforward import FFNS
from .layers import NORMS, pick
from .model import BLOCKS
from .positions import POSITIONS


class ParameterCount(NamedTuple):
    """Parameters by part of the model.

    `block` is one of n_layers equal blocks: attention + ffn + its norms.
    """

    embedding: int
    position: int
    attention: int
    ffn: int
    norms: int
    block: int
    blocks: int
    final_norm: int
    head: int
    total: int


def count_parameters(config: ModelConfig) -> ParameterCount:
    """Count the parameters of a model without building it.

    A tied head counts 0: it is the embedding.
    """
    C = config.d_model
    D = config.d_head
    F = config.d_ff
    V = config.vocab_size
    H = config.n_heads
    G = config.n_kv_heads
    vectors = pick(NORMS, config.norm, "norm").vectors
    matrices = pick(FFNS, config.ffn, "ffn")[0].matrices
    attention = (
        2 * C * H * D + 2 * C * G * D + config.qkv_bias * (H + 2 * G) * D + config.o_bias * C
    )
    attention += config.qk_norm * 2 * D
    ffn = matrices * C * F + config.ffn_bias * ((matrices - 1) * F + C)
    norms = 2 * vectors * C
    block = attention + ffn + norms
    position = pick(POSITIONS, config.position, "position")[0].vectors * config.max_seq_len * C
    final_norm = pick(BLOCKS, config.block, "block").final_norm * vectors * C
    head = 0 if config.tie_embeddings else V * C
    blocks = config.n_layers * block
    total = V * C + position + blocks + final_norm + head
    return ParameterCount(
        V * C, position, attention, ffn, norms, block, blocks, final_norm, head, total
    )


def forward_flops(
    config: ModelConfig, batch_size: int, seq_len: int, n_keys: int | None = None
) -> int:
    """Floating-point operations of the matrix products of one forward pass; a multiply-add counts
    2.

    n_keys: positions that each query meets, those in a cache included; default seq_len. The scores
    are counted in full, T x S, masked ones included; norms, softmax and activations are left out.
    Source: Chowdhery et al. 2022, appendix B, with the head's product added.
    """
    C = config.d_model
    D = config.d_head
    F = config.d_ff
    H = config.n_heads
    G = config.n_kv_heads
    matrices = pick(FFNS, config.ffn, "ffn")[0].matrices
    weights = (
        config.n_layers * (2 * C * H * D + 2 * C * G * D + matrices * C * F) + C * config.vocab_size
    )
    scores = config.n_layers * 2 * H * D * (seq_len if n_keys is None else n_keys)
    return 2 * batch_size * seq_len * (weights + scores)


def training_flops(config: ModelConfig, batch_size: int, seq_len: int) -> int:
    """Floating-point operations of one forward and backward pass: the backward needs two products
    for each one.
    """
    return 3 * forward_flops(config, batch_size, seq_len)


def mfu(flops: float, seconds: float, peak_flops_per_second: float) -> float:
    """Model FLOPs utilisation: the fraction (0 to 1) of the machine's peak that useful products
    reached.

    Raises ValueError unless seconds and peak are positive.
    """
    if seconds <= 0 or peak_flops_per_second <= 0:
        raise ValueError(
            f"seconds and peak must be positive, got {seconds} and {peak_flops_per_second}"
        )
    return flops / seconds / peak_flops_per_second


def kv_cache_bytes(
    config: ModelConfig, batch_size: int, length: int, bytes_per_element: int = 4
) -> int:
    """Bytes of a KVCache: keys and values of every layer, key-value head and position."""
    return (
        2
        * config.n_layers
        * batch_size
        * config.n_kv_heads
        * length
        * config.d_head
        * bytes_per_element
    )


def training_bytes(config: ModelConfig) -> int:
    """Bytes of weights, gradients and AdamW's two moments in fp32, 16 per parameter; activations
    come on top.
    """
    return 16 * count_parameters(config).total
