"""The line of links in a title cell: the commands as long as no site is published, on no page and no slide."""

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

from tinylm_classroom.course import lab, site, slides
from tinylm_classroom.course.cells import page_of
from tinylm_classroom.course.deck import Deck
from tinylm_classroom.course.lesson import links
from tinylm_classroom.course.lesson.slides import mark

TITLE = "# 05 Halves\n**What is half?**\n\n*Needs* nothing."


def titled(**options) -> NotebookNode:
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(TITLE), v4.new_markdown_cell("## 1. One\nIt is.")])
    links.add_links(notebook, "05_halves", **options)
    return notebook


def test_without_a_published_site_the_commands_are_named():
    text = titled().cells[0].source
    says = "*Also* as a page: `python -m tinylm_lib site 05`, and as slides: `python -m tinylm_lib slides 05`."
    assert text == f"{TITLE}\n\n{says}" and links.without_links(text) == TITLE
    assert titled(has_deck=False).cells[0].source.endswith("*Also* as a page: `python -m tinylm_lib site 05`.")
    for command, module in (("site", site), ("slides", slides)):
        assert f"tinylm_lib {command} [NN ...]" in module.__doc__  # both take the number of a lesson


def test_with_one_they_are_links(monkeypatch):
    monkeypatch.setattr(links, "SITE", "https://x.org/tinylm")
    text = titled().cells[0].source
    page, deck = "https://x.org/tinylm/05_halves.html", "https://x.org/tinylm/slides/05_halves.html"
    assert text == f"{TITLE}\n\n*Also* as [a page]({page}) and as [slides]({deck})."
    assert links.without_links(text) == TITLE


def test_the_line_is_written_once():
    notebook = titled()
    links.add_links(notebook, "05_halves")
    assert notebook.cells[0].source.count("*Also*") == 1


def test_pages_and_slides_do_not_repeat_it():
    notebook = titled()
    page = page_of(Path("05_halves.ipynb"), notebook)
    mark(notebook)
    assert "Also" not in site.render(notebook, page).content
    assert "Also" not in re.sub("<script.*?</script>", "", Deck(notebook, page, True).html(), flags=re.S)


def test_a_copy_with_another_line_is_not_an_older_lesson(tmp_path, monkeypatch):
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()
    path = notebooks / "05_halves.ipynb"
    path.write_text(nbformat.writes(titled()))
    assert lab.refresh(notebooks, work) == []
    monkeypatch.setattr(links, "SITE", "https://x.org")
    path.write_text(nbformat.writes(titled()))
    assert lab.refresh(notebooks, work) == []
