"""The minutes of a lesson and its plans."""

from pathlib import Path

import pytest

from tinylm_classroom.course.lesson.notes import note_problems
from tinylm_classroom.course.lesson.plans import parts, plan_minutes, plan_table
from tinylm_classroom.course.lesson.read import PLANS, Cell, read_lesson
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
    code("def half(x): ...", tags=["exercise"], name="half", minutes=6, plan=80),
    code("check('half', half)", tags=["check"]),
    text("## 2. More\n" + "word " * 130, plan=110),
    text("word " * 1000, tags=["note"]),
    text("word " * 1000, slide="skip"),
    text("**Say.** A\n\n**Draw.** B\n\n**Ask.** C\n\n**Cut if short.** " + "word " * 1000, tags=["note"]),
    text("## What you have now\n- It.\n\n## Sources\n" + "word " * 1000),
]


def test_a_section_takes_its_words_and_its_pictures_and_an_exercise_what_its_header_says() -> None:
    found = [(part.name, part.minutes, part.plan) for part in parts(LESSON)]
    assert found == [
        ("Title", 1, 50),
        ("1. Halving", 6, 50),
        ("`half`", 6, 80),
        ("2. More", 1, 110),
        ("What you have now", 2, 50),
    ]
    assert plan_minutes(parts(LESSON)) == {50: 9, 80: 15, 110: 16}
    assert not list(title_problems(LESSON[0].text, parts(LESSON)))


@pytest.mark.parametrize(
    ("old", "new"), [("10 minutes", "9 minutes"), ("plus 6", "plus 5"), (", plus 6 of exercises", "")]
)
def test_the_title_states_the_computed_minutes(old: str, new: str) -> None:
    found = title_problems(LESSON[0].text.replace(old, new), parts(LESSON))
    assert [line for line, says in found if "about 10 minutes, plus 6 of exercises" in says] == [1]


def test_sources_in_a_cell_of_their_own_count_nothing_either() -> None:
    assert parts([*LESSON, text("## Sources\n" + "word " * 1000)]) == parts(LESSON)


def test_the_table_shows_each_part_where_it_is_taught_and_which_plan_is_too_long() -> None:
    table = plan_table(parts([*LESSON, text("## 3. Long\n" + "word " * 130 * 50)]))
    assert "| exercise `half` |  | 6 | 6 |" in table and "| 2. More |  |  | 1 |" in table
    assert "| **together** | **59** | **65** | **66** |" in table
    assert "for 50 minutes is too long by 9" in table and "for 80" not in table


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_plans_of_a_lesson_fit_and_each_section_has_its_note(source: Path) -> None:
    cells = read_lesson(source).cells
    sums = plan_minutes(parts(cells))
    assert list(note_problems(cells)) == []
    assert [plan for plan in PLANS if sums[plan] > plan] == []
