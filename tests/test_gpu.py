"""What an NVIDIA GPU adds: tests that run where there is one. tests/accelerator/ has those of every accelerator."""

import copy
import gc
import itertools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.models import MODELS, N_PRODUCTS, assert_same_on, flat, normal, scrambled, some_ids, tiny
from support.shell import Shell
from support.toys import toy_ids, toy_model
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from tinylm_lib import (
    KVCache,
    TrainConfig,
    TransformerLM,
    add_lora,
    build_optimizer,
    choose_device,
    generate,
    next_token_loss,
    preset,
    train,
)
from tinylm_lib.attention import attend
from tinylm_lib.config import RULES
from tinylm_lib.cost import count_parameters, kv_cache_bytes, training_bytes
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.lora import lora_layers
from tinylm_lib.presets import FAMILIES
from tinylm_lib.quantization import quantize_model
from tinylm_lib.training import checkpoint
from tinylm_lib.training.distributed import Alone
from tinylm_lib.training.loop import tf32_products

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
DEVICE = torch.device("cuda", 0)
TOKENS = some_ids(1, 900)[0]
SINCE_AMPERE = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0), reason="an older GPU lacks it"
)


def on_gpu(model: TransformerLM) -> TransformerLM:
    """A copy of a model on the GPU."""
    return copy.deepcopy(model).to(DEVICE)


assert_same = partial(assert_same_on, DEVICE)


@contextmanager
def waits() -> Iterator[list[Any]]:
    """The warnings of CUDA about what made the program wait, as far as it notices that."""
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            seen.clear()
            yield seen
    finally:
        torch.cuda.set_sync_debug_mode("default")
    seen[:] = [one for one in seen if "synchronizing CUDA operation" in str(one.message)]


def learned(model: TransformerLM, padded: bool = False) -> tuple[Tensor, Tensor]:
    """Logits and all gradients."""
    device, ids = model.embed.weight.device, some_ids(3, 19)
    logits = model(ids.to(device), padding=torch.tensor([0, 4, 2], device=device) if padded else None)
    next_token_loss(logits, ids.roll(-1, 1).to(device)).backward()
    return logits, flat(p.grad for p in model.parameters())


def test_a_read_is_noticed() -> None:
    with waits() as seen:
        torch.ones(2, device=DEVICE).sum().item()
    assert len(seen) == 1


def test_the_gpu_is_chosen() -> None:
    assert choose_device() == torch.device("cuda")


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_are_those_of_the_cpu(name: str, padded: bool) -> None:
    model = scrambled(tiny(name))
    for found, expected in zip(learned(on_gpu(model), padded), learned(model, padded), strict=True):
        assert_same(found, expected, 2 * N_PRODUCTS)


# --- training --------------------------------------------------------------------------------------------------------


def trained(model: TransformerLM, recompute: bool = False, **changes: Any) -> list[Any]:
    """Three updates on the device of the model."""
    recipe = TrainConfig(**{"total_steps": 3, "batch_size": 4, "seq_len": 15, "precision": "fp32", **changes})
    batches = RandomWindows(TOKENS, 4, 15, 1, model.embed.weight.device)
    model.recompute = recompute
    torch.manual_seed(0)
    return list(train(model, build_optimizer(model, recipe), batches, recipe))


RECIPES = {
    **{f"optimizer {name}": {"optimizer": name} for name in RULES}, "accumulation": {"micro_steps": 3},
    "recompute": {"recompute": True},
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_updates_are_those_of_the_cpu_and_wait_for_nothing(recipe: dict[str, Any]) -> None:
    """Batches come from pinned memory, and AdamW is fused: its count of updates is on the GPU."""
    model = scrambled(tiny("modern"))
    other = on_gpu(model)
    trained(on_gpu(model), **recipe)  # what is loaded at first may wait
    with waits() as seen:
        found = trained(other, **recipe)
    assert seen == []
    expected = trained(model, **recipe)
    n_products = 3 * 2 * N_PRODUCTS  # three updates, forward and backward
    assert_same(*(torch.stack([step.loss for step in run]) for run in (found, expected)), n_products)
    assert_same(flat(other.parameters()), flat(model.parameters()), n_products)


@SINCE_AMPERE
@pytest.mark.parametrize(("precision", "dtype"), [("auto", torch.bfloat16), ("bf16", torch.bfloat16),
                                                  ("tf32", torch.float32)])  # fmt: skip
def test_lower_precision_has_nearly_the_losses_of_fp32_and_waits_for_nothing(
    precision: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TINYLM_BF16", raising=False)
    seen = set()

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in ("mm", "bmm", "baddbmm"):
                seen.update(x.dtype for x in args if isinstance(x, Tensor))
            return func(*args, **(kwargs or {}))

    model = scrambled(tiny("modern"), std=0.1)
    exact, others = on_gpu(model), [on_gpu(model) for _ in range(2)]
    with Products():
        trained(others[0], precision=precision)
    with waits() as waited:
        steps = trained(others[1], precision=precision)
    assert seen == {dtype} and waited == []
    for found, expected in zip(steps, trained(exact), strict=True):
        assert (found.loss - expected.loss).abs() < 0.02 * expected.loss


@SINCE_AMPERE
def test_products_are_rounded_to_tf32_where_that_was_agreed_to_and_nowhere_else() -> None:
    x = normal(256, 256).to(DEVICE)
    exact = x.double() @ x.double()

    def error() -> float:
        return ((x @ x - exact).abs().max() / exact.abs().max()).item()

    before = error()
    with tf32_products(agreed=True):
        inside = error()
    assert before < 1e-5 < inside < 1e-2 and error() == before


def test_batches_that_come_while_the_gpu_works_are_those_of_the_cpu() -> None:
    """A copy from pinned memory is still to be done when the next batch is drawn."""
    there, here = (RandomWindows(TOKENS, 64, 15, 1, device) for device in (DEVICE, "cpu"))
    busy = torch.eye(4096, device=DEVICE)
    batches = []
    for _ in range(50):
        busy = busy @ busy
        batches.append(next(there))
    for batch, expected in zip(batches, here, strict=False):
        assert [x.tolist() for x in batch] == [x.tolist() for x in expected]


def test_a_run_goes_on_from_a_checkpoint_with_the_random_numbers_of_its_gpu(tmp_path: Path) -> None:
    recipe = TrainConfig(total_steps=4, batch_size=4, seq_len=15, precision="fp32")
    team, losses = Alone(DEVICE), []
    for halves in ([(1, 4)], [(1, 2), (3, 4)]):
        torch.manual_seed(0)
        for start, end in halves:
            model = scrambled(tiny("modern", residual_dropout=0.2)).to(DEVICE)
            optimizer, batches = build_optimizer(model, recipe), RandomWindows(TOKENS, 4, 15, 1, DEVICE)
            if start > 1:
                torch.rand(9, device=DEVICE)  # others drew meanwhile
                checkpoint.load(tmp_path / "run").restore(model, optimizer, batches, team)
            steps = itertools.islice(train(model, optimizer, batches, recipe, start), end + 1 - start)
            losses.append([step.loss.item() for step in steps][-2:])
            checkpoint.save(tmp_path / "run", model, optimizer, batches, end, team=team)
    whole, _, second_half = losses
    assert second_half == pytest.approx(whole, rel=1e-5)
    here = checkpoint.load(tmp_path / "run").model
    assert torch.equal(flat(here.parameters()), flat(model.parameters()).cpu()), "and it opens on the CPU"


# --- attention and compilation ---------------------------------------------------------------------------------------


@SINCE_AMPERE
@pytest.mark.parametrize("n_kv_heads", [8, 2])
def test_attention_in_bf16_is_flash_attention(n_kv_heads: int) -> None:
    q, k, v = (normal(2, heads, 128, 64, seed=heads).to(torch.bfloat16) for heads in (8, n_kv_heads, n_kv_heads))
    expected = attend(q.double(), k.double(), v.double(), causal=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # which raises where another one would be needed
        found = attend(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE), causal=True)
    assert (found.cpu() - expected).abs().max() < 2**-6 * expected.abs().max()


@SINCE_AMPERE
@pytest.mark.parametrize("name", ["modern", "llama", "gpt2"])
def test_an_update_and_a_decoding_step_in_bf16_take_flash_attention(name: str) -> None:
    model = scrambled(tiny(name, d_head=64), std=0.1).to(DEVICE)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        steps = trained(model, precision="bf16")
        with torch.autocast("cuda", torch.bfloat16):
            ids = generate(model, some_ids(2, 5).to(DEVICE), 20)
    assert all(step.loss.isfinite() for step in steps) and ids.shape == (2, 25)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch._inductor")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_model_learns_what_the_same_model_does(name: str) -> None:
    pytest.importorskip("triton")
    model = scrambled(tiny(name))
    torch._dynamo.reset()
    other = on_gpu(model)
    other.compile(fullgraph=True)
    for found, expected in zip(learned(other), learned(model), strict=True):
        assert_same(found, expected, 2 * N_PRODUCTS)
    losses = (torch.stack([step.loss for step in trained(one)]) for one in (other, model))
    assert_same(*losses, 3 * 2 * N_PRODUCTS)


# --- writing ---------------------------------------------------------------------------------------------------------

WAYS = {
    "greedy": {"temperature": 0}, "padded": {"temperature": 0, "padding": torch.tensor([0, 2])},
    "cut": {"top_k": 1, "top_p": 0.9}, "beyond the context": {"temperature": 0, "max_seq_len": 9},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_text_is_that_of_the_cpu_and_its_20_tokens_wait_at_most_8_times(way: dict[str, Any]) -> None:
    options = dict(way)
    model, ids = toy_model(max_seq_len=options.pop("max_seq_len", 25)), toy_ids(2, 4)
    expected = generate(model, ids, 20, **options)
    options = {name: value.to(DEVICE) if isinstance(value, Tensor) else value for name, value in options.items()}
    other, there = on_gpu(model), ids.to(DEVICE)
    generate(other, there, 1, **options)
    with waits() as seen:
        found = generate(other, there, 20, **options)
    assert found.tolist() == expected.tolist() and len(seen) <= 8


def test_a_stream_of_the_gpu_other_than_its_first_writes_the_same() -> None:
    model, ids = on_gpu(toy_model(max_seq_len=40)), toy_ids(2, 4).to(DEVICE)
    expected = generate(model, ids, 30, temperature=0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = generate(model, ids, 30, temperature=0).tolist()
    assert found == expected.tolist()


def test_two_draws_with_one_seed_are_equal_and_others_differ() -> None:
    model, ids = on_gpu(toy_model(max_seq_len=40)), toy_ids(4, 4).to(DEVICE)
    texts = [generate(model, ids, 30, generator=torch.Generator(DEVICE).manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1]) and not torch.equal(texts[0], texts[2])


def test_weights_in_8_bits_and_their_updates_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinylm_lib.quantization.has_int8_product", lambda: False)  # of CPUs alone
    model, ids = quantize_model(scrambled(tiny("llama"))), some_ids(2, 9)
    other = on_gpu(model)
    assert_same(other(ids.to(DEVICE)), model(ids))
    losses = []
    for one in (other, model):
        add_lora(one, 3)
        losses.append([step.loss.item() for step in trained(one)])
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5), "on both the updates begin at 0"
    assert all(layer.lora_b.detach().ne(0).any() for layer in lora_layers(other).values())


# --- bytes and commands ----------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_costs() -> None:
    """The allocator rounds each tensor up to 512 bytes, and products have a workspace of their own."""
    config = preset("gpt2", vocab_size=8192, d_model=512, n_layers=6, n_heads=8, max_seq_len=1024)
    trained(scrambled(tiny("modern")).to(DEVICE))  # what CUDA keeps from its first product on
    gc.collect()
    before = torch.cuda.memory_allocated()
    model = TransformerLM(config).to(DEVICE)
    n_tensors = len(list(model.parameters())) + len(list(model.buffers()))
    n_extra = sum(x.numel() * x.element_size() for x in model.buffers())
    taken = torch.cuda.memory_allocated() - before - 4 * count_parameters(config).total
    assert 0 <= taken <= n_extra + 512 * n_tensors
    held = torch.cuda.memory_allocated()
    cache = KVCache(config, 3, 1024, DEVICE)
    taken = torch.cuda.memory_allocated() - held - kv_cache_bytes(config, 3, 1024)
    assert 0 <= taken <= 512 * 2 * len(cache.keys)
    del cache
    recipe = TrainConfig(total_steps=3, batch_size=1, seq_len=1, precision="fp32", optimizer="adamw")
    torch.cuda.reset_peak_memory_stats()
    list(train(model, build_optimizer(model, recipe), RandomWindows(TOKENS, 1, 1, 1, DEVICE), recipe))
    assert 1 <= (torch.cuda.max_memory_allocated() - before) / training_bytes(config) < 1.25


@pytest.mark.parametrize("precision", ["auto", "tf32"])
def test_commands_work_there_by_themselves(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("the cat saw a dog and the dog saw a cat\n" * 30)
    shell = Shell(capsys)
    small = "--no-lines --d-model 16 --n-layers 1 --n-heads 2 --seq-len 8 --total-steps 3"
    assert "on cuda" in shell(f"train --corpus text --prompt the {small} --out run --precision {precision}")
    assert shell("train --resume --out run --total-steps 5")
    texts = {shell("sample --from run --max-new-tokens 20 --seed 1") for _ in range(2)}
    assert len(texts) == 1
    assert "bits per byte" in shell("eval run")
