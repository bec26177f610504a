"""Costs: published parameter counts, and closed formulas against the real model, cache, optimizer and FLOP counter."""

import random
from dataclasses import replace

import pytest
import torch
from support.models import MODELS, some_ids, tiny
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib import KVCache, ModelConfig, TrainConfig, TransformerLM, cost, next_token_loss, preset
from tinylm_lib.cost import ParameterCount, count_parameters, forward_flops, kv_cache_bytes, mfu
from tinylm_lib.feedforward import FFNS
from tinylm_lib.layers import NORMS
from tinylm_lib.model import BLOCKS
from tinylm_lib.positions import POSITIONS
from tinylm_lib.training.optim import build_optimizer

pytestmark = pytest.mark.usefixtures("one_thread")

NO_ATTENTION_BIAS = {"qkv_bias": False, "o_bias": False}
GPT3 = {"d_model": 12_288, "n_layers": 96, "n_heads": 96, "max_seq_len": 2048}
# The documents of tests/house/test_rows.py, counted by hand; Llama: the released checkpoints' own counts.
WAYS = [{}, {"tie_embeddings": False}, {"position": "learned"}, {"position": "learned", "tie_embeddings": False}]
BIASES = [{}, NO_ATTENTION_BIAS]
MODERN = 2 * 256 * 128 + 2 * (4 * 128 * 128 + 2 * 32 + 3 * 128 * 320 + 2 * 128) + 128
COUNTS = [
    ("cs336", None, [{}, {"d_ff": 1344}, {"max_seq_len": 4096, "n_heads": 16}], [29_117_952, 28_924_416, 29_117_952]),
    ("cs190c", None, [{}], [29_117_952]),
    ("gpt", None, [*WAYS[:2], {"qkv_bias": True, "o_bias": True}], [5_846_528, 8_406_528, 5_850_624]),
    ("tiny_transformer", None, WAYS, [24_035_328, 29_155_328, 24_559_616, 29_679_616]),
    ("tiny_transformer", "tiny", WAYS, [132_096, 164_096, 140_288, 172_288]),
    ("tiny_transformer", "small", WAYS, [723_072, 851_072, 755_840, 883_840]),
    ("tiny_transformer", "medium", WAYS, [6_019_072, 7_299_072, 6_150_144, 7_430_144]),
    ("gpt2", "small", BIASES, [124_439_808, 124_402_944]),
    ("gpt2", "medium", BIASES, [354_823_168, 354_724_864]),
    ("gpt2", "large", BIASES, [774_030_080, 773_845_760]),
    ("gpt2", "xl", BIASES, [1_557_611_200, 1_557_304_000]),
    ("gpt2", None, [GPT3, GPT3 | NO_ATTENTION_BIAS], [174_604_259_328, 174_599_540_736]),
    ("llama", None, [{}], [1_235_814_400]),
    ("llama", "3-8b", [{}], [8_030_261_248]),
    ("llama", "2-7b", [{}], [6_738_415_616]),
    ("modern", None, [{}], [MODERN]),
]


def n_in(module: nn.Module | None) -> int:
    return 0 if module is None else sum(p.numel() for p in module.parameters())


def on_meta(config: ModelConfig) -> TransformerLM:
    with torch.device("meta"):
        return TransformerLM(config)


@pytest.mark.parametrize(("name", "size", "ways", "counts"), COUNTS)
def test_published_counts_by_formula_and_by_building(name: str, size: str, ways: list[dict], counts: list[int]) -> None:
    for changes, count in zip(ways, counts, strict=True):
        config = preset(name, size, **changes)
        assert count_parameters(config).total == count
        if count < 10**10:  # GPT-3 by formula only
            assert n_in(on_meta(config)) == count


PARTS = [
    (preset("cs336"), {"attention": 1_048_576, "ffn": 2_096_640, "norms": 1_024, "block": 3_146_240,
                       "blocks": 6 * 3_146_240, "embedding": 5_120_000, "head": 5_120_000, "final_norm": 512,
                       "position": 0}),
    (preset("gpt"), {"embedding": 2_560_000, "position": 131_072, "attention": 262_144, "ffn": 525_568, "norms": 1_024,
                     "block": 788_736, "blocks": 3_154_944, "final_norm": 512, "head": 0}),
    (preset("tiny_transformer"), {"block": 3_152_384, "position": 0}),
    (preset("tiny_transformer", "tiny"), {"block": 49_984}),
    (preset("tiny_transformer", "small"), {"block": 198_272}),
    (preset("tiny_transformer", "medium"), {"block": 789_760}),
    (preset("cs336", d_ff=1344), {"ffn": 2_064_384}),
    (preset("cs336", ffn="gelu"), {"ffn": 2_097_152}),
]  # fmt: skip


@pytest.mark.parametrize(("config", "parts"), PARTS, ids=[str(parts) for _, parts in PARTS])
def test_published_counts_of_the_parts(config: ModelConfig, parts: dict[str, int]) -> None:
    assert parts.items() <= count_parameters(config)._asdict().items()


def test_number_and_kinds_of_tensors_in_gpt() -> None:
    parameters = list(on_meta(preset("gpt")).parameters())
    assert len(parameters) == 52
    assert sum(p.numel() for p in parameters if p.ndim >= 2) == 5_836_800
    assert sum(p.numel() for p in parameters if p.ndim < 2) == 9_728


def test_every_part_is_counted_as_built_whatever_is_chosen() -> None:
    dice, flip = random.Random(7), (False, True)
    choices = {
        "norm": list(NORMS), "position": list(POSITIONS), "ffn": list(FFNS), "block": list(BLOCKS),
        "n_kv_heads": [1, 2, 3, 6], "n_layers": [1, 3], "qkv_bias": flip, "o_bias": flip, "ffn_bias": flip,
        "qk_norm": flip, "tie_embeddings": flip,
    }  # fmt: skip
    for _ in range(60):
        config = tiny("modern", **{field: dice.choice(values) for field, values in choices.items()})
        model = on_meta(config)
        block = model.blocks[-1]
        built = ParameterCount(
            embedding=n_in(model.embed), position=n_in(model.position),
            attention=n_in(block.attention), ffn=n_in(block.ffn),
            norms=n_in(block.attn_norm) + n_in(block.ffn_norm), block=n_in(block),
            blocks=n_in(model.blocks), final_norm=n_in(model.final_norm),
            head=n_in(model.lm_head), total=n_in(model),
        )  # fmt: skip
        assert count_parameters(config) == built, config


def flops_counted(config: ModelConfig, batch_size: int, seq_len: int, backward: bool) -> int:
    """What torch's counter sees; it counts the plain attention kernel only, as the products that it is made of."""
    model, ids = TransformerLM(config), some_ids(batch_size, seq_len)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits = model(ids)
        if backward:
            next_token_loss(logits, ids).backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(("name", "batch_size", "seq_len"), [*((name, 3, 19) for name in MODELS), ("modern", 1, 5)])
def test_flops_are_what_the_counter_counts(name: str, batch_size: int, seq_len: int) -> None:
    config = tiny(name)
    assert forward_flops(config, batch_size, seq_len) == flops_counted(config, batch_size, seq_len, backward=False)
    assert cost.training_flops(config, batch_size, seq_len) == flops_counted(config, batch_size, seq_len, backward=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 6])
def test_cache_bytes_are_those_of_the_cache(n_kv_heads: int, dtype: torch.dtype) -> None:
    config = tiny("llama", n_kv_heads=n_kv_heads, n_layers=3)
    cache = KVCache(config, batch_size=5, max_len=11, dtype=dtype)
    real = sum(tensor.nbytes for tensor in (*cache.keys, *cache.values))
    assert kv_cache_bytes(config, 5, 11, dtype.itemsize) == real


def test_cache_bytes_by_hand() -> None:
    assert kv_cache_bytes(preset("cs336"), batch_size=1, length=512) == 12_582_912
    assert kv_cache_bytes(preset("llama", "3-8b"), 1, 8192, bytes_per_element=2) == 2**30, "1 GiB: 8 of 32 heads"


def test_training_bytes_are_those_of_weights_gradients_and_moments() -> None:
    config = replace(tiny("gpt2"), n_layers=1)
    model, ids = TransformerLM(config), some_ids(2, 5)
    optimizer = build_optimizer(model, TrainConfig(optimizer="adamw"))
    next_token_loss(model(ids), ids).backward()
    optimizer.step()
    moments = [t for state in optimizer.state.values() for t in state.values() if t.numel() > 1]
    real = sum(t.nbytes for p in model.parameters() for t in (p, p.grad)) + sum(t.nbytes for t in moments)
    assert cost.training_bytes(config) == real
    assert cost.training_bytes(preset("llama")) == 16 * 1_235_814_400


def test_mfu() -> None:
    assert mfu(flops=6e12, seconds=2.0, peak_flops_per_second=1e13) == pytest.approx(0.3)
    for seconds, peak in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, -5.0)):
        with pytest.raises(ValueError, match=f"must be positive, got {seconds} and {peak}"):
            mfu(1.0, seconds, peak)
