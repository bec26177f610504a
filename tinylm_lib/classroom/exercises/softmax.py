"""Lesson 03: scores become shares, and shares become a cost."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def softmax(x: Tensor, dim: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Shares that sum to 1 along dim, x (...), and the mistakes that are `on`."""
    if "fixed axis" in on:
        dim = -1
    if "first axis" in on:
        dim = 0
    if "negated" in on:
        x = -x
    powers = _powers(x, dim, on)
    if "all axes" in on:
        return powers / powers.sum()
    if "no sum" in on:
        return powers
    size = powers.sum(dim, keepdim=True)
    if "by the mean" in on:
        size = powers.mean(dim, keepdim=True)
    if "by the largest" in on:
        size = powers.amax(dim, keepdim=True)
    if "epsilon" in on:
        size = size + 0.1
    shares = powers / size
    if "NaN hidden" in on:
        shares = shares.nan_to_num()
    if "twice" in on:
        shares = softmax(shares, dim)
    if "logarithm" in on:
        shares = shares.log()
    return shares.float() if "float" in on else shares


def _powers(x: Tensor, dim: int, on: frozenset[str]) -> Tensor:
    """What each score becomes before it is divided."""
    if "squares" in on:
        return x.square()
    if "no exponential" in on:
        return x
    if "clamped" in on:
        x = x.clamp(-80, 80)
    elif "the largest of all" in on:
        x = x - x.max()
    elif "in place" in on:
        x -= x.amax(dim, keepdim=True)
    elif "mean" in on:
        x = x - x.mean(dim, keepdim=True)
    elif "largest size" in on:
        x = x - x.abs().amax(dim, keepdim=True)
    elif "minimum" in on:
        x = x - x.amin(dim, keepdim=True)
    elif not {"no maximum", "NaN hidden"} & on:
        x = x - x.amax(dim, keepdim=True).detach()
    return 2**x if "base 2" in on else x.exp()


SOFTMAX = Exercise(
    name="softmax",
    lesson="03",
    reference=softmax,
    probes=(
        Probe("shares of 2, 1 and 0.1", lambda g: (torch.tensor([2.0, 1.0, 0.1]), -1)),
        Probe("every row sums to 1", lambda g: (torch.randn(3, 5, generator=g), -1)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(3, 5, generator=g), 0)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(2, 3, 4, 5, generator=g), 1)),
        Probe("large scores do not overflow", lambda g: (torch.tensor([20.0, 3.0, 1005.0]), -1)),
        Probe("very negative scores do not vanish together", lambda g: (torch.tensor([-2000.0, -2001.0]), 0)),
        Probe("each row has its own largest score", lambda g: (torch.tensor([[0.0, 1.0], [200.0, 201.0]]), -1)),
        Probe("what was given stays as it was", lambda g: (torch.randn(4, 4, generator=g).mT, -2)),
        Probe("gradients flow", lambda g: (torch.randn(3, 4, generator=g), -1), gradients=True),
        Probe(
            "gradients flow for large scores, too", lambda g: (200 * torch.randn(3, 4, generator=g), 1), gradients=True
        ),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).double(), -1)),
        Probe("the dtype is kept", lambda g: (torch.randn(3, 4, generator=g).bfloat16(), -1)),
    ),
    faults={
        "no maximum": Fault(
            "nothing is subtracted before the exponential",
            "An exponential of more than 88 overflows to inf in fp32, and inf / inf is NaN. Which number can you take "
            "from every score of a row without changing its shares?",
        ),
        "fixed axis": Fault("`dim` is ignored and the last axis taken", "Look for a `-1` that should be `dim`."),
        "first axis": Fault("the shares are taken along the first axis", "Look for a `0` that should be `dim`."),
        "all axes": Fault(
            "the whole tensor shares one sum",
            "Each row along `dim` is a whole of its own: what does `.sum()` sum over?",
        ),
        "the largest of all": Fault(
            "one maximum is taken from the whole tensor",
            "Then a row that lies far below it vanishes: 0 / 0 is NaN. Each row has its own largest score.",
        ),
        "in place": Fault(
            "the maximum is subtracted from the caller's own tensor",
            "`x -= ...` writes into what was given. Make a new tensor.",
        ),
        "twice": Fault(
            "softmax is applied twice",
            "Shares of shares are nearly even: no two of them differ by more than a factor e.",
        ),
        "logarithm": Fault(
            "the logarithm of the shares is returned", "Shares lie between 0 and 1, these are negative."
        ),
        "no sum": Fault("nothing is divided by the sum", "Then nothing makes a row sum to 1."),
        "by the mean": Fault("the row is divided by its mean", "Then a row sums to its length instead of 1."),
        "by the largest": Fault("the row is divided by its largest number", "Then the largest share is always 1."),
        "base 2": Fault(
            "powers of 2 are taken", "The exponential is a power of e; with another base, differences count less."
        ),
        "squares": Fault("squares are taken in the place of exponentials", "A very negative score would then win."),
        "no exponential": Fault(
            "the scores themselves are shared out",
            "What makes every share positive, and a difference of scores a ratio?",
        ),
        "minimum": Fault(
            "the minimum is subtracted",
            "The shares stay right, but the largest score still overflows. Which one must become 0?",
        ),
        "mean": Fault(
            "the mean is subtracted",
            "One very large score among small ones still overflows. Which number leaves none above 0?",
        ),
        "largest size": Fault(
            "the largest absolute value is subtracted",
            "Where all scores are very negative, all powers then vanish together: 0 / 0 is NaN.",
        ),
        "clamped": Fault(
            "large scores are cut off before the exponential", "Two scores beyond the limit then get the same share."
        ),
        "NaN hidden": Fault(
            "NaN is replaced by 0",
            "The share of the largest score was lost before that: look where the overflow begins.",
        ),
        "negated": Fault("the lowest score gets the largest share", "Look at the signs in the exponent."),
        "epsilon": Fault(
            "something is added to the sum",
            "With the maximum taken off, the sum is never below 1: nothing can be divided by 0.",
        ),
        "float": Fault("the result is always fp32", "What comes in as bf16 or fp64 should leave as it came."),
    },
    hints=(
        "Three steps: make every number positive so that larger stays larger, add up along `dim`, divide.",
        "The sum must keep its axis, with size 1, or it cannot be divided by row: look for `keepdim`.",
        "Before the exponential, take from each row a number that makes its largest score 0.",
    ),
)


def cross_entropy(logits: Tensor, targets: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """Mean nats of targets (B, T) under logits (B, T, V), those of -100 left out, and the mistakes that are `on`."""
    logs = _logs(logits, on)
    if "shifts" in on:
        logs, targets = logs[:, :-1], targets[:, 1:]
    if "shifts back" in on:
        logs, targets = logs[:, 1:], targets[:, :-1]
    kept = torch.ones_like(targets, dtype=torch.bool) if "padding counts" in on else targets != -100
    if "drops the wrong ones" in on:
        kept = targets != 0
    picked = logs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    if "largest" in on:
        picked = logs.amax(-1)
    nats = torch.where(kept, picked if "positive" in on else -picked, torch.zeros_like(picked))
    mean = _mean(nats, kept, on)
    if "perplexity" in on:
        mean = mean.exp()
    return 0.9 * mean - 0.1 * logs.mean() if "smoothed" in on else mean


def _logs(logits: Tensor, on: frozenset[str]) -> Tensor:
    """The logarithms of the shares, (B, T, V)."""
    if "on probabilities" in on:
        logits = logits.softmax(-1)
    if "reshaped" in on:
        B, T, V = logits.shape
        logits = logits.reshape(B, V, T).mT
    logs = logits - logits.logsumexp(-1, keepdim=True)
    if "over positions" in on:
        logs = logits - logits.logsumexp(1, keepdim=True)
    if "overflow in the sum" in on:
        logs = logits - logits.exp().sum(-1, keepdim=True).log()
    if "naive" in on:
        logs = (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()
    if "log of softmax" in on:
        logs = logits.softmax(-1).log()
    if "small number added" in on:
        logs = (logits.softmax(-1) + 1e-9).log()
    if "no normalizer" in on:
        logs = logits
    if "base 2" in on:
        logs = logs / math.log(2)
    return logs.exp() if "probability" in on else logs


def _mean(nats: Tensor, kept: Tensor, on: frozenset[str]) -> Tensor:
    """One number for all costs (B, T)."""
    if "padding costs nothing" in on:
        return nats.mean()
    if "by sequence" in on:
        return (nats.sum(-1) / kept.sum(-1)).mean()
    if "per sequence" in on:
        return nats.sum() / len(nats)
    if "sum" in on:
        return nats.sum()
    return nats if "per position" in on else nats.sum() / kept.sum()


def _ids(g: Generator, *shape: int, below: int) -> Tensor:
    return torch.randint(below, shape, generator=g)


def _padded(g: Generator, *columns: tuple[int, int]) -> Tensor:
    targets = _ids(g, 3, 5, below=7)
    for row, start in columns:
        targets[row, start:] = -100
    return targets


CROSS_ENTROPY = Exercise(
    name="cross_entropy",
    lesson="03",
    reference=cross_entropy,
    probes=(
        Probe(
            "one position: minus the logarithm of the target's share",
            lambda g: (torch.tensor([[[2.0, 1.0, 0.1]]]), torch.tensor([[1]])),
        ),
        Probe("the mean over all positions", lambda g: (2 * torch.randn(3, 5, 7, generator=g), _ids(g, 3, 5, below=7))),
        Probe(
            "targets of -100 are left out, of the sum and of the count",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (0, 2), (2, 4))),
        ),
        Probe(
            "the shares need no computing: large scores",
            lambda g: (torch.tensor([[[1000.0, 0.0, 3.0]]]), torch.tensor([[0]])),
        ),
        Probe(
            "an impossible target costs its gap, not inf",
            lambda g: (torch.tensor([[[200.0, 0.0, 3.0]]]), torch.tensor([[1]])),
        ),
        Probe("very negative scores", lambda g: (torch.tensor([[[-900.0, -901.0]]]), torch.tensor([[1]]))),
        Probe(
            "what was sliced may come in",
            lambda g: (torch.randn(3, 9, 7, generator=g)[:, :-1], _ids(g, 3, 9, below=7)[:, 1:]),
        ),
        Probe(
            "gradients flow, also past targets of -100",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (1, 1))),
            gradients=True,
        ),
        Probe(
            "gradients of large scores",
            lambda g: (300 * torch.randn(2, 3, 7, generator=g), _ids(g, 2, 3, below=7)),
            gradients=True,
        ),
        Probe("fp64 stays fp64", lambda g: (torch.randn(2, 3, 7, generator=g).double(), _ids(g, 2, 3, below=7))),
    ),
    faults={
        "on probabilities": Fault(
            "the logits are taken for probabilities, or softmax is applied to them twice",
            "The logits are scores; shares that pass through softmax again are nearly even, and the loss cannot fall below a floor far above 0.",
        ),
        "naive": Fault(
            "the exponential overflows",
            "Above 88.7 an exponential is inf in fp32. Take the maximum off first, or use log-sum-exp.",
        ),
        "overflow in the sum": Fault(
            "the exponential overflows inside the log-sum-exp",
            "Above 88.7 an exponential is inf in fp32, and so is the sum. Take the maximum out first, as for softmax, or look for a function that does.",
        ),
        "log of softmax": Fault(
            "the logarithm is taken of a share that has become 0",
            "A share below about 1e-45 is 0 in fp32, and its logarithm -inf. The logarithm of a share can be written without the share.",
        ),
        "small number added": Fault(
            "a small number keeps the logarithm from -inf",
            "It hides the cause and changes the cost: an impossible target can then never cost more than about 20 nats.",
        ),
        "reshaped": Fault(
            "the logits are reshaped where their axes should be exchanged",
            "`reshape` keeps the order of the numbers in memory, so scores of different positions get mixed. To bring V forward, move the axis.",
        ),
        "no normalizer": Fault(
            "the scores are not normalized",
            "Minus the target's score alone has no floor: where do the other scores come in?",
        ),
        "over positions": Fault(
            "the shares are taken over positions", "They belong to the V possible tokens, the last axis."
        ),
        "base 2": Fault("the cost is counted in bits", "Nats are asked for: the natural logarithm."),
        "probability": Fault("the target's share is averaged", "The cost is minus the *logarithm* of the share."),
        "shifts": Fault(
            "the targets are shifted inside",
            "They come in shifted already: the target at position t belongs to the logits at position t.",
        ),
        "shifts back": Fault(
            "the targets are shifted the wrong way", "The target at position t belongs to the logits at position t."
        ),
        "largest": Fault(
            "the largest score is scored, not the target's", "The cost is that of what really came, likely or not."
        ),
        "padding counts": Fault(
            "targets of -100 are scored",
            "-100 means: no target here. Leave these positions out, of the sum and of the count.",
        ),
        "padding costs nothing": Fault(
            "targets of -100 cost nothing, but are counted", "Divide by the number of targets that are really there."
        ),
        "drops the wrong ones": Fault(
            "target 0 is taken for padding", "Token 0 is a token like any other; -100 marks what is left out."
        ),
        "by sequence": Fault(
            "the means of the sequences are averaged",
            "Sequences of different length then weigh the same: one mean over all targets.",
        ),
        "per sequence": Fault("the sum is divided by the number of sequences", "The mean is per target."),
        "sum": Fault("the costs are summed", "A mean does not grow with the batch."),
        "per position": Fault("the cost of every position is returned", "One number is asked for: their mean."),
        "positive": Fault("the sign is wrong", "A share below 1 has a negative logarithm, and a cost is positive."),
        "perplexity": Fault("the exponential of the loss is returned", "That is the perplexity; nats are asked for."),
        "smoothed": Fault("the targets are smoothed", "All of the weight belongs to the target."),
    },
    hints=(
        "The cost of one position is minus the logarithm of the share that softmax gives to its target.",
        "ln(exp(s) / sum of exp) is s minus ln(sum of exp): torch.logsumexp computes the second part without overflow.",
        "Pick the targets' numbers with `gather` (it wants an index with as many axes); mask what is -100 before you index with it.",
    ),
)

EXERCISES = (SOFTMAX, CROSS_ENTROPY)
