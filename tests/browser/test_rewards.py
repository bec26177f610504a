"""A run that learns from rewards as it is met: in JupyterLab, with buttons that a running cell hears, and exported."""

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
    findings,
    nbval,
)

from tinylm_classroom.course import lab
from tinylm_classroom.views.base import MIME

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
import copy

from tinylm_classroom import rewards_view
from tinylm_lib.rewards import reinforce

model, words, generator = ready.model, ready.tokenizer, torch.Generator().manual_seed(1)
start, (end,) = copy.deepcopy(model), words.encode("\n")

# %%
def possible(ids):
    text = words.decode(ids[1:])
    return float(text.endswith("\n") and storyworld.log_prob(text) > -math.inf)


def prompts(n):
    for _ in range(n):
        yield [words.encode("\n" + storyworld.story(generator).text)[:70] for _ in range(2)]

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
options = {"n_each": 3, "max_new_tokens": 57, "stop_ids": [end], "generator": generator}
updates = reinforce(model, start, prompts(8), possible, optimizer, **options)
await rewards_view(updates, words, total_steps=8)

# %%
print("the end")
"""
)
RUN = ".tinylm-view.rewards"
UPDATES = f"Number(document.querySelector('{RUN} .state').textContent.match(/[0-9]+/)[0])"


@pytest.fixture(scope="module")
def stored(sample) -> dict:
    """The data of the finished run, as the built notebook holds them."""
    cells = nbformat.read(sample / SAMPLE, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    (found,) = [output["data"][MIME] for output in outputs if MIME in output.get("data", {})]
    assert found["module"] == "rewards"
    return found["data"]


def verdict(worth: float, before: str, wrong: str) -> str:
    place = len(before.split()) + 1
    return f"✗ reward {worth:.2f}: word {place} is its first mistake" if wrong else f"✓ reward {worth:.2f}: no mistake"


def walk_back(page: Page, data: dict) -> None:
    """Walks back through a finished run: the numbers and the texts are those of the data."""
    view, say, last = page.locator(RUN), page.locator(f"{RUN} .say"), len(data["steps"]) - 1
    for i in (last, last // 2, 0):
        page.get_by_label("Update", exact=True).fill(str(i))
        step, texts = [sample for sample in data["samples"] if sample[0] <= data["steps"][i]][-1]
        expect(say).to_contain_text(f"At update {data['steps'][i]} of {data['total']}")
        expect(say).to_contain_text(f"the mean reward is about {data['smooth'][i]:.2f}")
        expect(say).to_contain_text(f"{data['kl'][i]:.3f} nats per token away")
        expect(view.locator(".head")).to_contain_text(f"One of its texts for update {step}.")
        assert view.locator("details .texts li").count() == len(texts) == 2
        for n, (worth, given, possible, wrong, after) in enumerate(texts):
            line = view.locator("details .texts li").nth(n)
            expect(line.locator("b")).to_have_text(verdict(worth, given + possible, wrong))
            expect(line.locator(".given")).to_have_text(given)
            assert line.locator("> span").text_content() == given + possible + wrong + after
            assert line.locator("mark").all_text_contents() == ([wrong] if wrong else [])
    page.get_by_label("Update", exact=True).focus()
    page.keyboard.press("ArrowRight")
    expect(say).to_contain_text(f"At update {data['steps'][1]} of")


def test_a_running_cell_hears_its_buttons_in_jupyterlab(open_lesson, tmp_path, sample):
    lab.refresh(sample, tmp_path / "work")
    path = tmp_path / "work" / SAMPLE
    text = path.read_text(encoding="utf-8").replace("prompts(8)", "prompts(500)").replace("steps=8", "steps=500")
    path.write_text(text, encoding="utf-8")
    lesson = open_lesson(tmp_path / "work", SAMPLE)
    page = lesson.page
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    lesson.show_cell(6)
    page.locator(RUN).wait_for(timeout=120_000)
    state = page.locator(f"{RUN} .state")
    expect(state).to_contain_text("running: ")
    page.wait_for_function(f"{UPDATES} > 8", timeout=120_000)
    page.get_by_role("button", name="Pause").click()
    expect(state).to_contain_text("paused after ")
    stood = page.evaluate(UPDATES)
    page.wait_for_timeout(1500)
    assert page.evaluate(UPDATES) == stood and 8 < stood < 500
    lesson.screenshots("rewards-paused-lab")
    assert findings(page, RUN) == []
    page.get_by_role("button", name="Resume").press("Enter")
    page.wait_for_function(f"{UPDATES} > {stood}", timeout=120_000)
    page.get_by_role("button", name="Stop").click()
    expect(state).to_contain_text("stopped after ")
    lesson.ended()  # the update that was under way when the button was heard ends first
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert page.locator(RUN).count() == 1 and lesson.errors() == []
    (output,) = [output["data"] for output in lesson.outputs() if MIME in output.get("data", {})]
    data = output[MIME]["data"]
    assert data["state"] == "stopped" and stood < data["step"] < 500
    assert f"In {data['step']} of 500 updates" in output["text/html"]
    assert lesson.outputs()[-1]["text"] == "the end\n"
    walk_back(page, data)


def test_the_exported_page_moves_without_a_kernel_and_shows_mistakes(open_page, stored):
    page = open_page()
    assert stored["state"] == "finished" and len(json.dumps(stored)) < 20_000
    assert any(wrong for _, texts in stored["samples"] for _, _, _, wrong, _ in texts)
    walk_back(page, stored)
    assert page.get_by_role("button", name="Pause").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_no_serious_finding_in_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")
    page.screenshot(path=SCREENSHOTS / f"rewards-page-{scheme}.png", full_page=True)
    assert findings(page) == []


def test_at_200_percent_nothing_is_lost_at_the_side(open_page):
    page = open_page(**ZOOMED)
    page.wait_for_timeout(200)
    page.screenshot(path=SCREENSHOTS / "rewards-page-zoomed.png", full_page=True)
    assert_fits(page, ".tinylm-view *, pre, p")


def test_nbval_finds_the_finished_run_again(sample):
    assert "00_sample.ipynb: 2 outputs compared, 0 ignored" in nbval(sample)
