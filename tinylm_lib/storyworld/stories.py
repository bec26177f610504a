"""StoryWorld: a language of short stories whose exact entropy is known. Notebook 03.

A story walks through scenes. A scene offers sentences with stated probabilities, and in a sentence
new words are drawn, all equally likely, and earlier ones said again. So the probability of every
story is known, and for every word said again the earlier words that determine it. A pronoun stands
for the subject of the sentence before, or of its own sentence. A story is one line of text.
"""

import math
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from ..text.cutting import words
from .scenes import Option, Scene, choices, options
from .sentences import CLASSES, DIFFERENT

MOST_DRAWS = 64  # a story makes fewer


class Totals(NamedTuple):
    """What is left of a story from a scene on, its line end included."""

    nats: float  # entropy
    n_words: float  # expected
    most_words: int


@cache
def totals(scene: Scene) -> Totals:
    """Sum over every way to the end, visiting each scene once."""
    nats = 0.0
    n_words = 0.0
    most_words = 0
    for option in options(scene):
        rest = totals(option.then) if option.then.name != "opening" else Totals(0.0, 0.0, 0)
        new = sum(
            math.log(len(CLASSES[slot.new]) - (slot.role in DIFFERENT))
            for slot in option.slots
            if slot.new
        )
        nats += option.p * (rest.nats + new - math.log(option.p))
        n_words += option.p * (rest.n_words + len(option.slots))
        most_words = max(most_words, rest.most_words + len(option.slots))
    return Totals(nats, n_words, most_words)


class Story(NamedTuple):
    """A story and what is known about it; `lookback` and `kinds` have an entry per word, as
    `words(text)` cuts them.

    log_prob: natural logarithm of the story's probability, in nats. lookback: for a word that the
    words before it determine, the positions of those words, every mention of the same thing. kinds:
    what it is, one of LOOK_BACKS. Both are empty for all other words.
    """

    text: str
    log_prob: float
    lookback: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]


def story(generator: torch.Generator | None = None) -> Story:
    """Draw a story.

    It is one line; the line end after it adds no loss, because the last sentence determines it.
    """
    return _story_from(torch.rand(MOST_DRAWS, generator=generator, dtype=torch.float64).tolist())


def _story_from(draws: list[float]) -> Story:
    scene = Scene()
    role_words = dict[str, str]()
    mentions = dict[str, list[int]]()
    text = list[str]()
    lookback = []
    kinds = list[str]()
    log_prob = 0.0
    drawn = iter(draws)
    while scene.name != "story_end":
        option = _drawn(options(scene), next(drawn))
        log_prob += math.log(option.p)
        for slot in option.slots:
            word = slot.text
            n = 1
            if slot.role:
                among = choices(slot, role_words)
                n = len(among)
                word = among[int(next(drawn) * n)] if n > 1 else among[0]
                log_prob -= math.log(n)
            if slot.new:
                role_words[slot.role] = word.lstrip()
            lookback.append(tuple(mentions.get(slot.role, ())) if slot.kind else ())
            kinds.append(slot.kind)
            if slot.role:
                mentions.setdefault(slot.role, []).append(len(text))
            text.append(word)
        scene = option.then
    return Story("".join(text), log_prob, tuple(lookback), tuple(kinds))


def _drawn(ways: tuple[Option, ...], u: float) -> Option:
    for option in ways:
        u -= option.p
        if u < 0:
            return option
    return ways[-1]


def corpus(n_stories: int, seed: int) -> str:
    """Return so many stories, each with its line end. The first ones are those of any larger corpus
    of the seed.

    Raises ValueError for less than one story.
    """
    if n_stories < 1:
        raise ValueError(f"n_stories must be at least 1, got {n_stories}")
    generator = torch.Generator().manual_seed(seed)
    return "".join(story(generator).text + "\n" for _ in range(n_stories))


class Reading(NamedTuple):
    """One way to understand what was read: its probability, sentence, words read of it, and the
    word of each role.
    """

    p: float
    option: Option
    n_read: int
    role_words: dict[str, str]


class Reader:
    """Reads stories word by word and knows the exact probability of every next word."""

    def __init__(self) -> None:
        self.readings = self._after(1.0, Scene(), {})

    def _after(self, p: float, scene: Scene, role_words: dict[str, str]) -> list[Reading]:
        self.complete = scene.name in ("opening", "story_end")
        return [Reading(p * option.p, option, 0, role_words) for option in options(scene)]

    def next_word_probs(self) -> dict[str, float]:
        """The probability of each word that can come next."""
        probs: dict[str, float] = {}
        for p, option, n_read, role_words in self.readings:
            among = choices(option.slots[n_read], role_words)
            for word in among:
                probs[word] = probs.get(word, 0.0) + p / len(among)
        return probs

    def read(self, word: str) -> float:
        """Read a word and return its probability; one of probability 0 is not read."""
        going = []
        total = 0.0
        for p, option, n_read, role_words in self.readings:
            slot = option.slots[n_read]
            among = choices(slot, role_words)
            if word in among:
                total += p / len(among)
                known = {**role_words, slot.role: word.lstrip(" ")} if slot.new else role_words
                going.append(Reading(p / len(among), option, n_read + 1, known))
        if going:
            self.complete = False
            self.readings = [r._replace(p=r.p / total) for r in going]
            if len(going) == 1 and going[0].n_read == len(going[0].option.slots):
                self.readings = self._after(1.0, going[0].option.then, going[0].role_words)
        return total


class Parse(NamedTuple):
    """The log-probability of a text in nats, and where it first goes wrong: a position in the text,
    or None.
    """

    log_prob: float
    error_at: int | None


def parse(text: str) -> Parse:
    """Read whole stories, one a line; the last line's end may be missing.

    An impossible text has log-probability minus infinity. error_at: where its first impossible word
    starts, or the text's length where it ends in the middle of a story.
    """
    reader = Reader()
    log_prob = 0.0
    position = 0
    for word in words(text):
        p = reader.read(word)
        if p == 0:
            return Parse(-math.inf, position)
        log_prob += math.log(p)
        position += len(word)
    return Parse(log_prob, None) if text and reader.complete else Parse(-math.inf, len(text))


def log_prob(text: str) -> float:
    """The log-probability of whole stories, in nats; minus infinity for a text that StoryWorld
    never produces.
    """
    return parse(text).log_prob


def entropy_per_story() -> float:
    """The exact entropy of a story, in nats: what the best possible predictor loses on a story on
    average.
    """
    return totals(Scene()).nats


class Entropies(NamedTuple):
    """What predictors of StoryWorld lose at best, in nats per token, line ends included.

    unigram: knowing how frequent each token is. bigram: knowing the token before. floor: knowing
    everything.
    """

    unigram: float
    bigram: float
    floor: float


def entropies(tokenizer: Any, n_stories: int = 5_000, seed: int = 0) -> Entropies:
    """Count tokens, and pairs of them, in a corpus; the floor is exact but for the mean length of a
    story in tokens.

    tokenizer: anything with `encode`.
    """
    tokens = tokenizer.encode(corpus(n_stories, seed))
    unigram = _entropy(Counter(tokens))
    pairs = _entropy(Counter(pairwise(tokens)))
    return Entropies(unigram, pairs - unigram, entropy_per_story() * n_stories / len(tokens))


def _entropy(counts: Counter) -> float:
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values())
