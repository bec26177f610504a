"""What functions accept: numbers, ids, padding and shapes are checked, a wrapper is taken off."""

from collections.abc import Callable
from inspect import signature
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

P = ParamSpec("P")
R = TypeVar("R")


def check_number(
    name: str, value: Any, kind: type, fits: Callable[[Any], bool], wanted: str
) -> None:
    """Raise ValueError unless value is a number of that kind that fits."""
    if not isinstance(value, kind) or isinstance(value, bool) or not fits(value):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_size(name: str, value: Any) -> None:
    """Raise ValueError unless value is an integer of at least 1."""
    check_number(name, value, Integral, lambda n: n >= 1, "an integer of at least 1")


def check_ids(ids: Tensor, vocab_size: int, values: bool = True) -> None:
    """Raise unless ids is (B, T), not empty, of integers in 0..vocab_size-1.

    values: look at the ids themselves too, which makes a GPU wait.
    Raises TypeError for anything but a tensor of integers, ValueError for a wrong shape or an id
    out of range.
    """
    if not isinstance(ids, Tensor):
        fix = "torch.tensor([[1, 2]]) or pad_left"
        if isinstance(ids, str):
            fix = "torch.tensor([tokenizer.encode(text)])"
        raise TypeError(f"ids must be a tensor, got {type(ids).__name__}; use {fix}")
    if ids.dtype not in (torch.long, torch.int32):
        raise TypeError(f"ids must be integers (torch.long), got {ids.dtype}; use ids.long()")
    if ids.ndim != 2:
        got = tuple(ids.shape)
        raise ValueError(f"ids must be (B, T), got {got}; for one sequence use ids[None]")
    if ids.numel() == 0:
        raise ValueError(
            f"ids {tuple(ids.shape)} hold no token; give at least one, an empty prompt predicts "
            "nothing"
        )
    if values:
        low, high = (int(x) for x in ids.aminmax())
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise ValueError(f"token id {wrong} is outside 0..{vocab_size - 1} (vocab_size - 1)")


def check_padding(padding: Tensor, B: int, S: int, values: bool = True) -> None:
    """Raise ValueError unless padding is (B,), integers in 0..S-1. values: as in `check_ids`."""
    fits = isinstance(padding, Tensor) and padding.shape == (B,)
    fits = fits and padding.dtype in (torch.long, torch.int32)
    if not fits or (values and not ((padding >= 0) & (padding < S)).all()):
        wanted = (
            f"a tensor of {B} integers in 0..{S - 1}, the number of ids before the first token of "
            "each sequence"
        )
        raise ValueError(f"padding must be {wanted}; got {padding}")


def check_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Raise TypeError or ValueError for shapes or a mask that `attention.attend` cannot take.

    q (..., H, T, d_k), k (..., G, S, d_k), v (..., G, S, d_v).
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be bool with True = allowed, got {mask.dtype}; "
            f"for 0/1 masks use mask == 1, for additive masks mask == 0"
        )
    same = q.ndim == k.ndim >= 2 and q.shape[-1] == k.shape[-1] and k.shape[:-1] == v.shape[:-1]
    if not same or q.shape[:-3] != k.shape[:-3] or (q.ndim > 2 and q.shape[-3] % k.shape[-3]):
        raise ValueError(
            "q and k must share d_k, k and v all but d_v, all three the leading dimensions, and "
            f"the heads of k must divide those of q; got q {tuple(q.shape)}, k {tuple(k.shape)}, v "
            f"{tuple(v.shape)}"
        )
    if mask is not None:
        full = (*q.shape[:-1], k.shape[-2])
        sizes = zip(reversed(mask.shape), reversed(full), strict=False)
        if not 2 <= mask.ndim <= q.ndim or not all(m in (1, n) for m, n in sizes):
            got = tuple(mask.shape)
            raise ValueError(f"mask must broadcast to {full} = (..., T, S), got {got}")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without what torch.compile, DDP or an average of weights puts around it."""
    children = dict(model.named_children())
    inner = children.get("_orig_mod", children.get("module"))
    return model if inner is None else unwrapped(inner)


def with_options_of(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function that passes its options on the signature of the other, for editors."""

    def shown(function: Callable[..., R]) -> Callable[P, R]:
        returned = signature(function).return_annotation
        function.__signature__ = signature(other).replace(return_annotation=returned)
        return function

    return shown
