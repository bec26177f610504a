"""The view of rotary positions in a browser: what it shows is what the library's Rotary computes."""

import re

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from support.browser import OPENING, ZOOMED, assert_fits, findings

from tinylm_classroom import rope_view
from tinylm_classroom.views.rope import QueryKey
from tinylm_lib.positions import Rotary, frequencies
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
PARTS = ("one pair", "all pairs", "score and distance", "layouts")
WAYS = {"interleaved": "interleaved", "halves": "halves", "mixed up": None}


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


def compare_a_pair(page: Page, pair: QueryKey, position: int, i: int, base: float) -> None:
    """The angle and the turned pairs of q and k that are seen against the library's."""
    slide(page, "Position", position)
    slide(page, "Pair", i)
    angle = position * frequencies(32, base)[i].item()
    assert strong(page) == [pytest.approx(angle, abs=6e-4)]
    degrees, turns = re.search(r"(\d+)°", says(page).inner_text())[1], re.search(r"(\d+) full", says(page).inner_text())
    seen = int(degrees) + 360 * int(turns[1] if turns else 0)
    assert seen == pytest.approx(angle * 180 / torch.pi, abs=0.6)
    rotary = Rotary(32, 128, base, pair.layout)
    for name, x in (("q", pair.q), ("k", pair.k)):
        after = rotary(x[None], torch.tensor([position]))[0]
        expected = [float(v) for v in (x[i], x[i + 16], after[i], after[i + 16])]
        assert numbers(page, f"{name}, numbers {i} and {i + 16}") == pytest.approx(expected, abs=6e-4)


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


def compare_layouts(page: Page, pair: QueryKey) -> None:
    """The scores of each layout and of both mixed up, at three places, against the library's."""
    starts, offset = torch.tensor([0, 40, 400]), torch.tensor(pair.offset)
    for way, layout in WAYS.items():
        page.locator(VIEW).get_by_role("radio", name=way).check()
        found = (pair.scores(starts, offset, layout) if layout else pair.mixed_up(starts)).tolist()
        spread = max(found) - min(found)
        assert numbers(page, way) == pytest.approx([*found, spread], abs=1.1e-3)
        assert (numbers(page, way)[3] == 0) == (layout is not None)
    assert strong(page)[-1] == pytest.approx(spread, abs=1.1e-3)


def move_the_view(page: Page, pair: QueryKey) -> None:
    """Goes through the four parts, by mouse and by keyboard, and compares the numbers with Python's."""
    for position, i in ((0, 0), (12, 3), (127, 0), (100, 15)):
        compare_a_pair(page, pair, position, i, 10_000.0)
    page.get_by_role("button", name=re.compile("^pair 5,")).press("Enter")
    expect(says(page)).to_contain_text("Position 100 rotates pair 5 by 5.623 radians: 322°.")
    expect(page.get_by_role("button", name="pair 5, rotated by 322°")).to_be_focused()
    page.locator(VIEW).get_by_role("slider", name="Position").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(f"{VIEW} [role=status]")).to_contain_text("Position 99 rotates pair 5 by 5.567 radians")

    switch(page, "all pairs")
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
        switch(page, "one pair")
        compare_a_pair(page, pair, 77, 4, base)
        switch(page, "score and distance")
        for distance, moved in ((0, 0), (3, 300), (64, 1000)):
            compare_scores(page, pair._replace(base=base), distance, moved)
    slide(page, "Distance", 3)
    switch(page, "layouts")
    compare_layouts(page, pair)
    page.get_by_role("radio", name="mixed up").press("ArrowLeft")
    expect(page.get_by_role("radio", name="halves")).to_be_checked()
    slide(page, "Pair", 6)
    expect(says(page)).to_contain_text("Numbers 6 and 22 rotate together.")
    page.get_by_role("radio", name="interleaved").check()
    expect(says(page)).to_contain_text("Numbers 12 and 13 rotate together.")
    expect(says(page)).to_contain_text("trained with halves")


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
    for part, name in zip(PARTS, ("Position", "Base", "Both moved on by"), strict=False):
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
