"""The decks of the third edition: what must be on a slide, what must not, and how many slides."""

import nbformat

from tinylm_classroom.course.lesson.written import WRITTEN, deck_problems, edition
from tinylm_classroom.folders import NOTEBOOKS


def test_a_written_deck_has_each_view_and_signature_picture_and_no_assert():
    copies = {path.stem: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("solutions/*.ipynb"))}
    written = {name: copy for name, copy in copies.items() if edition(copy) >= WRITTEN}
    assert {name: found for name, copy in written.items() if (found := list(deck_problems(copy)))} == {}
