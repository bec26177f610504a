"""What around a function misleads a check: functions of torch that were replaced, and values of its notebook."""

import dis
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WATCHED = (
    (torch, "allclose cat equal exp gather isclose matmul softmax sort stack sum tensor topk tril triu where zeros"),
    (torch.nn.functional, "cross_entropy embedding layer_norm linear log_softmax scaled_dot_product_attention softmax"),
    (torch.testing, "assert_close"),
)
OWN = [(place, name, getattr(place, name)) for place, names in WATCHED for name in names.split()]


def replaced_in_torch() -> list[str]:
    """The functions of torch that are not those of its import, by name: with them nothing can be compared."""
    return [f"{place.__name__}.{name}" for place, name, own in OWN if getattr(place, name, None) is not own]


def values_used(function: Callable[..., Any]) -> dict[str, Any]:
    """The numbers and tensors of its notebook that a function uses, by name."""
    code, around = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    names = [] if code is None else [each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"]
    found = {name: around[name] for name in names if name in around}
    return {name: value for name, value in found.items() if isinstance(value, int | float | Tensor)}


def of_notebook(function: Callable[..., Any]) -> str:
    """What to say of such values below a mistake; nothing where there are none."""
    said = []
    for name, value in values_used(function).items():
        shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)
        said.append(f"`{name}`, which is {shown} in this notebook")
    return f" Your function also uses {' and '.join(said)}. Should it come from the arguments?" if said else ""
