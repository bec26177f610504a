"""Training: what one update does, that runs repeat to the bit, and learn."""

import builtins
import itertools
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from support.toys import DeviceReads, Modes, evaluation_copy, toy_config, toy_ids
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from tinylm_lib import TrainConfig, TransformerLM, next_token_loss, train
from tinylm_lib.config import IGNORED
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.training.loop import PRECISIONS, Step, choose_device, multiplies_bf16, tf32_products
from tinylm_lib.training.optim import SCHEDULES, build_optimizer

Batches = Iterator[tuple[Tensor, Tensor]]


def toy_run(total_steps: int, **changes: Any) -> TrainConfig:
    short = {"warmup_steps": min(2, total_steps), "batch_size": 4, "seq_len": 8, "precision": "fp32"}
    return TrainConfig(total_steps, **{**short, **changes})


def new_model(name: str = "modern", seed: int = 0, **changes: Any) -> TransformerLM:
    """A toy model with its real initial weights, in fp32."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return TransformerLM(toy_config(name, **changes))


def batch(B: int = 4, T: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    ids = toy_ids(B, T + 1, seed)
    return ids[:, :-1], ids[:, 1:]


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def run(model: nn.Module, config: TrainConfig, batches: Batches | None = None, optimizer: Any = None) -> list[Step]:
    """All updates of a training, by default on one batch again and again."""
    optimizer = optimizer or build_optimizer(model, config)
    return list(train(model, optimizer, batches or itertools.repeat(batch()), config))


def plain_sgd(model: nn.Module, lr: float = 0.5) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr)


FLAT = {"floor": 1.0, "warmup_steps": 0}  # a schedule with one rate throughout


# --- one update ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [None, 1e9, 0.7, 0.01])
def test_an_update_is_the_gradient_clipped_to_its_norm(clip_norm: float | None) -> None:
    model, (x, y) = new_model(), batch()
    before = weights_of(model)
    by_the_book = torch.autograd.grad(next_token_loss(model(x), y), list(model.parameters()))
    gradient = dict(zip(before, by_the_book, strict=True))
    norm = math.sqrt(sum(g.double().square().sum().item() for g in by_the_book))
    assert norm > 1, "the gradient is too small to be clipped"
    (step,) = run(model, toy_run(1, **FLAT, clip_norm=clip_norm), optimizer=plain_sgd(model, 1.0))
    share = 1.0 if clip_norm is None else min(1.0, clip_norm / norm)
    assert step.grad_norm.item() == pytest.approx(norm, rel=1e-4), "not the norm before clipping"
    for name, weight in model.named_parameters():
        torch.testing.assert_close(before[name] - weight, share * gradient[name], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_says_what_happened(schedule: str) -> None:
    quiet = new_model("gpt", embedding_dropout=0.0, attention_dropout=0.0, residual_dropout=0.0)
    config = toy_run(7, matrix_lr=0.01, embedding_lr=0.03, floor=0.1, schedule=schedule)
    optimizer = build_optimizer(quiet, config)
    steps = run(quiet, config, optimizer=optimizer)
    assert [step.step for step in steps] == list(range(1, 8))
    for n, step in enumerate(steps, start=1):
        assert isinstance(step, Step)
        assert step.lr_share == SCHEDULES[schedule](n, 1.0, 0.1, 2, 7)
        assert step.loss.shape == step.grad_norm.shape == ()
        assert not step.loss.requires_grad and not step.grad_norm.requires_grad
    assert [group["lr"] for group in optimizer.param_groups] == [pytest.approx(lr) for lr in (0.001, 0.003, 0.003)]
    before = next_token_loss(evaluation_copy(quiet)(batch()[0]), batch()[1])
    step = next(train(quiet, optimizer, iter([batch()]), config, first_step=7))
    torch.testing.assert_close(step.loss, before, msg="the loss is that before the update")


def test_micro_batches_add_up_to_one_large_one() -> None:
    one, many = new_model(), new_model()
    x, y = batch(32)
    whole = run(one, toy_run(3, **FLAT), itertools.repeat((x, y)), plain_sgd(one))
    parts = itertools.cycle(zip(x.split(8), y.split(8), strict=True))
    for a, b in zip(whole, run(many, toy_run(3, **FLAT, micro_steps=4), parts, plain_sgd(many)), strict=True):
        torch.testing.assert_close(a.loss, b.loss, atol=1e-6, rtol=0)
        torch.testing.assert_close(a.grad_norm, b.grad_norm, atol=0, rtol=1e-5)
    torch.testing.assert_close(weights_of(many), weights_of(one), atol=1e-5, rtol=0)


def masked_batch(empty: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    """Eight rows, of which row i has i + 1 targets that count, and those in `empty` none."""
    x, y = batch(8)
    y = y.clone()
    for row in range(8):
        y[row, row + 1 :] = IGNORED
    y[list(empty)] = IGNORED
    return x, y


@pytest.mark.parametrize("empty", [(), (2, 3), (0, 1, 6, 7)])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_micro_batches_with_other_numbers_of_targets_add_up_to_one_large_one(
    empty: tuple[int, ...], clip_norm: float | None
) -> None:
    (x, y), losses = masked_batch(empty), []
    models = [new_model(), new_model()]
    for model, n in zip(models, (8, 2), strict=True):
        parts = itertools.cycle(zip(x.split(n), y.split(n), strict=True))
        config = toy_run(3, **FLAT, micro_steps=8 // n, clip_norm=clip_norm)
        steps = run(model, config, parts, plain_sgd(model))
        losses.append(torch.tensor([[step.loss, step.grad_norm] for step in steps]))
    torch.testing.assert_close(losses[1], losses[0], atol=0, rtol=1e-5)
    torch.testing.assert_close(weights_of(models[1]), weights_of(models[0]), atol=1e-5, rtol=0)
    by_hand = next_token_loss(new_model()(x), y)
    assert losses[1][0, 0].item() == pytest.approx(by_hand.item(), rel=1e-6)


def test_an_update_without_any_target_is_refused() -> None:
    x, y = batch()
    with pytest.raises(ValueError, match="no target of an update counts: all are -100"):
        run(new_model(), toy_run(2, micro_steps=2), itertools.repeat((x, torch.full_like(y, IGNORED))))


def test_frozen_weights_stay_and_get_no_gradient() -> None:
    model = new_model()
    model.embed.requires_grad_(False)
    before = weights_of(model)
    run(model, toy_run(3))
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert changed == set(before) - {"embed.weight"}
    assert model.embed.weight.grad is None


def test_dropout_is_on_even_after_the_caller_evaluated() -> None:
    model, config = new_model("gpt"), toy_run(3)
    passes = Modes(model)
    for _ in train(model, build_optimizer(model, config), itertools.repeat(batch()), config):
        model.eval()
    assert passes.training == [True] * 3


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OSError])
def test_an_update_interrupted_half_way_can_be_repeated(kind: type[BaseException]) -> None:
    def interrupted() -> Batches:
        yield batch(seed=7)
        raise kind

    clean, stopped = new_model(), new_model()
    config = toy_run(2, **FLAT, micro_steps=2)
    with pytest.raises(kind):
        run(stopped, config, interrupted(), plain_sgd(stopped))
    for model in (clean, stopped):
        run(model, config, optimizer=plain_sgd(model))
    assert same(clean, stopped)


def test_a_finished_run_has_nothing_left() -> None:
    model, config = new_model(), toy_run(4)
    assert list(train(model, build_optimizer(model, config), iter([]), config, first_step=5)) == []


def test_batches_that_run_out_are_named() -> None:
    with pytest.raises(ValueError, match="batches ran out at update 3 of 4; give an endless source"):
        run(new_model(), toy_run(4), iter([batch(), batch()]))


def test_batches_and_recipes_of_another_kind_are_named() -> None:
    model, config = new_model(), toy_run(1)
    pairs = [batch()]
    loader = DataLoader(TensorDataset(*batch()), batch_size=4)
    for batches in (loader, pairs, tuple(pairs), batch()[0], None, "text"):
        with pytest.raises(TypeError, match=f"endless iterator, got {type(batches).__name__}; use RandomWindows, or"):
            next(train(model, plain_sgd(model), batches, config))
    endless = (pair for _ in itertools.count() for pair in loader)  # what the message says
    assert len(list(train(model, plain_sgd(model), endless, toy_run(2)))) == 2
    x, y = batch()
    kinds = {"Tensor": x, "dict": {"ids": x}, "tuple of 3": (x, y, x), "list of 2": [x, y.tolist()], "NoneType": None}
    for got, pair in kinds.items():
        with pytest.raises(TypeError, match=f"batches must yield pairs of tensors, .*, got a {got}$"):
            next(train(model, plain_sgd(model), iter([pair]), config))
    with pytest.raises(TypeError, match="recipe must be a TrainConfig, got dict"):
        next(train(model, plain_sgd(model), iter(pairs), config.to_dict()))


# --- quiet -----------------------------------------------------------------------------------------------------------


QUIET = [("gpt", "fp32", 1.0), ("modern", "bf16", 1.0), ("tiny_transformer", "fp32", None)]


@pytest.mark.parametrize(("name", "precision", "clip_norm"), QUIET)
def test_training_reads_no_value_writes_no_file_and_prints_nothing(
    name: str, precision: str, clip_norm: float | None, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # switches off what only a CPU checks
    monkeypatch.chdir(tmp_path)
    model, config = new_model(name), toy_run(4, micro_steps=2, precision=precision, clip_norm=clip_norm)
    optimizer, batches = build_optimizer(model, config), RandomWindows(toy_ids(1, 500)[0], 4, 8)
    opened: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", lambda *args, **kwargs: opened.append(args))
        with DeviceReads() as device:
            assert len(list(train(model, optimizer, batches, config))) == 4
    assert device.counts == {}
    assert opened == list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


# --- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["modern", "cs336", "gpt"])
def test_one_batch_is_learned_by_heart(name: str, precision: str) -> None:
    silent = {"embedding_dropout": 0.0, "attention_dropout": 0.0, "residual_dropout": 0.0}
    model, config = new_model(name, **silent), toy_run(80, precision=precision, weight_decay=0.0)
    steps = run(model, config, itertools.repeat(batch(2)))
    assert steps[0].loss > 2
    assert steps[-1].loss < 0.1
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert steps[0].loss.dtype == torch.float32


INSTRUCTIONS = [
    ("cpu", {}, True, torch.float32), ("cpu", {"avx512_bf16": False, "amx_bf16": False}, True, torch.float32),
    ("cpu", {"avx512_bf16": True}, False, torch.bfloat16), ("cpu", {"amx_bf16": True}, False, torch.bfloat16),
    ("cuda", {"avx512_bf16": True}, False, None), ("cuda", {}, True, torch.bfloat16),
    ("mps", {"avx512_bf16": True}, True, None),
]  # fmt: skip


@pytest.mark.parametrize(("device", "capabilities", "gpu", "dtype"), INSTRUCTIONS)
def test_auto_takes_bf16_where_there_are_instructions(
    device: str, capabilities: dict[str, bool], gpu: bool, dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TINYLM_BF16", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: not including_emulation)
    monkeypatch.setattr(torch, "autocast", lambda device_type, dtype: (device_type, dtype))
    chosen = PRECISIONS["auto"](device)
    assert chosen == (device, dtype) if dtype == torch.bfloat16 else isinstance(chosen, nullcontext)


def test_a_machine_can_act_as_one_with_or_without_bf16_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("on", "off"):
        monkeypatch.setenv("TINYLM_BF16", answer)
        assert multiplies_bf16("cpu") == multiplies_bf16("cuda") == (answer == "on")
    monkeypatch.setenv("TINYLM_BF16", "yes")
    with pytest.raises(ValueError, match="TINYLM_BF16 'yes' is unknown; choose one of on, off"):
        multiplies_bf16("cpu")


@pytest.mark.parametrize("instructions", ["on", "off"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "auto"])
def test_every_product_of_an_update_has_the_precision_of_the_recipe(
    precision: str, instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All matrix products, forwards, backwards and in the optimizer."""
    seen: set[torch.dtype] = set()

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm"):
                seen.update(a.dtype for a in args if isinstance(a, Tensor))
            return func(*args, **(kwargs or {}))

    monkeypatch.setenv("TINYLM_BF16", instructions)
    with Products():
        run(new_model(), toy_run(2, precision=precision, optimizer="muon"))
    in_bf16 = precision == "bf16" or (precision == "auto" and instructions == "on")
    assert seen == {torch.bfloat16 if in_bf16 else torch.float32}


def test_tf32_is_allowed_where_it_was_agreed_to_and_nowhere_else() -> None:
    before = torch.get_float32_matmul_precision()
    with tf32_products(agreed=False):
        assert torch.get_float32_matmul_precision() == before
    with pytest.raises(KeyError), tf32_products(agreed=True):
        assert torch.get_float32_matmul_precision() == "high"
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
    seen = []
    model = new_model()
    model.register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    run(model, toy_run(2, precision="tf32"))
    assert seen == [before] * 2, "a processor has no TF32"


# --- the same again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "B", "T"), [("fp32", 16, 64), ("bf16", 8, 16)])
def test_two_trainings_on_two_threads_give_the_same_bytes(precision: str, B: int, T: int) -> None:
    before, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    runs = []
    try:
        for _ in range(2):
            torch.manual_seed(3)
            model = TransformerLM(toy_config("gpt", d_model=64, n_heads=4, d_ff=128, vocab_size=300, max_seq_len=64))
            config = toy_run(4, precision=precision, seed=3)
            batches = RandomWindows(toy_ids(1, 5000, vocab_size=300)[0], B, T, config.seed)
            steps = run(model, config, batches)
            runs.append([*(s.loss for s in steps), *(s.grad_norm for s in steps), *model.state_dict().values()])
    finally:
        torch.set_num_threads(before)
        torch.set_rng_state(state)
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


# --- devices ---------------------------------------------------------------------------------------------------------


DEVICES = [  # the accelerator that is there, the name given, and the device chosen, if any
    (None, "auto", "cpu"), ("cuda", "auto", "cuda"), ("mps", "auto", "mps"), ("xpu", "auto", "xpu"),
    ("cuda", "cpu", "cpu"), ("cuda", "cuda:1", "cuda:1"), ("mps", "cuda", ""),
    *((None, name, "") for name in ("cuda", "mps", "quantum", "", "autox", "cpu:x")),
]  # fmt: skip


@pytest.mark.parametrize(("there", "name", "expected"), DEVICES)
def test_auto_takes_the_fastest_device_and_what_is_not_here_is_refused(
    there: str | None, name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = torch.device(there) if there else None
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: found)
    listed = f"{there}, cpu" if there else "cpu"
    refused = pytest.raises(ValueError, match=f"device '{name}' is not here; choose auto or one of {listed}")
    with nullcontext() if expected else refused:
        assert choose_device(name) == torch.device(expected)


def test_a_model_in_which_nothing_is_trained_is_named() -> None:
    model, recipe = TransformerLM(toy_config()), TrainConfig(total_steps=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.requires_grad_(False)
    with pytest.raises(ValueError, match=r"all parameters are frozen; set requires_grad_\(True\)"):
        build_optimizer(model, recipe)
    with pytest.raises(ValueError, match=r"all parameters are frozen; set requires_grad_\(True\)"):
        next(train(model, optimizer, iter([]), recipe))
