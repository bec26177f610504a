import pytest
import torch

from tinylm_classroom.experiments.heads import heads_that_find
from tinylm_lib import TransformerLM, preset, storyworld
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
