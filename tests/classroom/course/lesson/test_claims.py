"""A lesson's deck, its conclusions, its lines to change, and its minutes."""

import pytest
from nbformat import v4

from tinylm_classroom.course.lesson.claims import source_problems
from tinylm_classroom.course.lesson.execute import execute
from tinylm_classroom.course.lesson.notes import board_work
from tinylm_classroom.course.lesson.plans import parts, taught_minutes
from tinylm_classroom.course.lesson.read import Cell
from tinylm_classroom.course.lesson.tries import changed, problems, with_other_values

TITLE = Cell(1, "markdown", "# 05 Halves", {})
CHECKED = Cell(9, "code", "assert 3 / 2 == 1.5", {"evidence": "half", "tried": "exact"})
SEEN = Cell(12, "code", "assert 3 / 2 == 1.5", {"evidence": "seen"})


def text(words: str, **meta: object) -> Cell:
    return Cell(20, "markdown", words, meta)


def summary(*bullets: str) -> list[Cell]:
    return [TITLE, CHECKED, SEEN, text("## What you have now\n" + "\n".join(f"- {line}" for line in bullets))]


def test_a_conclusion_was_tried_or_says_in_this_run_and_only_one_may() -> None:
    fine = summary("Half of three. [[half]]", "It took three, in this run. [[seen]]")
    assert not list(source_problems(fine))
    for bullets, says in (
        (["It took three. [[seen]]"], "try to refute 'seen'"),
        (["A, in this run. [[seen]]", "B, in this run. [[seen]]"], "at most once"),
        (["Nothing."], "with one evidence"),
        (["Two. [[half]] [[seen]]"], "with one evidence"),
    ):
        assert [says in found for _, found in source_problems(summary(*bullets))] == [True]


def test_a_slide_has_a_title_of_its_own_and_at_most_five_lines_of_code() -> None:
    long = "\n".join(f"a{i} = {i}" for i in range(6))
    shown, folded = (Cell(30, "code", long, meta) for meta in ({"deck": "A"}, {"deck": "B", "tags": ["source-hidden"]}))
    essential = Cell(40, "code", "# ESSENTIAL\na = 1\n# END\n" + long, {"deck": "C"})
    again = Cell(50, "code", "a = 1", {"deck": "C"})
    found = list(source_problems([TITLE, shown, folded, essential, again]))
    assert [line for line, _ in found] == [30, 50]


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ('word = "kite"  # try "fan" and "book"', "word = 'fan'"),
        ("rate = 0.1  # try 1, 2 and 3.", "rate = 1"),
        ("layer, head = 1, 0  # try (2, 3)", "layer, head = (2, 3)"),
        ("    n = 2  # try -1", "    n = -1"),
    ],
)
def test_a_line_to_change_names_its_values(line: str, other: str) -> None:
    assert changed(f"x = 1\n{line}\ny = 2") == f"x = 1\n{other}\ny = 2" and not list(problems(line))


@pytest.mark.parametrize("line", ["word = 'a'  # try two words", "draw('a')  # try 'b'"])
def test_a_line_to_change_without_values_is_found(line: str) -> None:
    assert [place for place, _ in problems(f"x = 1\n{line}")] == [2]


def test_other_values_run_before_those_of_the_lesson_and_leave_its_random_numbers() -> None:
    cells = [
        "import torch\n_ = torch.manual_seed(1)",
        "n = 2  # try 5\nx = torch.rand(n)",
        "print(n, len(x), torch.rand(1))",
    ]
    lesson = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    tried = with_other_values(lesson)
    assert [cell.source for cell in tried.cells][2] == "n = 5\nx = torch.rand(n)"
    for notebook in (lesson, tried):
        _ = execute(notebook, "05_halves")
    assert lesson.cells[-1].outputs == tried.cells[-1].outputs and lesson.cells[-1].outputs[0].text.startswith("2 2")
    assert with_other_values(v4.new_notebook(cells=lesson.cells[:1])) is None


def test_another_value_that_fails_stops_the_build() -> None:
    lesson = v4.new_notebook(cells=[v4.new_code_cell("n = 2  # try 0\nprint(1 / n)")])
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        _ = execute(with_other_values(lesson), "05_halves")


def test_minutes_have_the_board_and_half_a_minute_for_visible_code_and_exercises_are_homework() -> None:
    asked = "**Say.** A\n\n**Draw.** A circle."
    section = text("## 1. One\n" + "word " * 260)
    code = [Cell(9, "code", "x = 1", {})] * 4
    exercise = Cell(9, "code", "def half(): ...", {"tags": ["exercise"], "name": "half", "minutes": 6})
    lesson = [TITLE, text(asked, tags=["note"]), section, *code, exercise]
    assert [part.minutes for part in parts(lesson)] == [1, 2 + 2 + 1, 6]
    assert taught_minutes(parts(lesson)) == 6
    assert board_work(asked) == 1
