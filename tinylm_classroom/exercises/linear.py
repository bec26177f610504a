"""Lesson 02: a linear map is dot products, an embedding is a row that is looked up."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, slipped, texts


def linear(x: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """One dot product of x (..., in) with each row of weight (out, in): (..., out), and the
    mistakes that are `on`.
    """
    x = slipped(on, x, {
        "first vector alone": lambda x: x.reshape(-1, x.shape[-1])[0],
        "x cut": Tensor.detach,
        "fp32": Tensor.float,
        "first input left out": lambda x: x[..., 1:],
        "last input left out": lambda x: x[..., :-1],
    })  # fmt: skip
    weight = slipped(on, weight, {
        "weight cut": Tensor.detach,
        "fp32": Tensor.float,
        "unit rows": lambda weight: F.normalize(weight, dim=-1),
        "first input left out": lambda weight: weight[:, 1:],
        "last input left out": lambda weight: weight[:, :-1],
    })  # fmt: skip
    if "in place" in on:
        weight.t_()
    products = {
        "weight first": lambda: weight @ x,
        "result transposed": lambda: weight @ (x.mT if x.ndim > 1 else x),
        "first axis of x": lambda: torch.einsum("i...,oi->...o", x, weight),
        "one output": lambda: x @ weight[0],
        "not summed": lambda: x[..., None, :] * weight,
        "in place": lambda: x @ weight,
        "not transposed": lambda: x @ weight,
        "reshaped": lambda: x @ weight.reshape(weight.shape[::-1]),
    }
    made = next(
        (product for fault, product in products.items() if fault in on), lambda: x @ weight.mT
    )
    return slipped(on, made(), {
        "mean": lambda out: out / x.shape[-1],
        "scaled": lambda out: out / math.sqrt(x.shape[-1]),
        "bias": lambda out: out + 1,
        "relu": torch.relu,
        "softmax": lambda out: out.softmax(-1),
        "last output 0": lambda out: torch.cat([out[..., :-1], 0 * out[..., -1:]], -1),
        "flattened": lambda out: out.reshape(-1, out.shape[-1]),
        "axes of 1 lost": torch.squeeze,
        "positions summed": lambda out: out.reshape(-1, out.shape[-1]).sum(0),
        "x added": lambda out: out + x if out.shape == x.shape else out,
    })  # fmt: skip


def embedding(ids: Tensor, weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows of weight (V, C) that ids (...) name: (..., C), and the mistakes that are `on`."""
    n = len(weight)
    places = slipped(on, ids, PLACES | {
        "from the end": lambda ids: torch.where((ids < 0) & (ids >= -n), ids + n, ids),
        "clamped": lambda ids: ids.clamp(0, n - 1),
        "zeros outside": lambda ids: ids.clamp(0, n - 1),
        "modulo": lambda ids: ids % n,
        "one too few": lambda ids: torch.where(ids == 0, n, ids) - 1,
    })  # fmt: skip
    if ((places < 0) | (places >= n)).any():
        kinds = {
            "AssertionError": AssertionError,
            "ValueError": ValueError,
            "RuntimeError": RuntimeError,
        }
        raise next((kind for fault, kind in kinds.items() if fault in on), IndexError)(
            "an id is out of range"
        )
    if "table changed" in on:
        with torch.no_grad():
            weight[ids] /= weight[ids].norm(dim=-1, keepdim=True)
    weight = slipped(on, weight, {
        "unit rows": lambda weight: F.normalize(weight, dim=-1),
        "table cut": Tensor.detach,
        "fp32": Tensor.float,
        "columns": lambda weight: weight.mT,
    })  # fmt: skip
    is_padded = "padding" in on or "padding not learnt" in on
    out = F.embedding(
        places, weight, 0 if is_padded else None, scale_grad_by_freq="by frequency" in on
    )
    return slipped(on, out, LOOKED_UP | {
        "zeros outside": lambda out: out * ((ids >= 0) & (ids < n))[..., None],
        "padding": lambda out: out * (ids != 0)[..., None],
    })  # fmt: skip


PLACES = {
    "negative is 0": lambda ids: ids.clamp(min=0),
    "one too many": lambda ids: ids + 1,
    "by position": lambda ids: torch.arange(ids.shape[-1]).expand(ids.shape) if ids.ndim else ids,
    "sorted": lambda ids: ids.sort(-1).values if ids.ndim else ids,
    "each id once": torch.unique,
}
LOOKED_UP = {
    "scaled": lambda out: out * math.sqrt(out.shape[-1]),
    "positions summed": lambda out: out.sum(-2) if out.ndim > 1 else out,
    "positions averaged": lambda out: out.mean(-2) if out.ndim > 1 else out,
    "flattened": lambda out: out.reshape(-1, out.shape[-1]),
    "joined": lambda out: out.flatten(-2) if out.ndim > 1 else out,
    "axes of 1 lost": torch.squeeze,
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
            "each output is the dot product of x with a row of the weight",
            lambda g: (torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])),
        ),
        Probe(
            "each row of the weight gives an output",
            lambda g: (
                torch.tensor([1.0, 2.0]),
                torch.tensor([[3.0, 4.0], [5.0, 6.0], [7.0, -8.0]]),
            ),
        ),
        Probe(
            "inputs of 0 give outputs of 0: there is no bias",
            lambda g: (torch.zeros(3), _x(g, 2, 3)),
        ),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 3, 3), _x(g, 3, 3))),
        Probe("each vector of x is mapped by itself", lambda g: (_x(g, 4, 5), _x(g, 3, 5))),
        Probe("x may have any leading dimensions", lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5))),
        Probe("x may have any leading dimensions", lambda g: (_x(g, 2, 3, 4, 5), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 1, 4, 1), _x(g, 3, 1))),
        Probe("a dimension of size 1 stays", lambda g: (_x(g, 2, 1, 5), _x(g, 1, 5))),
        Probe(
            "transposed tensors are accepted",
            lambda g: (_x(g, 5, 4, 2).transpose(0, 2), _x(g, 5, 3).mT),
        ),
        Probe(
            "gradients flow back to x and weight",
            lambda g: (_x(g, 2, 4, 5), _x(g, 3, 5)),
            gradients=True,
        ),
        Probe(
            "the result has the dtype of x and weight",
            lambda g: (_x(g, 4, 5).double(), _x(g, 3, 5).double()),
        ),
        Probe(
            "the result has the dtype of x and weight",
            lambda g: (_eighths(g, 2, 4, 5).bfloat16(), _eighths(g, 3, 5).bfloat16()),
        ),
    ),
    **texts("linear"),
)
EMBEDDING = Exercise(
    name="embedding",
    lesson="02",
    reference=embedding,
    probes=(
        Probe(
            "the ids 2 and 0 give row 2 and row 0",
            lambda g: (
                torch.tensor([2, 0]),
                torch.tensor([[0.1, 0.2, 0.3], [1.1, 1.2, 1.3], [2.1, 2.2, 2.3]]),
            ),
        ),
        Probe(
            "an id gives the same row at every position",
            lambda g: (torch.tensor([1, 3, 1, 0]), _x(g, 4, 2)),
        ),
        Probe(
            "the ids 0 and V - 1 give the first row and the last row",
            lambda g: (torch.tensor([6, 0, 6, 3]), _x(g, 7, 3)),
        ),
        Probe("the ids may have any shape", lambda g: (_ids(g, 2, 4), _x(g, 7, 5))),
        Probe("the ids may have any shape", lambda g: (_ids(g, 2, 3, 4), _x(g, 7, 5))),
        Probe("a single id gives a single row", lambda g: (torch.tensor(4), _x(g, 7, 5))),
        Probe("a dimension of size 1 stays", lambda g: (_ids(g, 1, 3), _x(g, 7, 1))),
        Probe("transposed tensors are accepted", lambda g: (_ids(g, 4, 2).mT, _x(g, 5, 7).mT)),
        Probe(
            "gradients flow back to the table, and a row that is looked up twice gets both",
            lambda g: (torch.tensor([[2, 0, 2], [4, 2, 0]]), _x(g, 6, 3)),
            gradients=True,
        ),
        Probe(
            "the result has the dtype of the table", lambda g: (_ids(g, 2, 4), _x(g, 7, 5).double())
        ),
        Probe(
            "the result has the dtype of the table",
            lambda g: (_ids(g, 2, 4), _x(g, 7, 5).bfloat16()),
        ),
        Probe(
            "a negative id raises an IndexError",
            lambda g: (torch.tensor([2, -1, 0]), _x(g, 7, 5)),
        ),
        Probe(
            "an id of V or more raises an IndexError",
            lambda g: (torch.tensor([2, 7, 0]), _x(g, 7, 5)),
        ),
        Probe(
            "an id far out of range raises an IndexError",
            lambda g: (torch.tensor([[1, -100]]), _x(g, 7, 5)),
        ),
        Probe(
            "an id far out of range raises an IndexError",
            lambda g: (torch.tensor([[50_000], [1]]), _x(g, 7, 5)),
        ),
    ),
    **texts("embedding"),
)

EXERCISES = (LINEAR, EMBEDDING)
