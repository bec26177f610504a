"""A model learns in a page, opened from disk: it runs, it breaks, and what is kept opens in Python and in a page."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, expect
from support.browser import SCREENSHOTS, assert_fits, findings

from tinylm_classroom.course.learn import learn_page
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_model

pytestmark = pytest.mark.browser

TOTAL, LONG = 40_000, 4_000_000  # tokens: about a second, and a minute
# The losses of n updates with settings from the start, or with those of `later` from the second update on.
LOSSES = """([settings, seed, n, later]) => {
  const source = tinylmLearning.storiesOf(options.rules, options.data.entropies);
  const run = tinylmLearning.newRun(source, settings, seed, 1e6, true);
  run.update();
  run.set(later ?? {});
  return Array.from({ length: n }, () => run.update()?.loss);
}"""
# What the worker says of a run with rests of a millisecond: the updates of each report, and the losses of its curve.
REPORTS = """(seed) => new Promise((done) => {
  const updates = [], losses = [], { rules, data: { entropies } } = options;
  const worker = tinylmLearning.startLearning((message) => {
    if (message.is !== "report") return;
    updates.push(message.updates);
    losses.push(...message.points.map(({ loss }) => loss));
    if (message.state === "finished") done([updates, losses]);
  });
  worker.ask({ do: "start", rules, entropies, settings: {}, seed, total: 30000, restMs: 1 });
})"""
PASTE = """([text, times]) => {
  const data = new DataTransfer(), event = new ClipboardEvent("paste", { clipboardData: data, cancelable: true });
  data.setData("text", text.repeat(times));
  document.querySelector("textarea").dispatchEvent(event);
}"""
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { get: () => isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
CHANGES = [{"causal": False}, {"residual": False}, {"norm": False}, {"rate": 10}, {"batch": 1}, {"optimizer": "adamw"}]
BAD_TEXTS = {
    "": "The text is empty",
    "Once upon a time. " * 50: "has 0.9 KB, and a model learns nothing from so little",
    "a" * 30_000: "has only 1 different character.",
    "\x00\x01PNG\x03\ufffd" * 5_000: "many characters that nobody can read",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    return written(tmp_path_factory.mktemp("site") / "learn.html", TOTAL)


def written(path: Path, total: int) -> str:
    """The address of the page, whose model learns from so many tokens."""
    html = learn_page()
    assert html.count('"isPage": true') == 1
    path.write_text(html.replace('"isPage": true', f'"isPage": true, "restMs": 1, "total": {total}'), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_learning(open_exported, address) -> Callable[..., Page]:
    """A function that opens the page."""

    def open_learning(**options: object) -> Page:
        page = open_exported(address, **options)
        page.evaluate("globalThis.options = JSON.parse(document.getElementById('options').textContent)")
        return page

    return open_learning


def press(page: Page, name: str | re.Pattern) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def finish(page: Page) -> None:
    """Lets the model learn to the end."""
    press(page, "Start learning")
    expect(page.get_by_role("button", name="Train on")).to_be_visible()


def loss_of(page: Page) -> float:
    return float(re.search(r"loss is (\d\.\d\d)", page.locator(".say").inner_text())[1])


def test_it_pauses_while_its_tab_is_hidden(open_exported, tmp_path):
    page = open_exported(written(tmp_path / "learn.html", LONG))
    seen = page.locator(".facts b").first
    press(page, "Start learning")
    expect(seen).not_to_have_text("0")
    page.evaluate(HIDE, True)
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    stood = seen.inner_text()
    page.wait_for_timeout(300)
    assert seen.inner_text() == stood
    page.evaluate(HIDE, False)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(seen).not_to_have_text(stood)


def test_it_waits_then_learns_and_says_how_far_it_is_and_what_it_remembers(open_learning):
    page = open_learning()
    expect(page.locator(".sheet")).not_to_be_empty()  # what random weights write
    expect(page.locator(".say")).to_contain_text("Nothing is learned yet")
    finish(page)
    assert 1.2 < loss_of(page) < 2.0  # below the word before, after 40,000 words
    expect(page.locator(".say")).to_contain_text("better than knowing the word before (2.09)")
    expect(page.locator(".say")).to_contain_text("% of the pronouns")
    expect(page.locator(".key")).not_to_contain_text("recorded")  # nothing is broken
    dot, top = page.locator(".dot").get_attribute("cy"), page.locator(".loss").get_attribute("d")
    assert abs(float(dot) - float(top.split()[-1])) < 0.1
    expect(page.locator(".sheet")).to_contain_text("One ")
    assert page.locator(".map rect:not(.cell, .later)").count() == 14 * 14
    assert page.locator(".early li").count() == 3  # at first, after 2 and after 16 updates


def test_the_same_seed_is_the_same_run_and_another_seed_another(open_learning):
    page = open_learning()
    first, again, other = (page.evaluate(LOSSES, [{}, seed, 12]) for seed in (5, 5, 6))
    assert first == again != other


def test_the_beginning_is_slow_and_every_update_of_it_is_shown(open_learning):
    page = open_learning()
    updates, losses = page.evaluate(REPORTS, 5)
    assert set(range(1, 64)) <= set(updates)
    assert losses[:12] == page.evaluate(REPORTS, 5)[1][:12]


def test_pause_stops_it_one_update_is_one_and_continue_goes_on(open_learning):
    page = open_learning()
    seen = page.locator(".facts b").first
    press(page, "One update")  # before the start
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    first = int(seen.inner_text().replace(",", ""))
    assert 250 < first < 520  # four stories
    expect(page.locator(".say")).to_contain_text("it prefers some, for no reason")
    press(page, "One update")
    expect(seen).not_to_have_text(f"{first:,}")
    assert 250 < int(seen.inner_text().replace(",", "")) - first < 520
    press(page, "Start again")  # the pause stays
    expect(seen).to_have_text("0")
    press(page, "Start learning")
    press(page, "Pause")
    press(page, re.compile("Continue|Start learning"))
    expect(page.get_by_role("button", name="Train on")).to_be_visible()


@pytest.mark.parametrize(("switch", "low"), [("Labels not shifted", True), ("Learning rate / 10", False)])
def test_a_switch_from_the_start_does_what_it_says(open_learning, switch, low):
    page = open_learning()
    page.get_by_text("More switches").click()
    page.get_by_label(switch).check()
    finish(page)
    expect(page.locator(".found:visible")).to_contain_text("From the start: ")
    expect(page.locator(".found:visible")).to_contain_text("An unbroken run has")
    assert (loss_of(page) < 0.6) is low
    expect(page.locator(".say.wrong")).to_have_count(int(low))
    expect(page.locator(".key")).to_contain_text("a recorded run with seed 1, unbroken")
    repeats = re.search(r"(\w+) \1 \1", page.locator(".sheet").inner_text())
    assert bool(repeats) is low


def test_without_a_causal_mask_the_loss_falls_below_the_floor(open_learning):
    losses = open_learning().evaluate(LOSSES, [{"causal": False}, 1, 300])
    assert min(filter(None, losses[-30:])) < 0.6  # the floor is 0.66


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_switch_stays_finite_from_the_start_and_in_the_middle(open_learning, change):
    page = open_learning()
    for settings, later in ((change, {}), ({}, change)):
        losses = page.evaluate(LOSSES, [settings, 1, 15, later])
        assert all(0 < loss < 12 for loss in losses)  # None would be a loss that is not finite
        assert losses[-1] < losses[0]


def test_what_is_downloaded_opens_in_python_with_the_same_probabilities(open_learning, tmp_path):
    page = open_learning()
    finish(page)
    with page.expect_download() as download:
        press(page, "Open it in Python")
    download.value.save_as(tmp_path / "learned.zip")
    with zipfile.ZipFile(tmp_path / "learned.zip") as packed:
        assert packed.testzip() is None
        packed.extractall(tmp_path)
    model, tokenizer = load_model(tmp_path / "learned")
    assert sum(p.numel() for p in model.parameters()) == 42_720
    stories = storyworld.corpus(40, seed=3).splitlines(keepends=True)
    ids = [torch.tensor([tokenizer.encode(f"\n{story}")]) for story in stories]
    with torch.no_grad():
        losses = [torch.nn.functional.cross_entropy(model(x[:, :-1])[0], x[0, 1:]) for x in ids]
    assert (
        abs(sum(losses).item() / len(losses) - loss_of(page)) < 0.2
    )  # the sentence is about the last stories that it read


def test_what_is_kept_as_a_page_writes_in_a_page_of_its_own(open_learning, open_exported, tmp_path):
    page = open_learning()
    finish(page)
    with page.expect_download() as download:
        press(page, "Keep it as a page")
    download.value.save_as(tmp_path / "my_model.html")
    kept = open_exported((tmp_path / "my_model.html").as_uri())
    expect(kept.locator(".tinylm-view.writer .say")).to_contain_text("345 words")
    assert "$" not in kept.locator("main > *:not(#writer)").first.inner_text()


@pytest.mark.parametrize("text", BAD_TEXTS, ids=["empty", "short", "one character", "binary"])
def test_a_text_that_teaches_nothing_is_refused_with_what_to_do(open_learning, text):
    page = open_learning()
    page.get_by_text("Your own text").click()
    page.get_by_label("Text to learn from").fill(text)
    press(page, "Learn this text")
    expect(page.get_by_role("status").filter(has_text=BAD_TEXTS[text])).to_be_visible()


def test_a_text_of_one_s_own_is_learned_letter_by_letter_and_a_huge_one_is_cut(open_learning):
    page = open_learning()
    page.get_by_text("Your own text").click()
    huge = storyworld.corpus(300, seed=1)
    page.evaluate(PASTE, [huge, 50_000_000 // len(huge)])
    expect(page.get_by_text("the first 2.00 million are used")).to_be_visible()
    press(page, "Learn this text")
    expect(page.get_by_role("status").filter(has_text="It learns from this text now")).to_be_visible()
    expect(page.locator(".curve")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Train on")).to_be_visible()
    expect(page.locator(".say")).to_contain_text("Nobody knows the floor of this text")
    expect(page.locator(".key")).to_contain_text("from which it never learns")
    expect(page.get_by_role("heading", name="Loss, in nats per character")).to_be_visible()
    expect(page.locator(".say")).to_contain_text("on the tenth of the text that it never reads")
    press(page, "Back to StoryWorld")
    expect(page.locator(".say")).to_contain_text("floor", use_inner_text=True)


def test_without_scripts_a_recorded_run_is_shown(open_exported, address):
    page = open_exported(address, java_script_enabled=False)
    expect(page.get_by_text("These pictures show a run that was recorded.")).to_be_visible()
    assert page.locator("#learner figure img").evaluate("image => image.naturalWidth") > 500


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_is_accessible_and_is_worked_with_the_keyboard(open_learning, width, scheme):
    page = open_learning(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.get_by_role("button", name="Start learning").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Train on")).to_be_visible()
    expect(page.get_by_role("button", name="Train on")).to_be_focused()
    page.get_by_text("More switches").click()
    page.get_by_label("No norms").press("Space")
    expect(page.get_by_label("No norms")).to_be_checked()
    page.get_by_text("Your own text").click()
    assert_fits(page, ".tinylm-view.learning *:not(svg *)")
    page.screenshot(path=SCREENSHOTS / f"learning-{width}-{scheme}.png", full_page=True)
    assert findings(page) == []


def test_stored_levels_are_those_of_the_library(open_learning):
    page, found = open_learning(), storyworld.entropies(load_model("storyworld")[1])
    assert page.evaluate("options.data.entropies") == pytest.approx(found._asdict(), rel=1e-4)
    assert json.loads(page.evaluate("options.data.config"))["vocab_size"] == 345
    assert Path(page.url.removeprefix("file://")).stat().st_size < 450_000
