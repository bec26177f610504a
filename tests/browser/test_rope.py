"""The view of rotary positions in a browser: what it shows is what the library's Rotary computes."""

import re

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from support.browser import OPENING, ZOOMED, assert_fits, findings

from tinylm_classroom import rope_view
from tinylm_classroom.views.rope import QueryKey
from tinylm_lib.positions import frequencies
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

STORY = " Carlos thanked Jamal."
# Next to another view, whose styles must not reach this one.
LESSON = f"""{OPENING}
# %%
rope_view(ready.model, ready.tokenizer, {STORY!r}, layer=2, head=2)

# %%
attention_view(ready.model, ready.tokenizer, {STORY!r})
"""
VIEW = ".tinylm-view.rope"
PARTS = ("all pairs", "score and distance")


@pytest.fixture(scope="module")
def pair() -> QueryKey:
    """The query and the key of the lesson, as Python has them."""
    ready = load_pretrained("storyworld")
    data = rope_view(ready.model, ready.tokenizer, STORY, layer=2, head=2).data
    return QueryKey(torch.tensor(data["q"]), torch.tensor(data["k"]), data["base"], data["layout"], data["offset"])


def says(page: Page) -> Locator:
    return page.locator(f"{VIEW} .say")


def switch(page: Page, part: str) -> None:
    page.locator(VIEW).get_by_role("radio", name=part, exact=True).check()


def slide(page: Page, name: str, value: float) -> None:
    page.locator(VIEW).get_by_role("slider", name=name).fill(str(value))


def numbers(page: Page, row: str) -> list[float]:
    """The numbers in a row of the table that is seen."""
    found = page.locator(f"{VIEW} tr", has=page.get_by_role("rowheader", name=row)).locator("td").all_inner_texts()
    return [float(x) for cell in found for x in cell.replace("−", "-").split(",")]


def strong(page: Page) -> list[float]:
    """The numbers that the sentence stresses."""
    found = page.locator(f"{VIEW} .say b").all_inner_texts()
    return [float(re.sub(r"[^\d.-]", "", text.replace("−", "-"))) for text in found]


def compare_scores(page: Page, pair: QueryKey, distance: int, moved: int) -> None:
    """The scores before and after both were moved, turned and with added waves, against the library's."""
    slide(page, "Distance", distance)
    slide(page, "Both moved on by", moved)
    starts, away = torch.tensor([0, moved]), torch.tensor(distance)
    for row, found in (("turned", pair.scores(starts, away)), ("added", pair.added(starts, away))):
        before, after = found.tolist()
        assert numbers(page, row) == pytest.approx([before, after, after - before], abs=1.1e-3)
    assert numbers(page, "turned")[2] == 0
    if moved:
        assert strong(page) == pytest.approx([0, numbers(page, "added")[2]], abs=1e-9)


def move_the_view(page: Page, pair: QueryKey) -> None:
    """Goes through both parts, by mouse and by keyboard, and compares the numbers with Python's."""
    slide(page, "Position", 100)
    slide(page, "Pair", 5)
    page.locator(VIEW).get_by_role("slider", name="Position").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(f"{VIEW} [role=status]")).to_contain_text("At position 99, pair 5 has rotated by 5.567 radians")
    for at, base in ((2, 100.0), (5.7, 501_187.0), (4, 10_000.0)):
        slide(page, "Base", at)
        longest = 2 * torch.pi / frequencies(32, base)[-1].item()
        expected = [base, float(f"{longest:.0f}"), 99 * frequencies(32, base)[5].item()]
        assert strong(page) == pytest.approx(expected, abs=6e-4)
    bank = page.locator(f"{VIEW} .over")
    box = bank.bounding_box()
    bank.click(position={"x": box["width"] * 64.2 / 128, "y": box["height"] * 2.5 / 16})  # once it lies still
    expect(says(page)).to_contain_text("At position 64, pair 2 has rotated by 20.239 radians.")

    for at, base in ((3, 1000.0), (4, 10_000.0)):
        switch(page, "all pairs")
        slide(page, "Base", at)
        switch(page, "score and distance")
        for distance, moved in ((0, 0), (3, 300), (64, 1000)):
            compare_scores(page, pair._replace(base=base), distance, moved)


def test_the_view_lives_in_jupyterlab(run_sample, pair):
    lesson, page = run_sample, run_sample.page
    page.locator(VIEW).wait_for()
    lesson.show_cell(4)
    move_the_view(page, pair)
    for part in PARTS:
        switch(page, part)
        lesson.screenshots(f"rope-{part.split()[0]}-lab")
        assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_from_disk_in_light_and_dark(open_page, pair, scheme):
    page = open_page(color_scheme=scheme)
    move_the_view(page, pair)
    for part in PARTS:
        switch(page, part)
        assert findings(page) == []
    assert page.locator(f"{VIEW} td").first.evaluate("cell => getComputedStyle(cell).cursor") == "auto"
    at_once = """input => {
        const before = input.form.textContent; input.value = Number(input.min) + 1;
        input.dispatchEvent(new Event('input')); return before !== input.form.textContent }"""
    for part, name in zip(PARTS, ("Base", "Both moved on by"), strict=True):
        switch(page, part)
        assert page.locator(VIEW).get_by_role("slider", name=name).evaluate(at_once), f"{name} answers late"


def test_at_200_percent_nothing_is_lost_at_the_side(open_page):
    page = open_page(**ZOOMED)
    for part in PARTS:
        switch(page, part)
        assert_fits(page, f"{VIEW} *")
    small = "nodes => nodes.filter(n => n.textContent.trim() && parseFloat(getComputedStyle(n).fontSize) < 14).length"
    assert page.locator(f"{VIEW} *:not(style)").evaluate_all(small) == 0


def test_without_scripts_the_picture_and_the_numbers_stand_there(open_page):
    page = open_page(java_script_enabled=False)
    assert page.get_by_alt_text(re.compile("^A bank of 16 waves")).is_visible()
    page.get_by_text("The numbers").first.click()
    assert page.get_by_role("rowheader", name="mixed up").is_visible()
