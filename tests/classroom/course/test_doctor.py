"""The doctor finds what is missing and names the remedy."""

import pytest

from tinylm_lib.classroom.course.doctor import Finding, checkup, report


def test_the_doctor_names_the_remedy() -> None:
    findings = checkup()
    assert "This machine is ready." in report([f._replace(fix="") for f in findings])
    said = report([*findings, Finding("anywidget", "missing", "run the set-up again")])
    assert "mend  anywidget" in said and "-> run the set-up again" in said and "need a hand" in said


def test_the_doctor_sees_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    missing = [finding for finding in checkup() if finding.found == "missing"]
    packages = ["jupyterlab", "ipywidgets", "anywidget", "matplotlib", "safetensors"]
    assert [finding.what for finding in missing] == packages
    assert all("set-up" in finding.fix for finding in missing)
