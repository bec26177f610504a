"""Each exercise has a section of its lesson, under the site's anchor; a note leads a mistake to another one."""

import re

import nbformat
from nbformat import v4

from tinylm_classroom.course import site
from tinylm_classroom.course.cells import words_of
from tinylm_classroom.course.grading.marks import Mark
from tinylm_classroom.course.grading.sections import answer_to, find_sections
from tinylm_classroom.exercises import EXERCISES
from tinylm_classroom.folders import NOTEBOOKS


def test_every_exercise_has_a_section_where_the_site_has_it():
    sections = find_sections()
    for name, exercise in EXERCISES.items():
        section = sections[exercise.lesson, name]
        file, _, anchor = section.page.partition("#")
        path = NOTEBOOKS / file.replace(".html", ".ipynb")
        page = site.Page(file, exercise.lesson, "", "")
        headings = {at: text for _, at, text in site.render(nbformat.read(path, as_version=4), page).headings}
        plain = section.heading.replace("`", "").replace("*", "")
        assert words_of(headings[anchor]) == plain and section.lesson.startswith(exercise.lesson)


def test_a_mistake_that_a_note_names_is_answered_there(tmp_path):
    note = (
        "**Usual answers.**\n- *without the root* (`unscaled`): why?\n- *4* (the prediction's choice): no\n"
        "- *rows* (`over queries`): What does section 2 say?\n- *all* (`no mask`): See section 7."
    )
    cells = [
        v4.new_markdown_cell("# 05 Attention\n**Why?**"),
        v4.new_markdown_cell(note, metadata={"tags": ["note"]}),
        v4.new_markdown_cell("## 1. The root\n```\n# no heading\n```\n### Below"),
        v4.new_markdown_cell("## 2. The mask"),
        v4.new_code_cell("", metadata={"tags": ["exercise"], "tinylm": {"name": "attention"}}),
        v4.new_markdown_cell("## 3. Why so", metadata={"tags": ["solution"]}),
    ]
    (tmp_path / "solutions").mkdir()
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "solutions" / "05_attention.ipynb")
    sections = find_sections(tmp_path)
    assert answer_to(Mark("a", "05", "attention", "mistake", "unscaled"), sections).heading == "1. The root"
    for name, heading in (("over queries", "2. The mask"), ("no mask", "1. The root")):
        assert answer_to(Mark("a", "05", "attention", "mistake", name), sections).heading == heading
    other = answer_to(Mark("a", "05", "attention", "mistake", "transposed"), sections)
    assert tuple(other) == ("05 Attention", "2. The mask", "05_attention.html#part-3")
    assert answer_to(Mark("a", "", "", "could not be run"), sections) is None
    assert find_sections(tmp_path / "solutions") == {}


def test_where_a_note_sends_to_a_section_the_mistake_is_answered_there():
    sections = find_sections()
    sent = [
        (path.stem[:2], *found)
        for path in sorted(NOTEBOOKS.glob("source/[0-9][0-9]_*.py"))
        for found in re.findall(r"^# - .*\(`([^`]+)`.*\bsection (\d+)", path.read_text("utf-8"), re.M)
    ]
    assert ("05", "no scale", "5") in sent
    assert not [(lesson, name) for lesson, name, n in sent if not sections[lesson, name].heading.startswith(f"{n}. ")]
