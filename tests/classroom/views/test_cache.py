"""The view of a cache: its counts against a real model that is watched while it writes, its words and its refusals."""

import json
from collections import Counter

import pytest
import torch
from support.models import scrambled, some_ids, tiny
from support.views import table_rows
from torch import nn

from tinylm_classroom.views.cache import cache_view, reading_steps
from tinylm_lib import KVCache
from tinylm_lib.cost import forward_flops, kv_cache_bytes
from tinylm_lib.text.tokenizers import ByteTokenizer

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = "her kite <b>"
CONFIG = tiny("llama", vocab_size=256)


def counted(model: nn.Module) -> dict[str, int]:
    """The positions that pass through each projection of a model, from now on."""
    positions = Counter()
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_hook(
                lambda module, args, output, n=name: positions.update({n: args[0][..., 0].numel()})
            )
    return positions


def taken(positions: dict[str, int]) -> int:
    """Positions since the last call; every projection must have seen as many."""
    (n,) = set(positions.values())
    positions.clear()
    return n


@pytest.mark.parametrize("chunk", [1, 4, 7])
@pytest.mark.parametrize("name", ["modern", "gpt2", "llama"])
def test_the_positions_are_those_that_pass_through_a_real_model(name, chunk):
    model, ids, n_prompt = scrambled(tiny(name)), some_ids(1, 11), 7
    positions, cache, start = counted(model), KVCache(model.config, 1, 11), 0
    for step in reading_steps(model.config, 11, n_prompt, chunk):
        with torch.no_grad():
            kept = model(ids[:, start : start + step.n_new], cache)
            assert taken(positions) == step.n_new
            plain = model(ids[:, : step.n_keys])
            assert taken(positions) == step.n_keys == cache.length
        torch.testing.assert_close(kept[:, -1], plain[:, -1], atol=1e-4, rtol=1e-4)
        start += step.n_new
    assert start == 11


@pytest.mark.parametrize("name", ["modern", "gpt2", "llama"])
def test_the_operations_are_the_products_of_all_matrices(name):
    c = tiny(name)
    per_position = sum(p.numel() for n, p in scrambled(c).named_parameters() if n.endswith("_proj.weight"))
    per_position += c.d_model * c.vocab_size
    pair = 2 * c.n_layers * c.n_heads * c.d_head
    totals = [0, 0]
    for step in reading_steps(c, 11, 7, 4):
        assert step.cached_flops == 2 * step.n_new * (per_position + pair * step.n_keys)
        assert step.plain_flops == 2 * step.n_keys * (per_position + pair * step.n_keys)
        totals = [totals[0] + step.cached_flops, totals[1] + step.plain_flops]
        assert [step.cached_total, step.plain_total] == totals


@pytest.mark.parametrize(
    ("chunk", "sizes"),
    [(1, [(1, n) for n in range(1, 8)]), (4, [(4, 4), (1, 5), (1, 6), (1, 7)]), (5, [(5, 5), (1, 6), (1, 7)])],
)
def test_a_prompt_is_read_in_chunks_and_the_rest_one_by_one(chunk, sizes):
    assert [(step.n_new, step.n_keys) for step in reading_steps(CONFIG, 7, 5, chunk)] == sizes


def test_the_data_hold_the_formulas_and_the_bytes_of_a_real_cache():
    data = cache_view(CONFIG, ByteTokenizer(), TEXT, 5).data
    cache = KVCache(CONFIG, 1, 12)
    real = sum(x.numel() * x.element_size() for x in (*cache.keys, *cache.values))
    assert data["bytes"] * 12 == real == kv_cache_bytes(CONFIG, 1, 12)
    assert data["bytes"] == 2 * data["layers"] * data["groups"] * data["width"] * 4
    assert 3 * (data["each"] + data["cell"] * 9) == forward_flops(CONFIG, 1, 3, 9)
    assert data["prompt"] == 5 and "".join(data["tokens"]) == "her␣kite␣<b>"


def test_the_words_and_the_table_tell_the_steps():
    view = cache_view(CONFIG, ByteTokenizer(), TEXT)
    steps = reading_steps(CONFIG, 12, 6, 1)
    end = steps[-1]
    assert repr(view) == (
        "Writing 12 tokens step by step. Step 12: one new position, 12 keys and values; without a cache 12 positions "
        f"would be computed, 11 of them again: 12.0 times the work, so far {end.plain_total / end.cached_total:.1f} "
        "times."
    )
    rows = table_rows(view.html)[1:]
    assert [row[3] for row in rows] == [f"{step.cached_flops:,}" for step in steps]
    assert [row[5] for row in rows] == [f"{step.plain_total / step.cached_total:.1f}" for step in steps]


def test_a_model_and_its_config_give_the_same_to_the_byte():
    views = [cache_view(m, ByteTokenizer(), TEXT, 5) for m in (CONFIG, scrambled(CONFIG))]
    assert len({(repr(view), view.html, json.dumps(view.data)) for view in views}) == 1


@pytest.mark.parametrize(("text", "n_prompt", "message"), [
    ("a", None, "2 to 16 tokens, not 1"), ("a" * 17, None, "not 17: take a shorter"),
    ("abc", 0, "n_prompt 0 must be from 1 to 3"), ("abc", 4, "n_prompt 4 must be from 1 to 3"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_with_a_fix(text, n_prompt, message):
    with pytest.raises(ValueError, match=message):
        cache_view(CONFIG, ByteTokenizer(), text, n_prompt)
    with pytest.raises(ValueError, match="2 to 5 tokens, not 6"):
        cache_view(tiny("llama", vocab_size=256, max_seq_len=5), ByteTokenizer(), "a" * 6)
