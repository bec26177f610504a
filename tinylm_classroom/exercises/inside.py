"""Lesson 16: read the stream early, put an activation from another text there, silence a head."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def logit_lens(
    stream: Tensor, gain: Tensor, head_weight: Tensor, eps: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """The probabilities (..., V) if the final norm and the LM head read stream (..., C), and the
    mistakes that are `on`.
    """
    x = slipped(on, stream, {
        "last position": lambda x: x[..., -1:, :],
        "gain before the norm": lambda x: x * gain,
        "mean subtracted": lambda x: x - x.mean(-1, keepdim=True),
    })  # fmt: skip
    square = x.square().mean(-1, keepdim=True)
    x = x / chosen(on, (square + eps).sqrt(), {
        "no norm": lambda: 1.0,
        "length": lambda: (square * x.shape[-1] + eps).sqrt(),
        "one size for all": lambda: (x.square().mean() + eps).sqrt(),
        "no root": lambda: square + eps,
        "no eps": square.sqrt,
        "eps added to the root": lambda: square.sqrt() + eps,
    })  # fmt: skip
    x = x + eps if "eps added outside" in on else x
    x = x * chosen(on, gain, {
        "no gain": lambda: 1.0,
        "gain before the norm": lambda: 1.0,
        "gain plus 1": lambda: 1 + gain,
    })  # fmt: skip
    if "norm twice" in on:
        x = F.rms_norm(x, gain.shape, gain, eps)
    rows = F.normalize(head_weight, dim=-1) if "rows of unit length" in on else head_weight
    logits = x @ (rows if "not transposed" in on else rows.mT)
    if "scaled" in on:
        logits = logits / x.shape[-1] ** 0.5
    return chosen(on, logits.softmax(-1), {
        "logits": lambda: logits,
        "logs": lambda: logits.log_softmax(-1),
        "over positions": lambda: logits.softmax(max(-2, -logits.ndim)),
        "over the first axis": lambda: logits.softmax(0),
        "sigmoid": logits.sigmoid,
        "most probable only": lambda: (
            F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        ),
        "the token": lambda: logits.argmax(-1),
    })  # fmt: skip


def _exchanged(B: int, T: int, at: Tensor, on: frozenset[str]) -> Tensor:
    """The positions (B, T) that are exchanged."""
    places = torch.arange(T).expand(B, T)
    own = at[:, None]
    return chosen(on, places == own, {
        "position of the first text": lambda: places == at[0],
        "all positions for all texts": lambda: torch.isin(places, at),
        "from there on": lambda: places >= own,
        "up to there": lambda: places <= own,
        "one later": lambda: places == own + 1,
        "one earlier": lambda: places == own - 1,
        "first text only": lambda: (places == own) & (torch.arange(B) == 0)[:, None],
        "counted from the end": lambda: places == T - 1 - own,
        "whole text": lambda: places >= 0,
        "position taken as a text": lambda: _texts_at(B, at).expand(B, T),
        "the last position": lambda: places == T - 1,
        "nowhere": lambda: places < 0,
    })  # fmt: skip


def _texts_at(B: int, at: Tensor) -> Tensor:
    """Which texts (B, 1) have these numbers; torch raises IndexError where there is none."""
    found = torch.zeros(B, 1, dtype=torch.bool)
    found[at] = True
    return found


def patch(stream: Tensor, other: Tensor, at: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """A copy of stream (B, T, C) with the vectors of other at the positions at (B), and the
    mistakes that are `on`.
    """
    if "runs exchanged" in on:
        stream, other = other, stream
    other = slipped(on, other, {
        "read at the same place of the first text": lambda x: x[0].expand_as(x),
        "next text": lambda x: x.roll(-1, 0),
        "averaged over positions": lambda x: x.mean(1, keepdim=True).expand_as(x),
        "averaged over texts": lambda x: x.mean(0, keepdim=True).expand_as(x),
        "half": lambda x: (stream + x) / 2,
        "added": lambda x: stream + x,
        "set to 0": torch.zeros_like,
    })  # fmt: skip
    where = _exchanged(*stream.shape[:2], at, on)
    patched = torch.where(where[..., None], other, stream)
    return chosen(on, patched, {
        "only the vectors": lambda: other[torch.arange(len(at)), at],
        "in place": lambda: stream.copy_(patched),
        "only the last text": lambda: torch.cat((stream[:-1], patched[-1:])),
    })  # fmt: skip


def _features(width: int, D: int, head: int, n_heads: int, on: frozenset[str]) -> Tensor:
    """The features (H * D) of the head."""
    features = torch.arange(width)
    number = head - 1 if "counted from 1" in on else head
    start = number * D
    end = (number + 1) * D
    own = (features >= start) & (features < end)
    own = chosen(on, own, {
        "every H-th feature": lambda: features % n_heads == head,
        "heads from the end": lambda: own.flip(0),
        "up to this head": lambda: features < end,
        "every head": lambda: features >= 0,
        "one feature": lambda: features == head,
        "one feature short": lambda: own & (features != end - 1),
    })  # fmt: skip
    return ~own if "the others" in on else own


def ablate_head(mixed: Tensor, head: int, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Mean ablation: mixed (B, T, H * D) with one head's mean everywhere, and the mistakes that are
    `on`.
    """
    B, T, width = mixed.shape
    D = n_heads if "size for number" in on else width // n_heads
    own = _features(width, D, head, n_heads, on)
    mean = chosen(on, mixed.mean((0, 1)), {
        "zero": lambda: torch.zeros(width, dtype=mixed.dtype),
        "mean of each position": lambda: mixed.mean(0, keepdim=True),
        "mean of each text": lambda: mixed.mean(1, keepdim=True),
        "mean over features": lambda: mixed[..., own].mean(-1, keepdim=True),
        "one number": lambda: mixed[..., own].mean().expand(width),
        "mean over all heads": lambda: (
            mixed.unflatten(-1, (-1, D)).mean((0, 1, 2)).repeat(width // D)
        ),
        "first position": lambda: mixed[:, :1],
        "last position": lambda: mixed[:, -1:],
        "first vector": lambda: mixed[0, 0],
        "sum": lambda: mixed.sum((0, 1)),
        "median": lambda: mixed.flatten(0, 1).median(0).values,
    })  # fmt: skip
    mean = mixed - mean if "subtracted" in on else mean
    result = torch.where(own, mean, mixed)
    return chosen(on, result, {
        "only the head": lambda: mean[own].expand(B, T, -1),
        "removed": lambda: mixed[..., ~own],
        "in place": lambda: mixed.copy_(result),
        "last position only": lambda: torch.cat([mixed[:, :-1], result[:, -1:]], 1),
    })  # fmt: skip


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _read(g: Generator, *lead: int, C: int = 6, V: int = 9, eps: float = 1e-5) -> tuple:
    """A stream of size 3, gains around 1 and a head."""
    return 3 * _x(g, *lead, C), 1 + 0.5 * _x(g, C), _x(g, V, C), eps


def _of_size_1(g: Generator) -> tuple:
    head = torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0]])
    return torch.tensor([1.0, -1.0]), torch.ones(2), head, 0.0


LOGIT_LENS = Exercise(
    name="logit_lens",
    lesson="16",
    reference=logit_lens,
    probes=(
        Probe("a vector of size 1 is multiplied by each row of the head", _of_size_1),
        Probe("the gain multiplies each feature after the norm", lambda g: _read(g)),
        Probe("every position is read", lambda g: _read(g, 5)),
        Probe("every depth, text and position is read", lambda g: _read(g, 4, 2, 3)),
        Probe("there may be as many tokens as features", lambda g: _read(g, 2, 3, C=7, V=7)),
        Probe("eps is added to the mean square", lambda g: _read(g, 3, C=5, eps=2.0)),
    ),
    **texts("logit_lens"),
    wider=True,
)


def _two_runs(g: Generator, B: int, T: int, C: int, *at: int) -> tuple[Tensor, Tensor, Tensor]:
    return _x(g, B, T, C), _x(g, B, T, C), torch.tensor(at)


def _numbered(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


PATCH = Exercise(
    name="patch",
    lesson="16",
    reference=patch,
    probes=(
        Probe(
            "one vector of one text is replaced",
            lambda g: (_numbered(1, 3, 2), 10 + _numbered(1, 3, 2), torch.tensor([1])),
        ),
        Probe("the first position can be replaced", lambda g: _two_runs(g, 1, 4, 3, 0)),
        Probe("the last position can be replaced", lambda g: _two_runs(g, 1, 4, 3, 3)),
        Probe("each text has a position of its own", lambda g: _two_runs(g, 3, 5, 2, 2, 0, 0)),
        Probe("each text has a position of its own", lambda g: _two_runs(g, 3, 5, 2, 3, 0, 1)),
        Probe(
            "several texts may have the same position", lambda g: _two_runs(g, 4, 6, 3, 2, 5, 2, 1)
        ),
        Probe(
            "there may be as many texts as positions", lambda g: _two_runs(g, 4, 4, 3, 1, 3, 0, 1)
        ),
        Probe("there may be as many positions as features", lambda g: _two_runs(g, 2, 5, 5, 4, 1)),
    ),
    **texts("patch"),
    wider=True,
)


ABLATE_HEAD = Exercise(
    name="ablate_head",
    lesson="16",
    reference=ablate_head,
    order=4,
    probes=(
        Probe(
            "a head of size 1 is replaced with its mean",
            lambda g: (torch.tensor([[[1.0, 7.0], [2.0, 3.0], [4.0, 1.0], [9.0, 13.0]]]), 1, 2),
        ),
        Probe("a head is a block of neighbouring features", lambda g: (_x(g, 1, 3, 6), 1, 2)),
        Probe("head 0 has the first features", lambda g: (_x(g, 2, 4, 6), 0, 3)),
        Probe("the mean is taken over texts and positions", lambda g: (1 + _x(g, 3, 4, 10), 3, 5)),
        Probe("the last head can be ablated", lambda g: (1 + _x(g, 2, 5, 12), 2, 3)),
        Probe(
            "there may be as many heads as features of a head", lambda g: (_x(g, 2, 3, 16), 2, 4)
        ),
        Probe("there may be one head alone", lambda g: (1 + _x(g, 2, 3, 4), 0, 1)),
    ),
    **texts("ablate_head"),
    wider=True,
)

EXERCISES = (LOGIT_LENS, PATCH, ABLATE_HEAD)
