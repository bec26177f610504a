"""The log of a run: what is noted comes back exactly, damaged lines are left out, cutting loses nothing else."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
from support.toys import raising_from

from tinylm_lib.runs.log import append_log, cut_log, read_log


def noted(path: Path, n_updates: int = 9) -> bytes:
    """A log of some updates, with a validation after every third."""
    for n in range(1, n_updates + 1):
        append_log(path, [{"update": n, "loss": 1 / n}])
        if n % 3 == 0:
            append_log(path, [{"update": n, "validation_loss": 2 / n}])
    return path.read_bytes()


def test_what_is_noted_comes_back_to_the_bit(tmp_path: Path) -> None:
    values = [*torch.randn(100, generator=torch.Generator().manual_seed(0)).tolist(), 5e-324, -0.0, 1e308, math.pi]
    path = tmp_path / "new" / "log.jsonl"
    append_log(path, [{"update": n, "loss": value} for n, value in enumerate(values, start=1)])
    append_log(path, [])
    assert read_log(tmp_path / "nowhere") == []
    assert [entry["loss"].hex() for entry in read_log(path)] == [value.hex() for value in values]
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(values)


@pytest.mark.parametrize("update", range(10))
def test_cutting_forgets_what_came_later_and_nothing_else(update: int, tmp_path: Path) -> None:
    whole = noted(tmp_path / "whole", update) if update else b""
    noted(tmp_path / "longer")
    for _ in range(2):
        cut_log(tmp_path / "longer", update)
        assert (tmp_path / "longer").read_bytes() == whole


def test_a_log_torn_anywhere_continues_as_if_it_was_never_written_further(tmp_path: Path) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    whole = noted(path)
    six = len(noted(other, 6))
    for end in range(six, len(whole) + 1):
        for tail in (b"", b"\0" * 9):
            path.write_bytes(whole[:end] + tail)
            cut_log(path, 6)
            assert path.read_bytes() == whole[:six]


def test_a_line_without_its_end_is_left_out_although_it_can_be_read(tmp_path: Path) -> None:
    whole = noted(tmp_path / "log", 5)
    (tmp_path / "log").write_bytes(whole[:-1])
    assert [entry["update"] for entry in read_log(tmp_path / "log")] == [1, 2, 3, 3, 4]


DAMAGED = [b"\xff\xfe\n", b"{}\n", b"5\n", b'{"update": 1.5}\n', b"[" * 100_000 + b"\n", b"\0\n"]


@pytest.mark.parametrize("damage", DAMAGED, ids=lambda damage: str(damage[:9]))
def test_a_damaged_line_is_left_out_and_said(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = noted(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], damage, *lines[5:]]))
    assert [json.loads(line) for line in lines[:4] + lines[5:]] == read_log(path)
    with pytest.warns(UserWarning, match="log does not hold every update from 1 to 6"):
        cut_log(path, 6)
    assert path.read_bytes() == b"".join(lines[:4] + lines[5:8])


def test_a_cut_that_is_interrupted_leaves_the_log_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = noted(tmp_path / "log")
    left = tmp_path / ".01234567.log.partial"
    left.write_bytes(b"what a cut that was killed leaves")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", raising_from(KeyboardInterrupt(), 0, os.replace))
        with pytest.raises(KeyboardInterrupt):
            cut_log(tmp_path / "log", 3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"log": whole}


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with pytest.raises(OSError, match=r"cannot write the log .*log: .*choose another folder"):
        append_log(tmp_path / "log", [{"update": 1}])
