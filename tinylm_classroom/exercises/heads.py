"""Lesson 07: several heads look back at once, each in its own part of the features."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .attention import EPS, attention
from .base import Exercise, Probe, chosen, texts


def split_heads(x: Tensor, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Cuts the features of x (B, T, C) into heads, (B, H, T, D) with C = H * D, and the mistakes
    that are `on`.
    """
    B, T, C = x.shape
    H = n_heads
    D = C // n_heads
    if "number and size exchanged" in on:
        H, D = D, H
    return chosen(on, x.reshape(B, T, H, D).transpose(1, 2), {
        "only reshaped": lambda: x.reshape(B, H, T, D),
        "heads not in front": lambda: x.reshape(B, T, H, D),
        "interleaved": lambda: x.reshape(B, T, D, H).permute(0, 3, 1, 2),
        "features turned": lambda: x.reshape(B, T, H, D).permute(0, 2, 3, 1),
        "time and features exchanged": lambda: x.mT.reshape(B, H, T, D),
        "heads before texts": lambda: x.reshape(B, T, H, D).permute(2, 0, 1, 3),
        "texts mixed": lambda: x.reshape(H, B, T, D).transpose(0, 1),
        "positions first": lambda: x.reshape(T, B, H, D).permute(1, 2, 0, 3),
        "texts and heads as one": lambda: x.reshape(B, T, H, D).transpose(1, 2).flatten(0, 1),
        "heads backwards": lambda: x.reshape(B, T, H, D).transpose(1, 2).flip(1),
        "all features for each": lambda: x[:, None].expand(B, H, T, C),
        "first head for all": lambda: x[:, None, :, :D].expand(B, H, T, D),
        "a list": lambda: list(x.split(D, -1)),
    })  # fmt: skip


def merge_heads(x: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """Puts the heads of x (B, H, T, D) side by side again, (B, T, H * D), and the mistakes that are
    `on`.
    """
    B, H, T, D = x.shape
    return chosen(on, x.transpose(1, 2).flatten(2), {
        "only reshaped": lambda: x.reshape(B, T, H * D),
        "viewed": lambda: x.transpose(1, 2).view(B, T, H * D),
        "interleaved": lambda: x.permute(0, 2, 3, 1).reshape(B, T, D * H),
        "time not in front": lambda: x.mT.reshape(B, H * D, T),
        "features turned": lambda: x.mT.reshape(B, T, H * D),
        "heads and features exchanged": lambda: x.transpose(1, 3).reshape(B, T, H * D),
        "not flattened": lambda: x.transpose(1, 2),
        "heads behind each other": lambda: x.reshape(B, H * T, D),
        "one long vector": lambda: x.transpose(1, 2).flatten(1),
        "texts mixed": lambda: x.permute(2, 0, 1, 3).reshape(B, T, H * D),
        "heads backwards": lambda: x.flip(1).transpose(1, 2).flatten(2),
        "summed": lambda: x.sum(1),
        "averaged": lambda: x.mean(1),
        "first head": lambda: x[:, 0],
    })  # fmt: skip


QKV = ("w_q", "w_k", "w_v")


def multi_head_attention(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    n_heads: int,
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """Causal attention of x (B, T, C) to itself in several heads, and the mistakes that are `on`.

    All weights are (out, in) = (C, C). Returns (B, T, C).
    """
    D = x.shape[-1] // n_heads
    H = chosen(on, n_heads, {"one head": lambda: 1, "number and size exchanged": lambda: D})
    roles = {
        "q and k exchanged": (w_k, w_q, w_v), "k and v exchanged": (w_q, w_v, w_k),
        "q and v exchanged": (w_v, w_k, w_q),
        "k from w_q": (w_q, w_q, w_v), "v from w_k": (w_q, w_k, w_k), "q from w_k": (w_k, w_k, w_v),
        "v from x": (w_q, w_k, torch.eye(x.shape[-1], dtype=x.dtype)),
    }  # fmt: skip
    weights = next((ws for fault, ws in roles.items() if fault in on), (w_q, w_k, w_v))
    if "weights transposed" in on:
        weights = [w.T for w in weights]
        w_o = w_o.T
    weights = [
        w.T if f"only {name} transposed" in on else w for name, w in zip(QKV, weights, strict=True)
    ]
    if "only w_o transposed" in on:
        w_o = w_o.T
    if "heads stay behind" in on:
        q, k, v = (F.linear(x, w).unflatten(-1, (H, -1)) for w in weights)
        return F.linear(attention(q, k, v, _causal(H, on), on).flatten(2), w_o)
    q, k, v = (split_heads(F.linear(x, w), H, _inside(on, "split")) for w in weights)
    if "scaled by C" in on:
        q = q * (D / x.shape[-1]) ** 0.5
    out = attention(q, k, v, _causal(x.shape[1], on), on)
    if on & {"heads summed", "heads averaged"}:
        y = (out.sum(1) if "heads summed" in on else out.mean(1)).repeat(1, 1, H)
    else:
        y = merge_heads(out, _inside(on, "merged"))
    if "no output projection" in on:
        return y
    return F.linear(y, w_o) + x if "x added" in on else F.linear(y, w_o)


def _inside(on: frozenset[str], step: str) -> frozenset[str]:
    """The mistakes that the split or the merge makes."""
    if on & {f"{step} by reshaping", "both reshaped"}:
        return frozenset({"only reshaped"})
    return frozenset({"interleaved"} if on & {f"{step} interleaved", "both interleaved"} else ())


def _causal(n: int, on: frozenset[str]) -> Tensor:
    """Who may look at whom: (n, n), True = allowed."""
    i = torch.arange(n)[:, None]
    j = torch.arange(n)
    return (
        j >= i
        if "future" in on
        else j - i <= ("one too many" in on) - bool(on & {"strict", "strict, finite"})
    )


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _counted(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


SPLIT_HEADS = Exercise(
    name="split_heads",
    lesson="07",
    reference=split_heads,
    probes=(
        Probe("a vector of 6 becomes two heads of 3", lambda g: (_counted(1, 1, 6), 2)),
        Probe("each head has its features of every position", lambda g: (_counted(1, 2, 3), 3)),
        Probe("a head is a block of neighbouring features", lambda g: (_counted(1, 4, 6), 3)),
        Probe("B, H, T, D in this order", lambda g: (_x(g, 2, 5, 12), 3)),
        Probe("each text by itself", lambda g: (_x(g, 3, 4, 10), 5)),
        Probe("as many positions as heads", lambda g: (_x(g, 2, 4, 12), 4)),
        Probe("one head gets everything", lambda g: (_x(g, 3, 4, 5), 1)),
        Probe("a single position", lambda g: (_x(g, 5, 1, 6), 2)),
        Probe("any strides", lambda g: (_x(g, 5, 3, 8).transpose(0, 1), 4)),
        Probe("gradients reach x", lambda g: (_x(g, 2, 5, 6), 3), gradients=True),
        Probe("the dtype is kept", lambda g: (_x(g, 2, 5, 6).bfloat16(), 2)),
    ),
    **texts("split_heads"),
)
MERGE_HEADS = Exercise(
    name="merge_heads",
    lesson="07",
    reference=merge_heads,
    probes=(
        Probe("two heads of 3 become a vector of 6", lambda g: (_counted(1, 2, 1, 3),)),
        Probe("a position gets what its heads found", lambda g: (_counted(1, 3, 2, 1),)),
        Probe("the heads are side by side as blocks", lambda g: (_counted(1, 3, 2, 4),)),
        Probe("B, T, C in this order", lambda g: (_x(g, 2, 3, 5, 4),)),
        Probe("each text by itself", lambda g: (_x(g, 3, 5, 4, 2),)),
        Probe("as many positions as heads", lambda g: (_x(g, 2, 4, 4, 3),)),
        Probe("one head", lambda g: (_x(g, 3, 1, 4, 5),)),
        Probe("a single position", lambda g: (_x(g, 5, 3, 1, 2),)),
        Probe("it undoes the split", lambda g: (_x(g, 2, 5, 3, 4).transpose(1, 2),)),
        Probe("any strides", lambda g: (_x(g, 3, 2, 4, 5).permute(1, 0, 3, 2),)),
        Probe("gradients reach x", lambda g: (_x(g, 2, 3, 5, 4),), gradients=True),
        Probe("the dtype is kept", lambda g: (_x(g, 2, 3, 5, 4).bfloat16(),)),
    ),
    **texts("merge_heads"),
)


def _all(g: Generator, B: int, T: int, C: int) -> tuple[Tensor, ...]:
    """x and four weights; the scores have a standard deviation near 2."""
    return _x(g, B, T, C), *(_x(g, C, C) * (C**-0.25 if i < 2 else 1) for i in range(4))


def _far_below(g: Generator) -> tuple:
    """All scores near -131,072: a feature that is 1 everywhere becomes 512 in every query and -512
    in every key.

    Whole numbers and a root of 4: every way to compute these scores gives the same.
    """
    x, w_q, w_k, w_v, w_o = (t.round() for t in _all(g, 2, 5, 8))
    x[..., 0] = 1.0
    for w, number in ((w_q, 512.0), (w_k, -512.0)):
        w[0::4] = 0.0
        w[0::4, 0] = number
    return x, w_q, w_k, w_v, w_o, 2


MULTI_HEAD_ATTENTION = Exercise(
    name="multi_head_attention",
    lesson="07",
    reference=multi_head_attention,
    probes=(
        Probe(
            "position 0 fetches its own value",
            lambda g: (
                torch.tensor([[[1.0, 2.0]]]),
                torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
                torch.tensor([[2.0, -1.0], [1.0, 3.0]]),
                torch.tensor([[1.0, 2.0], [-3.0, 4.0]]),
                torch.tensor([[1.0, 10.0], [2.0, 1.0]]),
                2,
            ),
        ),
        Probe("each text and position by itself: w_v, then w_o", lambda g: (*_all(g, 3, 1, 6), 3)),
        Probe("with one head it is causal attention", lambda g: (*_all(g, 1, 4, 3), 1)),
        Probe("no position sees a later one", lambda g: (*_all(g, 2, 5, 4), 1)),
        Probe(
            "each head compares and fetches in its own features", lambda g: (*_all(g, 1, 4, 6), 2)
        ),
        Probe(
            "each head compares and fetches in its own features", lambda g: (*_all(g, 2, 7, 12), 3)
        ),
        Probe("heads of size 1", lambda g: (*_all(g, 3, 4, 5), 5)),
        Probe("as many positions as heads", lambda g: (*_all(g, 2, 4, 8), 4)),
        Probe("the mask holds for very low scores, too", _far_below, tolerance=2 * 65_536 * EPS),
        Probe(
            "any strides",
            lambda g: (_x(g, 5, 2, 6).transpose(0, 1), *(w.T for w in _all(g, 2, 5, 6)[1:]), 2),
        ),
        Probe(
            "gradients reach x and all weights", lambda g: (*_all(g, 2, 5, 6), 3), gradients=True
        ),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _all(g, 2, 5, 6)), 2)),
    ),
    **texts("multi_head_attention"),
)

EXERCISES = (SPLIT_HEADS, MERGE_HEADS, MULTI_HEAD_ATTENTION)
