"""Lesson 02: a linear map is dot products, an embedding is a row that is looked up."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def linear(x: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """One dot product of x (..., in) with each row of weight (out, in): (..., out), and the mistakes that are `on`."""
    if "weight first" in on:
        return weight @ x
    if "result transposed" in on:
        return weight @ (x.mT if x.ndim > 1 else x)
    if "first axis of x" in on:
        return torch.einsum("i...,oi->...o", x, weight)
    if "first vector alone" in on:
        x = x.reshape(-1, x.shape[-1])[0]
    if "x cut" in on:
        x = x.detach()
    if "weight cut" in on:
        weight = weight.detach()
    if "fp32" in on:
        x, weight = x.float(), weight.float()
    if "unit rows" in on:
        weight = F.normalize(weight, dim=-1)
    if "first input left out" in on:
        x, weight = x[..., 1:], weight[:, 1:]
    if "last input left out" in on:
        x, weight = x[..., :-1], weight[:, :-1]
    if "one output" in on:
        return x @ weight[0]
    if "not summed" in on:
        return x[..., None, :] * weight
    if "in place" in on:
        weight.t_()
        return x @ weight
    columns = weight if "not transposed" in on else weight.mT
    if "reshaped" in on:
        columns = weight.reshape(weight.shape[::-1])
    out = x @ columns
    for name, change in AFTERWARDS.items():
        if name in on:
            out = change(out, x)
    return out


AFTERWARDS = {
    "mean": lambda out, x: out / x.shape[-1],
    "scaled": lambda out, x: out / math.sqrt(x.shape[-1]),
    "bias": lambda out, x: out + 1,
    "relu": lambda out, x: out.relu(),
    "softmax": lambda out, x: out.softmax(-1),
    "last output 0": lambda out, x: torch.cat([out[..., :-1], 0 * out[..., -1:]], -1),
    "flattened": lambda out, x: out.reshape(-1, out.shape[-1]),
    "axes of 1 lost": lambda out, x: out.squeeze(),
    "positions summed": lambda out, x: out.reshape(-1, out.shape[-1]).sum(0),
    "x added": lambda out, x: out + x if out.shape == x.shape else out,
}


def embedding(ids: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows of weight (V, C) that ids (...) name: (..., C), and the mistakes that are `on`."""
    n = len(weight)
    places, inside = _places(ids, n, on), (ids >= 0) & (ids < n)
    if ((places < 0) | (places >= n)).any():
        if "AssertionError" in on:
            raise AssertionError("an id is out of range")
        if "ValueError" in on:
            raise ValueError("an id is out of range")
        if "RuntimeError" in on:
            raise RuntimeError("Class values must be smaller than num_classes.")
        raise IndexError("an id is out of range")
    if "unit rows" in on:
        weight = F.normalize(weight, dim=-1)
    if "table changed" in on:
        with torch.no_grad():
            weight[ids] /= weight[ids].norm(dim=-1, keepdim=True)
    if "table cut" in on:
        weight = weight.detach()
    if "fp32" in on:
        weight = weight.float()
    is_padded = "padding" in on or "padding not learnt" in on
    out = F.embedding(
        places, weight.mT if "columns" in on else weight, padding_idx=0 if is_padded else None,
        scale_grad_by_freq="by frequency" in on,
    )  # fmt: skip
    if "zeros outside" in on:
        out = out * inside[..., None]
    if "padding" in on:
        out = out * (ids != 0)[..., None]
    for name, change in LOOKED_UP.items():
        if name in on:
            out = change(out)
    return out


def _places(ids: Tensor, n: int, on: frozenset[str]) -> Tensor:
    """Which rows are looked up."""
    if "from the end" in on:
        ids = torch.where((ids < 0) & (ids >= -n), ids + n, ids)
    if "clamped" in on or "zeros outside" in on:
        ids = ids.clamp(0, n - 1)
    if "negative is 0" in on:
        ids = ids.clamp(min=0)
    if "modulo" in on:
        ids = ids % n
    if "one too many" in on:
        ids = ids + 1
    if "one too few" in on:
        ids = torch.where(ids == 0, n, ids) - 1
    if "by position" in on and ids.ndim:
        ids = torch.arange(ids.shape[-1]).expand(ids.shape)
    if "sorted" in on and ids.ndim:
        ids = ids.sort(-1).values
    if "each id once" in on:
        ids = ids.unique()
    return ids


LOOKED_UP = {
    "scaled": lambda out: out * math.sqrt(out.shape[-1]),
    "positions summed": lambda out: out.sum(-2) if out.ndim > 1 else out,
    "positions averaged": lambda out: out.mean(-2) if out.ndim > 1 else out,
    "flattened": lambda out: out.reshape(-1, out.shape[-1]),
    "joined": lambda out: out.flatten(-2) if out.ndim > 1 else out,
    "axes of 1 lost": lambda out: out.squeeze(),
    "transposed": lambda out: out.mT if out.ndim > 1 else out,
}


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _eighths(g: Generator, *shape: int) -> Tensor:
    """Numbers of which bf16 loses nothing, neither in a product nor in a sum of a few."""
    return torch.randint(-4, 5, shape, generator=g) / 4


def _ids(g: Generator, *shape: int, below: int = 7) -> Tensor:
    return torch.randint(below, shape, generator=g)


LINEAR = Exercise(
    name="linear",
    lesson="02",
    reference=linear,
    probes=(
        Probe(
            "one dot product with each row of the weight: of 1 2 with 3 4 and with 5 6",
            lambda g: (torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])),
        ),
        Probe(
            "two inputs, three outputs",
            lambda g: (torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0], [7.0, -8.0]])),
        ),
        Probe("inputs of 0 give outputs of 0: there is no bias", lambda g: (torch.zeros(3), _x(g, 2, 3))),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 3, 3), _x(g, 3, 3))),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 4, 5), _x(g, 3, 5))),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5))),
        Probe("any leading dimensions", lambda g: (_x(g, 2, 3, 4, 5), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 1, 4, 1), _x(g, 3, 1))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 2, 1, 5), _x(g, 1, 5))),
        Probe("any strides", lambda g: (_x(g, 5, 4, 2).transpose(0, 2), _x(g, 5, 3).mT)),
        Probe("gradients reach x and weight", lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5)), gradients=True),
        Probe("fp64 in, fp64 out", lambda g: (_x(g, 4, 5).double(), _x(g, 3, 5).double())),
        Probe("bf16 in, bf16 out", lambda g: (_eighths(g, 2, 4, 5).bfloat16(), _eighths(g, 3, 5).bfloat16())),
    ),
    **texts("linear"),
)
EMBEDDING = Exercise(
    name="embedding",
    lesson="02",
    reference=embedding,
    probes=(
        Probe(
            "ids 2 and 0 name row 2 and row 0",
            lambda g: (torch.tensor([2, 0]), torch.tensor([[0.1, 0.2, 0.3], [1.1, 1.2, 1.3], [2.1, 2.2, 2.3]])),
        ),
        Probe("an id gives the same row at every position", lambda g: (torch.tensor([1, 3, 1, 0]), _x(g, 4, 2))),
        Probe("the first row and the last row have ids, too", lambda g: (torch.tensor([6, 0, 6, 3]), _x(g, 7, 3))),
        Probe("any leading dimensions", lambda g: (_ids(g, 2, 4), _x(g, 7, 5))),
        Probe("any leading dimensions", lambda g: (_ids(g, 2, 3, 4), _x(g, 7, 5))),
        Probe("any leading dimensions: a single id, too", lambda g: (torch.tensor(4), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_ids(g, 1, 3), _x(g, 7, 1))),
        Probe("any strides", lambda g: (_ids(g, 4, 2).mT, _x(g, 5, 7).mT)),
        Probe(
            "gradients reach the table: a row that is looked up twice gets both",
            lambda g: (torch.tensor([[2, 0, 2], [4, 2, 0]]), _x(g, 6, 3)),
            gradients=True,
        ),
        Probe("the dtype is the table's", lambda g: (_ids(g, 2, 4), _x(g, 7, 5).double())),
        Probe("the dtype is the table's", lambda g: (_ids(g, 2, 4), _x(g, 7, 5).bfloat16())),
        Probe(
            "a negative id is an IndexError, not a row counted from the end",
            lambda g: (torch.tensor([2, -1, 0]), _x(g, 7, 5)),
        ),
        Probe("an id of V or more is an IndexError", lambda g: (torch.tensor([2, 7, 0]), _x(g, 7, 5))),
        Probe("ids far outside are an IndexError", lambda g: (torch.tensor([[1, -100]]), _x(g, 7, 5))),
        Probe("ids far outside are an IndexError", lambda g: (torch.tensor([[50_000], [1]]), _x(g, 7, 5))),
    ),
    **texts("embedding"),
)

EXERCISES = (LINEAR, EMBEDDING)
