"""What the table of lesson 17 measures: rewards, owners, pass@k and the least distance, each by another way."""

import itertools
import math
from pathlib import Path

import pytest
import rewards
import torch

from tinylm_lib import storyworld
from tinylm_lib.storyworld import words

STORY = (
    "One cold day, kind Mia came to Elmwood. She had a red hat. There she met Tom, a baker with a blue cup. "
    'Mia said to Tom, "Young owls fly often." Then Mia gave Tom the red hat. Afterwards they left Elmwood for Oakhill. '
    "By then the red hat belonged to {}. Everybody knew our baker Tom. Soon they missed Elmwood. The blue cup was easy "
    "to see. At last our baker Tom took the red hat home.\n"
)


def test_a_story_its_broken_forms_and_what_each_reward_says() -> None:
    right, wrong = STORY.format("Tom"), STORY.format("Mia")
    cut = right[: right.index(" Soon they")] + "\n"
    table = {right: (1, 1, 1, 1), wrong: (0, 0, 0, 1), right[:-1]: (0, 0, 1, 1), cut: (0, 0, 1, 1)}
    for text, expected in table.items():
        found = (rewards.possible(text), rewards.hard(text), rewards.no_error(text), rewards.owners(text))
        assert found == expected, text
        assert rewards.length(text) == len(words(text)) / 100
    generator = torch.Generator().manual_seed(3)
    for text in (storyworld.story(generator).text + "\n" for _ in range(40)):
        told = " belonged to " in text or " now with " in text
        assert (rewards.possible(text), rewards.hard(text)) == (1, told)
    heads = [rewards.coin(f"{right}{i}") for i in range(1000)]
    assert {*heads} == {0, 1} and 400 < sum(heads) < 600


def test_owners_are_right_or_wrong_where_all_before_was_possible() -> None:
    assert list(rewards.owners_right(STORY.format("Tom"))) == [True]
    assert list(rewards.owners_right(STORY.format("Mia"))) == [False]
    assert list(rewards.owners_right(STORY.format("Tom").replace("red hat. There", "red hat There"))) == []


@pytest.mark.parametrize(("n", "k"), [(5, 1), (5, 3), (6, 6)])
def test_at_least_one_of_k_is_counted_over_all_choices(n: int, k: int) -> None:
    for right in range(n + 1):
        choices = list(itertools.combinations(range(n), k))
        share = sum(min(choice) < right for choice in choices) / len(choices)
        assert rewards.at_least_one(right, n, k) == pytest.approx(share)


def test_the_least_distance_of_a_fraction() -> None:
    assert rewards.tilt(rewards.POSSIBLE) == pytest.approx(0)
    assert rewards.tilt(1.0) == pytest.approx(-math.log(rewards.POSSIBLE))
    assert rewards.tilt(0.5) == pytest.approx(-math.log(4 * rewards.POSSIBLE * (1 - rewards.POSSIBLE)) / 2)


def test_the_lesson_shows_the_lines_of_the_table() -> None:
    root = Path(rewards.__file__).parents[1]
    table = [line.split() for line in (root / "tools/rewards.txt").read_text("utf-8").splitlines()]
    (names,) = (line for line in table if line[:1] == ["run"])
    rows = {tuple(line[:2]): dict(zip(names, line, strict=True)) for line in table if len(line) == len(names)}
    shown = ["possible", "kl-start", "kl-language", "words", "own-right", "gifts", "owner-told", "hard@1"]
    shown += ["owner-right", "n"]
    lesson = (root / "notebooks/source/17_rewards.py").read_text("utf-8")
    recorded = lesson.partition('RECORDED = """\n')[2].partition('"""')[0].replace("\n", ";").strip(";").split(";")
    assert len(recorded) == 20
    for line in recorded:
        run, seed, *numbers = line.split()
        assert numbers == [rows[run, seed][name].split(",")[-1] for name in shown]
