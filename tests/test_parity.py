"""Every block against torch's own, an independent implementation, with the same random weights."""

import math

import pytest
import torch
from support.models import scrambled, some_ids, tiny
from torch import nn

from tinylm_lib import ModelConfig

pytestmark = pytest.mark.usefixtures("one_thread")
T = 29


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
