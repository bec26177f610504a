"""The lists of lessons and exercises that nobody writes by hand."""

from pathlib import Path

import pytest

from tinylm_classroom.course import build
from tinylm_classroom.course.lesson.read import read_lesson
from tinylm_classroom.exercises import EXERCISES, names
from tinylm_classroom.folders import NOTEBOOKS, lessons
from tinylm_classroom.workshop import progress

README = "9 lessons · x.\n\n| lesson | question |\n|---|---|\n| [00 old](notebooks/00_old.ipynb) | Old? |\n\nMore.\n"
INSTRUCTORS = "| lesson | needs | builds | runs | teaches | exercises |\n|---|---|---|---|---|---|\n| old |\n\nMore.\n"
TABLES = """# %% [markdown]
# # 04 Tables
# **What is
# a \\\\row?**
#
# *Needs* 03. *Builds* `a.py`,
# half. *Runs* in about 5 s on
# two cores. *Teaches* in about 40 minutes, plus 7 of exercises.
"""
HALVES = """# %% [markdown]
# # 05 Halves
#
# **What is half?**
#
# *Needs* 04. *Builds* nothing. *Runs* in about 12 s on two cores. *Teaches* in 1 minute.

# %% [markdown]
# **Not this.**
"""
SOURCES = {"04_tables": TABLES, "05_halves": HALVES}


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "notebooks" / "source").mkdir(parents=True)
    (tmp_path / "README.md").write_text(README)
    for name, text in SOURCES.items():
        (tmp_path / "notebooks" / "source" / f"{name}.py").write_text(text)
    return tmp_path / "notebooks"


def test_the_table_of_the_readme_is_made_from_the_sources(course, monkeypatch, capsys):
    monkeypatch.setattr(build, "why_stale", lambda *_: None)
    assert lessons(course) == {"04": "tables", "05": "halves"} and lessons(course / "source") == {}
    assert build.stale(course) == ["README.md has another table of lessons; run make notebooks"]
    assert build.main([], course) == 0 and "README.md: the table of lessons" in capsys.readouterr().out
    assert (course.parent / "README.md").read_text() == README.replace(
        "| [00 old](notebooks/00_old.ipynb) | Old? |\n",
        "| [04 tables](notebooks/04_tables.ipynb) | What is a \\\\row? |\n"
        "| [05 halves](notebooks/05_halves.ipynb) | What is half? |\n",
    ).replace("9 lessons", "2 lessons")
    assert build.stale(course) == [] and build.main([], course) == 0
    assert "README.md" not in capsys.readouterr().out


def test_the_table_for_instructors_has_what_the_titles_say_and_its_sums(course, monkeypatch, capsys):
    monkeypatch.setattr(build, "why_stale", lambda *_: None)
    page = course.parent / "INSTRUCTORS.md"
    page.write_text(INSTRUCTORS)
    assert "INSTRUCTORS.md has another table of lessons; run make notebooks" in build.stale(course)
    assert build.main([], course) == 0 and "INSTRUCTORS.md: the table of lessons" in capsys.readouterr().out
    assert page.read_text() == INSTRUCTORS.replace(
        "| old |\n",
        "| [04 tables](notebooks/04_tables.ipynb) | 03 | `a.py`, half | 5 s | 40 | 7 |\n"
        "| [05 halves](notebooks/05_halves.ipynb) | 04 | nothing | 12 s | 1 | 0 |\n"
        "| all | | | | 41 | 7 |\n",
    )
    assert build.stale(course) == []


def test_the_exercises_are_those_of_the_lessons_in_their_order():
    taught = [
        (cell.meta["name"], lesson.number)
        for lesson in map(read_lesson, sorted(NOTEBOOKS.glob("source/*.py")))
        for cell in lesson.cells
        if cell.meta.get("name") in EXERCISES  # lesson 00 looks at its exercise itself
    ]
    assert [(name, EXERCISES[name].lesson) for name in names()] == taught


def test_without_the_sources_the_map_has_the_numbers_of_the_exercises(monkeypatch):
    monkeypatch.setattr(progress, "lessons", dict)
    lines = str(progress.progress()).splitlines()
    assert lines[1].split()[0] == "00" and "  13  " in "".join(lines) and lines[-1].startswith("Next: write")
