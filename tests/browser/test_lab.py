"""The course as a student sees it: the real `lab`, JupyterLab and Chromium, without a network."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect
from support.browser import CELLS, NOTEBOOK, ROOT, SAMPLE, build_lesson, findings

from tinylm_classroom.course import lab
from tinylm_classroom.course.lesson.cover import cover

pytestmark = pytest.mark.browser

LESSON = """
# %%
import math

from tinylm_classroom.display.figures import loss_curve
from tinylm_classroom.display.numbers import measured

# %% [markdown]
# ## 1. A loss that falls
# > **Predict.** Where does the curve end?

# %% tags=["source-hidden"]
steps = list(range(300))
losses = [1.6 + 2.6 * math.exp(-step / 60) for step in steps]
levels = {"ln 65": math.log(65), "unigram": 3.31, "bigram": 2.45}
checked = (steps[::50], [loss + 0.1 for loss in losses[::50]])
loss_curve({"training": (steps, losses), "validation": checked}, levels, caption="The model passes the bigram level.")

# %%
print("this took", measured(12.3, "s", 1, 60))
"""
NUMBERS = [path.stem[:2] for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


@pytest.mark.parametrize("number", [None, NUMBERS[0]])
def test_a_lesson_opens_and_runs_without_news_errors_or_network(open_lesson, jupyterlab, tmp_path, sample, number):
    work, notebooks = tmp_path / "work", ROOT / "notebooks" if number else sample
    lab.refresh(notebooks, work)
    name = lab.find_lesson(notebooks, number or "00")
    lesson = open_lesson(work, name)
    assert lesson.outputs() == []
    lesson.run_all()
    outputs = lesson.outputs()
    assert lesson.errors() == []
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    assert len(outputs) >= 2
    lesson.page.locator(".jp-OutputArea-output").filter(visible=True).first.wait_for()
    picture = lesson.page.locator("figure img").first
    filters = {theme: picture.evaluate("image => getComputedStyle(image).filter") for theme in lesson.themes()}
    assert filters == {"light": "none", "dark": "invert(0.91) hue-rotate(180deg)"}
    lesson.screenshots(f"{Path(name).stem}-end")
    lesson.show_cell(0)
    lesson.page.locator(".jp-Notebook h1").first.wait_for()
    lesson.screenshots(f"{Path(name).stem}-top")
    assert lesson.page.locator(".Toastify__toast").count() == 0
    assert list(jupyterlab.home.iterdir()) == []


def test_every_lesson_opens_without_news_errors_or_network(open_lesson, tmp_path):
    """Opened, not run: nbval runs every cell, and each view has its own test in a browser."""
    work, names = tmp_path / "work", [lab.find_lesson(ROOT / "notebooks", number) for number in NUMBERS]
    lab.refresh(ROOT / "notebooks", work)
    lesson = open_lesson(work, names[0])
    for number, name in zip(NUMBERS, names, strict=True):
        lesson.open(name)
        heading = lesson.page.locator(".jp-Notebook h1:visible").first
        assert heading.inner_text().startswith(number)
        assert lesson.outputs() == []
    assert lesson.page.locator(".Toastify__toast, mjx-merror").count() == 0


def test_the_first_time_the_contents_of_the_lesson_are_open_and_the_files_are_not(
    open_lesson, jupyterlab, tmp_path, monkeypatch
):
    for variable in lab.CACHES:
        monkeypatch.delenv(variable, raising=False)
    lab._environment(tmp_path / "work")
    config = lab.CACHES["JUPYTER_CONFIG_DIR"]
    layout = Path(config, "lab", "workspaces", lab.LAYOUT_FILE)
    written = tmp_path / "work" / "cache" / layout
    theirs = jupyterlab.root / "caches" / layout
    theirs.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(written, theirs)
    lab.refresh(ROOT / "notebooks", tmp_path / "work")
    page = open_lesson(tmp_path / "work", lab.find_lesson(ROOT / "notebooks", "05")).page
    expect(page.locator("#jp-left-stack .jp-TableOfContents")).to_contain_text("1. One word looks back")
    expect(page.locator("#jp-left-stack .jp-FileBrowser")).to_be_hidden()
    written.write_text("as the student left it")
    lab._environment(tmp_path / "work")
    assert written.read_text() == "as the student left it"


def test_the_tests_share_a_server_that_forgets_kernels_theme_and_tabs(open_lesson, jupyterlab, sample):
    first = open_lesson(sample, SAMPLE)
    first.command("apputils:change-theme", theme="JupyterLab Dark")
    first.page.wait_for_function("document.body.dataset.jpThemeName == 'JupyterLab Dark'")
    first.page.close()
    jupyterlab.forget()
    assert json.loads(jupyterlab.request("sessions")) == json.loads(jupyterlab.request("kernels")) == []
    another = sample.parent / "another"
    another.mkdir()
    shutil.copy(sample / SAMPLE, another / SAMPLE)
    second = open_lesson(another, SAMPLE)
    assert second.page.evaluate("document.body.dataset.jpThemeName") == "JupyterLab Light"
    assert second.page.locator("#jp-main-dock-panel .lm-TabBar-tab").count() == 1


def test_a_figure_is_seen_in_a_notebook_that_was_only_opened(open_lesson, sample):
    lesson = open_lesson(sample, SAMPLE)
    picture = lesson.page.locator("figure img")
    assert picture.get_attribute("alt").startswith("Line chart of the loss")
    assert picture.evaluate("image => image.naturalWidth") > 1000
    assert lesson.page.locator("figcaption").inner_text() == "The model passes the bigram level."
    lesson.page.locator("figure summary").click()
    assert lesson.page.locator("figure td").first.is_visible()
    for _ in lesson.themes():
        assert picture.evaluate("image => getComputedStyle(image).filter") == "none", "an untrusted figure stays a card"
    lesson.screenshots("figure-untrusted")


def test_a_claim_leads_to_the_section_of_its_evidence(open_lesson, tmp_path):
    text = LESSON.replace("# ## 1. A loss that falls", "# ## 1. Which loss falls, & why?")
    far = "\n".join(f"\n# %% [markdown]\n# ## {n}. More\n# " + "text " * 400 for n in range(2, 9))
    end = "\n\n# %% [markdown]\n# ## What you have now\n# - This loss falls. [[falls]]\n"
    evidence = '\n# %% evidence="falls" tried="seeds"\nassert losses[0] > losses[-1]\n'
    notebooks, work = build_lesson(tmp_path / "course", text + evidence + far + end), tmp_path / "work"
    lab.refresh(notebooks, work)
    lesson = open_lesson(work, lab.find_lesson(notebooks, "00"))
    lesson.show_cell(len(text.split("# %%")) + 9)
    link = lesson.page.get_by_role("link", name="section 1")
    link.scroll_into_view_if_needed()
    link.click()
    heading = lesson.page.locator(".jp-Notebook h2", has_text="1. Which loss falls")
    expect(heading).to_be_in_viewport()


ASKS = """
# %%
from tinylm_classroom import predict

# %% [markdown]
# ## 1. Half
# It is so.

# %%
predict("What is half of 4?", key=lambda: 2, number="of it", within=0, because="Twice two is four.")

# %%
print("two halves")

# %% [markdown]
# So each half is a two.

# %% [markdown]
# ## 2. On
# It goes on.

# %%
print("and on")
"""


def test_what_answers_a_prediction_is_covered_until_a_guess_with_a_kernel_and_without(open_lesson, tmp_path):
    notebooks = build_lesson(tmp_path / "course", ASKS)
    path = notebooks / SAMPLE
    built = nbformat.read(path, as_version=4)
    cover(built)  # as the build does for the third edition
    nbformat.write(built, path)
    lesson = open_lesson(notebooks, SAMPLE)
    outputs = lesson.page.locator(".jp-OutputArea-output")
    printed, on = outputs.filter(has_text="two halves"), outputs.filter(has_text="and on")
    expect(on).to_be_visible()
    expect(printed).to_be_hidden()
    lesson.run_all()
    shown = lesson.page.get_by_role("button", name="Show what comes next")
    expect(shown).to_be_visible()
    expect(on).to_be_visible()
    expect(printed).to_be_hidden()
    code, told = (lesson.page.get_by_text(text).last for text in ('print("two halves")', "So each half is a two."))
    expect(told).to_be_hidden()
    expect(code).to_be_hidden()
    lesson.screenshots("covered")
    before = on.bounding_box()["y"]
    lesson.page.get_by_label("Your guess").fill("3")
    lesson.page.get_by_role("button", name="Check my guess").click()
    for part in (printed, code, told):
        expect(part).to_be_visible()
    expect(shown).to_be_hidden()
    verdict = lesson.page.locator(".verdict").bounding_box()["height"]
    assert on.bounding_box()["y"] - before < verdict + 60  # only the verdict takes room
    assert findings(lesson.page, ".tinylm-view.predict") == []


@pytest.mark.parametrize("keys", ["Shift+Enter", "Control+Enter"])
def test_the_keys_that_run_a_cell_do_so_from_a_view_which_keeps_what_was_guessed(open_lesson, tmp_path, keys):
    lesson = open_lesson(build_lesson(tmp_path / "course", ASKS), SAMPLE)
    lesson.run_all()
    active, count = f"{NOTEBOOK}.content.activeCellIndex", f"{CELLS}[2].execution_count"
    button, field = lesson.page.get_by_role("button", name="Check my guess"), lesson.page.get_by_label("Your guess")
    field.fill("1/2")
    for part in (button, field):
        part.click()
        place, before = lesson.page.evaluate(f"[{active}, {count}]")
        lesson.page.keyboard.press(keys)
        lesson.page.wait_for_function(f"before => {count} > before", arg=before)
        assert lesson.page.evaluate(active) == place + (keys == "Shift+Enter")
        expect(lesson.page.locator(".verdict")).to_contain_text("Too low, by a factor of about 4.0.")
        expect(lesson.page.get_by_role("button", name="Show what comes next")).to_be_hidden()
