"""Many processes train the model that one would train, save what any number can load, and end clearly when one dies."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.models import some_ids, tiny
from support.processes import measured

from tinylm_lib import TransformerLM, next_token_loss
from tinylm_lib.__main__ import main
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.presets import FAMILIES
from tinylm_lib.training.checkpoint import MANIFEST, latest, load
from tinylm_lib.training.distributed import ALONE, Alone, Replicas, join, own_device, own_random_stream
from tinylm_lib.training.tensors import check_files, list_files

TESTS = Path(__file__).parents[1]
SMALL = "--d-model 16 --n-layers 2 --n-heads 2 --seq-len 16 --batch-size 4 --sample-tokens 8 --prompt the"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="torchrun's signals are a matter of POSIX")


class Torchrun:
    """n processes that torchrun starts; nothing of them is left behind."""

    def __init__(self, n: int, log: Path, *arguments: Any):
        self.log = log
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
        path = os.pathsep.join(filter(None, (str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH"))))
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "TMPDIR": str(log.parent)}
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*command, *map(str, arguments)], env={**os.environ, **own}, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")

    def end(self, seconds: int = 240) -> int:
        """Wait for the end. Returns the exit code."""
        try:
            return self.process.wait(seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def wait_for(self, folder: Path, pattern: str) -> None:
        deadline = time.monotonic() + 120
        while not list(folder.glob(pattern)):
            assert time.monotonic() < deadline and self.process.poll() is None, self.said()
            time.sleep(0.05)

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            if f"\0RANK={rank}\0".encode() in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
                return int(child)
        raise AssertionError(f"no rank {rank}: {self.said()}")


def together(n: int, task: str, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """What n processes find in a task of `processes.py`, for each strategy."""
    run = Torchrun(n, folder / "log.txt", TESTS / "support" / "processes.py", folder, task, device)
    assert run.end() == 0, run.said()[-3000:]
    return {strategy: json.loads((folder / f"{strategy}.json").read_text("utf-8")) for strategy in ("ddp", "fsdp")}


# How far sums in another order may lead, for losses and for gradient norms, in units in the last place: 4 updates pass
# on the roundings of about 20 products, one behind the other. In fp32 80 units are 1e-5. In bf16 2 units are 1.6 %, and
# a gradient that passes through a kink (ReLU) may go the other way.
UNITS = {torch.float32: (80, 80), torch.bfloat16: (2, 16)}


def assert_the_same_training(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Losses and gradient norms agree to five digits in fp32; in bf16 losses to two, gradient norms to one."""
    for name, values in expected.items():
        a, b = (torch.tensor(v, dtype=torch.float64) for v in (values, found[name]))
        dtype = torch.bfloat16 if "bf16" in name else torch.float32
        units = (a - b).abs() / a.abs() / torch.finfo(dtype).eps  # (updates, 2), or what an evaluation finds
        for i, part in enumerate(units.T if units.ndim == 2 else [units]):
            assert part.max() <= UNITS[dtype][i], f"{name}: {values} and {found[name]}"
    assert found.keys() == expected.keys()


def same_weights(a: Path, b: Path, atol: float = 0.0) -> None:
    first, second = load(a), load(b)
    torch.testing.assert_close(second.model.state_dict(), first.model.state_dict(), atol=atol, rtol=0)
    states = [found.optimizer_state["state"] for found in (first, second)]
    torch.testing.assert_close(states[1], states[0], atol=atol, rtol=0)
    assert first.batches_state == second.batches_state


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Flags of a small run."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat and the dog sat on the log . " * 40, encoding="utf-8")
    return ["--corpus", str(tmp_path / "text.txt"), *SMALL.split(), "--eval-every", "20"]


# --- the same training -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_processes_train_what_one_would_train(tmp_path: Path) -> None:
    expected = measured(ALONE, tmp_path, "short")
    for found in together(2, "short", tmp_path).values():
        assert_the_same_training(found["curves"], expected)
    for name in FAMILIES:
        for team in ("Replicas", "Shards"):
            same_weights(tmp_path / f"Alone-{name}", tmp_path / f"{team}-{name}", atol=1e-4)
    (folder,) = (tmp_path / "Shards-modern").glob("model-*")
    assert len(list(folder.iterdir())) == 2, "each process wrote its shard"


on_four_cores = pytest.mark.skipif((os.cpu_count() or 1) < 4, reason="four processes need four cores to be quick")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=on_four_cores)])
def test_all_models_recomputed_and_in_bf16(n: int, tmp_path: Path) -> None:
    expected = measured(ALONE, tmp_path, "long")
    for strategy, found in together(n, "long", tmp_path).items():
        assert_the_same_training(found["curves"], expected)
        noise, again = found["resumed"]["noise"]
        assert noise == again, "each process gets its own random state back"
        assert len({str(x) for x in noise}) == n, "the processes draw the same numbers"
        whole, half = found["resumed"]["losses"]
        # Four processes add up gradients in an order that depends on who comes first.
        torch.testing.assert_close(torch.tensor(half), torch.tensor(whole), rtol=0 if n == 2 else 1e-6, atol=0)
        each = 1 if strategy == "ddp" else 2  # buckets, or the block and the rest
        assert found["exchanges"] == 4 * each, "only the last backward pass of an update exchanges gradients"


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpus_train_what_one_would_train(tmp_path: Path) -> None:
    """With NCCL; on a machine with one GPU by one process."""
    expected = measured(Alone("cuda:0"), tmp_path, "short")
    for found in together(min(2, torch.cuda.device_count()), "short", tmp_path, "cuda").values():
        assert_the_same_training(found["curves"], expected)


def test_the_parts_of_the_processes_are_the_batch_of_one() -> None:
    tokens = some_ids(1, 999)[0]
    whole = RandomWindows(tokens, 12, 7, seed=5)
    parts = [RandomWindows(tokens, 12, 7, seed=5, rank=r, n_ranks=4) for r in range(4)]
    for _ in range(3):
        x, y = next(whole)
        for r, part in enumerate(parts):
            mine, targets = next(part)
            assert torch.equal(mine, x[r::4]) and torch.equal(targets, y[r::4])
    with pytest.raises(ValueError, match="batch_size 10 cannot be shared by 4 processes"):
        RandomWindows(tokens, 10, 7, n_ranks=4)


@pytest.mark.parametrize("n_batches", [1, 3, 4, 5, 8])
def test_every_batch_is_evaluated_once_and_all_work_as_often(n_batches: int) -> None:
    batches = [(torch.full((2, 3), i), torch.full((2, 3), i)) for i in range(n_batches)]
    seen, rounds = [], []
    for rank in range(4):
        team = Replicas.__new__(Replicas)
        team.rank, team.size = rank, 4
        mine = list(team.part(batches, -100))
        rounds.append(len(mine))
        seen += [int(y[0, 0]) for _, y in mine if (y != -100).all()]
    assert sorted(seen) == list(range(n_batches))
    assert len(set(rounds)) == 1, "one process would wait for the others for ever"
    assert list(Alone().part(batches, -100)) == batches


# --- recomputed activations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["modern", "gpt", "post-norm, layer"])
def test_recomputed_activations_give_the_same_gradients_and_take_less_memory(name: str) -> None:
    """With dropout, so that the second computation must drop the same."""

    def learn(recompute: bool) -> tuple[torch.Tensor, list[torch.Tensor | None], int]:
        """The loss, the gradients, and how many numbers are kept for them."""
        torch.manual_seed(1)
        model = TransformerLM(tiny(name, residual_dropout=0.2, n_layers=4)).train()
        model.recompute, kept = recompute, []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            loss = next_token_loss(model(some_ids(2, 30)), some_ids(2, 30, seed=4))
        loss.backward()
        return loss.detach(), [p.grad for p in model.parameters()], sum(kept)

    (loss, gradients, kept), (again, others, fewer) = learn(False), learn(True)
    assert torch.equal(loss, again)
    assert all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))
    assert fewer < kept / 3


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_a_strategy_that_does_not_fit_the_start_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    command = ["train", "--out", str(tmp_path / "run"), *options]
    for strategy in ("ddp", "fsdp"):
        assert main([*command, "--strategy", strategy]) == 2
        assert "torchrun --nproc-per-node 2 -m tinylm_lib train, or choose --strategy none" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(command) == 2
    assert "torchrun started 2 processes, and strategy none is for one; give ddp or fsdp" in capsys.readouterr().err
    with pytest.raises(ValueError, match="strategy 'dpp' is unknown"):
        join("dpp", torch.device("cpu"))
    assert not (tmp_path / "run").exists()


def test_devices_that_cannot_be_shared_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert own_device(torch.device("cuda"), 1) == torch.device("cuda:1") == chosen[0]
    assert own_device(torch.device("cpu"), 7) == torch.device("cpu")
    for device, rank in (("cuda", 2), ("cuda:0", 0)):
        with pytest.raises(ValueError, match=rf"this machine has 2, and this is process {rank}"):
            own_device(torch.device(device), rank)
    with pytest.raises(ValueError, match="cannot exchange gradients on mps; choose --device cpu"):
        own_device(torch.device("mps"), 0)


# --- killed and resumed ----------------------------------------------------------------------------------------------


def train_run(out: Path, *options: str, n: int = 2) -> Torchrun:
    """The command line under torchrun."""
    return Torchrun(n, out.with_suffix(".log"), "-m", "tinylm_lib", "train", "--out", out, *options)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds a rank's process in /proc")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_where_one_is_killed_the_others_say_so_and_the_run_continues(
    strategy: str, options: list[str], tmp_path: Path
) -> None:
    options += ["--residual-dropout", "0.1", "--strategy", strategy, "--total-steps", "120"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    uninterrupted = train_run(whole, *options)
    assert uninterrupted.end() == 0, uninterrupted.said()
    killed = train_run(parts, *options)
    killed.wait_for(parts, f"step_000040/{MANIFEST}")
    started = time.monotonic()
    os.kill(killed.pid(1), signal.SIGKILL)
    assert killed.end() != 0
    assert time.monotonic() - started < 60
    assert re.search(r"tinylm: process 0 of 2 lost another one \(.+\); .*train --resume", killed.said()), killed.said()
    assert load(latest(parts)).step < 120, "it was over before it was killed"
    resumed = train_run(parts, "--resume")
    assert resumed.end() == 0, resumed.said()
    same_weights(latest(whole), latest(parts))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_all(kind: signal.Signals, options: list[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = train_run(out, *options, "--strategy", "ddp", "--total-steps", "1000000")
    run.wait_for(out, f"step_000020/{MANIFEST}")
    if kind == signal.SIGINT:
        os.killpg(run.process.pid, kind)  # as a terminal does
    else:
        run.process.send_signal(kind)
    run.end()
    step = int(re.search(r"Stopped after update (\d+), saved in", run.said())[1])
    assert load(latest(out)).step == step


@pytest.mark.slow
def test_a_run_continues_in_another_number_of_processes(options: list[str], tmp_path: Path) -> None:
    """In 4 shards, then alone or in two copies: as one alone from its beginning to its end."""
    whole, out = tmp_path / "alone", tmp_path / "run"
    options += ["--precision", "fp32", "--total-steps", "30", "--eval-every", "10"]
    assert main(["train", *options, "--out", str(whole)]) == 0
    begun = train_run(out, *options, "--strategy", "fsdp", n=4)
    assert begun.end() == 0, begun.said()
    same_weights(latest(whole), latest(out), atol=1e-4)
    shutil.rmtree(out / "step_000030")
    with pytest.warns(UserWarning, match="processes was 4, is 1"):
        assert main(["train", "--resume", "--out", str(out), "--strategy", "none"]) == 0
    same_weights(latest(whole), latest(out), atol=1e-4)
    shutil.rmtree(out / "step_000030")
    back = train_run(out, "--resume", "--strategy", "ddp")
    assert back.end() == 0, back.said()
    same_weights(latest(whole), latest(out), atol=1e-4)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    partial = tmp_path / "model.partial"
    partial.mkdir()
    for i in range(2):
        (partial / f"shard-{i}.safetensors").write_bytes(b"x" * 100)
    entry = list_files(tmp_path, "model")
    check_files(tmp_path, entry)
    shard = tmp_path / entry["name"] / "shard-1.safetensors"
    shard.write_bytes(b"x" * 99 + b"y")
    with pytest.raises(ValueError, match=r"shard-1.safetensors is damaged"):
        check_files(tmp_path, entry)
    shard.unlink()
    with pytest.raises(ValueError, match=r"shard-1.safetensors is missing"):
        check_files(tmp_path, entry)
    for name in ("../shard-0.safetensors", "../../x"):
        outside = {**entry, "files": [{**entry["files"][0], "name": name}]}
        (tmp_path / "shard-0.safetensors").write_bytes(b"x" * 100)
        with pytest.raises(ValueError, match="is missing"):
            check_files(tmp_path, outside)


def test_the_first_process_keeps_its_random_numbers_and_each_other_has_its_own() -> None:
    def first_number(first: bool, rank: int) -> float:
        torch.manual_seed(3)
        own_random_stream(SimpleNamespace(first=first, rank=rank), 7)
        return torch.rand(()).item()

    others = [first_number(False, rank) for rank in (1, 2)]
    torch.manual_seed(3)
    as_drawn = torch.rand(()).item()
    assert first_number(True, 0) == as_drawn and len({as_drawn, *others}) == 3
    assert others == [first_number(False, rank) for rank in (1, 2)]
