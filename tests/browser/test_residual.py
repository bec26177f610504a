"""The view of the residual stream in JupyterLab and in an exported page: the numbers seen are Python's."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect

from tinylm_lib.classroom.course import lab
from tinylm_lib.classroom.course import site as pages
from tinylm_lib.classroom.views.residual import depths
from tinylm_lib.pretrained import load_pretrained

pytest_plugins = ["support.browser"]
pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[2] / "work" / "screenshots"
LESSON = r"""# %% [markdown]
# # 10 Sample
# **What would the model say if it stopped here?**
#
# *Needs* nothing. *Builds* nothing. *Runs* in about 5 s on two cores. *Teaches* in 1 minute.

# %%
from tinylm_lib.classroom import residual_view
from tinylm_lib.pretrained import load_pretrained

ready = load_pretrained("storyworld")

# %% [markdown] minutes=1
# ## 1. Try it
# Move it.

# %%
residual_view(ready.model, ready.tokenizer, "\nOne sunny day, brave Mia had a red kite. She")
"""
VIEW = ".tinylm-view.residual"
SAYS = f"{VIEW} .say"


@pytest.fixture(scope="module")
def sample(tmp_path_factory, built) -> Path:
    """A folder of notebooks with one lesson, built."""
    return built(tmp_path_factory.mktemp("course"), "10_sample", LESSON)


@pytest.fixture
def open_page(open_exported, sample) -> Callable[..., Page]:
    """A function that opens the exported page."""
    return partial(open_exported, pages.export(sample, sample.parent / "pages")[0].as_uri())


def expected(text: str) -> list[list[str]]:
    """The best word and its probability at each depth, the deepest first, and each position."""
    ready = load_pretrained("storyworld")
    probs, best = depths(ready.model, torch.tensor(ready.tokenizer.encode(text))).probs.max(-1)
    rows = zip(best.tolist(), probs.tolist(), strict=True)
    names = lambda token: ready.tokenizer.decode([token]).strip(" ")  # noqa: E731
    return [[f"{names(token)} {p:.2f}" for token, p in zip(*row, strict=True)] for row in rows][::-1]


def seen(page: Page) -> list[list[str]]:
    return page.locator(f"{VIEW} tbody tr:not(.read)").evaluate_all(
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText.replace(/\\s+/g, ' ')))"
    )


def cell(page: Page, depth: int, position: int):
    return page.locator(f'{VIEW} td[data-d="{depth}"][data-t="{position}"]')


def move(page: Page) -> None:
    """Looks at the grid, and moves it by mouse and by keyboard."""
    assert seen(page) == expected("\nOne sunny day, brave Mia had a red kite. She")
    expect(page.locator(SAYS)).to_have_text(
        "After block 2, at “.”, the model would say He with 0.95; in the end it says She with 1.00."
    )
    cell(page, 0, 11).hover()
    expect(page.locator(SAYS)).to_contain_text("With the embedding alone, at “.”, the model would say Often with 0.44")
    cell(page, 3, 11).click()
    expect(page.locator(SAYS)).to_have_text("In the end, at “.”, the model says She with 1.00.")
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    expect(cell(page, 2, 10)).to_be_focused()
    expect(page.locator(f"{VIEW} [role=status]")).to_contain_text("After block 2, at kite, the model would say looked")
    expect(page.locator(f"{VIEW} .top .number").first).to_have_text("0.30")
    page.keyboard.press("End")
    expect(cell(page, 2, 12)).to_be_focused()
    lengths = page.locator(f"{VIEW} .course .stream em").all_inner_texts()
    ready = load_pretrained("storyworld")
    ids = torch.tensor(ready.tokenizer.encode("\nOne sunny day, brave Mia had a red kite. She"))
    assert lengths == [f"{x:.1f}" for x in depths(ready.model, ids).stream[:, 12].flip(0).tolist()]


def test_in_jupyterlab_it_moves_and_reads_what_is_typed(open_lesson, tmp_path, sample, findings):
    lab.refresh(sample, tmp_path / "work")
    lesson = open_lesson(tmp_path / "work", "10_sample.ipynb")
    lesson.run_all()
    assert lesson.errors() == []
    page = lesson.page
    page.locator(VIEW).wait_for()
    move(page)
    field = page.get_by_label("Your own text")
    field.fill("One xylophone")
    field.press("Enter")
    expect(page.locator(f"{VIEW} .wrong")).to_contain_text("xylophone")
    assert len(seen(page)[0]) == 13
    field.fill("One cloudy day, wise Omar")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(f"{VIEW} tr.read th")).to_have_count(8)
    assert seen(page) == expected("\nOne cloudy day, wise Omar")
    expect(page.locator(f"{VIEW} .wrong")).to_have_text("")
    lesson.screenshots("residual-lab")
    assert lesson.external == []
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_without_a_kernel_in_light_and_dark(open_page, findings, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move(page)
    assert page.get_by_label("Your own text").count() == 0
    assert findings(page) == []
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"residual-{scheme}.png")


def test_at_200_percent_the_page_does_not_move_sideways(open_page):
    page = open_page(viewport={"width": 640, "height": 800}, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator(VIEW).evaluate("view => view.getBoundingClientRect().right") <= 640
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "residual-zoomed.png")
