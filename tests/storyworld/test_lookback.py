"""What determines the next word: compared with the stories themselves, which know it."""

import pytest
import torch

from tinylm_lib import storyworld
from tinylm_lib.storyworld.lookback import share_told, told_by
from tinylm_lib.text.cutting import words


@pytest.fixture(scope="module")
def stories():
    generator = torch.Generator().manual_seed(4)
    return [storyworld.story(generator) for _ in range(40)]


def test_a_whole_story_is_determined_as_it_says_itself(stories):
    for story in stories:
        assert told_by(story.text) == [*story.lookback[1:], ()]
    assert sum(map(len, map(set, (story.lookback for story in stories)))) > 400


@pytest.mark.parametrize("length", [1, 5, 11, 16, 18, 31, 32, 50])
def test_a_beginning_determines_no_more_and_no_less_and_a_line_end_before_it_counts(stories, length):
    found = 0
    for story in stories:
        heard = "".join(words(story.text)[:length])
        assert told_by(heard) == [*story.lookback[1 : length + 1]], heard
        assert told_by(f"\n{heard}") == [(), *(tuple(at + 1 for at in places) for places in told_by(heard))]
        found += any(told_by(heard))
    assert (found > 0) == (length >= 10)


@pytest.mark.parametrize("text", [" Carlos had a pink fan.", "one foggy", "One foggy foggy", "\n\nOne"])
def test_what_storyworld_does_not_tell_has_no_ground_truth(text):
    assert told_by(text) is None


def test_a_second_story_has_no_ground_truth(stories):
    one, other = stories[0].text, stories[1].text
    assert told_by(f"\n{one}\n") is not None
    assert told_by(f"{one}\n{words(other)[0]}") is told_by(f"\n{one}\n{other}") is None


def test_the_fraction_is_a_mean_over_the_words_whose_next_one_is_determined():
    weights = torch.tensor([[[1, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]], [[1, 0, 0], [1, 0, 0], [0, 0, 1.0]]])
    share = share_told(weights, [(), (1,), (0, 2)])
    torch.testing.assert_close(share.heads, torch.tensor([0.75, 0.5]))
    assert share.equal == pytest.approx((1 / 2 + 2 / 3) / 2)
    with pytest.raises(ValueError, match="take a longer piece"):
        share_told(weights, [(), (), ()])
