"""Lesson 10: right variants of its exercises, and the library's own."""

import torch
import torch.nn.functional as F
from torch import nn

from tinylm_lib import TransformerLM, cost, layers


def count_on_paper(config):
    c, f, v = config.d_model, config.d_ff, config.vocab_size
    kv = config.n_kv_heads * config.d_head
    norm = c if config.norm == "rms" else 2 * c
    attention = c * c + c * c + 2 * c * kv
    attention += (c + 2 * kv if config.qkv_bias else 0) + (c if config.o_bias else 0)
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


def count_as_a_tensor(config):
    return torch.tensor(count_on_paper(config))


def count_as_a_float(config):
    return float(count_on_paper(config))


def logits_by_einsum(x, embedding_weight):
    return torch.einsum("...c,vc->...v", x, embedding_weight)


def logits_by_sum(x, embedding_weight):
    return (x.unsqueeze(-2) * embedding_weight).sum(-1)


def logits_by_rows(x, embedding_weight):
    return torch.stack([(x * row).sum(-1) for row in embedding_weight], dim=-1)


def logits_through_double(x, embedding_weight):
    flat = x.reshape(-1, x.shape[-1]).double() @ embedding_weight.t().double()
    return flat.reshape(*x.shape[:-1], embedding_weight.shape[0]).to(x.dtype)


def init_by_kind(module, std):
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, mean=0.0, std=std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)


def init_the_library_s_kinds(module, std):
    def fill(part):
        if isinstance(part, layers.Linear | layers.Embedding):
            layers.truncated_normal_(part.weight, std)
            if getattr(part, "bias", None) is not None:
                part.bias.data.zero_()

    return module.apply(fill)


def init_by_name_of_kind(module, std):
    kind = type(module).__name__
    if kind in ("Linear", "Embedding"):
        module.weight.data = std * torch.randn(module.weight.shape)
        if kind == "Linear" and module.bias is not None:
            module.bias.data = torch.zeros(module.bias.shape)
    for child in module.children():
        init_by_name_of_kind(child, std)


@torch.no_grad()
def init_by_rank(module, std):
    for name, p in module.named_parameters():
        if p.ndim >= 2:
            p.copy_(torch.empty_like(p).normal_() * std)
        elif name.endswith("bias"):
            p.fill_(0)
        else:
            p.fill_(1)


@torch.no_grad()
def init_by_name(module, std):
    for name, p in module.named_parameters():
        if "norm" not in name:
            p.copy_(torch.zeros(p.shape) if name.endswith("bias") else torch.normal(0.0, std, p.shape))


RIGHT = {
    "count_parameters": [count_on_paper, count_a_model_without_memory, count_as_a_tensor, count_as_a_float],
    "tied_logits": [F.linear, torch.inner, logits_by_einsum, logits_by_sum, logits_by_rows, logits_through_double],
    "init_weights": [
        init_by_kind, init_the_library_s_kinds, init_by_name_of_kind, init_by_rank, init_by_name,
    ],
}  # fmt: skip
LIBRARY = {"count_parameters": lambda config: cost.count_parameters(config).total}
