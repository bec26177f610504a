"""Cuts and readers: known texts, cuts that only words stop, readers who see more and lose less."""

import math

import pytest
import torch

from tinylm_classroom.experiments import cutting
from tinylm_lib import storyworld
from tinylm_lib.text import pre_tokens


@pytest.fixture(scope="module")
def seen():
    return cutting.by_text_seen((5,), n_read=200, n_new=50)


def test_numbers_are_below_ten_thousand_and_the_same_for_the_same_seed():
    drawn = [int(number) for number in cutting.numbers(3, 200).split()]
    assert len(drawn) == 200 and min(drawn) >= 0 and max(drawn) < 10_000
    assert cutting.numbers(3) == cutting.numbers(3) != cutting.numbers(4)


def test_the_sizes_of_tokens_add_up_to_the_bytes():
    tokenizer = cutting.of_stories(0)
    assert sum(cutting.sizes(tokenizer, "風 the")) == len("風 the".encode())
    assert all(sum(sizes) == 5 for sizes in cutting.sizes_of_numbers(2)[::500])  # with the space before it


def test_strange_texts_have_no_half_characters():
    text = cutting.strange(7)
    assert len(text) == 50 and text.encode().decode() == text


def test_without_cuts_merges_cross_words_and_texts_are_shorter():
    both = cutting.price_of_cuts(4, n_merges=60)
    assert len(both.uncut) == len(both.within_words) == 60 and len(both.n_tokens) == 2
    assert all(uncut < within for uncut, within in both.n_tokens)
    assert any(b" " in (a + b)[1:] for a, b in both.uncut)
    assert cutting.with_the([(b" t", b"he"), (b"the", b"n"), (b"In", b" the ")]) == [" the", "In the "]
    assert cutting.n_tokens(pre_tokens("hat hat"), [(b"h", b"a")]) == 2 + 3


def test_the_beginning_of_a_story_is_the_same_text_in_each_cut():
    story = storyworld.story(torch.Generator().manual_seed(1)).text
    found = cutting.beginnings(story, lambda text, cut: [0.25] * 500, n_words=3)
    assert {"".join(tokens) for tokens, _ in found.values()} == {"One foggy afternoon"}
    assert all(len(tokens) == len(losses) for tokens, losses in found.values())
    assert not cutting.same_sums(found) and cutting.same_sums({"a": (["x"], [1.0]), "b": (["y"], [1.0])})


def test_who_sees_more_loses_less_and_nobody_is_below_the_floor(seen):
    assert seen.letters.shape == (cutting.MOST_LETTERS, 1) and (seen.letters.diff(dim=0) < 0)[:4].all()
    assert set(seen.tokens) == {"BPE 400", "BPE 600", "words"} and seen.letters.min() > seen.floor > 60
    assert seen.one_word.equal(seen.tokens["words"][1]) and seen.as_good in (5, 6)


def test_a_reader_far_from_the_curve_is_found(seen):
    assert seen._replace(tokens={"words": (2.0, (seen.letters[1] + seen.letters[2]) / 2)}).near_the_curve
    far = seen._replace(tokens={"words": (2.0, seen.letters[0] + 1)})
    assert not far.near_the_curve


def test_words_off_are_few_and_none_with_a_limit_that_nobody_reaches():
    assert cutting.words_off(0) in range(8) and cutting.words_off(0, limit=math.inf) == 0
