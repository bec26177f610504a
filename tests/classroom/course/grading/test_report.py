"""The table, the CSV and the files of a report, for whatever a student is called and a check says."""

import csv
import io
import json

import pytest

from tinylm_classroom.course.grading.marks import Mark
from tinylm_classroom.course.grading.pages import Pages
from tinylm_classroom.course.grading.report import as_csv, as_gradebook, as_table, write_report

MARKS = [
    Mark("bob", "05", "attention", "mistake", "unscaled", "It looks like nothing is divided."),
    Mark("ann", "05", "attention", "right", "", "attention: right. It is."),
    Mark("ann", "05", "causal_mask", "right", "", "causal_mask: right. It is."),
    Mark("bob", "05", "causal_mask", "not attempted"),
    Mark("ann", "06", "rotate", "could not be run", "", "it did not end within 40 s and was stopped"),
    Mark("cem", "", "", "could not be run", "", "a.ipynb: it cannot be read as a notebook"),
]


def test_the_table_has_a_line_for_each_student_and_then_what_could_not_be_run():
    lines = [line.split() for line in as_table(MARKS).splitlines()]
    assert lines[:4] == [
        ["student", "05", "06", "all"],
        ["ann", "2/2", "of", "2", "0/0", "of", "1", "2/2", "of", "3"],
        ["bob", "0/1", "of", "2", "-", "0/1", "of", "2"],
        ["cem", "-", "-", "0/0", "of", "0"],
    ]
    assert lines[5][:1] == ["right/checked"] and "what could not be run is not checked" in as_table(MARKS)
    assert "ann 06 rotate: it did not end" in as_table(MARKS) and "cem: a.ipynb: it cannot" in as_table(MARKS)


def test_a_terminal_gets_no_control_characters():
    shown = as_table([Mark("a\x1b[31m\nb", "05", "attention", "could not be run", "", "x\ry\x07\u202e")])
    assert all(c.isprintable() or c == "\n" for c in shown) and "x y" in shown


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\n=1"])
def test_a_spreadsheet_computes_nothing(cell):
    rows = [*csv.reader(io.StringIO(as_csv([Mark(cell, "05", "attention", "right", "", cell)])))]
    assert all(not value.lstrip().startswith(("=", "+", "-", "@")) for row in rows for value in row)
    assert rows[1][0].lstrip("' ") == cell.strip(), "the text itself is still there"


def test_csv_and_json_hold_all_marks_in_the_order_of_the_lessons(tmp_path):
    write_report(tmp_path, Pages(MARKS))
    rows = [*csv.DictReader(io.StringIO((tmp_path / "marks.csv").read_text("utf-8-sig")))]
    assert [(row["student"], row["exercise"]) for row in rows] == [
        ("ann", "causal_mask"), ("ann", "attention"), ("ann", "rotate"), ("bob", "causal_mask"), ("bob", "attention"),
        ("cem", ""),
    ]  # fmt: skip
    told = json.loads((tmp_path / "marks.json").read_text())
    assert [mark.pop("points") for mark in told] == [1, 1, 0, 0, 0, None]
    assert [row.pop("points") for row in rows] == ["1", "1", "0", "0", "0", ""]
    assert [Mark(**mark) for mark in told] == [Mark(**r) for r in rows]


def test_the_gradebook_has_a_row_for_each_student_and_leaves_open_what_was_not_handed_in(tmp_path):
    rows = [line.split(",") for line in as_gradebook([*MARKS, Mark("=dan", "", "", "could not be run")]).splitlines()]
    assert rows[0][:3] == ["student", "05 causal_mask", "05 attention"] and rows[0][-1] == "points"
    assert rows[0].index("06 rotate") > 2
    by_name = {row[0]: row[1:] for row in rows[1:]}
    assert by_name["ann"][:2] == ["1", "1"] and by_name["ann"][rows[0].index("06 rotate") - 1] == "0"
    assert by_name["bob"] == ["0", "0", *[""] * (len(rows[0]) - 4), "0"]
    assert by_name["cem"] == by_name["'=dan"] == [""] * (len(rows[0]) - 2) + ["0"]
    write_report(tmp_path, Pages(MARKS))
    assert (tmp_path / "marks_table.csv").read_text("utf-8-sig") == as_gradebook(MARKS)


def test_tables_have_no_markup():
    mark = Mark("a*b*", "05", "attention", "could not be run", "", "`x * y * z` is *not* so: 2 * 3 * 4", "tried `rm`")
    row = next(csv.DictReader(io.StringIO(as_csv([mark]))))
    assert row["says"] == "x * y * z is not so: 2 * 3 * 4" and row["touched"] == "tried rm" and row["student"] == "a*b*"
    assert "x * y * z is not so" in as_table([mark]) and "a*b* 05 attention: tried rm" in as_table([mark])


def test_what_is_said_of_several_exercises_is_one_line():
    marks = [Mark("dora", "05", name, "could not be run", "", "it is empty") for name in ("causal_mask", "attention")]
    assert "  dora 05 causal_mask, attention: it is empty" in as_table(marks).splitlines()


def test_each_student_has_a_page_whatever_the_name(tmp_path):
    names = ["ann", "ANN", "é ü", "x" * 200, "x" * 200 + "y", "a&b#c?d%41", "\udc80"]
    pages = Pages([Mark(name, "05", "attention", "right") for name in names])
    shown = write_report(tmp_path, pages).read_text("utf-8")
    assert len({name.casefold() for name in pages.files.values()}) == len(names)
    assert all((tmp_path / name).read_text("utf-8").startswith("<!doctype") for name in pages.files.values())
    assert 'href="students/a%26b%23c%3Fd%2541.html"' in shown
