"""The exported site in a browser: every lesson opens from disk, and the search leads to the section that says it."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import nbformat
import pytest
from nbformat import v4
from playwright.sync_api import expect
from support.browser import SCREENSHOTS, assert_fits, findings

from tinylm_classroom.course import lab
from tinylm_classroom.course.lesson.cover import cover
from tinylm_classroom.course.mistakes import MISTAKES
from tinylm_classroom.course.reference import write_reference
from tinylm_classroom.course.site import GUIDE, LISTS, PREVIEW, REFERENCE, export
from tinylm_classroom.views.predict import predict

pytestmark = pytest.mark.browser
LESSONS = sorted(path.with_suffix(".html").name for path in lab.NOTEBOOKS.glob("*.ipynb"))
OPEN_ALL = "document.querySelectorAll('details').forEach(part => part.open = true)"
# What a view shows by colour, and a lesson that has it.
FILLS = {
    "attention .shade": "05_attention.html", "rope .wave": "06_positions.html", "memory .tile": "10_choices.html",
    "softmax .level i": "03_softmax.html",
    "sampling .track i": "12_sampling.html", "cache .totals i": "13_cache.html", "tokens .token": "01_tokens.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """All built lessons, exported, and the reference."""
    folder = tmp_path_factory.mktemp("site")
    write_reference((folder / REFERENCE).parent)
    export(lab.NOTEBOOKS, folder)
    return folder


def test_a_word_is_found_in_its_section(open_exported, site):
    page = open_exported((site / "index.html").as_uri())
    status, field = page.get_by_role("status"), page.get_by_label("Search all lessons")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("causal mask")
    expect(status).to_contain_text("sections have “causal”, “mask”.")
    expect(page.locator(".front")).to_be_hidden()
    first = page.locator(".found li").first
    assert {mark.lower() for mark in first.locator("mark").all_inner_texts()} <= {"causal", "mask"}
    heading = first.locator("> a").inner_text()
    anchor = first.locator("> a").get_attribute("href")
    page.screenshot(path=SCREENSHOTS / "site-search.png")
    page.keyboard.press("Escape")
    expect(page.locator(".front")).to_be_visible()
    field.fill("<b>nothing .* like it")
    expect(status).to_contain_text("No sections have")
    lesson = open_exported(f"{site.as_uri()}/{anchor}")
    expect(lesson.locator(f"#{anchor.partition('#')[2]}")).to_have_text(heading)


@pytest.mark.parametrize("asked", ["softmax", "head", "causal mask", "your turn"])
def test_what_is_found_is_listed_once_with_its_terms_of_the_glossary(open_exported, site, asked):
    page = open_exported(f"{(site / 'index.html').as_uri()}?q={asked.replace(' ', '+')}")
    said = page.locator(".found li > p:not(.quiet)").all_inner_texts()
    places = page.locator(".found li > :is(a, span)").all_inner_texts()
    assert len(said) == len(set(said)) > 5
    named = [*zip(places[::2], places[1::2], strict=True)]
    assert len(named) == len(set(named)) == len(said)
    terms = page.locator(".found .quiet a").evaluate_all("all => all.map(a => a.getAttribute('href').split('#'))")
    assert (asked == "your turn") == (not terms)
    glossary = (site / "glossary.html").read_text(encoding="utf-8")
    assert all(file == "glossary.html" and f'id="{anchor}"' in glossary for file, anchor in terms)


def test_a_lesson_searches_all_lessons(open_exported, site):
    found = open_exported(f"{(site / 'index.html').as_uri()}?q=softmax")
    expect(found.get_by_label("Search all lessons")).to_have_value("softmax")
    assert found.locator(".found li").count() > 5
    lesson = open_exported((site / "05_attention.html").as_uri())
    form = lesson.get_by_role("search")
    assert form.get_attribute("action") == "index.html"
    assert form.locator("input").get_attribute("name") == "q"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_the_front_page_fits_and_has_no_serious_finding_before_and_while_the_model_writes(
    open_exported, site, scheme, width
):
    size = {"viewport": {"width": width, "height": {390: 844, 1280: 800, 1920: 1080}[width]}}
    page = open_exported((site / "index.html").as_uri(), color_scheme=scheme, reduced_motion="reduce", **size)
    page.screenshot(path=SCREENSHOTS / f"front-{width}-{scheme}.png", full_page=True)
    assert_fits(page, "h1, .stage svg:visible, .doors > div, .map li")
    assert findings(page) == []
    if width == 390:
        small = page.locator(".narrow text").evaluate_all(
            "all => Math.min(...all.map(t => t.getBoundingClientRect().height))"
        )
        assert small >= 18
    page.get_by_role("button", name="Watch it write").click()
    expect(page.locator(".token:not(.given)").nth(8)).to_be_visible()
    if width == 390:
        seen = page.locator(".writer :is(.text, tbody tr:nth-child(-n + 4))")
        places = seen.evaluate_all(
            "parts => parts.map(part => part.getBoundingClientRect()).map(p => [p.top, p.bottom])"
        )
        assert len(places) == 5 and all(0 <= top < bottom <= 844 for top, bottom in places)
    page.get_by_role("button", name="Pause").click()
    page.screenshot(path=SCREENSHOTS / f"front-live-{width}-{scheme}.png")
    assert_fits(page, ".writer, .writer :is(.bar button, table, textarea, .text)")
    assert findings(page) == []


def test_a_visitor_asks_with_the_keyboard_and_the_model_writes_a_story_with_exact_probabilities(open_exported, site):
    page = open_exported((site / "index.html").as_uri())
    expect(page.locator(".stage figure")).to_be_visible()
    expect(page.locator(".writer")).to_have_count(0)
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the text")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Watch it write")).to_be_focused()
    page.keyboard.press("Enter")
    written = page.locator(".token:not(.given)")
    expect(page.get_by_role("button", name="Pause")).to_be_focused()
    expect(written.nth(3)).to_be_visible()
    expect(page.locator(".stage figure")).to_have_count(0)
    expect(page.get_by_text("Now the word after it:")).to_be_visible()
    expect(page.locator(".stage")).to_be_in_viewport()
    field = page.get_by_label("Begin a text")
    field.fill("One day/")
    field.press("/")
    expect(field).to_be_focused()
    assert "/" in field.input_value()


def test_the_front_page_without_scripts_has_the_picture_the_doors_and_the_list(open_exported, site):
    page = open_exported((site / "index.html").as_uri(), java_script_enabled=False)
    expect(page.get_by_role("img", name="A story, with threads between its words")).to_be_visible()
    expect(page.get_by_role("button", name="Watch it write")).to_be_hidden()
    expect(page.get_by_text("No server needed")).to_be_hidden()  # without scripts it does not write
    assert page.locator(".doors h2").all_inner_texts() == ["To learn", "To teach", "To build with it"]
    assert page.locator(".map li").count() == len(list(lab.NOTEBOOKS.glob("*.ipynb")))


def test_words_of_the_picture_do_not_overlap_in_another_font(open_exported, site):
    page = open_exported((site / "index.html").as_uri(), reduced_motion="reduce")
    for font in ("DejaVu Sans", "sans-serif", "serif"):
        page.add_style_tag(content=f".stage text {{ font-family: {font} !important }}")
        boxes = page.locator(".wide text").evaluate_all(
            "all => all.map(t => t.getBBox()).map(b => [b.x, b.y, b.width])"
        )
        ends = [(y, x, x + width) for x, y, width in boxes]
        assert all(right <= left + 3 for (y, _, right), (y2, left, _) in pairwise(ends) if y == y2)


def test_the_pages_are_joined_front_lessons_and_the_page_for_instructors(open_exported, site):
    page = open_exported((site / "index.html").as_uri())
    addresses = page.locator(".front a, nav a").evaluate_all("all => all.map(a => a.href.split('#')[0])")
    assert {GUIDE, "00_start.html", "15_scale.html", REFERENCE, *LISTS} <= {
        address.removeprefix(f"{site.as_uri()}/") for address in addresses
    }
    for address in addresses:
        assert Path(url2pathname(urlsplit(address).path)).exists()


@pytest.mark.parametrize(("width", "is_open"), [(390, False), (1099, False), (1100, True), (1440, True)])
def test_the_contents_of_a_lesson_are_open_where_they_have_a_column_of_their_own(open_exported, site, width, is_open):
    page = open_exported((site / "05_attention.html").as_uri(), viewport={"width": width, "height": 900})
    expect(page.locator(".parts")).to_be_visible(visible=is_open)
    assert page.locator("h1").bounding_box()["y"] < 450
    assert findings(page, "nav") == []


def test_the_head_of_a_lesson_has_two_rows_on_a_phone_and_every_lesson_fits(open_exported, site):
    page = open_exported((site / "04_normalization.html").as_uri(), viewport={"width": 390, "height": 844})
    parts = page.locator("nav :is(.home, [type=search], .around a, summary)")
    boxes = parts.evaluate_all("parts => parts.map(part => part.getBoundingClientRect()).map(p => [p.top, p.bottom])")
    rows = [boxes[0]]
    for top, bottom in sorted(boxes):
        if top >= rows[-1][1]:
            rows.append([top, bottom])
    assert len(boxes) == 5 and len(rows) == 2
    assert page.get_by_role("link", name="03 Softmax").count() == 2  # one of them at the end
    size = "node => parseFloat(getComputedStyle(node).fontSize)"
    assert page.get_by_role("searchbox").evaluate(size) >= 16  # below that, a phone enlarges the page
    for path in sorted(site.glob("[0-9]*.html")):
        page = open_exported(path.as_uri(), viewport={"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path.name
        sizes = page.locator(":is(code, pre):visible").evaluate_all(f"all => all.map({size})")
        assert min(sizes) >= 14, path.name


def test_the_page_for_instructors_has_no_serious_finding_and_fits(open_exported, site):
    page = open_exported((site / GUIDE).as_uri(), viewport={"width": 390, "height": 844})
    assert_fits(page, "main > :is(p, pre, h2, table)")
    assert findings(page) == []


@pytest.mark.parametrize("name", [*LESSONS, *LISTS])
def test_a_page_has_no_serious_finding_with_everything_open_and_reflows_at_320(open_exported, site, name):
    page = open_exported((site / name).as_uri(), viewport={"width": 390, "height": 844}, reduced_motion="reduce")
    for _ in range(2):  # a view in what covers an answer is drawn when that opens
        page.evaluate(OPEN_ALL)
        # details tell of their opening in a task of their own
        page.evaluate("() => new Promise(requestAnimationFrame)")
    expect(page.locator("details:not([open])")).to_have_count(0)
    assert findings(page, contrast=False) == []
    levels = page.locator("h1, h2, h3, h4, h5, h6").evaluate_all("all => all.map(node => Number(node.tagName[1]))")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") == 320


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["05_attention.html", *LISTS])
def test_the_colours_of_a_page_have_enough_contrast(open_exported, site, name, scheme):
    page = open_exported((site / name).as_uri(), color_scheme=scheme, viewport={"width": 1280, "height": 800})
    page.evaluate(OPEN_ALL)
    assert findings(page) == []


def test_what_scrolls_sideways_is_reached_with_the_keyboard_and_only_that(open_exported, site):
    page = open_exported((site / "05_attention.html").as_uri(), viewport={"width": 390, "height": 844})
    page.evaluate(OPEN_ALL)
    parts = page.locator("main [tabindex='0']:not(.tinylm-view *)")
    expect(parts.first).to_be_attached()
    assert parts.evaluate_all("all => all.every(part => part.scrollWidth > part.clientWidth)")
    page.set_viewport_size({"width": 1900, "height": 900})
    expect(page.locator("main .math[tabindex]")).to_have_count(0)


@pytest.mark.parametrize("fill", FILLS)
def test_a_fill_keeps_its_colour_on_paper_and_in_forced_colours(open_exported, site, fill):
    view, _, part = fill.partition(" ")
    page = open_exported((site / FILLS[fill]).as_uri(), reduced_motion="reduce")
    shown = page.locator(f".tinylm-view.{view} {part}").first
    look = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).backgroundImage]"
    before = shown.evaluate(look)
    assert before != ["rgba(0, 0, 0, 0)", "none"]
    page.emulate_media(forced_colors="active")
    assert shown.evaluate(look) == before
    page.emulate_media(forced_colors="none", media="print")
    assert shown.evaluate(look) == before
    assert shown.evaluate("node => getComputedStyle(node).printColorAdjust") == "exact"
    assert page.locator(".tinylm-view").first.evaluate("node => getComputedStyle(node).breakInside") == "avoid"
    expect(page.locator("nav")).to_be_hidden()


@pytest.mark.parametrize("name", [*LESSONS, *LISTS])
def test_a_page_without_scripts_has_its_pictures_and_reflows(open_exported, site, name):
    size = {"width": 320, "height": 640}
    page = open_exported((site / name).as_uri(), viewport=size, java_script_enabled=False)
    for place in page.locator("[data-view]:not([data-view=predict], [data-view=control])").all():
        assert place.locator("img").first.get_attribute("alt")
    for place in page.locator("[data-view=control]").all():  # what its function prints, or a picture
        told = place.locator(":scope > :not(script)").all_text_contents()  # also in what is still folded
        assert "".join(told).strip() or place.locator("img").first.get_attribute("alt")
    wide = page.locator("main > *").evaluate_all("all => Math.max(...all.map(n => n.getBoundingClientRect().right))")
    assert wide <= 320


def test_what_is_folded_in_the_list_of_mistakes_is_there_without_scripts_and_on_paper(open_exported, site):
    page = open_exported((site / MISTAKES).as_uri(), java_script_enabled=False)
    line = page.locator("main > details li").last
    expect(line).to_be_hidden()
    page.emulate_media(media="print")
    expect(line).to_be_visible()
    page.emulate_media(media="screen")
    page.locator("main > details > summary").last.click()
    expect(line).to_be_visible()


def test_the_contents_mark_the_section_that_is_read(open_exported, site):
    page = open_exported((site / "05_attention.html").as_uri(), reduced_motion="reduce")
    links = page.locator(".parts a")
    for place in (2, 4):
        anchor = links.nth(place).get_attribute("href")
        page.locator(anchor).evaluate("heading => heading.scrollIntoView()")
        expect(page.locator(".parts [aria-current]")).to_have_attribute("href", anchor)
        expect(page.locator(".parts [aria-current]")).to_have_count(1)


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wide_window_lists_all_lessons_at_the_side_and_marks_this_one(open_exported, site, scheme, scripts):
    wide = {"viewport": {"width": 1100, "height": 800}, "color_scheme": scheme, "java_script_enabled": scripts}
    page = open_exported((site / "10_choices.html").as_uri(), **wide)
    listed = page.locator(".lessons > li > a")
    hrefs = listed.evaluate_all("all => all.map(a => a.getAttribute('href'))") if scripts else LESSONS
    assert hrefs == LESSONS and all(link.is_visible() for link in listed.all())
    here = page.locator("nav [aria-current=page]")
    expect(here).to_have_text("Choices")
    expect(page.locator(".lessons .here .parts a").first).to_be_visible()
    if not scripts:
        return
    side, text = page.locator("nav").bounding_box(), page.locator("main > p").first.bounding_box()
    assert side["x"] + side["width"] <= text["x"]
    assert here.bounding_box()["y"] < 800  # what is marked can be seen
    assert findings(page, "nav") == []
    page.screenshot(path=SCREENSHOTS / f"sidebar-{scheme}.png")
    page.set_viewport_size({"width": 1099, "height": 800})
    expect(listed.first).to_be_hidden()


def test_a_section_counts_as_seen_when_its_end_was_on_the_screen_and_a_jump_past_it_does_not(chromium, site):
    page = chromium.new_page(reduced_motion="reduce")
    page.goto((site / "05_attention.html").as_uri())
    kept = "JSON.parse(localStorage.getItem('tinylm-seen'))?.last"
    third = page.locator(".parts a").nth(2).get_attribute("href")
    page.locator(third).evaluate("heading => heading.scrollIntoView()")
    page.wait_for_function(kept)  # it has been looked at where the reader rests
    expect(page.locator(".parts .seen")).to_have_count(0)
    expect(page.locator(".progress")).to_be_hidden()
    page.locator(third).evaluate("heading => heading.previousElementSibling.scrollIntoView({ block: 'end' })")
    expect(page.locator(".parts .seen")).to_have_count(1)
    expect(page.locator(".parts .seen")).to_have_text("2. All queries at once, seen")
    expect(page.locator(".progress")).to_contain_text("1 of ")
    expect(page.locator(".lessons .here > a")).to_contain_text(re.compile(", 1 of 8 sections seen"))
    assert findings(page, "nav") == []
    page.goto((site / "index.html").as_uri())
    expect(page.locator(".map .begun")).to_have_count(1)
    expect(page.locator(".act .start")).to_have_text("Continue with 05 Attention")
    page.goto((site / "06_positions.html").as_uri())
    expect(page.locator(".lessons .begun")).to_contain_text("05 Attention")
    page.get_by_role("button", name="Forget").click()
    expect(page.locator(".begun")).to_have_count(0)
    expect(page.locator(".progress")).to_be_hidden()
    page.goto((site / "index.html").as_uri())
    expect(page.locator(".act .start")).to_have_text("Start with lesson 00")
    page.close()


def test_a_browser_that_keeps_nothing_shows_no_progress_and_raises_nothing(open_exported, site, tmp_path):
    refusal = "Object.defineProperty(globalThis, 'localStorage', { get() { throw new DOMException('no') } })"
    refuse = f"<script>{refusal};</script>"
    for name in ("05_attention.html", "index.html"):
        html = (site / name).read_text(encoding="utf-8").replace("<head>", f"<head>{refuse}", 1)
        (tmp_path / name).write_text(html, encoding="utf-8")
        page = open_exported((tmp_path / name).as_uri())
        page.evaluate("dispatchEvent(new Event('pageshow'))")
        expect(page.locator("html.keeps, .begun, .progress:visible")).to_have_count(0)


def test_an_emblem_has_the_colours_of_the_page(open_exported, site):
    look = "shape => [getComputedStyle(shape).fill, getComputedStyle(shape).stroke]"
    looks = []
    for scheme in ("light", "dark"):
        page = open_exported((site / "index.html").as_uri(), color_scheme=scheme)
        assert page.locator(".map .emblem").count() == len(LESSONS)
        assert all(64 <= one.bounding_box()["width"] <= 120 for one in page.locator(".map .emblem").all())
        looks.append(page.locator(".emblem .orange, .emblem .faint").evaluate_all(f"all => all.map({look})"))
    assert all(light != dark for light, dark in zip(*looks, strict=True))


def test_the_glossary_filters_as_one_types_and_is_whole_again_for_a_link(open_exported, site):
    page = open_exported((site / "glossary.html").as_uri(), viewport={"width": 1280, "height": 800})
    field, terms = page.get_by_label("Filter the terms"), page.locator("main > h3:visible")
    everything = terms.count()
    field.press_sequentially("softm")
    assert terms.all_inner_texts() == ["online softmax", "softmax"]
    expect(page.get_by_role("status")).to_have_text(f"2 of {everything} terms")
    assert page.locator("main > h2:visible").all_inner_texts() == ["O", "S"]
    assert findings(page, "main") == []
    field.fill("bridle 1990")  # no term has it
    assert "softmax" in terms.all_inner_texts()
    expect(page.get_by_role("status")).to_contain_text("in their definitions")
    field.fill("zebra crossing")
    expect(terms).to_have_count(0)
    field.press("Escape")
    expect(terms).to_have_count(everything)
    field.fill("softm")
    page.evaluate("location.hash = '#token-00'")
    expect(page.locator("#token-00")).to_be_in_viewport()
    expect(terms).to_have_count(everything)


def test_the_glossary_without_scripts_is_the_plain_list(open_exported, site):
    page = open_exported((site / "glossary.html").as_uri(), java_script_enabled=False)
    expect(page.get_by_label("Filter the terms")).to_be_hidden()
    assert page.locator("main > h3:visible").count() == page.locator("main > h3").count() > 100


@pytest.mark.parametrize(
    "asked", ["gqa", "multi-head", "vanishing gradient", "teacher forcing", "RoPE", "cross entropy"]
)
def test_the_search_knows_what_else_a_thing_is_called(open_exported, site, asked):
    page = open_exported((site / "index.html").as_uri())
    page.get_by_label("Search all lessons").fill(asked)
    expect(page.locator(".found li").first).to_be_visible()


def test_a_link_to_a_page_shows_a_picture(site):
    html = (site / "index.html").read_text(encoding="utf-8")
    assert f'<meta property="og:image" content="{PREVIEW}">' in html and (site / PREVIEW).stat().st_size < 300_000


def test_a_view_fills_the_screen_and_comes_back(open_exported, site):
    page = open_exported((site / "06_positions.html").as_uri(), viewport={"width": 1900, "height": 1000})
    view = page.locator(".tinylm-view.rope").first
    before = view.locator("form").bounding_box()
    view.get_by_role("button", name="Large").click()
    expect(view.get_by_role("button", name="Close")).to_be_visible()
    after = view.locator("form").bounding_box()
    assert 1.1 * before["width"] < after["width"] <= 1900 and after["y"] + after["height"] <= 1000
    view.get_by_role("button", name="Close").click()
    expect(view.get_by_role("button", name="Large")).to_be_visible()
    assert view.locator("form").bounding_box()["width"] == before["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_reference_has_no_serious_finding(open_exported, site, scheme):
    page = open_exported((site / REFERENCE).as_uri(), color_scheme=scheme)
    page.screenshot(path=SCREENSHOTS / f"reference-{scheme}.png")
    assert findings(page) == []


def test_the_reference_fits_on_a_phone(open_exported, site):
    for page in (REFERENCE, "api/tinylm_lib/config.html"):
        opened = open_exported((site / page).as_uri(), viewport={"width": 390, "height": 844})
        assert_fits(opened, "main, main .attr, main .docstring")


def test_the_reference_searches_itself_from_disk(chromium, site):
    with chromium.new_context() as context:
        page, seen = context.new_page(), []
        page.on("request", lambda request: seen.append(request.url))
        page.goto((site / REFERENCE).as_uri())
        page.get_by_role("searchbox").click()
        page.keyboard.type("perplexity")
        expect(page.locator(".search-result").first).to_contain_text("perplexity")
        page.locator(".search-result a").first.click()
        expect(page).to_have_url(re.compile(r"tinylm_lib/training/evaluation\.html#Evaluation"))
        assert all(url.startswith((site.as_uri(), "data:")) for url in seen) and len(seen) > 1


def covered_pages(folder: Path) -> Path:
    """A site of one lesson whose prediction is answered by the cell after it."""
    question = predict("What is half of 4?", key=lambda: 2, number="of it", within=0, because="Twice two is four.")
    asks = [v4.new_output("display_data", question._repr_mimebundle_()[0])]
    printed = [v4.new_output("stream", name="stdout", text="two halves")]
    title = v4.new_markdown_cell("# 00 Halves\n**What is half?**\n\n*Needs* nothing.\n\n## 1. Half\nIt is so.")
    cells = [title, v4.new_code_cell("ask()", outputs=asks), v4.new_code_cell("print(2)", outputs=printed)]
    cells += [v4.new_markdown_cell("So each half is a two."), v4.new_markdown_cell("## 2. On\nIt goes on.")]
    notebook = v4.new_notebook(cells=cells)
    cover(notebook)
    folder.mkdir(exist_ok=True)
    nbformat.write(notebook, folder / "00_halves.ipynb")
    return next(path for path in export(folder, folder / "site") if path.stem == "00_halves")


def test_what_answers_a_prediction_is_covered_until_a_guess_or_a_key(open_exported, tmp_path):
    path = covered_pages(tmp_path)
    for way in ("guess", "key", "print"):
        page = open_exported(path.as_uri())
        printed, cover_of_it = page.get_by_text("two halves"), page.get_by_text("Guess first, or show")
        expect(page.get_by_label("Your guess")).to_be_visible()
        told = page.get_by_text("So each half is a two.")
        expect(printed.or_(told).filter(visible=True)).to_have_count(0)
        expect(page.get_by_text("It goes on.")).to_be_visible()
        assert findings(page, "main") == []
        if way == "guess":
            page.get_by_role("button", name="Check my guess").click()  # nothing is guessed yet
            expect(printed).to_be_hidden()
            page.get_by_label("Your guess").fill("3")
            page.keyboard.press("Enter")
        elif way == "key":
            cover_of_it.first.focus()
            page.keyboard.press("Enter")
        else:
            page.evaluate("dispatchEvent(new Event('beforeprint'))")
        expect(printed.or_(told).filter(visible=True)).to_have_count(2)
        expect(cover_of_it.filter(visible=True)).to_have_count(0)
        if way == "guess":
            page.reload()
            expect(printed.or_(told).filter(visible=True)).to_have_count(2)


def test_without_scripts_what_is_covered_opens_as_well(open_exported, tmp_path):
    page = open_exported(covered_pages(tmp_path).as_uri(), java_script_enabled=False)
    page.get_by_text("Guess first, or show").first.click()
    expect(page.get_by_text("two halves")).to_be_visible()
