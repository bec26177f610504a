"""Runs that are killed, or meet full, read-only and damaged disks, say so in one line and end like an undisturbed one.

A kill that must fall into a write is placed there: the run kills itself at the n-th thing that it does to its folder.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from support import dying
from support.runs import without_times
from support.traps import full_disk

from tinylm_lib.__main__ import main
from tinylm_lib.runs import log
from tinylm_lib.runs.run_folder import best_checkpoint
from tinylm_lib.training.checkpoint import MANIFEST, latest, load

pytest.importorskip("resource", reason="Windows has neither SIGKILL nor limits of file sizes")
pytestmark = pytest.mark.usefixtures("one_thread")
is_root = hasattr(os, "geteuid") and os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root mounts a small disk to fill or to lock")

N_STEPS, EVERY = 160, 4
TRAIN = (
    f"train --corpus text.txt --tokenizer chars --total-steps {N_STEPS} --eval-every {EVERY} --d-model 4 --d-ff 8 "
    "--n-layers 1 --n-heads 2 --seq-len 8 --batch-size 2 --sample-tokens 0 --prompt the --residual-dropout 0.1 "
    "--embedding-dropout 0.1 --micro-steps 2 --out run"
).split()
RESUME = ["train", "--resume", "--out", "run"]
N_EVENTS = 20  # what a process does to its folder while it writes a checkpoint, deletes an old one, and writes its log
SOON = 60.0  # seconds without any news after which a run counts as hung
RUN = Path("run")


def everything() -> dict[str, bytes]:
    """Every file of the run: weights, optimizer, random states, settings and losses."""
    files = {str(p.relative_to(RUN)): p.read_bytes() for p in sorted(RUN.rglob("*")) if p.is_file()}
    return {name: lasting(Path(name).name, content) for name, content in files.items()}


def lasting(name: str, content: bytes) -> bytes:
    """A file without what depends on the clock, and on the folder in which the text is."""
    if name == MANIFEST:
        manifest = json.loads(content)
        manifest["extra"]["run"]["corpus"] = Path(manifest["extra"]["run"]["corpus"]).name
        return json.dumps({**manifest, "sha256": ""}).encode()
    return without_times(content) if name == log.LOG_NAME else content


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the run, as it ends where nothing happens."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("whole"))
        Path("text.txt").write_text("the cat sat on the mat . " * 60, encoding="utf-8")
        torch.set_num_threads(1)  # as in the tests: a checkpoint says how many there were
        assert main(TRAIN) == 0
        torch.set_num_threads(threads)
        losses = [entry["loss"] for entry in log.read_log(RUN / log.LOG_NAME) if "loss" in entry]
        assert len(losses) == N_STEPS and len(set(losses)) > N_STEPS // 2
        return everything()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the text of the run."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the cat sat on the mat . " * 60, encoding="utf-8")
    return tmp_path


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that runs a command which must fail with one line, and returns that line."""

    def run(command: list[str]) -> str:
        capsys.readouterr()
        assert main(command) == 2
        said = capsys.readouterr().err.splitlines()
        assert [line for line in said if "step/s" not in line and line.strip()] == said[-1:]
        assert said[-1].startswith("tinylm: ")
        return said[-1]

    return run


def saved() -> list[int]:
    """The updates of which there are checkpoints."""
    return sorted(int(p.parent.name[5:]) for p in RUN.glob("step_*/" + MANIFEST))


def spared() -> list[int]:
    """The last two checkpoints and the best one, of those that are there."""
    return sorted({*saved()[-2:], int(best_checkpoint(latest(RUN)).name[5:])})


def assert_all_whole() -> None:
    """The last two checkpoints and the best one load, and nothing else is in their folders."""
    for step in saved():
        assert load(RUN / f"step_{step:06d}").step == step
        assert len(list((RUN / f"step_{step:06d}").iterdir())) == 3, "half-written files are left"
    assert saved() == spared() and len(saved()) > 1


# --- killed in the middle of a write ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_in() -> Iterator[Callable[..., int]]:
    """A function that runs `dying.train` and returns how it ended: forked from a process that has imported all.

    So a start takes no time, and no thread of this process is there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        context = get_context("forkserver")
        context.set_forkserver_preload(["tinylm_lib.__main__", "torch._dynamo"])

        def run_in(place: Path, at: int | str | None = None, n_bytes: int | None = None) -> int:
            process = context.Process(target=dying.train, args=(place, RESUME if saved() else TRAIN, at, n_bytes))
            process.start()
            before, said = -1, RUN / log.LOG_NAME
            while process.exitcode is None and (now := said.stat().st_size if said.exists() else 0) > before:
                before = now
                process.join(SOON)
            assert process.exitcode is not None, "the run hangs"
            return process.exitcode

        yield run_in


@pytest.mark.slow
def test_a_kill_at_each_step_of_a_write_changes_no_bit(
    undisturbed: dict[str, bytes], run_in: Callable[..., int], place: Path
) -> None:
    """Each process writes one checkpoint, and is killed in the next one."""
    newest = in_a_write = 0
    for n in range(N_EVENTS):
        before = newest
        assert run_in(place, n) == -signal.SIGKILL, Path("said.txt").read_text(encoding="utf-8")
        newest, folders = saved()[-1], [*RUN.glob("step_*")]
        assert before + EVERY <= newest <= before + 2 * EVERY
        torn = any(RUN.glob("step_*/*.partial")) or any(not (p / MANIFEST).exists() for p in folders)
        in_a_write += torn or len(folders) > len(spared())
        assert latest(RUN).name == f"step_{newest:06d}", "the last checkpoint is damaged"
    assert in_a_write >= N_EVENTS - 6, "the events are not those of a write"  # at first nothing is made, at last all is
    assert run_in(place) == 0
    assert everything() == undisturbed


def test_a_kill_in_the_middle_of_a_file_changes_no_bit(
    undisturbed: dict[str, bytes], run_in: Callable[..., int], place: Path
) -> None:
    for at, n_files in ((0, 1), (MANIFEST, 3)):
        assert run_in(place, at, n_bytes=1000) == -signal.SIGXFSZ
        names = {p.name for p in (RUN / f"step_{saved()[-1] + EVERY:06d}").iterdir()}
        assert len(names) == n_files and MANIFEST not in names
        assert len(list(latest(RUN).iterdir())) == 3, "the half file of the kill before is left"
    assert run_in(place) == 0
    assert everything() == undisturbed


# --- a full disk -----------------------------------------------------------------------------------------------------


def test_a_log_that_fills_the_disk_in_the_middle_of_a_run(
    undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    """No file may grow beyond a limit: ten bytes into the first line that takes the log past 12,000."""
    largest = max(len(content) for name, content in undisturbed.items() if name != log.LOG_NAME)
    assert largest < 12_000 < len(undisturbed[log.LOG_NAME]) / 1.1

    def append_log(path: Path, entries: list[dict]) -> None:
        size = path.stat().st_size if path.exists() else 0
        with full_disk(size + 10) if size > 12_000 else nullcontext():
            log.append_log(path, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinylm_lib.runs.run.append_log", append_log)
        said = fails(TRAIN)
    assert "cannot write the log run/log.jsonl: File too large; free some space or choose another folder" in said
    assert_all_whole()
    assert EVERY < saved()[-1] < N_STEPS
    assert not Path("run/log.jsonl").read_bytes().endswith(b"\n"), "this log is not torn, so nothing was cut"
    assert main(RESUME) == 0
    assert everything() == undisturbed


@pytest.fixture
def mounted(place: Path) -> Iterator[Callable[[str], None]]:
    """A small disk of its own at `run`; the function mounts it, and mounts it again with other options."""
    target = place / "run"
    target.mkdir()

    def mount(options: str) -> None:
        again = ["-o", f"remount,{options}"] if os.path.ismount(target) else ["-t", "tmpfs", "-o", options, "none"]
        done = subprocess.run(["mount", *again, str(target)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine lets nobody mount a disk for a test: {done.stderr.strip()}")

    yield mount
    subprocess.run(["umount", str(target)], capture_output=True, check=False)


@needs_root
@pytest.mark.parametrize("room", [2.2, 2.6])
def test_a_small_disk_that_is_full_in_the_middle_of_a_run(
    room: float, mounted: Callable[[str], None], undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    """There is room for two checkpoints and a part of the third, which is next to them for a moment."""
    pages = sum(-(-len(content) // 4096) for name, content in undisturbed.items() if name != log.LOG_NAME)
    pages /= sum(Path(name).name == MANIFEST for name in undisturbed)  # the best one may be a third
    mounted(f"size={int(room * pages + 3) * 4096}")  # the log takes one page, and up to two more later
    said = fails(TRAIN)
    assert re.search(r"No space left on device.*; free some space or choose another folder", said)
    failed = int(re.search(r"cannot write the checkpoint run/step_(\d+): ", said)[1])
    assert 3 * EVERY <= failed < N_STEPS
    assert_all_whole()
    assert saved() == [failed - 2 * EVERY, failed - EVERY]
    assert "No space left on device" in fails(RESUME), "a second time"
    mounted("size=10m")
    assert main(RESUME) == 0
    assert everything() == undisturbed


@needs_root
def test_a_disk_that_became_read_only(
    mounted: Callable[[str], None], undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    mounted("size=10m")
    assert main(TRAIN) == 0
    for path in (RUN / f"step_{N_STEPS:06d}").iterdir():
        path.unlink()
    before = everything()
    mounted("ro")
    for out in ("run/deeper", "run/x/y"):
        assert "Read-only file system" in fails([*TRAIN, "--out", out])
    assert "cannot write the log run/log.jsonl: Read-only file system; free some space or choose" in fails(RESUME)
    assert main(["sample", "--checkpoint", "run", "--prompt", "the", "--max-new-tokens", "2"]) == 0
    assert main(["eval", "run"]) == 0
    assert everything() == before
    mounted("rw")
    assert main(RESUME) == 0
    assert everything() == undisturbed


@pytest.mark.skipif(is_root, reason="permissions do not bind root")
def test_a_folder_without_permission(undisturbed: dict[str, bytes], fails: Callable[..., str]) -> None:
    RUN.mkdir(mode=0o500)
    assert "cannot write the log run/log.jsonl: Permission denied" in fails(TRAIN)
    RUN.chmod(0o700)
    assert main(TRAIN) == 0
    assert everything() == undisturbed


@pytest.mark.parametrize("taken", ["run", f"run/step_{EVERY:06d}", "run/log.jsonl"])
def test_something_else_in_the_place_of_a_folder_or_file(
    taken: str, undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    path = Path(taken)
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if path.suffix else path.write_text("a file of somebody else", encoding="utf-8")
    if path == RUN:
        assert "run" in fails(TRAIN)
        assert path.read_text(encoding="utf-8") == "a file of somebody else"
    else:
        assert main(TRAIN) == 0
        assert Path("run.1", *path.parts[1:]).exists(), "it was not set aside"
        assert everything() == undisturbed


# --- damaged files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["model", "training", "checkpoint"])
def test_a_run_continues_from_the_last_sound_checkpoint(role: str, undisturbed: dict[str, bytes]) -> None:
    assert main(TRAIN) == 0
    damaged = next(RUN.glob(f"step_{N_STEPS:06d}/{role}*"))
    damaged.write_bytes(damaged.read_bytes()[:99])
    with pytest.warns(UserWarning, match=f"passed over a damaged checkpoint: .*{damaged.name} is damaged"):
        assert main(RESUME) == 0
    assert everything() == undisturbed
