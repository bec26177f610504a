"""What cuts do: numbers to learn a tokenizer from, a greeting in six languages, one vocabulary with
cuts at words and one without, and readers who know the last letters or the last token.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained
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


def sizes_of_numbers(seed: int) -> list[list[int]]:
    """The lengths of the tokens of each number from 1,000 to 9,999 for a tokenizer of numbers."""
    tokenizer = train_bpe(numbers(seed), 300)
    return [sizes(tokenizer, f" {number}") for number in range(1000, 10_000)]


def strange(seed: int, n: int = 50) -> str:
    """A text of random characters, of many scripts."""
    drawn = torch.randint(32, 0xD800, (n,), generator=torch.Generator().manual_seed(seed))
    return "".join(map(chr, drawn.tolist()))


class Price(NamedTuple):
    """Merges learned from the same text without cuts and within pre-tokens, and the number of
    tokens of this text and of new stories with each: (uncut, within words).
    """

    uncut: list[Pair]
    within_words: list[Pair]
    n_tokens: list[tuple[int, int]]


def price_of_cuts(seed: int, n_merges: int = 150) -> Price:
    """As many merges from stories that are cut nowhere, and from their pre-tokens."""
    read = storyworld.corpus(60, seed=seed)[:20_000]
    new = storyworld.corpus(20, seed=seed + _NEW)[:5_000]
    uncut = learn_merges({read: 1}, n_merges)
    within = learn_merges(Counter(pre_tokens(read)), n_merges)
    lengths = [
        (n_tokens([each], uncut), n_tokens(pre_tokens(each), within)) for each in (read, new)
    ]
    return Price(uncut, within, lengths)


def n_tokens(pieces: Iterable[str], merges: list[Pair]) -> int:
    """How many tokens all pieces have after the merges."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return sum(
        times * len(apply_merges(piece.encode(), ranks)) for piece, times in Counter(pieces).items()
    )


def with_the(merges: list[Pair]) -> list[str]:
    """The tokens that contain *the* as a whole word."""
    return [(a + b).decode() for a, b in merges if b"the" in (a + b).split()]


@cache
def ways() -> dict[str, Callable[[str], list]]:
    """Three cuts of a word: {name: a function from a word to its pieces}."""
    return {"words": lambda word: [word], "BPE 400": of_stories(0, 400).encode, "characters": list}


def beginnings(
    story: str, losses_in_story: Callable[[str, Callable], list[float]], n_words: int = 7
) -> dict[str, tuple[list[str], list[float]]]:
    """The first words of a story in each cut: {cut: (tokens, loss of each)}."""
    found = {}
    for name, cut in ways().items():
        pieces = list(chain.from_iterable(map(cut, storyworld.words(story)[:n_words])))
        losses = [abs(loss) for loss in losses_in_story(story, cut)[: len(pieces)]]
        if name.startswith("BPE"):
            pieces = [of_stories(0, 400).decode([piece]) for piece in pieces]
        found[name] = (pieces, losses)
    return found


def same_sums(cuts: dict[str, tuple[list[str], list[float]]]) -> bool:
    """Whether the losses of each cut have the same sum."""
    return len({round(sum(losses), 6) for _, losses in cuts.values()}) == 1


class TextSeen(NamedTuple):
    """Nats per story of readers with so much text in view: the last 1, 2, ... letters (letters,
    seeds), the last token {tokenizer: (letters of a token, losses by seed)}, and all: the floor.
    """

    letters: Tensor
    tokens: dict[str, tuple[float, Tensor]]
    floor: float

    @property
    def one_word(self) -> Tensor:
        """The losses of the reader who knows the last word, by seed."""
        return self.tokens["words"][1]

    @property
    def as_good(self) -> int:
        """With how many letters a reader is most nearly as good as that one."""
        return int((self.letters - self.one_word).abs().mean(1).argmin()) + 1

    @property
    def near_the_curve(self) -> bool:
        """Whether a token of n letters is worth more than the last n rounded down, and less than
        one more than n rounded up, with every seed.
        """
        return all(
            bool((self.letters[math.floor(size) - 1] > losses).all())
            and bool((losses > self.letters[math.ceil(size)]).all())
            for size, losses in self.tokens.values()
        )


@cache
def by_text_seen(seeds: tuple[int, ...], n_read: int = 2000, n_new: int = 300) -> TextSeen:
    """Readers who count in some stories and are tested on others, for each seed."""
    letters: list[Tensor] = []
    of_tokens: dict[str, list[Tensor]] = {}
    sizes: dict[str, list[float]] = {}
    floors: list[float] = []
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
    return TextSeen(
        torch.stack(letters, dim=1),
        {name: (sum(sizes[name]) / len(seeds), torch.stack(of_tokens[name])) for name in of_tokens},
        sum(floors) / len(seeds),
    )


def words_off(seed: int, limit: float = 0.5) -> int:
    """On how many words of a story the loss of the shipped model differs by more than `limit` nats
    from that of a reader who knows every probability.
    """
    shipped = load_pretrained("storyworld")
    text = storyworld.story(torch.Generator().manual_seed(seed)).text + "\n"
    reader = storyworld.Reader()
    exact = torch.tensor([-math.log(reader.read(word)) for word in storyworld.words(text)])
    ids = torch.tensor([shipped.tokenizer.encode("\n" + text)])
    with torch.no_grad():
        log_probs = shipped.model.eval()(ids[:, :-1]).log_softmax(-1)[0]
    losses = -log_probs.gather(-1, ids[0, 1:, None])[:, 0]
    return int(((losses - exact).abs() > limit).sum())
