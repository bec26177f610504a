"""The doctor says what is wrong with a machine, and how to fix it."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from tinylm_classroom.course import doctor
from tinylm_classroom.course.doctor import LIBRARY, MORE, PACKAGES, Observation, checkup, report
from tinylm_lib import TransformerLM
from tinylm_lib.__main__ import main


def test_the_report_shows_how_to_fix_what_is_broken() -> None:
    found = [one._replace(fix="") for one in checkup()]
    assert report(found).endswith("\nThis machine is ready.") and "fix " not in report(found)
    said = report([*found, Observation("anywidget", "missing", "run the set-up again")])
    assert "\nfix   anywidget        missing\n      -> run the set-up again\n1 of " in said and "need a fix" in said


def test_a_package_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "has_lessons", lambda: True)
    missing = [one for one in checkup() if one.found == "missing"]
    assert tuple(one.what for one in missing) == PACKAGES and len(PACKAGES) == 5
    assert all("set-up" in one.fix for one in missing)


def test_where_the_library_alone_is_installed_nothing_is_said_of_lessons(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(doctor, "has_lessons", lambda: False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("anywidget", "gguf") else name)
    monkeypatch.setattr(doctor, "speed", lambda: Observation("matrix product", "⟨1.00 GFLOP/s⟩", "plug in the charger"))
    with pytest.raises(SystemExit):
        main(["doctor"])
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines()[1:5]] == [*LIBRARY] and "jupyter" not in said
    assert "ok    GGUF             not installed: python -m pip install 'tinylm-lib[gguf]'\n" in said
    assert "ok    tinylm page      not installed: python -m pip install 'tinylm-lib[lab]'\n" in said
    assert said.count("not installed") == 2 < len(MORE) and "lesson" not in said and "make lab" not in said


def test_a_terminal_shows_no_mark_of_a_notebook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(doctor, "checkup", lambda: [Observation("memory", "⟨8.00 GiB⟩"), Observation("disk", "⟨2⟩")])
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out == (
        "ok    memory           8.00 GiB\nok    disk             2\nThis machine is ready.\n"
    )


@pytest.mark.parametrize(
    ("gib", "found", "fix"), [(2, "⟨2.00 GiB⟩", "close"), (8, "⟨8.00 GiB⟩", ""), (math.inf, "un", "")]
)
def test_little_memory_is_said(gib: float, found: str, fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "main_memory", lambda: gib * 2**30)
    assert found in doctor.memory().found and doctor.memory().fix.partition(" ")[0] == fix


def test_the_work_folder_is_named_and_one_that_cannot_be_written_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "WORK", tmp_path / "my work")
    assert doctor.own_folder() == Observation("work folder", str(tmp_path / "my work"))
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    monkeypatch.setattr(doctor, "WORK", tmp_path / "work")
    assert doctor.own_folder() == Observation("work folder", "work, in the course"), (
        "no path of a machine in a notebook"
    )
    (tmp_path / "file").touch()
    monkeypatch.setattr(doctor, "WORK", tmp_path / "file" / "below")
    assert "cannot be written" in doctor.own_folder().fix and "TINYLM_WORK" in doctor.own_folder().fix
    assert "GiB" in doctor.disk().found


def test_a_device_that_computes_something_else_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_a_percent(model: TransformerLM, device: torch.device) -> TransformerLM:
        for p in model.parameters():
            p.data.mul_(1.01)
        return nn.Module.to(model, device)

    assert doctor.device_agrees().fix == ""
    monkeypatch.setattr(TransformerLM, "to", off_by_a_percent)
    assert doctor.device_agrees().fix.startswith("this torch computes wrongly on ")
