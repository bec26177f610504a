"""The cut into slides: each rule on a small notebook, what the source says before the rules, and once is enough."""

from copy import deepcopy

import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course.lesson.cut import ROWS, cut, is_plumbing, rows
from tinylm_classroom.views.predict import predict

TITLE, SECTION = "# 05 Halves\n**What is half?**", "## 1. One half\nA half is a part of two."
WORDS = "These are about a hundred and ten letters of text, which are on two lines of a slide, as one can easily count."


def text(source: str, slide: str | None = None, **metadata) -> NotebookNode:
    return v4.new_markdown_cell(source, metadata=metadata | ({"slideshow": {"slide_type": slide}} if slide else {}))


def code(source: str, *outputs: NotebookNode, hidden: bool = False, **metadata) -> NotebookNode:
    folded = {"jupyter": {"source_hidden": True}} if hidden else {}
    return v4.new_code_cell(source, outputs=list(outputs), metadata=folded | metadata)


def printed(said: str) -> NotebookNode:
    return v4.new_output("stream", name="stdout", text=said)


def picture() -> NotebookNode:
    return v4.new_output("display_data", {"text/html": '<figure><img src="data:,"></figure>', "text/plain": ""})


def question() -> NotebookNode:
    said = {"number": "of it", "because": "It is.", "feedback": {1: "No."}}
    return v4.new_output("display_data", predict("Half of 4?", key=lambda: 2, within=0, **said)._repr_mimebundle_()[0])


def kinds(*cells: NotebookNode) -> list[str]:
    """The slide type that each cell gets; `-` for one that continues."""
    notebook = v4.new_notebook(cells=[deepcopy(cell) for cell in cells])
    cut(notebook)
    return [cell.metadata.get("slideshow", {}).get("slide_type", "-") for cell in notebook.cells]


def test_the_title_and_each_section_begin_a_slide_and_a_part_of_a_section_a_subslide():
    cells = (text(TITLE), text(SECTION), text("### Quarters\nHalf of it."), text("## 2. Two\nMore."), text("Words."))
    assert kinds(*cells) == ["slide", "slide", "subslide", "slide", "-"]


@pytest.mark.parametrize("output", [picture(), question()])
def test_a_figure_and_a_prediction_are_a_subslide_of_their_own(output):
    assert kinds(text(SECTION), code("look()", output), text(WORDS * 9)) == ["slide", "subslide", "subslide"]


def test_the_sentence_after_a_figure_stays_with_it_and_that_before_it_goes_with_it():
    assert kinds(text(SECTION), code("look()", picture()), text("A line.")) == ["slide", "subslide", "-"]
    full, lead = text("## 1. One\n" + WORDS * 9), text("Here it is:")
    assert kinds(text(SECTION), lead, code("look()", picture())) == ["slide", "-", "subslide"]
    assert kinds(full, lead, code("look()", picture())) == ["slide", "subslide", "-"]


def test_what_answers_a_prediction_comes_on_a_key_where_it_has_room():
    cells = (code("ask()", question()), code("print(2)", printed("2\n")), text("So it is."), text(WORDS * 9))
    assert kinds(*cells) == ["subslide", "fragment", "fragment", "subslide"]
    assert kinds(code("ask()", question()), code("print(2)", printed("2\n" * 20)))[1] == "subslide"
    assert kinds(code("ask()", question()), text("### Then\nMore."), text("And more."))[1:] == ["subslide", "-"]


def test_a_text_begins_a_subslide_where_the_slide_is_full_and_a_lead_goes_with_what_it_announces():
    assert kinds(text(SECTION), text(WORDS * 3), text(WORDS * 9)) == ["slide", "-", "subslide"]
    shown = code("a = 1\n" * 8, printed("1\n" * 4))
    assert kinds(text("## 1. One\n" + WORDS * 4), text("See:"), shown) == ["slide", "subslide", "-"]
    assert kinds(text("## 1. One\n" + WORDS * 4), text("See."), shown) == ["slide", "-", "subslide"]


@pytest.mark.parametrize(
    "cell",
    [
        code("import math\nfrom torch import nn\n\n_ = seed(6)"), code("def f():\n    return 1", hidden=True),
        code("if check('f', f).passed:\n    keep('f', f)", picture(), tags=["check"]), code("hint('f')", picture()),
        code("keep('f', f)", picture()), code(""), v4.new_raw_cell("raw"),
    ],
)  # fmt: skip
def test_plumbing_is_skipped(cell):
    assert is_plumbing(cell) and kinds(text(SECTION), cell, text("Words.")) == ["slide", "skip", "-"]


@pytest.mark.parametrize(
    "cell", [code("x = 1"), code("x = 1", printed("1"), hidden=True), code("import math\nprint(1)", printed("1"))]
)
def test_code_that_says_something_is_not(cell):
    assert not is_plumbing(cell) and kinds(text(SECTION), cell) == ["slide", "-"]


def test_an_exercise_and_its_solution_have_slides_of_their_own():
    exercise = code("def f(): ...", tags=["exercise"])
    cells = (text(SECTION), exercise, text("Because.", tags=["solution"]), text("More."))
    assert kinds(*cells) == ["slide", "subslide", "subslide", "subslide"]


def test_the_source_comes_before_the_rules():
    assert kinds(text(SECTION, "skip"), text("Words.", "slide"), code("look()", picture(), slideshow={})) == [
        "skip", "slide", "subslide",
    ]  # fmt: skip
    assert kinds(text(SECTION), text("Ask them.", "notes"), text("Words.")) == ["slide", "notes", "-"]
    assert kinds(text(SECTION), code("look()", picture(), slideshow={"slide_type": "fragment"}))[1] == "fragment"


def test_cutting_twice_changes_nothing():
    cells = [text(TITLE), code("import math"), text(SECTION), text(WORDS * 6), text("Here:"), code("look()", picture())]
    cells += [code("ask()", question()), code("print(2)", printed("2")), text(WORDS * 2), text("It is:"), code("x = 1")]
    notebook = v4.new_notebook(cells=cells)
    cut(notebook)
    once = deepcopy(notebook)
    cut(notebook)
    assert notebook == once and len({str(cell.metadata.get("slideshow")) for cell in cells}) == 5


def test_the_height_of_a_cell_is_estimated():
    assert rows(text("One line.")) == pytest.approx(1.4) and rows(text("- a\n- b\n- c")) == pytest.approx(4.2)
    folded, open_code = code("x\n" * 30, printed("1"), hidden=True), code("x\n" * 30, printed("1"))
    assert rows(folded) < 2 < 9 < rows(open_code) < ROWS
