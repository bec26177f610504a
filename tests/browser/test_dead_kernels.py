"""Views whose kernel is busy or gone: they say so, and where one is not alive, its picture is seen and no error."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from nbformat import v4, writes
from playwright.sync_api import Locator, expect
from support.browser import COMMANDS, NOTEBOOK, RUN_MS, LabPage, enter

pytestmark = pytest.mark.browser

STORY = " Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
OTHER = "Jamal had a gray book."
CELLS = {
    "imports": """
from itertools import count
from pathlib import Path
from time import sleep
import torch
from tinylm_classroom import attention_view, control, one_word, predict, residual_view, sampling_view
from tinylm_classroom import patch_view, token_view, training_view, watch
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.training.loop import Step

ready, story = load_pretrained("storyworld"), "STORY"

def updates():
    for n in count(1):
        sleep(0.01)
        yield Step(n, torch.tensor(3.0), torch.tensor(1.0), 0.1)
""".replace("STORY", STORY),
    "widget-interact": 'control(lambda n=13: print(f"n is {n}"), n=(1, 20))',
    "attention": "attention_view(ready.model, ready.tokenizer, story, layer=2)",
    "sampling": "sampling_view(ready.model, ready.tokenizer, story)",
    "one_word": "one_word(ready.model, ready.tokenizer, ' Carlos had a pink fan.')",
    "tokens": "token_view({'a story': story}, [ready.tokenizer])",
    "residual": "residual_view(ready.model, ready.tokenizer, story)",
    "patch": "patch_view(ready.model, ready.tokenizer, story, story[:-4] + 'gray', ('fan', 'book'))",
    "writer": "watch(ready.model, ready.tokenizer)",
    "predict": 'predict("How many legs?", key=lambda: 4, number="legs", within=0, because="It has four.")',
    "heading": "## What a question does not cover",
    "busy": "while not Path('go').exists(): sleep(0.1)",
    "training": "await training_view(updates(), ready.model, ready.tokenizer, total_steps=9999)",
}
SHOWN = [name for name in CELLS if name not in ("imports", "heading", "busy")]
ASKING = ["attention", "one_word", "tokens", "residual", "patch"]  # by a text of the reader
GONE = "The kernel was restarted or has stopped. Run the cells above and this cell again."
BUSY = "The kernel has not answered yet: it is busy."
NAME = "views.ipynb"


def seen(lesson: LabPage, name: str) -> Locator:
    """The one output of a view's cell that is seen."""
    place = list(CELLS).index(name)
    lesson.show_cell(place)
    cell = lesson.page.locator(f".jp-Cell[data-windowed-list-index='{place}']")
    output = cell.locator(".jp-OutputArea-child").filter(visible=True)
    expect(output).to_have_count(1)
    return output


def alive(lesson: LabPage, name: str) -> Locator:
    """A view that is drawn by its script, and its picture is not seen."""
    view = seen(lesson, name).locator(f".{name}")
    expect(view).to_be_visible()
    return view


def assert_says_that_its_kernel_is_gone(lesson: LabPage, names: Iterable[str]) -> None:
    for name in names:
        view = alive(lesson, name)
        expect(view.get_by_role("alert")).to_have_text(GONE)
        assert view.locator(".needs-kernel :is(input, button)").evaluate_all(
            "all => all.every(e => e.matches(':disabled'))"
        )


def assert_pictures(lesson: LabPage, names: Iterable[str]) -> None:
    """Each view is a picture, and no error is seen."""
    for name in names:
        output = seen(lesson, name)
        texts = {
            "predict": "Think first, then open",
            "widget-interact": "n is 13",
            "training": "A training run of 9999",
        }
        expect(output).to_contain_text(texts[name]) if name in texts else expect(output.locator("img")).to_be_visible()
        expect(output.locator(".tinylm-view, .widget-interact")).to_have_count(0)
        expect(output).not_to_contain_text("Error displaying widget")


def run_above(lesson: LabPage, name: str) -> None:
    """Runs the cells above that of a name, and waits until the last of them shows its view."""
    place = list(CELLS).index(name)
    lesson.page.evaluate(
        f"at => {{ {NOTEBOOK}.content.activeCellIndex = at; {COMMANDS}.execute('notebook:run-all-above') }}", place
    )
    above = f"{NOTEBOOK}.context.model.toJSON().cells.slice(0, at)"
    ran = f"at => {above}.every(cell => cell.cell_type !== 'code' || cell.execution_count)"
    lesson.page.wait_for_function(ran, arg=place, timeout=RUN_MS)
    assert lesson.errors() == []


def save(lesson: LabPage, path: Path) -> dict:
    """Saves the notebook; returns it."""
    lesson.command("docmanager:save")
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_view_says_when_its_kernel_is_busy_or_gone_and_leaves_its_picture(open_lesson, tmp_path):
    cells, path = [v4.new_code_cell(source.strip()) for source in CELLS.values()], tmp_path / "work" / NAME
    heading = list(CELLS).index("heading")
    cells[heading] = v4.new_markdown_cell(CELLS["heading"])
    path.parent.mkdir()
    notebook = v4.new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    path.write_text(writes(notebook), encoding="utf-8")
    lesson = open_lesson(path.parent, NAME)
    page, uncaught = lesson.page, []
    page.on("pageerror", lambda error: uncaught.append(str(error)))

    run_above(lesson, "busy")
    page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-cell-and-select-next') }}")
    page.evaluate(f"() => {{ {COMMANDS}.execute('notebook:run-cell-and-select-next') }}")
    view = alive(lesson, "attention")
    enter(view.get_by_role("textbox"), OTHER)
    expect(view.get_by_role("alert")).to_have_text(BUSY)
    expect(view.get_by_role("textbox")).to_be_enabled()
    (path.parent / "go").touch()
    expect(alive(lesson, "attention").get_by_role("alert")).to_be_empty()
    expect(alive(lesson, "attention").locator(".sentence")).to_have_text("Jamal had a gray book . ")
    enter(alive(lesson, "attention").get_by_role("textbox"), OTHER)  # the same again: the answer changes nothing
    page.wait_for_timeout(3500)
    expect(alive(lesson, "attention").get_by_role("alert")).to_be_empty()
    expect(alive(lesson, "training").locator(".state")).to_contain_text("running: ")

    page.evaluate(f"() => {NOTEBOOK}.sessionContext.session.kernel.restart()")
    assert_says_that_its_kernel_is_gone(lesson, [*ASKING, "sampling"])
    expect(alive(lesson, "training").get_by_role("alert")).to_have_text(GONE)
    expect(alive(lesson, "training").locator(".state")).to_contain_text("lost with its kernel after ")
    expect(alive(lesson, "training").get_by_role("button", name="Stop")).to_be_hidden()
    assert_pictures(lesson, ["widget-interact"])
    question = alive(lesson, "predict")  # it is judged in the page
    enter(question.get_by_role("textbox"), "4")
    expect(question.locator(".verdict")).to_contain_text("Right.")
    writer = alive(lesson, "writer")  # it has the model in the page
    n = writer.locator(".token").count()
    writer.get_by_role("button", name="One word").click()
    expect(writer.locator(".token")).to_have_count(n + 1)
    lesson.show_cell(list(CELLS).index("attention"))
    lesson.screenshots("views-restarted")

    assert len(json.dumps(save(lesson, path)["metadata"]["widgets"])) < 200
    lesson.reload()
    assert_pictures(lesson, SHOWN)
    lesson.show_cell(list(CELLS).index("attention"))
    lesson.screenshots("views-restarted-reopened")

    run_above(lesson, "busy")
    assert len(json.dumps(save(lesson, path)["metadata"]["widgets"])) > 100_000
    page.evaluate(f"() => {NOTEBOOK}.sessionContext.shutdown()")
    assert_says_that_its_kernel_is_gone(lesson, [*ASKING, "sampling"])
    assert_pictures(lesson, ["widget-interact"])
    lesson.reload()  # what was saved is alive, without its kernel; no model was saved
    assert_says_that_its_kernel_is_gone(lesson, [*ASKING, "sampling"])
    assert_pictures(lesson, ["widget-interact", "writer"])

    path.write_text(path.read_text(encoding="utf-8").replace("n is 13", "n is 13, changed by another program"))
    lesson.reload()
    assert not page.evaluate(f"() => {NOTEBOOK}.content.widgets[1].model.trusted")
    assert_pictures(lesson, SHOWN)
    assert uncaught == []
