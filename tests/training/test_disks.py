"""Full and read-only disks and damaged files: one line that says so, and resuming ends like the undisturbed run."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.dying import everything
from support.traps import full_disk

from tinylm_lib.__main__ import main
from tinylm_lib.runs import log
from tinylm_lib.training.checkpoint import MANIFEST, latest, load

pytest.importorskip("resource", reason="limits on the size of a file are a matter of POSIX")
pytestmark = pytest.mark.usefixtures("one_thread")
is_root = hasattr(os, "geteuid") and os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root mounts a small disk to fill or to lock")

N_STEPS, EVERY = 160, 20
RUN = (
    f"train --corpus text.txt --tokenizer chars --total-steps {N_STEPS} --eval-every {EVERY} --d-model 4 --d-ff 8 "
    "--n-layers 1 --n-heads 2 --seq-len 8 --batch-size 2 --sample-tokens 0 --prompt the --residual-dropout 0.1 "
    "--out run"
).split()
RESUME = ["train", "--resume", "--out", "run"]


def with_text(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.chdir(place)
    Path("text.txt").write_text("the cat sat on the mat . " * 60, encoding="utf-8")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the run, as it ends where nothing happens."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        with_text(tmp_path_factory.mktemp("whole"), patch)
        torch.set_num_threads(1)  # as in the tests: a checkpoint says how many there were
        assert main(RUN) == 0
        torch.set_num_threads(threads)
        return everything(Path("run"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the text of the run."""
    with_text(tmp_path, monkeypatch)
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


def whole_checkpoints(run: Path) -> list[int]:
    """The updates whose checkpoints load; nothing else is in the folders."""
    for manifest in run.glob("step_*/" + MANIFEST):
        load(manifest.parent)
        assert len(list(manifest.parent.iterdir())) == 3, "half-written files are left"
    return sorted(int(p.parent.name[5:]) for p in run.glob("step_*/" + MANIFEST))


# --- a full disk -----------------------------------------------------------------------------------------------------


def test_a_log_that_fills_the_disk_in_the_middle_of_a_run(
    place: Path, undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    """No file may grow beyond a limit that the log reaches first."""
    limit = 12_500
    assert max(len(content) for name, content in undisturbed.items() if name != log.LOG_NAME) < limit
    assert len(undisturbed[log.LOG_NAME]) > 1.1 * limit
    with full_disk(limit):
        said = fails(RUN)
    assert "cannot write the log run/log.jsonl: File too large; free some space or choose another folder" in said
    kept = whole_checkpoints(Path("run"))
    assert len(kept) == 2 and EVERY < kept[-1] < N_STEPS
    assert not Path("run/log.jsonl").read_bytes().endswith(b"\n"), "this log is not torn, so nothing was cut"
    assert main(RESUME) == 0
    assert everything(Path("run")) == undisturbed


@pytest.fixture
def mounted(place: Path) -> Iterator[Callable[[str], None]]:
    """A small disk of its own at `run`; the function mounts it, and mounts it anew with other options."""
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
    """There is room for two checkpoints and a part of the third, which stands beside them for a moment."""
    pages = sum(-(-len(content) // 4096) for name, content in undisturbed.items() if name != log.LOG_NAME) / 2
    mounted(f"size={int(room * pages + 3) * 4096}")  # the log takes one page, and up to two more later
    said = fails(RUN)
    assert re.search(r"No space left on device.*; free some space or choose another folder", said)
    failed = int(re.search(r"cannot write the checkpoint run/step_(\d+): ", said)[1])
    assert 3 * EVERY <= failed < N_STEPS
    assert whole_checkpoints(Path("run")) == [failed - 2 * EVERY, failed - EVERY]
    assert load(latest("run")).step == failed - EVERY
    assert "No space left on device" in fails(RESUME), "a second time"
    mounted("size=10m")
    assert main(RESUME) == 0
    assert everything(Path("run")) == undisturbed


@needs_root
def test_a_read_only_disk(
    mounted: Callable[[str], None], fails: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    mounted("size=10m")
    assert main([*RUN, "--total-steps", "2"]) == 0
    before = everything(Path("run"))
    mounted("ro")
    assert "Read-only file system" in fails([*RUN, "--out", "run/deeper"])
    assert "Read-only file system" in fails([*RUN[:-1], "run/x/y"])
    assert main(["sample", "--checkpoint", "run", "--prompt", "the", "--max-new-tokens", "2"]) == 0
    assert main(["eval", "run"]) == 0
    assert everything(Path("run")) == before
    mounted("rw")
    Path("run", "step_000002", MANIFEST).unlink()
    assert "no sound checkpoint in run" in fails(RESUME)


@needs_root
def test_a_disk_that_became_read_only_before_a_run_goes_on(
    mounted: Callable[[str], None], undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    mounted("size=10m")
    assert main(RUN) == 0
    for path in Path(f"run/step_{N_STEPS:06d}").iterdir():
        path.unlink()
    mounted("ro")
    assert "cannot write the log run/log.jsonl: Read-only file system; free some space or choose" in fails(RESUME)
    mounted("rw")
    assert main(RESUME) == 0
    assert everything(Path("run")) == undisturbed


@pytest.mark.skipif(is_root, reason="permissions do not bind root")
def test_a_folder_without_permission(place: Path, undisturbed: dict[str, bytes], fails: Callable[..., str]) -> None:
    Path("run").mkdir(mode=0o500)
    assert "cannot write the log run/log.jsonl: Permission denied" in fails(RUN)
    Path("run").chmod(0o700)
    assert main(RUN) == 0
    assert everything(Path("run")) == undisturbed


@pytest.mark.parametrize("taken", ["run", "run/step_000020", "run/log.jsonl"])
def test_something_else_in_the_place_of_a_folder_or_file(
    taken: str, place: Path, undisturbed: dict[str, bytes], fails: Callable[..., str]
) -> None:
    path = Path(taken)
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if path.suffix else path.write_text("a file of somebody else", encoding="utf-8")
    if path == Path("run"):
        assert "run" in fails(RUN)
        assert path.read_text(encoding="utf-8") == "a file of somebody else"
    else:
        assert main(RUN) == 0
        assert Path("run.1", *path.parts[1:]).exists(), "it was not set aside"
        assert everything(Path("run")) == undisturbed


# --- damaged files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["model", "training", "checkpoint"])
def test_a_run_goes_on_from_the_last_sound_checkpoint(role: str, undisturbed: dict[str, bytes], place: Path) -> None:
    for name, content in undisturbed.items():
        path = Path("run", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    damaged = next(Path("run").glob(f"step_{N_STEPS:06d}/{role}*"))
    damaged.write_bytes(damaged.read_bytes()[:99])
    with pytest.warns(UserWarning, match=f"passed over a damaged checkpoint: .*{damaged.name} is damaged"):
        assert main(RESUME) == 0
    assert everything(Path("run")) == undisturbed
