"""Lesson 12: cutting off what is unlikely."""

import math
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts


def top_k_probs(probs: Tensor, k: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The k largest of probs (..., V), exactly k, made to sum to 1, 0 elsewhere, and the mistakes
    that are `on`.
    """
    k = chosen(on, k, {
        "always two": lambda: 2,
        "one less": lambda: k - 1,
        "one more": lambda: k + 1,
    })  # fmt: skip
    k = min(k, probs.shape[-1])
    if "over the batch" in on:
        return top_k_probs(probs.T, min(k, probs.shape[0]), on - {"over the batch"}).T
    if "k for all rows" in on:
        return top_k_probs(probs.flatten(), k).view_as(probs)
    if "k for all rows, each its sum" in on:
        kept = top_k_probs(probs.flatten(), k, frozenset({"not renormalised"})).view_as(probs)
        return kept / kept.sum(-1, keepdim=True)
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
    keep = chosen(on, keep, {
        "ties kept": lambda: probs >= lowest,
        "ties dropped": lambda: probs > lowest,
        "above the next": lambda: probs > probs.topk(min(k + 1, probs.shape[-1])).values[..., -1:],
    })  # fmt: skip
    if "cuts the best" in on:
        keep = ~keep
    return _shared_out(probs, keep, on)


def _shared_out(probs: Tensor, keep: Tensor, on: frozenset[str]) -> Tensor:
    """What is kept, made to sum to 1."""
    kept = probs.where(keep, 0.0)
    if "even" in on:
        kept = keep.to(probs.dtype)
    if "a little for the others" in on:
        kept = probs.where(keep, 0.01)
    if "square" in on:
        kept = kept.square()
    size = kept.sum(-1, keepdim=True)
    return chosen(on, kept / size, {
        "not renormalised": lambda: kept,
        "minus infinity": lambda: probs.masked_fill(~keep, -torch.inf),
        "softmax of the kept": lambda: probs.masked_fill(~keep, -torch.inf).softmax(-1),
        "softmax of all": lambda: kept.softmax(-1),
        "rest to the best": lambda: kept.scatter_add(-1, probs.argmax(-1, keepdim=True), 1 - size),
        "rest spread": lambda: (kept + (1 - size) / keep.sum(-1, keepdim=True)).where(keep, 0.0),
        "by the largest": lambda: kept / kept.amax(-1, keepdim=True),
        "one sum for all rows": lambda: kept / kept.sum(),
        "logarithm": lambda: (kept / size).log(),
    })  # fmt: skip


def _shares(g: Generator, *shape: int) -> Tensor:
    return (1.5 * torch.randn(shape, generator=g)).softmax(-1)


def _just_below_1() -> Tensor:
    """Probabilities whose sum in fp32 is the largest number below 1, in whatever order they are
    added.
    """
    return torch.tensor([2, 4, 16, 16, 8, 2, 8, 8 - 2**-18, 0]) / 64


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
        Probe(
            "the k most probable tokens stay and sum to 1",
            lambda g: (torch.tensor([0.2, 0.5, 0.05, 0.25]), 2),
        ),
        Probe(
            "the k most probable tokens stay and sum to 1",
            lambda g: (torch.tensor([0.1, 0.2, 0.3, 0.4]), 3),
        ),
        Probe("with k = 1 the best token stays", lambda g: (torch.tensor([0.3, 0.6, 0.1]), 1)),
        Probe("with k = V all tokens stay", lambda g: (torch.tensor([0.3, 0.6, 0.1]), 3)),
        Probe(
            "exactly k of equal tokens stay",
            lambda g: (torch.tensor([0.25, 0.25, 0.25, 0.25]), 3),
            sees=_ranked,
        ),
        Probe(
            "exactly k of equal tokens stay",
            lambda g: (torch.tensor([0.1, 0.2, 0.4, 0.2, 0.1]), 2),
            sees=_ranked,
        ),
        Probe(
            "exactly k of equal tokens stay",
            lambda g: (torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.3, 0.5]]), 1),
            sees=_ranked,
        ),
        Probe("each row is a distribution of its own", lambda g: (_shares(g, 3, 7), 3)),
        Probe("each row is a distribution of its own", lambda g: (_shares(g, 6, 5), 4)),
        Probe("a single row keeps its two axes", lambda g: (_shares(g, 1, 6), 2)),
        Probe("there may be as many rows as tokens", lambda g: (_shares(g, 4, 4), 2)),
        Probe(
            "tokens of probability 0 keep the probability 0",
            lambda g: (torch.tensor([0.0, 0.75, 0.0, 0.25]), 2),
        ),
        Probe(
            "transposed probabilities are accepted",
            lambda g: (_shares(g, 3, 8).T.contiguous().T, 5),
        ),
    ),
    **texts("top_k_probs"),
    wider=True,
)


def top_p_probs(probs: Tensor, p: float, on: frozenset[str] = frozenset()) -> Tensor:
    """The most probable of probs (..., V) up to the one that crosses p, made to sum to 1, and the
    mistakes that are `on`.
    """
    if "over the batch" in on and probs.ndim > 1:
        return top_p_probs(probs.T, p, on - {"over the batch"}).T
    if "always 0.9" in on or "the rest of p" in on:
        p = 0.9 if "always 0.9" in on else 1 - p
    V = probs.shape[-1]
    ranked, order = probs.sort(-1, descending="least first" not in on)
    if "not sorted" in on:
        ranked = probs
        order = torch.arange(V).expand_as(probs)
    sums = ranked.cumsum(-1)
    before = sums - ranked
    is_best = torch.arange(V) == 0
    kept = chosen(on, before < p, {
        "one behind p": lambda: before <= p,
        "crossing one cut": lambda: sums <= p,
        "at least one": lambda: (sums <= p) | is_best,
        "one more": lambda: (
            torch.cat((torch.ones_like(probs[..., :1]), before[..., :-1] < p), -1).bool()
        ),
        "first one subtracted": lambda: sums - ranked[..., :1] < p,
        "p never reached": lambda: torch.arange(V) <= (sums >= p).int().argmax(-1, keepdim=True),
        "sum over all rows": lambda: ranked.flatten().cumsum(0).view_as(ranked) - ranked < p,
        "share of tokens": lambda: torch.arange(V).expand_as(probs) < math.ceil(p * V),
    })  # fmt: skip
    if {"all rows as the first", "all rows as the longest"} & on and probs.ndim > 1:
        kept = (kept[0] if "all rows as the first" in on else kept.any(0)).expand_as(kept)
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
    best = probs.amax(-1, keepdim=True)
    return chosen(on, keep, {
        "above p": lambda: probs >= p,
        "above p, or the best": lambda: (probs >= p) | (probs == best),
        "above 1 - p": lambda: probs >= 1 - p,
        "share of the best": lambda: probs >= p * best,
    })  # fmt: skip


TOP_P_PROBS = Exercise(
    name="top_p_probs",
    lesson="12",
    order=1,
    reference=top_p_probs,
    probes=(
        Probe(
            "the token that crosses p stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.9)
        ),
        Probe("the best token always stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.4)),
        Probe(
            "the token that crosses p stays", lambda g: (torch.tensor([0.5, 0.3, 0.15, 0.05]), 0.6)
        ),
        Probe(
            "the tokens may be in any order", lambda g: (torch.tensor([0.1, 0.2, 0.4, 0.3]), 0.6)
        ),
        Probe(
            "the tokens may be in any order", lambda g: (torch.tensor([0.05, 0.15, 0.5, 0.3]), 0.75)
        ),
        Probe(
            "the tokens may be in any order",
            lambda g: (torch.tensor([0.25, 0.08, 0.3, 0.02, 0.35]), 0.7),
        ),
        Probe(
            "with a tiny p the best token stays", lambda g: (torch.tensor([0.2, 0.35, 0.45]), 0.01)
        ),
        Probe(
            "with p = 1 all tokens stay", lambda g: (torch.tensor([0.125, 0.5, 0.125, 0.25]), 1.0)
        ),
        Probe("with p = 1 all tokens stay", lambda g: (_just_below_1(), 1.0)),
        Probe(
            "equal tokens stay until their sum reaches p",
            lambda g: (torch.full((5,), 0.2), 0.5),
            sees=_ranked,
        ),
        Probe(
            "a sum of exactly p is enough", lambda g: (torch.full((4,), 0.25), 0.5), sees=_ranked
        ),
        Probe(
            "each row is a distribution of its own",
            lambda g: (torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.35, 0.4]]), 0.65),
        ),
        Probe("each row is a distribution of its own", lambda g: (_shares(g, 3, 7), 0.8)),
        Probe("each row is a distribution of its own", lambda g: (_shares(g, 6, 5), 0.55)),
        Probe("there may be as many rows as tokens", lambda g: (_shares(g, 4, 4), 0.7)),
        Probe("a single row keeps its two axes", lambda g: (_shares(g, 1, 6), 0.6)),
        Probe(
            "transposed probabilities are accepted",
            lambda g: (_shares(g, 3, 8).T.contiguous().T, 0.85),
        ),
    ),
    **texts("top_p_probs"),
    wider=True,
)

EXERCISES = (TOP_K_PROBS, TOP_P_PROBS)
