"""Parts in files: what lies in the folder is read with suspicion, and checked once more in a fresh process."""

import os
import sys
from pathlib import Path

import pytest
import torch

from tinylm_classroom.exercises import find_exercise
from tinylm_classroom.workshop import parts
from tinylm_classroom.workshop.extract import Extract

GOOD = "import torch\n\n\ndef softmax(x, dim):\n    return torch.softmax(x, dim)\n"


def sealed(body: str = GOOD, **changes: str) -> str:
    text = parts.sealed(find_exercise("softmax"), Extract("softmax", body, []))
    for old, new in changes.items():
        text = text.replace(getattr(find_exercise("softmax"), old), new)
    return text


@pytest.fixture
def path(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # as it is for a student
    return tmp_path / "softmax.py"


def test_an_untouched_part_is_done_without_a_second_check(path, monkeypatch):
    path.write_text(sealed(), encoding="utf-8")
    assert path.read_text().startswith('"""Your softmax(x, dim) of lesson 03, kept from a notebook."""\n')
    monkeypatch.setattr(parts, "diagnose", lambda *_: pytest.fail("it was checked when it was written"))
    part = parts.read_part("softmax", path)
    assert part[:3] == ("softmax", "done", "") and part.function(torch.zeros(2), 0).tolist() == [0.5, 0.5]
    assert [p.name for p in path.parent.iterdir()] == ["softmax.py"]  # nothing compiled next to it


def test_two_versions_of_one_second_and_size_are_two(path):
    for number in "123":
        path.write_text(f"def softmax(x, dim): return {number}\n", encoding="utf-8")
        assert parts._load("softmax", path)[2](0, 0) == int(number)


WRONG = "def softmax(x, dim):\n    return x\n"
FOUND = {
    "no file": (None, "open", ""),
    "an exercise that has changed, still right": (sealed(digest="0" * 12), "done", ""),
    "an exercise that has changed, not right any more": (sealed(WRONG, digest="0" * 12), "stale", "nothing is divided"),
    "edited, right": (sealed() + "\n# mine\n", "done", ""),
    "edited, wrong": (sealed().replace("torch.softmax(x, dim)", "x"), "broken", "nothing is divided by the sum"),
    "written by hand, right": (GOOD, "done", ""),
    "written by hand, wrong": (WRONG, "broken", "nothing is divided"),
    "no Python": ("def softmax(x, dim:\n", "broken", "It cannot be imported: SyntaxError"),
    "raises": ("raise ValueError('no')\n", "broken", "It cannot be imported: ValueError: no"),
    "leaves": ("import sys\nsys.exit(3)\n", "broken", "It cannot be imported: SystemExit: 3"),
    "needs what is gone": ("import never_installed\n", "broken", "ModuleNotFoundError"),
    "another name": (GOOD.replace("softmax(x", "other(x"), "broken", "has no attribute 'softmax'"),
    "empty": ("", "broken", "has no attribute 'softmax'"),
    "a torn seal": (sealed().replace('{"exercise"', '{"exer'), "broken", "JSONDecodeError"),
    "bytes that are not text": (b"\xff\xfe\x00", "broken", "UnicodeDecodeError"),
    "a value": ("softmax = 3\n", "broken", "should be a function"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_anything_in_the_folder_is_reported_and_never_raised(case, path):
    content, status, why = FOUND[case]
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    part = parts.read_part("softmax", path)
    assert part.status == status and why in part.why, part
    assert bool(part.why) == (status in ("stale", "broken"))
    assert callable(part.function) == (status == "done")


def test_a_fresh_process_has_the_names_that_every_kernel_has(path):
    lines = ["from IPython import get_ipython as shell", "", "", "def softmax(x, dim):", "    display(x.shape)"]
    lines += ["    get_ipython().run_line_magic('time', '')", "    shell().kernel", "    return torch.softmax(x, dim)"]
    path.write_text("\n".join(["import torch", *lines]) + "\n")
    assert parts.check_in_fresh_process("softmax", path).passed


def test_a_fresh_process_says_what_is_missing_there_and_one_that_ends_early_or_never_is_reported(path, monkeypatch):
    path.write_text(sealed("print('loud')\n\n\ndef softmax(x, dim):\n    return forgotten(x, dim)\n"), encoding="utf-8")
    found = parts.check_in_fresh_process("softmax", path)
    assert not found.passed and "name 'forgotten' is not defined" in found.message
    path.write_text("import os\nos._exit(7)\n", encoding="utf-8")
    assert parts.check_in_fresh_process("softmax", path) == (False, None, "Its process ended early: 7")
    monkeypatch.setattr(parts, "FRESH_SECONDS", 0.01)
    assert "did not end within 0.01 s" in parts.check_in_fresh_process("softmax", path).message


@pytest.mark.parametrize("switch", [None, "on", "off", ""])
@pytest.mark.parametrize("variable", [None, "PYTEST_VERSION", "PYTEST_CURRENT_TEST", "NBGRADER_EXECUTION"])
def test_when_the_workshop_is_off(switch, variable, monkeypatch):
    environment = {"TINYLM_WORKSHOP": switch, variable: "8.3"}
    monkeypatch.setattr(os, "environ", {key: value for key, value in environment.items() if key and value is not None})
    assert parts.is_off() == (switch == "off" if switch in ("on", "off") else variable is not None)
