"""Checkpoints of Hugging Face, in and out: the same logits there and here, and a clear no to what is not ours."""

import json
import os
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.hub import BEGIN, END, trained
from support.models import rounding, scramble, scrambled
from support.traps import Trap, check_trap
from torch import Tensor, nn

from tinylm_lib import ModelConfig, TransformerLM, generate, preset
from tinylm_lib.config import RopeScaling
from tinylm_lib.hub import families
from tinylm_lib.hub import folder as hub_folder
from tinylm_lib.hub.convert import read_config
from tinylm_lib.layers import NORMS
from tinylm_lib.pretrained import load_hf, load_hf_tokenizer, load_model, save_hf
from tinylm_lib.text.hugging_face import HubTokenizer
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

T = 29
# Pairwise different, and H * D differs from C: no axis can be taken for another.
SIZES = {
    "vocab_size": 43, "hidden_size": 24, "intermediate_size": 34, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 41, "rms_norm_eps": 3e-3,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
GPT2_SIZES = {
    "vocab_size": 43, "n_embd": 24, "n_inner": 34, "n_layer": 3, "n_head": 6, "n_positions": 41,
    "layer_norm_epsilon": 3e-3, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
# Positions up to T see all three ranges of this stretch: kept, blended and divided.
STRETCH = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 120,
}  # fmt: skip
HIGH = {"rope_type": "default", "rope_theta": 500_000.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("llama", {"rope_parameters": HIGH}),
    "Llama, tied, stretched": ("llama", {"rope_parameters": STRETCH, "tie_word_embeddings": True}),
    "Llama, biases, gelu": ("llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    "Llama, derived heads": ("llama", {"head_dim": None, "num_key_value_heads": None}),
    "Mistral": ("mistral", {"sliding_window": None, "hidden_size": 26}),
    "Mistral, a window as long as the text": ("mistral", {"sliding_window": 41}),
    "Qwen2": ("qwen2", {"rope_parameters": HIGH}),
    "Qwen2, tied, derived heads": ("qwen2", {"head_dim": None, "tie_word_embeddings": True}),
    "Qwen3": ("qwen3", {"rope_parameters": HIGH, "hidden_size": 26}),
    "Qwen3, tied, biases": ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
    "GPT-2": ("gpt2", {}),
    "GPT-2, untied, exact gelu": ("gpt2", {"tie_word_embeddings": False, "activation_function": "gelu"}),
    "GPT-2, relu, derived n_inner": ("gpt2", {"activation_function": "relu", "n_inner": None}),
    "GPT-2, reordered": ("gpt2", {"reorder_and_upcast_attn": True}),
}
N_PRODUCTS = 13  # one behind the other: six in each of two blocks, and the head
IDS = torch.randint(43, (3, T), generator=torch.Generator().manual_seed(2))


def hugging(name: str, std: float = 0.25, **more: Any) -> nn.Module:
    kind, changes = MODELS[name]
    values = {**(GPT2_SIZES if kind == "gpt2" else SIZES), **changes, **more}
    if values.get("head_dim", 1) is None:  # some configs of theirs do not know it
        del values["head_dim"]
    config = transformers.AutoConfig.for_model(kind, **values, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    return scramble(model, std, seed=5)


def opened(folder: Path, **more: Any) -> nn.Module:
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True, **more
    )
    assert not any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    return model.eval()


def logits(model: nn.Module) -> Tensor:
    with torch.no_grad():
        found = model(IDS)
    return getattr(found, "logits", found)


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[n], y[n]) and x[n].dtype == y[n].dtype for n in x)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_theirs_and_survive_the_way_back_in_many_files(name: str, tmp_path: Path) -> None:
    theirs = hugging(name)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size="9KB")
    state = torch.get_rng_state()
    ours = load_hf(tmp_path / "theirs")
    assert torch.equal(state, torch.get_rng_state())
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    expected = logits(theirs)
    assert expected.std() > 0.5
    assert (logits(ours) - expected).abs().max() <= rounding(expected, N_PRODUCTS)
    save_hf(ours, tmp_path / "ours", max_shard_bytes=9000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    assert (logits(opened(tmp_path / "ours")) - expected).abs().max() <= rounding(expected, N_PRODUCTS)
    again = load_hf(tmp_path / "ours")
    assert again.config == ours.config and same_weights(again, ours)


@pytest.mark.parametrize("name", [name for name in MODELS if "reordered" not in name])  # theirs refuses fp64
def test_large_weights_show_no_other_difference(name: str, tmp_path: Path) -> None:
    theirs = hugging(name, std=1.0).double()
    theirs.save_pretrained(tmp_path)
    expected = logits(theirs)
    # Llama-like models of Hugging Face keep their norms and angles in fp32 even in an fp64 model.
    bound = 1e-9 if "GPT-2" in name else 5e-4 * expected.std()
    assert (logits(load_hf(tmp_path)) - expected).abs().max() <= bound


@pytest.mark.parametrize("name", ["Llama", "Llama, tied, stretched", "Qwen3, tied, biases", "GPT-2"])
def test_padded_prompts_have_the_logits_of_their_attention_mask(name: str, tmp_path: Path) -> None:
    theirs, padding = hugging(name), torch.tensor([0, 4, T - 1])
    theirs.save_pretrained(tmp_path)
    mask = (torch.arange(T) >= padding[:, None]).long()
    with torch.no_grad():
        at = (mask.cumsum(-1) - 1).clamp_min(0)
        expected = theirs(IDS, attention_mask=mask, position_ids=at).logits
        actual = load_hf(tmp_path)(IDS, padding=padding)
    difference = (actual - expected)[mask.bool()].abs().max()
    assert difference <= rounding(expected, N_PRODUCTS)


def test_padded_prompts_are_continued_as_transformers_does(tmp_path: Path) -> None:
    theirs, padding, n_new = hugging("GPT-2").double(), torch.tensor([0, 4, T - 1]), 41 - T
    theirs.save_pretrained(tmp_path)
    mask = (torch.arange(T) >= padding[:, None]).long()
    expected = theirs.generate(IDS, attention_mask=mask, max_new_tokens=n_new, do_sample=False, pad_token_id=0)
    assert torch.equal(generate(load_hf(tmp_path), IDS, n_new, temperature=0, padding=padding), expected)


@pytest.mark.parametrize("name", ["Llama, biases, gelu", "Qwen3, tied, biases", "GPT-2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_keep_the_dtype_of_the_file(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = hugging(name).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_hf(tmp_path / "theirs")
    assert {p.dtype for p in ours.parameters()} == {dtype}
    assert generate(ours, IDS[:, :4], 3, temperature=0).shape == (3, 7)
    save_hf(ours, tmp_path / "ours")
    back = opened(tmp_path / "ours", dtype="auto")
    assert back.dtype == dtype and same_weights(back, theirs)
    exact = opened(tmp_path / "theirs", dtype=torch.float32)  # .float() would keep angles that were rounded
    expected = logits(exact)
    assert (logits(ours.float()) - expected).abs().max() <= rounding(expected, N_PRODUCTS)


LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
          "rope_type": "llama3"}  # fmt: skip
# Source: the config.json of each model on the hub, as far as it matters, and its number of parameters.
OF_ALL = {"hidden_act": "silu", "initializer_range": 0.02, "attention_dropout": 0.0, "torch_dtype": "bfloat16"}
OF_LLAMA = {**OF_ALL, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "pretraining_tp": 1,
            "num_attention_heads": 32, "rms_norm_eps": 1e-05}  # fmt: skip
OF_QWEN = {**OF_ALL, "num_hidden_layers": 28, "rms_norm_eps": 1e-06, "rope_theta": 1000000, "tie_word_embeddings": True,
           "use_sliding_window": False, "max_window_layers": 28, "vocab_size": 151936}  # fmt: skip
PUBLISHED: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "Llama-3.2-1B": ({
        **OF_LLAMA, "attention_bias": False, "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "mlp_bias": False, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "rope_scaling": LLAMA3, "rope_theta": 500000.0, "tie_word_embeddings": True, "bos_token_id": 128000,
        "eos_token_id": 128001, "use_cache": True, "vocab_size": 128256,
    }, 1_235_814_400, {"rope_base": 500_000.0, "rope_scaling": RopeScaling(factor=32.0)}),
    "Qwen3-0.6B": ({
        **OF_QWEN, "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128,
        "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960, "model_type": "qwen3",
        "num_attention_heads": 16, "num_key_value_heads": 8, "rope_scaling": None, "sliding_window": None,
        "bos_token_id": 151643, "eos_token_id": 151645,
    }, 596_049_920, {"rope_base": 1e6, "qk_norm": True, "norm_eps": 1e-6}),
    "Qwen2-0.5B": ({
        **OF_QWEN, "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
        "max_position_embeddings": 131072, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "sliding_window": 131072,
    }, 494_032_768, {"d_head": 64, "qkv_bias": True, "o_bias": False}),
    "gpt2": ({
        "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_type": "cls_index", "vocab_size": 50257,
    }, 124_439_808, {"d_ff": 3072, "tie_embeddings": True, "residual_dropout": 0.1, "ffn": "gelu_tanh"}),
    "Llama-2-7b": ({
        **OF_LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "rope_scaling": None, "tie_word_embeddings": False,
        "torch_dtype": "float16", "vocab_size": 32000,
    }, 6_738_415_616, {"rope_base": 10_000.0, "d_head": 128, "ffn": "swiglu"}),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_give_models_of_the_published_size(name: str) -> None:
    values, n_parameters, expected = PUBLISHED[name]
    config = read_config(values)
    with torch.device("meta"):
        assert sum(p.numel() for p in TransformerLM(config).parameters()) == n_parameters
    assert {field: getattr(config, field) for field in expected} == expected


def test_presets_are_what_is_published() -> None:
    for name, family, size in (("gpt2", "gpt2", "small"), ("Llama-2-7b", "llama", "2-7b"),
                               ("Llama-3.2-1B", "llama", "3.2-1b")):  # fmt: skip
        ours, theirs = preset(family, size).to_dict(), read_config(PUBLISHED[name][0]).to_dict()
        assert {**ours, "d_ff_multiple_of": 1} == {**theirs, "d_ff_multiple_of": 1}


@pytest.mark.parametrize("name", ["Llama, tied, stretched", "Qwen2", "Qwen3"])
def test_old_and_new_angles_are_read_alike(name: str, tmp_path: Path) -> None:
    hugging(name).save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    new = read_config(values)
    rope = values.pop("rope_parameters")
    values["rope_theta"] = rope.pop("rope_theta")
    assert read_config({**values, "rope_scaling": rope}) == new
    rope["type"] = rope.pop("rope_type")
    assert read_config({**values, "rope_scaling": rope}) == new
    assert new.rope_base == MODELS[name][1]["rope_parameters"]["rope_theta"]


def plain(**changes: Any) -> ModelConfig:
    """A config that a Llama has, or a GPT-2 where the preset is that."""
    name = changes.pop("name", "llama")
    sizes = {"vocab_size": 43, "max_seq_len": 41, "d_model": 24, "n_layers": 2, "n_heads": 6, "d_ff": 34}
    return preset(name, **{**sizes, **changes})


OURS = {
    "modern": plain(name="modern", n_kv_heads=2),
    "modern, free head": plain(name="modern", n_kv_heads=3, d_head=10, init_std=0.5, rope_base=77.5, norm_eps=1e-3),
    "interleaved": plain(name="cs336", n_kv_heads=2, d_head=10),
    "interleaved, biases": plain(name="cs190c", n_kv_heads=2, qkv_bias=True, o_bias=True, ffn_bias=True),
    "interleaved, biases on q, k, v": plain(name="cs336", qkv_bias=True, tie_embeddings=True),
    "interleaved, normed heads": plain(name="modern", rope_layout="interleaved", n_kv_heads=2, d_head=10),
    "odd width, long": plain(d_model=25, d_head=6, n_kv_heads=3, init="xavier", max_seq_len=5000),
    "geglu": plain(ffn="geglu", attention_dropout=0.25),
    "stretched": plain(rope_scaling=RopeScaling(4.0, 1.0, 3.0, 100), rope_base=500.0),
    "gpt2": plain(name="gpt2"),
    "gpt2, other choices": plain(
        name="gpt2", ffn="relu", tie_embeddings=False, embedding_dropout=0.0, attention_dropout=0.3,
        residual_dropout=0.2, init="kaiming", rope_layout="interleaved", rope_base=5.0, rope_scaling=RopeScaling(2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_ours_come_back_the_same_and_transformers_agrees(name: str, tmp_path: Path) -> None:
    model = scrambled(OURS[name], 0.25)
    save_hf(model, tmp_path)
    again = load_hf(tmp_path)
    assert again.config == model.config and same_weights(again, model)
    expected = logits(model)
    assert expected.std() > 0.5
    assert (logits(opened(tmp_path)) - expected).abs().max() <= rounding(expected, N_PRODUCTS)


NOT_THEIRS = {
    "block": ({"block": "post_norm"}, "block 'pre_norm' (not 'post_norm')"),
    "norm": ({"norm": "layer"}, "norm 'rms' (not 'layer')"),
    "position none": ({"position": "none"}, "position 'rotary' (not 'none')"),
    "sinusoidal": ({"name": "tiny_transformer"}, "position 'learned' (not 'sinusoidal')"),
    "relu": ({"ffn": "relu"}, "ffn 'swiglu' (not 'relu')"),
    "o_bias alone": ({"o_bias": True}, "o_bias False (not True)"),
    "scaled": ({"scale_embeddings": True}, "scale_embeddings False (not True)"),
    "ffn_dropout": ({"ffn_dropout": 0.1}, "ffn_dropout 0.0 (not 0.1)"),
    "residual_dropout": ({"residual_dropout": 0.1}, "residual_dropout 0.0 (not 0.1)"),
    "embedding_dropout": ({"embedding_dropout": 0.1}, "embedding_dropout 0.0 (not 0.1)"),
    "qk_norm with biases": ({"qk_norm": True, "ffn_bias": True}, "llama with qk_norm False (not True)"),
    "GPT-2 without biases": ({"name": "gpt"}, "qkv_bias True (not False), o_bias True (not False)"),
    "GPT-2 with grouped heads": ({"name": "gpt2", "n_kv_heads": 2}, "n_kv_heads 6 (not 2)"),
    "GPT-2 with free heads": ({"name": "gpt2", "d_head": 8}, "d_head 4 (not 8)"),
    "GPT-2 with gates": ({"name": "gpt2", "ffn": "swiglu"}, "ffn 'gelu_tanh' (not 'swiglu')"),
}


@pytest.mark.parametrize("what", NOT_THEIRS)
def test_what_they_do_not_have_is_refused_by_name_before_anything_is_written(what: str, tmp_path: Path) -> None:
    changes, said = NOT_THEIRS[what]
    with pytest.raises(ValueError, match=f"Hugging Face has no such model; .*{re.escape(said)}.*checkpoint.save"):
        save_hf(TransformerLM(plain(**changes)), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def llama_folder(tmp_path: Path, name: str = "Llama", **more: Any) -> Path:
    hugging(name, **more).save_pretrained(tmp_path)
    return tmp_path


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; one that becomes ... is taken out."""
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not ...}))


WINDOW = {"use_sliding_window": True, "sliding_window": 9, "layer_types": ...}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "another family": ("Llama", {"model_type": "mixtral"}, "model_type 'mixtral' cannot be read; give a model of"),
    "no family": ("Llama", {"model_type": ...}, "model_type None"),
    "a list": ("Llama", {"model_type": ["llama"]}, "model_type ['llama']"),
    "another head": ("Llama", {"architectures": ["LlamaForScores"]}, "architecture 'LlamaForScores'"),
    "yarn": ("Llama", {"rope_parameters": {**STRETCH, "rope_type": "yarn"}}, "rope_type 'yarn' cannot be computed"),
    "old linear": ("Llama", {"rope_parameters": ..., "rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear'"),
    "two bases": ("Llama", {"rope_theta": 7.0}, "rope_theta is both 7.0 and 500000.0"),
    "two layouts": ("Llama", {"rope_scaling": {"rope_type": "llama3"}}, "rope_type is both 'llama3' and 'default'"),
    "half a stretch": ("Llama", {"rope_parameters": {"rope_type": "llama3"}}, "'llama3' needs factor"),
    "angles by layer": ("Llama", {"rope_parameters": {"full_attention": HIGH}}, "angles of its own for full_attention"),
    "angles that are none": ("Llama", {"rope_parameters": [1]}, "must be an object or null, got [1]"),
    "part of a head": ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    "part of a head, new": ("Llama", {"rope_parameters": {**HIGH, "partial_rotary_factor": 0.5}}, "factor is 0.5"),
    "a window": ("Mistral", {"sliding_window": 40}, "sliding_window is 40"),
    "a window that is not said": ("Mistral", {"sliding_window": ..., "max_position_embeddings": 5000}, "is 4096"),
    "Qwen2's window": ("Qwen2", {**WINDOW, "max_window_layers": 2}, "sliding_window is 9"),
    "Qwen3's window": ("Qwen3", {"layer_types": [*2 * ["full_attention"], "sliding_attention"]}, "'sliding_attention'"),
    "activation": ("Llama", {"hidden_act": "relu"}, "hidden_act is 'relu', and only silu, swish, gelu can"),
    "activation of GPT-2": ("GPT-2", {"activation_function": "gelu_fast"}, "activation_function is 'gelu_fast'"),
    "a list as activation": ("GPT-2", {"activation_function": ["gelu"]}, "activation_function is ['gelu']"),
    "scale by layer": ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
    "no scale": ("GPT-2", {"scale_attn_weights": False}, "scale_attn_weights is False, and only True"),
    "null scale": ("GPT-2", {"scale_attn_weights": None}, "scale_attn_weights is None, and only True"),
    "cross": ("GPT-2", {"add_cross_attention": True}, "add_cross_attention is True"),
    "quantised": ("Llama", {"quantization_config": {"bits": 4}}, "quantization_config is {'bits': 4}"),
    "missing": ("Llama", {"rms_norm_eps": ...}, "rms_norm_eps is missing"),
    "text for a size": ("Llama", {"hidden_size": "24"}, "hidden_size describes no model: d_model must be a finite int"),
    "no layers": ("GPT-2", {"n_layer": 0}, "n_layer describes no model: n_layers must be at least 1, got 0"),
    "a billion layers": ("Llama", {"num_hidden_layers": 10**9}, "n_layers 1000000000 exceeds the"),
    "a gigantic head": ("Llama", {"head_dim": 10**9}, "d_head 1000000000 exceeds the"),
    "one layer more": ("Llama", {"num_hidden_layers": 4}, "model.layers.3.input_layernorm.weight is missing"),
    "one layer less": ("Llama", {"num_hidden_layers": 2}, "model.layers.2.input_layernorm.weight is (24,)"),
    "another width": ("GPT-2", {"n_inner": 35}, "transformer.h.0.mlp.c_fc.bias is (34,) in the files"),
    "undivided": ("Llama", {"num_attention_heads": 5, "num_key_value_heads": 5}, "d_model 24 must be a multiple of"),
    "a head that is not tied": ("Llama", {"tie_word_embeddings": True}, "lm_head.weight is not the embedding"),
    "biases": ("Llama", {"attention_bias": True}, "model.layers.0.self_attn.k_proj.bias is missing in the files"),
    "no biases": ("Qwen3, tied, biases", {"attention_bias": False}, "self_attn.k_proj.bias is (16,) in the files"),
    "the rest": ("Llama", {"tinylm": {"rope_base": 5.0}}, "tinylm is {'rope_base': 5.0}, and it can hold only"),
    "the rest, unknown": ("Llama", {"tinylm": {"init": "best"}}, "init 'best' is unknown"),
    "the rest, a list": ("Llama", {"tinylm": []}, "tinylm is [], and it can hold only"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_we_cannot_compute_is_refused_by_name(what: str, tmp_path: Path) -> None:
    name, changes, said = REFUSED[what]
    load_hf(llama_folder(tmp_path, name))
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(ValueError, match=f"{tmp_path}.*{re.escape(said)}"):
        load_hf(tmp_path)


@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_a_base_that_was_lost_is_refused_where_no_published_file_lacks_it(name: str, tmp_path: Path) -> None:
    llama_folder(tmp_path, name)
    edit_json(tmp_path / "config.json", rope_parameters=...)
    said = r"config.json: rope_theta is missing, the base of the rotation, .*; take config.json from where"
    with pytest.raises(ValueError, match=said):
        load_hf(tmp_path)
    edit_json(tmp_path / "config.json", rope_scaling=None)  # as the files of Llama 2, which have this field alone
    if name == "Llama":
        assert load_hf(tmp_path).config.rope_base == 10_000.0
    else:
        with pytest.raises(ValueError, match=said):
            load_hf(tmp_path)


@pytest.mark.parametrize("ending", [[], [1], [7, 1]])
def test_the_ids_that_end_a_text_are_written_and_read_here_and_there(ending: list[int], tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=300, d_model=8, n_layers=1, n_heads=2)
    save_hf(TransformerLM(config), tmp_path / "ours", tokenizer=HubTokenizer(trained().to_str(), ending))
    assert load_hf_tokenizer(tmp_path / "ours").ending == ending
    theirs = opened(tmp_path / "ours")
    assert theirs.generation_config.eos_token_id == {0: None, 1: 1, 2: [7, 1]}[len(ending)]
    theirs.save_pretrained(tmp_path / "theirs")
    trained().save(str(tmp_path / "theirs" / "tokenizer.json"))
    assert load_hf_tokenizer(tmp_path / "theirs").ending == ending


def test_the_names_of_what_begins_and_ends_a_text_reach_transformers(tmp_path: Path) -> None:
    model = TransformerLM(ModelConfig(vocab_size=300, d_model=8, n_layers=1, n_heads=2))
    save_hf(model, tmp_path / "marked", tokenizer=HubTokenizer(trained(begins=True).to_str(), [1]))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "marked")
    assert (theirs.bos_token, theirs.eos_token) == (BEGIN, END) and (theirs.bos_token_id, theirs.eos_token_id) == (0, 1)
    assert opened(tmp_path / "marked").config.bos_token_id == 0
    save_hf(model, tmp_path / "plain", tokenizer=HubTokenizer(trained().to_str()))
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "plain").eos_token is None


def test_an_old_file_about_generation_is_not_taken_for_the_new_models(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    with pytest.raises(FileExistsError, match=r"holds a model already \(generation_config.json\)"):
        save_hf(TransformerLM(ModelConfig(vocab_size=300, d_model=8, n_layers=1, n_heads=2)), tmp_path)


def test_a_window_that_is_off_is_no_window(tmp_path: Path) -> None:
    for changes in ({**WINDOW, "use_sliding_window": False}, {**WINDOW, "max_window_layers": 3}):
        hugging("Qwen2").save_pretrained(tmp_path)
        expected = load_hf(tmp_path).config
        edit_json(tmp_path / "config.json", **changes)
        assert load_hf(tmp_path).config == expected
        assert set(transformers.AutoConfig.from_pretrained(tmp_path).layer_types) == {"full_attention"}


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    save_file({n: t.clone() for n, t in change(load_file(path)).items()}, path, metadata={"format": "pt"})


def test_old_gpt2_files_are_read_with_their_buffers_and_without_prefix(tmp_path: Path) -> None:
    theirs = hugging("GPT-2")
    theirs.save_pretrained(tmp_path)
    ours = load_hf(tmp_path)

    def old(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        bare = {name.removeprefix("transformer."): t for name, t in tensors.items()}
        for i in range(3):
            bare[f"h.{i}.attn.bias"] = torch.ones(41, 41).tril()[None, None]
            bare[f"h.{i}.attn.masked_bias"] = torch.tensor(-1e4)
        return bare

    rewrite(tmp_path, old)
    assert same_weights(load_hf(tmp_path), ours)
    rewrite(tmp_path, lambda tensors: {**tensors, "h.0.attn.extra": torch.ones(1)})
    with pytest.raises(ValueError, match=r"transformer.h.0.attn.extra is \(1,\) in the files"):
        load_hf(tmp_path)


def test_old_llama_files_are_read_with_their_frequencies(tmp_path: Path) -> None:
    hugging("Llama, tied, stretched").save_pretrained(tmp_path)
    ours = load_hf(tmp_path)
    names = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(3)]
    more = dict.fromkeys(names, torch.ones(4))
    rewrite(tmp_path, lambda t: {**t, **more, "lm_head.weight": t["model.embed_tokens.weight"]})
    assert same_weights(load_hf(tmp_path), ours)


WRONG_TENSORS: dict[str, tuple[Callable, str]] = {
    "missing": (
        lambda t: {n: x for n, x in t.items() if "1.mlp.up" not in n},
        "model.layers.1.mlp.up_proj.weight is missing in the files",
    ),
    "no head": (lambda t: {n: x for n, x in t.items() if "lm_head" not in n}, "lm_head.weight is missing in the files"),
    "surplus": (lambda t: {**t, "model.extra.weight": torch.ones(2)}, "model.extra.weight is (2,) in the files"),
    "turned": (lambda t: {**t, "lm_head.weight": t["lm_head.weight"].t().contiguous()}, "lm_head.weight is (24, 43)"),
    "mixed": (lambda t: {**t, "model.norm.weight": t["model.norm.weight"].half()}, "dtypes are mixed"),
    "integers": (lambda t: {**t, "model.norm.weight": torch.ones(24, dtype=torch.int8)}, "of dtype I8"),
    "nothing": (lambda t: {}, "exceeds the 0 numbers in the files"),
}


@pytest.mark.parametrize("what", WRONG_TENSORS)
def test_the_first_tensor_that_does_not_fit_is_named(what: str, tmp_path: Path) -> None:
    change, said = WRONG_TENSORS[what]
    rewrite(llama_folder(tmp_path), change)
    with pytest.raises(ValueError, match=f"{tmp_path}.*{re.escape(said)}"):
        load_hf(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.safetensors"])
def test_a_pickle_is_never_opened(name: str, tmp_path: Path) -> None:
    folder, sprung = llama_folder(tmp_path / "model"), tmp_path / "sprung"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Trap(sprung)))
    said = "a pickle under another name" if name.startswith("model") else "only safetensors is read, because a pickle"
    with pytest.raises(ValueError, match=said):
        load_hf(folder)
    check_trap(sprung)


def mutated(content: bytes, rng: random.Random, within: int) -> bytes:
    at = rng.randrange(min(within, len(content)))
    flipped = content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    inserted = content[:at] + bytes([32 + rng.randrange(95)]) + content[at:]
    return rng.choice([flipped, content[:at], inserted, content[: at + 9] + content[at:]])


@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json", "model-00002", "tokenizer.json"])
def test_a_damaged_file_is_a_clear_error_or_still_a_model(file: str, tmp_path: Path) -> None:
    folder = tmp_path
    hugging("Qwen2").save_pretrained(folder, max_shard_size="9KB")
    (folder / "tokenizer.json").write_text(trained().to_str(), encoding="utf-8")
    path = next(folder.glob(f"{file}*"))
    whole, rng, refused = path.read_bytes(), random.Random(7), 0
    read = load_hf_tokenizer if file == "tokenizer.json" else load_hf
    read(folder)
    for _ in range(100):
        path.write_bytes(mutated(whole, rng, within=1500))
        try:
            read(folder)
        except ValueError as e:
            refused += 1
            assert str(folder) in str(e), e
    assert refused >= 40


def test_shards_that_do_not_fit_are_named(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path / "one")
    hugging("Llama").save_pretrained(tmp_path / "many", max_shard_size="9KB")
    index = tmp_path / "many" / "model.safetensors.index.json"
    whole, placed = index.read_bytes(), json.loads(index.read_text())["weight_map"]
    first, other = placed["lm_head.weight"], placed["model.layers.0.mlp.down_proj.weight"]
    assert first != other
    for changes, said in [
        ({"lm_head.weight": other}, f"{first} holds lm_head.weight"),
        ({"ghost.weight": other}, "lacks ghost.weight"),
        ({"lm_head.weight": "../one/model.safetensors"}, "names the file '../one/model.safetensors'"),
        ({"lm_head.weight": "gone.safetensors"}, "names the file 'gone.safetensors', and it is missing"),
        ({"lm_head.weight": 3}, "names the file 3"),
    ]:
        edit_json(index, weight_map={**placed, **changes})
        with pytest.raises(ValueError, match=re.escape(said)):
            load_hf(tmp_path / "many")
    for wrong in ({}, [], None):
        edit_json(index, weight_map=wrong)
        with pytest.raises(ValueError, match="no weight_map"):
            load_hf(tmp_path / "many")
    index.write_bytes(whole)
    (tmp_path / "many" / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"holds both model.safetensors and model.safetensors.index.json"):
        load_hf(tmp_path / "many")


KEPT = "config.json model-00007-of-00009.safetensors pytorch_model.bin checkpoint.json model.safetensors.index.json"


@pytest.mark.parametrize("name", [*KEPT.split(), "tokenizer.json"])
def test_nothing_in_the_folder_is_overwritten(name: str, tmp_path: Path) -> None:
    model = scrambled(OURS["modern"])
    (tmp_path / name).write_text("mine")
    (tmp_path / "README.md").write_text("mine too")
    with pytest.raises(FileExistsError, match=r"holds a model already .*choose another folder"):
        save_hf(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "README.md"])
    (tmp_path / name).unlink()
    save_hf(model, tmp_path)
    assert same_weights(load_hf(tmp_path), model)


@pytest.mark.parametrize("calls", range(6))
def test_a_failed_write_leaves_nothing(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = scrambled(OURS["gpt2"]), tmp_path / "folder"
    made = iter(range(99))

    def failing(original: Callable) -> Callable:
        def call(*arguments: Any, **more: Any) -> None:
            if next(made) == calls:
                raise OSError(28, "no space")
            original(*arguments, **more)

        return call

    monkeypatch.setattr(hub_folder, "save_file", failing(hub_folder.save_file))
    monkeypatch.setattr(os, "replace", failing(os.replace))
    with pytest.raises(OSError, match=f"cannot write the model {folder}.*No space left.*choose another folder"):
        save_hf(model, folder, max_shard_bytes=30_000)
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    save_hf(model, folder, max_shard_bytes=30_000)
    assert same_weights(load_hf(folder), model)


def test_a_model_that_is_not_its_config_is_not_saved(tmp_path: Path) -> None:
    model = TransformerLM(OURS["modern"])
    model.blocks[0].ffn.up_proj.bias = nn.Parameter(torch.ones(34))
    with pytest.raises(ValueError, match=r"blocks.0.ffn.up_proj.bias is \(34,\) in the model"):
        save_hf(model, tmp_path)
    model = TransformerLM(OURS["modern"])
    model.final_norm.half()
    with pytest.raises(ValueError, match=r"torch.float16, torch.float32; convert all to one"):
        save_hf(model, tmp_path)
    with pytest.raises(ValueError, match="max_shard_bytes must be at least 1, got 0"):
        save_hf(TransformerLM(OURS["modern"]), tmp_path, max_shard_bytes=0)
    assert list(tmp_path.iterdir()) == []


def test_the_files_can_go_once_a_model_is_loaded(tmp_path: Path) -> None:
    folder = llama_folder(tmp_path)
    model = load_hf(folder)
    before = logits(model)
    path = folder / "model.safetensors"
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    path.unlink()
    assert torch.equal(logits(model), before)
    assert all(p.requires_grad and p.is_contiguous() for p in model.parameters()) and not model.training


def test_dropout_is_carried(tmp_path: Path) -> None:
    hugging("GPT-2", embd_pdrop=0.1, attn_pdrop=0.2, resid_pdrop=0.3).save_pretrained(tmp_path / "a")
    config = load_hf(tmp_path / "a").config
    assert (config.embedding_dropout, config.attention_dropout, config.residual_dropout) == (0.1, 0.2, 0.3)
    hugging("Qwen3", attention_dropout=0.2).save_pretrained(tmp_path / "b")
    assert load_hf(tmp_path / "b").config.attention_dropout == 0.2


def test_a_place_without_a_model_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config.json is missing in .*give the folder of a Hugging Face"):
        load_hf(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"is a file; give the folder that holds config.json"):
        load_hf(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="neither a folder nor a hub id"):
        load_hf("no/such/place")
    with pytest.raises(OSError, match=r"there is no folder no/place, and the hub did not.*hf download no/place"):
        load_hf("no/place")
    llama_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"model.safetensors is missing in"):
        load_hf(tmp_path)


OLMO = {name: value for name, value in SIZES.items() if name not in ("rms_norm_eps", "head_dim")}


class BareNorm(nn.Module):
    """OLMo's norm: without weights, and with an eps that no config holds."""

    vectors = 0

    def __init__(self, d: int, eps: float):
        super().__init__()
        self.d, self.eps = d, eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (self.d,), eps=self.eps)


def test_what_a_family_fixes_is_not_read_from_a_field_that_it_inherits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NORMS, "bare", BareNorm)
    olmo = families._like_llama(
        "OlmoForCausalLM", "OlmoModel", families.Field("num_key_value_heads", ("n_kv_heads",), None),
        has={"norm": "bare", "norm_eps": 1e-5},
    )  # fmt: skip
    monkeypatch.setitem(families.MODEL_TYPES, "olmo", olmo)
    config = transformers.AutoConfig.for_model("olmo", **OLMO)
    theirs = scramble(transformers.AutoModelForCausalLM.from_config(config).eval(), 0.25, seed=5)
    theirs.save_pretrained(tmp_path)
    for eps in (None, 0.5):  # a field that others of the kind have, and that transformers does not read here
        values = json.loads((tmp_path / "config.json").read_text("utf-8")) | (
            {} if eps is None else {"rms_norm_eps": eps}
        )
        (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
        model = load_hf(tmp_path)
        assert model.config.norm_eps == 1e-5
        torch.testing.assert_close(model(IDS), theirs(IDS).logits, rtol=1e-4, atol=1e-4)


def test_a_family_cannot_fix_what_its_own_field_sets() -> None:
    eps = families.Field("layer_norm_eps", ("norm_eps",))
    with pytest.raises(ValueError, match="norm_eps in `has`, so no field can set it"):
        families._like_llama("ACausalLM", "AModel", eps, has={"norm_eps": 1e-5})


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 538090408\n"
FOREIGN = {
    "Git LFS pointer .* git lfs pull": POINTER,
    "web page": b"\n<!DOCTYPE html><html><body>404: Not found</body></html>",
    "zip archive, such as a pickle": b"PK\x03\x04" + bytes(60),
    "a pickle under another name": pickle.dumps({"a": 1}, protocol=2),
    "GGUF file": b"GGUF\x03\x00\x00\x00",
    "empty; download it again": b"",
}


@pytest.mark.parametrize("says", FOREIGN)
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json"])
def test_a_file_that_is_not_what_its_name_says_is_named_for_what_it_is(name: str, says: str, tmp_path: Path) -> None:
    save_hf(TransformerLM(OURS["modern"]), tmp_path)
    (tmp_path / "tokenizer.json").write_text(trained().to_str(), encoding="utf-8")
    (tmp_path / name).write_bytes(FOREIGN[says])
    load = load_hf if name in ("model.safetensors", "config.json") else load_hf_tokenizer
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is .*{says}"):
        load(tmp_path)
    mine = tmp_path / "mine.json"
    mine.write_bytes(FOREIGN[says])
    with pytest.raises(ValueError, match=rf"mine.json holds no tokenizer: .*{says}"):
        load_tokenizer(mine)


def test_a_shard_and_an_index_that_are_pointers_are_named(tmp_path: Path) -> None:
    save_hf(TransformerLM(OURS["modern"]), tmp_path, max_shard_bytes=20_000)
    for name in ("model-00002-of", "model.safetensors.index.json"):
        path = next(tmp_path.glob(f"{name}*"))
        path.write_bytes(POINTER)
        with pytest.raises(ValueError, match=rf"{path.name} is a Git LFS pointer .*run git lfs pull"):
            load_hf(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_read_over_and_utf_16_is_named(name: str, encoding: str, tmp_path: Path) -> None:
    save_hf(TransformerLM(OURS["modern"]), tmp_path, max_shard_bytes=20_000)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 1}', encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text(trained().to_str(), encoding="utf-8-sig")
    text = (tmp_path / name).read_text("utf-8")
    (tmp_path / name).write_text(text, encoding=encoding)
    load = load_hf_tokenizer if name == "generation_config.json" else load_hf
    if encoding == "utf-8-sig":
        load(tmp_path)
        assert load_hf_tokenizer(tmp_path).ending == [1]
    else:
        with pytest.raises(ValueError, match=rf"{name} is a text in UTF-16; save it again as UTF-8"):
            load(tmp_path)


def test_a_byte_order_mark_in_a_tokenizer_of_ours_is_read_over(tmp_path: Path) -> None:
    CharTokenizer("aé").save(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text("utf-8")
    (tmp_path / "t.json").write_text(text, encoding="utf-8-sig")
    assert load_tokenizer(tmp_path / "t.json").characters == "aé"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], "model.safetensors.index.json is"),
        (["consolidated.safetensors"], "of the model's makers"), (["consolidated.00.pth"], "a pickle can run code"),
        (["pytorch_model.bin"], "a pickle can run code"), (["small-q4.gguf"], "Open this file with load_model"),
        (["adapter_model.safetensors"], "update for another model"), (["weights.safetensors"], "name it model.saf"),
    ],
)  # fmt: skip
def test_a_folder_with_a_model_in_another_form_says_which(names: list[str], says: str, tmp_path: Path) -> None:
    save_hf(TransformerLM(OURS["modern"]), tmp_path, tokenizer=ByteTokenizer())
    weights = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").unlink()
    for name in names:
        (tmp_path / name).write_bytes(weights)
    with pytest.raises(ValueError, match=rf"holds no model.safetensors, only {names[0]}, and .*{says}"):
        load_hf(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "tokenizer.json").unlink()
    is_gguf = names[0].endswith(".gguf")
    without = r"config.json is missing in .*, which holds .*; give the folder of"
    with pytest.raises((FileNotFoundError, ValueError), match="holds a model in GGUF; open" if is_gguf else without):
        load_model(tmp_path)


def test_a_missing_head_is_named_with_what_to_set(tmp_path: Path) -> None:
    save_hf(TransformerLM(ModelConfig(**{**OURS["modern"].to_dict(), "tie_embeddings": False})), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors.pop("lm_head.weight")
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"lm_head.weight is missing .* set tie_word_embeddings to true in"):
        load_hf(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tie_word_embeddings": True}))  # what it says
    assert load_hf(tmp_path).lm_head is None
