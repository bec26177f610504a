"""The record of StoryWorld against the scenes that it is made from; tests/browser has what a page reads in it."""

import json

import pytest

from tinylm_classroom.live.stories import stories_record
from tinylm_lib.storyworld.scenes import Scene, Slot, options


@pytest.fixture(scope="module")
def text() -> str:
    return json.dumps(stories_record(), allow_nan=False, separators=(",", ":"))


def ways(record: dict, scene: int) -> dict[tuple[Slot, ...], tuple[float, int]]:
    """The sentences of a scene of the record, each with its probability and the scene after it."""
    slots = [Slot(**{"text": "", **slot}) for slot in record["slots"]]
    return {
        tuple(slots[i] for i in record["sentences"][sentence]): (record["probs"][p], then)
        for p, then, *sentences in record["scenes"][scene]
        for sentence in sentences
    }


def test_the_record_has_every_way_that_a_story_can_take_and_no_other(text: str) -> None:
    record = json.loads(text)
    todo, number = [Scene()], {Scene(): -1}
    for scene in todo:
        left = ways(record, number[scene])
        for option in options(scene):
            p, then = left.pop(option.slots)
            assert p == option.p
            if option.then not in number:
                todo.append(option.then)
            assert number.setdefault(option.then, then) == then
        assert not left, f"{scene} lacks a way of the record's scene {number[scene]}"
    assert len(todo) == 2163
    assert {at % len(record["scenes"]) for at in number.values()} == set(range(len(record["scenes"])))


def test_scenes_that_continue_alike_are_one_and_the_record_is_small(text: str) -> None:
    record = json.loads(text)
    alike = {frozenset(ways(record, at).items()) for at in range(len(record["scenes"]))}
    assert len(alike) == len(record["scenes"]) == 720
    assert len(text) < 60_000
