"""The lists of lessons and exercises that nobody writes by hand."""

from pathlib import Path

import pytest

from tinylm_lib.classroom.course import build
from tinylm_lib.classroom.course.source import read_lesson
from tinylm_lib.classroom.exercises import EXERCISES, names
from tinylm_lib.classroom.folders import NOTEBOOKS, lessons
from tinylm_lib.classroom.workshop import progress

README = "Read.\n\n| lesson | question |\n|---|---|\n| [00 old](notebooks/00_old.ipynb) | Old? |\n\nMore.\n"
SOURCES = {
    "04_tables": "# %% [markdown]\n# # 04 Tables\n# **What is\n# a \\\\row?**\n",
    "05_halves": "# %% [markdown]\n# # 05 Halves\n#\n# **What is half?**\n\n# %% [markdown]\n# **Not this.**\n",
}


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
    )
    assert build.stale(course) == [] and build.main([], course) == 0
    assert "README.md" not in capsys.readouterr().out


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
    assert lines[1].split()[0] == "01" and "  13  " in "".join(lines) and lines[-1].startswith("Next: write")
