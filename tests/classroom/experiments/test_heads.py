from copy import deepcopy
from itertools import product

import pytest
import torch

from tinylm_classroom import capture
from tinylm_classroom.experiments.heads import (
    added_to_names,
    determined,
    fractions_right,
    heads_that_find,
    largest_difference_of_ablations,
    mean_weights,
    reshaped,
)
from tinylm_lib import ModelConfig, TransformerLM, preset, storyworld
from tinylm_lib.attention import Attention
from tinylm_lib.interventions import intervene
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld.sentences import LOOK_BACKS
from tinylm_lib.storyworld.stories import Story
from tinylm_lib.text.tokenizers import WordTokenizer, words


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    generator = torch.Generator().manual_seed(2)
    return [storyworld.story(generator) for _ in range(20)]


def even_heads(tokenizer: WordTokenizer) -> TransformerLM:
    """Queries of 0: all weights of a head are equal, and its first key is the one that it looks at most."""
    model = TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=24, n_layers=2, n_heads=3))
    with torch.no_grad():
        for block in model.blocks:
            block.attention.q_proj.weight.zero_()
    return model


def test_a_head_that_looks_at_the_word_before_finds_what_is_there(stories: list[Story]) -> None:
    """The first key is the line end, which determines nothing. So the fraction is 0 until it is looked for."""
    tokenizer = WordTokenizer(storyworld.corpus(1000, seed=1))
    found = heads_that_find(even_heads(tokenizer), tokenizer, stories)
    assert set(found) == {kind for s in stories for kind in s.kinds if kind} <= set(LOOK_BACKS)
    assert all(shares.shape == (2, 3) and shares.eq(0).all() for shares in found.values())

    told = Story("a b a", 0.0, ((), (), (0,)), ("", "", "name"))
    at_first = Story("a b a", 0.0, ((), (), (-1,)), ("", "", "name"))  # the line end itself, before word 0
    letters = WordTokenizer("\na b a")
    small = even_heads(letters)
    assert heads_that_find(small, letters, [told])["name"].eq(0).all()
    assert heads_that_find(small, letters, [at_first])["name"].eq(1).all()
    assert heads_that_find(small, letters, [told, at_first])["name"].eq(0.5).all()


def test_the_fraction_by_brute_force(stories: list[Story]) -> None:
    """Attention weights computed once more, from the definition, at the word before each look-back."""
    torch.manual_seed(3)
    tokenizer = WordTokenizer(storyworld.corpus(1000, seed=1))
    sizes = {"d_model": 24, "n_layers": 1, "n_heads": 3, "n_kv_heads": 3, "max_seq_len": 128}
    model = TransformerLM(preset("llama", vocab_size=tokenizer.vocab_size, **sizes))
    attention = model.blocks[0].attention
    hits: dict[str, list[list[bool]]] = {}
    for s in stories:
        ids = torch.tensor([tokenizer.encode("\n" + s.text)])
        x = model.blocks[0].attn_norm(model.embed(ids))
        at = torch.arange(ids.shape[1])
        q, k = (attention.rotation(attention.split(p(x)), at) for p in (attention.q_proj, attention.k_proj))
        scores = (q @ k.mT)[0].masked_fill(at[:, None] < at, -torch.inf)  # (H, T, S)
        for i, (kind, looks) in enumerate(zip(s.kinds, s.lookback, strict=True)):
            if kind:
                hits.setdefault(kind, []).append([int(scores[h, i].argmax()) - 1 in looks for h in range(3)])
    found = heads_that_find(model, tokenizer, stories)
    assert 0 < max(shares.max().item() for shares in found.values()) < 1
    for kind, rows in hits.items():
        torch.testing.assert_close(found[kind], torch.tensor(rows).double().mean(0)[None])
    assert sum(len(rows) for rows in hits.values()) == sum(bool(k) for s in stories for k in s.kinds)
    assert all(len(words(s.text)) == len(s.kinds) for s in stories)


def test_where_determined_words_come_next(stories: list[Story]) -> None:
    shipped = load_pretrained("storyworld")
    found = determined(shipped.tokenizer, ["name", "place"], 4, seed=2)
    assert [story.text for story in found.stories] == [story.text for story in stories[:4]]
    assert found.ids.shape[1] == found.before["name"].shape[1] + 1
    for kind, marks in found.before.items():
        for story, ids, mark in zip(found.stories, found.ids, marks, strict=True):
            said = [shipped.tokenizer.decode([token]) for token in ids[1:][mark].tolist()]
            assert said == [word for word, each in zip(words(story.text), story.kinds, strict=True) if each == kind]
    right = fractions_right(shipped.model.eval(), found.ids, found.before)
    assert set(right) == {"name", "place"} and min(right.values()) > 0.9
    with intervene(shipped.model, silence=[(2, 2)]):
        assert fractions_right(shipped.model, found.ids, found.before)["place"] < 0.5


def test_zero_and_average_are_compared_head_by_head() -> None:
    """In a head with values of 0 both are the same; where the mean writes the answer they are not."""
    shipped = load_pretrained("storyworld")
    model = deepcopy(shipped.model).eval()
    found = determined(shipped.tokenizer, ["name"], 2, seed=2)
    assert largest_difference_of_ablations(model, found.ids, found.before) <= 0.5
    for block in model.blocks:
        block.attention.v_proj.weight.data.zero_()
    assert largest_difference_of_ablations(model, found.ids, found.before) == 0


def test_what_a_head_adds_is_what_its_part_of_the_sum_is_worth() -> None:
    """The last head of the last layer acts on the logits directly: silencing it is taking its part out, but for
    what the feed-forward makes of it."""
    shipped = load_pretrained("storyworld")
    model = deepcopy(shipped.model).eval()
    model.blocks[2].ffn.down_proj.weight.data.zero_()
    added = added_to_names(model, shipped.tokenizer, (2,), n=3)
    found = determined(shipped.tokenizer, ["name"], 3, seed=2)
    at = found.before["name"]
    seen = found.ids.gather(1, capture(model, found.ids[:, :-1]).attention(2).weights[:, 1].argmax(-1))[at]
    with torch.no_grad():
        whole = model(found.ids[:, :-1])[at]
        with intervene(model, silence=[(2, 1)]):
            without = model(found.ids[:, :-1])[at]
    names = torch.tensor([shipped.tokenizer.encode(f" {name}")[0] for name in storyworld.CLASSES["name"]])
    change = (whole - without).gather(-1, seen[:, None])[:, 0][torch.isin(seen, names)]
    often, (mean,) = added[2, 1]
    assert often == torch.isin(seen, names).double().mean().item()
    assert abs(mean - change.mean().item()) < 1e-4


def test_the_mean_weights_are_those_of_a_capture() -> None:
    torch.manual_seed(3)
    attention = Attention(ModelConfig(d_model=12, n_heads=3, position="rotary"))
    x = torch.randn(2, 5, 12)
    weights = mean_weights(attention, x)
    assert weights.shape == (3, 5, 5) and weights.sum(-1).allclose(torch.ones(3, 5))
    assert weights.triu(1).eq(0).all() and not mean_weights(attention, x[:1]).allclose(weights)


def test_a_reshape_leaks_in_one_step_and_hides_the_first_word_in_both() -> None:
    torch.manual_seed(3)
    x, weights = torch.randn(2, 6, 12), torch.randn(3, 12, 12)
    moved = {way: reshaped(x, weights, 3, *way) for way in product((False, True), repeat=2)}
    assert [leak > 0 for leak, _ in moved.values()] == [False, True, True, False]
    assert moved[False, False][1] > 0 == moved[True, True][1]
    assert min(reshaped(x, weights, 1, True, True)) == 0 < reshaped(x, weights, 1, True, True)[1]
