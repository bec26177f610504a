"""The front page: what the map shows of a lesson, and the only script of the site that has a file of its own."""

import base64
import io
import json
import re

from nbformat import NotebookNode, v4
from PIL import Image

from tinylm_classroom.course import front
from tinylm_classroom.course.cells import Page
from tinylm_classroom.live.stories import stories_record
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

PAGE = Page("05_halves.html", "05", "Halves & more", "What is <half>?")
TITLE = """# 05 Halves
**What is half?**

*Needs* 04. *Builds* `half` in
`a<b.py`. *Runs* in about 9 s on two cores. *Teaches* in about 40 minutes, plus 12 of exercises."""


def png(color: str) -> str:
    drawn, buffer = Image.new("RGB", (60, 40), color), io.BytesIO()
    drawn.save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def cell(color: str, module: str = "", tags: tuple[str, ...] = ()) -> NotebookNode:
    data = {"text/html": f'<figure><img alt="A &lt;b&gt;" src="data:image/png;base64,{png(color)}"></figure>'}
    if module:
        data["application/vnd.tinylm.view+json"] = {"module": module, "data": {}}
    output = v4.new_output("display_data", data)
    return v4.new_code_cell("x", outputs=[output], metadata={"tags": list(tags)} if tags else {})


def notebook(*cells: NotebookNode, title: str = TITLE) -> NotebookNode:
    return v4.new_notebook(cells=[v4.new_markdown_cell(title), *cells])


def lesson(*cells: NotebookNode, title: str = TITLE) -> front.MapEntry:
    return front.map_entry(notebook(*cells, title=title), PAGE)


def color_of(*cells: NotebookNode) -> tuple[int, ...]:
    """The colour in the middle of the picture that other sites show with a link."""
    picture = Image.open(io.BytesIO(front.preview(notebook(*cells)))).convert("RGB")
    return picture.getpixel((front.PREVIEW_SIZE[0] // 2, front.PREVIEW_SIZE[1] // 2))


def test_a_lesson_has_the_facts_of_its_title_and_a_lesson_without_them_has_none():
    assert lesson()[1:3] == ("`half` in `a<b.py`", 52)
    assert lesson(title="# 05 Halves\n**What?**")[1:3] == ("", 0)


def test_its_picture_is_the_first_figure_but_not_that_of_a_prediction():
    red, blue = cell("#f00"), cell("#00f")
    assert color_of(v4.new_code_cell("x"), red, blue) == (255, 0, 0)
    assert color_of(cell("#0f0", module="predict"), blue, red) == (0, 0, 255)
    assert color_of(cell("#0f0", module="rope"), blue) == (0, 255, 0)
    assert front.preview(notebook(cell("#0f0", module="predict"))) == front.preview(notebook()) == b""


def test_the_figure_that_the_source_marks_as_its_signature_comes_before_the_first():
    assert color_of(cell("#f00"), cell("#00f", tags=("signature", "source-hidden"))) == (0, 0, 255)


def test_a_view_is_something_that_moves_and_a_prediction_is_not_one():
    assert lesson(cell("#f00", module="predict"), cell("#f00", module="rope")).has_view
    assert not lesson(cell("#f00", module="predict"), cell("#f00")).has_view


def test_a_card_shows_everything_escaped_and_lessons_are_in_groups_of_four():
    numbers = (3, 4, 7, 12, 16, 20)
    cards = [front.MapEntry(PAGE._replace(number=f"{n:02}"), "`a<b`", 50, n == 3, (), n) for n in numbers]
    html = front.front_page(cards, [], "", "")
    assert "Halves &amp; more" in html and "What is &lt;half&gt;?" in html and "<code>a&lt;b</code>." in html
    assert re.findall("<h3>(.*?)</h3>", html) == [front.LESSON_GROUPS[n] for n in (0, 1, 3, 4)]
    assert re.findall(r"<h3>|class=\"number\">(\d\d)", html) == ["", "03", "", "04", "07", "", "12", "", "16", "20"]
    assert re.findall('data-of="(.*?)"', html) == ["3", "4", "7", "12", "16", "20"]
    assert html.count("interactive view") == 1
    assert "6 lessons, about 5 hours" in html


def test_the_front_page_without_lessons_guide_or_reference_has_no_link_to_them():
    assert re.findall('href="(.*?)"', front.front_page([], [], "", "")) == ["learn.html"]
    assert re.findall('href="(.*?)"', front.front_page([], [], "a.html", "b.html")) == [
        "learn.html",
        "a.html",
        "b.html",
    ]


def test_the_picture_has_the_words_of_a_story_twice_once_for_a_phone_and_both_are_described():
    html = front.front_page([], [], "", "")
    assert storyworld.told_by(front.STORY) is not None
    drawings = re.findall('<svg role="img" aria-label="(.*?)".*?</svg>', html, re.S)
    assert len(drawings) == 2 and all("Elsa ran to Springfield" in label for label in drawings)
    assert html.count(">Springfield</text>") == 2 * storyworld.words(front.STORY).count(" Springfield")


def test_the_script_has_the_shipped_model_and_its_stories_as_data():
    script = front.model_script()
    assert "</script" not in script.lower()
    code, data = script.split("globalThis.tinylmModel = ")
    found = json.loads(data.removesuffix(";\n"))
    config = load_pretrained("storyworld").model.config
    assert found["record"]["config"]["d_model"] == config.d_model
    assert found["stories"] == json.loads(json.dumps(stories_record()))
    reader = storyworld.Reader()
    *possible, wrong = [reader.read(word) for word in storyworld.words(front.FIRST_WORDS[-1].lstrip())]
    assert found.keys() == {"record", "stories"} and min(possible) > 0 == wrong
    assert "globalThis.tinylm = " in code
