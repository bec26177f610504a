"""The shipped model is what it is said to be: near the floor, with heads that look where the next word is told."""

import math
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may need a network

import pytest
import torch
from support.toys import toy_config

from tinylm_classroom.experiments.heads import heads_that_find
from tinylm_lib import TransformerLM, generate, storyworld
from tinylm_lib.pretrained import WEIGHTS, load_model, load_pretrained, save_hf
from tinylm_lib.storyworld.gaps import gaps
from tinylm_lib.storyworld.stories import Story, parse
from tinylm_lib.text.tokenizers import ByteTokenizer, WordTokenizer
from tinylm_lib.training import checkpoint
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


def test_its_heads_look_where_the_word_is_determined(shipped: Checkpoint, stories: list[Story]) -> None:
    found = heads_that_find(shipped.model, shipped.tokenizer, stories)
    for kind, least in (("name", 0.85), ("place", 0.95), ("object", 0.95)):
        assert found[kind].max() >= least, kind


def test_it_writes_stories_that_storyworld_could_write(shipped: Checkpoint) -> None:
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


def small() -> TransformerLM:
    return TransformerLM(toy_config("llama", vocab_size=256))


def test_one_function_opens_every_kind_of_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = load_model("storyworld")
    assert not model.training and isinstance(tokenizer, WordTokenizer)
    models = [small(), small(), small()]
    for step in (1, 2):
        checkpoint.save(tmp_path / "run" / f"step_{step:06d}", models[step], step=step, tokenizer=ByteTokenizer())
    save_hf(models[0].bfloat16(), tmp_path / "hugging", tokenizer=ByteTokenizer())
    for source, expected in {"run": 2, "run/step_000001": 1, "hugging": 0}.items():
        for path in (tmp_path / source, str(tmp_path / source)):
            model, tokenizer = load_model(path)
            assert not model.training
            assert tokenizer.encode("é") == [195, 169]
            torch.testing.assert_close(model.state_dict(), models[expected].state_dict(), rtol=0, atol=0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").rename("storyworld")
    assert isinstance(load_model("storyworld")[1], WordTokenizer), "the name of a shipped model comes first"
    assert isinstance(load_model("./storyworld")[1], ByteTokenizer)


@pytest.mark.parametrize("source", ["nowhere", "a/b/c", "FILE", "x\0y", "a b/c", "x" * 5000, "\ud800"])
def test_what_is_not_a_model_lists_what_could_be(source: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match=r"is not a model; .* \(of train\) or .*\(storyworld\), or an id of"):
        load_model(source.replace("FILE", str(tmp_path / "file")))


def test_a_folder_without_a_model_or_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no sound checkpoint in"):
        load_model(tmp_path)
    checkpoint.save(tmp_path / "run", small())
    with pytest.raises(ValueError, match=r"the checkpoint in .*run has no tokenizer; save it with checkpoint\.save\("):
        load_model(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json is missing in .*hugging, .*save_hf writes"):
        load_model(save_hf(small(), tmp_path / "hugging"))
    with pytest.raises(OSError, match="there is no folder owner/name, and the hub did not give it"):
        load_model("owner/name")
