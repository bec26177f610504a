"""Views whose kernel is busy or gone: they say so, and where one is not alive, its picture is seen and no error."""

import json
from pathlib import Path

import pytest
from nbformat import v4
from playwright.sync_api import Locator, Page, expect
from support.browser import NOTEBOOK, LabPage, enter

pytestmark = pytest.mark.browser

STORY = r"\n Carlos had a pink fan. Jamal had a gray book. Jamal took the pink"
OTHER = "Omar had a red kite. Mia had a blue bag. Mia took the red"
CELLS = {
    "imports": """
from itertools import count
from time import sleep
import torch
from tinylm_lib.classroom import attention_view, control, predict, residual_view, sampling_view, shape_flow
from tinylm_lib.classroom import patch_view, token_view, training_view
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.training.loop import Step

ready, story = load_pretrained("storyworld"), "STORY"

def updates():
    for n in count(1):
        sleep(0.01)
        yield Step(n, torch.tensor(3.0), torch.tensor(1.0), 0.1)
""".replace("STORY", STORY),
    "predict": 'predict("How many legs?", key=lambda: 4, number="legs", within=0, because="It has four.")',
    "widget-interact": 'control(lambda n=13: print(f"n is {n}"), n=(1, 20))',
    "attention": "attention_view(ready.model, ready.tokenizer, story, layer=2)",
    "sampling": "sampling_view(ready.model, ready.tokenizer, story)",
    "shape-flow": "shape_flow(ready.model, ready.tokenizer, ' Carlos had a pink fan.')",
    "tokens": "token_view({'a story': story}, [ready.tokenizer])",
    "residual": "residual_view(ready.model, ready.tokenizer, story)",
    "patch": "patch_view(ready.model, ready.tokenizer, story, story.replace('pink', 'gray', 1), ('fan', 'book'))",
    "training": "await training_view(updates(), ready.model, ready.tokenizer, total_steps=9999)",
}
SHOWN = [name for name in CELLS if name != "imports"]
ASKING = ["attention", "shape-flow", "tokens", "residual", "patch"]  # by a text of the reader
GONE = "The kernel was restarted or has stopped. Run the cells above and this cell again."
BUSY = "The kernel has not answered yet: it is busy."


def seen(lesson: LabPage, name: str) -> Locator:
    """The outputs of a view's cell that are seen; there is one."""
    place = list(CELLS).index(name)
    lesson.show_cell(place)
    cell = lesson.page.locator(f".jp-Cell[data-windowed-list-index='{place}']")
    outputs = cell.locator(".jp-OutputArea-child").filter(visible=True)
    expect(outputs).to_have_count(1)
    return outputs


def alive(lesson: LabPage, name: str) -> Locator:
    view = seen(lesson, name).locator(f".{name}")
    expect(view).to_be_visible()
    return view
