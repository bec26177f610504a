"""The whole model against independent implementations with the same random weights: Hugging Face models and torch's."""

import math
import os
import re
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
import transformers
from support.models import rounding, scrambled, some_ids, tiny
from torch import Tensor, nn

from tinylm_lib import ModelConfig, TransformerLM
from tinylm_lib.config import RopeScaling

pytestmark = pytest.mark.usefixtures("one_thread")

T = 29
Weights = dict[str, Tensor]

LLAMA_NAMES = {
    r"^embed\.": "model.embed_tokens.", r"^final_norm\.": "model.norm.", r"^blocks\.": "model.layers.",
    r"\.attention\.": ".self_attn.", r"\.attn_norm\.": ".input_layernorm.",
    r"\.ffn_norm\.": ".post_attention_layernorm.", r"\.ffn\.": ".mlp.",
}  # fmt: skip


def llama_weights(model: TransformerLM) -> Weights:
    """The model's weights under the names of Llama-like checkpoints."""
    renamed = {}
    for name, weight in model.state_dict().items():
        for pattern, new in LLAMA_NAMES.items():
            name = re.sub(pattern, new, name)
        renamed[name] = weight
    renamed.setdefault("lm_head.weight", model.embed.weight)
    return renamed


def llama_weights_with_permuted_heads(model: TransformerLM) -> Weights:
    """The same, but each query and key head has its even coordinates first: interleaved pairs become halves."""
    D, weights = model.config.d_head, llama_weights(model)
    order = torch.cat((torch.arange(0, D, 2), torch.arange(1, D, 2)))
    for name in weights:
        if "q_proj" in name or "k_proj" in name:
            weights[name] = weights[name].unflatten(0, (-1, D))[:, order].flatten(0, 1)
    return weights


def gpt2_weights(model: TransformerLM) -> Weights:
    """The model's weights under the names of GPT-2 checkpoints: q, k and v side by side, every matrix transposed."""
    ours = model.state_dict()
    theirs = {"transformer.wte.weight": ours["embed.weight"], "transformer.wpe.weight": ours["position.weight"],
              "lm_head.weight": ours.get("lm_head.weight", ours["embed.weight"])}  # fmt: skip
    for kind in ("weight", "bias"):
        theirs[f"transformer.ln_f.{kind}"] = ours[f"final_norm.{kind}"]
        for i in range(model.config.n_layers):
            block, layer = f"blocks.{i}.", f"transformer.h.{i}."
            qkv = [ours[f"{block}attention.{x}_proj.{kind}"] for x in "qkv"]
            theirs[f"{layer}ln_1.{kind}"] = ours[f"{block}attn_norm.{kind}"]
            theirs[f"{layer}ln_2.{kind}"] = ours[f"{block}ffn_norm.{kind}"]
            theirs[f"{layer}attn.c_attn.{kind}"] = torch.cat(qkv).t()
            theirs[f"{layer}attn.c_proj.{kind}"] = ours[f"{block}attention.o_proj.{kind}"].t()
            theirs[f"{layer}mlp.c_fc.{kind}"] = ours[f"{block}ffn.up_proj.{kind}"].t()
            theirs[f"{layer}mlp.c_proj.{kind}"] = ours[f"{block}ffn.down_proj.{kind}"].t()
    return theirs


def llama_like(config: ModelConfig, **more: Any) -> dict[str, Any]:
    """What the configs of Llama, Qwen2 and Qwen3 have in common."""
    rope = {"rope_type": "default", "rope_theta": config.rope_base}
    if (s := config.rope_scaling) is not None:
        rope |= {"rope_type": "llama3", "factor": s.factor, "low_freq_factor": s.low_freq_factor,
                 "high_freq_factor": s.high_freq_factor,
                 "original_max_position_embeddings": s.original_max_seq_len}  # fmt: skip
    return {
        "vocab_size": config.vocab_size, "max_position_embeddings": config.max_seq_len, "hidden_size": config.d_model,
        "intermediate_size": config.d_ff, "num_hidden_layers": config.n_layers, "head_dim": config.d_head,
        "num_attention_heads": config.n_heads, "num_key_value_heads": config.n_kv_heads,
        "rms_norm_eps": config.norm_eps, "tie_word_embeddings": config.tie_embeddings, "rope_parameters": rope,
        "attention_dropout": 0.0, **more,
    }  # fmt: skip


def gpt2_like(config: ModelConfig, **more: Any) -> dict[str, Any]:
    """The same for GPT-2."""
    return {
        "vocab_size": config.vocab_size, "n_positions": config.max_seq_len, "n_embd": config.d_model,
        "n_inner": config.d_ff, "n_layer": config.n_layers, "n_head": config.n_heads, "tie_word_embeddings": True,
        "layer_norm_epsilon": config.norm_eps, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "bos_token_id": None, "eos_token_id": None, **more,
    }  # fmt: skip


# Positions up to T see all three ranges of this stretch: kept, blended and divided.
STRETCH = {"rope_base": 10_000.0, "rope_scaling": RopeScaling(8.0, 1.0, 4.0, original_max_seq_len=120)}
PLAIN = {"rope_base": 500_000.0, "rope_scaling": None, "d_model": 24}  # H * D = 48: a free head size
WIDE = {**PLAIN, "d_model": 48}
LLAMA = (transformers.LlamaConfig, transformers.LlamaForCausalLM, llama_like, llama_weights)
LLAMA_PERMUTED = (*LLAMA[:3], llama_weights_with_permuted_heads)
QWEN2 = (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, llama_like, llama_weights)
QWEN3 = (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, llama_like, llama_weights)
GPT2 = (transformers.GPT2Config, transformers.GPT2LMHeadModel, gpt2_like, gpt2_weights)
# Preset and changes, and what builds the other side.
HF: dict[str, tuple[str, dict[str, Any], tuple]] = {
    "Llama, untied": ("llama", {**PLAIN, "tie_embeddings": False}, LLAMA),
    "Llama, tied, stretched": ("llama", {**PLAIN, **STRETCH, "tie_embeddings": True}, LLAMA),
    "Llama, one head per key, large eps": ("llama", {**WIDE, "n_kv_heads": 6, "norm_eps": 0.1}, LLAMA),
    "cs336 as Llama with permuted heads": ("cs336", PLAIN, LLAMA_PERMUTED),
    "Qwen2: biases on q, k, v": ("llama", {**WIDE, "qkv_bias": True}, QWEN2),
    "Qwen3: norms on q and k": ("llama", {**PLAIN, "qk_norm": True, "tie_embeddings": False}, QWEN3),
    "GPT-2": ("gpt2", {"d_model": 48, "n_kv_heads": 6}, GPT2),
}


def both(kind: str, std: float | None = None) -> tuple[TransformerLM, nn.Module]:
    """Our model and the other implementation with the same weights; every weight of both sides is used.

    std: of the weights; by default one that makes scores of standard deviation about 1.4.
    """
    name, changes, (config_class, model_class, describe, convert) = HF[kind]
    config = tiny(name, **changes)
    ours = scrambled(config, 1.2 / math.sqrt(config.d_model) if std is None else std)
    theirs = model_class(config_class(**describe(ours.config, attn_implementation="eager"))).eval()
    theirs.load_state_dict(convert(ours))
    used = {id(p): p.numel() for p in theirs.parameters()}
    assert sum(used.values()) == sum(p.numel() for p in ours.parameters())
    return ours, theirs


@pytest.mark.parametrize("kind", HF)
def test_logits_are_those_of_hugging_face(kind: str) -> None:
    ours, theirs = both(kind)
    ids = some_ids(3, T)
    with torch.no_grad():
        a, b = ours(ids), theirs(ids).logits
    error = (a - b).abs().max().item()
    print(f"{kind}: logits of standard deviation {b.std():.2f}, largest difference {error:.1e}")
    assert b.std() > 0.5
    assert error <= rounding(b, 13)  # six products in each of two blocks, and the head


@pytest.mark.parametrize("kind", HF)
def test_large_weights_show_no_other_difference(kind: str) -> None:
    ours, theirs = both(kind, std=1.0)
    ids = some_ids(3, T)
    with torch.no_grad():
        a, b = ours.double()(ids), theirs.double()(ids).logits
    error = (a - b).abs().max().item()
    print(f"{kind}, fp64: logits of standard deviation {b.std():.2f}, largest difference {error:.1e}")
    # Llama-like models of Hugging Face keep their norms and angles in fp32 even in an fp64 model.
    assert error <= (1e-9 if kind == "GPT-2" else 1e-3)


def torchs_layer(block: nn.Module, config: ModelConfig) -> nn.TransformerEncoderLayer:
    """torch's own block with the weights of ours; a missing bias is 0."""
    layer = nn.TransformerEncoderLayer(
        config.d_model, config.n_heads, config.d_ff, dropout=0.0, activation=config.ffn, batch_first=True,
        norm_first=config.block == "pre_norm", layer_norm_eps=config.norm_eps, dtype=torch.float64,
    )  # fmt: skip
    qkv = [block.attention.q_proj, block.attention.k_proj, block.attention.v_proj]
    weights = {
        "self_attn.in_proj_weight": torch.cat([p.weight for p in qkv]),
        "self_attn.in_proj_bias": torch.cat([torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in qkv]),
    }
    for theirs, part in (("self_attn.out_proj", block.attention.o_proj), ("linear1", block.ffn.up_proj),
                         ("linear2", block.ffn.down_proj), ("norm1", block.attn_norm),
                         ("norm2", block.ffn_norm)):  # fmt: skip
        weights[f"{theirs}.weight"] = part.weight
        weights[f"{theirs}.bias"] = torch.zeros(len(part.weight)) if part.bias is None else part.bias
    layer.load_state_dict(weights)
    return layer


@pytest.mark.parametrize("ffn", ["gelu", "relu"])
@pytest.mark.parametrize("block", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("name", ["gpt", "tiny_transformer"])
def test_blocks_are_those_of_torch(name: str, block: str, ffn: str) -> None:
    config = tiny(name, block=block, ffn=ffn, d_model=48, n_kv_heads=6)
    model, ids = scrambled(config).double(), some_ids(3, T)
    with torch.no_grad():
        x = model.embed.weight[ids]
        if name == "gpt":
            x = x + model.position.weight[:T]
        else:  # Vaswani et al., section 3.5: sin at even, cos at odd coordinates
            turns = [[t / 10_000 ** (i / 48) for i in range(0, 48, 2)] for t in range(T)]
            table = [[f(turn) for turn in row for f in (math.sin, math.cos)] for row in turns]
            x = x * math.sqrt(48) + torch.tensor(table, dtype=torch.float64)
        for ours in model.blocks:
            x = torchs_layer(ours, config)(x, nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64))
        if block == "pre_norm":
            x = nn.functional.layer_norm(x, (48,), model.final_norm.weight, model.final_norm.bias, config.norm_eps)
        error = (x @ model.embed.weight.T - model(ids)).abs().max().item()
    print(f"{name}, {block}, {ffn}, fp64: largest difference {error:.1e}")
    assert error <= (1e-9 if name == "gpt" else 1e-5)  # our sinusoidal table is fp32
