"""How far a model is from StoryWorld's exact floor, for each kind of look-back. Notebook 11."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..layers import evaluation_mode
from ..text.cutting import words
from .stories import Reader, Story

BATCH = 50


class Gap(NamedTuple):
    """What a model loses beyond the floor on the words of one kind.

    nats: mean Kullback-Leibler divergence of the model's distribution of the word from the exact
    one, nats per word.
    right: fraction of the words that are the model's most probable one. n_words: how many there
    were.
    """

    nats: float
    right: float
    n_words: int


def gaps(model: nn.Module, tokenizer: Any, stories: Sequence[Story]) -> dict[str, Gap]:
    """Compare a model with the exact distribution of every word of some stories, each read from its
    line's start.

    tokenizer: a WordTokenizer that knows every word of StoryWorld.
    Returns a Gap for each kind of look-back (those of LOOK_BACKS that occur), for "other" words,
    and for "all": its nats are nats per token above the floor, without the noise of a loss that is
    measured on a sample.
    Raises ValueError for no stories and for a tokenizer that does not make one token of a word.
    """
    if not stories:
        raise ValueError("there are no stories to compare on; give at least one")
    columns: list[tuple[list[str], Tensor, Tensor]] = []
    with evaluation_mode(model):
        for start in range(0, len(stories), BATCH):
            some = stories[start : start + BATCH]
            ids, exact = zip(*(_exact(tokenizer, story.text) for story in some), strict=True)
            x = nn.utils.rnn.pad_sequence([row[:-1] for row in ids], batch_first=True)  # (B, T)
            logits = (
                model(x.to(next(model.parameters()).device)).float().log_softmax(-1).cpu()
            )  # (B, T, V)
            for story, row, p, log_q in zip(some, ids, exact, logits, strict=True):
                log_q = log_q[: len(p), : p.shape[1]]  # (N, V), without ids of the model alone
                kl = torch.where(p > 0, p * (p.clamp(min=1e-30).log() - log_q), 0.0).sum(-1)  # (N)
                columns.append(([*story.kinds, ""], kl, log_q.argmax(-1) == row[1:]))
    kinds = [kind or "other" for kind in chain.from_iterable(column[0] for column in columns)]
    kl, right = (torch.cat([column[i] for column in columns]).double() for i in (1, 2))
    masks = {"all": torch.ones(len(kinds), dtype=torch.bool)}
    masks |= {kind: torch.tensor([k == kind for k in kinds]) for kind in sorted(set(kinds))}
    return {
        kind: Gap(kl[at].mean().item(), right[at].mean().item(), int(at.sum()))
        for kind, at in masks.items()
    }


@lru_cache(maxsize=BATCH)  # a training is measured on the same stories again and again
def _exact(tokenizer: Any, text: str) -> tuple[Tensor, Tensor]:
    """The ids (N + 1,) of a line and the line end before it, and the exact probabilities (N, V) of
    each but one.
    """
    text_words = words(text + "\n")
    ids = tokenizer.encode("\n" + text + "\n")
    if len(ids) != len(text_words) + 1:
        raise ValueError(
            f"{len(text_words)} words made {len(ids) - 1} tokens; exact gaps need a WordTokenizer"
        )
    known = {}
    reader = Reader()
    probs = torch.zeros(len(text_words), tokenizer.vocab_size)
    for i, word in enumerate(text_words):
        for possible, p in reader.next_word_probs().items():
            if possible not in known:
                (known[possible],) = tokenizer.encode(possible)
            probs[i, known[possible]] = p
        reader.read(word)
    return torch.tensor(ids), probs
