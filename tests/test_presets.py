"""Presets: the choices and sizes of published architectures, and what `preset` refuses."""

from typing import Any

import pytest

from tinylm_lib import preset
from tinylm_lib.config import RopeScaling
from tinylm_lib.presets import FAMILIES

# What the documents of tests/house/test_rows.py fix. Sizes are pinned through the parameter counts in test_cost.py.
ROPE_1365 = {"norm": "rms", "position": "rotary", "rope_layout": "interleaved", "rope_base": 10_000, "ffn": "swiglu",
             "qkv_bias": False, "o_bias": False, "ffn_bias": False, "tie_embeddings": False, "d_ff": 1365}  # fmt: skip
LAYER_4D = {"norm": "layer", "ffn_bias": True, "tie_embeddings": True, "embedding_dropout": 0.1,
            "residual_dropout": 0.1, "ffn_dropout": 0.0}  # fmt: skip
CHOICES = {
    "cs336": {**ROPE_1365, "init": "cs336", "max_seq_len": 512},
    "cs190c": {**ROPE_1365, "init": "normal"},
    "gpt": {**LAYER_4D, "position": "learned", "ffn": "gelu", "qkv_bias": False, "o_bias": False, "init": "normal",
            "attention_dropout": 0.1, "scale_embeddings": False},
    "tiny_transformer": {**LAYER_4D, "position": "sinusoidal", "ffn": "gelu", "qkv_bias": True, "o_bias": True,
                         "init": "normal", "scale_embeddings": True},
    "gpt2": {**LAYER_4D, "position": "learned", "ffn": "gelu_tanh", "qkv_bias": True, "o_bias": True, "init": "gpt2",
             "attention_dropout": 0.1},
    "llama": {"norm": "rms", "position": "rotary", "rope_layout": "halves", "ffn": "swiglu", "qkv_bias": False,
              "rope_base": 500_000, "rope_scaling": RopeScaling(32, 1, 4, 8192)},
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_a_family_makes_the_choices_of_its_document(name: str) -> None:
    config = preset(name)
    assert {field: getattr(config, field) for field in CHOICES[name]} == CHOICES[name]
    assert (config.block, config.norm_eps, config.init_std) == ("pre_norm", 1e-5, 0.02)


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("cs336", {8: 64, 12: 64, 13: 64, 16: 64, 24: 64, 32: 64, 36: 64, 48: 128, 60: 128, 64: 192, 96: 256, 100: 256,
                   128: 320, 192: 512, 256: 704, 320: 832, 384: 1024, 512: 1344, 640: 1728, 768: 2048, 1024: 2752,
                   1280: 3392, 1536: 4096, 2048: 5440, 4096: 10944}),
        ("cs190c", {64: 170, 128: 341, 256: 682, 512: 1365, 768: 2048, 1024: 2730}),
        *((name, {6: 24, 30: 120, 250: 1000}) for name in ("gpt", "tiny_transformer", "gpt2")),
    ],
)  # fmt: skip
def test_default_d_ff(name: str, widths: dict[int, int]) -> None:
    assert {d: preset(name, d_model=d, n_heads=1, d_head=2).d_ff for d in widths} == widths


def test_preset_derives_again_what_a_new_size_makes_stale() -> None:
    assert preset("cs336").d_ff == 1365
    assert preset("cs336", d_model=256).d_ff == 704
    assert preset("cs336", d_model=256, d_ff=100).d_ff == 100
    assert preset("cs336", ffn="gelu").d_ff == 2048
    assert preset("llama", "3-8b", n_heads=16).n_kv_heads == 16
    assert preset("llama", "3-8b", n_heads=16, n_kv_heads=2).n_kv_heads == 2
    assert preset("cs336", vocab_size=77, n_layers=1).d_ff == 1365
    assert preset("cs336").d_ff == 1365, "a preset must not remember earlier calls"
    assert preset("llama", "3-8b").n_kv_heads == 8


def test_a_short_model_has_no_stretch_for_long_texts() -> None:
    stretch = preset("llama").rope_scaling
    assert preset("llama", max_seq_len=8192).rope_scaling is None
    assert preset("llama", max_seq_len=8193).rope_scaling == stretch == RopeScaling(factor=32.0)
    assert preset("llama", max_seq_len=1024, rope_scaling=stretch).rope_scaling == stretch
    assert preset("llama", n_layers=2).rope_scaling == stretch


@pytest.mark.parametrize(
    ("name", "size", "changes", "words"),
    [
        ("gpt5", None, {}, ["preset 'gpt5'", "choose one of", *FAMILIES]),
        ("gpt2", "huge", {}, ["'gpt2'", "size 'huge'", "small, medium, large, xl"]),
        ("gpt", 512, {}, ["'gpt'", "512", "example"]),
        ("gpt", None, {"width": 3}, ["no field width", "d_model", "vocab_size"]),
        ("gpt", None, {"d_model": 10, "n_heads": 3}, ["d_model 10", "n_heads 3"]),
        ("llama", None, {"n_kv_heads": 5}, ["n_kv_heads 5", "n_heads 32"]),
        ("gpt", None, {"vocab_size": "10"}, ["vocab_size", "'10'"]),
    ],
)
def test_preset_lists_what_is_possible(name: str, size: Any, changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        preset(name, size, **changes)
    assert [word for word in words if word not in str(caught.value)] == []
