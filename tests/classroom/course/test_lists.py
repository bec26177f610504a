"""The list of mistakes and the further reading: nothing is missing, nothing is there twice, and every link leads on."""

import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from tinylm_classroom.course import mistakes, reading, site
from tinylm_classroom.course.cells import Page, words_of
from tinylm_classroom.course.grading.sections import Section
from tinylm_classroom.display.cards import unmarked
from tinylm_classroom.exercises import EXERCISES
from tinylm_classroom.exercises.base import Exercise, Fault
from tinylm_classroom.folders import NOTEBOOKS

CUTS = Page("05_cuts.html", "05", "Cuts & more", "Why?")
LATER = Page("06_later.html", "06", "Later", "Why?")
FIRST = """## Sources
- The root of $d$: Ax et al. 2017, [*Cuts: All & More*](https://x.org/a?b=1&c=2), section 3.1; By and Co 2018, [*B?*](https://x.org/b)
- Why Ax et al. cut less: Do 2020, [*D*](https://x.org/d). Sums: Eve 1901, *Of Sums*, section *Format*.
- A file: Ax et al. 2017, *Cuts*, and [its files](https://x.org/f).
## Appendix
[elsewhere](https://x.org/no)"""
SECOND = "## Sources\n- Again: Ax et al. 2017, [*Cuts*](https://x.org/a?b=1&c=2). Eve 1901, *Of sums*. New: [g](https://x.org/g)"


def lesson(page: Page, text: str) -> str:
    return site.render(v4.new_notebook(cells=[v4.new_markdown_cell(text)]), page).content


def items(html: str) -> list[str]:
    return [words_of(item) for item in re.findall(r"<li>(.*?)</li>", html[html.index("<h1>") :], re.S)]


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.export(NOTEBOOKS, folder)
    return folder


def test_a_mistake_is_below_the_section_of_its_exercise_and_escaped(monkeypatch):
    one = Exercise("halve", "05", lambda x, on: x, (), {"wrong": Fault("`x < 1` is <b>", "It is `<`.")}, ())
    monkeypatch.setattr(mistakes, "EXERCISES", {"halve": one})
    where = Section("05 Cuts", "2. The `<`", "05_cuts.html#part-3")
    content = mistakes.mistakes_content([CUTS, LATER], {("05", "halve"): where})
    assert '<h2 id="lesson-05"><a href="05_cuts.html">05 Cuts &amp; more</a></h2><h3 id="halve">' in content
    assert '<a href="05_cuts.html#part-3">2. The <code>&lt;</code></a>' in content and "lesson-06" not in content
    assert "<li><b><code>x &lt; 1</code> is &lt;b&gt;</b>. It is <code>&lt;</code>.</li>" in content
    assert "<li>" not in mistakes.mistakes_content([CUTS], {}) and "<li>" not in mistakes.mistakes_content([], {})


def test_every_mistake_of_every_exercise_is_listed_once_and_no_cause_of_the_clinic(exported):
    html = (exported / "mistakes.html").read_text(encoding="utf-8")
    faults = [fault for exercise in EXERCISES.values() for fault in exercise.faults.values()]
    said = (unmarked(f"{fault.looks}. {fault.why}") for fault in faults)
    assert Counter(items(html)) == Counter(" ".join(text.split()) for text in said)
    assert f"know {len(faults):,} mistakes" in html and len(re.findall("<h3 ", html)) == len(EXERCISES)
    assert 'id="lesson-19"' not in html


@pytest.mark.parametrize("name", site.LISTS)
def test_every_link_of_a_list_leads_to_a_part_of_an_exported_page(exported, name):
    html = (exported / name).read_text(encoding="utf-8")
    links = {link for link in re.findall(r'<a\b[^>]* href="([^"]+)"', html) if not link.startswith("http")}
    files = {link.partition("#")[0] for link in links}
    pages = {file: (exported / (file or name)).read_text(encoding="utf-8") for file in files}
    assert len(links) > 40
    parts = (link.partition("#") for link in links)
    assert [(file, anchor) for file, _, anchor in parts if anchor and f'id="{anchor}"' not in pages[file]] == []
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_a_source_is_listed_once_under_the_first_lesson_with_its_longest_title():
    content = reading.reading_content({CUTS: lesson(CUTS, FIRST), LATER: lesson(LATER, SECOND)})
    assert items(content) == [
        "The root of d: Ax et al. 2017, Cuts: All & More · also in 06 Later",
        "The root of d: By and Co 2018, B?",
        "Why Ax et al. cut less: Do 2020, D",
        "Sums: Eve 1901, Of Sums · also in 06 Later",
        "A file: its files",
        "New: g",
    ]
    assert content.count('href="https://x.org/a?b=1&amp;c=2"') == 1 and "x.org/no" not in content
    assert content.index('id="lesson-05"') < content.index("x.org/f") < content.index('id="lesson-06"')
    assert 'also in <a href="06_later.html#part-0">06 Later</a>' in content


def test_every_address_under_sources_is_listed_once(exported):
    cited = set()
    for path in NOTEBOOKS.glob("*.ipynb"):
        (cell,) = (cell for cell in nbformat.read(path, 4).cells if cell.source.startswith("## Sources\n"))
        cited |= set(re.findall(r"\]\((http[^)\s]+)\)", cell.source))
    html = (exported / "reading.html").read_text(encoding="utf-8")
    assert Counter(re.findall(r'<a href="(http[^"]+)"', html)) == Counter(cited) and len(cited) > 90
