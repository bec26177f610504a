"""The cache against the full forward: every split, chunks, gradients, refusals that change nothing, and reuse."""

import pytest
import torch
from support.models import MODELS, SIZES, rounding, scrambled, some_ids, tiny
from torch import Tensor

from tinylm_lib import KVCache, TransformerLM

pytestmark = pytest.mark.usefixtures("one_thread")

T = 20  # more than attend's smallest number of keys without a mask


def in_pieces(model: TransformerLM, ids: Tensor, lengths: list[int], cache: KVCache | None = None) -> Tensor:
    """Logits of ids (B, T), fed piece by piece through a cache in the model's dtype."""
    dtype = model.embed.weight.dtype
    cache = KVCache(model.config, len(ids), ids.shape[1], dtype=dtype) if cache is None else cache
    return torch.cat([model(piece, cache) for piece in ids.split(lengths, dim=1)], dim=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_splits_chunks_and_single_steps_give_the_logits_of_the_whole(name: str, dtype: torch.dtype) -> None:
    model, ids = scrambled(tiny(name)).to(dtype), some_ids(2, T)
    with torch.no_grad():
        full = model(ids)
        assert full.std() > 0.1
        for lengths in (*([n, T - n] for n in range(1, T)), [1] * T, [7, 1, 1, 5, 6], [1, 17, 2]):
            torch.testing.assert_close(in_pieces(model, ids, lengths), full, rtol=0, atol=rounding(full, 13))


SOME = [("llama", part) for part in ("q_proj", "o_proj", "up_proj", "v_proj")]


@pytest.mark.parametrize(("name", "trained"), [*((name, "") for name in MODELS), *SOME])
def test_gradients_through_a_cache_are_those_of_the_whole(name: str, trained: str) -> None:
    model, ids = scrambled(tiny(name)).double().requires_grad_(False), some_ids(2, 11)
    weights = {key: p.requires_grad_() for key, p in model.named_parameters() if trained in key}
    upstream = torch.randn(2, 11, SIZES["vocab_size"], dtype=torch.float64)
    full = torch.autograd.grad(model(ids), weights.values(), upstream)
    pieces = torch.autograd.grad(in_pieces(model, ids, [4, 1, 6]), weights.values(), upstream)
    for key, a, b in zip(weights, pieces, full, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda m, key=key: f"{key}: {m}")


def test_a_cache_holds_one_tensor_per_layer_and_fills_them_in_place() -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    cache = KVCache(model.config, batch_size=2, max_len=11)
    tensors = [*cache.keys, *cache.values]
    assert [tuple(t.shape) for t in tensors] == [(2, 3, 11, 8)] * 4, "(B, G, max_len, D) for each of 2 layers"
    assert len({t.data_ptr() for t in tensors}) == 4
    assert (cache.length, cache.max_len) == (0, 11)
    with torch.no_grad():
        in_pieces(model, ids, [5, 1, 3], cache)
    assert cache.length == 9
    for before, now in zip(tensors, [*cache.keys, *cache.values], strict=True):
        assert now is before, "without gradients nothing is copied"
        assert (now[:, :, :9] != 0).any((1, 3)).all() and (now[:, :, 9:] == 0).all()
    elsewhere = KVCache(model.config, 2, 5, device="meta", dtype=torch.float64)
    assert {(t.dtype, t.device.type) for t in (*elsewhere.keys, *elsewhere.values)} == {(torch.float64, "meta")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16])
def test_every_precision_of_cache_works_in_every_precision_of_model(
    weights: torch.dtype, autocast: bool, dtype: torch.dtype
) -> None:
    model, ids = scrambled(tiny("modern")).to(weights), some_ids(2, 9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        full, pieces = model(ids), in_pieces(model, ids, [5, 1, 3], KVCache(model.config, 2, 9, dtype=dtype))
    assert pieces.dtype == full.dtype == (torch.bfloat16 if autocast else weights)
    torch.testing.assert_close(pieces, full, rtol=0, atol=0.25)  # logits of size 10 and 8 bits


def contents(cache: KVCache) -> list[Tensor]:
    return [t.clone() for t in (*cache.keys, *cache.values)]


@pytest.mark.parametrize("grad", [False, True])
def test_too_many_positions_are_refused_and_the_cache_continues(grad: bool) -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 8)
    with torch.set_grad_enabled(grad):
        cache = KVCache(model.config, 2, max_len=8)
        logits = [model(ids[:, :6], cache)]
        before = contents(cache)
        with pytest.raises(ValueError, match=r"holds 6 of at most 8 positions, 3 more do not fit.*reset"):
            model(some_ids(2, 3), cache)
        assert cache.length == 6
        torch.testing.assert_close(contents(cache), before, rtol=0, atol=0)
        logits.append(model(ids[:, 6:], cache))
        torch.testing.assert_close(torch.cat(logits, dim=1), model(ids), rtol=0, atol=5e-5)
        with pytest.raises(ValueError, match="holds 8 of at most 8 positions, 1 more"):
            model(ids[:, :1], cache)


def test_wrong_input_leaves_the_cache_as_it_was() -> None:
    model = scrambled(tiny("llama"))
    cache = KVCache(model.config, 2, max_len=60)
    wrong = [
        (some_ids(2, 8), ValueError, "38 positions exceed max_seq_len 37"),
        (some_ids(3, 2), ValueError, "batch size 2, got 3"),
        (torch.tensor([[0], [41]]), ValueError, "token id 41 is outside 0..40"),
        (torch.ones(2, 1), TypeError, "integers"),
    ]
    with torch.no_grad():
        model(some_ids(2, 30), cache)
        before = contents(cache)
        for ids, error, words in wrong:
            with pytest.raises(error, match=words):
                model(ids, cache)
            assert cache.length == 30
        torch.testing.assert_close(contents(cache), before, rtol=0, atol=0)
        model(some_ids(2, 7), cache)
    assert cache.length == 37


def test_a_cache_without_room_is_refused() -> None:
    for batch_size, max_len in ((0, 5), (2, 0), (-1, 5), (2, -3)):
        with pytest.raises(ValueError, match=f"at least 1, got {batch_size} and {max_len}"):
            KVCache(tiny("llama"), batch_size, max_len)


@pytest.mark.parametrize("grad", [False, True])
def test_reset_forgets_everything_and_keeps_the_memory(grad: bool) -> None:
    model, first, second = scrambled(tiny("llama")), some_ids(2, 12, seed=5), some_ids(2, 9, seed=6)
    with torch.set_grad_enabled(grad):
        cache = KVCache(model.config, 2, 12)
        model(first, cache)
        memory = [t.data_ptr() for t in (*cache.keys, *cache.values)]
        cache.reset()
        assert cache.length == 0
        assert [t.data_ptr() for t in (*cache.keys, *cache.values)] == memory
        assert not any(t.requires_grad for t in (*cache.keys, *cache.values)), "the old graph is let go"
        again = in_pieces(model, second, [4, 5], cache)
    torch.testing.assert_close(again, model(second), rtol=0, atol=5e-5)


def test_a_cache_filled_with_gradients_continues_without_them() -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    cache = KVCache(model.config, 2, 9)
    first = model(ids[:, :5], cache)
    second = torch.no_grad()(model)(ids[:, 5:], cache)
    torch.testing.assert_close(torch.cat((first, second), dim=1), model(ids), rtol=0, atol=5e-5)
    first.sum().backward()


def test_select_keeps_reorders_and_repeats_sequences() -> None:
    model, ids, rows = scrambled(tiny("modern")), some_ids(3, 9), torch.tensor([2, 0, 2, 1])
    with torch.no_grad():
        cache = KVCache(model.config, 3, 9)
        model(ids[:, :5], cache)
        cache.select(rows)
        assert cache.length == 5
        tail = some_ids(4, 4, seed=7)
        expected = model(torch.cat((ids[rows, :5], tail), dim=1))[:, 5:]
        torch.testing.assert_close(model(tail, cache), expected, rtol=0, atol=5e-5)
