"""Texts to test a look with: what is where in them, and which thing is right."""

import torch

from tinylm_classroom.experiments.things import said_twice, two_things, weight_on_next
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
TOKENIZER = SHIPPED.tokenizer


def test_the_right_thing_has_the_colour_that_is_asked_for() -> None:
    ids, things = two_things(TOKENIZER, 20, seed=3)
    assert ids.shape == (20, 17) and things.shape == (20, 2)
    for i, (text, both) in enumerate(zip(ids, things, strict=True)):
        places = (5, 11) if i % 2 == 0 else (11, 5)
        assert text[list(places)].equal(both) and text[places[0] - 1] == text[16] != text[places[1] - 1]
    assert ids.equal(two_things(TOKENIZER, 20, seed=3)[0]) and not ids.equal(two_things(TOKENIZER, 20, seed=4)[0])


def test_a_saying_is_the_same_both_times() -> None:
    found = said_twice(TOKENIZER, 12, seed=3)
    assert len(found) == 12
    for story, first, second in found:
        assert first < second and story[first : first + 4].equal(story[second : second + 4])
        assert TOKENIZER.decode([int(story[first - 1])]) == ' "' and len(torch.unique(story[first : first + 4])) == 4


def test_heads_find_the_next_word_of_a_saying_and_not_of_words_in_another_order() -> None:
    as_written, mixed = (
        weight_on_next(SHIPPED.model.eval(), TOKENIZER, lambda four, order=order: four[order], seed=3, n=8)
        for order in ([0, 1, 2, 3], [2, 0, 3, 1])
    )
    assert as_written.shape == (4,) and as_written[[0, 3]].min() > 0.4 and mixed.max() < 0.2
