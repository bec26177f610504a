"""StoryWorld as data for a page: its sentences, and its scenes with the ways between them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from tinylm_lib.storyworld import CLASSES, DIFFERENT, Reader, Scene, options
from tinylm_lib.storyworld.sentences import PRONOUNS

NEW_STORY = -1  # the number of the opening, which comes last in the list of scenes


def stories_record() -> dict[str, Any]:
    """What `StoryReader` of stories.js reads, ready for JSON.

    A scene is a list of ways [p, then, *sentences]: each of these sentences has the probability
    `probs[p]` and leads to the scene `then`. A sentence is a list of slots. All are numbers, and
    scenes that continue alike have the same.
    """
    probs, slots, sentences, scenes = (_Numbers() for _ in range(4))

    @cache
    def number(scene: Scene) -> int:
        ways: dict[tuple[int, int], list[int]] = {}
        for p, parts, then in options(scene):
            way = probs.of(p), NEW_STORY if then == Scene() else number(then)
            ways.setdefault(way, []).append(sentences.of(tuple(map(slots.of, parts))))
        return scenes.of(tuple((*way, *some) for way, some in ways.items()))

    number(Scene())
    return {
        "classes": CLASSES, "different": DIFFERENT, "pronouns": PRONOUNS, "probs": [*probs],
        "sentences": [*sentences],
        "slots": [{name: value for name,
        value in slot._asdict().items() if value} for slot in slots],
        "scenes": [*scenes],
    }  # fmt: skip


def exact_probs(heard: Iterable[str]) -> dict[str, float] | None:
    """The exact probability of each word after these of a story; None if no story has them."""
    reader = Reader()
    return reader.next_word_probs() if all(map(reader.read, heard)) else None


class _Numbers(dict[Any, int]):
    """Things numbered from 0 as they come, equal ones alike."""

    def of(self, thing: Any) -> int:
        return self.setdefault(thing, len(self))
