"""The minutes of a lesson and its plan."""

from pathlib import Path

import pytest

from tinylm_classroom.course.lesson.notes import note_problems
from tinylm_classroom.course.lesson.plans import parts, plan_table, taught_minutes
from tinylm_classroom.course.lesson.read import Cell, read_lesson
from tinylm_classroom.course.lesson.rules import title_problems
from tinylm_classroom.folders import NOTEBOOKS

SOURCES = sorted(NOTEBOOKS.glob("source/*.py"))


def text(words: str, **meta: object) -> Cell:
    return Cell(1, "markdown", words, meta)


def code(words: str, **meta: object) -> Cell:
    return Cell(1, "code", words, meta)


LESSON = [
    text("# 05 Halves\n*Teaches* in about 10 minutes, plus 6 of exercises."),
    text("## 1. Halving\n" + "word " * 390),
    code("figures.display(figure)", tags=["source-hidden"]),
    code("predict('How much?', key=lambda: 1)", tags=["source-hidden"]),
    code("def half(x): ...", tags=["exercise"], name="half", minutes=6),
    code("check('half', half)", tags=["check"]),
    text("## 2. More\n" + "word " * 130),
    text("word " * 1000, tags=["note"]),
    text("word " * 1000, slide="skip"),
    text("**Say.** A\n\n**Draw.** B\n\n**Ask.** C\n\n**Cut if short.** " + "word " * 1000, tags=["note"]),
    text("## What you have now\n- It.\n\n## Sources\n" + "word " * 1000),
]


def test_a_section_takes_its_words_and_its_pictures_and_an_exercise_what_its_header_says() -> None:
    found = [(part.name, part.minutes) for part in parts(LESSON)]
    assert found == [
        ("Title", 1),
        ("1. Halving", 6),
        ("`half`", 6),
        ("2. More", 1),
        ("What you have now", 2),
    ]
    assert taught_minutes(parts(LESSON)) == 10
    assert not list(title_problems(LESSON[0].text, parts(LESSON)))


@pytest.mark.parametrize(
    ("old", "new"), [("10 minutes", "9 minutes"), ("plus 6", "plus 5"), (", plus 6 of exercises", "")]
)
def test_the_title_states_the_computed_minutes(old: str, new: str) -> None:
    found = title_problems(LESSON[0].text.replace(old, new), parts(LESSON))
    assert [line for line, says in found if "about 10 minutes, plus 6 of exercises" in says] == [1]


def test_sources_in_a_cell_of_their_own_count_nothing_either() -> None:
    assert parts([*LESSON, text("## Sources\n" + "word " * 1000)]) == parts(LESSON)


def test_the_table_has_each_section_and_names_the_exercises_below() -> None:
    table = plan_table(parts(LESSON))
    assert "| 2. More | 1 |" in table and "| **together** | **10** |" in table
    assert table.endswith("second hour: `half` 6.") and "Exercises" not in plan_table(parts(LESSON[:2]))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_each_section_of_a_lesson_has_its_note(source: Path) -> None:
    assert list(note_problems(read_lesson(source).cells)) == []
