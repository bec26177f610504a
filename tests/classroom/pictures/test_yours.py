"""The pictures of lesson 20: what is held out, what is a copy, and what was recorded are in their tables."""

from typing import Any

import pytest

from tinylm_classroom.experiments.yours import copied, recorded, recorded_sizes
from tinylm_classroom.pictures import yours
from tinylm_classroom.workshop.own_text import Look, own_text

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def few():
    return own_text("storyworld", n_bytes=20_000)


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(yours)


def test_the_strip_has_all_pieces_and_their_characters(shown, few):
    yours.pieces(few)
    ((figure, facts),) = shown
    assert len(figure.axes[0].patches) == len(few.lengths)
    assert sum(facts["table"]["characters"]) == few.n_bytes - 1  # the line end before the first story


def test_the_recorded_numbers_are_all_shown(shown):
    yours.sizes(recorded_sizes())
    yours.roads(recorded()["real"]["roads"])
    (_, sizes), (figure, roads) = shown
    assert len(sizes["table"]["text"]) == 10 and min(sizes["table"]["bits per byte"]) > 0.2
    assert len(roads["table"]["road"]) == 6 and "as it is" in roads["alt"]
    assert figure.axes[0].texts[0].get_text() == "20 KB of storyworld"


@pytest.mark.parametrize(("compressor", "says"), [(9.0, "fewer bits than"), (0.1, "does not reach")])
def test_the_title_says_whether_the_compressor_is_beaten(shown, few, compressor, says):
    yours.learning(few, [Look(10, 3.0, 3.1), Look(20, 2.0, 2.5)], compressor)
    ((figure, facts),) = shown
    assert says in figure.axes[0].get_title(loc="left") + figure.axes[0].get_title()
    assert facts["table"]["update"] == [10, 20]


def test_what_is_copied_is_shaded_and_counted(shown, few):
    yours.copies(few, {"a copy": few.training[5:45].tolist(), "new": few.held_out[:40].tolist()})
    ((figure, facts),) = shown
    assert facts["table"]["longest copy"][0] == 40 > facts["table"]["longest copy"][1]
    assert len(figure.axes[0].patches) >= 20
    yours.copies(few, {"one word": [few.training[5].item()]})
    assert shown[1][1]["table"]["longest copy"] == [1] and not shown[1][0].axes[0].patches


def test_a_passage_counts_from_seven_tokens_on_and_each_token_has_its_longest():
    known = [*range(20), 50, *range(9)]
    assert copied(known, [1, 2, 3, 4, 5, 6, 7, 99, 1, 2]) == [7] * 7 + [0] * 3
    assert copied(known, [50, 0, 1, 2], least=1) == [4] * 4
    assert copied(known, [7, 8, 99, 7, 8, 9], least=3) == [0, 0, 0, 3, 3, 3]
    assert copied([12, 3], [1, 2, 3], least=1) == [0, 0, 1]
