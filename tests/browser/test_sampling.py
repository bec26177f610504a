"""The view of sampling in JupyterLab and in an exported page: its probabilities are those of `next_token_probs`."""

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import OPENING, SCREENSHOTS, ZOOMED, assert_fits, findings

from tinylm_classroom.course import site
from tinylm_lib import generate
from tinylm_lib.probabilities import next_token_probs

pytestmark = pytest.mark.browser

PROMPT = "\nOne sunny day, brave Mia"
LESSON = f"{OPENING}\n# %%\nsampling_view(ready.model, ready.tokenizer, {PROMPT!r}, seed=3)"
VIEW = ".tinylm-view.sampling"
SAYS, WORDS = f"{VIEW} .say", f"{VIEW} .text .shade"


@pytest.fixture(scope="module")
def exported(sample) -> str:
    """The address of the lesson as a page on its own, without the model of a site."""
    page = site.export(sample, sample.parent / "pages")[0]
    page.with_name(site.MODEL).unlink()
    return page.as_uri()


def written(ready, n: int, seed: int, **options) -> list[int]:
    """What the library writes after the prompt."""
    ids = torch.tensor([ready.tokenizer.encode(PROMPT)])
    generator = torch.Generator().manual_seed(seed)
    return generate(ready.model, ids, n, generator=generator, **options)[0, ids.shape[1] :].tolist()


def assert_written(page: Page, ready, n: int, seed: int, **options) -> None:
    """The words that the view has written are those of the library."""
    expect(page.locator(WORDS)).to_have_count(n)
    tokens = written(ready, n, seed, **options)
    seen = [ready.tokenizer.decode([token]).strip(" ").replace("\n", "↵") for token in tokens]
    assert page.locator(WORDS).all_inner_texts() == seen


def slide(page: Page, name: str, value: float) -> None:
    page.get_by_role("slider", name=name, exact=True).fill(str(value))


def shares(page: Page) -> dict[str, str]:
    """What the chart says of each word shown."""
    read = "rows => rows.map(row => [row.firstChild.textContent, row.lastChild.textContent])"
    return dict(page.locator(f"{VIEW} tbody tr:not(.cut, .none)").evaluate_all(read))


def cuts(page: Page) -> list[str]:
    return page.locator(f"{VIEW} tr.cut[data-cut]").all_inner_texts()


def move(page: Page, ready) -> None:
    """Moves every slider, and compares the chart with the library."""
    ids = torch.tensor([ready.tokenizer.encode(PROMPT)])
    logits = ready.model(ids)[:, -1].detach()
    expect(page.locator(SAYS)).to_contain_text("345 of 345 words may be drawn")
    for name, value in (("temperature", 1.5), ("top-k", 5), ("top-p", 0.7), ("min-p", 0.1)):
        slide(page, name, value)
    probs = next_token_probs(logits, 1.5, 6, 0.7, 0.1)[0]
    kept = probs.nonzero()[:, 0].tolist()
    seen = {word: share for word, share in shares(page).items() if share != "cut"}
    assert seen == {ready.tokenizer.decode([token]).strip(" "): f"{probs[token]:.3f}" for token in kept}
    assert [line.partition(":")[0] for line in cuts(page)] == ["top-p 0.70", "top-k 6"]
    expect(page.locator(SAYS)).to_contain_text(f"{len(kept)} of 345 words may be drawn")
    page.get_by_role("slider", name="temperature", exact=True).press("Home")
    expect(page.locator(SAYS)).to_contain_text("only the likeliest word may be drawn")
    assert cuts(page) == ["temperature 0: only the likeliest stays"]
    for name, off in (("temperature", 1), ("top-k", 15), ("top-p", 1), ("min-p", 0)):
        slide(page, name, off)
    expect(page.locator(SAYS)).to_contain_text("345 of 345 words may be drawn")
    assert cuts(page) == []


def test_in_jupyterlab_the_kernel_writes_on(run_sample, ready):
    lesson, page = run_sample, run_sample.page
    page.locator(VIEW).wait_for()
    move(page, ready)
    page.get_by_role("button", name="Write one token").click()
    expect(page.locator(WORDS)).to_have_count(1)
    ten = page.get_by_role("button", name="Ten tokens")
    ten.click()
    assert_written(page, ready, 11, 3)
    page.get_by_label("seed").fill("5")
    page.get_by_label("seed").press("Tab")
    expect(page.locator(WORDS)).to_have_count(0)
    for _ in range(2):  # the same answer twice
        slide(page, "temperature", 2)
        ten.click()
        assert_written(page, ready, 10, 5, temperature=2.0)
        page.get_by_role("button", name="Begin again").click()
    ten.click()
    expect(page.locator(WORDS)).to_have_count(10)
    slide(page, "top-p", 0.8)
    lesson.screenshots("sampling-lab")
    assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_walks_along_the_stored_text_in_light_and_dark(open_page, ready, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    move(page, ready)
    assert page.get_by_label("seed").count() == 0
    note = page.locator(f"{VIEW} .note")
    assert note.inner_text().startswith("The buttons show 12 words drawn beforehand (seed 3, temperature 1.00); ")
    page.get_by_role("button", name="Write one token").press("Enter")
    expect(page.locator(WORDS)).to_have_count(1)
    page.get_by_role("button", name="Ten tokens").click()
    assert_written(page, ready, 11, 3)
    page.get_by_role("button", name="One back").click()
    expect(page.locator(WORDS)).to_have_count(10)
    for name, value in (("temperature", 1.3), ("top-p", 0.8), ("min-p", 0.1)):
        slide(page, name, value)
    assert findings(page) == []
    page.locator(VIEW).screenshot(path=SCREENSHOTS / f"sampling-{scheme}.png")


def test_at_200_percent_the_page_does_not_move_sideways(open_page):
    page = open_page(**ZOOMED)
    assert_fits(page, f"{VIEW} *:not(.unseen)")
    page.locator(VIEW).screenshot(path=SCREENSHOTS / "sampling-zoomed.png")
