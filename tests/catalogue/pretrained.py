"""Lesson 18: right variants of its exercises, mistakes, and the library's own."""

import torch
from torch.nn import functional as F

from catalogue import named
from tinylm_lib.config import ModelConfig
from tinylm_lib.hub.convert import HubTensor, to_ours, to_theirs
from tinylm_lib.hub.families import Counterpart
from tinylm_lib.layers import Linear
from tinylm_lib.lora import LoRA


def split_by_chunk(fused):
    return [part.T for part in fused.chunk(3, dim=1)]


def split_by_index(fused):
    n = fused.shape[1] // 3
    rows = fused.t()
    return rows[:n], rows[n : 2 * n], rows[2 * n :]


def split_by_view(fused):
    return tuple(fused.unflatten(1, (3, -1)).permute(1, 2, 0))


def split_by_einsum(fused):
    return tuple(torch.einsum("ipo->poi", fused.reshape(len(fused), 3, -1)))


def split_as_the_library(fused):
    out, n_in = fused.shape[1] // 3, fused.shape[0]
    names = ["q", "k", "v"]
    theirs = HubTensor("c_attn", names, [(out, n_in)] * 3, Counterpart(tuple(names), turned=True))
    found = to_ours(theirs, fused, ModelConfig(vocab_size=2))
    return tuple(found[name] for name in names)


def split_not_turned(fused):
    return fused.chunk(3, -1)


def split_the_input(fused):
    return [part.T for part in fused.chunk(3, 0)]


def split_k_first(fused):
    k, q, v = fused.T.chunk(3)
    return q, k, v


def split_v_first(fused):
    v, k, q = fused.T.split(fused.shape[1] // 3)
    return q, k, v


def split_every_third(fused):
    return fused[:, 0::3].T, fused[:, 1::3].T, fused[:, 2::3].T


def split_reshaped(fused):
    return tuple(fused.reshape(3, -1, fused.shape[0]))


def split_flipped_turn(fused):
    q, k, v = fused.chunk(3, 1)
    return q.T, k.T, v


def split_into_one(fused):
    return fused.T.reshape(3, -1, len(fused))


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


def difference_by_next(ours, theirs, tolerance):
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((i for i, (a, b) in pairs if not (a - b).abs().max() <= tolerance * b.abs().max()), len(ours))


def difference_in_fp64(ours, theirs, tolerance):
    for i in range(len(theirs)):
        error = (ours[i].double() - theirs[i].double()).abs().max().item()
        if error != error or error > tolerance * theirs[i].double().abs().max().item():
            return i
    return len(theirs)


def difference_by_norms(ours, theirs, tolerance):
    inf = float("inf")
    sizes = [(torch.linalg.vector_norm(a - b, inf), torch.linalg.vector_norm(b, inf)) for a, b in zip(ours, theirs)]  # noqa: B905
    wrong = [bool(error.isnan()) or bool(error > tolerance * size) for error, size in sizes]
    return wrong.index(True) if True in wrong else len(wrong)


def difference_by_allclose(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not torch.allclose(a, b, rtol=0, atol=(tolerance * b.abs().max()).nan_to_num().item()):
            return i
    return len(ours)


def difference_by_a_limit_that_is_nan(ours, theirs, tolerance):
    """Raises for a NaN in theirs, which the text mentions."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not torch.allclose(a, b, rtol=0, atol=(tolerance * b.abs().max()).item()):
            return i
    return len(ours)


def difference_any_nan(ours, theirs, tolerance):
    @torch.no_grad()
    def differs(a, b):
        return a.isnan().any() or torch.any((b - a).abs() > b.abs().amax() * tolerance)

    return min((i for i, pair in enumerate(zip(ours, theirs, strict=True)) if differs(*pair)), default=len(ours))


def difference_below(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() < tolerance * b.abs().max():
            return i
    return len(ours)


def difference_by_quotient(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() / b.abs().max() <= tolerance:
            return i
    return len(ours)


def difference_one_limit(ours, theirs, tolerance):
    limit = tolerance * max(b.abs().max() for b in theirs)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() <= limit:
            return i
    return len(ours)


def difference_equal_nan(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        limit = tolerance * b[~b.isnan()].abs().max().item()
        if not torch.allclose(a, b, rtol=0.0, atol=limit, equal_nan=True):
            return i
    return len(ours)


def difference_last(ours, theirs, tolerance):
    found = len(ours)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() <= tolerance * b.abs().max():
            found = i
    return found


def difference_largest(ours, theirs, tolerance):
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(ours, theirs, strict=True)]
    return errors.index(max(errors)) if max(errors) > tolerance else len(errors)


def difference_absolute(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().max() <= tolerance:
            return i
    return len(ours)


def difference_signed(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).max() <= tolerance * b.abs().max():
            return i
    return len(ours)


def difference_nan_is_fine(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a - b).abs().max() > tolerance * b.abs().max():
            return i
    return len(ours)


def difference_of_means(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not (a - b).abs().mean() <= tolerance * b.abs().max():
            return i
    return len(ours)


def difference_any_bit(ours, theirs, tolerance):
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not torch.equal(a, b):
            return i
    return len(ours)


def difference_none_is_minus_one(ours, theirs, tolerance):
    found = difference_by_next(ours, theirs, tolerance)
    return -1 if found == len(ours) else found


def difference_counts_from_one(ours, theirs, tolerance):
    found = difference_by_next(ours, theirs, tolerance)
    return found if found == len(ours) else found + 1


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


def merged_plainly(weight, a, b, alpha):
    return (weight.float() + alpha / len(a) * (b.float() @ a.float())).to(weight.dtype)


def merged_in_fp64(weight, a, b, alpha):
    return torch.addmm(weight.double(), b.double(), a.double(), alpha=alpha / len(a)).to(weight.dtype)


def merged_by_outer_products(weight, a, b, alpha):
    total = weight.double()
    for row, column in zip(a, b.T, strict=True):
        total = total + alpha / len(a) * torch.outer(column.double(), row.double())
    return total.type_as(weight)


def merged_as_the_library(weight, a, b, alpha):
    linear = Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    lora = LoRA(linear, len(a), alpha)
    linear.weight.data, lora.lora_a.data, lora.lora_b.data = weight.clone(), a, b
    lora.eval().merge()
    return linear.weight.detach()


@torch.no_grad()
def merged_without_grad(weight, a, b, alpha):
    update = torch.einsum("or,ri->oi", b, a).mul(alpha / b.shape[1])
    return weight + update.to(weight.dtype)


def merged_turned(weight, a, b, alpha):
    return weight + (alpha / len(a) * (a.T @ b.T).reshape(weight.shape)).to(weight.dtype)


def merged_without_scale(weight, a, b, alpha):
    return weight + (b @ a).to(weight.dtype)


def merged_alpha_alone(weight, a, b, alpha):
    return (weight + alpha * b @ a).to(weight.dtype)


def merged_in_place(weight, a, b, alpha):
    weight += (alpha / len(a) * b @ a).to(weight.dtype)
    return weight


def merged_update_alone(weight, a, b, alpha):
    return (alpha / len(a) * b @ a).to(weight.dtype)


def merged_stays_wide(weight, a, b, alpha):
    return weight.float() + alpha / len(a) * b @ a


def merged_subtracted(weight, a, b, alpha):
    return (weight.float() - alpha / len(a) * b @ a).to(weight.dtype)


def merged_twice(weight, a, b, alpha):
    return (weight.float() + 2 * alpha / len(a) * b @ a).to(weight.dtype)


def merged_alpha_ignored(weight, a, b, alpha):
    return (weight.float() + b.float() @ a.float() / len(a)).to(weight.dtype)


def merged_scales_a_in_place(weight, a, b, alpha):
    a *= alpha / len(a)
    return (weight.float() + b.float() @ a.float()).to(weight.dtype)


def merged_as_a_mixture(weight, a, b, alpha):
    scale = alpha / len(a)
    return ((1 - scale) * weight.float() + scale * (b.float() @ a.float())).to(weight.dtype)


def merged_by_a_whole_factor(weight, a, b, alpha):
    return (weight.float() + alpha // len(a) * (b.float() @ a.float())).to(weight.dtype)


def merged_by_the_width(weight, a, b, alpha):
    return (weight.float() + alpha / weight.shape[1] * (b.float() @ a.float())).to(weight.dtype)


def merged_by_the_smaller_width(weight, a, b, alpha):
    return (weight.float() + alpha / min(weight.shape) * (b.float() @ a.float())).to(weight.dtype)


def merged_a_before_b(weight, a, b, alpha):
    return (weight.float() + alpha / len(a) * (a.T @ b.T)).to(weight.dtype)


def merged_by_the_root(weight, a, b, alpha):
    return (weight.float() + alpha / len(a) ** 0.5 * (b.float() @ a.float())).to(weight.dtype)


RIGHT = {
    "split_fused": named(split_by_chunk, split_by_index, split_by_view, split_by_einsum),
    "rotary_layout": named(layout_by_slices, layout_by_loops, layout_by_view, layout_by_index),
    "first_difference": named(
        difference_by_next, difference_in_fp64, difference_by_norms, difference_by_allclose, difference_any_nan,
    ),
    "lora_linear": named(lora_by_matmul, lora_by_linear, lora_by_einsum, lora_of_the_sum),
    "merged_weight": named(
        merged_plainly, merged_in_fp64, merged_by_outer_products, merged_without_grad,
    ),
}  # fmt: skip
WRONG = {
    "split_fused": named(
        split_not_turned, split_the_input, split_k_first, split_v_first, split_every_third, split_reshaped,
        split_flipped_turn, split_into_one,
    ),
    "rotary_layout": named(
        layout_other_way, layout_without_heads, layout_of_columns, layout_halves_exchanged, layout_head_and_size_mixed,
        layout_only_first, layout_swapped_pairs, layout_second_half_backwards, layout_halves_swapped,
    ),
    "first_difference": named(
        difference_last, difference_largest, difference_absolute, difference_signed, difference_nan_is_fine,
        difference_of_means, difference_any_bit, difference_none_is_minus_one, difference_counts_from_one,
        difference_below, difference_by_quotient, difference_one_limit, difference_equal_nan,
        difference_by_a_limit_that_is_nan,
    ),
    "lora_linear": named(
        lora_without_scale, lora_alpha_alone, lora_update_alone, lora_all_scaled, lora_by_the_width, lora_by_the_root,
        lora_subtracted, lora_of_the_output, lora_upside_down, lora_detached,
        lora_base_without_gradient, lora_rank_from_b, lora_viewed_not_turned, lora_with_relu,
        lora_whole_factor, lora_by_the_smaller_width,
    ),
    "merged_weight": named(
        merged_turned, merged_without_scale, merged_alpha_alone, merged_in_place, merged_update_alone,
        merged_stays_wide, merged_subtracted, merged_twice, merged_alpha_ignored,
        merged_scales_a_in_place, merged_as_a_mixture, merged_by_the_root,
        merged_by_a_whole_factor, merged_by_the_width, merged_by_the_smaller_width, merged_a_before_b,
    ),
}  # fmt: skip
LIBRARY = {
    "split_fused": split_as_the_library,
    "rotary_layout": layout_as_the_library,
    "lora_linear": lora_as_the_library,
    "merged_weight": merged_as_the_library,
}
