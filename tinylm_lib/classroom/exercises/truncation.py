"""Lesson 12: cutting off what is unlikely."""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def top_k_probs(probs: Tensor, k: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The k largest of probs (..., V), exactly k, made to sum to 1, 0 elsewhere, and the mistakes that are `on`."""
    k = 2 if "always two" in on else k - 1 if "one less" in on else k + 1 if "one more" in on else k
    k = min(k, probs.shape[-1])
    if "over the batch" in on:
        return top_k_probs(probs.T, min(k, probs.shape[0]), on - {"over the batch"}).T
    if "k for all rows" in on:
        return top_k_probs(probs.flatten(), k).view_as(probs)
    best, ids = probs.topk(k, dim=-1, largest="smallest" not in on)
    if "nothing cut" in on:
        return probs
    if "others' probabilities" in on:
        moved = torch.zeros_like(probs).scatter(-1, ids, probs)
        return moved / moved.sum(-1, keepdim=True)
    if "only the kept" in on or "their ids" in on:
        return ids if "their ids" in on else best / best.sum(-1, keepdim=True)
    keep = torch.zeros_like(probs, dtype=torch.bool).scatter(-1, ids, True)
    if "sorted" in on or "mask in sorted order" in on:
        keep = (torch.arange(probs.shape[-1]) < k).expand_as(probs)
        probs = probs.sort(descending=True).values if "sorted" in on else probs
    if "ids of the first row" in on and probs.ndim > 1:
        keep = keep[:1].expand_as(probs)
    lowest = best[..., -1:]
    if "ties kept" in on:
        keep = probs >= lowest
    if "ties dropped" in on:
        keep = probs > lowest
    if "cuts the best" in on:
        keep = ~keep
    return _shared_out(probs, keep, on)


def _shared_out(probs: Tensor, keep: Tensor, on: frozenset[str]) -> Tensor:
    """What is kept, made to sum to 1."""
    kept = probs.where(keep, 0.0)
    if "not renormalised" in on:
        return kept
    if "minus infinity" in on:
        return probs.masked_fill(~keep, -torch.inf)
    if "softmax of the kept" in on:
        return probs.masked_fill(~keep, -torch.inf).softmax(-1)
    if "softmax of all" in on:
        return kept.softmax(-1)
    if "even" in on:
        kept = keep.to(probs.dtype)
    if "a little for the others" in on:
        kept = probs.where(keep, 0.01)
    if "rest to the best" in on:
        rest = 1 - kept.sum(-1, keepdim=True)
        return kept.scatter_add(-1, probs.argmax(-1, keepdim=True), rest)
    if "rest spread" in on:
        return (kept + (1 - kept.sum(-1, keepdim=True)) / keep.sum(-1, keepdim=True)).where(keep, 0.0)
    if "by the largest" in on:
        return kept / kept.amax(-1, keepdim=True)
    if "one sum for all rows" in on:
        return kept / kept.sum()
    if "square" in on:
        kept = kept.square()
    if "logarithm" in on:
        return (kept / kept.sum(-1, keepdim=True)).log()
    return kept / kept.sum(-1, keepdim=True)


def _shares(g: Generator, *shape: int) -> Tensor:
    return (1.5 * torch.randn(shape, generator=g)).softmax(-1)


def _ranked(_: tuple, result: Any) -> Any:
    """The probabilities in falling order: which of equal tokens stays is open."""
    if not isinstance(result, Tensor) or result.ndim == 0 or not result.is_floating_point():
        return result
    return result.sort(-1, descending=True).values


TOP_K_PROBS = Exercise(
    name="top_k_probs",
    lesson="12",
    order=1,
    reference=top_k_probs,
    probes=(
        Probe("the k largest stay and sum to 1", lambda g: (torch.tensor([0.2, 0.5, 0.05, 0.25]), 2)),
        Probe("the k largest stay and sum to 1", lambda g: (torch.tensor([0.1, 0.2, 0.3, 0.4]), 3)),
        Probe("k = 1 leaves the best", lambda g: (torch.tensor([0.3, 0.6, 0.1]), 1)),
        Probe("k = V leaves all", lambda g: (torch.tensor([0.3, 0.6, 0.1]), 3)),
        Probe("of equal ones exactly k stay", lambda g: (torch.tensor([0.25, 0.25, 0.25, 0.25]), 3), sees=_ranked),
        Probe("of equal ones exactly k stay", lambda g: (torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1]), 2), sees=_ranked),
        Probe(
            "of equal ones exactly k stay",
            lambda g: (torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.3, 0.5]]), 1),
            sees=_ranked,
        ),
        Probe("each row by itself", lambda g: (_shares(g, 3, 7), 3)),
        Probe("each row by itself", lambda g: (_shares(g, 6, 5), 4)),
        Probe("one row", lambda g: (_shares(g, 1, 6), 2)),
        Probe("as many rows as tokens", lambda g: (_shares(g, 4, 4), 2)),
        Probe("tokens of probability 0 stay at 0", lambda g: (torch.tensor([0.0, 0.75, 0.0, 0.25]), 2)),
        Probe("any strides", lambda g: (_shares(g, 3, 8).T.contiguous().T, 5)),
    ),
    **texts("top_k_probs"),
)


def top_p_probs(probs: Tensor, p: float, on: frozenset[str] = frozenset()) -> Tensor:
    """The most probable of probs (..., V) up to the one that crosses p, made to sum to 1, and the mistakes that are `on`."""
    if "over the batch" in on and probs.ndim > 1:
        return top_p_probs(probs.T, p, on - {"over the batch"}).T
    if "always 0.9" in on or "the rest of p" in on:
        p = 0.9 if "always 0.9" in on else 1 - p
    V = probs.shape[-1]
    ranked, order = probs.sort(-1, descending="least first" not in on)
    if "not sorted" in on:
        ranked, order = probs, torch.arange(V).expand_as(probs)
    sums = ranked.cumsum(-1)
    kept = sums - ranked <= p if "one behind p" in on else sums - ranked < p
    if "crossing one cut" in on or "at least one" in on:
        kept = sums <= p
    if "at least one" in on:
        kept = kept | (torch.arange(V) == 0)
    if "one more" in on:
        kept = torch.cat((torch.ones_like(kept[..., :1]), kept[..., :-1]), -1)
    if "sum over all rows" in on:
        kept = ranked.flatten().cumsum(0).view_as(ranked) - ranked < p
    if {"all rows as the first", "all rows as the longest"} & on and probs.ndim > 1:
        kept = (kept[0] if "all rows as the first" in on else kept.any(0)).expand_as(kept)
    if "share of tokens" in on:
        kept = torch.arange(V).expand_as(probs) < math.ceil(p * V)
    if "crossing one trimmed" in on:
        ranked = ranked.minimum((p - (sums - ranked)).clamp(min=0))
    if "only the kept" in on and probs.ndim == 1:
        return ranked[kept] / ranked[kept].sum()
    if "sorted" in on:
        return _shared_out(ranked, kept, on)
    if "mask in sorted order" in on:
        return _shared_out(probs, kept, on)
    keep = torch.zeros_like(kept).scatter(-1, order, kept)
    if "order the wrong way" in on:
        keep = kept.gather(-1, order)
    if "ids of the first row" in on and probs.ndim > 1:
        keep = keep[:1].expand_as(probs)
    keep = _by_value(probs, p, keep, on)
    moved = torch.zeros_like(probs).scatter(-1, order, ranked)
    return _shared_out(moved, ~keep if "cuts the best" in on else keep, on)


def _by_value(probs: Tensor, p: float, keep: Tensor, on: frozenset[str]) -> Tensor:
    """Half-remembered rules that look at each probability alone."""
    if "above p" in on:
        return probs >= p
    if "above 1 - p" in on:
        return probs >= 1 - p
    return probs >= p * probs.amax(-1, keepdim=True) if "share of the best" in on else keep


TOP_P_PROBS = Exercise(
    name="top_p_probs",
    lesson="12",
    order=1,
    reference=top_p_probs,
    probes=(
        Probe("the token that crosses p stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.9)),
        Probe("the best token always stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.4)),
        Probe("the token that crosses p stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.6)),
        Probe("tokens are in any order", lambda g: (torch.tensor([0.1, 0.2, 0.4, 0.3]), 0.6)),
        Probe("tokens are in any order", lambda g: (torch.tensor([0.05, 0.15, 0.5, 0.3]), 0.75)),
        Probe("tokens are in any order", lambda g: (torch.tensor([0.25, 0.08, 0.3, 0.02, 0.35]), 0.7)),
        Probe("a tiny p leaves the best", lambda g: (torch.tensor([0.2, 0.35, 0.45]), 0.01)),
        Probe("p = 1 leaves all", lambda g: (torch.tensor([0.125, 0.5, 0.125, 0.25]), 1.0)),
        Probe("equal tokens stay up to p", lambda g: (torch.full((5,), 0.2), 0.5), sees=_ranked),
        Probe("a sum of exactly p is enough", lambda g: (torch.full((4,), 0.25), 0.5), sees=_ranked),
        Probe("each row by itself", lambda g: (torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.35, 0.4]]), 0.65)),
        Probe("each row by itself", lambda g: (_shares(g, 3, 7), 0.8)),
        Probe("each row by itself", lambda g: (_shares(g, 6, 5), 0.55)),
        Probe("as many rows as tokens", lambda g: (_shares(g, 4, 4), 0.7)),
        Probe("one row", lambda g: (_shares(g, 1, 6), 0.6)),
        Probe("any strides", lambda g: (_shares(g, 3, 8).T.contiguous().T, 0.85)),
    ),
    **texts("top_p_probs"),
)

EXERCISES = (TOP_K_PROBS, TOP_P_PROBS)
