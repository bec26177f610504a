"""What cuts do: numbers to learn a tokenizer from, a greeting in six languages, one vocabulary with
cuts at words and one without, and readers who know the last letters or the last token.
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tinylm_lib import storyworld
from tinylm_lib.text import CharTokenizer, WordTokenizer, learn_merges, pre_tokens, train_bpe
from tinylm_lib.text.bpe import BPETokenizer, Pair, apply_merges

from .counting import counting_losses

GREETINGS = {
    "English": "Good morning",
    "Chinese": "早上好",
    "Greek": "Καλημέρα",
    "Russian": "Доброе утро",
    "Hindi": "सुप्रभात",
    "Thai": "สวัสดีตอนเช้า",
}
MOST_LETTERS = 6
_NEW = 1000  # added to the seed of stories that were read: that of the stories which test a reader


@cache
def of_stories(seed: int, n_ids: int = 600) -> BPETokenizer:
    """A tokenizer that has learned from 2,000 stories."""
    return train_bpe(storyworld.corpus(2000, seed=seed), n_ids)


def numbers(seed: int, n: int = 3000) -> str:
    """A text of random numbers below 10,000."""
    drawn = torch.randint(10_000, (n,), generator=torch.Generator().manual_seed(seed))
    return " ".join(map(str, drawn.tolist()))


def sizes(tokenizer: BPETokenizer, text: str) -> list[int]:
    """How many bytes each token of a text has."""
    return [len(tokenizer.vocab[i]) for i in tokenizer.encode(text)]


class Vocabularies(NamedTuple):
    """Merges learned from the same text: without cuts, and within pre-tokens."""

    uncut: list[Pair]
    within_words: list[Pair]


def vocabularies(text: str, n_merges: int = 150) -> Vocabularies:
    """As many merges from a text that is cut nowhere, and from its pre-tokens."""
    return Vocabularies(
        learn_merges({text: 1}, n_merges), learn_merges(Counter(pre_tokens(text)), n_merges)
    )


def n_tokens(pieces: Iterable[str], merges: list[Pair]) -> int:
    """How many tokens all pieces have after the merges."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return sum(
        times * len(apply_merges(piece.encode(), ranks)) for piece, times in Counter(pieces).items()
    )


def with_the(merges: list[Pair]) -> list[str]:
    """The tokens that contain *the* as a whole word."""
    return [(a + b).decode() for a, b in merges if b"the" in (a + b).split()]


class InView(NamedTuple):
    """Nats per story of readers with so much text in view: the last 1, 2, ... letters (letters,
    seeds), the last token {tokenizer: (letters of a token, losses by seed)}, and all: the floor.
    """

    letters: Tensor
    tokens: dict[str, tuple[float, Tensor]]
    floor: float


@cache
def by_text_seen(seeds: tuple[int, ...], n_read: int = 2000, n_new: int = 300) -> InView:
    """Readers who count in some stories and are tested on others, for each seed."""
    letters, of_tokens, sizes, floors = [], {}, {}, []
    for seed in seeds:
        text = storyworld.corpus(n_read, seed=seed)
        new = storyworld.corpus(n_new, seed=seed + _NEW)
        drawn = [storyworld.log_prob(line) for line in new.splitlines()[:100]]
        floors.append(-sum(drawn) / len(drawn))
        tokenizers = {f"BPE {ids}": train_bpe(text, ids) for ids in (400, 600)}
        tokenizers |= {"words": WordTokenizer(text), "letters": CharTokenizer.from_text(text)}
        for name, tokenizer in tokenizers.items():
            most = MOST_LETTERS if name == "letters" else 1
            read, heard = (torch.tensor(tokenizer.encode(each)) for each in (text, new))
            found = counting_losses(read, heard, tokenizer.encode("\n")[0], most)
            losses = found.sum(1)[1:] / n_new  # (most)
            if name == "letters":
                letters.append(losses)
            else:
                of_tokens.setdefault(name, []).append(losses[0])
                sizes.setdefault(name, []).append(len(new) / len(heard))
    return InView(
        torch.stack(letters, dim=1),
        {name: (sum(sizes[name]) / len(seeds), torch.stack(of_tokens[name])) for name in of_tokens},
        sum(floors) / len(seeds),
    )


def words_off(model: nn.Module, tokenizer: WordTokenizer, seed: int, limit: float = 0.5) -> int:
    """On how many words of a story a model's loss differs by more than `limit` nats from that of a
    reader who knows every probability.
    """
    text = storyworld.story(torch.Generator().manual_seed(seed)).text + "\n"
    reader = storyworld.Reader()
    exact = torch.tensor([-math.log(reader.read(word)) for word in storyworld.words(text)])  # (T)
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (1, T + 1)
    with torch.no_grad():
        log_probs = model(ids[:, :-1]).log_softmax(-1)[0]  # (T, V)
    losses = -log_probs.gather(-1, ids[0, 1:, None])[:, 0]  # (T)
    return int(((losses - exact).abs() > limit).sum())
