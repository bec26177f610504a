"""A cache and a training run as they are met: in JupyterLab, with buttons that a running cell hears, and exported."""

import json

import nbformat
import pytest
from playwright.sync_api import Page, expect
from support.browser import (
    OPENING,
    SAMPLE,
    SCREENSHOTS,
    ZOOMED,
    assert_fits,
    assert_on_one_screen,
    findings,
    nbval,
    rows_of,
)

from tinylm_classroom.course import lab
from tinylm_classroom.views.base import MIME
from tinylm_classroom.views.cache import reading_steps
from tinylm_lib import preset

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.data import RandomWindows
from tinylm_lib.text.tokenizers import ByteTokenizer, WordTokenizer
from tinylm_lib.training.optim import build_optimizer

cache_view(preset("llama", "3.2-1b"), ByteTokenizer(), "A red kite.", 6)

# %%
text = storyworld.corpus(600, seed=0)
words = WordTokenizer.from_text(text)
ids = torch.tensor(words.encode(text))

# %%
torch.manual_seed(1)
model = TransformerLM(preset("modern", vocab_size=words.vocab_size, d_model=48, max_seq_len=64))
recipe = TrainConfig(total_steps=200, batch_size=8, seq_len=32, warmup_steps=10, precision="fp32")
levels = storyworld.entropies(words, n_stories=600)

# %%
steps = train(model, build_optimizer(model, recipe), RandomWindows(ids, 8, 32), recipe)
await training_view(steps, model, words, total_steps=200, levels=levels)

# %%
print("the end")
"""
)
CACHE, RUN = ".tinylm-view.cache", ".tinylm-view.training"
UPDATES = f"Number(document.querySelector('{RUN} .state').textContent.match(/[0-9]+/)[0])"


@pytest.fixture(scope="module")
def stored(sample) -> dict:
    """The data of the finished run, as the built notebook holds them."""
    cells = nbformat.read(sample / SAMPLE, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    found = [output["data"][MIME] for output in outputs if MIME in output.get("data", {})]
    assert [one["module"] for one in found] == ["cache", "training"]
    return found[1]["data"]


def set_slider(page: Page, name: str, value: int) -> None:
    page.get_by_label(name, exact=True).fill(str(value))


def move_the_cache(page: Page) -> None:
    """Moves the view of the cache by mouse and keyboard; every number is Python's."""
    view, say, config = page.locator(CACHE), page.locator(f"{CACHE} .say"), preset("llama", "3.2-1b")
    view.get_by_text("The numbers of this step").click()
    expect(view.locator(".sums")).to_be_visible()

    def compare(step: int, chunk: int) -> None:
        s = reading_steps(config, 11, 6, chunk)[step - 1]
        assert rows_of(view.locator(".sums tbody tr")) == [
            [str(s.n_keys), str(s.n_new), f"{s.n_keys / s.n_new:.1f} ×"],
            [str(s.n_keys**2), str(s.n_keys * s.n_new), f"{s.n_keys / s.n_new:.1f} ×"],
            [f"{s.plain_flops:,}", f"{s.cached_flops:,}", f"{s.plain_flops / s.cached_flops:.1f} ×"],
            [f"{s.plain_total:,}", f"{s.cached_total:,}", f"{s.plain_total / s.cached_total:.1f} ×"],
            ["0", f"{2 * 16 * 8 * 64 * 4 * s.n_keys:,}", ""],
        ]
        expect(say).to_contain_text(f"Step {step} reads")
        expect(say).to_contain_text(f"so far {s.plain_total / s.cached_total:.1f} times.")
        n_steps = len(reading_steps(config, 11, 6, chunk))
        assert view.locator("svg").first.locator(".row.late").count() == n_steps - step

    expect(say).to_have_text(
        "Step 7 reads “k”: one new position, 7 keys and values; without a cache 7 positions would be computed, 6 of "
        "them again: 7.0 times the work, so far 4.0 times."
    )
    compare(7, 1)
    view.get_by_label("Step", exact=True).focus()
    page.keyboard.press("ArrowRight")
    compare(8, 1)
    view.get_by_role("radio", name="4 at a time").check()
    expect(say).to_contain_text("Step 7 reads “.”")
    compare(7, 4)
    set_slider(page, "Step", 1)
    compare(1, 4)
    assert view.locator("svg").nth(1).locator(".new").count() == 11
    view.get_by_role("radio", name="all at once").check()
    compare(1, 6)
    expect(say).to_contain_text("6 new positions, 6 keys and values; without a cache the same would")
    view.locator("svg").nth(0).locator(".row").nth(3).click()
    compare(4, 6)
    view.get_by_role("button", name="Play").click()
    expect(view.get_by_label("Step", exact=True)).to_have_value("6")
    expect(view.get_by_role("button", name="Play")).to_be_visible()
    compare(6, 6)


def walk_back(page: Page, data: dict) -> None:
    """Walks back through a finished run: the numbers and the text are those of the data."""
    view, say, last = page.locator(RUN), page.locator(f"{RUN} .say"), len(data["steps"]) - 1
    for i in (last, last // 2, 0):
        set_slider(page, "Update", i)
        step, sample = data["steps"][i], [text for at, text in data["samples"] if at <= data["steps"][i]][-1]
        expect(say).to_contain_text(f"After update {step} of {data['total']}")
        expect(say).to_contain_text(f"the loss is about {data['smooth'][i]:.2f} nats")
        expect(view.locator(".samples .on")).to_contain_text(sample.split()[0])
        expect(view.locator("figcaption b").first).to_have_text(f"{data['share'][i]:.2f}")
    view.get_by_label("Update", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(say).to_contain_text(f"After update {data['steps'][1]} of")


def steps_so_far(page: Page) -> int:
    return int(page.locator(f"{RUN} .state").inner_text().split(" of ")[0].split()[-1])


def test_a_running_cell_hears_its_buttons_in_jupyterlab(open_lesson, tmp_path, sample):
    lab.refresh(sample, tmp_path / "work")
    path = tmp_path / "work" / SAMPLE
    path.write_text(path.read_text(encoding="utf-8").replace("total_steps=200", "total_steps=2000"), encoding="utf-8")
    lesson = open_lesson(tmp_path / "work", SAMPLE)
    page = lesson.page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    lesson.show_cell(7)
    page.locator(RUN).wait_for(timeout=60_000)
    state = page.locator(f"{RUN} .state")
    expect(state).to_contain_text("running: ", timeout=30_000)
    page.wait_for_function(f"{UPDATES} > 20")
    page.get_by_role("button", name="Pause").click()
    expect(state).to_contain_text("paused after ")
    stood = steps_so_far(page)
    page.wait_for_timeout(1500)
    assert steps_so_far(page) == stood and 20 < stood < 2000
    assert_on_one_screen(page, page.locator(RUN))
    lesson.screenshots("training-paused-lab")
    assert findings(page, RUN) == []
    page.get_by_role("button", name="Resume").press("Enter")
    expect(state).to_contain_text("running: ")
    page.wait_for_function(f"{UPDATES} > {stood + 20}")
    page.get_by_role("button", name="Stop").click()
    expect(state).to_contain_text("stopped after ", timeout=30_000)
    end = steps_so_far(page)
    assert stood < end < 2000
    lesson.ended()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert page.locator(RUN).count() == 1 and lesson.errors() == []
    outputs = [output["data"] for output in lesson.outputs() if MIME in output.get("data", {})]
    data = outputs[1][MIME]["data"]
    assert (data["state"], data["step"]) == ("stopped", end)
    assert f"After {end} of 2000 updates" in outputs[1]["text/html"]
    assert lesson.outputs()[-1]["text"] == "the end\n"  # the next cell ran after the stop
    walk_back(page, data)
    lesson.screenshots("training-stopped-lab")
    lesson.show_cell(3)
    assert_on_one_screen(page, page.locator(CACHE))
    move_the_cache(page)
    lesson.screenshots("cache-lab")
    assert findings(page, CACHE) == []


def test_the_exported_page_moves_without_a_kernel(open_page, stored):
    page = open_page()
    assert stored["state"] == "finished" and stored["smooth"][-1] < 0.5 * stored["smooth"][0]
    assert len(json.dumps(stored)) < 20_000
    move_the_cache(page)
    walk_back(page, stored)
    assert page.get_by_role("button", name="Pause").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_no_serious_finding_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    page.screenshot(path=SCREENSHOTS / f"training-page-{scheme}.png", full_page=True)
    assert findings(page) == []
    assert page.get_by_role("button", name="Play").count() == 0


def test_at_200_percent_nothing_is_lost_at_the_side(open_page):
    page = open_page(**ZOOMED)
    page.wait_for_timeout(200)
    page.screenshot(path=SCREENSHOTS / "training-page-zoomed.png", full_page=True)
    assert_fits(page, ".tinylm-view *, pre, p")
    sizes = "nodes => nodes.map(node => 14 * Math.hypot(node.getCTM().a, node.getCTM().b))"
    assert min(page.locator(".tinylm-view svg text").evaluate_all(sizes)) >= 13.5


def test_nbval_finds_the_finished_run_again(sample):
    assert "00_sample.ipynb: 3 outputs compared, 0 ignored" in nbval(sample)
