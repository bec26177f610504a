"""What the search knows: each section once, with its terms, and a term alone where no section has its text."""

from tinylm_classroom.course.cells import Page
from tinylm_classroom.course.glossary import Mention
from tinylm_classroom.course.search import sections_of, with_terms

CUTS = Page("05_cuts.html", "05", "Cuts", "Why?")
HEADINGS = [
    (1, "part-0", "05 Cuts"),
    (2, "part-1", "1. A <code>half</code>"),
    (3, "part-2", "Your turn"),
    (2, "part-3", "2. All"),
    (2, "part-4", "Sources"),
]
TEXTS = ["Begin.", "So. Each Half is equal. More.", "Cut it.", "All of it.", "A book."]


def test_a_section_has_the_one_around_it_and_the_sources_are_left_out():
    found = sections_of(CUTS, HEADINGS, TEXTS)
    assert [section[2:6] for section in found] == [
        ["", "part-0", "05 Cuts", "Begin."],
        ["", "part-1", "1. A half", "So. Each Half is equal. More."],
        ["1. A half", "part-2", "Your turn", "Cut it."],
        ["", "part-3", "2. All", "All of it."],
    ]
    assert {(*section[:2], *section[6]) for section in found} == {("05_cuts.html", "05 Cuts")}


def test_a_term_is_part_of_the_section_that_defines_it_and_its_text_is_not_there_twice():
    half = Mention("half", "<p>Each <strong>Half</strong> is equal.</p>", CUTS, "part-1", "1. A half")
    book = Mention("book", "<p>A <strong>book</strong>.</p>", CUTS, "part-4", "Sources")
    *known, alone = with_terms(sections_of(CUTS, HEADINGS, TEXTS), [half, book])
    assert [section[6] for section in known] == [[], [["half", "half-05", len("So. Each ")]], [], []]
    assert alone == ["glossary.html", "Glossary", "", "book-05", "book", "A book.", []]
