"""StoryWorld in the page: every probability, impossible word and determined word is that of Python."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser

from tinylm_classroom.live import stories as python_side
from tinylm_lib import storyworld
from tinylm_lib.storyworld import Reader, Story, told_by, words

pytestmark = pytest.mark.browser

SCRIPT = Path(python_side.__file__).with_suffix(".js").read_text("utf-8")
HOSTILE = ["__proto__", "constructor", "<img src=x onerror=alert(1)>", "\ud800", "🦊", "ﷺ"]
HOSTILE += [" ", "", "\n", "\r\n", "x" * 10_000]


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    generator = torch.Generator().manual_seed(20)
    return [storyworld.story(generator) for _ in range(300)]


@pytest.fixture(scope="module")
def ask(chromium: Browser) -> Iterator[Callable[..., Any]]:
    """A function that evaluates `(reader, given) => ...` in a page, with a new StoryReader."""
    page, errors = chromium.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_script_tag(content=f'"use strict";\n{SCRIPT}')
    page.evaluate("text => { globalThis.stories = JSON.parse(text) }", json.dumps(python_side.stories_record()))

    def ask(function: str, given: Any) -> Any:
        answer = "(given) => JSON.stringify(({function})(new StoryReader(stories), JSON.parse(given)))"
        return json.loads(page.evaluate(answer.replace("{function}", function), json.dumps(given)))

    yield ask
    assert errors == []
    page.close()


def first_impossible(heard: list[str]) -> int | None:
    reader = Reader()
    return next((place for place, word in enumerate(heard) if not reader.read(word)), None)


def changed(heard: list[str], draw: random.Random, vocabulary: list[str]) -> list[str]:
    """A story with one of its words replaced, left out, said twice, or after a word that it does not have there."""
    at, other = draw.randrange(len(heard)), draw.choice(vocabulary)
    instead = draw.choice([[other], [], [heard[at]] * 2, [other, heard[at]]])
    return words("".join([*heard[:at], *instead, *heard[at + 1 :]]))


def test_every_probability_of_300_stories_read_word_by_word_is_that_of_python(ask, stories: list[Story]) -> None:
    heard = words("".join(f"{story.text}\n" for story in stories))
    read = "(reader, heard) => heard.map((word) => [[...reader.probs()], reader.read(word), reader.complete])"
    found, reader = ask(read, heard), Reader()
    for word, (probs, p, complete) in zip(heard, found, strict=True):
        expected = reader.next_word_probs()
        assert len(probs) == len(expected) and dict(probs).keys() == expected.keys()
        assert max(abs(q - expected[possible]) for possible, q in probs) <= 1e-12
        assert abs(p - reader.read(word)) <= 1e-12 and complete is reader.complete
    assert len(heard) > 20_000


def test_the_first_impossible_word_of_changed_stories_is_found_and_not_read(ask, stories: list[Story]) -> None:
    draw, vocabulary = random.Random(20), sorted({word for story in stories for word in words(story.text)})
    texts = [changed(words(story.text), draw, vocabulary) for story in stories for _ in range(3)]
    read = """(_, texts) => texts.map((heard) => {
      const reader = new StoryReader(stories), at = heard.findIndex((word) => reader.read(word) === 0);
      return at < 0 ? null : at;
    })"""
    found, expected = ask(read, texts), [first_impossible(heard) for heard in texts]
    assert found == expected
    assert sum(place is not None for place in expected) > 700
    kept = """(reader, [heard, at]) => {
      heard.slice(0, at).forEach((word) => reader.read(word));
      const before = JSON.stringify([[...reader.probs()], reader.complete]), p = reader.read(heard[at]);
      return [p, before === JSON.stringify([[...reader.probs()], reader.complete])];
    }"""
    wrong = [[heard, at] for heard, at in zip(texts, expected, strict=True) if at is not None][:100]
    assert [ask(kept, each) for each in wrong] == [[0, True]] * 100


def test_the_determined_words_of_every_beginning_of_100_stories_are_those_of_python(ask, stories: list[Story]) -> None:
    whole = [words(f"\n{story.text}" if n % 2 else f"{story.text}\n") for n, story in enumerate(stories[:100])]
    every = "(reader, texts) => texts.map((words) => [0, ...words].map((_, n) => reader.told(words.slice(0, n))))"
    found = ask(every, whole)
    for heard, answers in zip(whole, found, strict=True):
        for n, places in enumerate(answers):
            assert places == [list(each) for each in told_by("".join(heard[:n]))], heard[:n]


def test_a_text_that_begins_no_story_has_no_determined_words(ask, stories: list[Story]) -> None:
    one, other = stories[0].text, stories[1].text
    texts = ["One foggy foggy", "one", "\n\n", f"{one}\n{other}", f"{one}\n\n", one.replace(" ", "  ", 1), *HOSTILE]
    given = [words(text) for text in texts]
    assert given[-2] == ["\r", "\n"] and given[-4] == []  # no word is the beginning of every story
    assert ask("(reader, texts) => texts.map((words) => reader.told(words))", given) == [
        None if told is None else list(map(list, told)) for told in map(told_by, texts)
    ]
    assert [told_by(text) for text in texts].count(None) == len(texts) - 2
    assert ask("(reader, texts) => texts.map((word) => reader.read(word))", HOSTILE) == [0] * len(HOSTILE)


def test_a_reader_leaves_its_record_and_other_readers_alone(ask, stories: list[Story]) -> None:
    heard = words(stories[0].text)
    given = """(reader, heard) => {
      const before = JSON.stringify(stories), first = JSON.stringify([...reader.probs()]);
      reader.told(heard);
      const after = JSON.stringify([...reader.probs()]);
      heard.forEach((word) => reader.read(word));
      return [before === JSON.stringify(stories), first === after, reader.complete];
    }"""
    assert ask(given, heard) == [True, True, True]
