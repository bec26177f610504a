"""Views where they are met: in JupyterLab, in a notebook that was only opened, in an exported page, and by nbval."""

import json
import re

import pytest
import torch
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect
from support.browser import (
    NOTEBOOK,
    OPENING,
    SAMPLE,
    SCREENSHOTS,
    ZOOMED,
    assert_fits,
    assert_on_one_screen,
    enter,
    findings,
    nbval,
    rows_of,
)

from tinylm_classroom.shapes.capture import capture
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld.lookback import share_told, told_by

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
story = "\n careful Mia had a red kite."
attention_view(ready.model, ready.tokenizer, story, layer=1, head=1)

# %%
told = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"
attention_view(ready.model, ready.tokenizer, told, layer=2)

# %% tags=["source-hidden"]
told = {"Tom": "Tom is a person, nobody asked for `one`.", "kite": ""}
predict("Which word?", choices=told, key=lambda: "kite", because="It flies.")

# %%
told = {8.0: "That is in bits."}
key = lambda: math.log(256)
predict("What costs a letter?", number="nats", within=0.05, key=key, because="It is ln 256.", feedback=told)

# %%
key = lambda: torch.zeros(4, 15).shape
predict("Which shape?", shape="(T, S)", key=key, because="Queries, then keys.", feedback={(15, 4): "Turned over."})

# %%
key = lambda: ["c", "a", "b"]
predict("Which order?", ranking=["a", "b", "c"], key=key, because="So it is.")

# %%
print("the end")
"""
)
STORY = "\nOne foggy afternoon, careful Carlos came to Hillcrest. He had a pink"
STATES = "application/vnd.jupyter.widget-state+json"
STATE = f"[{NOTEBOOK}.content].map(book => [book.activeCellIndex, book.widgets.length])[0]"


def first(page: Page):
    return page.locator(".tinylm-view.attention").first


def cell(page: Page, row: int, column: int):
    return first(page).locator(f'td[data-i="{row}"][data-j="{column}"]')


def move_the_view(page: Page) -> None:
    """Moves the attention view by mouse and by keyboard, and looks at what it says."""
    view, say = first(page), first(page).locator(".say")
    words = view.locator(".sentence span").all_inner_texts()
    assert words == ["↵", "careful", "Mia", "had", "a", "red", "kite", "."]
    expect(say).to_contain_text("“.” gives")
    cell(page, 3, 1).hover()
    expect(say).to_contain_text("had gives")
    page.mouse.move(0, 0)
    expect(say).to_contain_text("“.” gives")
    cell(page, 4, 2).click()
    expect(say).to_contain_text("a gives")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(cell(page, 3, 1)).to_be_focused()
    expect(view.locator("[role=status]").first).to_contain_text("had gives")
    page.keyboard.press("End")
    expect(say).to_have_text("had may not look at “.”: it comes later.")
    view.get_by_role("radio", name="q · k").check()
    expect(say).to_contain_text("their dot product is")
    assert view.locator("td.hatched").count() == 0
    view.get_by_role("radio", name="q · k").press("ArrowRight")
    expect(view.get_by_role("radio", name="÷ √32")).to_be_checked()
    view.get_by_role("radio", name="mix").check()
    expect(view.locator(".strips svg")).to_have_count(4)
    view.get_by_role("radio", name="softmax").check()
    assert view.locator("td.hatched").count() == 8 * 7 / 2
    assert all(abs(sum(map(float, filter(None, row))) - 1) <= 0.04 for row in rows_of(view.locator("tbody tr")))
    before = cell(page, 7, 2).inner_text()
    view.get_by_role("group", name="Head").get_by_role("radio", name="3").check()
    assert cell(page, 7, 2).inner_text() != before


def read_story(page: Page) -> None:
    """The second view: layers, all heads at once, and what StoryWorld tells, with the numbers of Python."""
    view = page.locator(".tinylm-view.attention").nth(1)
    weights, told = told_in_python()
    share = share_told(weights, told)
    view.get_by_role("radio", name="all heads").check()
    maps = view.locator(".maps label")
    assert maps.all_inner_texts() == [f"{100 * x:.0f} %" for x in share.heads.flatten()]
    maps.nth(11).click()
    for key, layer, head in (("ArrowUp", 1, 3), ("ArrowLeft", 1, 2), ("ArrowDown", 2, 2)):
        page.keyboard.press(key)
        chosen = re.compile(f"layer {layer}, head {head}")
        expect(view.locator(".maps input:checked")).to_have_attribute("aria-label", chosen)
    expect(view.locator(".telling")).to_contain_text(f"gives {100 * share.heads[2, 2]:.0f} % of its attention")
    expect(view.locator(".telling")).to_contain_text(f"would give {100 * share.equal:.0f} %")
    view.get_by_role("radio", name="one head").check()
    row = next(i for i, places in enumerate(told) if places)
    ringed = view.locator(f'td[data-i="{row}"].told')
    expect(ringed).to_have_text(f"{weights[2, 2, row, told[row][0]]:.2f}")
    ringed.click()
    expect(view.locator(".exact")).to_contain_text("softmax = 0.9")
    view.get_by_role("group", name="Layer").get_by_role("radio", name="0").check()
    view.get_by_role("group", name="Head").get_by_role("radio", name="1").check()
    seen = rows_of(view.locator("tbody tr"))
    for i, line in enumerate(seen):
        assert line[i + 1 :] == [""] * (len(seen) - i - 1)
        assert all(abs(float(x) - weights[0, 1, i, j]) <= 0.0055 for j, x in enumerate(line[: i + 1]))


def told_in_python():
    """The weights (L, H, T, T) of the story, and which words determine the next ones."""
    shipped = load_pretrained("storyworld")
    caught = capture(shipped.model.eval(), torch.tensor([shipped.tokenizer.encode(STORY)]))
    return torch.cat([caught.attention(layer).weights for layer in range(3)]), told_by(STORY)


def type_a_text(page: Page) -> None:
    """Types another text into the second view, where a kernel or the model of the page answers."""
    view = page.locator(".tinylm-view.attention").nth(1)
    field, words = view.get_by_label("Your own text"), view.locator(".sentence span")
    before = words.all_inner_texts()
    enter(field, "One zeppelin")
    expect(view.get_by_role("alert")).to_contain_text("The model knows only 345 words, and not “zeppelin”. Try “")
    assert words.all_inner_texts() == before and field.input_value() == "One zeppelin"
    enter(field, "One foggy day, careful Mia came to Hillcrest. She had a pink fan. There she met Tom, a gardener with")
    expect(words).to_have_count(25)
    expect(view.get_by_role("alert")).to_be_empty()
    assert view.locator("td.told").count() == 3 and view.get_by_role("radio", name="one head").is_checked()
    assert view.get_by_role("group", name="Head").get_by_role("radio", name="1").is_checked()
    expect(field).to_be_focused()


def see_all_of_it(page: Page) -> None:
    """The second view in a laptop's window: two columns, the answer above them, and no stage that needs scrolling."""
    view = page.locator(".tinylm-view.attention").nth(1)
    for stage in ("q · k", "÷ √32", "mask", "mix", "softmax"):
        view.get_by_role("radio", name=stage).check()
        assert_on_one_screen(page, view)
    view.locator("table").scroll_into_view_if_needed()
    answer, grid, bars = (view.locator(part).bounding_box() for part in (".say", "table", ".bars"))
    assert answer["y"] + answer["height"] <= min(grid["y"], bars["y"])
    assert grid["x"] + grid["width"] <= bars["x"]
    view.locator('td[data-i="3"][data-j="9"]').hover()
    expect(view.locator(".say")).to_contain_text("may not look at")
    assert view.locator("table").bounding_box() == grid, "the answer moves nothing below it"


def answer_the_questions(page: Page) -> None:
    """Answers each kind of question by keyboard: nothing, wrong, and right."""
    which, number, shape, order = (page.locator(".tinylm-view.predict").nth(i) for i in range(4))
    which.get_by_role("button", name="Check").press("Enter")
    expect(which.get_by_role("status")).to_have_text("Choose one first.")
    which.get_by_role("radio", name="Tom").press("Space")
    which.get_by_role("radio", name="Tom").press("Enter")
    expect(which.get_by_role("status")).to_contain_text("Not quite. Tom is a person, nobody asked for one.")
    which.get_by_role("radio", name="Tom").press("ArrowRight")
    which.get_by_role("radio", name="kite").press("Enter")
    expect(which.get_by_role("status")).to_contain_text("✓ Right. It flies.")
    guesses = {"two": "Write a number", "8": "That is in bits.", "55,5": "by a factor of about 10.", "11/2": "✓ Right."}
    for guess, verdict in guesses.items():
        enter(number.get_by_label("Your guess"), guess)
        expect(number.get_by_role("status")).to_contain_text(verdict)
    right = dict.fromkeys(("4x15", "(4, 15)", "4 15"), "✓ Right.")
    for guess, verdict in {"4": "1 axis, it has 2 axes", "(15, 4)": "Turned over.", **right}.items():
        enter(shape.get_by_label("The shape (T, S)"), guess)
        expect(shape.get_by_role("status")).to_contain_text(verdict)
    order.get_by_role("button", name="Check").press("Enter")
    expect(order.get_by_role("status")).to_contain_text("0 of 3 are where they belong.")
    order.get_by_role("button", name="Show the answer").press("Enter")
    expect(order.get_by_role("status")).to_contain_text("The answer: c, a, b. So it is.")
    order.get_by_role("button", name="move c up").press("Enter")
    page.keyboard.press("Enter")
    order.get_by_role("button", name="Check").press("Enter")
    expect(order.get_by_role("status")).to_contain_text("✓ Right.")


def test_views_live_in_jupyterlab_by_mouse_and_keyboard(run_sample):
    lesson, page = run_sample, run_sample.page
    page.locator(".tinylm-view.predict").nth(3).wait_for()
    lesson.show_cell(4)
    move_the_view(page)
    cell(page, 4, 2).click()
    before = page.evaluate(STATE)
    for key in ("ArrowDown", "d", "d", "a"):  # in JupyterLab: the next cell, delete a cell, a cell above
        page.keyboard.press(key)
    assert page.evaluate(STATE) == before
    lesson.screenshots("view-lab")
    see_all_of_it(page)
    read_story(page)
    type_a_text(page)
    lesson.screenshots("view-story-lab")
    answer_the_questions(page)
    lesson.screenshots("predict-lab")
    for _ in lesson.themes():
        assert findings(page, ".tinylm-view") == []


def test_a_notebook_that_was_saved_and_opened_again_is_alive_before_anything_is_run(run_sample, tmp_path):
    lesson = run_sample
    lesson.command("docmanager:save")
    saved = json.loads((tmp_path / "work" / SAMPLE).read_text(encoding="utf-8"))
    assert len(saved["metadata"]["widgets"][STATES]["state"]) >= 6
    lesson.page.evaluate(f"() => {NOTEBOOK}.sessionContext.shutdown()")
    lesson.reload()
    page = lesson.page
    for place in (8, 4):  # what is far from the window is drawn when it comes near
        lesson.show_cell(place)
        page.locator(".tinylm-view").first.wait_for(timeout=120_000)
    assert page.get_by_text("Error displaying widget").count() == 0
    assert not any(cell.get("execution_count") is None for cell in saved["cells"] if cell["cell_type"] == "code")
    move_the_view(page)
    read_story(page)
    lesson.screenshots("view-reopened")


def test_a_notebook_that_was_only_opened_shows_pictures_and_folded_answers(open_lesson, sample):
    lesson = open_lesson(sample, SAMPLE)
    page = lesson.page
    picture = page.locator("figure img").first
    assert picture.get_attribute("alt").startswith("Heat map of the attention weights")
    assert picture.evaluate("image => image.naturalWidth") > 500
    page.get_by_text("The numbers").first.click()
    assert page.locator("figure td").first.is_visible()
    lesson.show_cell(6)
    because = page.get_by_text("The answer: kite. It flies.")
    assert not because.is_visible()
    page.get_by_text("Think first, then open").first.click()
    assert because.is_visible() and page.locator(".tinylm-view").count() == 0
    lesson.screenshots("view-untrusted")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_from_disk_in_light_and_dark_and_on_paper(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move_the_view(page)
    read_story(page)
    type_a_text(page)
    answer_the_questions(page)
    assert page.locator("math").count() == 1 and page.locator("figure").count() == 0
    page.screenshot(path=SCREENSHOTS / f"page-{scheme}.png", full_page=True)
    for stage in ("weights", "mixed", "scores"):
        page.locator(f"input[value={stage}]").first.check()
        assert findings(page) == []
    ground = page.locator(".tinylm-view").first.evaluate("view => getComputedStyle(view).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
    assert cell(page, 0, 0).evaluate("cell => getComputedStyle(cell).transitionDuration") == "0s"
    page.emulate_media(media="print")
    page.screenshot(path=SCREENSHOTS / "page-print.png", full_page=True)
    assert cell(page, 0, 0).evaluate("cell => getComputedStyle(cell).printColorAdjust") == "exact"


def test_at_200_percent_nothing_is_lost_at_the_side(open_page):
    page = open_page(**ZOOMED)
    page.screenshot(path=SCREENSHOTS / "page-zoomed.png", full_page=True)
    assert_fits(page, ".tinylm-view *, pre, p")
    assert cell(page, 7, 7).bounding_box()["width"] >= 27


def test_a_finger_chooses_a_word_and_a_head(open_page):
    page = open_page(has_touch=True, viewport={"width": 820, "height": 1180})
    cell(page, 4, 2).tap()
    expect(first(page).locator(".say")).to_contain_text("a gives")
    first(page).locator(".sentence span").nth(3).tap()
    expect(first(page).locator(".say")).to_contain_text("had gives")
    first(page).locator(".segments label", has_text="all heads").tap()
    first(page).locator(".maps label").nth(5).tap()
    expect(first(page).locator(".maps input:checked")).to_have_attribute("aria-label", "layer 1, head 1")


def test_with_forced_colours_shades_and_the_selected_cell_are_seen(open_page):
    page = open_page(forced_colors="active")
    page.screenshot(path=SCREENSHOTS / "page-forced.png", full_page=True)
    look = "(cell) => [getComputedStyle(cell).backgroundColor, getComputedStyle(cell).outlineStyle]"
    grounds = {cell(page, i, 0).evaluate(look)[0] for i in range(8)}
    assert len(grounds) > 3
    assert page.locator(".tinylm-view td.on").first.evaluate(look)[1] == "solid"


def test_nbconvert_shows_the_pictures(sample):
    page, _ = HTMLExporter(exclude_input=True).from_filename(str(sample / SAMPLE))
    assert page.count("Heat map of the attention weights") == 2 and "vnd.jupyter.widget-view" not in page


def test_without_scripts_a_page_shows_what_an_untrusted_notebook_shows(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator("figure img").first.is_visible() and page.get_by_text("Think first, then open").count() == 4


def test_nbval_compares_what_is_stored_without_false_alarms(sample):
    assert "00_sample.ipynb: 7 outputs compared, 0 ignored" in nbval(sample)
