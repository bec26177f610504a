"""Lesson 10: right variants of its exercises, mistakes, and the library's own."""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from catalogue import named
from tinylm_lib import TransformerLM, cost
from tinylm_lib.cost import count_parameters


def count_on_paper(config):
    c, f, v = config.d_model, config.d_ff, config.vocab_size
    kv = config.n_kv_heads * config.d_head
    norm = c if config.norm == "rms" else 2 * c
    heads = config.n_heads * config.d_head
    attention = 2 * c * heads + 2 * c * kv
    attention += (heads + 2 * kv if config.qkv_bias else 0) + (c if config.o_bias else 0)
    attention += 2 * config.d_head if config.qk_norm else 0
    ffn = 3 * c * f if config.ffn == "swiglu" else 2 * c * f
    ffn += (2 * f if config.ffn == "swiglu" else f) + c if config.ffn_bias else 0
    total = v * c + config.n_layers * (attention + ffn + 2 * norm) + norm
    if config.position == "learned":
        total += config.max_seq_len * c
    return total if config.tie_embeddings else total + v * c


def count_a_model_without_memory(config):
    with torch.device("meta"):
        return sum(p.numel() for p in TransformerLM(config).parameters())


def logits_through_double(x, embedding_weight):
    flat = x.reshape(-1, x.shape[-1]).double() @ embedding_weight.t().double()
    return flat.reshape(*x.shape[:-1], embedding_weight.shape[0]).to(x.dtype)


def counted_all_heads_for_keys(config):
    missing = config.n_heads - config.n_kv_heads
    return count_parameters(config).total + config.n_layers * 2 * config.d_model * missing * config.d_head


def counted_sinusoids_as_learned(config):
    c = count_parameters(config)
    table = config.max_seq_len * config.d_model if config.position != "none" else 0
    return c.total - c.position + table


def counted_norms_as_one_vector(config):
    c = count_parameters(config)
    if config.norm == "rms":
        return c.total
    return c.total - (c.final_norm + config.n_layers * c.norms) // 2


def tied_reshaped(x, embedding_weight):
    V, C = embedding_weight.shape
    return x @ embedding_weight.reshape(C, V)


def tied_copied_head(x, embedding_weight):
    head = nn.Linear(embedding_weight.shape[1], embedding_weight.shape[0], bias=False)
    head.weight = nn.Parameter(embedding_weight.detach().clone())
    return head(x)


def counted_square_q_and_o(config):
    missing = config.d_model - config.n_heads * config.d_head
    return count_parameters(config).total + config.n_layers * 2 * config.d_model * missing


def counted_wide_output_bias(config):
    missing = config.n_heads * config.d_head - config.d_model
    return count_parameters(config).total + config.n_layers * config.o_bias * missing


def counted_gelu_tanh_with_a_gate(config):
    extra = config.n_layers * config.d_model * config.d_ff
    return count_parameters(config).total + (config.ffn == "gelu_tanh") * extra


def counted_three_matrices(config):
    extra = config.n_layers * (config.d_model + config.ffn_bias) * config.d_ff
    return count_parameters(config).total + (not gated(config)) * extra


def counted_down_bias_only(config):
    n_inner = 2 if gated(config) else 1
    return count_parameters(config).total - config.n_layers * config.ffn_bias * n_inner * config.d_ff


def gated(config):
    return config.ffn in ("swiglu", "geglu")


def off_by(error):
    """Counts right but for an error, which depends on the right count and the config."""

    def wrong(config):
        count = count_parameters(config)
        return count.total + error(count, config)

    return wrong


def counted_with(**changes):
    """Counts a model of another config."""
    return lambda config: count_parameters(replace(config, **changes)).total


def fills(fill):
    """Biases to zero, norms untouched, and everything else filled wrongly, by the standard deviation."""

    def wrong(module, std):
        for name, p in module.named_parameters():
            if p.ndim > 1:
                fill(p, std)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    return wrong


RIGHT = {
    "count_parameters": named(
        count_on_paper, count_a_model_without_memory,
        count_as_a_tensor=lambda config: torch.tensor(count_on_paper(config)),
        count_as_a_float=lambda config: float(count_on_paper(config)),
    ),
    "tied_logits": named(
        F.linear, torch.inner, logits_through_double,
        logits_by_einsum=lambda x, embedding_weight: torch.einsum("...c,vc->...v", x, embedding_weight),
        logits_by_sum=lambda x, embedding_weight: (x.unsqueeze(-2) * embedding_weight).sum(-1),
        logits_by_rows=lambda x, embedding_weight: torch.stack([(x * row).sum(-1) for row in embedding_weight], dim=-1),
    ),
}  # fmt: skip
WRONG = {
    "count_parameters": named(
        counted_all_heads_for_keys, counted_sinusoids_as_learned, counted_norms_as_one_vector,
        counted_square_q_and_o, counted_wide_output_bias, counted_gelu_tanh_with_a_gate, counted_three_matrices,
        counted_down_bias_only,
        head_dim_from_the_width=lambda config:
            count_parameters(replace(config, d_head=config.d_model // config.n_heads)).total,
        no_qkv_bias=counted_with(qkv_bias=False),
        narrow_query_bias=off_by(lambda count, config:
            config.n_layers * config.qkv_bias * (config.d_model - config.n_heads * config.d_head)),
        wide_query_norms=off_by(lambda count, config:
            config.n_layers * config.qk_norm * 2 * (config.d_model - config.d_head)),
        narrow_ffn_biases=off_by(lambda count, config:
            config.n_layers * config.ffn_bias * (1 + gated(config)) * (config.d_model - config.d_ff)),
        head_though_tied=off_by(lambda count, config: config.vocab_size * config.d_model - count.head),
        never_a_head=off_by(lambda count, config: -count.head),
        no_final_norm=off_by(lambda count, config: -count.final_norm),
        one_block=off_by(lambda count, config: count.block - count.blocks),
        no_positions=off_by(lambda count, config: -count.position),
        one_norm_a_block=off_by(lambda count, config: -(config.n_layers * count.norms // 2)),
        gate_forgotten=off_by(lambda count, config: -gated(config) * config.n_layers * config.d_model * config.d_ff),
        four_times_width=lambda config: count_parameters(replace(config, d_ff=4 * config.d_model)).total,
        no_biases=counted_with(qkv_bias=False, o_bias=False, ffn_bias=False),
    ),
    "tied_logits": named(
        tied_reshaped, tied_copied_head,
        tied_fresh_head=lambda x, embedding_weight: nn.Linear(*embedding_weight.shape[::-1], bias=False)(x),
        not_transposed=lambda x, embedding_weight: x @ embedding_weight,
        softmax=lambda x, embedding_weight: (x @ embedding_weight.T).softmax(-1),
        divided=lambda x, embedding_weight: x @ embedding_weight.T / math.sqrt(x.shape[-1]),
        multiplied=lambda x, embedding_weight: math.sqrt(x.shape[-1]) * x @ embedding_weight.T,
        cosine=lambda x, embedding_weight: x @ F.normalize(embedding_weight, dim=-1).T,
        last_position=lambda x, embedding_weight: x[:, -1] @ embedding_weight.T,
        ids=lambda x, embedding_weight: (x @ embedding_weight.T).argmax(-1),
        with_a_bias=lambda x, embedding_weight: x @ embedding_weight.T + embedding_weight.mean(-1),
        distance=lambda x, embedding_weight: -torch.cdist(x, embedding_weight),
    ),
}  # fmt: skip
LIBRARY = {"count_parameters": lambda config: cost.count_parameters(config).total}
