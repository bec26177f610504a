"""A run that continues on another machine says so, and on the same one it is silent."""

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tinylm_lib.__main__ import main
from tinylm_lib.runs import machine as module
from tinylm_lib.runs.machine import machine, peak_memory, product_rate, warn_of_changes
from tinylm_lib.training.checkpoint import latest, load
from tinylm_lib.training.loop import PRECISIONS

CPU = torch.device("cpu")


def test_a_machine_is_described_in_plain_values() -> None:
    found = machine(CPU, "fp32")
    assert all(type(value) in (str, int) for value in found.values()), "JSON gives back something else"
    assert found == {
        "processor": platform.machine(), "instructions": torch.backends.cpu.get_cpu_capability(), "device": "cpu",
        "threads": torch.get_num_threads(), "precision": "fp32", "torch": torch.__version__, "processes": 1,
    }  # fmt: skip


@pytest.mark.parametrize("has", [True, False])
def test_the_precision_is_the_one_that_auto_chose(has: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINYLM_BF16", raising=False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has})
    expected = {"fp32": "fp32", "tf32": "fp32", "bf16": "bf16", "auto": "bf16" if has else "fp32"}
    assert {name: machine(CPU, name)["precision"] for name in PRECISIONS} == expected


def test_a_gpu_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU number {device.index}")
    assert machine(torch.device("cuda", 1), "fp32")["device"] == "GPU number 1"
    assert machine(torch.device("mps"), "fp32")["device"] == "mps"
    assert [machine(torch.device("cuda", 1), name)["precision"] for name in ("fp32", "tf32")] == ["fp32", "tf32"]


WAS = {"processor": "pdp11", "instructions": "none", "device": "X", "threads": 99, "precision": "bf16", "torch": "1"}


@pytest.mark.parametrize("names", [*((name,) for name in WAS), ("threads", "precision")], ids=str)
def test_differences_are_named_in_one_line_with_what_was_and_what_is(names: tuple[str, ...]) -> None:
    now = machine(CPU, "fp32")
    with pytest.warns(UserWarning, match="will not be bit-identical") as seen:
        warn_of_changes({**now, **{name: WAS[name] for name in names}}, now)
    (said,) = (str(warning.message) for warning in seen)
    assert said.endswith(": " + "; ".join(f"{name} was {WAS[name]}, is {now[name]}" for name in names))
    assert "\n" not in said
    with pytest.warns(UserWarning, match="processor was not noted, is .*; torch was not noted, is "):
        warn_of_changes({}, now)


@pytest.mark.parametrize("instructions", ["on", "off"])
def test_train_notes_the_machine_and_resume_compares_it(
    instructions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, one_thread: None
) -> None:
    monkeypatch.setenv("TINYLM_BF16", instructions)
    (tmp_path / "text.txt").write_text("the cat sat on the mat . " * 40, encoding="utf-8")
    small = "--d-model 16 --n-layers 1 --n-heads 2 --seq-len 16 --batch-size 4 --sample-tokens 0 --prompt the"
    files = ["--corpus", str(tmp_path / "text.txt"), "--out", str(tmp_path / "run")]
    assert main(["train", *files, *small.split(), "--total-steps", "2", "--device", "cpu"]) == 0
    assert load(latest(tmp_path / "run")).extra["machine"] == machine(CPU, "auto")
    assert f"on cpu, precision auto = {'bf16' if instructions == 'on' else 'fp32'}." in capsys.readouterr().out
    resume = ["train", "--resume", *files[2:]]
    assert main(resume) == 0, "a warning would have been an error"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with pytest.warns(UserWarning, match="threads was 1, is 3$"):
        assert main(resume) == 0


@pytest.mark.parametrize(("seconds", "side"), [(0.5, 1024), (0.01, 1024), (0.009, 2048), (0.0001, 4096)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_rate_is_that_of_the_fastest_of_products_that_take_a_moment_and_draws_no_random_number(
    precision: str, seconds: float, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[torch.dtype, int]] = []

    class Seen(torch.Tensor):
        def __matmul__(self, other: torch.Tensor) -> torch.Tensor:
            seen.append((self.dtype, len(self)))
            return torch.ones(1, 1)

    def repeat(product: Callable[[], Any], number: int, repeat: int) -> list[float]:
        product()
        fastest = seconds * (seen[-1][1] / 1024) ** 3
        return [8 * fastest, fastest, 4 * fastest]

    randn, state = torch.randn, torch.get_rng_state()
    monkeypatch.setattr(torch, "randn", lambda *sizes, generator: randn(*sizes, generator=generator).as_subclass(Seen))
    monkeypatch.setattr(module, "repeat", repeat)
    assert product_rate(CPU, precision) == pytest.approx(2 * 1024**3 / seconds)
    assert torch.equal(torch.get_rng_state(), state)
    used = getattr(torch, {"fp32": "float32", "bf16": "bfloat16"}[machine(CPU, precision)["precision"]])
    assert seen == [(used, n) for n in (1024, 2048, 4096) if n <= side]


def test_a_real_product_takes_time() -> None:
    assert 1e6 < product_rate(CPU, "fp32") < 1e15


def test_peak_memory_is_in_bytes_and_grows_with_a_large_tensor() -> None:
    pytest.importorskip("resource", reason="Windows does not say")
    before = peak_memory(CPU)
    block = torch.ones(before // 4)  # as many bytes as were there at most
    after = peak_memory(CPU)
    assert before + block.nbytes // 4 < after < 20 * block.nbytes


def test_without_a_system_that_says_it_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory(CPU) is None
