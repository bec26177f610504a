"""From logits to the probabilities to sample from, and one draw from them. Notebook 12."""

import math
from numbers import Integral, Real

import torch
from torch import Tensor

from .inputs import check_number
from .layers import at_least_fp32, values_at_hand

TINIEST = 1e-30  # smaller numbers and their inverses leave fp32 no room


def next_token_probs(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
) -> Tensor:
    """Turn logits into the probabilities to sample from. The options apply in this order.

    Each option is applied to the result of the one before. logits (B, V). temperature: logits are
    divided by it; 0 puts everything on the largest logit, the first of equals.
    top_k: keep the k most probable tokens, exactly k, the lower id first among equals. top_p: keep
    the most probable tokens up to and including the one that reaches this total probability. min_p:
    keep tokens with at least this fraction of the most probable one's probability.
    Returns (B, V) in fp32 at least; rows sum to 1, cut tokens have exactly 0.
    Raises ValueError for an option out of range and, on CPU, for logits without a finite maximum
    (NaN or inf).
    """
    check_options(logits.shape[-1], temperature, top_k, top_p, min_p)
    logits = at_least_fp32(logits)
    largest = logits.amax(-1, keepdim=True)  # (B, 1)
    if values_at_hand(logits):
        check_finite(largest)
    if temperature == 0:
        best = logits.argmax(-1, keepdim=True)  # (B, 1)
        return torch.zeros_like(logits).scatter(-1, best, 1.0)  # (B, V)
    warmth = min(max(temperature, TINIEST), 1 / TINIEST)
    probs = ((logits - largest) / warmth).softmax(-1)
    if top_k is None and top_p is None and min_p is None:
        return probs
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)  # (B, V), (B, V)
    if top_k is not None:
        ranked = _renormalise(ranked, torch.arange(ranked.shape[-1], device=ranked.device) < top_k)
    if top_p is not None and top_p < 1:  # a sum of many probabilities may round to more than 1
        ranked = _renormalise(ranked, ranked.cumsum(-1) - ranked < max(top_p, TINIEST))
    if min_p is not None:
        ranked = _renormalise(ranked, ranked >= min_p * ranked[..., :1])
    return torch.zeros_like(probs).scatter(-1, order, ranked)  # (B, V)


def _renormalise(probs: Tensor, keep: Tensor) -> Tensor:
    kept = probs.where(keep, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def check_finite(maxima: Tensor) -> None:
    """Raise ValueError unless all maxima of logits, (B,) or (B, 1), are finite."""
    if not maxima.isfinite().all():
        raise ValueError(
            f"logits have the maximum {maxima[~maxima.isfinite()][0].item()} in some row; NaN or "
            "inf there usually comes from weights that diverged in training"
        )


def check_options(
    V: int, temperature: float, top_k: int | None, top_p: float | None, min_p: float | None
) -> None:
    """Raise ValueError, naming option and range, where `next_token_probs` cannot follow."""
    warmth = "0 (greedy) or positive and finite"
    check_number("temperature", temperature, Real, lambda t: 0 <= t < math.inf, warmth)
    if top_k is not None:
        counts = f"an integer from 1 to {V} (vocab_size)"
        check_number("top_k", top_k, Integral, lambda k: 1 <= k <= V, counts)
    if top_p is not None:
        check_number("top_p", top_p, Real, lambda p: 0 < p <= 1, "above 0 and at most 1")
    if min_p is not None:
        check_number("min_p", min_p, Real, lambda p: 0 <= p <= 1, "from 0 to 1")


def sample(probs: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw one token per row. probs (B, V). Returns (B,).

    A random point between 0 and the sum falls into the stretch of one token, with that token's
    probability. In fp64, where the device has it: rounding would give a rare token of a large
    vocabulary too much or nothing. One number a row and no device sync, unlike torch.multinomial.
    """
    precise = probs.dtype if probs.device.type == "mps" else torch.float64
    ends = probs.cumsum(-1, dtype=precise)  # (B, V)
    # what torch.rand does; with a generator, even None, it does not compile for an open batch size
    point = probs.new_empty(len(probs), 1, dtype=precise).uniform_(generator=generator)  # (B, 1)
    drawn = torch.searchsorted(ends, point * ends[:, -1:], right=True)[:, 0]  # (B)
    return drawn.clamp_max(probs.shape[-1] - 1)  # where probs are NaN, every comparison is false
