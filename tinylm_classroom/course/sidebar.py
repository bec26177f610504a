"""The way through the site at the side of a page: the lessons, the sections of this page, and the
other pages.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

Heading = tuple[int, str, str]  # its level, anchor and HTML


class Entry(NamedTuple):
    """A page of the site: its file, its name as HTML, how many sections of it a reader can have
    seen, and the pages that go further.
    """

    file: str
    name: str
    sections: int = 0
    further: Sequence["Entry"] = ()


class Way(NamedTuple):
    """The pages of a site: its lessons, and the others."""

    lessons: Sequence[Entry] = ()
    others: Sequence[Entry] = ()


ALONE = Way()


def counted(headings: Sequence[Heading]) -> list[Heading]:
    """The headings of the sections that count as progress: all but the sources."""
    return [heading for heading in headings if heading[0] == 2 and heading[2] != "Sources"]


def contents(way: Way, file: str, headings: Sequence[Heading]) -> str:
    """The pages of a site as HTML, in which the sections of one file are listed below its name.

    A narrow window shows these alone, folded, and the names of the other pages.
    """
    shown = [(anchor, text) for level, anchor, text in headings if level == 2]
    lines = "".join(f'<li><a href="#{anchor}">{text}</a></li>' for anchor, text in shown)
    kind = " short" if all(len(text) == 1 for _, text in shown) else ""
    parts = f'<ol class="parts{kind}">{lines}</ol>'
    lessons = "".join(_item(entry, file, parts) for entry in way.lessons)
    others = "".join(_item(entry, file, parts) for entry in way.others)
    listed = f'<ol class="lessons">{lessons}</ol><ul class="others">{others}</ul>'
    alone = "" if 'class="here"' in listed else parts
    return f'<details class="contents"><summary>Contents</summary>{alone}{listed}</details>'


def _item(entry: Entry, file: str, parts: str) -> str:
    """The line of a page, with its parts if it is this one, and what goes further where that is
    near.
    """
    is_here = entry.file == file
    is_open = any(further.file == file for further in entry.further)
    current = ' aria-current="page"' if is_here else ""
    name = f'<a href="{entry.file}"{current}>{entry.name}</a>'
    below = parts if is_here else ""
    if is_here or is_open:
        further = "".join(_item(one, file, parts) for one in entry.further)
        below += f'<ol class="further">{further}</ol>' if further else ""
    kind = "open" if is_open else ""
    if is_here:
        kind = "here"
    return f'<li class="{kind}" {seen_of(entry.file, entry.sections)}>{name}{below}</li>'


def seen_of(file: str, sections: int) -> str:
    """The attributes by which the script finds the place for the progress in a page."""
    return f'data-file="{escape(file)}" data-of="{sections}"' if sections else ""
