"""Runs that are killed, at every step of a checkpoint's write and of the log's, end like an undisturbed one.

A kill that must fall into a write is placed there: the run kills itself at the n-th thing that it does to its folder.
"""

import os
import random
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from support import dying

from tinylm_lib.runs import log
from tinylm_lib.runs.run import STEP
from tinylm_lib.training import checkpoint
from tinylm_lib.training.checkpoint import MANIFEST

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Windows has neither SIGKILL nor limits of file sizes")

N_STEPS, EVERY = 72, 2
TRAIN = (
    f"train --corpus text.txt --out run --total-steps {N_STEPS} --eval-every {EVERY} --d-model 32 --n-layers 2 "
    "--n-heads 2 --seq-len 16 --batch-size 4 --sample-tokens 0 --warmup-steps 20 --validation-share 0.02 --prompt the "
    "--residual-dropout 0.1 --embedding-dropout 0.1 --micro-steps 2"
).split()
RESUME = ["train", "--out", "run", "--resume"]
N_EVENTS = 20  # what a process does to its folder while it writes a checkpoint, deletes an old one, and writes its log
HALF_FILES = {"weights": (0, 5000), "manifest": (f"{MANIFEST}.partial", 3000)}  # the event before, and bytes
SOON = 60.0  # seconds without any news after which a run counts as hung


def folder_with_text(place: Path) -> Path:
    """A new folder with a small text, in which a run works under names that are the same everywhere."""
    place.mkdir()
    generator = random.Random(0)
    words = generator.choices(["the", "cat", "sat", "on", "a", "mat", "while", "two", "dogs", "ran", "."], k=4000)
    (place / "text.txt").write_text(" ".join(words), encoding="utf-8")
    return place


def newest(run: Path) -> int:
    """The update of the last checkpoint, 0 where there is none."""
    return max((int(STEP.fullmatch(p.parent.name)[1]) for p in run.glob("step_*/" + MANIFEST)), default=0)


def check_the_same(place: Path, expected: dict[str, bytes]) -> None:
    found = dying.everything(place / "run")
    entries = log.read_log(place / "run" / log.LOG_NAME)
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    assert len(losses) == N_STEPS and len(set(losses)) > N_STEPS // 2
    assert sum("validation_loss" in entry for entry in entries) == N_STEPS // EVERY
    assert found["log.jsonl"] == expected["log.jsonl"], "other losses"
    assert set(found) == set(expected), "other files"
    assert {name for name in found if found[name] != expected[name]} == set()


# --- in the middle of a write ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_in() -> Callable[..., int]:
    """A function that runs `dying.train` and returns how it ended: forked from a process that has imported all.

    So a start takes no time, and no thread of this process is there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        context = get_context("forkserver")
        context.set_forkserver_preload(["tinylm_lib.__main__", "torch._dynamo"])

        def run_in(place: Path, at: int | str | None = None, n_bytes: int | None = None) -> int:
            arguments = RESUME if newest(place / "run") else TRAIN
            process = context.Process(target=dying.train, args=(place, arguments, at, n_bytes))
            process.start()
            process.join(SOON)
            assert process.exitcode is not None, "the run hangs"
            return process.exitcode

        yield run_in


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, run_in: Callable[..., int]) -> dict[str, bytes]:
    """Every file of the run that nobody disturbs."""
    place = folder_with_text(tmp_path_factory.mktemp("whole") / "place")
    assert run_in(place) == 0, (place / "said.txt").read_text(encoding="utf-8")
    return dying.everything(place / "run")


def unfinished(run: Path) -> bool:
    """Whether a checkpoint is half written or half deleted."""
    folders = [*run.glob("step_*")]
    return any(run.glob("step_*/*.partial")) or any(not (p / MANIFEST).exists() for p in folders) or len(folders) > 2


def test_a_kill_at_each_step_of_a_write_changes_no_bit(
    undisturbed: dict[str, bytes], run_in: Callable[..., int], tmp_path: Path
) -> None:
    """Each process writes one checkpoint, and is killed in the next one."""
    place = folder_with_text(tmp_path / "place")
    run, in_a_write = place / "run", 0
    for n in range(N_EVENTS):
        before = newest(run)
        assert run_in(place, n) == -signal.SIGKILL, (place / "said.txt").read_text(encoding="utf-8")
        assert before + EVERY <= newest(run) <= before + 2 * EVERY
        in_a_write += unfinished(run)
        assert checkpoint.latest(run).name == f"step_{newest(run):06d}", "the last checkpoint is damaged"
    assert in_a_write >= N_EVENTS - 6, "the events are not those of a write"  # at first nothing is made, at last all is
    assert run_in(place) == 0
    check_the_same(place, undisturbed)


def test_a_kill_in_the_middle_of_a_file_changes_no_bit(
    undisturbed: dict[str, bytes], run_in: Callable[..., int], tmp_path: Path
) -> None:
    place = folder_with_text(tmp_path / "place")
    run = place / "run"
    for at, n_bytes in HALF_FILES.values():
        assert run_in(place, at, n_bytes) == -signal.SIGXFSZ
        names = {p.name for p in (run / f"step_{newest(run) + EVERY:06d}").iterdir()}
        assert len(names) == (1 if at == 0 else 3) and MANIFEST not in names
        assert len(list(checkpoint.latest(run).iterdir())) == 3, "the half file of the kill before is left"
    assert run_in(place) == 0
    check_the_same(place, undisturbed)
