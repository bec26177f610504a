"""The line of links under a title, and the cell for Colab and Kaggle: on no page, no slide and in no copy."""

import re
import sys
import types
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tinylm_classroom.course import lab, site
from tinylm_classroom.course.cells import page_of
from tinylm_classroom.course.deck import Deck
from tinylm_classroom.course.lesson import links
from tinylm_classroom.course.lesson.slides import mark

TITLE = "# 05 Halves\n**What is half?**\n\n*Needs* nothing."


def titled(**options) -> NotebookNode:
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(TITLE), v4.new_markdown_cell("## 1. One\nIt is.")])
    links.add_links(notebook, "05_halves", **options)
    return notebook


def test_under_the_title_is_one_line_of_links_all_to_one_repository():
    heading, line, *rest = titled().cells[0].source.split("\n")
    assert [heading, *rest] == ["# 05 Halves", "", *TITLE.split("\n")[1:]]
    page, deck = (
        "https://your_account.github.io/tinylm/05_halves.html",
        "https://your_account.github.io/tinylm/slides/05_halves.html",
    )
    colab = "https://colab.research.google.com/github/your_account/tinylm/blob/main/notebooks/05_halves.ipynb"
    assert line == f"[With moving views]({page}) · [in Colab]({colab}) · [as slides]({deck})"
    assert links.without_links(titled().cells[0].source) == TITLE
    assert "as slides" not in titled(has_deck=False).cells[0].source


def test_the_line_and_the_cell_for_colab_are_written_once_and_follow_the_repository(monkeypatch):
    notebook = titled()
    notebook.cells[1].execution_count = 1
    monkeypatch.setattr(links, "REPOSITORY", "anna/course")
    links.add_links(notebook, "05_halves")
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, None]
    assert nbformat.writes(notebook).count("anna") == 4 and "your_account" not in nbformat.writes(notebook)


@pytest.mark.parametrize("place", ["here", "colab", "kaggle"])
def test_only_elsewhere_the_cell_installs_the_library(place, monkeypatch):
    ran = []
    monkeypatch.setattr("subprocess.run", lambda command, check: ran.append(command))
    turned_on = []
    if place == "colab":
        output = types.SimpleNamespace(enable_custom_widget_manager=lambda: turned_on.append(1))
        monkeypatch.setitem(sys.modules, "google.colab", types.SimpleNamespace(output=output))
    if place == "kaggle":
        monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    exec(titled().cells[1].source, {})
    library = [command[-1] for command in ran]
    assert library == ([] if place == "here" else ["tinylm-lib[colab] @ git+https://github.com/your_account/tinylm"])
    assert bool(turned_on) == (place == "colab")


def test_pages_and_slides_do_not_repeat_it():
    notebook = titled()
    page = page_of(Path("05_halves.ipynb"), notebook)
    mark(notebook)
    assert "olab" not in site.render(notebook, page).content
    assert "olab" not in re.sub("<script.*?</script>", "", Deck(notebook, page, True).html(), flags=re.S)


def test_a_copy_with_another_line_is_not_an_older_lesson(tmp_path, monkeypatch):
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()
    path = notebooks / "05_halves.ipynb"
    path.write_text(nbformat.writes(titled()))
    assert lab.refresh(notebooks, work) == []
    assert links.SETUP not in {cell.id for cell in nbformat.read(work / "05_halves.ipynb", as_version=4).cells}
    monkeypatch.setattr(links, "REPOSITORY", "anna/course")
    path.write_text(nbformat.writes(titled()))
    assert lab.refresh(notebooks, work) == []


def test_a_copy_of_an_earlier_edition_with_its_line_is_still_unedited(tmp_path):
    notebooks, work = tmp_path / "notebooks", tmp_path / "work"
    notebooks.mkdir()
    (notebooks / "05_halves.ipynb").write_text(nbformat.writes(titled()))
    lab.refresh(notebooks, work)
    copy = nbformat.read(work / "05_halves.ipynb", as_version=4)
    copy.cells[0].source += "\n\n*Also* as a page: `python -m tinylm_lib site 05`."
    nbformat.write(copy, work / "05_halves.ipynb")
    changed = titled()
    changed.cells[-1].source += " It is."
    (notebooks / "05_halves.ipynb").write_text(nbformat.writes(changed))
    lab.refresh(notebooks, work)
    assert [path.name for path in work.glob("*.ipynb")] == ["05_halves.ipynb"]
    assert "It is. It is." in (work / "05_halves.ipynb").read_text()
