"""The shipped model is what it is said to be: near the floor, with heads that look where the next word is told."""

import math

import pytest
import torch

from tinylm_lib import generate, storyworld
from tinylm_lib.classroom.experiments.heads import heads_that_find
from tinylm_lib.pretrained import WEIGHTS, load_pretrained
from tinylm_lib.storyworld.gaps import gaps
from tinylm_lib.storyworld.stories import Story, parse
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def shipped() -> Checkpoint:
    return load_pretrained("storyworld")


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    generator = torch.Generator().manual_seed(2026)
    return [storyworld.story(generator) for _ in range(100)]


def test_it_is_small_and_reads_every_story(shipped: Checkpoint) -> None:
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*.safetensors")) <= 3_000_000
    assert isinstance(shipped.tokenizer, WordTokenizer)
    assert shipped.model.config.vocab_size == shipped.tokenizer.vocab_size
    text = "\n" + storyworld.corpus(2000, seed=99)
    assert shipped.tokenizer.decode(shipped.tokenizer.encode(text)) == text
    assert shipped.model.config.max_seq_len >= storyworld.totals(storyworld.Scene()).most_words


def test_it_is_near_the_floor_and_looks_back(shipped: Checkpoint, stories: list[Story]) -> None:
    found = gaps(shipped.model, shipped.tokenizer, stories)
    assert found["all"].nats <= 0.02
    for kind in ("name", "place", "object", "pronoun", "quotation", "trait"):
        assert found[kind].right >= 0.99, kind


def test_its_heads_look_where_the_word_is_told(shipped: Checkpoint, stories: list[Story]) -> None:
    found = heads_that_find(shipped.model, shipped.tokenizer, stories)
    for kind, least in (("name", 0.85), ("place", 0.95), ("object", 0.95)):
        assert found[kind].max() >= least, kind


def test_it_tells_stories_that_storyworld_could_tell(shipped: Checkpoint) -> None:
    """At temperature 1. It guesses who holds what and which thing has which colour, several times a story."""
    end = shipped.tokenizer.encode("\n")
    ids = torch.tensor([end] * 50)
    generator = torch.Generator().manual_seed(0)
    told = generate(shipped.model, ids, 126, stop_ids=end, pad_id=end[0], generator=generator)
    texts = [shipped.tokenizer.decode(row.tolist()).strip("\n") for row in told]
    assert sum(parse(text).log_prob > -math.inf for text in texts) >= 5
    assert len(set(texts)) == 50


def test_a_model_that_does_not_ship_is_named() -> None:
    with pytest.raises(ValueError, match="no model 'gpt9' ships with the library; choose one of storyworld"):
        load_pretrained("gpt9")
