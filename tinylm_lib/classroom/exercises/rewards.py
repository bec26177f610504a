"""Lesson 17: the loss whose gradient is that of the mean reward, and what each text of a group gets for its reward."""

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe, in_fp64


def policy_gradient_loss(
    log_probs: Tensor, advantages: Tensor, mask: Tensor, on: frozenset[str] = frozenset()
) -> Tensor:
    """The loss () of written tokens (B, T) with an advantage (B,) for each text, and the mistakes that are `on`."""
    each = log_probs.detach() if "log-probabilities detached" in on else log_probs
    each = each.exp() if "probabilities" in on else each
    weights = _weights(advantages, on)[:, None].expand_as(each)
    if "advantages along the tokens" in on and len(advantages) == log_probs.shape[1]:
        weights = weights.mT
    if "advantages unused" in on:
        weights = torch.ones_like(weights)
    counted = torch.ones_like(mask) if "mask unused" in on else ~mask if "mask upside down" in on else mask
    if "last token only" in on:
        counted = mask & (mask.flip(1).cumsum(1) == 1).flip(1)
    if "first token missing" in on:
        counted = mask & (mask.cumsum(1) > 1)
    if "product of two means" in on:
        return -each[counted].mean() * weights[:, 0].mean()
    gained = (each * weights).where(counted, 0.0)
    loss = _reduced(-gained, counted, on)
    if "absolute value" in on:
        return loss.abs()
    return -loss if "wrong sign" in on else loss


def _weights(advantages: Tensor, on: frozenset[str]) -> Tensor:
    """What each text's log-probabilities are multiplied by (B,)."""
    found = advantages if "advantages with gradient" in on else advantages.detach()
    others = {
        "only the good": lambda: found.clamp(min=0),
        "only the bad": lambda: found.clamp(max=0),
        "sign of the advantage": lambda: found.sign(),
        "advantage without sign": lambda: found.abs(),
        "centred again": lambda: found - found.mean(),
        "softmax of the advantages": lambda: found.softmax(0),
    }
    return next((other() for name, other in others.items() if name in on), found)


def _reduced(losses: Tensor, counted: Tensor, on: frozenset[str]) -> Tensor:
    """One number of losses (B, T), which are 0 where nothing counts."""
    of_texts, n_tokens = losses.sum(1), counted.sum(1)
    if "sum over all tokens" in on:
        return losses.sum()
    if "divided by all positions" in on:
        return losses.mean()
    if "sum of each text, mean over texts" in on:
        return of_texts.mean()
    if "mean of each text first" in on:
        return (of_texts / n_tokens.clamp(min=1)).mean()
    if "one number for each text" in on:
        return of_texts / n_tokens.clamp(min=1)
    return losses.sum() / counted.sum()


def _texts(g: Generator, B: int, T: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, advantages, and a mask: a prompt of one token or two, then texts of different length."""
    written = torch.randint(2, T, (B, 1), generator=g)
    at = torch.arange(T)
    mask = (at >= 1 + torch.arange(B)[:, None] % 2) & (at <= written)
    return -3 * torch.rand(B, T, generator=g) - 0.1, 2 * torch.randn(B, generator=g), mask


def _two(advantages: list[float], mask: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = torch.tensor([[-0.5, -1.0, -2.0], [-4.0, -0.25, -3.0]])
    return log_probs, torch.tensor(advantages), torch.tensor(mask, dtype=torch.bool)


POLICY_GRADIENT_LOSS = Exercise(
    name="policy_gradient_loss",
    lesson="17",
    reference=policy_gradient_loss,
    probes=(
        Probe(
            "one token, advantage 1: minus its log-probability",
            lambda g: (torch.tensor([[-2.0]]), torch.tensor([1.0]), torch.tensor([[True]])),
        ),
        Probe("each text has its own advantage", lambda g: _two([1.0, -2.0], [[1, 1, 1], [1, 1, 1]])),
        Probe("only written tokens count", lambda g: _two([2.0, 1.0], [[0, 1, 1], [0, 1, 1]])),
        Probe("every written token counts the same", lambda g: _two([1.0, 3.0], [[0, 1, 1], [0, 1, 0]])),
        Probe("a text may have no written token", lambda g: _two([1.0, 0.5], [[0, 1, 1], [0, 0, 0]])),
        Probe("advantages may all be below 0", lambda g: _two([-1.0, -0.5], [[0, 1, 1], [0, 1, 1]])),
        Probe("texts of different length", lambda g: _texts(g, 3, 7)),
        Probe("as many texts as tokens", lambda g: _texts(g, 5, 5)),
        Probe("the gradient reaches the log-probabilities alone", lambda g: _texts(g, 4, 6), gradients=True),
        Probe("fp64 stays fp64", lambda g: in_fp64(_texts(g, 2, 5)), tolerance=1e-6),
    ),
    faults={
        "wrong sign": Fault(
            "the minus is missing", "An optimizer makes the loss smaller, and the reward is to become larger."
        ),
        "absolute value": Fault("the loss is made positive", "Its sign carries meaning: it may be below 0."),
        "advantages with gradient": Fault(
            "the gradient flows into the advantages, too",
            "They are given numbers: what would it mean to change the reward instead of the model?",
        ),
        "log-probabilities detached": Fault(
            "no gradient reaches the log-probabilities", "They are all through which the model can learn."
        ),
        "probabilities": Fault(
            "probabilities are weighted, not their logarithms",
            "The texts were drawn from the model, so likely ones count more often already.",
        ),
        "advantages unused": Fault("the advantages are not used", "Every text is then made more likely, good or bad."),
        "advantages along the tokens": Fault(
            "the advantages are spread along the tokens", "There is one for each text: which axis has the texts?"
        ),
        "only the good": Fault("texts with a negative advantage are left out", "They say what to write less often."),
        "only the bad": Fault("texts with a positive advantage are left out", "They say what to write more often."),
        "sign of the advantage": Fault("only the sign of an advantage counts", "Its size counts, too."),
        "advantage without sign": Fault(
            "the sign of the advantages is lost", "A text that is worse than usual should become less likely."
        ),
        "centred again": Fault(
            "the mean of the advantages is subtracted", "The caller has decided on the baseline already."
        ),
        "softmax of the advantages": Fault("the advantages go through a softmax", "Multiply by them as they are."),
        "mask unused": Fault(
            "tokens count that the model did not write", "Prompt and padding were not its choice: use the mask."
        ),
        "mask upside down": Fault(
            "the mask is used upside down", "It is True at the tokens that the model has written."
        ),
        "last token only": Fault("only the last written token counts", "Every choice led to the reward."),
        "first token missing": Fault("the first written token does not count", "It was the model's choice, too."),
        "product of two means": Fault(
            "the mean log-probability is multiplied by the mean advantage",
            "Multiply each text by its own advantage before you take a mean.",
        ),
        "sum over all tokens": Fault("the sum is not divided", "By how many tokens, if only written ones count?"),
        "divided by all positions": Fault(
            "the sum is divided by the number of all positions", "Only the written tokens count: how many are there?"
        ),
        "sum of each text, mean over texts": Fault(
            "the sum is divided by the number of texts", "Here every written token counts the same: divide by those."
        ),
        "mean of each text first": Fault(
            "each text is averaged by itself first", "A token of a short text then counts more than one of a long text."
        ),
        "one number for each text": Fault("there is a loss for each text", "One number is expected."),
    },
    hints=(
        "Write it for one token first: which number times the log-probability, and with which sign?",
        "An advantage belongs to a text, and a text is a row. Give the advantages a second axis to multiply each row.",
        "Keep the products where the mask is True, and take one mean over them.",
        "`detach` returns the same numbers without a way back for the gradient.",
    ),
)


def group_advantages(rewards: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """How much better each text is than its group, (P, K) for rewards (P, K), and the mistakes that are `on`."""
    others = {
        "mean over the whole batch": lambda: rewards.mean(),
        "mean over the beginnings": lambda: rewards.mean(0, keepdim=True),
        "no baseline": lambda: torch.zeros_like(rewards[:, :1]),
        "sum of the group": lambda: rewards.sum(1, keepdim=True),
        "median of the group": lambda: rewards.median(1, keepdim=True).values,
        "best of the group": lambda: rewards.amax(1, keepdim=True),
        "worst of the group": lambda: rewards.amin(1, keepdim=True),
        "first of the group": lambda: rewards[:, :1],
        "mean of the others": lambda: (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1),
        "mean of those above 0": lambda: (
            rewards.sum(1, keepdim=True) / (rewards != 0).sum(1, keepdim=True).clamp(min=1)
        ),
        "a fixed baseline": lambda: torch.full_like(rewards[:, :1], 0.5),
        "mean on the wrong axis": lambda: rewards.mean(1)[None],
    }
    baseline = next((other() for name, other in others.items() if name in on), rewards.mean(1, keepdim=True))
    found = rewards - baseline
    spread = _spread(rewards, found, on)
    if "divided by the mean" in on:
        return rewards / baseline.clamp(min=1e-6)
    if "softmax" in on:
        return rewards.softmax(1)
    if "only the sign" in on:
        found = found.sign()
    if "only above the mean" in on:
        found = found.clamp(min=0)
    if "flat" in on:
        found = found.flatten()
    return (-found if "wrong sign" in on else found) / spread


def _spread(rewards: Tensor, found: Tensor, on: frozenset[str]) -> Tensor | float:
    """What the differences are divided by."""
    if "divided by the spread" in on:
        return rewards.std(1, keepdim=True) + 1e-6
    if "divided by the spread of all" in on:
        return rewards.std() + 1e-6
    if "divided by the spread, of n" in on:
        return rewards.std(1, keepdim=True, correction=0) + 1e-6
    return found.shape[1] if "divided by the size" in on else 1.0


GROUP_ADVANTAGES = Exercise(
    name="group_advantages",
    lesson="17",
    order=1,
    reference=group_advantages,
    probes=(
        Probe("a reward above the group's mean is positive", lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0]]),)),
        Probe(
            "each group has a mean of its own",
            lambda g: (torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]),),
        ),
        Probe(
            "a group whose rewards are equal gets zeros",
            lambda g: (torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]]),),
        ),
        Probe("rewards may be any numbers", lambda g: (3 * torch.randn(3, 5, generator=g) + 2,)),
        Probe("as many groups as texts in a group", lambda g: (torch.randn(4, 4, generator=g) - 1,)),
        Probe("a group of one text gets 0", lambda g: (torch.tensor([[2.0], [-1.0]]),)),
        Probe("large rewards", lambda g: (100 * torch.rand(2, 6, generator=g),)),
        Probe("any strides", lambda g: (torch.randn(6, 3, generator=g).mT,)),
        Probe("fp64 stays fp64", lambda g: (torch.randn(2, 3, generator=g).double(),), tolerance=1e-6),
    ),
    faults={
        "mean over the whole batch": Fault(
            "one mean over all groups is subtracted",
            "A difficult beginning then counts against its texts: each group has a mean of its own.",
        ),
        "mean over the beginnings": Fault(
            "texts of different groups are compared", "A row is a group: along which axis is the mean of a group?"
        ),
        "mean on the wrong axis": Fault(
            "the means of the groups are subtracted along the wrong axis",
            "The mean of a row belongs to this row: keep the axis, so that it broadcasts along it.",
        ),
        "no baseline": Fault("nothing is subtracted", "How much better than its group is each text?"),
        "sum of the group": Fault(
            "the sum of the group is subtracted", "Is a text that is as good as usual then at 0?"
        ),
        "median of the group": Fault("the median is subtracted", "The mean is expected: it also makes the sum 0."),
        "best of the group": Fault("the best of the group is the baseline", "Then no text is ever better than usual."),
        "worst of the group": Fault("the worst of the group is the baseline", "Then no text is worse than usual."),
        "first of the group": Fault("the first text is the baseline", "All texts of the group make the baseline."),
        "mean of the others": Fault(
            "a text is compared with the mean of the others", "Here the mean of the whole group is expected."
        ),
        "mean of those above 0": Fault("rewards of 0 are left out of the mean", "A failure is a result, too."),
        "a fixed baseline": Fault("the baseline is one half", "It depends on the group."),
        "wrong sign": Fault("the difference is taken the wrong way", "A text above the mean has a positive advantage."),
        "divided by the spread": Fault(
            "the differences are divided by the standard deviation",
            "Some recipes do this. Here the differences are expected as they are.",
        ),
        "divided by the spread, of n": Fault(
            "the differences are divided by the standard deviation, computed with n",
            "Some recipes do this. Here the differences are expected as they are.",
        ),
        "divided by the spread of all": Fault(
            "the differences are divided by the standard deviation of all rewards",
            "Here the differences are expected as they are.",
        ),
        "divided by the size": Fault("the differences are divided by the size of the group", "Leave them as they are."),
        "divided by the mean": Fault("the rewards are divided by the mean", "A difference is expected, not a ratio."),
        "softmax": Fault("the rewards go through a softmax", "Only a mean is subtracted, and the result sums to 0."),
        "only the sign": Fault("only the sign is left", "How far above or below the mean counts, too."),
        "only above the mean": Fault("what is below the mean becomes 0", "It should be negative."),
        "flat": Fault("the groups are joined into one row", "The result has the shape of the rewards."),
    },
    hints=(
        "Take the first group by itself. What is its mean, and how far from it is each of its rewards?",
        "`mean` takes an axis. To subtract its result from every column, keep this axis with `keepdim`.",
    ),
)

EXERCISES = (POLICY_GRADIENT_LOSS, GROUP_ADVANTAGES)
