"""Decks: which cells are slides, what of a cell is on one, where a note is read, and what is missing."""

import re
from pathlib import Path

from nbformat import NotebookNode, v4

from tinylm_classroom.course.cells import page_of, words_of
from tinylm_classroom.course.deck import Deck
from tinylm_classroom.course.lesson.slides import deck_problems, mark
from tinylm_classroom.views.base import MIME
from tinylm_classroom.views.predict import predict

TITLE = "# 03 Halves\n**What is half?**\n\n*Needs* nothing."
SOLVED = '''# Exercise softmax: difficulty 2 of 5, about 8 minutes
def softmax(x, dim):
    """Probabilities along dim."""
    secret = x.exp()
    return secret / secret.sum(dim, keepdim=True)'''
MIXED = """## 2. Two
Words that are said, and $x$.

$$y = \\frac{x}{2}$$

> Half of it.

- one
  - and its half

| a | b |
|---|---|
| 1 | 2 |

More words."""
USUAL = "**Say.** Halves.\n\n**Usual answers.**\n- *ninety* (`90`): Is 90 half?\n\n**Cut if short.** Nothing."


def facts(deck: str = "", kind: str = "", **more) -> dict:
    known = {"tinylm": {"deck": deck}} if deck else {}
    known |= {"slideshow": {"slide_type": kind}} if kind else {}
    return known | more


def text(source: str, deck: str = "", kind: str = "", **metadata) -> NotebookNode:
    return v4.new_markdown_cell(source, metadata=facts(deck, kind, **metadata))


def note(source: str) -> NotebookNode:
    return text(source, kind="notes", tags=["note"])


def code(source: str, deck: str = "", html: str = "", printed: str = "", **metadata) -> NotebookNode:
    outputs = [v4.new_output("display_data", {"text/html": html, "text/plain": ""})] if html else []
    outputs += [v4.new_output("stream", name="stdout", text=printed)] if printed else []
    return v4.new_code_cell(source, outputs=outputs, metadata=facts(deck, **metadata))


def asked(deck: str) -> NotebookNode:
    said = {"number": "of it", "because": "It is.", "feedback": {90.0: "No."}}
    bundle = predict("Half of 4?", key=lambda: 2, within=0, **said)._repr_mimebundle_()[0]
    return v4.new_code_cell("ask(4)", outputs=[v4.new_output("display_data", bundle)], metadata=facts(deck))


def exercise(deck: str) -> NotebookNode:
    return code(SOLVED, tags=["exercise"], tinylm={"name": "softmax", "difficulty": 2, "minutes": 8, "deck": deck})


def lesson(*cells: NotebookNode) -> NotebookNode:
    """A notebook whose slides are marked."""
    title = v4.new_markdown_cell(TITLE, metadata={"tinylm": {"deck": "the question"}})
    notebook = v4.new_notebook(cells=[title, *cells])
    mark(notebook)
    return notebook


def deck(*cells: NotebookNode, instructor: bool = False) -> Deck:
    notebook = lesson(*cells)
    return Deck(notebook, page_of(Path("03_halves.ipynb"), notebook), instructor)


def titles(made: Deck) -> list[list[str]]:
    """The title of each slide, column by column."""
    return [[words_of(slide.title) for slide in column] for column in made.columns[1:]]


def shown(made: Deck) -> list[str]:
    """The words below the titles."""
    return [words_of("".join(slide.parts)) for column in made.columns[1:] for slide in column]


def test_only_the_cells_with_a_title_are_slides_in_their_order_and_steps_are_below():
    cells = (text("## 1. One\nWords.", "It is so"), text("Words."), code("print(1)", "One", printed="1"))
    made = deck(*cells, code("print(2)", "And `two`", printed="2", slideshow={"slide_type": "subslide"}))
    assert titles(made) == [["It is so"], ["One", "And two"]]
    assert words_of("".join(made.columns[0][0].parts)) == "03 Halves What is half?"


def test_the_stored_slide_types_are_those_of_the_deck():
    cells = [text("## 1. One", "One"), text("Words."), note("**Say.** It."), code("x = 1", "Two", slideshow={})]
    cells += [code("x", "Three", slideshow={"slide_type": "subslide"}), code("x", slideshow={"slide_type": "slide"})]
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in lesson(*cells).cells]
    assert kinds == ["slide", "slide", "skip", "notes", "slide", "subslide", "skip"]


def test_of_a_text_only_formulas_quotations_lists_and_tables_are_shown():
    made = deck(text(MIXED, "Half"), text("## 3. Three\nWords.", "A title alone"))
    both, alone = shown(made)
    assert "said" not in both and "2. Two" not in both and "More" not in both
    html = "".join(made.columns[1][0].parts)
    assert all(part in html for part in ('<math xmlns="http', "Half of it.", "and its half", "<td>1</td>"))
    assert alone == "" and 'class="leaf written  alone"' in made.html()


def test_code_shows_its_outputs_and_a_few_lines_unless_it_is_folded_or_draws():
    printed = code("y = 2 * x\nprint(y)", "Twice", printed="4")
    folded = code("y = 2 * x\nprint(y)", "Folded", printed="4", jupyter={"source_hidden": True})
    drawn = code("figures.draw(x)", "Drawn", "<p>picture</p>")
    tried = code("y = 3\ndraw(y)", "Tried", "<p>picture</p>")
    marked = code("a = 1\nb = 2\nc = 3", tinylm={"deck": "Marked", "essential": [[2, 2]]})
    made = deck(text("## 1. One"), printed, folded, drawn, tried, asked("Half of 4?"), marked)
    first, second, third, fourth, fifth, sixth = shown(made)
    assert first == "y = 2 * xprint(y) 4" and second == "4" and third == fourth == "picture"
    assert "ask(4)" not in fifth and re.match(r"⋯ 1 line *b = 2 *⋯ 1 line *All 3 lines", sixth)
    assert made.modules == {"predict"} and made.html().count('class="fragment answer"') == 1


def test_the_note_of_a_section_is_read_on_its_first_slide_and_nothing_noted_is_lost():
    figure = "<figure><img><figcaption>How to <b>read</b> it.</figcaption></figure>"
    cells = (
        note("Plans."),
        note("**Say.** One."),
        text("## 1. One"),
        text("Words."),
        note("Of it."),
        code("x", "First"),
    )
    cells += (code("draw()", "Second", figure), text("So (see). ([section 1](#1-one))"), text("It is so."))
    cells += (note("**Say.** Two."), text("## 2. Two"), note("**Say.** Three."))
    cells += (text("## 3. Three", "Third"), note("Here."), note("**Say.** End."), text("## Sources"))
    notes = [words_of("".join(column[0].notes)) for column in deck(*cells, instructor=True).columns]
    assert notes[0].startswith("To jump, press G") and notes[0].endswith("Sections. 1. One: 2; 3. Three: 4 Plans.")
    read = ["Say. One. Of it. Text. Words.", "Picture. How to read it. Text. So (see). Text. It is so."]
    assert notes[1:] == [*read, "Say. Two. Say. Three. Here. Say. End."]
    students = deck(*cells)
    assert not any(slide.notes for column in students.columns for slide in column)


def test_an_exercise_has_its_stub_and_hints_and_for_the_instructor_its_solution_and_explanation():
    cells = (note(USUAL), text("## 1. One"), exercise("Your turn"), text("Exponents first.", tags=["solution"]))
    made = deck(*cells)
    assert titles(made) == [["Your turn"], [""]] and "secret" not in made.html() and "Exponents" not in made.html()
    stub, hints = shown(made)
    assert stub.startswith("Exercise: softmax Difficulty 2 of 5") and stub.endswith("...") and hints.startswith("Hints")
    made = deck(*cells, instructor=True)
    assert titles(made) == [["Your turn"], ["", ""]] and "secret" in shown(made)[2]
    assert words_of("".join(made.columns[2][1].notes)) == "Exponents first."
    assert titles(deck(text("## 1. One", "One"), exercise(""), instructor=True)) == [["One"]]


def test_the_slide_of_an_exercise_has_the_first_lines_of_its_task():
    task = SOLVED.replace("along dim.", "along dim.\n\n    Of any sizes.\n    ")
    cell = code(task, tags=["exercise"], tinylm={"name": "softmax", "difficulty": 2, "minutes": 8, "deck": "Yours"})
    stub = shown(deck(text("## 1. One"), cell))[0]
    assert "Probabilities along dim. ..." in stub and "Of any sizes" not in stub


def test_a_view_that_the_model_answers_has_the_model_in_the_deck():
    def of(module: str, data: dict) -> bool:
        view = {MIME: {"module": module, "data": data}, "text/html": "a view"}
        cell = v4.new_code_cell("view()", outputs=[v4.new_output("display_data", view)], metadata=facts("A view"))
        return deck(text("## 1. One"), cell).needs_model

    assert [of("what_if", {"model": "f00"}), of("watch", {}), of("what_if", {})] == [True, True, False]


def test_wrapped_code_keeps_its_indentation():
    html = deck(text("## 1. One"), code("for x in y:\n    print(x)", "Loop", printed="1")).html()
    assert re.search(r'<span class="line">(<[^>]*>)*for', html)
    assert re.search(r'<span class="line" style="--indent: 4ch"> {4}', html)


def test_a_prediction_has_its_answer_and_the_usual_ones():
    made = deck(note(USUAL), text("## 1. One", "One"), asked("Half of 4?"), instructor=True)
    assert (
        words_of("".join(made.columns[2][0].notes)) == "Answer. 2 of it. It is. Usual answers. ninety (90): Is 90 half?"
    )


def test_a_link_leads_to_the_first_slide_of_a_section_or_to_the_next_one():
    links = "- [one](#1.-One) [two](#2.-Two) [sources](#Sources)"
    html = deck(
        text("## 1. One"), code("x", "First"), text("## 2. Two"), text(links, "Links"), text("## Sources")
    ).html()
    for name in ("one", "two", "sources"):
        (anchor,) = re.findall(rf'<a href="#([\w-]+)">{name}</a>', html)
        assert html.count(f'<span id="{anchor}"></span>') == 1


def test_what_a_deck_lacks_is_said():
    view = {MIME: {"module": "attention", "data": {}}, "text/html": ""}
    seen = v4.new_code_cell("view()", outputs=[v4.new_output("display_data", view)])
    cells = (code("assert x", "Wrong"), code("draw()", tags=["signature"]), seen, asked(""), code("x", "Wrong"))
    found = "\n".join(deck_problems(lesson(*cells)))
    for says in ("3 slides, at least 15", "a title of its own: 'Wrong'", "no assert on a slide: 'Wrong'"):
        assert says in found
    assert re.search(r"put the signature picture of cell \w+ on", found) and "put the attention of" in found
    assert found.count("\n") == 4
    full = [code("x", f"Slide {i}") for i in range(15)]
    folded = code("assert x", "Folded", jupyter={"source_hidden": True})
    marked = code("x\nassert x", tinylm={"deck": "Marked", "essential": [[1, 1]]})
    assert list(deck_problems(lesson(*full, folded, marked))) == []
    steps = [code("x", f"Step {i}", slideshow={"slide_type": "subslide"}) for i in range(30)]
    assert list(deck_problems(lesson(*full, *steps))) == []
