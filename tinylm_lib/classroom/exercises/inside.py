"""Lesson 16: read the stream early, put an activation from another text there, silence a head."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def logit_lens(
    stream: Tensor, gain: Tensor, head_weight: Tensor, eps: float, on: frozenset[str] = frozenset()
) -> Tensor:
    """The probabilities (..., V) if the final norm and the LM head read stream (..., C), and the mistakes that are `on`."""
    x = stream[..., -1:, :] if "last position" in on else stream
    if "cut" in on:
        x = x.detach()
    if "gain before the norm" in on:
        x = x * gain
    if "mean subtracted" in on:
        x = x - x.mean(-1, keepdim=True)
    if "no norm" not in on:
        dim = tuple(range(x.ndim)) if "one size for all" in on else -1
        square = x.pow(2).sum(dim, keepdim=True) if "length" in on else x.pow(2).mean(dim, keepdim=True)
        square = square if "no eps" in on else square + eps
        x = x / (square if "no root" in on else square.sqrt())
        x = x + eps if "eps added outside" in on else x
    if not on & {"no gain", "gain before the norm"}:
        x = x * (1 + gain) if "gain plus 1" in on else x * gain
    if "norm twice" in on:
        x = x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * gain
    if "rows of unit length" in on:
        head_weight = F.normalize(head_weight, dim=-1)
    logits = x @ (head_weight if "not transposed" in on else head_weight.mT)
    if "scaled" in on:
        logits = logits / x.shape[-1] ** 0.5
    ways = {
        "logits": lambda: logits,
        "logs": lambda: logits.log_softmax(-1),
        "over positions": lambda: logits.softmax(-2),
        "over the first axis": lambda: logits.softmax(0),
        "sigmoid": lambda: logits.sigmoid(),
        "most probable only": lambda: F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype),
        "the token": lambda: logits.argmax(-1),
    }
    way = next((f for fault, f in ways.items() if fault in on), None)
    return way() if way else logits.softmax(-1)


def _exchanged(B: int, T: int, at: Tensor, on: frozenset[str]) -> Tensor:
    """The positions (B, T) that are exchanged."""
    where = torch.arange(T)[None] == at[:, None]
    places = torch.arange(T)[None]
    wheres = {
        "position of the first text": lambda: (places == at[0]).expand(B, T),
        "all positions for all texts": lambda: torch.isin(places, at).expand(B, T),
        "from there on": lambda: places >= at[:, None],
        "up to there": lambda: places <= at[:, None],
        "one later": lambda: places == at[:, None] + 1,
        "one earlier": lambda: places == at[:, None] - 1,
        "first text only": lambda: where & (torch.arange(B) == 0)[:, None],
        "counted from the end": lambda: places == T - 1 - at[:, None],
        "whole text": lambda: torch.ones_like(where),
        "the last position": lambda: (places == T - 1).expand(B, T),
        "nowhere": lambda: torch.zeros_like(where),
    }
    return next((f for fault, f in wheres.items() if fault in on), lambda: where)()


def patch(stream: Tensor, other: Tensor, at: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """A copy of stream (B, T, C) with the vectors of other at the positions at (B), and the mistakes that are `on`."""
    if "runs exchanged" in on:
        stream, other = other, stream
    where = _exchanged(*stream.shape[:2], at, on)
    if "read at the same place of the first text" in on:
        other = other[0].expand_as(other)
    if "next text" in on:
        other = other.roll(-1, 0)
    if "averaged over positions" in on:
        other = other.mean(1, keepdim=True).expand_as(other)
    if "averaged over texts" in on:
        other = other.mean(0, keepdim=True).expand_as(other)
    if "half" in on:
        other = (stream + other) / 2
    if "added" in on:
        other = stream + other
    if "set to 0" in on:
        other = torch.zeros_like(other)
    if "only the vectors" in on:
        return other[torch.arange(len(at)), at]
    patched = torch.where(where[..., None], other, stream)
    if "in place" in on:
        stream.copy_(patched.detach())
        return stream
    return patched.detach() if "cut" in on else patched


def _features(width: int, D: int, head: int, n_heads: int, on: frozenset[str]) -> Tensor:
    """The features (H * D) of the head."""
    number = head - 1 if "counted from 1" in on else head
    features = torch.arange(width)
    own = (features >= number * D) & (features < (number + 1) * D)
    if "every H-th feature" in on:
        own = features % n_heads == head
    if "heads from the end" in on:
        own = own.flip(0)
    if "up to this head" in on:
        own = features < (head + 1) * D
    if "one feature" in on:
        own = features == head
    if "one feature short" in on:
        own = own & (features != (number + 1) * D - 1)
    return ~own if "the others" in on else own


def ablate_head(mixed: Tensor, head: int, n_heads: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Mean ablation: mixed (B, T, H * D) with one head's mean everywhere, and the mistakes that are `on`."""
    B, T, width = mixed.shape
    D = n_heads if "size for number" in on else width // n_heads
    own = _features(width, D, head, n_heads, on)
    means = {
        "zero": lambda: torch.zeros(width, dtype=mixed.dtype),
        "mean of each position": lambda: mixed.mean(0, keepdim=True),
        "mean of each text": lambda: mixed.mean(1, keepdim=True),
        "mean over features": lambda: mixed[..., own].mean(-1, keepdim=True),
        "one number": lambda: mixed[..., own].mean().expand(width),
        "mean over all heads": lambda: mixed.unflatten(-1, (-1, D)).mean((0, 1, 2)).repeat(width // D),
        "last position": lambda: mixed[:, -1:],
        "sum": lambda: mixed.sum((0, 1)),
        "median": lambda: mixed.flatten(0, 1).median(0).values,
    }
    mean = next((f for fault, f in means.items() if fault in on), lambda: mixed.mean((0, 1)))()
    if "subtracted" in on:
        mean = mixed - mean
    if "only the head" in on:
        return mean[own].expand(B, T, -1)
    if "removed" in on:
        return mixed[..., ~own]
    result = torch.where(own, mean, mixed)
    if "in place" in on:
        mixed.copy_(result.detach())
        return mixed
    if "last position only" in on:
        return torch.cat([mixed[:, :-1], result[:, -1:]], 1)
    return result.detach() if "cut" in on else result


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


def _read(g: Generator, *lead: int, C: int = 6, V: int = 9, eps: float = 1e-5) -> tuple:
    """A stream of size 3, gains around 1 and a head."""
    return 3 * _x(g, *lead, C), 1 + 0.5 * _x(g, C), _x(g, V, C), eps


LOGIT_LENS = Exercise(
    name="logit_lens",
    lesson="16",
    reference=logit_lens,
    probes=(
        Probe(
            "a vector of size 1 meets each row of the head",
            lambda g: (
                torch.tensor([1.0, -1.0]),
                torch.ones(2),
                torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0]]),
                0.0,
            ),
        ),
        Probe("the gain multiplies each feature after the norm", lambda g: _read(g)),
        Probe("every position is read", lambda g: _read(g, 5)),
        Probe("every depth, text and position is read", lambda g: _read(g, 4, 2, 3)),
        Probe("a head with as many tokens as features", lambda g: _read(g, 2, 3, C=7, V=7)),
        Probe("eps is added to the mean square", lambda g: _read(g, 3, C=5, eps=2.0)),
        Probe("any strides", lambda g: (lambda x, *rest: (x.transpose(0, 1), *rest))(*_read(g, 3, 2))),
        Probe("gradients reach the stream, the gain and the head", lambda g: _read(g, 2, 3), gradients=True),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _read(g, 2, 3)[:3]), 1e-5)),
    ),
    **texts("logit_lens"),
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
        Probe("each text has a position of its own", lambda g: _two_runs(g, 3, 5, 2, 3, 0, 1)),
        Probe("two texts may have the same position", lambda g: _two_runs(g, 4, 6, 3, 2, 5, 2, 1)),
        Probe("as many texts as positions", lambda g: _two_runs(g, 4, 4, 3, 1, 3, 0, 1)),
        Probe("as many positions as features", lambda g: _two_runs(g, 2, 5, 5, 4, 1)),
        Probe(
            "any strides",
            lambda g: (_x(g, 5, 2, 3).mT.mT, _x(g, 2, 5, 3).transpose(0, 1), torch.tensor([1, 0, 1, 1, 0])),
        ),
        Probe("gradients reach both runs", lambda g: _two_runs(g, 2, 5, 3, 1, 3), gradients=True),
        Probe(
            "fp64 stays fp64", lambda g: (*(t.double() for t in _two_runs(g, 2, 5, 3, 1, 3)[:2]), torch.tensor([1, 3]))
        ),
    ),
    **texts("patch"),
)


ABLATE_HEAD = Exercise(
    name="ablate_head",
    lesson="16",
    reference=ablate_head,
    order=4,
    probes=(
        Probe("one head of size 1 gives its mean", lambda g: (torch.tensor([[[1.0, 5.0], [3.0, 9.0]]]), 1, 2)),
        Probe("a head is a block of neighbouring features", lambda g: (_x(g, 1, 3, 6), 1, 2)),
        Probe("the first of three heads", lambda g: (_x(g, 2, 4, 6), 0, 3)),
        Probe("the mean is taken over texts and positions", lambda g: (1 + _x(g, 3, 4, 10), 3, 5)),
        Probe("the last head", lambda g: (1 + _x(g, 2, 5, 12), 2, 3)),
        Probe("as many heads as features of a head", lambda g: (_x(g, 2, 3, 16), 2, 4)),
        Probe("one head alone", lambda g: (1 + _x(g, 2, 3, 4), 0, 1)),
        Probe("any strides", lambda g: (_x(g, 5, 2, 8).transpose(0, 1), 1, 4)),
        Probe("gradients reach what is kept, and the mean", lambda g: (_x(g, 2, 3, 6), 1, 3), gradients=True),
        Probe("fp64 stays fp64", lambda g: (_x(g, 2, 3, 6).double(), 1, 3)),
    ),
    **texts("ablate_head"),
)

EXERCISES = (LOGIT_LENS, PATCH, ABLATE_HEAD)
