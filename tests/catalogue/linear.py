"""Lesson 02: right variants of its exercises, mistakes, and the library's own."""

import math

import torch
import torch.nn.functional as F

from catalogue import named
from tinylm_lib import layers


def linear_flattened_and_back(x, weight):
    flat = x.reshape(-1, x.size(-1))
    return (weight @ flat.t()).t().reshape(*x.shape[:-1], weight.size(0))


def linear_by_inputs(x, weight):
    out = torch.zeros(*x.shape[:-1], len(weight), dtype=x.dtype)
    for i in range(x.shape[-1]):
        out = out + x[..., i, None] * weight[:, i]
    return out


def check_range(ids, weight):
    if (ids < 0).any() or (ids >= weight.shape[0]).any():
        raise IndexError(f"ids must lie in 0..{weight.shape[0] - 1}")


def embedding_by_index(ids, weight):
    if ids.min() < 0:
        raise IndexError("negative id")
    return weight[ids]


def embedding_by_one_hot(ids, weight):
    check_range(ids, weight)
    return F.one_hot(ids, len(weight)).to(weight.dtype) @ weight


def embedding_by_index_select(ids, weight):
    check_range(ids, weight)
    return weight.index_select(0, ids.reshape(-1)).view(*ids.shape, weight.shape[1])


def embedding_by_loop(ids, weight):
    rows = []
    for i in ids.flatten().tolist():
        if not 0 <= i < len(weight):
            raise IndexError(i)
        rows.append(weight[i])
    return torch.stack(rows).reshape(*ids.shape, -1)


def embedding_by_gather(ids, weight):
    check_range(ids, weight)
    places = ids.reshape(-1, 1).expand(-1, weight.shape[1])
    return weight.gather(0, places).reshape(ids.shape + weight.shape[1:])


def embedding_by_comparison(ids, weight):
    check_range(ids, weight)
    return (ids.unsqueeze(-1) == torch.arange(len(weight))).to(weight) @ weight


def embedding_by_recursion(ids, weight):
    if ids.ndim == 0:
        check_range(ids, weight)
        return weight[ids.item()]
    return torch.stack([embedding_by_recursion(i, weight) for i in ids])


def _linear(weight):
    return layers.Linear(weight.shape[1], weight.shape[0])


RIGHT = {
    "linear": named(
        linear_flattened_and_back, linear_by_inputs, F.linear,
        linear_by_product=lambda x, weight: x @ weight.T,
        linear_by_einsum=lambda x, weight: torch.einsum("...i,oi->...o", x, weight),
        linear_by_sum=lambda x, weight: (x.unsqueeze(-2) * weight).sum(-1),
        linear_by_rows=lambda x, weight: torch.stack([(x * row).sum(-1) for row in weight], dim=-1),
        linear_in_double=lambda x, weight: torch.tensordot(x.double(), weight.double(), dims=([-1], [1])).to(x.dtype),
    ),
    "embedding": named(
        F.embedding, embedding_by_index, embedding_by_one_hot, embedding_by_index_select, embedding_by_loop,
        embedding_by_gather, embedding_by_comparison, embedding_by_recursion,
    ),
}  # fmt: skip
WRONG = {
    "linear": named(
        not_transposed=lambda x, weight: x @ weight.reshape(weight.shape[1], weight.shape[0]),
        only_one_row=lambda x, weight: (weight @ x.reshape(-1, x.shape[-1])[0]).expand(*x.shape[:-1], -1),
        mean=lambda x, weight: (x @ weight.T) / x.shape[-1],
        scaled_by_root=lambda x, weight: (x @ weight.T) / math.sqrt(x.shape[-1]),
        with_ones=lambda x, weight: x @ weight.T + torch.ones(weight.shape[0]),
        relu=lambda x, weight: torch.relu(x @ weight.T),
        numpy=lambda x, weight: torch.from_numpy(x.detach().numpy() @ weight.detach().numpy().T),
        flat=lambda x, weight: x.reshape(-1, x.shape[-1]) @ weight.T,
        abs=lambda x, weight: x @ weight.abs().T,
        float=lambda x, weight: (x.float() @ weight.float().T).float(),
    ),
    "embedding": named(
        columns=lambda ids, weight: weight.T[ids] if int(ids.max()) < weight.shape[1] else weight[ids],
        indexed=lambda ids, weight: weight[ids],
        modulo=lambda ids, weight: weight[ids % len(weight)],
        clamped=lambda ids, weight: F.embedding(ids.clamp(0, len(weight) - 1), weight),
        scaled=lambda ids, weight: F.embedding(ids, weight) * weight.shape[1] ** 0.5,
        one_short=lambda ids, weight: F.embedding((ids - 1).clamp(min=0), weight),
        unit=lambda ids, weight: F.normalize(F.embedding(ids, weight), dim=-1),
        detached=lambda ids, weight: torch.stack([weight[i].detach() for i in ids.flatten()]).view(*ids.shape, -1),
        onehot_int=lambda ids, weight: F.one_hot(ids, len(weight)) @ weight,
    ),
}  # fmt: skip
LIBRARY = {"linear": lambda x, weight: torch.func.functional_call(_linear(weight), {"weight": weight}, (x,))}
