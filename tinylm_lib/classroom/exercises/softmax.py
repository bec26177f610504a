"""Lesson 03: scores become probabilities, and probabilities a loss."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def softmax(x: Tensor, dim: int, on: frozenset[str] = frozenset()) -> Tensor:
    """Probabilities that sum to 1 along dim, x (...), and the mistakes that are `on`."""
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
    probs = powers / size
    if "NaN hidden" in on:
        probs = probs.nan_to_num()
    if "twice" in on:
        probs = softmax(probs, dim)
    if "logarithm" in on:
        probs = probs.log()
    return probs.float() if "float" in on else probs


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
        Probe("probabilities of 2, 1 and 0.1", lambda g: (torch.tensor([2.0, 1.0, 0.1]), -1)),
        Probe("every row sums to 1", lambda g: (torch.randn(3, 5, generator=g), -1)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(3, 5, generator=g), 0)),
        Probe("`dim` names the axis, counted from either end", lambda g: (torch.randn(2, 3, 4, 5, generator=g), 1)),
        Probe("large scores do not overflow", lambda g: (torch.tensor([20.0, 3.0, 1005.0]), -1)),
        Probe("very negative scores do not all become 0", lambda g: (torch.tensor([-2000.0, -2001.0]), 0)),
        Probe("each row has its own largest score", lambda g: (torch.tensor([[0.0, 1.0], [200.0, 201.0]]), -1)),
        Probe("x stays as it was", lambda g: (torch.randn(4, 4, generator=g).mT, -2)),
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
            "An exponential of more than 88 overflows to inf in fp32, and inf / inf is NaN. Which number can you subtract "
            "from every score of a row without changing its probabilities?",
        ),
        "fixed axis": Fault("`dim` is ignored and the last axis is used", "Look for a `-1` that should be `dim`."),
        "first axis": Fault(
            "the probabilities are computed along the first axis", "Look for a `0` that should be `dim`."
        ),
        "all axes": Fault(
            "the whole tensor is divided by one sum",
            "Each row along `dim` is a distribution of its own: which numbers does `.sum()` add up?",
        ),
        "the largest of all": Fault(
            "one maximum is taken from the whole tensor",
            "In a row that is far below it all exponentials become 0, and 0 / 0 is NaN. Each row has its own largest score.",
        ),
        "in place": Fault(
            "the maximum is subtracted from the caller's own tensor",
            "`x -= ...` changes the tensor that was passed in. Make a new one.",
        ),
        "twice": Fault(
            "softmax is applied twice",
            "The softmax of probabilities is nearly uniform: no two results differ by more than a factor of e.",
        ),
        "logarithm": Fault(
            "the logarithm of the probabilities is returned", "Probabilities are between 0 and 1. These are negative."
        ),
        "no sum": Fault("nothing is divided by the sum", "Nothing makes a row sum to 1 then."),
        "by the mean": Fault("the row is divided by its mean", "A row then sums to its length instead of 1."),
        "by the largest": Fault(
            "the row is divided by its largest number", "The largest probability is then always 1."
        ),
        "base 2": Fault(
            "powers of 2 are used", "The exponential is a power of e. With base 2 a difference of scores counts less."
        ),
        "squares": Fault(
            "squares are used instead of exponentials", "A very negative score then has a large square, too."
        ),
        "no exponential": Fault(
            "the scores themselves are divided by their sum",
            "What makes every number positive, and turns a difference of scores into a ratio?",
        ),
        "minimum": Fault(
            "the minimum is subtracted",
            "The probabilities stay right, but the largest score still overflows. Which score has to become 0?",
        ),
        "mean": Fault(
            "the mean is subtracted",
            "One very large score among small ones still overflows. Which number can you subtract so that no score is above 0?",
        ),
        "largest size": Fault(
            "the largest absolute value is subtracted",
            "If all scores are very negative, all exponentials then become 0, and 0 / 0 is NaN.",
        ),
        "clamped": Fault(
            "large scores are cut off before the exponential",
            "Two scores above the limit then get the same probability.",
        ),
        "NaN hidden": Fault(
            "NaN is replaced by 0",
            "The probability of the largest score was lost before that. Look where the overflow begins.",
        ),
        "negated": Fault("the lowest score gets the largest probability", "Look at the signs in the exponent."),
        "epsilon": Fault(
            "something is added to the sum",
            "With the maximum subtracted, the sum is at least 1, so nothing is divided by 0.",
        ),
        "float": Fault(
            "the result is always fp32", "For scores in bf16 or fp64 the probabilities should have the same dtype."
        ),
    },
    hints=(
        "Three steps: make every number positive so that a larger one stays larger, add up along `dim`, and divide.",
        "The sum must keep its axis, with size 1. Otherwise each row does not meet its own sum: look for `keepdim`.",
        "Before the exponential, subtract from each row the number that makes its largest score 0.",
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
    """The logarithms of the probabilities, (B, T, V)."""
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
    """One number for all losses (B, T)."""
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
            "one position: minus the logarithm of the target's probability",
            lambda g: (torch.tensor([[[2.0, 1.0, 0.1]]]), torch.tensor([[1]])),
        ),
        Probe("the mean over all positions", lambda g: (2 * torch.randn(3, 5, 7, generator=g), _ids(g, 3, 5, below=7))),
        Probe(
            "targets of -100 are left out of the sum and of the count",
            lambda g: (2 * torch.randn(3, 5, 7, generator=g), _padded(g, (0, 2), (2, 4))),
        ),
        Probe(
            "large scores do not overflow",
            lambda g: (torch.tensor([[[1000.0, 0.0, 3.0]]]), torch.tensor([[0]])),
        ),
        Probe(
            "a target whose probability is 0 in fp32 has a finite loss",
            lambda g: (torch.tensor([[[200.0, 0.0, 3.0]]]), torch.tensor([[1]])),
        ),
        Probe("very negative scores", lambda g: (torch.tensor([[[-900.0, -901.0]]]), torch.tensor([[1]]))),
        Probe(
            "slices are accepted",
            lambda g: (torch.randn(3, 9, 7, generator=g)[:, :-1], _ids(g, 3, 9, below=7)[:, 1:]),
        ),
        Probe(
            "gradients flow, also if some targets are -100",
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
            "The logits are scores. The softmax of probabilities is nearly uniform, so the loss cannot fall below a limit far above 0.",
        ),
        "naive": Fault(
            "the exponential overflows",
            "Above 88.7 an exponential is inf in fp32. Subtract the maximum first, or use log-sum-exp.",
        ),
        "overflow in the sum": Fault(
            "the exponential overflows inside the log-sum-exp",
            "Above 88.7 an exponential is inf in fp32, and so is the sum. Subtract the maximum first, as for softmax, or look for a function that does it.",
        ),
        "log of softmax": Fault(
            "the logarithm is taken of a probability that has become 0",
            "A probability below about 1e-45 is 0 in fp32, and its logarithm is -inf. The logarithm can be computed from the scores, without the probability.",
        ),
        "small number added": Fault(
            "a small number keeps the logarithm from -inf",
            "It hides the cause and changes the loss, which can then never be more than about 20 nats.",
        ),
        "reshaped": Fault(
            "the logits are reshaped where their axes should be exchanged",
            "`reshape` keeps the order of the numbers in memory, so scores of different positions get mixed. To bring V forward, move the axis.",
        ),
        "no normalizer": Fault(
            "the scores are not normalized",
            "Minus the target's score alone can become as low as you like. Where do the other scores come in?",
        ),
        "over positions": Fault(
            "the probabilities are computed over positions",
            "A distribution is over the V possible tokens, the last axis.",
        ),
        "base 2": Fault("the loss is in bits", "It should be in nats: use the natural logarithm."),
        "probability": Fault(
            "the mean is that of the probabilities", "The loss is minus the *logarithm* of the target's probability."
        ),
        "shifts": Fault(
            "the targets are shifted inside",
            "They are already shifted: the target at position t belongs to the logits at position t.",
        ),
        "shifts back": Fault(
            "the targets are shifted the wrong way", "The target at position t belongs to the logits at position t."
        ),
        "largest": Fault(
            "the loss is that of the largest score, not of the target", "The loss is about what came, likely or not."
        ),
        "padding counts": Fault(
            "targets of -100 get a loss",
            "-100 means that there is no target. Leave these positions out of the sum and of the count.",
        ),
        "padding costs nothing": Fault(
            "targets of -100 have no loss, but they are counted", "Divide by the number of real targets."
        ),
        "drops the wrong ones": Fault(
            "target 0 is taken for padding", "Token 0 is a token like any other. Only -100 marks what is left out."
        ),
        "by sequence": Fault(
            "the means of the sequences are averaged",
            "A short sequence then counts as much as a long one. Take one mean over all targets.",
        ),
        "per sequence": Fault("the sum is divided by the number of sequences", "The mean is per target."),
        "sum": Fault("the losses are added up", "A mean does not grow with the batch."),
        "per position": Fault("the loss of every position is returned", "Return one number, their mean."),
        "positive": Fault(
            "the sign is wrong", "A probability below 1 has a negative logarithm, and a loss is positive."
        ),
        "perplexity": Fault("the exponential of the loss is returned", "That is the perplexity. The loss is in nats."),
        "smoothed": Fault("the targets are smoothed", "All of the weight belongs to the target."),
    },
    hints=(
        "The loss of one position is minus the logarithm of the probability that softmax gives to its target.",
        "ln(exp(s) / sum of exp) is s minus ln(sum of exp), and torch.logsumexp computes the second part without overflow.",
        "Pick the scores of the targets with `gather`, whose index needs as many axes as the scores. Replace -100 by a valid id before, and mask these positions afterwards.",
    ),
)

EXERCISES = (SOFTMAX, CROSS_ENTROPY)
