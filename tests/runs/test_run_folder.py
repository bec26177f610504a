"""The folder of a run: an earlier run is set aside whole, the last two checkpoints and the best one are kept."""

import math
import os
import shutil
from pathlib import Path

import pytest
from support.models import tiny
from support.toys import raising_from

from tinylm_lib import TransformerLM
from tinylm_lib.runs import run_folder
from tinylm_lib.training.checkpoint import MANIFEST, save


def folders(out: Path) -> list[int]:
    return sorted(int(p.name[5:]) for p in out.iterdir() if p.is_dir())


def checkpoints(out: Path, whole: list[int], torn: list[int] = ()) -> None:
    """A folder of checkpoints, some of which have lost their manifest."""
    for n in [*whole, *torn]:
        folder = out / f"step_{n:06d}"
        folder.mkdir(parents=True)
        (folder / "model-x").write_bytes(b"x")
        if n in whole:
            (folder / MANIFEST).write_bytes(b"{}")


SPARED = [  # the newest, checkpoints that are whole, those without their manifest, and what is left
    (5, [5], [], [5]), (15, [5, 10, 15], [], [10, 15]), (4, [1, 2, 3, 4], [], [3, 4]),
    (1_000_001, [999_999, 1_000_000, 1_000_001], [], [1_000_000, 1_000_001]), (12, [5, 12], [10], [5, 12]),
    (15, [5, 10, 15], [1, 7, 12], [10, 15]), (10, [5, 10], [15], [5, 10, 15]),
    (18, [15, 18, 20, 25], [], [15, 18, 20, 25]),  # two later ones are damaged and passed over
]  # fmt: skip


@pytest.mark.parametrize(("newest", "whole", "torn", "left"), SPARED)
def test_the_last_two_are_spared(
    newest: int, whole: list[int], torn: list[int], left: list[int], tmp_path: Path
) -> None:
    checkpoints(tmp_path, whole, torn)
    run_folder.forget(tmp_path / f"step_{newest:06d}")
    assert folders(tmp_path) == left


def test_folders_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    others = ["step_by_step", "step_1", "step_000001_best", "steps", "xstep_000001"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("x", encoding="utf-8")
    checkpoints(tmp_path, [5, 10, 15])
    run_folder.forget(tmp_path / "step_000015")
    assert {p.name for p in tmp_path.iterdir()} == {*others, "step_000010", "step_000015"}
    assert all((tmp_path / name / "notes.txt").exists() for name in others)


def test_a_checkpoint_that_is_half_deleted_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints(tmp_path, [5, 10, 15])
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", raising_from(KeyboardInterrupt(), 0, None))
        with pytest.raises(KeyboardInterrupt):
            run_folder.forget(tmp_path / "step_000015")
    assert not (tmp_path / "step_000005" / MANIFEST).exists()
    run_folder.forget(tmp_path / "step_000015")
    assert folders(tmp_path) == [10, 15]


def test_what_is_no_run_is_not_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    run_folder.set_aside(tmp_path)
    run_folder.set_aside(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_run_is_set_aside_whole_and_never_twice_to_the_same_name(tmp_path: Path) -> None:
    for n in range(3):
        checkpoints(tmp_path / "run", [5])
        (tmp_path / "run" / "notes.txt").write_text(str(n), encoding="utf-8")
        run_folder.set_aside(tmp_path / "run")
    assert sorted(os.listdir(tmp_path)) == ["run.1", "run.2", "run.3"]
    assert [(tmp_path / f"run.{n + 1}" / "notes.txt").read_text(encoding="utf-8") for n in range(3)] == ["0", "1", "2"]


@pytest.mark.parametrize("out", [".", "..", "../work", "sub/.."])
def test_the_folder_that_we_work_in_is_not_renamed(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    run_folder.set_aside(Path(out))
    checkpoints(Path(out), [5, 10])
    with pytest.raises(ValueError, match=r"holds a run, .* choose another one for --out"):
        run_folder.set_aside(Path(out))
    assert len(list(Path(out).glob("step_*"))) == 2


def evaluated(out: Path, losses: dict[int, float | None]) -> None:
    """Real checkpoints with a validation loss each, or without one."""
    model = TransformerLM(tiny("gpt", n_layers=1))
    for n, loss in losses.items():
        save(out / f"step_{n:06d}", model, step=n, extra={} if loss is None else {"validation_loss": loss})


BEST = [  # the validation losses of checkpoints, the newest of them, the best, and those that are left
    ({5: 3.0, 10: 2.0, 15: 1.0}, 15, 15, [10, 15]), ({5: 1.0, 10: 2.0, 15: 3.0}, 15, 5, [5, 10, 15]),
    ({5: 1.0, 10: 0.5, 15: 3.0, 20: 4.0}, 20, 10, [10, 15, 20]),
    ({5: 1.0, 10: 1.0, 15: 2.0, 20: 2.0}, 20, 5, [5, 15, 20]),
    ({5: 1.0, 7: None, 10: 2.0, 12: None}, 12, 5, [5, 10, 12]), ({5: None, 10: None, 15: None}, 15, None, [10, 15]),
    ({5: 2.0, 10: 3.0, 15: 4.0, 20: 1.0}, 15, 5, [5, 10, 15, 20]),  # a later one was damaged and passed over
]  # fmt: skip


@pytest.mark.parametrize(("losses", "newest", "best", "left"), BEST)
def test_the_best_checkpoint_is_spared_too(
    losses: dict[int, float | None], newest: int, best: int | None, left: list[int], tmp_path: Path
) -> None:
    evaluated(tmp_path, losses)
    last = tmp_path / f"step_{newest:06d}"
    for _ in range(2):
        assert run_folder.best_checkpoint(last) == (None if best is None else tmp_path / f"step_{best:06d}")
        run_folder.forget(last)
        assert folders(tmp_path) == left


def test_a_damaged_checkpoint_is_not_the_best(tmp_path: Path) -> None:
    evaluated(tmp_path, {5: 1.0, 10: 2.0, 15: 3.0})
    (tmp_path / "step_000005" / MANIFEST).write_bytes(b"{")
    assert run_folder.checkpoint_loss(tmp_path / "step_000005") == math.inf
    assert run_folder.best_checkpoint(tmp_path / "step_000015") == tmp_path / "step_000010"
