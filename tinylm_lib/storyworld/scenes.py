"""What can happen in a StoryWorld story, scene by scene, and how likely it is."""

import re
from functools import cache
from itertools import product
from typing import NamedTuple

from ..text.cutting import words
from .sentences import ABOUT, CLASSES, DIFFERENT, KINDS, N_RECALLS, PRONOUNS, RECALLS, SENTENCES


class Scene(NamedTuple):
    """What decides how a story can continue: what comes next, who holds the two things, what is
    left to recall.
    """

    name: str = "opening"
    holders: str = "AB"
    listener: str = ""
    moved: bool = False
    recalls: tuple[str, ...] = RECALLS


class Slot(NamedTuple):
    """One word of a sentence: a literal (no role), a new word of the class `new`, or a word said
    again.
    """

    text: str  # the literal, or the space in front of the word
    role: str = ""
    form: str = ""
    new: str = ""
    kind: str = ""


class Option(NamedTuple):
    """One way to continue: its probability, its sentence and the scene after it."""

    p: float
    slots: tuple[Slot, ...]
    then: Scene


Way = tuple[float, str, Scene]
SLOT = re.compile(r"( ?)\{(\w+)(?:\.(\w+))?(?:=(\w+))?(:\w*)?\}|([^{]+?)(?= ?\{|\Z)")


def opening(s: Scene) -> list[Way]:
    """Somebody comes to a place with a thing."""
    return [(1.0, "opening", s._replace(name="meeting"))]


def meeting(s: Scene) -> list[Way]:
    """Somebody else is there, with another thing."""
    return [(1.0, "meeting", s._replace(name="saying"))]


def saying(s: Scene) -> list[Way]:
    """One of them says something to the other."""
    return [(1.0, "saying", s._replace(name="exchange", listener="friend"))]


def exchange(s: Scene) -> list[Way]:
    """One of them gives something away, or they trade."""
    then = s._replace(name="second_exchange")
    return [
        (0.6, "gift", then._replace(holders="given")),
        (0.4, "trade", then._replace(holders=s.holders[::-1])),
    ]


def second_exchange(s: Scene) -> list[Way]:
    """In half of the stories one of them gives something away after that."""
    given = s._replace(name="pause", holders="given")
    return [(0.5, "gift of two" if has_both(s) else "gift", given)] + [
        (0.5 * p, what, then) for p, what, then in pause(s)
    ]


def pause(s: Scene) -> list[Way]:
    """They eat together, or go to another place."""
    then = s._replace(name="recall")
    return [(0.5, "meal", then), (0.5, "walk", then._replace(moved=True))]


def recall(s: Scene) -> list[Way]:
    """Something from before is told again, until N_RECALLS are."""
    last = len(RECALLS) - len(s.recalls) + 1 == N_RECALLS
    then = s._replace(name="ending" if last else "recall")
    left = {what: tuple(other for other in s.recalls if other != what) for what in s.recalls}
    name = {"place": "place afar"} if s.moved else {}
    return [
        (1 / len(left), name.get(what, what), then._replace(recalls=rest))
        for what, rest in left.items()
    ]


def ending(s: Scene) -> list[Way]:
    """One of them takes something home."""
    return [(1.0, "ending of two" if has_both(s) else "ending", s._replace(name="story_end"))]


def story_end(s: Scene) -> list[Way]:
    """The line ends, and another story begins."""
    return [(1.0, "line end", Scene())]


SCENES = {
    f.__name__: f
    for f in (opening, meeting, saying, exchange, second_exchange, pause, recall, ending, story_end)
}


def has_both(s: Scene) -> bool:
    """Whether one person holds both things."""
    return len(set(s.holders)) == 1


@cache
def options(scene: Scene) -> tuple[Option, ...]:
    """The ways in which a story can continue; their probabilities sum to 1, and none begins with
    another.
    """
    continuations = []
    for p, what, then in SCENES[scene.name](scene):
        ways = product(SENTENCES[what], casts(scene))
        read = {slots(sentence, cast): cast for sentence, cast in ways}
        for parts, cast in read.items():
            after = then._replace(
                holders=cast.get(then.holders, then.holders),
                listener=cast.get(then.listener, then.listener),
            )
            continuations.append(Option(p / len(read), parts, after))
    return tuple(continuations)


def casts(s: Scene) -> list[dict[str, str]]:
    """What the roles that vary mean: once for thing 1 and person A, once for 2 and B."""
    both = []
    for n, person, friend in (("1", "A", "B"), ("2", "B", "A")):
        holder = s.holders[int(n) - 1]
        other = "B" if holder == "A" else "A"
        given = other + s.holders[1] if n == "1" else s.holders[0] + other
        both.append(
            {"thing": f"thing{n}", "colour": f"colour{n}", "holder": holder, "other": other,
             "given": given, "person": person, "friend": friend, "listener": s.listener,
             **{name: ways[person if name == "[person]" else holder]
                for name, ways in ABOUT.items()}}
        )  # fmt: skip
    return both


def slots(sentence: str, cast: dict[str, str]) -> tuple[Slot, ...]:
    """Take a sentence apart."""
    sentence = re.sub(r"\[[\w ]+\]", lambda match: cast[match[0]], sentence)
    parts: list[Slot] = []
    for space, role, form, new, kind, literal in SLOT.findall(sentence):
        name = cast.get(role, role)
        usual = "pronoun" if form else KINDS.get(name, "")
        if kind:
            usual = kind[1:]
        elif new:
            usual = ""
        parts += [Slot(space, name, form, new, usual)] if role else map(Slot, words(literal))
    return tuple(parts)


def choices(slot: Slot, role_words: dict[str, str]) -> tuple[str, ...]:
    """The words that a slot can take after `role_words`, the word of each role so far; all are
    equally likely.
    """
    if slot.new:
        return _new_words(slot, role_words.get(DIFFERENT.get(slot.role, "")))
    word = role_words[slot.role] if slot.role else ""
    return (slot.text + (PRONOUNS[slot.form][word] if slot.form else word),)


@cache
def _new_words(slot: Slot, taken: str | None) -> tuple[str, ...]:
    return tuple(slot.text + word for word in CLASSES[slot.new] if word != taken)
