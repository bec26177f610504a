"""Checkpoints of Hugging Face, in and out: the same logits there and here, and a clear no to what is not ours."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tinylm_lib import ModelConfig, TransformerLM, generate, preset
from tinylm_lib.config import RopeScaling
from tinylm_lib.hub_format import read_config
from tinylm_lib.pretrained import load_hf, save_hf

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
IDS = torch.randint(43, (3, T), generator=torch.Generator().manual_seed(2))
Edit = Callable[[dict[str, Any]], None]


def hugging(name: str, **more: Any) -> nn.Module:
    """A model of Hugging Face's with random weights, gains and biases."""
    kind, changes = MODELS[name]
    sizes = GPT2_SIZES if kind == "gpt2" else SIZES
    values = {**sizes, **changes, **more}
    if values.get("head_dim", 1) is None and kind == "qwen2":
        del values["head_dim"]
    config = transformers.AutoConfig.for_model(kind, **values, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            gain = p.ndim == 1 and not name.endswith("bias")
            p.copy_(gain + 0.25 * torch.randn(p.shape, generator=generator))
    return model


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


@pytest.mark.parametrize("shard", ["5GB", "9KB"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_theirs_and_survive_the_way_back(name: str, shard: str, tmp_path: Path) -> None:
    theirs = hugging(name)
    theirs.save_pretrained(tmp_path / "theirs", max_shard_size=shard)
    state = torch.get_rng_state()
    ours = load_hf(tmp_path / "theirs")
    assert torch.equal(state, torch.get_rng_state())
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1 or shard == "5GB"
    expected = logits(theirs)
    error = (logits(ours) - expected).abs().max().item()
    print(f"{name}: logits of standard deviation {expected.std():.2f}, largest difference {error:.1e}")
    assert expected.std() > 0.5
    assert error <= 1e-5
    save_hf(ours, tmp_path / "ours", max_shard_bytes=9000 if shard == "9KB" else 10**9)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1 or shard == "5GB"
    assert torch.equal(logits(opened(tmp_path / "ours")), expected)
    again = load_hf(tmp_path / "ours")
    assert again.config == ours.config and same_weights(again, ours)


if __name__ == "__main__":
    pytest.main([__file__])
