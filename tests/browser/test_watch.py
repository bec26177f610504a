"""The model that writes as a view: in JupyterLab with a record from the kernel, on a site with that of the page."""

import json

import pytest
from playwright.sync_api import Page, expect
from support.browser import NOTEBOOK, OPENING, SAMPLE, SCREENSHOTS, assert_fits, findings

from tinylm_classroom.course import site
from tinylm_classroom.live.record import live_record
from tinylm_lib import storyworld

pytestmark = pytest.mark.browser

LESSON = f"{OPENING}\n# %%\nfrom tinylm_classroom import watch\n\nwatch(ready.model, ready.tokenizer)"
VIEW = ".tinylm-view.writer"
TOKENS = f"{VIEW} .token"
KERNEL = f"{NOTEBOOK}.sessionContext.session.kernel"
SLEEP = f"() => {{ {KERNEL}.requestExecute({{code: 'import time; time.sleep(600)'}}) }}"

PLACES = """view => {
  const hit = view.querySelector(".stack .hit"), { left, right } = hit.getBoundingClientRect();
  return [left, right, view.querySelector(".stack s").getBoundingClientRect().left + 8, hit.textContent];
}"""


def grow(page: Page, n: int) -> None:
    before = page.locator(TOKENS).count()
    for more in range(1, n + 1):
        page.locator(VIEW).get_by_role("button", name="One word", exact=True).click()
        expect(page.locator(TOKENS)).to_have_count(before + more)


def test_in_jupyterlab_it_writes_while_the_kernel_is_busy_and_no_notebook_stores_it(run_sample, ready, tmp_path):
    lesson, page = run_sample, run_sample.page
    view = page.locator(VIEW)
    view.wait_for()
    expect(page.locator("figure:has(img)").filter(visible=True)).to_have_count(0)
    expect(view.locator("tbody .number").first).to_contain_text("%")  # all of it is drawn
    assert view.bounding_box()["height"] <= 600
    page.evaluate(SLEEP)
    page.wait_for_function(f"{KERNEL}.status == 'busy'")
    grow(page, 3)
    field = view.get_by_label("Begin a text")
    field.fill("One sunny day, brave Fa")
    offers = view.get_by_role("group", name="Likely words to type").get_by_role("button")
    expect(offers.first).to_have_text("Farah")
    offers.first.click()
    expect(field).to_have_value("One sunny day, brave Farah")
    expect(page.locator(TOKENS)).to_have_count(7)
    assert page.evaluate(f"{KERNEL}.status") == "busy"
    lesson.screenshots("watch-lab")
    assert findings(page, VIEW) == []
    page.evaluate(f"() => {KERNEL}.interrupt()")
    lesson.command("docmanager:save")
    text = (tmp_path / "work" / SAMPLE).read_text("utf-8")
    assert live_record(ready.model, ready.tokenizer)["weights"][:100] not in text and "function engine" not in text
    shown = [output for output in lesson.outputs() if "writes" in output.get("data", {}).get("text/plain", "")]
    assert shown and sum(len(json.dumps(output)) for output in shown) < 60_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_a_page_of_the_site_has_it_alive(open_page, width, scheme):
    page = open_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    view = page.locator(VIEW)
    expect(view.locator(".say")).to_contain_text("345 words")
    grow(page, 2)
    view.get_by_role("button", name="Write", exact=True).click()
    expect(page.locator(TOKENS).nth(20)).to_be_visible()
    view.get_by_role("button", name="Pause").click()
    assert storyworld.words(view.locator(".sheet").inner_text())
    assert_fits(page, f"{VIEW} *:not(.unseen, .begin button)")
    assert findings(page, VIEW) == []
    view.screenshot(path=SCREENSHOTS / f"watch-{width}-{scheme}.png")


def test_a_drawn_number_falls_on_the_part_of_its_word(open_page):
    page = open_page()
    view = page.locator(VIEW)
    expect(view.locator(".say")).to_contain_text("345 words")
    for _ in range(4):
        n = page.locator(TOKENS).count()
        view.get_by_role("button", name="One word", exact=True).click()
        marker = view.locator(".stack s.falls")
        expect(marker).to_have_count(1)
        hit = view.locator(".stack .hit")
        if not hit.count():  # a word that has no part of its own
            expect(page.locator(TOKENS)).to_have_count(n + 1)
            continue
        left, right, at, word = view.evaluate(PLACES)
        assert left - 1 <= at <= right + 1
        expect(page.locator(TOKENS)).to_have_count(n + 1)
        assert word in ("", page.locator(TOKENS).last.inner_text())


def test_threads_follow_the_text_when_its_width_changes(open_page):
    page = open_page(viewport={"width": 1280, "height": 900})
    expect(page.locator(f"{VIEW} .say")).to_contain_text("345 words")
    grow(page, 3)
    page.set_viewport_size({"width": 390, "height": 844})
    ends = """view => {
      const box = (part) => view.querySelector(part).getBoundingClientRect();
      const next = box(".coming"), sheet = box(".sheet");
      return [...view.querySelectorAll(".threads path")].map((path) => {
        const at = path.getPointAtLength(path.getTotalLength());
        return Math.hypot(sheet.left + at.x - (next.left + next.width / 2), sheet.top + at.y - next.bottom);
      });
    }"""
    page.wait_for_timeout(500)
    far = page.locator(VIEW).evaluate(ends)
    assert far and max(far) < 16


def test_without_motion_a_drawn_number_is_there_at_once(open_page):
    page = open_page(reduced_motion="reduce")
    page.locator(VIEW).get_by_role("button", name="One word", exact=True).click()
    expect(page.locator(f"{VIEW} .stack s.falls")).to_have_css("animation-name", "none")


def test_where_a_page_lacks_the_model_its_picture_stays(open_exported, sample):
    page = site.export(sample, sample.parent / "alone")[0]
    page.with_name(site.MODEL).unlink()
    opened = open_exported(page.as_uri())
    expect(opened.locator("[data-view=watch] figure img")).to_be_visible()
    expect(opened.locator(VIEW)).to_have_count(0)
