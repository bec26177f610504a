"""Lesson 14: right variants of `quantize_int8`, mistakes, and the library's own."""

import torch
from torch.nn import functional as F

from catalogue import named
from tinylm_lib import quantization


def int8_row_by_row(weight):
    scale = torch.tensor([max(abs(w) for w in row) / 127 or 1.0 for row in weight.tolist()])
    return torch.stack([(row / s).round().to(torch.int8) for row, s in zip(weight, scale, strict=True)]), scale


def int8_in_fp64(weight):
    scale = weight.double().norm(p=float("inf"), dim=1) / 127
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return torch.round(weight.double() / scale[:, None]).clamp(-127, 127).char(), scale.float()


def int8_with_a_smallest_scale(weight):
    scale = torch.clamp(torch.maximum(weight.max(1).values, -weight.min(1).values), min=1e-12) / 127
    return torch.einsum("ok,o->ok", weight, 1 / scale).round().to(dtype=torch.int8), scale


def int8_by_normalize(weight):
    largest = weight.abs().max(dim=-1).values
    values = (127 * F.normalize(weight, p=float("inf"), dim=-1)).round()
    return values.type(torch.int8), torch.where(largest > 0, largest / 127, 1.0)


def int8_rounded(weight, rounded):
    """Rounded by a rule of its own where a number is in the middle of two steps."""
    scale = weight.abs().amax(1) / 127
    scale = scale.where(scale > 0, 1.0)
    return rounded(weight / scale[:, None]).to(torch.int8), scale


def int8_with_an_eps(weight, eps):
    scale = weight.abs().amax(1) / 127 + eps
    return (weight / scale[:, None]).round().to(torch.int8), scale


def int8_forgets_to_round(weight):
    scale = weight.abs().amax(1).clamp(min=1e-8) / 127
    return (weight / scale.unsqueeze(1)).to(torch.int8), scale


def int8_with_keepdim(weight):
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    return (weight / scale).round().to(torch.int8), scale


def int8_of_the_matrix(weight):
    scale = (weight.abs().max() / 127).repeat(len(weight))
    return (weight / scale[0]).round().to(torch.int8), scale


def int8_without_abs(weight):
    scale = weight.amax(1).clamp(min=1e-8) / 127
    return (weight / scale[:, None]).round().clamp(-128, 127).to(torch.int8), scale


def int8_to_127_and_a_half(weight):
    scale = weight.abs().amax(1).clamp(min=1e-8) / 127.5
    return (weight / scale[:, None]).round().clamp(-128, 127).to(torch.int8), scale


def int8_floors_with_a_half(weight):
    scale = weight.abs().amax(1).clamp(min=1e-8) / 127
    return (weight / scale[:, None] + 0.5).int().to(torch.int8), scale


RIGHT = {
    "quantize_int8": named(
        int8_row_by_row, int8_in_fp64, int8_with_a_smallest_scale, int8_by_normalize,
        int8_half_from_zero=lambda weight: int8_rounded(weight, lambda z: torch.trunc(z + 0.5 * z.sign())),
        int8_half_up=lambda weight: int8_rounded(weight, lambda z: torch.floor(z + 0.5)),
        int8_half_down=lambda weight: int8_rounded(weight, lambda z: torch.ceil(z - 0.5)),
        int8_with_a_tiny_eps=lambda weight: int8_with_an_eps(weight, 1e-9),
    ),
}  # fmt: skip
WRONG = {
    "quantize_int8": named(
        int8_forgets_to_round, int8_with_keepdim, int8_of_the_matrix, int8_without_abs, int8_to_127_and_a_half,
        int8_floors_with_a_half,
        int8_with_a_small_eps=lambda weight: int8_with_an_eps(weight, 1e-6),
    ),
}  # fmt: skip
# What a number beyond int8 becomes depends on the processor: on some it is cut off as well.
SAME = {
    ("quantize_int8", name): (f"{name}{limit}",)
    for name, limit in {"128 steps": " and a limit", "largest without its sign": ", and a limit"}.items()
}
SAME |= {(exercise, others[0]): (name,) for (exercise, name), others in SAME.items()}
LIBRARY = {"quantize_int8": quantization.quantize_int8}
