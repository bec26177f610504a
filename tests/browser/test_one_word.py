"""The film of one word in a real browser: what it says and plays is what the model computes."""

import re

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from support.browser import OPENING, ZOOMED, assert_fits, assert_on_one_screen, enter, findings

from tinylm_classroom.live.film import film
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.browser

STORY = "\nOne dark evening, calm Mia ran to Foxhollow."
LESSON = f"""{OPENING}
# %%
one_word(ready.model, ready.tokenizer, {STORY!r})
"""
VIEW = ".tinylm-view.one_word"
N_STEPS = 21  # with one of three blocks open
INKS = """canvas => new Set(new Uint32Array(
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""


@pytest.fixture(scope="module")
def found() -> dict[str, torch.Tensor]:
    """What the parts of the model return."""
    ready = load_pretrained("storyworld")
    return film(ready.model.eval(), torch.tensor(ready.tokenizer.encode(STORY)))


def says(page: Page) -> Locator:
    return page.locator(f"{VIEW} .say")


def at_step(page: Page, n: int) -> None:
    expect(page.locator(f"{VIEW} .name")).to_contain_text(f"· {n} of {N_STEPS} ·")


def step_through(page: Page, found: dict[str, torch.Tensor]) -> None:
    """Steps through the film by keys and by mouse, opens blocks and heads, and compares what is said with the model."""
    view = page.locator(VIEW)
    expect(view.locator(".name")).to_contain_text("15 of 21 · The whole machine")
    expect(says(page)).to_contain_text("it went from “Often” to “He” to “She”.")
    stage = view.locator(".stage")
    stage.focus()
    page.keyboard.press("Home")
    at_step(page, 1)
    for n in range(1, N_STEPS + 1):
        page.keyboard.press("ArrowRight")
        at_step(page, n)
        assert view.locator("canvas").evaluate(INKS) > 4, "a step that shows nothing"
    expect(says(page)).to_have_text("2 times through the machine: 2 more words. And so on.")
    page.keyboard.press("ArrowLeft")
    at_step(page, N_STEPS - 1)

    for block, head in ((0, 3), (2, 1)):
        view.get_by_role("group", name="Open block").get_by_role("radio", name=str(block)).check()
        expect(view.locator(".name")).to_contain_text(f"Block {block}: norm")
        lengths = found["normed_lengths"][block]
        expect(says(page)).to_contain_text(f"here {lengths.min():.1f} to {lengths.max():.1f}.")
        view.get_by_role("group", name="Head").get_by_role("radio", name=str(head)).check()
        expect(view.locator(".name")).to_contain_text(f"Block {block}, head {head}: softmax")
        expect(says(page)).to_contain_text(f"gets {100 * found['weights'][block, head].max():.0f} %.")
        view.get_by_role("button", name="one step back").click()
        expect(says(page)).to_contain_text(
            f"with a score of {found['scores'][block, head].max():.1f}".replace("-", "−")
        )
    view.locator("summary").click()
    expect(view.locator(".list button")).to_have_count(N_STEPS)
    view.get_by_role("button", name=re.compile("The race")).click()
    expect(says(page)).to_contain_text(
        "From the attention of block 2 on, “She” leads, with 54 %; at the top it has 100 %."
    )
    view.locator("summary").click()


def play(page: Page) -> None:
    """Plays and pauses, by the button and by the keyboard, and moves the time."""
    view = page.locator(VIEW)
    time = view.get_by_role("slider", name="time")
    view.get_by_role("group", name="Speed").get_by_role("radio", name="2").check()
    time.fill("0")
    view.get_by_role("button", name="Play").click()
    expect(view.locator(".name")).to_contain_text("· 2 of 21 ·")
    view.get_by_role("button", name="Pause").click()
    stopped = float(time.input_value())
    assert stopped > 0
    view.locator(".stage").focus()
    page.keyboard.press(" ")
    page.wait_for_function("([view, t]) => document.querySelector(`${view} .time`).value > t + .2", arg=[VIEW, stopped])
    page.keyboard.press(" ")
    expect(view.get_by_role("button", name="Play")).to_be_visible()
    expect(view.get_by_role("status")).to_have_text(says(page).inner_text())


def test_the_view_lives_in_jupyterlab(run_sample, found):
    lesson, page = run_sample, run_sample.page
    page.locator(VIEW).wait_for()
    lesson.show_cell(4)
    step_through(page, found)
    play(page)
    enter(page.locator(VIEW).get_by_label("Your own text"), "One day, Mia had a kite.")
    expect(page.locator(f"{VIEW} .list")).to_contain_text("cut into 9 tokens")
    enter(page.locator(VIEW).get_by_label("Your own text"), "")
    expect(page.locator(VIEW).get_by_role("alert")).to_have_text("the text is empty: type a text")
    assert_on_one_screen(page, page.locator(VIEW))
    lesson.screenshots("one_word-lab")
    for _ in lesson.themes():
        assert findings(page, VIEW) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_exported_page_is_alive_from_disk(open_page, found, scheme):
    page = open_page(color_scheme=scheme)
    step_through(page, found)
    play(page)
    assert findings(page, VIEW) == []


def test_a_text_typed_at_the_end_of_the_film_is_read_at_the_same_head(open_page):
    page = open_page(reduced_motion="reduce")
    view = page.locator(VIEW)
    view.get_by_role("group", name="Open block").get_by_role("radio", name="1").check()
    view.get_by_role("group", name="Head").get_by_role("radio", name="3").check()
    view.locator(".stage").focus()
    page.keyboard.press("End")
    at_step(page, N_STEPS)
    enter(view.get_by_label("Your own text"), STORY.replace("Mia", "Carlos").strip())
    at_step(page, 1)
    expect(view.locator(".list")).to_contain_text("Block 1, head 3: softmax")


def test_the_race_keeps_each_reading_in_its_place(open_page, found):
    page = open_page()
    page.evaluate("""() => {
        const draw = CanvasRenderingContext2D.prototype.fillText;
        window.drawn = [];
        CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            if (text.endsWith(" %")) window.drawn.push(text);
            draw.call(this, text, ...where);
        };
    }""")

    def readings(share: float) -> list[str]:
        return page.locator(VIEW).evaluate(
            """(view, share) => {
                const { steps, seek } = view.parentElement.film, race = steps().find(({ kind }) => kind === "race");
                window.drawn = [];
                seek(race.from + share * race.seconds);
                return window.drawn;
            }""",
            share,
        )

    at_the_end = readings(0.99)
    n_words = len(at_the_end) // len(found["lens"])
    for n, lens in enumerate(found["lens"]):
        assert f"{100 * lens.max():.0f} %" in at_the_end[n * n_words : (n + 1) * n_words]
    for share in (0.2, 0.4, 0.6):
        assert (seen := readings(share)) == at_the_end[: len(seen)] and 0 < len(seen) < len(at_the_end)


def test_where_less_motion_is_asked_for_each_step_is_a_still(open_page, found):
    page = open_page(reduced_motion="reduce")
    step_through(page, found)
    view = page.locator(VIEW)
    ends = view.evaluate("view => view.parentElement.film.steps().map(({ from, seconds }) => from + seconds)")
    for to in (0, ends[0] + 0.1, ends[6] + 1):
        view.get_by_role("slider", name="time").fill(str(to))
        at = view.evaluate("view => Number(view.querySelector('.time').value)")
        assert min(abs(at - end) for end in ends) < 0.01


def test_it_fits_a_phone_and_a_page_at_200_percent(open_page):
    for options in ({"viewport": {"width": 390, "height": 844}}, ZOOMED):
        page = open_page(**options)
        page.locator(f"{VIEW} .stage").focus()
        for _ in range(N_STEPS):
            page.keyboard.press("ArrowRight")
            assert_fits(page, f"{VIEW} *")


def test_without_scripts_its_picture_and_a_table_are_there(open_page):
    page = open_page(java_script_enabled=False)
    assert page.get_by_alt_text(re.compile("^Columns of tokens rise through 3 blocks")).is_visible()
    page.get_by_text("The numbers").first.click()
    assert (
        page.get_by_role("cell", name="feed-forward of block 2")
        .or_(page.get_by_role("rowheader", name="feed-forward of block 2"))
        .is_visible()
    )
