"""GGUF files that tests write themselves, from models of transformers, as llama.cpp's conversion lays them out."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from support.hub import BEGIN, END, trained
from torch import nn

# By their first letters: what each tensor of transformers is called.
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}  # fmt: skip
# Where the fp16 scales of a block are; the other bytes may be any.
SCALES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}


def gguf_name(name: str) -> str:
    base, _, kind = name.rpartition(".")
    for prefix in ("model.layers.", "transformer.h."):
        if base.startswith(prefix):
            layer, _, rest = base.removeprefix(prefix).partition(".")
            return f"blk.{layer}.{NAMES[rest]}.{kind}"
    return f"{NAMES[base]}.{kind}"


def neighbours(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Rows of q or k for the pairs (i, i + D/2), brought into the order of the pairs (2i, 2i + 1)."""
    return rows.reshape(n_heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def stored(tensor: np.ndarray, kind: gguf.GGMLQuantizationType, rng: np.random.Generator) -> np.ndarray:
    """A matrix in a kind of storage; the kinds that the package cannot write get any bytes."""
    if kind.name not in SCALES:
        return gguf.quants.quantize(tensor, kind)
    n, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (tensor.size // n, size), dtype=np.uint8)
    for at in SCALES[kind.name]:
        scale = rng.uniform(1e-4, 1e-3, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scale.view(np.uint8)
    return blocks.reshape(len(tensor), -1)


def tensors_of(model: nn.Module, architecture: str, kind: str, seed: int = 4) -> dict[str, tuple[np.ndarray, Any]]:
    """The tensors of a file: matrices of a kind, all others in fp32."""
    config, rng = model.config, np.random.default_rng(seed)
    heads = {"attn_q": config.num_attention_heads, "attn_k": getattr(config, "num_key_value_heads", 0)}
    tensors = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        where, array = gguf_name(name), weight.float().numpy()
        part = where.split(".")[-2]
        if architecture == "llama" and part in heads:
            array = neighbours(array, heads[part])
        if any(f".{conv}.weight" in name for conv in ("c_attn", "c_proj", "c_fc")):
            array = array.T
        is_matrix = array.ndim == 2 and part != "position_embd"
        of = gguf.GGMLQuantizationType[kind if is_matrix else "F32"]
        tensors[where] = (stored(np.ascontiguousarray(array), of, rng), of)
    return tensors


def metadata_of(model: nn.Module, architecture: str) -> dict[str, Any]:
    """What a file says of a model, without its tokenizer."""
    c, values = model.config, {"general.type": "model", "general.quantization_version": 2}
    own: dict[str, Any] = {"block_count": c.num_hidden_layers, "embedding_length": c.hidden_size}
    own |= {"attention.head_count": c.num_attention_heads, "context_length": c.max_position_embeddings}
    if architecture == "gpt2":
        own |= {"feed_forward_length": c.n_inner, "attention.layer_norm_epsilon": c.layer_norm_epsilon}
    else:
        own |= {"feed_forward_length": c.intermediate_size, "attention.layer_norm_rms_epsilon": c.rms_norm_eps}
        own |= {"attention.head_count_kv": c.num_key_value_heads, "rope.freq_base": c.rope_parameters["rope_theta"]}
        own |= {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim}
    if architecture == "llama":
        own |= {"rope.dimension_count": c.head_dim, "vocab_size": c.vocab_size}
    return values | {f"{architecture}.{key}": value for key, value in own.items()}


def tokenizer_metadata(pre: str = "gpt-2") -> dict[str, Any]:
    """What a file says of the small tokenizer of the tests; <|begin|> and <|end|> are control tokens."""
    model = json.loads(trained().to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    key = "tokenizer.ggml."
    return {
        f"{key}model": "gpt2", f"{key}pre": pre, f"{key}tokens": tokens,
        f"{key}token_type": [3 if token in (BEGIN, END) else 1 for token in tokens],
        f"{key}merges": [" ".join(pair) for pair in model["merges"]],
        f"{key}bos_token_id": 0, f"{key}eos_token_id": 1, f"{key}add_bos_token": False,
        "tokenizer.chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }  # fmt: skip


def write(path: Path, architecture: str | None, values: dict[str, Any], tensors: dict[str, tuple]) -> Path:
    """Write a file with the format's own package. values: None leaves a key out."""
    writer = gguf.GGUFWriter(path, architecture or "")
    if architecture is None:
        writer.kv_data[0].pop("general.architecture", None)
    for key, value in values.items():
        if key == "general.alignment":
            writer.add_custom_alignment(value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
            kinds[type(value)](key, value)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
