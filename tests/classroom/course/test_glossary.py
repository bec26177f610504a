"""The glossary: each term has the paragraph of its lesson, and nothing of it is written twice."""

import nbformat
import pytest
from nbformat import v4

from tinylm_classroom.course import glossary, site
from tinylm_classroom.course.cells import built_lessons, page_of
from tinylm_classroom.folders import NOTEBOOKS

HALVES = """## Cutting

In **two halves**, which are **Equal** parts (see [later](#Later)), a thing is cut. And also:

A **half-life** is a time:

$$t = \\frac{1}{2}$$

## Later

Every **half** is a **half**. An equal one."""
THIRDS = "## Thirds <b>\n\nThis **half** is another thing."


def lesson(number: str, text: str) -> tuple[site.Page, str]:
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(f"# {number} Cuts\n\n**Why?**"), v4.new_markdown_cell(text)])
    page = site.Page(f"{number}_cuts.html", number, "Cuts", "Why?")
    return page, site.render(notebook, page).content


@pytest.fixture
def found(monkeypatch) -> dict[tuple[str, str], tuple]:
    monkeypatch.setattr(glossary, "TERMS", {"05": "equal, half, half-life, two halve, missing", "06": "half"})
    pairs = glossary.definitions(dict([lesson("05", HALVES), lesson("06", THIRDS), lesson("07", THIRDS)]))
    assert [defined.term for defined, _ in pairs] == ["equal", "half", "half", "half-life", "two halve"]
    return {(defined.term, defined.page.number): (defined, others) for defined, others in pairs}


def test_a_term_has_its_first_paragraph_and_the_lessons_that_use_it_otherwise(found):
    half, others = found["half", "05"]
    assert half.text.startswith("<p>Every <strong>half</strong>") and half.heading == "Later"
    assert [other.page.number for other in others] == ["06", "07"]
    assert [other.page.number for other in found["half", "06"][1]] == ["05", "07"]
    assert found["two halve", "05"][0].text == found["equal", "05"][0].text


def test_what_a_paragraph_leads_to_stays_away_but_for_its_formula(found):
    assert found["equal", "05"][0].text.endswith("is cut.</p>")
    assert found["half-life", "05"][0].text.count("<math ") == 1 and "is a time:" in found["half-life", "05"][0].text


def test_the_page_marks_the_term_alone_and_its_links_lead_into_the_lessons(found):
    content = glossary.glossary_content([*found.values()])
    assert all(f'<li><a href="#{letter}">' in site.list_page("glossary.html", content) for letter in "EHT")
    entry = content[content.index('<h3 id="equal-05">') : content.index('<h2 id="H">')]
    assert "In two halves, which are <strong>Equal</strong>" in entry and 'href="05_cuts.html#part-2"' in entry
    assert '<a href="05_cuts.html#part-1">05 Cuts</a>, Cutting' in entry and "Also in" not in entry
    assert content.index('id="half-05"') < content.index('id="half-06"') < content.index('id="half-life-05"')
    assert 'Also in <a href="06_cuts.html#part-1">06 Cuts</a>, <a href="07_cuts.html#part-1">' in content


def test_the_site_has_the_glossary_and_its_search_finds_the_terms(tmp_path, monkeypatch):
    monkeypatch.setattr(glossary, "TERMS", {"03": "half"})
    (tmp_path / "notebooks").mkdir()
    cells = [v4.new_markdown_cell(text) for text in ("# 03 Halves\n\n**What?**", HALVES)]
    nbformat.write(v4.new_notebook(cells=cells), tmp_path / "notebooks" / "03_halves.ipynb")
    written = {path.name: path.read_text(encoding="utf-8") for path in site.export(tmp_path / "notebooks", tmp_path)}
    assert 'id="half-03"' in written["glossary.html"]
    assert '"Every half is a half. An equal one.", [["half", "half-03", 6]]]' in written["index.html"]
    assert all('href="glossary.html"' in written[name] for name in ("index.html", "03_halves.html"))


def test_each_term_is_defined_in_bold_in_its_lesson():
    lessons = [(path, nbformat.read(path, as_version=4)) for path in built_lessons(NOTEBOOKS).values()]
    pages = {page_of(path, notebook): notebook for path, notebook in lessons}
    found = glossary.definitions({page: site.render(notebook, page).content for page, notebook in pages.items()})
    wanted = {(term, number) for number, terms in glossary.TERMS.items() for term in terms.split(", ")}
    assert {(defined.term, defined.page.number) for defined, _ in found} == wanted
    assert all(len(defined.text) > 60 for defined, _ in found)
