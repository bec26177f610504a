"""Lesson 18: right variants of its exercises, mistakes, and the library's own."""

import torch
from torch.nn import functional as F

from catalogue import named
from tinylm_lib.config import ModelConfig
from tinylm_lib.hub.convert import HubTensor, to_theirs
from tinylm_lib.hub.families import Counterpart
from tinylm_lib.layers import Linear
from tinylm_lib.lora import LoRA


def layout_by_slices(weight, n_heads):
    heads = weight.view(n_heads, -1, weight.shape[1])
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), 1).reshape(weight.shape)


def layout_by_loops(weight, n_heads):
    d, rows = len(weight) // n_heads, []
    for head in range(n_heads):
        for start in (0, 1):
            rows += [weight[head * d + i] for i in range(start, d, 2)]
    return torch.stack(rows)


def layout_by_view(weight, n_heads):
    d = weight.shape[0] // n_heads
    return weight.view(n_heads, d // 2, 2, -1).transpose(1, 2).reshape(len(weight), -1)


def layout_by_index(weight, n_heads):
    d = len(weight) // n_heads
    order = torch.cat((torch.arange(0, d, 2), torch.arange(1, d, 2)))
    return weight[(torch.arange(n_heads)[:, None] * d + order).flatten()]


def layout_as_the_library(weight, n_heads):
    config = ModelConfig(vocab_size=2, d_model=len(weight), n_heads=n_heads, rope_layout="interleaved")
    return to_theirs(HubTensor("q", ["q"], [tuple(weight.shape)], Counterpart(("q",), heads=True)), [weight], config)


def layout_other_way(weight, n_heads):
    d = len(weight) // n_heads
    return weight.view(n_heads, 2, d // 2, -1).transpose(1, 2).reshape(weight.shape)


def layout_without_heads(weight, n_heads):
    return torch.cat((weight[0::2], weight[1::2]))


def layout_of_columns(weight, n_heads):
    return torch.cat((weight[:, 0::2], weight[:, 1::2]), 1)


def layout_halves_exchanged(weight, n_heads):
    heads = weight.view(n_heads, -1, weight.shape[1])
    return torch.cat((heads[:, 1::2], heads[:, 0::2]), 1).reshape(weight.shape)


def layout_halves_swapped(weight, n_heads):
    first, second = weight.view(n_heads, -1, weight.shape[1]).chunk(2, 1)
    return torch.cat((second, first), 1).reshape(weight.shape)


def layout_head_and_size_mixed(weight, n_heads):
    heads = weight.view(-1, n_heads, weight.shape[1])
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), 1).reshape(weight.shape)


def layout_only_first(weight, n_heads):
    d, out = len(weight) // n_heads, weight.clone()
    out[:d] = torch.cat((weight[:d:2], weight[1:d:2]))
    return out


def layout_swapped_pairs(weight, n_heads):
    return weight.view(-1, 2, weight.shape[1]).flip(1).reshape(weight.shape)


def layout_second_half_backwards(weight, n_heads):
    heads = weight.view(n_heads, -1, weight.shape[1])
    return torch.cat((heads[:, 0::2], heads[:, 1::2].flip(1)), 1).reshape(weight.shape)


def lora_by_matmul(x, weight, a, b, alpha):
    return x @ weight.T + (alpha / a.shape[0]) * (x @ a.T @ b.T)


def lora_by_linear(x, weight, a, b, alpha):
    return F.linear(x, weight) + F.linear(F.linear(x, a), b) * alpha / len(a)


def lora_by_einsum(x, weight, a, b, alpha):
    down = torch.einsum("...i,ri->...r", x, a)
    return torch.einsum("...i,oi->...o", x, weight) + torch.einsum("...r,or->...o", down, b) * (alpha / b.shape[-1])


def lora_of_the_sum(x, weight, a, b, alpha):
    return F.linear(x, weight + alpha / len(a) * b @ a)


def lora_as_the_library(x, weight, a, b, alpha):
    linear = Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    linear.weight = torch.nn.Parameter(weight) if not weight.requires_grad else linear.weight
    lora = LoRA(linear, len(a), alpha)
    return torch.func.functional_call(lora, {"linear.weight": weight, "lora_a": a, "lora_b": b}, (x,))


def lora_without_scale(x, weight, a, b, alpha):
    return x @ weight.T + x @ a.T @ b.T


def lora_alpha_alone(x, weight, a, b, alpha):
    return x @ weight.T + alpha * (x @ a.T @ b.T)


def lora_update_alone(x, weight, a, b, alpha):
    return alpha / len(a) * F.linear(F.linear(x, a), b)


def lora_all_scaled(x, weight, a, b, alpha):
    return (x @ weight.T + x @ a.T @ b.T) * alpha / len(a)


def lora_by_the_width(x, weight, a, b, alpha):
    return x @ weight.T + alpha / a.shape[1] * (x @ a.T @ b.T)


def lora_by_the_root(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(a) ** 0.5 * (x @ a.T @ b.T)


def lora_subtracted(x, weight, a, b, alpha):
    return x @ weight.T - alpha / len(a) * (x @ a.T @ b.T)


def lora_of_the_output(x, weight, a, b, alpha):
    y = x @ weight.T
    return y + alpha / len(a) * (y @ weight @ a.T @ b.T)


def lora_upside_down(x, weight, a, b, alpha):
    return x @ weight.T + len(a) / alpha * (x @ a.T @ b.T)


def lora_detached(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(a) * (x.detach() @ a.T @ b.T)


def lora_base_without_gradient(x, weight, a, b, alpha):
    with torch.no_grad():
        frozen = x @ weight.T
    return frozen + alpha / len(a) * (x @ a.T @ b.T)


def lora_rank_from_b(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(b) * (x @ a.T @ b.T)


def lora_viewed_not_turned(x, weight, a, b, alpha):
    r = len(a)
    return x @ weight.T + alpha / r * (x @ a.reshape(-1, r) @ b.reshape(r, -1))


def lora_whole_factor(x, weight, a, b, alpha):
    return x @ weight.T + alpha // len(a) * (x @ a.T @ b.T)


def lora_by_the_smaller_width(x, weight, a, b, alpha):
    return x @ weight.T + alpha / min(weight.shape) * (x @ a.T @ b.T)


def lora_with_relu(x, weight, a, b, alpha):
    return x @ weight.T + alpha / len(a) * (F.relu(x @ a.T) @ b.T)


RIGHT = {
    "rotary_layout": named(layout_by_slices, layout_by_loops, layout_by_view, layout_by_index),
    "lora_linear": named(lora_by_matmul, lora_by_linear, lora_by_einsum, lora_of_the_sum),
}  # fmt: skip
WRONG = {
    "rotary_layout": named(
        layout_other_way, layout_without_heads, layout_of_columns, layout_halves_exchanged, layout_head_and_size_mixed,
        layout_only_first, layout_swapped_pairs, layout_second_half_backwards, layout_halves_swapped,
    ),
    "lora_linear": named(
        lora_without_scale, lora_alpha_alone, lora_update_alone, lora_all_scaled, lora_by_the_width, lora_by_the_root,
        lora_subtracted, lora_of_the_output, lora_upside_down, lora_detached,
        lora_base_without_gradient, lora_rank_from_b, lora_viewed_not_turned, lora_with_relu,
        lora_whole_factor, lora_by_the_smaller_width,
    ),
}  # fmt: skip
LIBRARY = {
    "rotary_layout": layout_as_the_library,
    "lora_linear": lora_as_the_library,
}
