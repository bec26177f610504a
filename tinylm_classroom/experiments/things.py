"""Texts to test a look with: two things, one of which is asked for, and sayings said twice."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from tinylm_lib import TransformerLM, storyworld

from ..shapes.capture import capture

QUOTE = ' "'


def two_things(tokenizer: Any, n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Texts about two things, as ids (n, T), and the ids of the right thing and the other (n, 2).

    *Carlos had a pink fan. Jamal had a gray book. Jamal took the pink*: names, things and colours
    are random words of StoryWorld. The line end is at 0, so the things are at 5 and 11, each after
    its colour, and the last word is at 16. Texts with an even index ask for the first thing.
    """
    generator = Generator().manual_seed(seed)
    texts = []
    things = []
    for i in range(n):
        (a, b), (x, y), colours = (_two(kind, generator) for kind in ("name", "thing", "colour"))
        c, d = colours
        texts.append(f"\n {a} had a {c} {x}. {b} had a {d} {y}. {b} took the {colours[i % 2]}")
        both = tokenizer.encode(f" {x} {y}")
        things.append(both[::-1] if i % 2 else both)
    return torch.tensor([tokenizer.encode(text) for text in texts]), torch.tensor(things)


def said_twice(tokenizer: Any, n: int, seed: int) -> list[tuple[Tensor, int, int]]:
    """Stories in which a saying of four words is repeated: ids (T), and where it begins, twice."""
    found: list[tuple[Tensor, int, int]] = []
    quote = tokenizer.encode(QUOTE)[0]
    for story in storyworld.corpus(4 * n, seed).splitlines():
        ids = torch.tensor(tokenizer.encode("\n" + story))  # (T)
        begins = (ids == quote).nonzero()[:, 0].tolist()
        if len(begins) == 2 and len(found) < n:
            found.append((ids, begins[0] + 1, begins[1] + 1))
    return found


def weight_on_next(
    model: TransformerLM,
    tokenizer: Any,
    sayings: Callable[[Tensor], tuple[Tensor, Tensor]],
    seed: int,
    n: int = 30,
) -> Tensor:
    """What each head of layer 2 gives to the word that came next in the first of two sayings, at
    the words of the second one: the mean over n stories (H).

    sayings: makes of the four words of a saying (4) those that are put in its place, the first time
    and the second.
    """
    found = []
    for story, first, second in said_twice(tokenizer, n, seed):
        both = sayings(story[first : first + 4].clone())
        for at, words in zip((first, second), both, strict=True):
            story[at : at + 4] = words
        asking = torch.arange(second, second + 3)
        weights = capture(model, story[None]).attention(layer=2).weights[0]  # (H, T, S)
        found.append(weights[:, asking, asking - second + first + 1].mean(-1))
    return torch.stack(found).mean(0)


def others_like(tokenizer: Any, four: Tensor) -> Tensor:
    """For the four words of a saying (4) the ones that follow them in their classes (4)."""
    found = []
    for place, word in enumerate(map(tokenizer.words.__getitem__, four.tolist()), start=1):
        known = storyworld.CLASSES[f"saying{place}"]
        other = known[(known.index(word.strip()) + 1) % len(known)]
        found.append(tokenizer.ids[word.replace(word.strip(), other)])
    return torch.tensor(found)


def _two(kind: str, generator: Generator) -> list[str]:
    """Two words of a class that are not the same."""
    known = storyworld.CLASSES[kind]
    return [known[i] for i in torch.randperm(len(known), generator=generator)[:2].tolist()]
