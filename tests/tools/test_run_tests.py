"""tools/run_tests.py: everything runs, and the summary says what failed and how to run it alone."""

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import run_tests


def says(text: str, code: int = 0, seconds: float = 0) -> list[str]:
    program = f"import sys, time; print({text!r}, flush=True); time.sleep({seconds}); sys.exit({code})"
    return [sys.executable, "-c", program]


PASSES = "tests/test_a.py ....   [100%]\n=== 4 passed, 1 skipped in 1.23s ==="
FAILS = """0.50s call     tests/test_b.py::test_slow
7.25s setup    tests/test_b.py::test_slower
FAILED tests/test_b.py::test_x[a - b] - AssertionError: 1 - 2
FAILED notebooks/05_attention.ipynb::Cell 3 - Notebook cell execution failed
FAILED notebooks/05_attention.ipynb::Cell 4
ERROR tests/test_c.py
=== 3 failed, 2 passed, 1 error in 61.03s (0:01:01) ==="""


@pytest.fixture
def run(monkeypatch, capfd, tmp_path):
    """A function that runs parts of our own in a checkout of our own, and returns the exit code and what is printed."""
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "GREEN", tmp_path / "work" / "cache" / "green.json")
    monkeypatch.setattr(run_tests, "distributions", list)

    def run(*arguments: str, **parts: list[list[str]]) -> tuple[int, str]:
        for table in ("PARTS", "QUICK", "ALL"):
            made = {name: run_tests.Part(name, 1.0, each) for name, each in parts.items()}
            monkeypatch.setattr(run_tests, table, made)
        monkeypatch.setattr(sys, "argv", ["run_tests.py", *arguments])
        return run_tests.main(), capfd.readouterr().out

    return run


def test_one_failing_part_hides_nothing(run) -> None:
    parts = {"style": [says("E501 Line too long", 1)], "tests": [says(FAILS, 1)], "notebooks": [says(PASSES)]}
    code, said = run("--slowest", "1", **parts)
    assert code == 1
    assert said.startswith("About 3 minutes on two quiet cores:\n  style")
    assert "== 3 of 3: notebooks" in said and "[100%]" in said
    summary = said[said.index("== slowest") :]
    assert "    7.2 s  tests/test_b.py::test_slower\n\n" in summary
    assert re.search(r"^style +FAILED .*\n  again: \S+ -m ruff check", summary, re.M)
    assert re.search(r"^tests +FAILED +\d+ s  3 failed, 2 passed, 1 error$", summary, re.M)
    assert re.search(r"^  again: \S+ -m pytest \"tests/test_b.py::test_x\[a - b\]\"$", summary, re.M), summary
    assert len(re.findall(r"again: \S+ -m pytest --nbval notebooks/05_attention.ipynb$", summary, re.M)) == 1
    assert re.search(r"^notebooks +ok +\d+ s  4 passed, 1 skipped$", summary, re.M)
    assert summary.endswith("\n6 passed, 4 failed\n")


def test_what_passes_says_so_and_what_fails_without_a_count_is_counted(run) -> None:
    code, said = run(style=[says("All checks passed!")], tests=[says(PASSES)])
    assert code == 0 and said.endswith("\n4 passed, 0 failed\n") and "again" not in said
    code, said = run("style", "tests", style=[says("no ruff", 1)], tests=[says("no pytest", 2)])
    assert code == 1 and said.endswith("\n0 passed, 2 failed\n")


def test_it_stops_in_time_with_a_summary(run) -> None:
    started = time.monotonic()
    parts = {"first": [says(PASSES)], "second": [says("begins", seconds=60)], "third": [says(PASSES)]}
    code, said = run("--minutes", "0.03", **parts)
    assert code == 1 and time.monotonic() - started < 30
    assert re.search(r"^second +stopped: no time left", said, re.M) and re.search(r"^third +not run", said, re.M)
    assert said.endswith("\n4 passed, 2 failed\n")


def test_what_is_interrupted_has_not_failed(run, monkeypatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_tests, "follow", interrupted)
    code, said = run(style=[says("")], tests=[says(PASSES)])
    assert code == 1 and said.endswith("\n0 passed, 0 failed, interrupted: the rest was not run\n")


def test_an_unknown_part_is_named_with_those_that_are_there() -> None:
    command = [sys.executable, run_tests.__file__, "tsets"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no part tsets; there are style, tests, notebooks, backwards, solutions, long, real" in done.stderr


def test_its_parts_are_all_tests_there_are() -> None:
    """A test is quick or long, and a notebook is a student's, a solution, or what goes further than a lesson."""
    more = " notebooks/more" if (run_tests.ROOT / "notebooks" / "more").is_dir() else ""
    commands = {name: " ".join(part.commands[-1]) for name, part in run_tests.PARTS.items()}
    assert "-m not slow and not browser tests" in commands["tests"] and "-m slow or browser tests" in commands["long"]
    assert commands["notebooks"].endswith(" notebooks") and commands["solutions"].endswith(
        f" notebooks/solutions{more}"
    )
    whole = {name: " ".join(part.commands[-1]) for name, part in run_tests.ALL.items()}
    assert whole["tests"].endswith("--dist=worksteal tests")
    assert whole["notebooks"].endswith(f" --dist=loadfile notebooks notebooks/solutions{more}")
    assert whole["real"].endswith("tools/real.py --check")


SHOWS = [sys.executable, "-c", "import sys; print('given', *sys.argv[1:]); print('=== 1 passed in 0.1s ===')"]
CHECKOUT = {
    "tinylm_lib/model.py": "x = 1", "tests/test_model.py": "assert x", "pyproject.toml": "[project]",
    "notebooks/conftest.py": "", "notebooks/00_start.ipynb": "{}", "notebooks/01_tokens.ipynb": "{}",
    "notebooks/solutions/01_tokens.ipynb": "{}",
    "notebooks/source/00_start.py": "", "notebooks/source/01_tokens.py": "",
}  # fmt: skip
FIRST = {"00_start"}
BOTH = {"00_start", "01_tokens"}


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A small checkout: two lessons, a file of the library and one of the tests."""
    for name, text in CHECKOUT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with suppress(OSError):  # Windows lets not everybody make one
        (tmp_path / ".#model.py").symlink_to("nobody@nowhere")
    return tmp_path


def skipped(said: str) -> set[str]:
    """What was left out of a run of the parts that show what they are given."""
    lessons = set(re.findall(r"--ignore=notebooks/(\w+)\.ipynb", said)) if ": notebooks\n" in said else BOTH
    return lessons if ": tests\n" in said else {*lessons, "tests"}


@pytest.mark.parametrize(("changed", "expected"), [
    ("", {*BOTH, "tests"}),
    ("tests/test_model.py", BOTH),
    ("tinylm_lib/model.py", set()), ("pyproject.toml", set()), ("notebooks/conftest.py", set()),
    ("tinylm_classroom/views.js", set()), ("notebooks/02_more.ipynb", set()),
    ("notebooks/01_tokens.ipynb", FIRST), ("notebooks/source/01_tokens.py", FIRST),
    ("notebooks/solutions/01_tokens.ipynb", BOTH), ("notebooks/more/01_bytes.ipynb", BOTH),
    ("notebooks/source/more/01_bytes.py", BOTH), ("work/cache/other.txt", {*BOTH, "tests"}),
])  # fmt: skip
def test_what_is_unchanged_since_it_passed_is_skipped(run, checkout, changed: str, expected: set[str]) -> None:
    parts = {"tests": [SHOWS], "notebooks": [SHOWS]}
    assert skipped(run(**parts)[1]) == set()
    if changed:
        path = checkout / changed
        path.parent.mkdir(exist_ok=True)
        path.write_text("changed")
    code, said = run(**parts)
    assert code == 0 and skipped(said) == expected
    n_lessons = len(expected & BOTH)
    what = f"{n_lessons} lessons" + (" and the quick tests" if "tests" in expected else "")
    assert (f"\nskipped: {what}, unchanged since the last green run" in said) == bool(expected)
    assert skipped(run("tests", "notebooks", **parts)[1]) == skipped(run("--all", **parts)[1]) == set()


def test_what_failed_or_was_changed_meanwhile_or_ran_with_other_packages_runs_again(run, checkout, monkeypatch) -> None:
    fails = [sys.executable, "-c", "import sys; print('FAILED notebooks/01_tokens.ipynb::Cell 3'); sys.exit(1)"]
    assert run(tests=[SHOWS], notebooks=[fails])[0] == 1
    assert skipped(run(tests=[SHOWS], notebooks=[fails])[1]) == {"tests"}
    edits = [sys.executable, "-c", f"import pathlib; pathlib.Path({str(checkout / 'pyproject.toml')!r}).write_text('')"]
    run(tests=[SHOWS], notebooks=[edits])
    assert skipped(run(tests=[SHOWS], notebooks=[SHOWS])[1]) == set()
    newer = SimpleNamespace(metadata={"Name": "torch"}, version="9.9")
    monkeypatch.setattr(run_tests, "distributions", lambda: [newer])
    assert skipped(run(tests=[SHOWS], notebooks=[SHOWS])[1]) == set()


def test_a_part_without_tests_of_its_own_is_run_again_by_its_name() -> None:
    assert run_tests.alone("colab", "").endswith(" tools/run_tests.py colab")
