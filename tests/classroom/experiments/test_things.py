"""Texts to test a look with: what is where in them, and which thing is right."""

from collections.abc import Callable

import torch

from tinylm_classroom.experiments.things import others_like, said_twice, two_things, weight_on_next
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import CLASSES

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


def test_others_are_the_next_words_of_their_classes() -> None:
    four = torch.tensor([TOKENIZER.ids[word] for word in ("Bright", " mice", " shine", " quietly")])
    others = [TOKENIZER.words[i] for i in others_like(TOKENIZER, four).tolist()]
    for place, (old, new) in enumerate(zip(("Bright", " mice", " shine", " quietly"), others, strict=True), start=1):
        known = CLASSES[f"saying{place}"]
        assert old.startswith(" ") == new.startswith(" ")
        assert known.index(new.strip()) == (known.index(old.strip()) + 1) % len(known)


def test_heads_find_the_next_kind_of_word_and_nothing_in_another_order() -> None:
    def found(sayings: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        return weight_on_next(SHIPPED.model.eval(), TOKENIZER, sayings, seed=3, n=8)

    as_written = found(lambda four: (four, four))
    no_copy = found(lambda four: (four, others_like(TOKENIZER, four)))
    mixed = found(lambda four: (four[[2, 0, 3, 1]], four[[2, 0, 3, 1]]))
    assert as_written.shape == (4,) and torch.stack((as_written, no_copy))[:, [0, 3]].min() > 0.4 and mixed.max() < 0.2


def test_the_second_saying_alone_may_be_another_one() -> None:
    seen = []

    def first_for_both(four: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(four)
        return four, four.flip(0)

    flipped = weight_on_next(SHIPPED.model.eval(), TOKENIZER, first_for_both, seed=3, n=2)
    assert len(seen) == 2 and flipped.max() < 0.3
