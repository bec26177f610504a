"""Exports the built lessons as a site: one file each and an index with a search, all from disk,
without a network.

The reference of the library lies next to them, in api/.

python -m tinylm_lib site [NN ...] [--to FOLDER]
"""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Collection, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import NamedTuple

import nbformat
from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode

from tinylm_lib.files import print_anything, write_whole

from ..display.theme import page_head
from ..folders import NOTEBOOKS, WORK, own
from ..views.base import MIME
from .cells import (
    Page,
    Prose,
    built_lessons,
    colored,
    led_to_anchors,
    only_imports,
    output_html,
    page_of,
    views_script,
    words_of,
    write_page,
)
from .front import MODEL, MapEntry, front_page, map_entry, model_script, preview
from .glossary import GLOSSARY, definitions, glossary_content, term_anchor
from .grading.sections import find_sections
from .learn import LEARN, learn_page
from .lesson.cover import is_covered
from .lesson.links import without_links
from .mistakes import MISTAKES, mistakes_content
from .reading import READING, reading_content
from .reference import TOP, write_reference

REFERENCE = f"api/{TOP}.html"
GUIDE = "instructors.html"
PREVIEW = "preview.png"  # as page.html names it
DECKS = {".html": "Slides", ".pdf": "Handout (PDF)"}
# a link to another notebook, whose page is beside this one
NOTEBOOK = re.compile(r'href="(?:\.\./|more/)?(\d\d_[a-z]+)\.ipynb"')
MODEL_TAG = f'<script src="{MODEL}" defer></script>'
DESCRIPTION = (
    "A course and a small library: build a modern language model, piece by piece. A trained model "
    "of the course writes in this page."
)
LISTS = {  # pages that are computed from all lessons: their title and what they list
    GLOSSARY: ("Glossary", "The terms of the course"),
    MISTAKES: ("Mistakes", "The mistakes that the checks of the course know by name"),
    READING: ("Further reading", "What the lessons cite"),
}
LIST_LINKS = [f'<a href="{file}">{title}</a>' for file, (title, _) in LISTS.items()]
SEARCH = (
    '<form role="search" action="index.html"><input type="search" name="q" aria-label="Search all '
    'lessons" placeholder="Search all lessons"></form>'
)
COVERED = "Guess first, or show what answers it"
LISTED = re.compile(r'<h2 id="(.*?)">(.*?)</h2>', re.S)
HOME = (
    f'<a class="home" href="index.html">TinyLM<span class="long">: all lessons</span></a>{SEARCH}'
)


class Rendered(NamedTuple):
    """A lesson as HTML, the headings in it (level, anchor, HTML), what each section says, and the
    views it needs.

    asks: whether one of the views can be answered by a model of the site.
    """

    content: str
    headings: list[tuple[int, str, str]]
    texts: list[str]
    modules: set[str]
    asks: bool = False


def export(notebooks: Path, folder: Path, numbers: Sequence[str] = (), url: str = "") -> list[Path]:
    """Writes a page for each built lesson, or for the lessons named, and the index; returns the
    paths written.

    url: the address where the folder will be published, for the picture that other sites show with
    a link to it.
    Raises: ValueError for a lesson that is not built or a page that would need the network.
    """
    built = built_lessons(notebooks, numbers)
    lessons = {path: nbformat.read(path, as_version=4) for path in built.values()}
    wanted = [path for number, path in built.items() if not numbers or number in numbers]
    folder.mkdir(parents=True, exist_ok=True)
    known = [path for path in lessons if path in wanted or (folder / f"{path.stem}.html").exists()]
    pages = [page_of(path, lessons[path]) for path in known]
    written = []
    sections = []
    contents = {}
    for i, (path, page) in enumerate(zip(known, pages, strict=True)):
        rendered = render(lessons[path], page)
        contents[page] = rendered.content
        sections += _sections(rendered, page)
        if path in wanted:
            before = pages[i - 1] if i > 0 else None
            after = pages[i + 1] if i + 1 < len(pages) else None
            links = slide_links(folder, page) + more_links(notebooks, page)
            html = lesson_page(rendered, page, before, after, links)
            written.append(write_page(folder / f"{path.stem}.html", html))
            for further, other in more_pages(notebooks, page):
                found = render(further, other)
                sections += _sections(found, other)
                written.append(write_page(folder / other.file, lesson_page(found, other, page)))
    terms = definitions(contents)
    sections += [
        [GLOSSARY, "Glossary", term_anchor(one), one.term, words_of(one.text)] for one, _ in terms
    ]
    lists = {
        GLOSSARY: glossary_content(terms),
        MISTAKES: mistakes_content(pages, find_sections(notebooks)),
        READING: reading_content(contents),
    }
    for file, content in lists.items():
        written.append(write_page(folder / file, list_page(file, content)))
    reference = REFERENCE if (folder / REFERENCE).exists() else ""
    cards = [
        map_entry(lessons[path], page, slide_links(folder, page) + more_links(notebooks, page))
        for path, page in zip(known, pages, strict=True)
    ]
    written.append(write_page(folder / LEARN, learn_page()))
    written.append(write_page(folder / MODEL, model_script()))  # the only file that a page fetches
    if (handbook := notebooks.parent / "INSTRUCTORS.md").exists():
        guide = guide_page(handbook.read_text(encoding="utf-8"), [page.file for page in pages])
        written.append(write_page(folder / GUIDE, guide))
    front = index_page(cards, sections, GUIDE if handbook.exists() else "", reference)
    written.append(write_page(folder / "index.html", front))
    if picture := next(filter(None, map(preview, lessons.values())), b""):
        written.append(folder / PREVIEW)
        write_whole(written[-1], picture)
    if url:
        _name_preview([path for path in written if path.suffix == ".html"], url.rstrip("/"))
    return written


def _name_preview(pages: Sequence[Path], url: str) -> None:
    """Makes the address of the picture in these pages a whole one, as other sites need it."""
    for path in pages:
        html = path.read_text(encoding="utf-8")
        html = html.replace(f'content="{PREVIEW}"', f'content="{url}/{PREVIEW}"', 1)
        write_page(path, html)


def slide_links(folder: Path, page: Page) -> str:
    """Links to the slides and the handout of a lesson, where the folder `slides` of the site has
    them.
    """
    files = {f"slides/{Path(page.file).with_suffix(kind)}": what for kind, what in DECKS.items()}
    there = [
        f'<a href="{file}">{what}</a>' for file, what in files.items() if (folder / file).exists()
    ]
    return f'<p class="slides">{" · ".join(there)}</p>' if there else ""


def more_pages(notebooks: Path, page: Page) -> list[tuple[NotebookNode, Page]]:
    """The built notebooks that go further than a lesson, each with its page."""
    paths = sorted(notebooks.glob(f"more/{page.number}_*.ipynb"))
    read = [(nbformat.read(path, as_version=4), path) for path in paths]
    return [(notebook, page_of(path, notebook)) for notebook, path in read]


def more_links(notebooks: Path, page: Page) -> str:
    """Links to the pages that go further than a lesson, as HTML."""
    links = [
        f'<a href="{other.file}">{escape(other.topic)}</a>'
        for _, other in more_pages(notebooks, page)
    ]
    return f'<p class="slides">More: {", ".join(links)}</p>' if links else ""


def render(notebook: NotebookNode, page: Page) -> Rendered:
    """The cells of a lesson as HTML.

    Raises: ValueError where something would be fetched from elsewhere.
    """
    prose = Prose()
    modules = set()
    shown = []
    texts = [""]
    codes = [""]
    markdown = MarkdownWithMath(renderer=prose)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            shown.append(markdown.render(without_links(cell.source)))
            before, *after = re.split(r'<h\d id="part-\d+">.*?</h\d>', shown[-1], flags=re.S)
            texts[-1] += before
            texts += after
            codes += [""] * len(after)
        elif cell.cell_type == "code":
            shown.append(_code_cell(cell, modules))
            codes[-1] += f"\n{escape(cell.source)}"
    content = led_to_anchors("\n".join(shown), page, prose.headings)
    content = NOTEBOOK.sub(r'href="\1.html"', content)
    said = [words_of(text + code) for text, code in zip(texts, codes, strict=True)]
    return Rendered(content, prose.headings, said[1:], modules, any(map(_asks, notebook.cells)))


def _asks(cell: NotebookNode) -> bool:
    """Whether a view in its outputs can be answered by a model."""
    shown = [output.get("data", {}) for output in cell.get("outputs", ())]
    return any("model" in data[MIME]["data"] for data in shown if MIME in data)


def lesson_page(
    rendered: Rendered,
    page: Page,
    before: Page | None = None,
    after: Page | None = None,
    slides: str = "",
) -> str:
    """The whole HTML of one lesson. slides: links to them, as HTML."""
    links = [(before, "before", "← ", ""), (after, "next", "", " →")]
    around = "".join(
        f'<a class="{where}" href="{page.file}">{left}{page.number}'
        f'<span class="long"> {escape(page.topic)}</span>{right}</a>'
        for page, where, left, right in links
        if page
    )
    run = (
        f'<p class="quiet">The outputs are those of one run. To run and change the code: '
        f'<code>make lab ARGS="{page.number}"</code></p>'
    )
    top = f'<p class="around">{around}</p>' if around else ""
    navigation = (
        f'<nav aria-label="This lesson">{HOME}{top}'
        f"{_contents(rendered.headings, slides + run)}</nav>"
    )
    content = rendered.content + (f"<footer>{around}</footer>" if around else "")
    title = f"{page.number} {page.topic} · TinyLM"
    script = views_script(rendered.modules)
    model = MODEL_TAG if rendered.asks else ""
    return _fill(
        title, "lesson", content, script, navigation, page.question, own("course/code.css"), model
    )


def guide_page(text: str, lessons: Collection[str]) -> str:
    """The HTML of a page in Markdown.

    Its links to notebooks lead to the lessons among these files; others are text.
    """
    prose = Prose()
    content = MarkdownWithMath(renderer=prose).render(text)

    def lead(link: re.Match[str]) -> str:
        page = f"{Path(link[1]).stem}.html"
        return f'<a href="{page}">{link[2]}</a>' if page in lessons else link[2]

    content = re.sub(r'<a href="(?!https?:)([^"]*)">(.*?)</a>', lead, content)
    navigation = f'<nav aria-label="This page">{HOME}{_contents(prose.headings)}</nav>'
    title = words_of(prose.headings[0][2])
    return _fill(
        f"{title} · TinyLM", "lesson", content, "", navigation, title, own("course/code.css")
    )


def list_page(file: str, content: str) -> str:
    """The HTML of one of LISTS; the headings of the second rank in its content become the table of
    contents.
    """
    title, description = LISTS[file]
    headings = [(2, anchor, escape(words_of(text))) for anchor, text in LISTED.findall(content)]
    navigation = f'<nav aria-label="This page">{HOME}{_contents(headings)}</nav>'
    return _fill(
        f"{title} · TinyLM", "lesson", content, "", navigation, description, own("course/code.css")
    )


def index_page(
    lessons: Sequence[MapEntry],
    sections: Sequence[Sequence[str]],
    guide: str = "",
    reference: str = "",
) -> str:
    """The HTML of the front page, with a search through the sections of lessons: file, lesson,
    anchor, heading, text.

    guide, reference: the pages for instructors and of the library's public names, where there are
    such.
    """
    links = '<a href="#lessons">Lessons</a>' + "".join(LIST_LINKS)
    links += f'<a href="{reference}">Reference</a>' if reference else ""
    navigation = (
        '<nav aria-label="This site"><a class="home" href="index.html">TinyLM</a>'
        f"{links}{SEARCH}</nav>"
    )
    found = '<p class="quiet" role="status"></p><ul class="found"></ul>'
    content = f'{found}<div class="front">{front_page(lessons, sections, guide, reference)}</div>'
    parts = [own("course/search.js"), own("course/front.js")]
    script = views_script({"watch"}) + "".join(f"{{\n{part}}}\n" for part in parts)
    title = "TinyLM: build a language model"
    look = own("course/front.css")
    return _fill(title, "index", content, script, navigation, DESCRIPTION, look, MODEL_TAG)


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    print_anything()
    about = __doc__.split("\n\n")[0]
    parser = ArgumentParser(prog="python -m tinylm_lib site", description=about)
    parser.add_argument("numbers", nargs="*", metavar="NN", help="two digits: only these lessons")
    parser.add_argument(
        "--to", type=Path, default=WORK / "site", metavar="FOLDER", help="default: work/site"
    )
    parser.add_argument("--url", default="", help="where the folder will be published: https://...")
    options = parser.parse_args(argv)
    try:
        print(write_reference(options.to / Path(REFERENCE).parent))
        for path in export(notebooks, options.to, options.numbers, options.url):
            print(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _contents(headings: Sequence[tuple[int, str, str]], after: str = "") -> str:
    lines = "".join(
        f'<li><a href="#{anchor}">{text}</a></li>' for level, anchor, text in headings if level == 2
    )
    lists = f"<p>{' · '.join(LIST_LINKS)}</p>"
    return (
        '<details class="contents"><summary>Contents</summary>'
        f"<ol>{lines}</ol>{lists}{after}</details>"
    )


def _sections(rendered: Rendered, page: Page) -> list[list[str]]:
    """What the search knows of a lesson: its sections with what they say, but for the sources."""
    lesson = f"{page.number} {page.topic}"
    found = zip(rendered.headings, rendered.texts, strict=True)
    return [
        [page.file, lesson, anchor, words_of(text), said]
        for (_, anchor, text), said in found
        if text != "Sources"
    ]


def _code_cell(cell: NotebookNode, modules: set[str]) -> str:
    code = ""
    if cell.source.strip():
        code = f'<pre class="code"><code>{colored(cell.source)}</code></pre>'
    folded = "Code" if cell.metadata.get("jupyter", {}).get("source_hidden") else ""
    folded = "Imports" if only_imports(cell.source) else folded
    if folded:
        code = f"<details><summary>{folded}</summary>{code}</details>"
    outputs = "".join(output_html(output, modules) for output in cell.outputs)
    if is_covered(cell):
        outputs = f'<details class="answers"><summary>{COVERED}</summary>{outputs}</details>'
    return f'<div class="cell">{code}{outputs}</div>'


def _fill(
    title: str,
    kind: str,
    content: str,
    script: str,
    navigation: str,
    description: str,
    style: str,
    model: str = "",
) -> str:
    words = {"title": escape(title), "description": escape(description)}
    parts = {
        "kind": kind,
        "content": content,
        "script": script,
        "navigation": navigation,
        "style": style,
    }
    return Template(own("course/page.html")).substitute(
        words, head=page_head(title), model=model, **parts
    )
