"""The exported site in a browser: every lesson opens from disk, and the search leads to the section that says it."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.browser import SCREENSHOTS, assert_fits, findings

from tinylm_lib.classroom.course import lab
from tinylm_lib.classroom.course.reference import write_reference
from tinylm_lib.classroom.course.site import REFERENCE, export

pytestmark = pytest.mark.browser


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
    expect(page.locator(".lessons")).to_be_hidden()
    first = page.locator(".found li").first
    assert {mark.lower() for mark in first.locator("mark").all_inner_texts()} <= {"causal", "mask"}
    heading = first.locator("a").inner_text()
    anchor = first.locator("a").get_attribute("href")
    page.screenshot(path=SCREENSHOTS / "site-search.png")
    page.keyboard.press("Escape")
    expect(page.locator(".lessons")).to_be_visible()
    field.fill("<b>nothing .* like it")
    expect(status).to_contain_text("No sections have")
    lesson = open_exported(f"{site.as_uri()}/{anchor}")
    expect(lesson.locator(f"#{anchor.partition('#')[2]}")).to_have_text(heading)


def test_a_lesson_searches_all_lessons(open_exported, site):
    found = open_exported(f"{(site / 'index.html').as_uri()}?q=softmax")
    expect(found.get_by_label("Search all lessons")).to_have_value("softmax")
    assert found.locator(".found li").count() > 5
    lesson = open_exported((site / "05_attention.html").as_uri())
    form = lesson.get_by_role("search")
    assert form.get_attribute("action") == "index.html"
    assert form.locator("input").get_attribute("name") == "q"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_index_has_no_serious_finding(open_exported, site, scheme):
    page = open_exported((site / "index.html").as_uri(), color_scheme=scheme)
    page.screenshot(path=SCREENSHOTS / f"site-{scheme}.png")
    assert findings(page) == []
    page.get_by_label("Search all lessons").fill("softmax")
    assert findings(page) == []


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
