"""Stories about two people and two things, who has what in them, and where a model holds the name
that it says: lesson 16.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from tinylm_lib import storyworld
from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM

BEGINNING = (
    "One {weather} {day}, {trait} {A} {go} to {place1}. {She} {carry} a {colour1} {thing1}."
    " There {she} met {B}, a {job} with a {colour2} {thing2}."
    ' {A} {say} to {B}, "{saying1} {saying2} {saying3} {saying4}."'
)
EVENTS = {
    "A gives": " Then {A} gave {B} the {colour1} {thing1}.",
    "B gives": " Then {B} gave {A} the {colour2} {thing2}.",
    "A gives B's thing": " Then {A} gave {B} the {colour2} {thing2}.",
    "B gives A's thing": " Then {B} gave {A} the {colour1} {thing1}.",
    "trade": " Then they traded their things.",
    "A hands": " Soon {A} handed the {colour1} {thing1} to {B}.",
    "B hands": " Soon {B} handed the {colour2} {thing2} to {A}.",
}
WALK = " Afterwards they left {place1} for {place2}."
QUESTION = " By then the {colour%d} {thing%d} belonged to"
RECEIVED = (
    ["A gives"],
    ["A gives", "trade"],
    ["A gives B's thing"],
    ["A hands"],
    ["A hands", "trade"],
)
PEOPLE = ("Mia", "Carlos")
GIRLS = storyworld.CLASSES["name"][:20]


def cast(n: int, seed: int, names: tuple[str, str] = PEOPLE) -> list[dict[str, str]]:
    """The words of n stories about two people, drawn at random; in every second story the other one
    comes first.
    """
    generator = Generator().manual_seed(seed)
    drawn = []
    for i in range(n):
        said = dict(zip("AB", names[:: 1 - 2 * (i % 2)], strict=True))
        for kind, words in storyworld.CLASSES.items():
            order = torch.randperm(len(words), generator=generator).tolist()
            for name, place in {kind: 0, f"{kind}1": 0, f"{kind}2": 1}.items():
                said[name] = words[order[place]]
        said["She"] = "She" if said["A"] in GIRLS else "He"
        drawn.append({**said, "she": said["She"].lower()})
    return drawn


def ten_pairs() -> list[tuple[str, str]]:
    """Ten pairs of StoryWorld's names, of girls and boys and of both."""
    names = storyworld.CLASSES["name"]
    return [(names[i], names[(i + 13) % len(names)]) for i in range(0, len(names), 4)]


def texts_of(
    events: Sequence[str], people: Sequence[Mapping[str, str]], thing: int = 1
) -> list[str]:
    """Each story up to the question who has thing 1 or 2."""
    happened = "".join(EVENTS[event] for event in events)
    whole = BEGINNING + happened + WALK + QUESTION % (thing, thing)
    return [whole.format(**said) for said in people]


def exact_owner(text: str) -> str:
    """The one name that can come next, by StoryWorld's exact reader.

    Raises: ValueError for a text that is impossible, or without an end that only one word has.
    """
    reader = storyworld.Reader()
    for word in storyworld.words(text):
        if reader.read(word) == 0:
            raise ValueError(f"{word!r} is impossible here; use events that can follow each other")
    probs = reader.next_word_probs()
    name = max(probs, key=probs.__getitem__)
    if probs[name] < 0.999:
        raise ValueError(f"more than one word can follow: {sorted(probs)}; end with the question")
    return name.strip()


def encoded(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """The ids (B, T) of texts of one length, each after a line end."""
    return torch.tensor([tokenizer.encode("\n" + text) for text in texts])


def name_ids(tokenizer: Any, people: Sequence[Mapping[str, str]], role: str) -> Tensor:
    """The ids (B, 1) of those who have this role, A or B, in each story."""
    return torch.tensor([tokenizer.encode(f" {said[role]}") for said in people])


@torch.no_grad()
def probs_of(
    model: TransformerLM, tokenizer: Any, names: Sequence[str], texts: Sequence[str]
) -> Tensor:
    """The probability (B) of each text's name as its next word."""
    ids = torch.tensor([tokenizer.encode(f" {name}")[0] for name in names])  # (B)
    with evaluation_mode(model):
        probs = model(encoded(tokenizer, texts))[:, -1].softmax(-1)  # (B, V)
    return probs.gather(-1, ids[:, None])[:, 0]


def who(
    model: TransformerLM,
    tokenizer: Any,
    people: Sequence[Mapping[str, str]],
    events: Sequence[str],
    thing: int = 1,
) -> dict[str, float]:
    """After these events: the mean probability of A, who comes first in the story, and of B, as the
    owner of thing 1 or 2.
    """
    texts = texts_of(events, people, thing)
    return {
        role: probs_of(model, tokenizer, [said[role] for said in people], texts).mean().item()
        for role in "AB"
    }


def of_receivers(
    model: TransformerLM, tokenizer: Any, people: Sequence[Mapping[str, str]]
) -> tuple[float, Tensor]:
    """The lowest probability of B after all kinds of gifts to B, possible or not, also before a
    trade; and that after a trade alone, for thing 1 and 2, (2, B).
    """
    names = [said["B"] for said in people]
    lowest = 1.0
    for events in RECEIVED:
        for thing in (1, 2):
            texts = texts_of(events, people, thing)
            lowest = min(lowest, probs_of(model, tokenizer, names, texts).min().item())
    trades = [texts_of(["trade"], people, thing) for thing in (1, 2)]
    return lowest, torch.stack([probs_of(model, tokenizer, names, texts) for texts in trades])


@torch.no_grad()
def named_owners(
    model: TransformerLM, tokenizer: Any, n: int, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """For each name of an owner in n stories, by what has happened before it: the probability of
    the right name (N), and whether it is the model's first choice (N).
    """
    generator = Generator().manual_seed(seed)
    found: dict[str, list[tuple[float, bool]]] = {
        "one gift": [],
        "only a trade": [],
        "two gifts": [],
    }
    for _ in range(n):
        story = storyworld.story(generator)
        said = storyworld.words(story.text)
        ids = encoded(tokenizer, [story.text])  # (1, T)
        with evaluation_mode(model):
            probs = model(ids)[0, :-1].softmax(-1)  # (T - 1, V)
        for at, (word, kind) in enumerate(zip(said, story.kinds, strict=True)):
            if kind == "owner" and word.strip() in storyworld.CLASSES["name"]:
                before = said[:at]
                gifts = before.count(" gave") + before.count(" handed")
                group = ("only a trade", "one gift", "two gifts")[gifts]
                row = probs[at]
                token = ids[0, at + 1]
                found[group].append((row[token].item(), bool(row.argmax() == token)))
    return {
        group: (torch.tensor([p for p, _ in rows]), torch.tensor([right for _, right in rows]))
        for group, rows in found.items()
    }
