"""The view of activation patching in JupyterLab and in an exported page: what it shows and says is Python's."""

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, ZOOMED, assert_fits, enter, findings

from tinylm_classroom.shapes.capture import capture
from tinylm_classroom.views.patch import patched_logits
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

MIA, CARLOS = (f"\nOne sunny day, brave {name} had a red kite." for name in ("Mia", "Carlos"))
PINK_FAN = "\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
GRAY_FAN = "\n Carlos had a gray fan. Jamal had a pink book. Jamal took the pink"
LESSON = f"{OPENING}\n# %%\npatch_view(ready.model, ready.tokenizer, {MIA!r}, {CARLOS!r}, ('She', 'He'))"
VIEW = ".tinylm-view.patch"
SAYS, STATUS = f"{VIEW} .say", f"{VIEW} [role=status]"
BARS = f"{VIEW} .bars em"


def expected(part: str, text: str, other: str, words: tuple[str, str]) -> list[list[str]]:
    """The numbers in the cells of a part, from the top, where nothing is hatched; small effects have none."""
    ready = load_pretrained("storyworld")
    ids, donor_ids = (torch.tensor(ready.tokenizer.encode(each)) for each in (text, other))
    one, two = (ready.tokenizer.encode(f" {word}")[0] for word in words)
    runs = [capture(ready.model, each[None]) for each in (ids, donor_ids)]
    from_text, from_other = (float(run.logits[0, -1, one] - run.logits[0, -1, two]) for run in runs)
    rows = []
    for layer in reversed(range(3 + (part == "stream"))):
        logits = patched_logits(ready.model, ids, runs[1], part, layer)
        effects = ((logits[:, one] - logits[:, two] - from_text) / (from_other - from_text)).tolist()
        rows.append([f"{x:.2f}".replace("-", "−") if abs(x) >= 0.05 else "" for x in effects])
    return rows


def seen(page: Page) -> list[list[str]]:
    rows = page.locator(f"{VIEW} tbody tr:has(td)")
    return rows.evaluate_all("rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.textContent))")


def cell(page: Page, layer: int, position: int):
    return page.locator(f'{VIEW} td[data-l="{layer}"][data-t="{position}"]')


def move(page: Page) -> None:
    """Looks at the three grids, and moves in them by mouse and by keyboard."""
    assert seen(page) == expected("stream", MIA, CARLOS, ("She", "He"))
    expect(page.locator(SAYS)).to_have_text(
        "At position 6, Mia, the stream before block 2 is taken from the other text, which has Carlos there. "
        "P(She) falls from 1.00 to 0.00, P(He) rises from 0.00 to 1.00: effect 0.99."
    )
    assert page.locator(BARS).all_inner_texts() == ["1.00", "0.00", "0.00", "1.00"]
    assert page.locator(f"{VIEW} td.hatched").count() == 6 * 4 + 5
    assert page.locator(f"{VIEW} td.late").count() == 5
    cell(page, 3, 11).hover()
    expect(page.locator(SAYS)).to_contain_text("At position 11, “.”, the stream after block 2 is taken")
    cell(page, 0, 6).click()
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowLeft")
    expect(cell(page, 0, 5)).to_be_focused()
    expect(page.locator(STATUS)).to_have_text(
        "At position 5, brave, the stream before block 0 is taken from the other text. "
        "Nothing can change: the vector there is the same in both texts."
    )
    assert page.locator(BARS).all_inner_texts() == ["1.00", "1.00", "0.00", "0.00"]
    page.keyboard.press("End")
    for _ in range(5):
        page.keyboard.press("ArrowUp")
    expect(cell(page, 3, 11)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(STATUS)).to_contain_text("from there it can no longer reach the last position")
    below = page.locator(f"{VIEW} .legend").bounding_box()["y"]
    page.get_by_role("radio", name="residual stream").focus()
    page.keyboard.press("ArrowRight")
    assert seen(page) == expected("attention", MIA, CARLOS, ("She", "He"))
    assert page.locator(f"{VIEW} .legend").bounding_box()["y"] == pytest.approx(below, abs=1)
    expect(cell(page, 2, 10)).to_have_attribute("aria-selected", "true")
    cell(page, 2, 11).click()
    expect(page.locator(STATUS)).to_contain_text("At position 11, “.”, what attention adds in block 2 is taken from")
    page.get_by_role("radio", name="feed-forward").check()
    assert seen(page) == expected("ffn", MIA, CARLOS, ("She", "He"))
    expect(page.locator(STATUS)).to_contain_text("what the feed-forward adds in block 2")


def test_in_jupyterlab_it_moves_and_reads_what_is_typed(run_sample):
    lesson, page = run_sample, run_sample.page
    page.locator(VIEW).wait_for()
    move(page)
    wrong = page.locator(f"{VIEW} .wrong")
    enter(page.get_by_label("Other text", exact=True), "One sunny day, Carlos had a red kite.")
    expect(wrong).to_contain_text("not 12 and 11; they first differ at position 5, ' brave' and ' Carlos'")
    assert len(seen(page)[0]) == 12
    fields = ("Your own text", "Other text", "next word of your own text", "next word of the other text")
    for name, value in zip(fields, (PINK_FAN.strip(), GRAY_FAN.strip(), "fan", "book"), strict=True):
        page.get_by_label(name, exact=True).fill(value)
    page.get_by_role("button", name="Read").click()
    expect(page.locator(f"{VIEW} tr.read th")).to_have_count(18)
    assert seen(page) == expected("stream", PINK_FAN, GRAY_FAN, ("fan", "book"))
    expect(wrong).to_have_text("")
    expect(page.locator(SAYS)).to_have_text(
        "At position 5, fan, the stream before block 2 is taken from the other text. "
        "P(fan) falls from 1.00 to 0.02, P(book) rises from 0.00 to 0.97: effect 0.78."
    )
    lesson.screenshots("patch-lab")
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_without_a_kernel_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move(page)
    assert page.get_by_label("Your own text").count() == 0
    assert findings(page) == []
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"patch-{scheme}.png")


def test_without_motion_no_bar_glides(open_page):
    glides = f"getComputedStyle(document.querySelector('{VIEW} .bars i')).transitionDuration"
    assert open_page(reduced_motion="reduce").evaluate(glides) == "0s"
    assert open_page(reduced_motion="no-preference").evaluate(glides) == "0.15s"


def test_at_200_percent_the_page_does_not_move_sideways(open_page):
    page = open_page(**ZOOMED)
    assert_fits(page, VIEW)
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "patch-zoomed.png")


@pytest.mark.parametrize("width", [390, 320])
def test_on_a_phone_only_the_box_of_the_grid_moves_sideways_and_the_names_of_its_rows_stay(open_page, width):
    page = open_page(viewport={"width": width, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert_fits(page, f"{VIEW} :is(.title, .sub, .texts, .legend, .say, .bars em, .segments label)")
    box, selected = page.locator(f"{VIEW} .scroll"), page.locator(f"{VIEW} [aria-selected=true]")
    page.wait_for_function(f"document.querySelector('{VIEW} .scroll').scrollLeft > 0")
    edges = "node => { const r = node.getBoundingClientRect(); return [r.left, r.right] }"
    left, right = box.evaluate(edges)
    name, chosen = page.locator(f"{VIEW} th[scope=row]").first.evaluate(edges), selected.evaluate(edges)
    assert left <= name[0] < name[1] <= chosen[0] < chosen[1] <= right
    assert findings(page, VIEW) == []
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"patch-{width}.png")
