"""Weights in 8 bits: rounding against closed forms, products against the same in full, what is refused."""

import copy
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from support.models import MODELS, normal, rounding, scrambled, some_ids, tiny
from torch import Tensor, nn

from tinylm_classroom.live.record import live_record
from tinylm_lib import KVCache, TrainConfig, TransformerLM, generate, load_hf, quantization, save_hf
from tinylm_lib.layers import Embedding, Linear
from tinylm_lib.pretrained import load_model, load_pretrained, open_model
from tinylm_lib.quantization import MOST_ROWS, Int8Weight, has_int8_product, quantize_int8, quantize_model
from tinylm_lib.storyworld.gaps import gaps
from tinylm_lib.storyworld.stories import story
from tinylm_lib.text.tokenizers import ByteTokenizer
from tinylm_lib.training import build_optimizer, checkpoint
from tinylm_lib.training.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SMALLEST = torch.finfo(torch.float32).tiny


@pytest.fixture(params=["torch's product", "in full"])
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply; the first needs a processor that has it."""
    if request.param == "in full":
        monkeypatch.setattr(quantization, "has_int8_product", lambda: False)
    elif not has_int8_product():
        pytest.skip("this processor has no vectorised product with int8")
    return request.param


def in_full(small: TransformerLM, config: Any) -> TransformerLM:
    """An ordinary model with the rounded weights of a quantized one, multiplied out one number at a time."""
    model, state = TransformerLM(config).double(), {}
    for name, tensor in small.state_dict().items():
        if name.endswith(".scale"):
            continue
        if name.endswith(".values"):
            steps = small.state_dict()[name.removesuffix("values") + "scale"].tolist()
            rows = [[v * step for v in row] for row, step in zip(tensor.tolist(), steps, strict=True)]
            name, tensor = name.removesuffix(".values"), torch.tensor(rows, dtype=torch.float64)
        state[name] = tensor
    model.load_state_dict(state)
    return model.eval()


def test_a_row_by_hand() -> None:
    weight = torch.tensor([[1.27, -0.5, 0.004, -0.006], [0.0, 254.0, -254.0, 3.1], [0.0, 0.0, 0.0, 0.0]])
    values, scale = quantize_int8(weight)
    assert values.tolist() == [[127, -50, 0, -1], [0, 127, -127, 2], [0, 0, 0, 0]]
    assert values.dtype == torch.int8 and scale.dtype == torch.float32
    torch.testing.assert_close(scale[:2], torch.tensor([0.01, 2.0]))
    assert scale[2] > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_weight_moves_by_more_than_half_a_step_and_the_largest_stays(dtype: torch.dtype, seed: int) -> None:
    weight = normal(11, 37, dtype=dtype, seed=seed) * torch.logspace(-3, 3, 11, dtype=torch.float64)[:, None].to(dtype)
    values, scale = quantize_int8(weight)
    exact, steps = weight.double(), scale.double()[:, None]
    assert ((values.double() * steps - exact).abs() <= steps / 2 * (1 + 1e-5)).all()
    assert (values.abs().amax(1) == 127).all() and values.min() >= -127
    torch.testing.assert_close(scale.double(), exact.abs().amax(1) / 127)
    plain = [[round(w / s) for w in row] for row, s in zip(exact.tolist(), scale.tolist(), strict=True)]
    different = (values.double() - torch.tensor(plain)).abs()
    assert different.sum() <= 1 and different.max() <= 1, "a tie may round to the other side"


@pytest.mark.parametrize("size", [3e38, 1e-37, 1e-38, 1e-40, 1e-45])
def test_huge_tiny_and_denormal_rows_keep_to_half_a_step(size: float) -> None:
    weight = normal(5, 32) / 5 * size
    weight[0], weight[1, :31] = 0.0, 0.0
    values, scale = quantize_int8(weight)
    steps = scale.double()[:, None]
    assert ((values.double() * steps - weight.double()).abs() <= steps / 2 * (1 + 1e-5)).all()
    assert scale.isfinite().all() and (scale >= SMALLEST).all()
    found = Int8Weight(weight).linear(torch.full((2, 32), 1 / 64))
    assert found.isfinite().all() and (found[:, 0] == 0).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name(wrong: float) -> None:
    model = scrambled(tiny("llama"))
    with torch.no_grad():
        model.blocks[1].ffn.up_proj.weight[3, 2] = wrong
    with pytest.raises(ValueError, match=r"blocks\.1\.ffn\.up_proj\.weight: the weight holds NaN, infinity"):
        quantize_model(model)
    with pytest.raises(ValueError, match="beyond fp32"):
        quantize_int8(torch.full((2, 3), 1e300, dtype=torch.float64))


def test_only_a_matrix_of_floating_point_numbers_can_be_quantized() -> None:
    for weight in (torch.ones(3), torch.ones(2, 3, 4), torch.ones(0, 4), torch.ones(4, 0)):
        with pytest.raises(ValueError, match=r"must be \(out, in\), got \("):
            quantize_int8(weight)
    with pytest.raises(TypeError, match=r"got torch.int64; use weight.float\(\)"):
        quantize_int8(torch.ones(2, 3, dtype=torch.long))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (MOST_ROWS,), (MOST_ROWS + 1,), (2, 3, 5), (0,)])
@pytest.mark.parametrize("sizes", [(64, 32), (41, 96), (1, 64), (7, 20), (5, 1), (6, 33)])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_is_that_of_the_rounded_weight(product: str, leading: tuple, sizes: tuple[int, int], bias: bool) -> None:
    n_out, n_in = sizes
    layer, x = Linear(n_in, n_out, bias), normal(*leading, n_in, seed=3)
    if bias:
        nn.init.normal_(layer.bias)
    small = quantize_model(nn.Sequential(layer).eval())[0]
    steps = (small.weight.values.double() * small.weight.scale.double()[:, None]).detach()
    expected = (x.double()[..., None, :] * steps).sum(-1) + (layer.bias.detach().double() if bias else 0)
    found = small(x)
    assert found.dtype == torch.float32 and found.shape == (*leading, n_out)
    largest = (x.double().abs()[..., None, :] * steps.abs()).sum(-1)  # x and the result are rounded to bf16
    assert ((found - expected).abs() <= 2.1 * 2**-9 * largest + 1e-5).all()


def test_few_rows_take_torchs_product_and_many_the_weight_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_int8_product():
        pytest.skip("this processor has no vectorised product with int8")
    weight, calls = Int8Weight(normal(5, 64)), []
    real = torch._weight_int8pack_mm
    monkeypatch.setattr(torch, "_weight_int8pack_mm", lambda *a: calls.append(a[0].shape) or real(*a))
    for shape in ((64,), (1, 64), (4, 4, 64), (17, 64), (0, 64)):
        weight.linear(torch.ones(shape))
    assert calls == [(1, 64), (1, 64), (16, 64)]
    calls.clear()
    weight.linear(torch.ones(64, 2).T)
    weight.linear(torch.ones(65)[1:])
    assert len(calls) == 2, "strided and unaligned inputs are copied first"
    calls.clear()
    copy.deepcopy(weight).double().linear(torch.ones(64, dtype=torch.float64))
    Int8Weight(normal(5, 48)).linear(torch.ones(48))
    with torch.autocast("cpu", torch.bfloat16):
        assert weight.linear(torch.ones(64)).dtype == torch.bfloat16
    unaligned = Int8Weight(normal(5, 64))
    unaligned.values = torch.cat((unaligned.values.flatten()[:1], unaligned.values.flatten()))[1:].view(5, 64)
    torch.testing.assert_close(unaligned.linear(torch.ones(64)), weight.linear(torch.ones(64)), rtol=0.01, atol=0.01)
    assert calls == [(1, 64)], "of these only the last is torch's own"


def test_a_product_that_is_missing_slow_or_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(how: Any) -> bool:
        has_int8_product.cache_clear()
        monkeypatch.setattr(torch, "_weight_int8pack_mm", how, raising=False)
        return has_int8_product()

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(quantization.sys, "platform", "linux")
    try:
        right = lambda x, w, s: (x.double() @ w.double().T).bfloat16() * s  # noqa: E731
        assert answer(right)
        assert not answer(lambda *a: right(*a) * 1.01)
        assert not answer(lambda x, w: x)
        monkeypatch.setattr(quantization.sys, "platform", "win32")
        assert not answer(right)
        monkeypatch.setattr(quantization.sys, "platform", "linux")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        monkeypatch.setattr(quantization.platform, "machine", lambda: "x86_64")
        assert not answer(right)
        monkeypatch.setattr(quantization.platform, "machine", lambda: "arm64")
        assert answer(right)
        monkeypatch.delattr(torch, "_weight_int8pack_mm")
        has_int8_product.cache_clear()
        assert not has_int8_product()
    finally:
        has_int8_product.cache_clear()


def test_embedding_picks_rounded_rows_and_refuses_what_is_out_of_range() -> None:
    table = Embedding(11, 5)
    small, ids = quantize_model(nn.Sequential(table).eval())[0], torch.tensor([[3, 10, 3], [0, 7, 1]])
    expected = small.weight.values.double() * small.weight.scale.double()[:, None]
    torch.testing.assert_close(small(ids), expected[ids].float(), rtol=0, atol=0)
    for wrong in (-1, 11):
        with pytest.raises(IndexError):
            small(torch.tensor([0, wrong]))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_quantized_model_is_the_model_of_its_rounded_weights(name: str, tied: bool) -> None:
    config = tiny(name, tie_embeddings=tied)
    model, ids = scrambled(config).double(), some_ids(3, 19)
    before = copy.deepcopy(model.state_dict())
    small = quantize_model(model)
    with torch.no_grad():
        expected, found = in_full(small, config)(ids), small(ids)
        original = model(ids)
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding(expected, 4 * config.n_layers + 2))
    assert 1e-4 < ((found - original).norm() / original.norm()) < 0.2, "8 bits are close, and not the same"
    matrices = [m for m in model.modules() if isinstance(m, Linear | Embedding)]
    assert sum(isinstance(m, Int8Weight) for m in small.modules()) == len(matrices)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert not small.training and not any(p.requires_grad for p in small.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_writing_with_the_cache_is_writing_without(name: str) -> None:
    """In fp64 every product is one of weights in full, so that greedy tokens do not hang on rounding."""
    config = tiny(name)
    small, prompt = quantize_model(scrambled(config).double()), some_ids(2, 7)
    ids = prompt
    for _ in range(12):
        with torch.no_grad():
            ids = torch.cat((ids, small(ids)[:, -1].argmax(-1, keepdim=True)), 1)
    assert torch.equal(generate(small, prompt, 12, temperature=0), ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_reading_one_by_one_is_reading_at_once_within_bf16(product: str, dtype: torch.dtype) -> None:
    config = tiny("modern", d_model=32, d_ff=64, d_head=16)
    small, ids = quantize_model(scrambled(config, 0.2).to(dtype)), some_ids(1, 20)
    cache = KVCache(config, 1, 20, dtype=dtype)
    with torch.no_grad():
        at_once = small(ids)  # 20 rows: in full
        one_by_one = torch.cat([small(ids[:, t : t + 1], cache) for t in range(20)], 1)
    error = (one_by_one.double() - at_once.double()).norm() / at_once.double().norm()
    assert error < (1e-5 if product == "in full" and dtype == torch.float32 else 0.03)
    assert one_by_one.dtype == at_once.dtype == dtype


@pytest.mark.parametrize("n", [1, 2])
def test_the_number_of_threads_changes_nothing_in_torchs_product(n: int) -> None:
    weight, x = Int8Weight(normal(203, 96)), normal(3, 96)
    expected = weight.linear(x)
    torch.set_num_threads(n)  # the fixture of this file sets it back
    assert torch.equal(weight.linear(x), expected)


def test_dtype_and_device_move_and_the_scale_stays_in_fp32() -> None:
    model = quantize_model(scrambled(tiny("llama")))
    scale = model.embed.weight.scale.clone()
    ids = some_ids(2, 5)
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.float32):
        with torch.no_grad():
            assert model.to(dtype)(ids).dtype == dtype == model.embed.weight.dtype
        assert torch.equal(model.embed.weight.scale, scale)
        assert model.embed.weight.values.dtype == torch.int8
    assert model.half().embed.weight.dtype == torch.float16
    moved = copy.deepcopy(model).to("meta")
    assert moved.embed.weight.device.type == "meta" and moved(ids.to("meta")).shape == (2, 5, 41)
    assert model.embed.weight.device.type == "cpu"
    assert moved.to_empty(device="cpu").embed.weight.scale.dtype == torch.float32
    with pytest.raises(TypeError, match="stay int8"):
        model.type(torch.float32)


def test_a_copy_is_apart_and_a_state_dict_brings_everything_back(tmp_path: Path) -> None:
    config, ids = tiny("modern"), some_ids(2, 9)
    small, other = (quantize_model(scrambled(config, seed=seed)) for seed in (1, 2))
    again = copy.deepcopy(small)
    with torch.no_grad():
        expected = small(ids)
        again.embed.weight.values.zero_()
        assert torch.equal(small(ids), expected) and not torch.equal(again(ids), expected)
        other.load_state_dict(small.state_dict())
        assert torch.equal(other(ids), expected)
        save_file(small.state_dict(), tmp_path / "w.safetensors")
        again.load_state_dict(load_file(tmp_path / "w.safetensors"), assign=True)
        assert torch.equal(again(ids), expected)


def n_bytes(model: nn.Module) -> int:
    return sum(t.nbytes for t in model.state_dict().values())


def test_bytes_are_one_for_each_weight_and_four_for_each_row() -> None:
    model = scrambled(tiny("gpt2"))
    small = quantize_model(model)
    matrices = [m.weight for m in model.modules() if isinstance(m, Linear | Embedding)]
    rest = n_bytes(model) - sum(w.nbytes for w in matrices)
    assert n_bytes(small) == rest + sum(w.numel() + 4 * len(w) for w in matrices)
    assert sum(each.weight.numel() for each in small.modules() if isinstance(each, Linear | Embedding)) == sum(
        w.numel() for w in matrices
    )
    assert "Int8Weight(41, 20, torch.float32)" in str(small)


def test_training_is_refused_in_every_way() -> None:
    model = scrambled(tiny("llama"))
    with pytest.raises(ValueError, match=r"model in training mode cannot be quantized; .*model.eval\(\)"):
        quantize_model(copy.deepcopy(model).train())
    small = quantize_model(model)
    with pytest.raises(ValueError, match="cannot be trained; train the one it was made of"):
        small.train()
    assert small.eval().train(False) is small
    with pytest.raises(ValueError, match="build_optimizer needs weights in full"):
        build_optimizer(small, TrainConfig(total_steps=1))
    small.requires_grad_(True)
    with pytest.raises(ValueError, match=r"have no gradients; use torch.no_grad\(\)"):
        small(some_ids(1, 3))
    with torch.no_grad():
        small(some_ids(1, 3))


def test_what_needs_weights_in_full_says_so(tmp_path: Path) -> None:
    small = quantize_model(scrambled(tiny("llama", vocab_size=256)))
    for what, call in {
        "save_hf": lambda: save_hf(small, tmp_path / "a"),
        "checkpoint.save": lambda: checkpoint.save(tmp_path / "b", small),
        "a page": lambda: live_record(small, ByteTokenizer()),
        "quantize_model": lambda: quantize_model(small),
    }.items():
        with pytest.raises(ValueError, match=f"{what} needs weights in full, and this model's are in 8 bits"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_other_functions_of_torch_are_refused_by_name() -> None:
    weight, x = Int8Weight(normal(5, 3)), torch.ones(2, 3)
    for name, call in {
        "matmul": lambda: torch.matmul(x, weight),
        "normal_": lambda: nn.init.normal_(weight),
        "linear": lambda: F.linear(weight, x),
        "embedding": lambda: F.embedding(torch.tensor([1]), weight, max_norm=1.0),
    }.items():
        with pytest.raises(TypeError, match=f"{name} does not work on weights in 8 bits; give it weight.deq"):
            call()
    with pytest.raises(ValueError, match="quantize 'int4' is unknown; choose one of int8"):
        quantize_model(nn.Sequential(Linear(3, 5)).eval(), "int4")
    with pytest.raises(RuntimeError):
        weight.linear(torch.ones(2, 4))


HEADS = {"gpt2": {"n_heads": 4, "n_kv_heads": 4, "d_head": 5}, "llama": {}, "modern": {"rope_layout": "interleaved"}}


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_of_hugging_face_opens_in_8_bits(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = scrambled(tiny(name, **HEADS[name])).to(dtype)
    save_hf(model, tmp_path, tokenizer=None)
    found, expected = load_hf(tmp_path, quantize="int8"), quantize_model(load_hf(tmp_path))
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
    assert not found.training and found.embed.weight.dtype == dtype
    assert not any(p.requires_grad for p in found.parameters())
    with torch.no_grad():
        assert torch.equal(found(some_ids(2, 9)), expected(some_ids(2, 9)))
    for wrong in ("int4", "", "INT8"):
        with pytest.raises(ValueError, match=f"quantize '{wrong}' is unknown; choose one of int8"):
            load_hf("no/such-model", quantize=wrong)


def test_a_file_with_nan_names_its_tensor(tmp_path: Path) -> None:
    model = scrambled(tiny("llama"))
    with torch.no_grad():
        model.blocks[0].ffn.down_proj.weight[1, 1] = math.nan
    save_hf(model, tmp_path)
    with pytest.raises(ValueError, match=r"model\.layers\.0\.mlp\.down_proj\.weight: the weight holds NaN"):
        load_hf(tmp_path, quantize="int8")


def test_every_source_opens_in_8_bits(tmp_path: Path) -> None:
    model = scrambled(tiny("llama", vocab_size=256))
    checkpoint.save(tmp_path / "run", model, tokenizer=ByteTokenizer())
    save_hf(model, tmp_path / "hugging", tokenizer=ByteTokenizer())
    for source in ("storyworld", tmp_path / "run", tmp_path / "hugging"):
        small, _ = load_model(source, quantize="int8")
        assert isinstance(small.embed.weight, Int8Weight) and not small.training
        assert isinstance(load_model(source)[0].embed.weight, Tensor)
    assert isinstance(load_pretrained("storyworld", quantize="int8").model.embed.weight, Int8Weight)
    with pytest.raises(ValueError, match="quantize 'int4' is unknown"):
        open_model("nowhere", quantize="int4")


def test_the_shipped_model_loses_no_hundredth_of_a_nat(ready: Checkpoint) -> None:
    """A bound of the project: 0.01 nats on 60 stories of about 40 tokens; it is 0.0001."""
    generator = torch.Generator().manual_seed(2026)
    stories = [story(generator) for _ in range(60)]
    small = quantize_model(ready.model.eval())
    full, rounded = (gaps(model, ready.tokenizer, stories)["all"].nats for model in (ready.model, small))
    assert abs(rounded - full) <= 0.01


def test_one_by_one_the_shipped_model_loses_no_hundredth_of_a_nat_either(ready: Checkpoint) -> None:
    small = quantize_model(ready.model.eval())
    generator, losses = torch.Generator().manual_seed(2027), {"full": 0.0, "small": 0.0}
    texts = [ready.tokenizer.encode("\n" + story(generator).text) for _ in range(12)]
    for ids, (name, model) in itertools.product(texts, {"full": ready.model, "small": small}.items()):
        cache, row = KVCache(model.config, 1, len(ids)), torch.tensor([ids])
        with torch.no_grad():
            logits = torch.cat([model(row[:, t : t + 1], cache) for t in range(len(ids) - 1)], 1)
        losses[name] += F.cross_entropy(logits[0], row[0, 1:], reduction="sum").item()
    assert abs(losses["small"] - losses["full"]) <= 0.01 * sum(len(ids) - 1 for ids in texts)
