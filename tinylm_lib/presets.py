"""Published architectures by name: the choices of each family, and its sizes. Notebook 10."""

from dataclasses import replace
from typing import Any

from .config import ModelConfig, RopeScaling

_GPT = {
    "norm": "layer", "position": "learned", "ffn": "gelu", "ffn_bias": True, "d_ff_multiple_of": 1,
    "init": "normal",
    "embedding_dropout": 0.1, "attention_dropout": 0.1, "residual_dropout": 0.1,
}  # fmt: skip
_LLAMA = {"rope_layout": "halves", "tie_embeddings": False, "init": "normal"}
_CS336 = {"rope_layout": "interleaved", "tie_embeddings": False}

# The choices of each family; every choice that is not named has ModelConfig's default.
FAMILIES: dict[str, dict[str, Any]] = {
    "modern": {"qk_norm": True, "tie_embeddings": False},
    "cs336": {**_CS336, "init": "cs336"},
    "cs190c": {**_CS336, "init": "normal", "d_ff_multiple_of": 1},
    "gpt": _GPT,
    "tiny_transformer": {
        **_GPT, "position": "sinusoidal", "qkv_bias": True, "o_bias": True,
        "scale_embeddings": True,
        "attention_dropout": 0.0,
    },
    "gpt2": {**_GPT, "ffn": "gelu_tanh", "qkv_bias": True, "o_bias": True, "init": "gpt2"},
    "llama": _LLAMA,
}  # fmt: skip


def _sizes(
    vocab_size: int, d_model: int, n_layers: int, n_heads: int, max_seq_len: int, **more: Any
) -> dict[str, Any]:
    sizes = {"vocab_size": vocab_size, "d_model": d_model, "n_layers": n_layers, "n_heads": n_heads}
    return {**sizes, "max_seq_len": max_seq_len, **more}


# The published sizes of each family; the first is the default.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "modern": {"default": _sizes(256, 128, 2, 4, 128)},
    "cs336": {"example": _sizes(10_000, 512, 6, 8, 512, d_ff=1365)},
    "cs190c": {"example": _sizes(10_000, 512, 6, 8, 512)},
    "gpt": {"example": _sizes(10_000, 256, 4, 4, 512)},
    "tiny_transformer": {
        "example": _sizes(10_000, 512, 6, 8, 1024),
        "tiny": _sizes(500, 64, 2, 2, 128),
        "small": _sizes(1_000, 128, 3, 4, 256),
        "medium": _sizes(5_000, 256, 6, 8, 512),
    },
    "gpt2": {
        "small": _sizes(50_257, 768, 12, 12, 1024),
        "medium": _sizes(50_257, 1024, 24, 16, 1024),
        "large": _sizes(50_257, 1280, 36, 20, 1024),
        "xl": _sizes(50_257, 1600, 48, 25, 1024),
    },
    "llama": {
        "3.2-1b": _sizes(
            128_256, 2048, 16, 32, 131_072, n_kv_heads=8, d_ff=8192, rope_base=500_000.0,
            tie_embeddings=True,
            rope_scaling=RopeScaling(factor=32.0),
        ),
        "3-8b": _sizes(128_256, 4096, 32, 32, 8192, n_kv_heads=8, d_ff=14_336, rope_base=500_000.0),
        "2-7b": _sizes(32_000, 4096, 32, 32, 4096, d_ff=11_008),
    },
}  # fmt: skip


def preset(name: str, size: str | None = None, **sizes_and_choices: Any) -> ModelConfig:
    """The ModelConfig of a family, at one of its published sizes, with any field replaced.

    name: cs336, cs190c, gpt, tiny_transformer, gpt2, llama or modern.
    size: one of the family's published sizes (`SIZES[name]`); default the first.
    sizes_and_choices: fields of ModelConfig. A new d_model or n_heads without a d_ff or n_kv_heads
    derives these again, and a max_seq_len that needs no stretch of the rotary frequencies leaves
    out the published one.

    Raises ValueError, listing what is possible, for an unknown name, size or field and for
    impossible sizes.
    """
    if name not in FAMILIES:
        raise ValueError(f"preset {name!r} is unknown; choose one of {', '.join(FAMILIES)}")
    size = next(iter(SIZES[name])) if size is None else size
    if size not in SIZES[name]:
        raise ValueError(
            f"preset {name!r} has no size {size!r}; choose one of {', '.join(SIZES[name])}"
        )
    published = dict(SIZES[name][size])
    if "d_model" in sizes_and_choices or "ffn" in sizes_and_choices:
        published.pop("d_ff", None)
    if "n_heads" in sizes_and_choices:
        published.pop("n_kv_heads", None)
    config = ModelConfig.from_dict({**FAMILIES[name], **published, **sizes_and_choices})
    stretch = config.rope_scaling if "rope_scaling" not in sizes_and_choices else None
    if (
        stretch
        and "max_seq_len" in sizes_and_choices
        and config.max_seq_len <= stretch.original_max_seq_len
    ):
        return replace(config, rope_scaling=None)
    return config
