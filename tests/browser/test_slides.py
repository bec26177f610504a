"""Slides in a browser at 1280 x 720: what does not fit, lesson by lesson, their keys, the speaker view, the handout."""

import base64
import io
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from PIL import Image
from playwright.sync_api import Page, expect
from support.browser import SCREENSHOTS, findings
from support.decks import deck_findings

from tinylm_classroom.course.handout import handout
from tinylm_classroom.course.lesson.slides import mark
from tinylm_classroom.course.slides import write_slides
from tinylm_classroom.display.cards import fold
from tinylm_classroom.folders import NOTEBOOKS, lessons
from tinylm_classroom.views.one_word import one_word
from tinylm_classroom.views.predict import predict
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

SIZE = {"viewport": {"width": 1280, "height": 720}}
TITLE = "# 00 Halves\n**What is half?**\n\n*Needs* nothing."
FIGURE = '<figure><img alt="A line." width="400" data-points="9" src="data:image/png;base64,{}"></figure>'


@pytest.fixture(scope="module")
def decks(tmp_path_factory) -> Path:
    """The slides of all built lessons."""
    folder = tmp_path_factory.mktemp("slides")
    write_slides(NOTEBOOKS / "solutions", folder)
    return folder


@pytest.fixture
def open_deck(open_exported) -> Callable[..., Page]:
    """A function that opens slides from disk; a request, an error or a message on the console fails the test."""
    said = []

    def open_deck(path: Path, part: str = "", **options) -> Page:
        page = open_exported(path.as_uri() + part, **SIZE | options)
        page.on("console", lambda message: said.append(message.text))
        page.wait_for_function("window.Reveal?.isReady()")
        return page

    yield open_deck
    assert said == []


@pytest.fixture
def open_made(open_deck, tmp_path) -> Callable[..., Page]:
    """A function that opens the slides that these cells are, by their titles, at the first of them."""

    def open_made(cells: dict, *notes, instructor: bool = False, **options) -> Page:
        title = v4.new_markdown_cell(TITLE, metadata={"tinylm": {"deck": "the question"}})
        for says, cell in cells.items():
            cell.metadata |= {"tinylm": {"deck": says}}
        section = v4.new_markdown_cell("## 1. One\nWords.")
        notebook = v4.new_notebook(cells=[title, *notes, section, *cells.values()])
        mark(notebook)
        nbformat.write(notebook, tmp_path / "00_halves.ipynb")
        (path,) = write_slides(tmp_path, tmp_path / "to", instructor=instructor)
        return open_deck(path, "#/2", **options)

    return open_made


def html(text: str, source: str = "look()"):
    """A cell that shows some HTML."""
    return v4.new_code_cell(source, outputs=[v4.new_output("display_data", {"text/html": text, "text/plain": ""})])


def thin_picture() -> str:
    """A figure that is four times as high as wide, so that its text of 9 points is small on a slide."""
    buffer = io.BytesIO()
    Image.new("RGB", (20, 80)).save(buffer, format="png")
    return FIGURE.format(base64.b64encode(buffer.getvalue()).decode())


def asked():
    """A cell that asks for a prediction, and one that prints its answer."""
    choices = {"one": "Half of 2.", "two": "", "three": "Half of 6."}
    view = predict("What is half of 4?", key=lambda: "two", choices=choices, because="Twice two is four.")
    question = v4.new_code_cell("", outputs=[v4.new_output("display_data", view._repr_mimebundle_()[0])])
    question.source = "ask()"
    return question, v4.new_code_cell("print(2)", outputs=[v4.new_output("stream", name="stdout", text="it is 2")])


@pytest.mark.parametrize("number", sorted(lessons()))
def test_the_slides_of_a_lesson_fit(open_deck, decks, number):
    (path,) = decks.glob(f"{number}_*.html")
    page = open_deck(path)
    found = deck_findings(page, number)
    n_slides = page.locator("section.leaf").count()
    print(f"{path.stem}: {n_slides} slides, {len(found)} findings", *found, sep="\n")
    assert found == []


def test_a_film_plays_one_of_its_16_stops_at_each_key(open_made):
    shipped = load_pretrained("storyworld")
    view = one_word(shipped.model.eval(), shipped.tokenizer, "\nOne dark evening, calm Mia ran to Foxhollow.")
    bundle = {kind: data for kind, data in view._repr_mimebundle_()[0].items() if "widget" not in kind}
    film = v4.new_code_cell("", outputs=[v4.new_output("display_data", bundle)])
    page = open_made({"A film": film, "After it": v4.new_markdown_cell("> It is over.")})
    says = page.locator(".one_word .say")
    expect(says).to_contain_text("it went from “Often” to “He” to “She”")
    for what in ("Which word comes next?", "Each token has an id", "picks a row of the embedding"):
        page.keyboard.press("ArrowRight")
        expect(says).to_contain_text(what)
    page.keyboard.press("ArrowLeft")
    expect(says).to_contain_text("Each token has an id")
    for _ in range(14):
        page.keyboard.press("ArrowRight")
    expect(says).to_contain_text("A random number from 0 to 1")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices().h") == 2
    assert deck_findings(page, "00") == []


def test_what_does_not_fit_is_found(open_made):
    table = "<table>" + "".join(f"<tr><td>row {i}</td></tr>" for i in range(30)) + "</table>"
    rows = "| name | value |\n|---|---|\n" + "\n".join(f"| row {i} | {i} |" for i in range(40))
    view = '<div class="tinylm-view"><b style="font-size: 15px">0.12</b> <b style="font-size: 25px">twelve</b></div>'
    cells = {
        "Much": v4.new_markdown_cell(rows), "Small": html(view), "A sentence " * 20: html(thin_picture()),
        "Wide": html(f'<div style="height: 640px">{"wide" * 60}</div>'),
        "Cut": html(f'<div style="overflow: auto; height: 90px">{table}</div>'),
    }  # fmt: skip
    found = deck_findings(open_made(cells), "00")
    for what in (
        "2.2: its one thing is divided", "3.1: text of 25.0 px in the view: twelve",
        "4.1: the title has more than", "5.1: the card overflows by", "5.1: the card is too wide by",
        "6.1: the table overflows by",
    ):  # fmt: skip
        assert any(what in line for line in found), (what, found)
    assert not any("0.12" in line for line in found)


def test_a_slide_shows_its_one_thing_large_and_a_title_alone_in_the_middle(open_made):
    question, printed = asked()
    formula, wide = (
        v4.new_markdown_cell("$$y = \\frac{x}{2}$$"),
        thin_picture().replace('width="400" data-points="9"', 'width="100" data-points="18"'),
    )
    cells = {"It is half": v4.new_markdown_cell("Said."), "The formula": formula, "Four": question, "Two": printed}
    page = open_made(cells | {"A picture": html(wide), "Code": v4.new_code_cell("y = x / 2\ny")})
    assert deck_findings(page, "00") == [] and page.locator("section.leaf").count() == 7
    heading = page.get_by_role("heading", name="It is half")
    page.evaluate("Reveal.slide(1)")
    middle = heading.evaluate(
        "node => { const at = node.getBoundingClientRect(); return [at.left + at.width / 2, at.top + at.height / 2] }"
    )
    assert middle == pytest.approx([640, 360], abs=30)
    page.evaluate("Reveal.slide(5)")
    assert page.locator("figure img").bounding_box()["height"] > 550
    expect(page.locator(".leaf.present:visible .page")).to_have_text("6")


def test_long_tables_lists_and_outputs_are_divided_and_nothing_is_lost(open_made):
    rows = "| name | value |\n|---|---|\n" + "\n".join(f"| row {i} | {i} |" for i in range(40))
    items = "\n".join(f"{i}. item {i} " + "and what is said of it " * 5 for i in range(1, 15))
    printed = v4.new_output("stream", name="stdout", text="\n".join(f"line {i}" for i in range(60)))
    cells = {"Rows": v4.new_markdown_cell(rows), "Items": v4.new_markdown_cell(items)}
    page = open_made(cells | {"Lines": v4.new_code_cell("print()", outputs=[printed])})
    assert {line.partition(": ")[2] for line in deck_findings(page, "00")} == {"its one thing is divided"}
    assert page.locator(".slides").text_content().count("line 59") == 1
    first = "cells => cells.map(cell => cell.textContent)"
    assert page.locator("tbody td:first-child").evaluate_all(first) == [f"row {i}" for i in range(40)]
    assert page.locator("thead").count() > 1
    numbers = "lists => lists.flatMap(list => [...list.children].map((_, i) => list.start + i))"
    assert page.locator("ol").evaluate_all(numbers) == list(range(1, 15))


def test_a_key_gives_the_answer_and_another_what_prints_it(open_made):
    page = open_made(dict(zip(("Half?", "Two"), asked(), strict=True)))
    verdict, printed = page.locator(".present .present .verdict"), page.locator(".present .present .output .line")
    right = page.locator(".present .present label.right")
    expect(verdict).to_be_empty()
    page.keyboard.press("ArrowRight")
    expect(verdict).to_have_text("The answer: two. Twice two is four.")
    expect(right).to_contain_text("two")
    expect(printed).to_have_count(0)
    page.keyboard.press("ArrowRight")
    expect(printed).to_have_text("it is 2")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(verdict).to_be_empty()
    assert right.count() == 0


def test_a_view_keeps_its_keys_and_gives_them_back(open_made):
    page = open_made(dict(zip(("Half?", "Then"), asked(), strict=True)))
    page.get_by_label("one").check()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_label("two")).to_be_checked()
    page.get_by_role("button", name="Check my guess").click()
    verdict = page.locator(".present .present .verdict")
    expect(verdict).to_contain_text("Right")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices()").get("f") == -1
    page.keyboard.press("PageDown")  # what a presenter's remote control sends
    expect(verdict).to_have_text("The answer: two. Twice two is four.")
    page.get_by_label("one").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="Then")).to_be_visible()


def test_g_and_the_number_of_a_slide_go_there(open_made):
    step = html("<p>more</p>")
    step.metadata["slideshow"] = {"slide_type": "subslide"}
    page = open_made({"One": html("<p>one</p>"), "Two": html("<p>two</p>"), "More": step})
    for typed, number in {"3": "3.1", "2": "2", "3.2": "3.2"}.items():
        page.keyboard.press("g")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        expect(page.locator(".leaf.present:visible .page")).to_have_text(number)
        page.evaluate("new Promise((done) => setTimeout(done, 50))")  # reveal.js closes the box again 1 ms after it


def test_what_is_folded_opens_over_the_slide(open_made):
    page = open_made({"Much": html(f"<div>{fold('The numbers', '<p>seven</p>')}</div>"), "Then": html("<p>then</p>")})
    page.get_by_role("button", name="The numbers").click()
    expect(page.get_by_text("seven", exact=True)).to_be_visible()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices()")["h"] == 1
    page.keyboard.press("Escape")
    expect(page.get_by_text("seven", exact=True)).to_be_hidden()
    assert not page.evaluate("Reveal.isOverview()")


def test_d_goes_to_the_dark_and_back(open_made):
    cells = {"Half?": asked()[0]}
    page = open_made(cells, color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.keyboard.press("d")
    dark = page.evaluate(paper)
    assert light != dark
    page.keyboard.press("d")
    assert page.evaluate(paper) == light
    dark_first = open_made(cells, color_scheme="dark")
    assert dark_first.evaluate(paper) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_slides_have_no_serious_finding(open_deck, decks, scheme):
    page = open_deck(decks / "06_positions.html", color_scheme=scheme)
    for slide in ("#/1", "#/2", "#/3/2", "#/5/2", "#/5/4"):
        page.evaluate("place => { location.hash = place }", slide)
        page.wait_for_timeout(300)
        page.screenshot(path=SCREENSHOTS / f"slides{slide.replace('/', '-').replace('#', '')}-{scheme}.png")
        assert findings(page, ".slides section.leaf.present") == []


def test_the_speaker_view_has_notes_next_slide_and_clock(open_made):
    note = v4.new_markdown_cell("**Say.** Ask who knows.", metadata={"slideshow": {"slide_type": "notes"}})
    page = open_made({"Now": html("<p>now</p>"), "Then": html("<p>then</p>")}, note, instructor=True)
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    speaker = opened.value
    expect(speaker.locator(".speaker-controls-notes")).to_contain_text("Ask who knows.")
    expect(speaker.locator(".clock-value")).to_contain_text(":")
    expect(speaker.frame_locator("#current-slide iframe").get_by_role("heading", name="Now")).to_be_visible()
    expect(speaker.frame_locator("#upcoming-slide iframe").get_by_role("heading", name="Then")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(speaker.frame_locator("#current-slide iframe").get_by_role("heading", name="Then")).to_be_visible()
    speaker.keyboard.press("ArrowLeft")
    expect(page.get_by_role("heading", name="Now")).to_be_visible()


def test_the_speaker_view_opens_at_the_slide_that_is_shown(open_made):
    names = ("One", "Two", "Three", "Four")
    page = open_made({name: html(f"<p>{name}</p>") for name in names}, instructor=True)
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="Three")).to_be_visible()
    with page.expect_popup() as opened:
        page.keyboard.press("s")
    shown = opened.value.frame_locator("#current-slide iframe")
    expect(shown.get_by_role("heading", name="Three")).to_be_visible()
    expect(page.get_by_role("heading", name="Three")).to_be_visible()


def test_students_slides_have_no_speaker_view(open_made):
    page = open_made({"Half?": asked()[0]})
    page.keyboard.press("s")
    assert len(page.context.pages) == 1


def test_a_handout_is_printed(open_made, tmp_path):
    open_made({"Half?": asked()[0]})
    path = handout(tmp_path / "to" / "00_halves.html")
    text = path.read_bytes()
    assert path.name == "00_halves.pdf" and text.startswith(b"%PDF") and text.count(b"/Type /Page\n") == 1
