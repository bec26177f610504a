"""The decks of all lessons: what must be on a slide, what must not, and how many slides."""

import nbformat

from tinylm_classroom.course.lesson.slides import deck_problems
from tinylm_classroom.folders import NOTEBOOKS


def test_a_deck_has_each_view_and_signature_picture_and_no_assert():
    copies = {path.stem: nbformat.read(path, as_version=4) for path in sorted(NOTEBOOKS.glob("solutions/*.ipynb"))}
    assert {name: found for name, copy in copies.items() if (found := list(deck_problems(copy)))} == {}
