"""Whatever is written on the command line: exit code 0 or 2, one line that says why, no other file touched."""

import argparse
import random
import shutil
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tinylm_lib import storyworld
from tinylm_lib.__main__ import failure, main, parser
from tinylm_lib.config import ModelConfig, TrainConfig
from tinylm_lib.data import corpora
from tinylm_lib.runs import machine
from tinylm_lib.runs.machine import check_memory

pytestmark = pytest.mark.usefixtures("one_thread")

BASE = (
    "train --corpus text.txt --prompt the --total-steps 2 --d-model 16 --n-layers 1 --n-heads 2 --seq-len 8 "
    "--batch-size 2 --sample-tokens 3 --eval-every 1 --out out"
)
NUMBERS = (-1, 0, 1, 2, 3, 7, 8, 64, 10**12, 2**63 - 1, 2**63, 10**30, -(10**30), "9" * 5000)
INTS = [*map(str, NUMBERS), "1e3", "0x10", "1_0", "nan", "１", "½", "-0", "", " "]
FLOATS = [*INTS, "inf", "-inf", "0.5", "0.1", "1.5", "1e-300", "5e-324", "1e38", "1e300", "1e999", "-1e-9", "1,5"]
TEXTS = ["", " ", "\n", "the", "the cat", "🙂", "\0", "a\0b", "\ud800", "x" * 5000]
TEXTS += ["--", "-", "..", "%s", "{}", "\x1b[31m"]
PATHS = [*TEXTS, "text.txt", "folder", "folder/..", "binary", "latin", "nowhere/x", "text.txt/x", "RUN", "pydoc", "cut"]
# Folders for a run: all are below `out`, or cannot be made.
OUTS = [
    "out", "out/deep/er", "out/ü 🙂", f"out/{'x' * 300}", "text.txt", "text.txt/x", "", "\0",
    "out/\ud800", "out/\udcff",
]  # fmt: skip
# A number that makes a command take long is no mistake: these stay small.
LONG = {"total_steps", "micro_steps", "sample_tokens", "max_new_tokens", "eval_every"}
# Other sizes are refused for want of memory, by the machine of this test: it has 1 GiB.
MEMORY = 2**30


def values(action: argparse.Action) -> list[str]:
    """What a flag is tried with."""
    if action.choices:
        return [*action.choices, *action.choices, "", "nonsense"]
    kind = getattr(action.type, "__name__", "")
    if kind in ("int", "int or none"):
        return [v for v in [*INTS, "none"] if action.dest not in LONG or len(v) < 3]
    if kind in ("float", "float or none"):
        return [*FLOATS, "none"]
    return PATHS if action.dest in ("corpus", "source", "tokens") else TEXTS


def command_line(rng: random.Random) -> list[str]:
    """A random command: mostly one that works, with a few flags set to anything."""
    commands = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    name = rng.choice(["train", "train", "train", "train", "sample", "eval"])
    actions = [a for a in commands[name]._actions if a.dest not in ("help", "compile")]  # compiling takes long
    lines = {"train": BASE, "sample": "sample --checkpoint RUN --max-new-tokens 3 --seed 1", "eval": "eval RUN"}
    line = lines[name].split()
    for action in rng.choices(actions, k=rng.choice([0, 1, 1, 1, 2, 3])):
        if not action.option_strings:
            line[1] = rng.choice(values(action))
        elif action.nargs == 0:
            line.append(rng.choice(action.option_strings))
        else:
            chosen, flag = (
                rng.choice(OUTS if action.dest == "out" else values(action)),
                action.option_strings[0],
            )
            line += [f"{flag}={chosen}"] if rng.random() < 0.9 else [flag, chosen]
    if rng.random() < 0.03:
        line.insert(rng.randrange(len(line) + 1), rng.choice(TEXTS))
    return line


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A working folder with texts, binaries and a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "main_memory", lambda: MEMORY)
    monkeypatch.setitem(corpora.CORPORA, "storyworld", lambda: storyworld.corpus(300, seed=0))
    monkeypatch.delitem(corpora.CORPORA, "shakespeare")
    Path("text.txt").write_text("the cat sat on the mat . " * 60, encoding="utf-8")
    Path("folder").mkdir()
    Path("binary").write_bytes(bytes(range(256)))
    Path("latin").write_bytes("café ".encode("latin-1") * 100)
    assert main([*BASE.split()[:-1], "RUN"]) == 0
    shutil.copytree("RUN", "cut")
    next(Path("cut/step_000002").glob("model-*")).write_bytes(b"short")
    capsys.readouterr()
    return tmp_path


def others(place: Path) -> dict[Path, bytes]:
    """Every file that is not one of the runs written to `out`."""
    files = (p for p in place.rglob("*") if p.is_file() and not p.relative_to(place).parts[0].startswith("out"))
    return {p: p.read_bytes() for p in files}


def attempt(line: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[Any, list[str]]:
    """Run a command. Returns its exit code, or what it raised, and the lines on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = main(line)
        except SystemExit as stop:  # argparse
            code = stop.code
        except BaseException as e:
            code = e
    return code, capsys.readouterr().err.split("\n")[:-1]


SLOW = [pytest.param(600, seed, marks=pytest.mark.slow) for seed in (1, 2)]


@pytest.mark.parametrize(("n", "seed"), [(150, 0), *SLOW])
def test_random_command_lines_end_well(n: int, seed: int, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, counts, before, failures = random.Random(seed), Counter(), others(place), []
    for _ in range(n):
        line = command_line(rng)
        code, said = attempt(line, capsys)
        good = code == 0 if not said or "step/s" in said[-1] else code in (0, 2)
        if code == 2:
            end = said[-1]
            usage = end.startswith("python -m tinylm_lib") and ": error: " in end
            last = [s for s in said if s.startswith("tinylm: ") and len(s) > 20]
            good = usage or (last == said[-1:] and not any("Traceback" in s for s in said))
        counts[code if isinstance(code, int) else "raised", code == 2 and usage] += 1
        if not good or others(place) != before:
            failures.append((line, code, said))
        for out in place.glob("out*"):
            shutil.rmtree(out) if out.is_dir() else out.unlink()
    assert not failures, "\n".join(map(repr, failures[:20]))
    assert min(counts[0, False], counts[2, False], counts[2, True]) > 15, counts


@pytest.mark.parametrize(("line", "says"), [
    (["eval", "a\nb\u2028c\ud800"], r"tinylm: 'a\nb\u2028c\ud800' is not a model; train one"),
    (["sample", "--prompt=--"], "error: -- cannot be the value of a flag"),
    (["sample", "\n"], r"error: unrecognized arguments: \n"),
    (["train", "--out="], "tinylm: out is empty; name a folder"),
    (["train", "--out", "run\udcff"], r"tinylm: out must be text that UTF-8 can hold, got 'run\udcff'"),
    (["sample", "--checkpoint", "RUN", "--seed", str(2**63)], "tinylm: seed must fit into 64 bits"),
], ids=str)  # fmt: skip
def test_odd_words_are_shown_in_one_line(line, says, place, capsys) -> None:
    code, said = attempt(line, capsys)
    assert code == 2 and says in said[-1]
    assert not Path("work").exists()


SIZES = dict.fromkeys(("d-ff", "vocab-size", "n-layers", "batch-size", "seq-len", "max-seq-len"), "takes at least")
SIZES = {f"--{name} 1000000000000": said for name, said in SIZES.items()} | {
    "--d-model 1000000000": "takes at least 144,0",
    "--d-model 1000000007 --n-heads 4": "d_model 1000000007 is not divisible by n_heads 4",
    "--n-heads 1000000000 --d-head 2 --n-kv-heads 3": "choose from 1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 40, 50, ...",
    "--max-seq-len 9000000000000000000": "takes at least",
    "--d-model 10000000000000000000000": "takes at least",
    "--seed 10000000000000000000000": "seed must be from 0 to 9223372036854775807",
}


@pytest.mark.parametrize("flags", SIZES)
def test_sizes_that_no_machine_has_are_refused_at_once(flags, place, capsys) -> None:
    assert main([*BASE.split(), *flags.split(), "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tinylm: ") and SIZES[flags] in said and said.count("\n") == 1
    assert not Path("out").exists()


def test_a_run_that_fits_to_the_byte_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer without anything else: 4 bytes for each weight, gradient, moment and logit."""
    config = ModelConfig(vocab_size=10, d_model=4, n_layers=1, n_heads=2, d_ff=8, max_seq_len=7)
    weights = 10 * 4 + 4 * 4 * 4 + 3 * 4 * 8 + 3 * 4
    recipe = TrainConfig(batch_size=3, seq_len=5)
    for device, needed in (("cpu", 4 * (3 * weights + 7 + 15 * 10) + 8 * 15), ("cuda", 4 * (weights + 7) + 8 * 15)):
        monkeypatch.setattr(machine, "main_memory", lambda needed=needed: needed)
        check_memory(config, recipe, torch.device(device))
        monkeypatch.setattr(machine, "main_memory", lambda needed=needed: needed - 1)
        with pytest.raises(ValueError, match=f"takes at least {needed:,} bytes, and the machine has {needed - 1:,}"):
            check_memory(config, recipe, torch.device(device))


def test_a_machine_that_does_not_tell_its_memory_refuses_nothing(monkeypatch) -> None:
    assert 2**28 < machine.main_memory() < 2**50
    monkeypatch.delattr(machine.os, "sysconf", raising=False)
    check_memory(ModelConfig(d_model=10**9), TrainConfig(), torch.device("cpu"))


def test_other_errors_of_torch_are_not_taken_for_a_failure() -> None:
    assert failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) == ""
    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert "another 20.00 GiB" in failure(full)
    with pytest.raises(RuntimeError) as lack:
        torch.empty(2**55)
    assert f"another {2**57} bytes" in failure(lack.value)
    assert failure(MemoryError()).startswith("there is not enough memory; lower")
