"""What the search on the front page knows: each section of each lesson once, with the terms that it
defines.
"""

from collections.abc import Iterable, Sequence

from .cells import Page, words_of
from .glossary import GLOSSARY, Mention, term_anchor
from .sidebar import Heading


def sections_of(page: Page, headings: Sequence[Heading], texts: Sequence[str]) -> list[list]:
    """The sections of a page but for its sources: file, lesson, the section around it, anchor,
    heading, text, and an empty list for its terms.
    """
    found = []
    around = ""
    for (level, anchor, html), text in zip(headings, texts, strict=True):
        heading = words_of(html)
        around = around if level > 2 else ""
        if heading != "Sources":
            lesson = f"{page.number} {page.topic}"
            found.append([page.file, lesson, around, anchor, heading, text, []])
        around = heading if level == 2 else around
    return found


def with_terms(sections: Iterable[Sequence], terms: Iterable[Mention]) -> list[Sequence]:
    """The sections, each with the terms of the glossary that it defines: the term, its anchor
    there, and where its definition names it in the text.

    A term that is defined elsewhere becomes a section of its own.
    """
    known = [*sections]
    places = {(section[0], section[3]): section for section in known}
    for term in terms:
        said = words_of(term.text)
        section = places.get((term.page.file, term.anchor))
        if section and said in section[5]:
            place = section[5].index(said) + max(0, said.lower().find(term.term))
            section[6].append([term.term, term_anchor(term), place])
        else:
            known.append([GLOSSARY, "Glossary", "", term_anchor(term), term.term, said, []])
    return known
