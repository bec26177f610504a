"""Exports the built lessons as a site: one file each and an index with a search, all from disk, without a network.

The reference of the library lies next to them, in api/.

python -m tinylm_lib.classroom.course.site [NN ...] [--to FOLDER]
"""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import NamedTuple

import nbformat
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode

from ..display.theme import css
from ..folders import NOTEBOOKS, WORK
from .cells import (
    Page,
    Prose,
    built_lessons,
    colored,
    json_in_html,
    led_to_anchors,
    output_html,
    own,
    page_of,
    views_script,
    words_of,
    write_page,
)
from .reference import TOP, write_reference

REFERENCE = f"api/{TOP}.html"
DECKS = {".html": "Slides", ".pdf": "Handout (PDF)"}
SEARCH = (
    '<form role="search" action="index.html"><input type="search" name="q" aria-label="Search all lessons" '
    'placeholder="Search all lessons"></form>'
)


class Rendered(NamedTuple):
    """A lesson as HTML, the headings in it (level, anchor, HTML), what each section says, and the views it needs."""

    content: str
    headings: list[tuple[int, str, str]]
    texts: list[str]
    modules: set[str]


def export(notebooks: Path, folder: Path, numbers: Sequence[str] = ()) -> list[Path]:
    """Writes a page for each built lesson, or for the lessons named, and the index; returns the paths written.

    Raises: ValueError for a lesson that is not built or a page that would need the network.
    """
    built = built_lessons(notebooks, numbers)
    lessons = {path: nbformat.read(path, as_version=4) for path in built.values()}
    wanted = [path for number, path in built.items() if not numbers or number in numbers]
    folder.mkdir(parents=True, exist_ok=True)
    known = [path for path in lessons if path in wanted or (folder / f"{path.stem}.html").exists()]
    pages = [page_of(path, lessons[path]) for path in known]
    written, sections = [], []
    for place, path in enumerate(known):
        rendered = render(lessons[path], pages[place])
        sections += _sections(rendered, pages[place])
        if path in wanted:
            around = (pages[place - 1] if place else None, pages[place + 1] if place + 1 < len(pages) else None)
            slides = slide_links(folder, pages[place])
            written.append(
                write_page(folder / f"{path.stem}.html", lesson_page(rendered, pages[place], *around, slides))
            )
    reference = REFERENCE if (folder / REFERENCE).exists() else ""
    slides = [slide_links(folder, page) for page in pages]
    return [*written, write_page(folder / "index.html", index_page(pages, sections, reference, slides))]


def slide_links(folder: Path, page: Page) -> str:
    """Links to the slides and the handout of a lesson, where the folder `slides` of the site has them."""
    files = {f"slides/{Path(page.file).with_suffix(kind)}": what for kind, what in DECKS.items()}
    there = [f'<a href="{file}">{what}</a>' for file, what in files.items() if (folder / file).exists()]
    return f'<p class="slides">{" · ".join(there)}</p>' if there else ""


def render(notebook: NotebookNode, page: Page) -> Rendered:
    """The cells of a lesson as HTML.

    Raises: ValueError where something would be fetched from elsewhere.
    """
    prose, modules, shown, texts, codes = Prose(), set(), [], [""], [""]
    markdown = MarkdownWithMath(renderer=prose)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            shown.append(markdown.render(cell.source))
            before, *after = re.split(r'<h\d id="part-\d+">.*?</h\d>', shown[-1], flags=re.S)
            texts[-1] += before
            texts += after
            codes += [""] * len(after)
        elif cell.cell_type == "code":
            shown.append(_code_cell(cell, modules))
            codes[-1] += f"\n{escape(cell.source)}"
    content = led_to_anchors("\n".join(shown), page, prose.headings)
    said = [words_of(text + code) for text, code in zip(texts, codes, strict=True)]
    return Rendered(content, prose.headings, said[1:], modules)


def lesson_page(
    rendered: Rendered, page: Page, before: Page | None = None, after: Page | None = None, slides: str = ""
) -> str:
    """The whole HTML of one lesson. slides: links to them, as HTML."""
    headings = (f'<li><a href="#{anchor}">{text}</a></li>' for level, anchor, text in rendered.headings if level == 2)
    home = f'<a class="home" href="index.html">TinyLM: all lessons</a>{SEARCH}'
    links = [(before, "before", "← ", ""), (after, "next", "", " →")]
    footer = "".join(
        f'<a class="{where}" href="{page.file}">{left}{page.number} {escape(page.topic)}{right}</a>'
        for page, where, left, right in links
        if page
    )
    navigation = f'<nav aria-label="This lesson">{home}<ol>{"".join(headings)}</ol>{slides}</nav>'
    content = rendered.content + (f"<footer>{footer}</footer>" if footer else "")
    return _fill(f"{page.number} {page.topic} · TinyLM", "lesson", content, views_script(rendered.modules), navigation)


def index_page(
    pages: Sequence[Page], sections: Sequence[Sequence[str]], reference: str = "", slides: Sequence[str] = ()
) -> str:
    """The HTML of the list of lessons, with a search through their sections: file, lesson, anchor, heading, text.

    reference: the page of the library's reference, if there is one. slides: of each page the links to its slides.
    """
    lines = "".join(
        f'<li><a href="{page.file}"><span class="number">{page.number}</span><b>{escape(page.topic)}</b>'
        f'<span class="question">{escape(page.question)}</span></a>{links}</li>'
        for page, links in zip_longest(pages, slides, fillvalue="")
    )
    link = f'<p>The library: <a href="{reference}">the reference of its public names</a>.</p>' if reference else ""
    content = (
        "<h1>TinyLM</h1><p>A modern language model, built piece by piece. These pages hold the lessons as they ran; "
        f'their views move without a kernel and without a network.</p>{SEARCH}<p class="quiet" role="status"></p>'
        f'<ul class="found"></ul>{link}<ul class="lessons">{lines}</ul>'
        f'<script type="application/json" id="sections">{json_in_html(sections)}</script>'
    )
    return _fill("TinyLM: all lessons", "index", content, own("search.js"))


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    parser = ArgumentParser(prog="python -m tinylm_lib.classroom.course.site", description=__doc__.split("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="two digits: only these lessons")
    parser.add_argument("--to", type=Path, default=WORK / "site", metavar="FOLDER", help="default: work/site")
    options = parser.parse_args(argv)
    try:
        print(write_reference(options.to / Path(REFERENCE).parent))
        for path in export(notebooks, options.to, options.numbers):
            print(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _sections(rendered: Rendered, page: Page) -> list[list[str]]:
    """What the search knows of a lesson: its sections with what they say, but for the sources."""
    lesson = f"{page.number} {page.topic}"
    found = zip(rendered.headings, rendered.texts, strict=True)
    return [[page.file, lesson, anchor, words_of(text), said] for (_, anchor, text), said in found if text != "Sources"]


def _code_cell(cell: NotebookNode, modules: set[str]) -> str:
    code = f'<pre class="code"><code>{colored(cell.source)}</code></pre>' if cell.source.strip() else ""
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        code = f"<details><summary>Code</summary>{code}</details>"
    return f'<div class="cell">{code}{"".join(output_html(output, modules) for output in cell.outputs)}</div>'


def _fill(title: str, kind: str, content: str, script: str, navigation: str = "") -> str:
    parts = {"kind": kind, "content": content, "script": script, "navigation": navigation, "syntax": own("code.css")}
    return Template(own("page.html")).substitute(title=escape(title), look=css(), **parts)


if __name__ == "__main__":
    raise SystemExit(main())
