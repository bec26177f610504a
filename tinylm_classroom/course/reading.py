"""The page of further reading: what the lessons cite under Sources, each once, with the lessons
that cite it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from .cells import Page, lesson_heading, lesson_link, words_of

READING = "reading.html"
LEAD = "Everything that the lessons cite, each source under the first lesson that cites it."
SOURCES = re.compile(r'<h2 id="(?P<anchor>[^"]*)">Sources</h2>(?P<items>.*?)(?=<h2|\Z)', re.S)
ITEM = re.compile(r"<li>(.*?)</li>", re.S)
# A title with an address, or one without, which follows a year.
SOURCE = re.compile(
    r'(?P<before>.*?)(?:<a href="(?P<address>http[^"]*)">(?P<title>.*?)</a>|(?<=\d{4}, '
    r")(?P<alone><em>.*?</em>))",
    re.S,
)
CLAUSE = re.compile(r"(?<!et al)[.;?]\s+")  # its end


class Citation(NamedTuple):
    """A source in a lesson: what it is cited for, by whom it is, its title as HTML, its address or
    nothing.
    """

    topic: str
    authors: str
    title: str
    address: str
    page: Page
    anchor: str


def citations(page: Page, content: str) -> Iterator[Citation]:
    """What a lesson cites in its list of sources. content: its HTML."""
    for sources in SOURCES.finditer(content):
        for item in ITEM.findall(sources["items"]):
            topic = ""
            for source in SOURCE.finditer(item):
                clause = CLAUSE.split(words_of(source["before"]))[-1]
                named, _, authors = clause.rpartition(":")
                topic = named or topic
                authors = "" if authors.startswith(",") else authors.strip(" ,")
                title = source["title"] or source["alone"]
                yield Citation(
                    topic, authors, title, source["address"] or "", page, sources["anchor"]
                )


def reading_content(lessons: Mapping[Page, str]) -> str:
    """The content of the page. lessons: the HTML of each."""
    cited: list[Citation] = []
    for page, content in lessons.items():
        cited += citations(page, content)
    addresses = {_name(one): one.address for one in cited if one.address}
    sources: dict[str, list[Citation]] = {}
    for one in cited:
        sources.setdefault(one.address or addresses.get(_name(one), _name(one)), []).append(one)
    shown = (
        f"{lesson_heading(page)}<ul>{''.join(map(_entry, group))}</ul>"
        for page, group in groupby(sources.values(), lambda same: same[0].page)
    )
    return f"<h1>Further reading</h1><p>{LEAD}</p>{''.join(shown)}"


def _name(citation: Citation) -> str:
    return words_of(citation.title).casefold()


def _entry(same: Sequence[Citation]) -> str:
    """A source, with the longest of its titles, since a lesson may shorten it."""
    topic, authors, *_ = same[0]
    title = max((one.title for one in same), key=len)
    if address := next((one.address for one in same if one.address), ""):
        title = f'<a href="{address}">{title}</a>'
    lead = f"{topic}: " if topic else ""
    lead += f"{authors}, " if authors else ""
    others = {
        one.page: lesson_link(one.page, one.anchor) for one in same if one.page != same[0].page
    }
    also = f' <span class="quiet">· also in {", ".join(others.values())}</span>' if others else ""
    return f"<li>{escape(lead)}{title}{also}</li>"
