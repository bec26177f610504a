"""Texts to be read and messages, in JupyterLab and in a page: no word is broken, and marks look as in Python."""

import json
import re

import pytest
from playwright.sync_api import Page
from support.browser import OPENING

from tinylm_classroom.display.cards import inline
from tinylm_classroom.views.base import SHARED, source

pytestmark = pytest.mark.browser

LESSON = (
    OPENING
    + r"""
# %%
from tinylm_classroom import control, show_text

story = storyworld.story(torch.Generator().manual_seed(1)).text

# %%
show_text(story)

# %%
show_text({"one": story, "two lines": f"{story}\n{story}"})


# %%
def told(n=2):
    print(story * n)


# %%
control(told, n=(1, 3))
"""
)
BROKEN = r"""block => {
  const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT), broken = [];
  let words = 0;
  while (walker.nextNode()) for (const { 0: word, index } of walker.currentNode.data.matchAll(/\S+/g)) {
    const range = document.createRange();
    range.setStart(walker.currentNode, index);
    range.setEnd(walker.currentNode, index + word.length);
    words += 1;
    if (range.getClientRects().length !== 1) broken.push(word);
  }
  return [words, block.getBoundingClientRect().height, broken];
}"""
TEXTS = [
    *("the *root* of `d_k`", "**✓ Right.** It is **“.”**, not *its own*.", "a * b, 2*3*4, d_k ** -0.5 and f(*x, *y)"),
    *("*the `mask`* and `a * b`", "größer *als* é*x*é", "plain", "a ` alone", "<b> & *</b>*"),
]


@pytest.mark.parametrize("width", [1280, 848])
def test_no_word_of_a_shown_text_is_broken(run_sample, width):
    run_sample.page.set_viewport_size({"width": width, "height": 800})
    for i in range(4):
        run_sample.show_cell(4 + i)
    blocks = run_sample.page.locator("div[style*='pre-wrap']:visible, pre[style*='pre-wrap']:visible")
    blocks.nth(3).wait_for()
    found = blocks.evaluate_all(f"blocks => blocks.map({BROKEN})")
    assert [broken for *_, broken in found] == [[]] * 4
    assert all(words > 50 and height > 40 for words, height, _ in found), "too short to be wrapped"
    run_sample.screenshots(f"text-{width}")


def test_marks_are_the_same_in_a_view_and_in_a_card(chromium):
    page: Page = chromium.new_page()
    script = source(SHARED) + "return TEXTS.map((text) => make('p', {}, ...prose(text)).innerHTML);"
    shown = page.evaluate(f"() => {{ {script.replace('TEXTS', json.dumps(TEXTS))} }}")
    assert shown == [re.sub(' style="[^"]*"', "", inline(text)).replace("strong>", "b>") for text in TEXTS]
    page.close()
