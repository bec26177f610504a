"""Whether a model knows who has what, and where its stories go wrong."""

from collections.abc import Iterable
from typing import Any

import torch

from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.sampling import generate
from tinylm_lib.storyworld import CLASSES, parse, story, words

MOST_TOKENS = 120  # of a story that a model writes


def exchanged_givers(
    model: TransformerLM, tokenizer: Any, n_stories: int, seed: int
) -> list[tuple[float, float]]:
    """In new stories, up to the first gift, the probability of the colour of the first person's
    thing after "Soon (name) handed the": if that person gives, and if the other one does.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(n_stories):
        said = words(story(generator).text)
        quotes = [i for i, word in enumerate(said) if '"' in word]
        head = said[: quotes[1] + 1]
        first, second = list(dict.fromkeys(_of_class(head, "name")))[:2]
        (colour, *_) = _of_class(head, "colour")
        starts = [f"\n{''.join(head)} Soon{name} handed the" for name in (first, second)]
        ids = torch.tensor([tokenizer.encode(text) for text in starts])
        with evaluation_mode(model):
            probs = next_token_probs(model(ids)[:, -1])[:, tokenizer.ids[colour]]
        found.append((probs[0].item(), probs[1].item()))
    return found


def _of_class(said: Iterable[str], name: str) -> list[str]:
    return [word for word in said if word.strip() in CLASSES[name]]


def first_impossible(
    model: TransformerLM, tokenizer: Any, beginning: str, n_stories: int, seed: int
) -> list[tuple[int, int | None]]:
    """Of each story that a model writes how many words it has, and the position of the first one
    that StoryWorld never writes there, or None.
    """
    ids = torch.tensor([tokenizer.encode("\n" + beginning)] * n_stories)  # (B, T)
    generator = torch.Generator().manual_seed(seed)
    written = generate(
        model, ids, MOST_TOKENS, stop_ids=tokenizer.encode("\n"), generator=generator
    )
    found = []
    for row in written.tolist():
        text = tokenizer.decode(row).strip("\n").split("\n")[0]
        at = parse(text).error_at
        found.append((len(words(text)), None if at is None else len(words(text[:at]))))
    return found
