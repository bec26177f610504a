"""The pictures of lesson 00 draw what they are given, and every text of theirs is large."""

from itertools import pairwise

import pytest

from tinylm_classroom.experiments.threads import Thread
from tinylm_classroom.pictures import start, story

STORY = 'One foggy day, shy Mia came to Ashford. She had a red kite. Mia said, "Bright mice run far."'
FOUND = [Thread(8, 16, "people", 0.9), Thread(5, 16, "people", 0.5), Thread(10, 14, "places", 0.7)]


@pytest.fixture
def shown(record):
    return record(start)


def letters(figure):
    return "".join(text.get_text() for text in figure.axes[0].texts)


def test_a_story_is_written_whole_with_a_curve_for_each_thread_of_a_kind(shown):
    start.threads(STORY, FOUND, title="Names are used again")
    start.threads(STORY, FOUND, ["places"], title="So are places", impossible=12)
    start.threads(STORY, FOUND, title="One word", word="Nobody")
    (all_of_them, facts), (places, _), (none, empty) = shown
    assert letters(all_of_them) == STORY.replace(" ", "")
    curved = [len([p for p in figure.axes[0].patches if hasattr(p, "_path")]) for figure in (all_of_them, places, none)]
    assert curved == [3, 1, 0]
    assert facts["table"]["lost"] == [0.9, 0.5, 0.7] and empty["table"]["lost"] == ["-"]
    assert "none" in empty["alt"] and len(none.axes[0].patches) == 0


def test_a_mark_stays_on_the_line_of_its_word():
    places = story.places(['"', "a" * (story.LETTERS - 6), ",", " b", '"'])
    assert [line for _, line in places] == [0, 0, 0, 0, 0]
    places = story.places(["a" * (story.LETTERS - 2), " b" * 3, "."])
    assert [line for _, line in places] == [0, 1, 1]


def test_the_guesses_are_the_most_probable_words_with_their_exact_probabilities(shown):
    start.guesses({"a": ({" x": 0.1, " y": 0.7, "\n": 0.2}, {" y": 0.5})}, title="Sure of y", most=2)
    figure, facts = shown[0]
    assert facts["table"] == {"after": ("a", "a"), "word": ["y", ""], "model": (0.7, 0.2), "exact": (0.5, 0.0)}
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.7, 0.2]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["y", "line end"]


def test_the_smallest_loss_of_each_count_is_marked(shown):
    start.counting({10: [[3.0, 2.0, 1.9, 2.1], [3.0, 2.2, 1.7, 2.3]]}, {"the floor": 0.7})
    figure, facts = shown[0]
    assert facts["table"]["10 stories"] == pytest.approx([2.1, 1.8, 2.2]) and facts["table"]["words back"] == [1, 2, 3]
    (marked,) = [text for text in figure.axes[0].texts if text.get_text() == "1.80"]
    assert marked.xy == pytest.approx((2, 1.8))


def test_names_of_levels_do_not_touch(shown):
    start.counting({10: [[2.0, 1.9]]}, {"a": 0.68, "b": 0.66, "c": 1.2})
    named = [text for text in shown[0][0].axes[0].texts if text.get_text()[:2] in ("a ", "b ", "c ")]
    heights = sorted(text.get_position()[1] for text in named)
    assert len(named) == 3 and min(b - a for a, b in pairwise(heights)) > 0.08


def test_each_story_is_a_line_and_each_impossible_word_a_mark(shown):
    start.impossible([(100, 40), (120, None), (90, 60)])
    figure, facts = shown[0]
    assert facts["table"]["first impossible word at"] == ["40", "60", "none"]
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "s" and len(line.get_xdata())]
    assert [line.get_xdata().tolist() for line in marks] == [[40, 60]]


def test_learning_marks_the_first_step_below_each_level(shown):
    start.learning([5.0, 4.0, 3.0, 2.0, 1.0], {"half": 3.5, "floor": 0.5})
    figure, _ = shown[0]
    dots = [line.get_xydata().tolist() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert dots == [[[3.0, 3.0]]]


def test_every_text_can_be_read_from_the_last_row(shown):
    start.threads(STORY, FOUND, title="Names are used again")
    start.guesses({"a": ({f" x{i}": 0.1 for i in range(6)}, {" x0": 0.5})}, title="Unsure")
    start.counting({10: [[3.0, 2.0]]}, {"the floor": 0.7})
    start.impossible([(100, 40), (120, None)])
    start.learning([5.0, 4.0], {"half": 4.5})
    for figure, facts in shown:
        every = [text for ax in figure.axes for text in (*ax.texts, *ax.get_xticklabels(), ax.xaxis.label, ax.title)]
        assert min(text.get_fontsize() for text in every if text.get_text().strip()) >= 17, facts["alt"]
