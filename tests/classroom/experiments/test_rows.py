"""Rows of an embedding: which are near each other, of which kind, and what is left of each without a direction."""

from types import SimpleNamespace

import torch

from tinylm_classroom import ids_of_words, nearest_is_same, nearest_words, shuffled, word_kinds
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import sentences

WORDS = ["red", "blue", "kite", "lamp"]
TABLE = torch.tensor([[1.0, 0.2], [5.0, 1.2], [0.1, 1.0], [-0.1, 3.0]])
TOKENIZER = SimpleNamespace(
    encode=lambda text: [WORDS.index(text.strip())], decode=lambda ids: f" {WORDS[ids[0]]}"
)  # fmt: skip
KINDS = {"colours": torch.tensor([0, 1]), "things": torch.tensor([2, 3])}


def test_the_nearest_word_is_that_of_the_nearest_direction_however_long_its_row_is():
    assert nearest_words(TABLE, TOKENIZER, "red", 2) == ["blue", "kite"]
    assert nearest_words(-TABLE, TOKENIZER, "lamp", 1) == ["kite"]


def test_the_fraction_of_words_with_a_nearest_word_of_their_kind():
    assert nearest_is_same(TABLE, KINDS) == 1
    assert nearest_is_same(TABLE, {"one": torch.tensor([0, 2]), "other": torch.tensor([1, 3])}) == 0
    assert nearest_is_same(TABLE, {"one": torch.tensor([3]), "other": torch.tensor([1, 0])}) == 2 / 3


def test_shuffled_kinds_have_the_same_words_and_sizes():
    drawn = {seed: shuffled({"a": torch.tensor([7, 8, 9]), "b": torch.tensor([1])}, seed) for seed in range(9)}
    for kinds in drawn.values():
        assert [*kinds] == ["a", "b"] and len(kinds["a"]) == 3
        assert sorted(torch.cat([*kinds.values()]).tolist()) == [1, 7, 8, 9]
    assert len({tuple(kinds["b"].tolist()) for kinds in drawn.values()}) > 1
    assert shuffled(KINDS, 4)["things"].equal(shuffled(KINDS, 4)["things"])


def test_kinds_are_those_of_storyworld():
    tokenizer = load_pretrained("storyworld").tokenizer
    kinds = word_kinds(tokenizer)
    assert {kind: len(ids) for kind, ids in kinds.items()} == {
        "girls": 20, "boys": 20, "colours": 12, "things": 30, "places": 24, "traits": 20,
    }  # fmt: skip
    assert ids_of_words(tokenizer, sentences.BOYS.split()).equal(kinds["boys"])
    assert [*word_kinds(tokenizer, ("job", "food"))] == ["jobs", "foods"]
    assert tokenizer.decode([kinds["colours"][0].item()]) == f" {sentences.CLASSES['colour'][0]}"
