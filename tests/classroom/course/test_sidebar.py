"""The way at the side of a page: each page once, this one with its sections, and what goes further only near it."""

import re

import pytest

from tinylm_classroom.course.sidebar import ALONE, Entry, Way, contents, counted

HEADINGS = [
    (1, "part-0", "05 Cuts"),
    (2, "part-1", "1. A <code>x</code>"),
    (3, "part-2", "deeper"),
    (2, "part-3", "Sources"),
]
FURTHER = Entry("05_deep.html", "Deep", 1)
WAY = Way(
    [Entry("04_a.html", "04 A &amp; b", 3), Entry("05_cuts.html", "05 Cuts", 1, [FURTHER])],
    [Entry("glossary.html", "Glossary")],
)


def links(html: str) -> list[str]:
    return re.findall('<a href="(.*?)"', html)


def test_the_sections_are_below_the_page_that_is_open_and_lead_into_it():
    html = contents(WAY, "05_cuts.html", HEADINGS)
    assert links(html) == ["04_a.html", "05_cuts.html", "#part-1", "#part-3", "05_deep.html", "glossary.html"]
    assert re.findall('<a href="([^"]*)" aria-current="page">', html) == ["05_cuts.html"]
    assert '<li class="here" data-file="05_cuts.html" data-of="1">' in html


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("04_a.html", ["04_a.html", "#part-1", "#part-3", "05_cuts.html", "glossary.html"]),
        ("05_deep.html", ["04_a.html", "05_cuts.html", "05_deep.html", "#part-1", "#part-3", "glossary.html"]),
        ("glossary.html", ["04_a.html", "05_cuts.html", "glossary.html", "#part-1", "#part-3"]),
        ("other.html", ["#part-1", "#part-3", "04_a.html", "05_cuts.html", "glossary.html"]),
    ],
)
def test_each_page_is_listed_once_and_what_goes_further_only_near_it(file, expected):
    html = contents(WAY, file, HEADINGS)
    assert links(html) == expected
    assert html.count('aria-current="page"') == (file != "other.html")
    assert html.count('class="open"') == (file == "05_deep.html")


def test_a_page_alone_has_its_sections_and_letters_need_little_room():
    assert links(contents(ALONE, "05_cuts.html", HEADINGS)) == ["#part-1", "#part-3"]
    assert 'class="parts"' in contents(ALONE, "x.html", HEADINGS)
    assert 'class="parts short"' in contents(ALONE, "x.html", [(2, "A", "A"), (2, "B", "B")])


def test_the_sources_are_not_progress():
    assert [text for _, _, text in counted(HEADINGS)] == ["1. A <code>x</code>"]
