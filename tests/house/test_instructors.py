"""INSTRUCTORS.md: its commands exist with their flags, and its tables are those of the lessons."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tinylm_classroom.course.contents import NEEDS, with_tables
from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.folders import NOTEBOOKS, lessons

ROOT = Path(__file__).parents[2]
PAGE, MAKEFILE = ((ROOT / name).read_text("utf-8") for name in ("INSTRUCTORS.md", "Makefile"))
FENCED = re.findall(r"^```(\w*)\n(.*?)^```\n", PAGE, re.M | re.S)
SHELL = "".join(text for kind, text in FENCED if not kind).replace("\\\n", " ")
INLINE = re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```\n", "", PAGE))
LINES = "\n".join([SHELL, *(" ".join(text.split()) for text in INLINE)])
MADE = sorted(set(re.findall(r"^(?:[A-Z_]+=\S+ )*make ([a-z-]+)(?: ARGS=\"(.*?)\")?", LINES, re.M)))
CALLED = sorted(set(re.findall(r"^.*python -m tinylm_lib (\w.*?)(?: {2,}#.*)?$", LINES, re.M)))
FIVE_WEEKS, SEMESTER = (
    re.search(rf"(?m)^\*\*{name}\*\*.*?\n\n(\|.*?)\n\n", PAGE, re.S)[1] for name in ("Six weeks", "A semester")
)


@cache
def manual(*command: str) -> str:
    """What a command's --help prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    line = [sys.executable, "-m", *command, "--help"]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def flags(arguments: str) -> set[str]:
    """The flags among these arguments, without those of JupyterLab, which have a dot."""
    words = [word.partition("=")[0] for word in shlex.split(arguments) if word.startswith("-")]
    return {word for word in words if "." not in word}


def test_the_patterns_find_what_they_are_for() -> None:
    assert {"lab", "slides", "site", "notebooks", "set-up-lab"} <= {target for target, _ in MADE}
    assert {line.split()[0] for line in CALLED} >= {"doctor", "lab", "grade"}
    assert flags("lab --work ~/x --KernelManager.transport=ipc --a=b") == {"--work", "--a"}


@pytest.mark.parametrize(("target", "arguments"), MADE)
def test_every_target_exists_and_knows_its_flags(target: str, arguments: str) -> None:
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.M)
    assert recipe, target
    if flags(arguments):
        command = re.search(r"\$\(PY\) -m (.*) \$\(ARGS\)", recipe[1])[1]
        assert not [flag for flag in flags(arguments) if flag not in manual(*command.split())]


@pytest.mark.parametrize("line", CALLED)
def test_every_command_exists_and_knows_its_flags(line: str) -> None:
    says = manual("tinylm_lib", line.split()[0])
    assert not [flag for flag in flags(line) if flag not in says]


def test_the_table_is_that_of_the_sources_and_every_lesson_is_in_the_courses() -> None:
    sources = sorted(NOTEBOOKS.glob("source/*.py"))
    assert with_tables(PAGE, sources) == PAGE and PAGE.count(NEEDS) == 1
    assert all(f"notebooks/{source.stem}.ipynb) | " in PAGE for source in sources) and "| | | 0 |" not in PAGE
    for course in (FIVE_WEEKS, SEMESTER):
        assert re.findall(r"[|,] (\d\d) ([a-z]+)", course) == list(lessons().items())


def test_homework_is_an_exercise_of_its_week_and_the_semester_has_all() -> None:
    names = {
        lesson.number: [cell.meta["name"] for cell in lesson.cells if "exercise" in cell.tags]
        for lesson in map(read_lesson, sorted(NOTEBOOKS.glob("source/*.py")))
    }
    for course in (FIVE_WEEKS, SEMESTER):
        for week in course.splitlines()[2:]:
            here = {name for number in re.findall(r"[|,] (\d\d) [a-z]+", week) for name in names[number]}
            assert set(re.findall(r"`(\w+)`", week)) <= here, week
    homework = re.findall(r"`(\w+)`", SEMESTER)
    assert homework == [name for number, each in names.items() if number != "00" for name in each]


def test_what_it_names_is_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", PAGE) if "://" not in link]
    assert links and not [link for link in links if not (ROOT / link).exists()]
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.search(r"^requires = \[(\".+?\")\]", project, re.M)[1] in SHELL  # what pip builds the course with
    extras = ",".join(re.findall(r"(?<=\.\[)[\w,]+(?=\])|(?<=--extra )\w+", SHELL)).split(",")
    assert len(extras) > 3 and all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras)
