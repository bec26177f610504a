"""Lesson 00: a text that grows by the most likely token."""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts

Model = Callable[[Tensor], Tensor]


def continue_greedily(
    model: Model, ids: Tensor, n: int, on: frozenset[str] = frozenset()
) -> Tensor | None:
    """(1, T + n): ids (1, T) and n more, each the most likely next one, and the mistakes that are
    `on`.
    """
    n += ("one more" in on) - ("one less" in on and n > 0)
    seen = ids
    if "n best of one call" in on:
        return torch.cat((ids, model(ids)[:, -1].topk(n).indices), dim=1)
    if "last n positions" in on:
        return torch.cat((ids, model(ids)[:, -n:].argmax(-1)), dim=1)
    for step in range(n):
        scores = model(_read(seen, ids, on))
        next_id = _chosen(scores, step, on)
        seen = torch.cat((next_id, seen) if "put in front" in on else (seen, next_id), dim=1)
        if "stops after one" in on:
            break
    return _returned(seen, ids, on)


def _read(seen: Tensor, ids: Tensor, on: frozenset[str]) -> Tensor:
    """What the model reads in one round."""
    if "sees the last token alone" in on:
        return seen[:, -1:]
    if "start not read" in on and seen.shape[1] > ids.shape[1]:
        return seen[:, ids.shape[1] :]
    return ids if "never reads on" in on else seen


def _chosen(scores: Tensor, step: int, on: frozenset[str]) -> Tensor:
    """The next id, (1, 1)."""
    if "one position early" in on:
        row = scores[:, max(0, scores.shape[1] - 2)]
    else:
        row = scores[:, 0 if "first position" in on else -1]
    if "all positions" in on:
        row = scores.amax(1)
    if "least likely" in on:
        return row.argmin(-1, keepdim=True)
    if "second choice" in on:
        return row.topk(2, -1).indices[:, 1:]
    drawn = torch.Generator().manual_seed(step)
    return (
        row.softmax(-1).multinomial(1, generator=drawn)
        if "drawn" in on
        else row.argmax(-1, keepdim=True)
    )


def _returned(seen: Tensor, ids: Tensor, on: frozenset[str]) -> Tensor | None:
    if "nothing returned" in on:
        return None
    if "new ones only" in on or "last one only" in on:
        seen = seen[:, ids.shape[1] :]
    if "last one only" in on:
        seen = seen[:, -1:]
    return seen[0] if "one axis" in on else seen


def _model(g: Generator, n_tokens: int) -> Model:
    """A causal toy: its scores at a position depend on all the tokens up to there, and on their
    order.
    """
    size = (n_tokens, n_tokens)
    last, before = (2 * torch.randn(size, generator=g) for _ in range(2))

    def scores(ids: Tensor) -> Tensor:
        n = torch.arange(1, ids.shape[1] + 1)
        weighted = before[ids] * n.sqrt()[:, None]
        past = weighted.cumsum(1) / n[:, None]
        return last[ids] + past + n[:, None].sin() * last.diagonal()

    return scores


def _call(n_tokens: int, n_read: int, n: int) -> Callable[[Generator], tuple]:
    def make(g: Generator) -> tuple:
        model = _model(g, n_tokens)
        return model, torch.randint(n_tokens, (1, n_read), generator=g), n

    return make


CONTINUE_GREEDILY = Exercise(
    name="continue_greedily",
    lesson="00",
    reference=continue_greedily,
    probes=(
        Probe("one new token: the most likely one after the last position", _call(7, 3, 1)),
        Probe("the second new token depends on the first one", _call(7, 3, 2)),
        Probe("n = 0 adds nothing", _call(7, 4, 0)),
        Probe("a text can begin with one token", _call(9, 1, 5)),
        Probe("each round reads the whole text", _call(11, 5, 12)),
        Probe("each round reads the whole text", _call(6, 2, 9)),
        Probe("as many tokens as n", _call(13, 8, 20)),
    ),
    **texts("continue_greedily"),
)

EXERCISES = (CONTINUE_GREEDILY,)
