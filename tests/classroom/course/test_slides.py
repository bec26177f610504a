"""Slides as HTML: what is on them, what students do not get, and that nothing is fetched."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course import handout, slides
from tinylm_classroom.course.cells import OUTSIDE, page_of, words_of
from tinylm_classroom.course.deck import Deck
from tinylm_classroom.course.lesson.cut import cut
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_classroom.views.base import View
from tinylm_classroom.views.predict import predict

TITLE = "# 03 Halves & more\n**What is\nhalf?**\n\n*Needs* nothing."
SOLVED = '''# Exercise softmax: difficulty 2 of 5, about 8 minutes
def softmax(x, dim):
    """Probabilities along dim."""
    secret = x.exp()
    return secret / secret.sum(dim, keepdim=True)'''
EXERCISE = {"tags": ["exercise"], "tinylm": {"name": "softmax", "difficulty": 2, "minutes": 8}}
LONG = "\n".join(f"x{i} = {i}" for i in range(1, 21))
USUAL = """**Say.** Halves.

**Usual answers.**
- *the first axis* (`first axis`, or `fixed axis`): `dim` says which.
- *ninety* (`90`): Is 90 half?
- *the higher* (`high again`): Which is it?
- *the lower* (`low`, the right one): Yes.
- *nobody knows it* (from the room): `low`, perhaps.

**Cut if short.** - *low*: Nothing."""


def text(source: str, **metadata) -> NotebookNode:
    return v4.new_markdown_cell(source, metadata=metadata)


def note(source: str) -> NotebookNode:
    return text(source, slideshow={"slide_type": "notes"})


def code(source: str, html: str | None = None, **metadata) -> NotebookNode:
    outputs = [v4.new_output("display_data", {"text/html": html, "text/plain": ""})] if html else []
    return v4.new_code_cell(source, outputs=outputs, metadata=metadata)


def deck(*cells: NotebookNode, instructor: bool = False) -> Deck:
    notebook = v4.new_notebook(cells=[text(TITLE), *cells])
    cut(notebook)
    return slides.deck_of(notebook, page_of(Path("03_halves.ipynb"), notebook), instructor)


def content(made: Deck) -> str:
    """The HTML of the slides alone."""
    return re.search(r'<div class="slides">.*?</div>\n<script>', made.html(), re.S)[0]


def asking(view: View) -> NotebookNode:
    return v4.new_code_cell("ask()", outputs=[v4.new_output("display_data", view._repr_mimebundle_()[0])])


def notes_of(made: Deck) -> list[list[str]]:
    """The words of the notes of each slide, column by column."""
    return [[words_of("".join(slide.notes)) for slide in column] for column in made.columns]


def shown(*cells: NotebookNode, instructor: bool = False) -> list[list[str]]:
    """The words on each slide, column by column, without the title's."""
    columns = deck(*cells, instructor=instructor).columns
    return [[words_of("".join(slide.parts)) for slide in column] for column in columns[1:]]


def test_the_first_slide_has_number_topic_and_question():
    (slide,) = deck().columns[0]
    assert words_of("".join(slide.parts)) == "03 Halves & more What is half? Needs nothing."
    html = deck().html()
    assert "<title>03 Halves &amp; more · TinyLM</title>" in html and 'class="leaf title"' in html


def test_each_section_is_a_column_that_names_it_on_every_slide_below_the_question_of_the_lesson():
    cells = (
        text("## 1. One\nIt is so. Who thanked whom?"),
        text("### More\nWords."),
        text("Words.\n\n## 2. Two\nMore."),
        text("## Sources\n- *What Is a Half?*"),
    )
    made = deck(*cells)
    columns = made.columns[1:]
    assert [[slide.section for slide in column] for column in columns] == [["1. One"] * 2, ["2. Two"], ["Sources"]]
    html = made.html()
    assert html.count("<b>1. One</b>") == 1 and html.count('<span class="question">What is half?</span>') == 5
    assert html.count('<span class="question">') == 5


def test_a_link_leads_to_the_slide_of_its_section():
    html = deck(text("## 1. One half\nWords."), text("See [it](#1.-One-half).")).html()
    anchor = re.search(r'<section id="([\w-]+)" class="leaf section">', html)[1]
    assert f'<a href="#{anchor}">it</a>' in html
    with pytest.raises(ValueError, match="a link leads to 'Two'"):
        deck(text("See [it](#Two).")).html()


def test_students_get_no_solution_and_no_note():
    cells = (
        text("## 1. One\nTry."),
        code(SOLVED, **EXERCISE),
        text("Exponents first.", tags=["solution"]),
        note("Ask."),
    )
    ((section, task, hints),) = shown(*cells)
    assert section == "1. One Try." and "def softmax(x, dim):" in task and "Probabilities along dim." in task
    assert "Exercise: softmax Difficulty 2 of 5, about 8 minutes." in task and task.endswith("...")
    assert hints.startswith("Hints: softmax")
    html = content(deck(*cells))
    assert not any(word in html for word in ("secret", "Exponents first", "Ask.", "notes"))
    assert "RevealNotes=" not in deck(*cells).html()


def test_the_instructor_gets_exercise_hints_and_solution_one_after_the_other():
    cells = (text("## 1. One\nTry."), code(SOLVED, **EXERCISE), text("Exponents first.", tags=["solution"]))
    ((_, task, hints, solution),) = shown(*cells, instructor=True)
    assert "return" not in task and hints.startswith("Hints")
    assert (
        solution.startswith("Solution: softmax def softmax(x, dim): secret = x.exp()")
        and "Probabilities" not in solution
    )
    assert solution.endswith("Exponents first.")
    hint = deck(*cells, instructor=True).columns[1][2].parts[0]
    assert hint.count('<li class="fragment">') == hint.count("<li") - 1 >= 1  # the first one is there at once


def test_a_note_that_introduces_a_section_is_read_there_and_the_others_where_they_are():
    cells = (note("Of the lesson."), code("import math"), note("**Say.** Of one."), text("## 1. One\nWords."))
    made = deck(*cells, note("Of it."), text("## 2. Two\nWords."), instructor=True)
    notes = notes_of(made)
    assert notes[0][0].startswith("To jump, press G") and notes[0][0].endswith("Of the lesson.")
    assert notes[1:] == [["Say. Of one. Of it."], [""]]
    assert content(made).count('<aside class="notes">') == 2 and "RevealNotes=" in made.html()


def test_a_prediction_and_an_exercise_have_their_answers_and_the_first_that_knows_a_name_has_it():
    number = predict("Half of 4?", key=lambda: 2, number="of it", within=0, because="It is.", feedback={90.0: "No."})
    choices = predict("Which?", key=lambda: "low", choices={"low": "", "High again": "No."}, because="So.")
    cells = (note(USUAL), text("## 1. One\nTry."), asking(number), asking(choices), code(SOLVED, **EXERCISE))
    made = deck(*cells, asking(choices), text("## 2. Two\nMore."), asking(choices), instructor=True)
    (first, half, which, exercise, hints, solution, again), (_, later) = notes_of(made)[1:]
    assert all(name in first for name in ("ninety", "high again", "the first axis", "nobody knows it"))
    assert half == "Answer. 2 of it. It is. Usual answers. ninety (90): Is 90 half?"
    assert (
        which
        == "Answer. low. So. Usual answers. the higher (high again): Which is it? the lower (low, the right one): Yes."
    )
    assert exercise == "Usual answers. the first axis (first axis, or fixed axis): dim says which."
    assert hints == solution == "" and again == later == "Answer. low. So."
    assert "Is 90" not in content(deck(*cells))


def test_a_section_that_a_plan_leaves_out_says_where_that_plan_continues():
    sections = [text(f"## {i}. Part\nTry.", tinylm={"plan": plan}) for i, plan in ((1, 50), (2, 80), (3, 110), (4, 80))]
    exercises = [code(SOLVED, tags=["exercise"], tinylm=EXERCISE["tinylm"] | {"plan": 80}) for _ in range(2)]
    sections[1:] = [exercises[0], *sections[1:], exercises[1], text("## What you have now\n- It.")]
    made = deck(*sections, instructor=True)
    first, *notes = [column[0] for column in notes_of(made)[1:]]
    assert first == "" and notes == [
        "From the plan of 80 minutes. With less time go to What you have now: G, 6, Enter.",
        "From the plan of 110 minutes. With less time go to 4. Part: G, 5, Enter.",
        "From the plan of 80 minutes. With less time go to What you have now: G, 6, Enter.",
        "",
    ]
    assert notes_of(made)[1][1] == "From the plan of 80 minutes. With less time this exercise is homework."
    assert notes_of(made)[4][1] == ""


@pytest.mark.parametrize("lesson", ["06_positions", "11_training"])
def test_each_prediction_and_exercise_has_its_usual_answers(lesson):
    notebook = nbformat.read(NOTEBOOKS / "solutions" / f"{lesson}.ipynb", as_version=4)
    made = slides.deck_of(notebook, page_of(Path(f"{lesson}.ipynb"), notebook), instructor=True)
    all_slides = [slide for column in made.columns for slide in column]
    asks = [slide for slide in all_slides if slide.kind == "exercise" or "fragment answer" in "".join(slide.parts)]
    silent = [words_of("".join(slide.parts))[:90] for slide in asks if "Usual answers." not in "".join(slide.notes)]
    assert len(asks) > 5 and silent == []


def test_plumbing_and_what_the_source_skips_is_not_on_the_slides():
    skipped = text("Left out.", slideshow={"slide_type": "skip"})
    assert shown(text("## 1. One\nWords."), code("import math"), skipped, code("hint('f')", "<p>a</p>")) == [
        ["1. One Words."]
    ]


def test_code_of_more_than_twelve_lines_shows_its_essential_ones_and_all_on_a_button():
    (column,) = deck(text("## 1. One\nWords."), code(LONG, tinylm={"essential": [[3, 4], [18, 19]]})).columns[1:]
    html = column[-1].parts[-1]
    part, _, whole = html.partition("<details>")
    assert re.findall(r"x\d+", words_of(part)) == ["x3", "x4", "x18", "x19"] and "data-unmarked" not in html
    assert re.findall(r"⋯ \d+ lines?", part) == ["⋯ 2 lines", "⋯ 13 lines", "⋯ 1 line"]
    assert whole.startswith("<summary>All 20 lines</summary>") and len(re.findall(r"x\d+", words_of(whole))) == 20


def test_without_marks_its_last_lines_are_shown_and_the_slides_are_open():
    (column,) = deck(text("## 1. One\nWords."), code(LONG)).columns[1:]
    part = column[-1].parts[-1].partition("<details>")[0]
    assert re.findall(r"x\d+", words_of(part)) == [f"x{i}" for i in range(9, 21)] and "data-unmarked" in part
    (column,) = deck(text("## 1. One\nWords."), code("def f():\n    pass\n\n\n" * 3 + "f()\n" * 3)).columns[1:]
    assert "<details>" not in column[-1].parts[-1] and "data-unmarked" not in column[-1].parts[-1]


def test_hidden_code_is_not_shown_and_a_call_for_a_picture_is_on_a_button():
    hidden = code("y = 1", "<p>seen</p>", jupyter={"source_hidden": True})
    assert shown(text("## 1. One\nWords."), hidden)[0][1] == "seen"
    ((_, slide),) = (column for column in deck(text("## 1. One\nWords."), code("look()", "<p>a</p>")).columns[1:])
    assert '<details class="source"><summary>Code</summary>' in slide.parts[0]
    ((_, slide),) = (column for column in deck(text("## 1. One\nWords."), code("look()\n" * 5, "<p>a</p>")).columns[1:])
    assert "<details" not in slide.parts[0] and "look" in slide.parts[0]


def test_the_answer_of_a_prediction_comes_on_a_key_and_then_what_prints_it():
    said = {"number": "of it", "because": "It is.", "feedback": {1: "No."}}
    view = predict("Half of 4?", key=lambda: 2, within=0, **said)
    answer = v4.new_code_cell("print(2)", outputs=[v4.new_output("stream", name="stdout", text="2\n")])
    made = deck(text("## 1. One\nWords."), asking(view), answer)
    question, printed = made.columns[1][1].parts
    assert question.count('<span class="fragment answer"></span>') == 1 and 'data-view="predict"' in question
    assert printed.startswith('<div class="part fragment">') and made.modules == {"predict"}
    assert made.html().count("views.predict = {") == 1


@pytest.mark.parametrize("instructor", [False, True])
def test_nothing_is_fetched(instructor):
    html = deck(text("## 1. One\nWords."), code(SOLVED, **EXERCISE), instructor=instructor).html()
    page = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not OUTSIDE.search(page) and "url(" not in re.sub(r"url\(\"?data:", "", page)
    with pytest.raises(ValueError, match=r"03_halves\.html: a page fetches nothing"):
        deck(text('<img src="https://x.org/a.png">'), instructor=instructor).html()


@pytest.fixture
def course(tmp_path) -> Path:
    """A folder with two built lessons."""
    folder = tmp_path / "notebooks" / "solutions"
    folder.mkdir(parents=True)
    for number in ("03", "04"):
        nbformat.write(v4.new_notebook(cells=[text(TITLE.replace("03", number))]), folder / f"{number}_halves.ipynb")
    return tmp_path / "notebooks"


def test_the_command_line_writes_all_slides_or_those_named(course, tmp_path, capsys):
    assert slides.main(["--to", str(tmp_path / "to")], course) == 0
    assert slides.main(["04", "--to", str(tmp_path / "to"), "--instructor"], course) == 0
    names = ("03_halves.html", "04_halves.html", "04_halves_instructor.html")
    assert capsys.readouterr().out.split() == [str(tmp_path / "to" / name) for name in names]
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == list(names)
    assert slides.main(["09", "--to", str(tmp_path / "to")], course) == 1
    assert capsys.readouterr().err == "no built lesson 09; there are 03, 04: run make notebooks\n"


def test_a_handout_without_a_browser_says_what_to_do(course, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(handout, "find_chromium", lambda: None)
    assert slides.main(["03", "--to", str(tmp_path / "to"), "--pdf"], course) == 1
    assert (
        "a handout needs Chromium, Chrome or Edge, and none was found: install one, or open file:"
        in capsys.readouterr().err
    )
