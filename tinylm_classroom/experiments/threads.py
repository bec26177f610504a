"""Which earlier words a model uses: each is exchanged for others of its kind, and what the model
then no longer expects depended on it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.storyworld import CLASSES, story, words

LEAST = 0.4  # of its probability that a word loses at the end of a thread
EVERY = 4  # one of so many words of a kind is put in
KINDS = {
    "people": ("name", "trait", "job"),
    "places": ("place",),
    "things": ("thing", "colour"),
    "the saying": ("saying1", "saying2", "saying3", "saying4"),
    "anything else": ("weather", "day", "go", "carry", "say", "feeling"),
}
REMEMBERED = ("name", "place", "object", "quotation")  # kinds of words in a Story


class Thread(NamedTuple):
    """From a word to a later one of a story, counted from 0: the kind of the first, and how much
    less probable the second is, on average, if the first is exchanged.
    """

    source: int
    target: int
    kind: str
    lost: float


def losses(model: TransformerLM, tokenizer: Any, text: str) -> dict[int, tuple[str, Tensor]]:
    """For each word of a story that can be exchanged, its kind and what every word of the story
    (T) loses of its probability without it.

    tokenizer: a WordTokenizer that knows every word of StoryWorld.
    """
    said = words(text)
    ids = torch.tensor(tokenizer.encode("\n" + text))
    as_written = _expected(model, ids[None], ids)[0]
    found = {}
    for position, word in enumerate(said):
        kind, others = _others_like(word, said)
        if others:
            changed = ids.repeat(len(others), 1)
            changed[:, position + 1] = torch.tensor([tokenizer.ids[other] for other in others])
            found[position] = (kind, as_written - _expected(model, changed, ids).mean(0))
    return found


def find_threads(model: TransformerLM, tokenizer: Any, text: str) -> list[Thread]:
    """The pairs of words in a story of which the later one loses at least 0.4 of its probability
    where the earlier one is exchanged for others of its kind.

    tokenizer: a WordTokenizer that knows every word of StoryWorld.
    """
    found = []
    for source, (kind, all_lost) in losses(model, tokenizer, text).items():
        ends = (all_lost > LEAST).nonzero()[:, 0].tolist()
        found += [Thread(source, target, kind, all_lost[target].item()) for target in ends]
    return found


def share_of_threads(
    model: TransformerLM, tokenizer: Any, n_stories: int, seed: int
) -> tuple[float, set[str]]:
    """In new stories: the share of all names, places, things and words of sayings that a thread
    ends at, and the words of other kinds that a thread begins at.
    """
    generator = torch.Generator().manual_seed(seed)
    ended = []
    others = set()
    for _ in range(n_stories):
        told = story(generator)
        said = words(told.text)
        found = find_threads(model, tokenizer, told.text)
        targets = {each.target for each in found}
        ended += [i in targets for i, kind in enumerate(told.kinds) if kind in REMEMBERED]
        others |= {said[each.source].strip() for each in found if each.kind == "anything else"}
    return sum(ended) / len(ended), others


def _others_like(word: str, said: list[str]) -> tuple[str, list[str]]:
    """The kind of a word, and some other words of that kind that the story does not have."""
    blank = " " if word.startswith(" ") else ""
    for kind, names in KINDS.items():
        for name in names:
            if word.strip() in CLASSES[name]:
                others = [blank + other for other in CLASSES[name]]
                return kind, [other for other in others if other not in said][::EVERY]
    return "", []


def _expected(model: TransformerLM, texts: Tensor, ids: Tensor) -> Tensor:
    """How probable each of the ids (T + 1) but the first is after the ones before it in other
    texts (N, T + 1). Returns (N, T).
    """
    with evaluation_mode(model):
        probs = next_token_probs(model(texts[:, :-1]))
    return probs[:, torch.arange(len(ids) - 1), ids[1:]]
