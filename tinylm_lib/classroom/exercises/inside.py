"""Lesson 16: read the stream early, put an activation from another text there, silence a head."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


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
            lambda g: (torch.tensor([1.0, -1.0]), torch.ones(2), torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0]]), 0.0),
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
    faults={
        "no norm": Fault("the head reads the stream without the norm", "The model's own head reads what the final norm returns."),
        "no gain": Fault("the gain is left out", "The final norm has learned a factor for each feature."),
        "gain before the norm": Fault("the gain multiplies the stream before the norm", "First divide by the size, then multiply."),
        "gain plus 1": Fault("1 is added to the gain", "This model stores the factor itself."),
        "mean subtracted": Fault("the mean is subtracted, as LayerNorm does", "The model's norm is RMSNorm, lesson 04."),
        "length": Fault("the stream is divided by its length", "RMSNorm divides by the root of the mean square, not of the sum."),
        "one size for all": Fault("all vectors are divided by one size", "Each vector is divided by its own: a mean over the features alone."),
        "no root": Fault("the root is missing in the norm", "The size of a vector is the root of its mean square."),
        "no eps": Fault("eps is not used", "It is added to the mean square, under the root."),
        "eps added outside": Fault("eps is added again after the division", "It belongs under the root and nowhere else."),
        "norm twice": Fault("the norm is applied twice", "The stream is read by the final norm once, and then by the head."),
        "not transposed": Fault("the head is not transposed", "It is stored as (V, C): a row for each token."),
        "rows of unit length": Fault("the rows of the head are normalised", "The head is used as it is; only the stream has a norm."),
        "scaled": Fault("the logits are divided by the root of C", "That belongs to attention."),
        "logits": Fault("logits are returned", "What would the head *say*? Scores become probabilities in one more step."),
        "logs": Fault("logarithms are returned", "Return the probabilities themselves."),
        "over positions": Fault("the softmax runs over the positions", "Each position has a distribution of its own, over the tokens."),
        "over the first axis": Fault("the softmax runs over the first axis", "It runs over the tokens, the last axis."),
        "sigmoid": Fault("a sigmoid is used", "The probabilities of all tokens sum to 1."),
        "most probable only": Fault("only the most probable token is kept", "Return the whole distribution."),
        "the token": Fault("ids are returned", "Return the whole distribution, (..., V)."),
        "last position": Fault("only the last position is read", "Every vector of the stream has its reading."),
        "cut": Fault("the gradients are cut", "`detach` and `no_grad` are for the caller to decide."),
    },
    hints=(
        "Three steps of lesson 10: the final norm, the LM head, probabilities.",
        "The norm is RMSNorm (lesson 04), along the features. Which axis is that, however many axes are in front?",
        "The LM head has one row for each token: (V, C). What has to happen to it before a product with (..., C)?",
    ),
)  # fmt: skip


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
        Probe("any strides", lambda g: (_x(g, 5, 2, 3).mT.mT, _x(g, 2, 5, 3).transpose(0, 1), torch.tensor([1, 0, 1, 1, 0]))),
        Probe("gradients reach both runs", lambda g: _two_runs(g, 2, 5, 3, 1, 3), gradients=True),
        Probe("fp64 stays fp64", lambda g: (*(t.double() for t in _two_runs(g, 2, 5, 3, 1, 3)[:2]), torch.tensor([1, 3]))),
    ),
    faults={
        "runs exchanged": Fault("the two runs are exchanged", "The result is `stream` everywhere but at one position."),
        "position of the first text": Fault("all texts are changed at the position of the first", "Each text has its own entry in `at`."),
        "all positions for all texts": Fault("every text is changed at the positions of all texts", "`x[:, at]` pairs each text with every position. Which index goes with which text?"),
        "from there on": Fault("all later positions are replaced, too", "Replace one vector: the later ones shall be computed from it."),
        "up to there": Fault("all earlier positions are replaced, too", "Replace one vector alone."),
        "one later": Fault("the next position is replaced", "Position 0 is the first."),
        "one earlier": Fault("the position before is replaced", "Position 0 is the first."),
        "first text only": Fault("only the first text is changed", "Each text has its own entry in `at`."),
        "counted from the end": Fault("positions are counted from the end", "Position 0 is the first."),
        "whole text": Fault("the whole run is replaced", "Then every position is that of the other text, and nothing can be located."),
        "the last position": Fault("the last position is always replaced", "`at` says which one."),
        "nowhere": Fault("nothing is replaced", "Assigning to a copy of an indexed piece changes only that copy."),
        "read at the same place of the first text": Fault("all vectors come from the first text of `other`", "Text i gets its vector from text i of the other run."),
        "next text": Fault("text i gets the vector of text i + 1", "Text i gets its vector from text i of the other run."),
        "averaged over positions": Fault("the mean over the positions of the other run is put there", "Take the vector at the same position."),
        "averaged over texts": Fault("the mean over the texts of the other run is put there", "Text i gets its vector from text i of the other run."),
        "half": Fault("the two vectors are averaged", "The other vector replaces the old one."),
        "added": Fault("the other vector is added", "The other vector replaces the old one."),
        "set to 0": Fault("the vector is set to 0", "That is an ablation. Here it is replaced with the vector of the other run."),
        "only the vectors": Fault("only the new vectors are returned", "Return the whole run, (B, T, C): the next block reads all of it."),
        "in place": Fault("`stream` itself is changed", "The caller needs it for the next position: work on a copy."),
        "cut": Fault("the gradients are cut", "`detach` and `no_grad` are for the caller to decide."),
    },
    hints=(
        "Start with a copy of `stream`, and change one vector for each text.",
        "Two index tensors of the same length go hand in hand: the texts 0, 1, 2, ... and their positions.",
        "Try it with 2 texts, 3 positions and `torch.arange` as numbers: exactly one row of each text may differ.",
    ),
)  # fmt: skip


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
    faults={
        "zero": Fault("the head is set to 0", "The later layers have never met a 0 there. Put the mean of the head in."),
        "mean of each position": Fault("each position has a mean of its own", "One mean for all positions: a position is something that the head may know."),
        "mean of each text": Fault("each text has a mean of its own", "One mean for all texts: a text is what the head may know something about."),
        "mean over features": Fault("the mean runs over the features of the head", "Each feature keeps its own mean, over texts and positions."),
        "one number": Fault("one mean is used for all features", "Each feature keeps its own mean, over texts and positions."),
        "mean over all heads": Fault("the mean of all heads is put there", "Use the mean of this head alone."),
        "last position": Fault("the last position's output is used everywhere", "Use the mean over texts and positions."),
        "sum": Fault("the sum is used, not the mean", "Divide by the number of texts and positions."),
        "median": Fault("the median is used", "Use the mean."),
        "subtracted": Fault("the mean is subtracted", "The mean replaces what the head says."),
        "size for number": Fault("n_heads is taken for the size of a head", "A head has width / n_heads features."),
        "counted from 1": Fault("heads are counted from 1", "Head 0 is the first."),
        "every H-th feature": Fault("a head is taken for every H-th feature", "A head is a block of neighbouring features, lesson 07."),
        "heads from the end": Fault("heads are counted from the end", "Head 0 has the first features."),
        "up to this head": Fault("the heads before it are ablated, too", "Ablate this one head alone."),
        "one feature": Fault("only one feature is replaced", "A head has width / n_heads features."),
        "one feature short": Fault("the last feature of the head is kept", "The end of a slice is not part of it."),
        "the others": Fault("all other heads are ablated", "Ablate this one, and keep the others."),
        "only the head": Fault("only the head is returned", "Return all heads, in the shape of `mixed`."),
        "removed": Fault("the features of the head are cut out", "The output projection expects all features: keep the shape."),
        "in place": Fault("`mixed` itself is changed", "It belongs to the caller: work on a copy."),
        "last position only": Fault("only the last position is changed", "The head is ablated at every position."),
        "cut": Fault("the gradients are cut", "`detach` and `no_grad` are for the caller to decide."),
    },
    hints=(
        "How many features has a head, and at which one does head h begin?",
        "The mean has one number for each feature of the head. Over which two axes is it taken?",
        "Work on a copy, and assign the mean to the columns of the head.",
    ),
)  # fmt: skip

EXERCISES = (LOGIT_LENS, PATCH, ABLATE_HEAD)
