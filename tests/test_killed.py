"""Runs that are killed, at random moments and in the middle of a write, end like the one that nobody disturbed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tinylm_lib
from tinylm_lib import checkpoint, log
from tinylm_lib.checkpoint import MANIFEST
from tinylm_lib.run import STEP

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGKILL")

N_STEPS, EVERY = 60, 2
RUN = (
    f"-m tinylm_lib train --corpus text.txt --out run --total-steps {N_STEPS} --eval-every {EVERY} --d-model 32 "
    "--n-layers 2 --n-heads 2 --seq-len 16 --batch-size 4 --sample-tokens 0 --warmup-steps 20 --validation-share 0.02 "
    "--prompt the --residual-dropout 0.1 --embedding-dropout 0.1 --micro-steps 2"
)
SOON = 60.0  # seconds without any news after which a run counts as hung


def folder_with_text(place: Path) -> Path:
    """A new folder with a small text, in which a run works under names that are the same everywhere."""
    place.mkdir()
    generator = random.Random(0)
    words = generator.choices(["the", "cat", "sat", "on", "a", "mat", "while", "two", "dogs", "ran", "."], k=4000)
    (place / "text.txt").write_text(" ".join(words), encoding="utf-8")
    return place


def start(place: Path, *more: str) -> subprocess.Popen:
    """Start the train command in a folder; what it says goes into a file there."""
    root = str(Path(tinylm_lib.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, "PYTHONWARNINGS": "error"}
    with open(place / "said.txt", "a", encoding="utf-8") as said:
        command = [sys.executable, *(RUN.split() if not more else ["-m", "tinylm_lib", "train", "--out", "run", *more])]
        return subprocess.Popen(command, cwd=place, env=environment, stdout=said, stderr=said)


def finish(process: subprocess.Popen, place: Path) -> None:
    assert process.wait(timeout=300) == 0, (place / "said.txt").read_text(encoding="utf-8")


def everything(run: Path) -> dict[str, bytes]:
    """Every file of a run: weights, optimizer, random states, settings and losses."""
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}


def unfinished_writes(run: Path) -> set[str]:
    """What a checkpoint leaves behind that is under way: partial files, and folders that have no manifest yet."""
    partial = {str(p) for p in run.glob("step_*/*.partial")}
    return partial | {str(p) for p in run.glob("step_*") if not (p / MANIFEST).exists()}


def newest(run: Path) -> int:
    """The update of the last checkpoint, 0 where there is none."""
    return max((int(STEP.fullmatch(p.parent.name)[1]) for p in run.glob("step_*/" + MANIFEST)), default=0)


def n_noted(run: Path) -> int:
    return (run / log.NAME).stat().st_size if (run / log.NAME).exists() else 0


def wait_for(what: Callable[[], Any], process: subprocess.Popen) -> None:
    """Look again and again until something is there, or the process has ended."""
    deadline = time.monotonic() + SOON
    while not what() and process.poll() is None:
        assert time.monotonic() < deadline, "the run hangs"
        time.sleep(0.0005)


def kill(process: subprocess.Popen, run: Path, moment: str, generator: random.Random) -> str:
    """Kill a run about a moment, at random, and return where that really was."""
    before = n_noted(run), newest(run), unfinished_writes(run)
    if moment == "start":
        time.sleep(generator.uniform(0.0, 2.5))
    else:
        seen = n_noted(run)
        wait_for(lambda: n_noted(run) not in (0, seen), process)  # its first news; a resumed one cuts the log before
        time.sleep(generator.uniform(0.0, 0.2))
    if moment == "write":
        wait_for(lambda: unfinished_writes(run) - before[2], process)
        time.sleep(generator.uniform(0.0, 0.006))
    process.send_signal(signal.SIGKILL)
    assert process.wait() in (-signal.SIGKILL, 0)
    if unfinished_writes(run) - before[2]:
        return "write"
    return "start" if (n_noted(run), newest(run)) == before[:2] else "training"


def killed_again_and_again(place: Path, moments: list[str], seed: int) -> Counter:
    """A run that is killed about each of the moments and resumed, to its end. Returns where the kills really were."""
    generator, found, run = random.Random(seed), Counter(), place / "run"
    for moment in moments:
        process = start(place, "--resume") if newest(run) else start(place)
        found[kill(process, run, moment, generator)] += 1
        if newest(run):
            assert checkpoint.latest(run).name == f"step_{newest(run):06d}", "the last checkpoint is damaged"
    finish(start(place, "--resume") if newest(run) else start(place), place)
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], dict[str, bytes]]]:
    """A function that waits for the run which nobody disturbs, and returns every file of it."""
    place = folder_with_text(tmp_path_factory.mktemp("whole") / "place")
    process = start(place)

    def files() -> dict[str, bytes]:
        finish(process, place)
        return everything(place / "run")

    yield files
    process.kill()
    process.wait()


def check_the_same(place: Path, expected: dict[str, bytes]) -> None:
    found = everything(place / "run")
    entries = log.read(place / "run" / log.NAME)
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert len(losses) == N_STEPS and len(set(losses)) > N_STEPS // 2
    assert sum("validation_loss" in entry for entry in entries) == N_STEPS // EVERY
    assert found["log.jsonl"] == expected["log.jsonl"], "other losses"
    assert set(found) == set(expected), "other files"
    assert {name for name in found if found[name] != expected[name]} == set()


def test_three_kills_change_no_bit(undisturbed: Callable[[], dict[str, bytes]], tmp_path: Path) -> None:
    place = folder_with_text(tmp_path / "place")
    found = killed_again_and_again(place, ["write", "training", "write"], seed=1)
    print(found)
    assert found["write"], "no kill fell into a checkpoint"
    check_the_same(place, undisturbed())


@pytest.mark.slow
def test_twenty_kills_change_no_bit(undisturbed: Callable[[], dict[str, bytes]], tmp_path: Path) -> None:
    place = folder_with_text(tmp_path / "place")
    moments = ["start"] * 4 + ["training"] * 6 + ["write"] * 10
    random.Random(2).shuffle(moments)
    found = killed_again_and_again(place, moments, seed=2)
    print(found)
    assert found["start"] and found["training"] and found["write"] >= 5, found
    check_the_same(place, undisturbed())
