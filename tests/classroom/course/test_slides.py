"""Slides as HTML: what students do not get, whose answers an instructor reads where, and that nothing is fetched."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course import handout, slides
from tinylm_classroom.course.cells import OUTSIDE, page_of, words_of
from tinylm_classroom.course.deck import Deck
from tinylm_classroom.course.lesson.slides import mark
from tinylm_classroom.folders import NOTEBOOKS
from tinylm_classroom.views.base import View
from tinylm_classroom.views.predict import predict

TITLE = "# 03 Halves & more\n**What is\nhalf?**\n\n*Needs* nothing."
SOLVED = '''# Exercise softmax: difficulty 2 of 5, about 8 minutes
def softmax(x, dim):
    """Probabilities along dim."""
    secret = x.exp()
    return secret / secret.sum(dim, keepdim=True)'''
EXERCISE = {"tags": ["exercise"], "tinylm": {"name": "softmax", "difficulty": 2, "minutes": 8, "deck": "Yours"}}
LONG = "\n".join(f"x{i} = {i}" for i in range(1, 21))
USUAL = """**Say.** Halves.

**Usual answers.**
- *the first axis* (`first axis`, or `fixed axis`): `dim` says which.
- *ninety* (`90`): Is 90 half?
- *the higher* (`high again`): Which is it?
- *the lower* (`low`, the right one): Yes.
- *nobody knows it* (from the room): `low`, perhaps.

**Cut if short.** - *low*: Nothing."""


def text(source: str, title: str = "", **metadata) -> NotebookNode:
    return v4.new_markdown_cell(source, metadata={"tinylm": {"deck": title}} | metadata)


def note(source: str) -> NotebookNode:
    return text(source, slideshow={"slide_type": "notes"})


def code(source: str, title: str = "", **facts) -> NotebookNode:
    return v4.new_code_cell(source, metadata={"tinylm": {"deck": title} | facts})


def exercise(**facts) -> NotebookNode:
    return v4.new_code_cell(SOLVED, metadata=EXERCISE | {"tinylm": EXERCISE["tinylm"] | facts})


def deck(*cells: NotebookNode, instructor: bool = False) -> Deck:
    notebook = v4.new_notebook(cells=[text(TITLE, "the question"), *cells])
    mark(notebook)
    return Deck(notebook, page_of(Path("03_halves.ipynb"), notebook), instructor)


def content(made: Deck) -> str:
    """The HTML of the slides alone."""
    return re.search(r'<div class="slides">.*?</div>\n<script>', made.html(), re.S)[0]


def asking(view: View, title: str) -> NotebookNode:
    bundle = view._repr_mimebundle_()[0]
    outputs = [v4.new_output("display_data", bundle)]
    return v4.new_code_cell("ask()", outputs=outputs, metadata={"tinylm": {"deck": title}})


def notes_of(made: Deck) -> list[list[str]]:
    """The words of the notes of each slide, column by column."""
    return [[words_of("".join(slide.notes)) for slide in column] for column in made.columns]


def test_the_first_slide_has_number_topic_and_question():
    (slide,) = deck().columns[0]
    assert words_of("".join(slide.parts)) == "03 Halves & more What is half?"
    html = deck().html()
    assert "<title>03 Halves &amp; more · TinyLM</title>" in html and 'class="leaf title"' in html


def test_a_link_to_no_section_is_refused():
    with pytest.raises(ValueError, match="a link leads to 'Two'"):
        deck(text("- [it](#Two)", "Links")).html()


def test_students_get_no_solution_and_no_note():
    cells = (text("## 1. One\nTry."), exercise(), text("Exponents first.", tags=["solution"]), note("Ask."))
    html = content(deck(*cells))
    assert not any(word in html for word in ("secret", "Exponents first", "Ask.", "notes"))
    assert "RevealNotes=" not in deck(*cells).html() and "RevealNotes=" in deck(*cells, instructor=True).html()


def test_the_instructor_gets_hints_one_by_one_and_the_solution_without_its_words():
    hints, solution = deck(text("## 1. One"), exercise(), instructor=True).columns[-1]
    assert hints.parts[0].count('<li class="fragment">') == hints.parts[0].count("<li") - 1 >= 1
    assert words_of(solution.parts[0]).startswith("Solution: softmax def softmax(x, dim): secret = x.exp()")


def test_a_prediction_and_an_exercise_have_their_answers_and_the_first_that_knows_a_name_has_it():
    number = predict("Half of 4?", key=lambda: 2, number="of it", within=0, because="It is.", feedback={90.0: "No."})
    choices = predict("Which?", key=lambda: "low", choices={"low": "", "High again": "No."}, because="So.")
    cells = (note(USUAL), text("## 1. One", "One"), asking(number, "A"), asking(choices, "B"), exercise())
    cells += (asking(choices, "C"), text("## 2. Two", "Two"), asking(choices, "D"))
    made = deck(*cells, instructor=True)
    first, half, which, task, again, _, later, _ = [notes[0] for notes in notes_of(made)[1:]]
    assert all(name in first for name in ("ninety", "high again", "the first axis", "nobody knows it"))
    assert half == "Answer. 2 of it. It is. Usual answers. ninety (90): Is 90 half?"
    assert (
        which
        == "Answer. low. So. Usual answers. the higher (high again): Which is it? the lower (low, the right one): Yes."
    )
    usual = "Usual answers. the first axis (first axis, or fixed axis): dim says which."
    assert task == f"Homework, or a second hour. {usual}"
    assert again == later == "Answer. low. So." and "Is 90" not in content(deck(*cells))


@pytest.mark.parametrize("lesson", ["06_positions", "11_training"])
def test_each_prediction_and_exercise_has_its_usual_answers(lesson):
    notebook = nbformat.read(NOTEBOOKS / "solutions" / f"{lesson}.ipynb", as_version=4)
    made = Deck(notebook, page_of(Path(f"{lesson}.ipynb"), notebook), instructor=True)
    all_slides = [slide for column in made.columns for slide in column]
    asks = [slide for slide in all_slides if slide.kind == "exercise" or "fragment answer" in "".join(slide.parts)]
    silent = [words_of("".join(slide.parts))[:90] for slide in asks if "Usual answers." not in "".join(slide.notes)]
    assert len(asks) > 5 and silent == []


def test_code_shows_its_essential_lines_and_all_on_a_button():
    html = deck(text("## 1. One"), code(LONG, "Long", essential=[[3, 4], [18, 19]])).columns[1][0].parts[0]
    part, _, whole = html.partition("<details>")
    assert re.findall(r"x\d+", words_of(part)) == ["x3", "x4", "x18", "x19"]
    assert re.findall(r"⋯ \d+ lines?", part) == ["⋯ 2 lines", "⋯ 13 lines", "⋯ 1 line"]
    assert whole.startswith("<summary>All 20 lines</summary>") and len(re.findall(r"x\d+", words_of(whole))) == 20


@pytest.mark.parametrize("instructor", [False, True])
def test_nothing_is_fetched(instructor):
    html = deck(text("## 1. One"), exercise(), instructor=instructor).html()
    page = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert not OUTSIDE.search(page) and "url(" not in re.sub(r"url\(\"?data:", "", page)
    with pytest.raises(ValueError, match=r"03_halves\.html: a page fetches nothing"):
        deck(text('- <img src="https://x.org/a.png">', "Seen"), instructor=instructor).html()


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
