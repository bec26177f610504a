"""What the ways to write do to whole texts: the tree of all of them, which of them are possible,
how much they vary, and what the temperature changes in stories with the same events.
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM
from tinylm_lib.probabilities import next_token_probs, sample
from tinylm_lib.sampling import Context, generate
from tinylm_lib.storyworld import (
    CLASSES,
    DIFFERENT,
    Reader,
    Scene,
    options,
    parse,
    story,
    words,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEAST = 0.002  # of a piece that can be seen
MOST_TOKENS = 128  # of a story, with the line end before it
RUN = 4  # words: of the pieces of a text that are compared
EIGHT = 8  # stories, in which they are counted

# A text, where its piece of the line from 0 to 1 begins, and how long it is.
Piece = tuple[str, float, float]


class Run(NamedTuple):
    """What became of n stories drawn at a temperature, or with another rule.

    what: all events, or those that the stories were made to begin with. trades: how many of them
    have a trade and no gift. variety: the mean over groups of eight, and its standard error.
    """

    what: str
    rule: str
    value: float
    n: int
    impossible: int
    trades: int
    variety: float
    error: float

    @property
    def part(self) -> float:
        """The fraction of impossible stories."""
        return self.impossible / self.n

    @property
    def part_error(self) -> float:
        """The standard error of that fraction."""
        return (self.part * (1 - self.part) / self.n) ** 0.5


def opening_of(text: str) -> str:
    """A story up to what is said in it; after that they trade, or somebody gives something away."""
    return text[: text.index('."') + 2]


def can_happen(text: str) -> bool:
    """Whether StoryWorld allows this beginning of a story."""
    return parse(text).error_at in (None, len(text))


def n_impossible(texts: Iterable[str]) -> int:
    """How many of these stories StoryWorld never writes."""
    return sum(parse(text).error_at is not None for text in texts)


def all_texts(
    model: TransformerLM, tokenizer: Any, text: str, n_words: int, **rules: Any
) -> list[list[Piece]]:
    """Everything that a model may write next: for each of n words all texts so far that have a
    probability of 0.002 or more, the probable ones first.

    rules: as in `next_token_probs`.
    """
    levels: list[list[Piece]] = [[(text, 0.0, 1.0)]]
    for _ in range(n_words):
        ids = torch.tensor([tokenizer.encode("\n" + each) for each, *_ in levels[-1]])  # (B, T)
        with evaluation_mode(model), torch.no_grad():
            probs = next_token_probs(model(ids)[:, -1], **rules)  # (B, V)
        longer = []
        for (before, begin, length), row in zip(levels[-1], probs, strict=True):
            for token in row.argsort(descending=True, stable=True).tolist():
                piece = length * row[token].item()
                if piece < LEAST:
                    break
                longer.append((before + tokenizer.decode([token]), begin, piece))
                begin += piece
        levels.append(longer)
    return levels[1:]


def two_words(
    first: Mapping[str, float], second: Mapping[str, Mapping[str, float]]
) -> list[list[Piece]]:
    """A tree by hand: the probability of each first word, and of each second word after it."""
    levels: list[list[Piece]] = [[], []]
    begin = 0.0
    for word, p in first.items():
        levels[0].append((word, begin, p))
        for after, q in second[word].items():
            levels[1].append((word + after, begin, p * q))
            begin += p * q
    return levels


def wrong_gifts(model: TransformerLM, tokenizer: Any, n_stories: int, seed: int) -> list[float]:
    """In new stories, after what is said: of the probability of gifts, the part of those in which
    somebody gives away what the other one has.
    """
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(n_stories):
        texts = all_texts(model, tokenizer, opening_of(story(generator).text), 7)[-1]
        gifts = [(text, length) for text, _, length in texts if "traded" not in text]
        wrong = sum(length for text, length in gifts if not can_happen(text))
        found.append(wrong / sum(length for _, length in gifts))
    return found


def exact_rows(tokenizer: Any, text: str) -> Tensor:
    """The exact probability of each next word at each word of a story, (T, V)."""
    reader = Reader()
    rows = []
    for word in words(text):
        row = torch.zeros(tokenizer.vocab_size)
        for candidate, p in reader.next_word_probs().items():
            row[tokenizer.ids[candidate]] = p
        rows.append(row)
        reader.read(word)
    return torch.stack(rows)


def judged(
    model: TransformerLM, tokenizer: Any, n_stories: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Logits and exact probabilities at every word of new stories, with their line ends, (N, V)
    each.
    """
    generator = torch.Generator().manual_seed(seed)
    logits = []
    exact = []
    for _ in range(n_stories):
        text = story(generator).text + "\n"
        with evaluation_mode(model), torch.no_grad():
            logits.append(model(torch.tensor([tokenizer.encode("\n" + text)[:-1]]))[0])
        exact.append(exact_rows(tokenizer, text))
    return torch.cat(logits), torch.cat(exact)


def finished(
    model: TransformerLM, tokenizer: Any, beginnings: Sequence[str], seed: int, **rules: Any
) -> list[str]:
    """Stories that begin like this and are written to their line end; all beginnings are equally
    long.

    rules: as in `generate`.
    """
    ids = torch.tensor([tokenizer.encode("\n" + text) for text in beginnings])  # (B, T)
    line_end = tokenizer.encode("\n")
    written = generate(
        model,
        ids,
        MOST_TOKENS - ids.shape[1],
        stop_ids=line_end,
        pad_id=line_end[0],
        generator=torch.Generator().manual_seed(seed),
        **rules,
    )
    return [tokenizer.decode(row).strip().split("\n")[0] for row in written.tolist()]


def allowed_stories(model: TransformerLM, tokenizer: Any, n: int, seed: int) -> list[str]:
    """Stories in which each word is drawn among those that StoryWorld allows there."""
    generator = torch.Generator().manual_seed(seed)
    readers = [Reader() for _ in range(n)]
    context = Context(model, torch.tensor([tokenizer.encode("\n")] * n), MOST_TOKENS)
    new = None
    columns = []
    for _ in range(MOST_TOKENS - 1):
        logits = context.advance(new)  # (B, V)
        forbidden = torch.ones_like(logits, dtype=torch.bool)
        for row, reader in zip(forbidden, readers, strict=True):
            row[[tokenizer.ids[word] for word in reader.next_word_probs()]] = False
        probs = next_token_probs(logits.masked_fill(forbidden, -torch.inf))  # (B, V)
        new = sample(probs, generator)  # (B)
        for token, reader in zip(new.tolist(), readers, strict=True):
            reader.read(tokenizer.decode([token]))
        columns.append(new)
    ids = torch.stack(columns, dim=1)  # (B, T)
    return [tokenizer.decode(row).split("\n")[0] for row in ids.tolist()]


def true_stories(n: int, seed: int) -> list[str]:
    """Stories of StoryWorld itself."""
    generator = torch.Generator().manual_seed(seed)
    return [story(generator).text for _ in range(n)]


def highest_log_prob() -> float:
    """The log probability of the most probable story of all, in nats."""
    return _highest(Scene())


@cache
def _highest(scene: Scene) -> float:
    """The log probability of the most probable way from a scene to the end of a story, in nats."""
    ways = []
    for way in options(scene):
        new = [slot for slot in way.slots if slot.new]
        picked = sum(math.log(len(CLASSES[slot.new]) - (slot.role in DIFFERENT)) for slot in new)
        rest = _highest(way.then) if way.then.name != "opening" else 0.0
        ways.append(math.log(way.p) - picked + rest)
    return max(ways)


def first_words(n_words: int, n: int, seed: int) -> list[str]:
    """The first words of true stories."""
    return ["".join(words(text)[:n_words]) for text in true_stories(n, seed)]


def first_thing(text: str) -> str:
    """What the hero of a story has, with its color: the end of the second sentence."""
    return " ".join(text.split(".")[1].split()[-2:])


def from_words(
    model: TransformerLM,
    tokenizer: Any,
    n_words: int,
    n: int,
    seeds: Iterable[int],
    *,
    temperature: float,
) -> list[str]:
    """Stories that begin with the first words of true stories, n of them for each seed."""
    found: list[str] = []
    for seed in seeds:
        beginnings = first_words(n_words, n, seed)
        found += finished(model, tokenizer, beginnings, seed, temperature=temperature)
    return found


def marked(text: str) -> str:
    """A story with its first impossible word in brackets, in capitals."""
    at = parse(text).error_at
    if at is None or at == len(text):
        return text
    word = words(text[at:])[0]
    return f"{text[:at]} [{word.strip().upper()}]{text[at + len(word) :]}"


def excerpt(text: str) -> str:
    """Who has what in a story, and the sentence of its first impossible word."""
    sentences = re.split(r"(?<=\.) ", marked(text))
    wrong = [sentence for sentence in sentences if "[" in sentence]
    return " ".join([*sentences[1:3], "…", *(wrong or ["possible"])])


def variety(texts: Sequence[str]) -> float:
    """Of the runs of four words in these texts, the fraction that differ."""
    said = words("\n".join(texts))
    runs = [tuple(said[i : i + RUN]) for i in range(len(said) - RUN + 1)]
    return len(set(runs)) / len(runs)


def in_eights(texts: Sequence[str]) -> Tensor:
    """The variety of each group of eight stories, (N)."""
    groups = [texts[i : i + EIGHT] for i in range(0, len(texts), EIGHT)]
    return torch.tensor([variety(group) for group in groups])


def is_trade(text: str) -> bool:
    """Whether they trade in a story, and nobody gives anything away."""
    return "traded" in text and not any(word in text for word in (" gave ", " handed "))


def with_events(what: str, n: int, seed: int) -> list[str]:
    """Beginnings of true stories up to the end of their events: a trade, or one gift.

    Raises: KeyError for other events.
    """
    n_gifts = {"a trade": 0, "a gift": 1}[what]
    generator = torch.Generator().manual_seed(seed)
    found: list[str] = []
    while len(found) < n:
        text = story(generator).text
        beginning = text[: text.index(" Afterwards")] + " Afterwards"
        gifts = beginning.count(" gave ") + beginning.count(" handed ")
        if gifts == n_gifts and ("traded" in beginning) == (what == "a trade"):
            found.append(beginning)
    return found


def in_batches(
    model: TransformerLM, tokenizer: Any, beginnings: Sequence[str], seed: int, **rules: Any
) -> list[str]:
    """As `finished`, for beginnings of different lengths: those of one length are a batch."""
    by_length: dict[int, list[str]] = {}
    for text in beginnings:
        by_length.setdefault(len(words(text)), []).append(text)
    found = []
    for batch in by_length.values():
        found += finished(model, tokenizer, batch, seed, **rules)
    return found


def recorded(what: str, rule: str) -> list[Run]:
    """What `tools/decoding.py` has measured of stories with these events and this rule."""
    return [run for run in _runs() if (run.what, run.rule) == (what, rule)]


@cache
def _runs() -> tuple[Run, ...]:
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    return tuple(Run(**run) for run in tomllib.loads(text)["runs"])


def said_before(texts: Iterable[str]) -> tuple[float, float]:
    """At the first impossible word of each story: how often it occurs earlier in the story, and the
    exact probability of all the words that do.
    """
    found = []
    right = []
    for text in texts:
        at = parse(text).error_at
        if at is None or at == len(text):
            continue
        before = words(text[:at])
        reader = Reader()
        for word in before:
            reader.read(word)
        found.append(words(text[at:])[0] in before)
        probs = reader.next_word_probs()
        right.append(sum(p for word, p in probs.items() if word in before))
    return sum(found) / len(found), sum(right) / len(right)
