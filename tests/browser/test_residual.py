"""The view of the residual stream in JupyterLab and in an exported page: the numbers seen are Python's."""

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, ZOOMED, assert_fits, enter, findings

from tinylm_classroom.views.residual import depths
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

STORY = "\nOne sunny day, brave Mia had a red kite. She"
LESSON = f"{OPENING}\n# %%\nresidual_view(ready.model, ready.tokenizer, {STORY!r})"
VIEW = ".tinylm-view.residual"
SAYS = f"{VIEW} .say"


def expected(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """The best word and its probability, and the stream's length, at each depth, the deepest first, and position."""
    ready = load_pretrained("storyworld")
    found = depths(ready.model, torch.tensor(ready.tokenizer.encode(text)))
    probs, best = found.probs.max(-1)
    rows = [zip(*row, strict=True) for row in zip(best.tolist(), probs.tolist(), strict=True)]
    words = [[f"{ready.tokenizer.decode([token]).strip(' ')} {p:.2f}" for token, p in row] for row in rows]
    return words[::-1], [[f"{x:.1f}" for x in row] for row in found.stream.flip(0).tolist()]


def seen(page: Page) -> list[list[str]]:
    return page.locator(f"{VIEW} tbody tr:not(.read)").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText.replace(/\\s+/g, ' ')))"
    )


def cell(page: Page, depth: int, position: int):
    return page.locator(f'{VIEW} td[data-d="{depth}"][data-t="{position}"]')


def move(page: Page) -> None:
    """Looks at the grid, and moves it by mouse and by keyboard."""
    words, lengths = expected(STORY)
    assert seen(page) == words
    expect(page.locator(SAYS)).to_have_text(
        "After block 1, at “.”, the model would say He with 0.95; in the end it says She with 1.00."
    )
    cell(page, 0, 11).hover()
    expect(page.locator(SAYS)).to_contain_text("With the embedding alone, at “.”, the model would say Often with 0.44")
    cell(page, 3, 11).click()
    expect(page.locator(SAYS)).to_have_text("In the end, at “.”, the model says She with 1.00.")
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    expect(cell(page, 2, 10)).to_be_focused()
    expect(page.locator(f"{VIEW} [role=status]")).to_contain_text("After block 1, at kite, the model would say looked")
    expect(page.locator(f"{VIEW} .top .number").first).to_have_text("0.30")
    page.keyboard.press("End")
    expect(cell(page, 2, 12)).to_be_focused()
    assert page.locator(f"{VIEW} .course .stream em").all_inner_texts() == [row[12] for row in lengths]


def test_in_jupyterlab_it_moves_and_reads_what_is_typed(run_sample):
    lesson, page = run_sample, run_sample.page
    page.locator(VIEW).wait_for()
    move(page)
    field = page.get_by_label("Your own text")
    enter(field, "One xylophone")
    expect(page.locator(f"{VIEW} .wrong")).to_contain_text("xylophone")
    assert len(seen(page)[0]) == 13
    field.fill("One cloudy day, wise Omar")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(f"{VIEW} tr.read th")).to_have_count(8)
    assert seen(page) == expected("\nOne cloudy day, wise Omar")[0]
    expect(page.locator(f"{VIEW} .wrong")).to_have_text("")
    lesson.screenshots("residual-lab")
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_without_a_kernel_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move(page)
    assert page.get_by_label("Your own text").count() == 0
    assert findings(page) == []
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"residual-{scheme}.png")


def test_at_200_percent_the_page_does_not_move_sideways(open_page):
    page = open_page(**ZOOMED)
    assert_fits(page, VIEW)
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "residual-zoomed.png")


def test_on_a_phone_no_header_of_the_course_is_wider_than_its_column(open_page):
    page = open_page(viewport={"width": 390, "height": 844})
    assert_fits(page, f"{VIEW} .course *")
    widths = "titles => titles.map(title => title.scrollWidth - title.clientWidth)"
    assert max(page.locator(f"{VIEW} .course .title").evaluate_all(widths)) == 0


def test_on_a_phone_only_the_box_of_the_grid_moves_sideways_and_the_names_of_its_rows_stay(open_page):
    page = open_page(viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box, selected = page.locator(f"{VIEW} .scroll"), page.locator(f"{VIEW} [aria-selected=true]")
    page.wait_for_function(f"document.querySelector('{VIEW} .scroll').scrollLeft > 0")
    edges = "node => { const r = node.getBoundingClientRect(); return [r.left, r.right] }"
    left, right = box.evaluate(edges)
    name, cell = page.locator(f"{VIEW} th[scope=row]").first.evaluate(edges), selected.evaluate(edges)
    assert left <= name[0] < name[1] <= cell[0] < cell[1] <= right
