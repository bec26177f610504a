"""Exports the built lessons as a site: one file each and an index with a search, all from disk,
without a network.

The reference of the library lies next to them, in api/.

python -m tinylm_lib site [NN ...] [--to FOLDER]
"""

import re
import sys
from argparse import ArgumentParser
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from .emblems import emblem
from .front import MODEL, MapEntry, front_page, map_entry, model_script, preview
from .glossary import GLOSSARY, definitions, glossary_content
from .grading.sections import find_sections
from .learn import LEARN, learn_page
from .lesson.cover import is_covered
from .lesson.links import SETUP, on_colab, without_links
from .lesson.slides import is_prediction
from .mistakes import MISTAKES, mistakes_content
from .reading import READING, reading_content
from .reference import TOP, write_reference
from .search import sections_of, with_terms
from .sidebar import ALONE, Entry, Heading, Way, contents, counted

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
# where the command that opens a lesson stands: below its question and what it needs
TITLE = re.compile(
    r"\A(?:<h1.*?</h1>)?\s*(?:<p><strong>.*?</p>)?\s*(?:<p><em>Needs</em>.*?</p>)?", re.S
)
SEARCH = (
    '<form role="search" action="index.html"><input type="search" name="q" aria-label="Search all '
    'lessons" placeholder="Search all lessons"></form>'
)
PROGRESS = (
    '<p class="progress quiet" hidden><span></span> <button type="button">Forget</button></p>'
)
COVERED = (
    '<details class="answers"><summary>Guess first, or show what answers it</summary>{}</details>'
)
# a heading or an exercise
ENDS_COVER = re.compile(r"^#{2,6} \w|\A# Exercise ", re.M)
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
    headings: list[Heading]
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
    pages = {page_of(path, lessons[path]): path for path in known}
    rendered = {page: render(lessons[path], page) for page, path in pages.items()}
    further = {
        page: {other: render(notebook, other) for notebook, other in more_pages(notebooks, page)}
        for page in pages
    }
    handbook = notebooks.parent / "INSTRUCTORS.md"
    others = _other_pages(folder, handbook)
    way = Way(
        [_entry(page, rendered[page], further[page]) for page in pages],
        [Entry(file, title) for file, title in others.items()],
    )
    written = []
    sections = []
    around = [None, *pages, None]
    for before, page, after in zip(around, pages, around[2:], strict=False):
        sections += _sections(page, rendered[page])
        if pages[page] not in wanted:
            continue
        ways_in = run_line(page, slide_links(folder, page) + more_links(further[page]))
        html = lesson_page(rendered[page], page, before, after, ways_in, way)
        written.append(write_page(folder / page.file, html))
        for other, found in further[page].items():
            sections += _sections(other, found)
            html = lesson_page(found, other, page, None, run_line(other, further=True), way)
            written.append(write_page(folder / other.file, html))
    shown = {page: found.content for page, found in rendered.items()}
    terms = definitions(shown)
    lists = {
        GLOSSARY: glossary_content(terms),
        MISTAKES: mistakes_content(pages, find_sections(notebooks)),
        READING: reading_content(shown),
    }
    for file, content in lists.items():
        written.append(write_page(folder / file, list_page(file, content, way)))
    cards = []
    for page, path in pages.items():
        links = slide_links(folder, page) + more_links(further[page])
        count = len(counted(rendered[page].headings))
        cards.append(map_entry(lessons[path], page, links, count))
    # the model is the only file that a page fetches
    written += map(write_page, (folder / LEARN, folder / MODEL), (learn_page(), model_script()))
    if GUIDE in others:
        guide = guide_page(handbook.read_text(encoding="utf-8"), [page.file for page in pages], way)
        written.append(write_page(folder / GUIDE, guide))
    front = index_page(cards, with_terms(sections, [defined for defined, _ in terms]), others)
    written.append(write_page(folder / "index.html", front))
    if picture := next(filter(None, map(preview, lessons.values())), b""):
        written.append(folder / PREVIEW)
        write_whole(written[-1], picture)
    if url:
        _name_preview([path for path in written if path.suffix == ".html"], url.rstrip("/"))
    return written


def _other_pages(folder: Path, handbook: Path) -> dict[str, str]:
    """The files that are there and are not lessons, and what they are called."""
    others = {file: title for file, (title, _) in LISTS.items()}
    others |= {REFERENCE: "Reference"} if (folder / REFERENCE).exists() else {}
    return others | ({GUIDE: "Teaching"} if handbook.exists() else {})


def _name_preview(pages: Sequence[Path], url: str) -> None:
    """Makes the address of the picture in these pages a whole one, as other sites need it."""
    for path in pages:
        html = path.read_text(encoding="utf-8")
        html = html.replace(f'content="{PREVIEW}"', f'content="{url}/{PREVIEW}"', 1)
        write_page(path, html)


def slide_links(folder: Path, page: Page) -> list[str]:
    """Links to the slides and the handout of a lesson, where the folder `slides` of the site has
    them.
    """
    files = {f"slides/{Path(page.file).with_suffix(kind)}": what for kind, what in DECKS.items()}
    return [
        f'<a href="{file}">{what}</a>' for file, what in files.items() if (folder / file).exists()
    ]


def more_pages(notebooks: Path, page: Page) -> list[tuple[NotebookNode, Page]]:
    """The built notebooks that go further than a lesson, each with its page."""
    paths = sorted(notebooks.glob(f"more/{page.number}_*.ipynb"))
    read = [(nbformat.read(path, as_version=4), path) for path in paths]
    return [(notebook, page_of(path, notebook)) for notebook, path in read]


def more_links(further: Collection[Page]) -> list[str]:
    """Links to the pages that go further than a lesson, after a word that says so."""
    links = [f'<a href="{other.file}">{escape(other.topic)}</a>' for other in further]
    return [f"More: {', '.join(links)}"] if links else []


def run_line(page: Page, links: Sequence[str] = (), further: bool = False) -> str:
    """How to run a lesson, and its other forms, as a line of HTML.

    further: whether it is one of those that go further than a lesson.
    """
    name = f"{'more/' if further else ''}{Path(page.file).stem}"
    run = f'<code>make lab ARGS="{page.number}"</code>'
    if further:
        run = f"<code>make lab</code>, then open <code>{name}.ipynb</code>"
    ways = [run, f'<a href="{on_colab(name)}">in Colab</a>', *links]
    return f'<p class="run">To run and change it: {" · ".join(ways)}</p>'


def render(notebook: NotebookNode, page: Page) -> Rendered:
    """The cells of a lesson as HTML.

    Raises: ValueError where something would be fetched from elsewhere.
    """
    prose = Prose()
    modules = set()
    shown = []
    cells = []
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
        elif cell.cell_type == "code" and cell.id != SETUP:
            shown.append(_code_cell(cell, modules))
            codes[-1] += f"\n{escape(_legible(cell))}"
        else:
            continue
        cells.append(cell)
    content = "\n".join(_with_covers(cells, shown))
    content = led_to_anchors(content, page, prose.headings)
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
    run: str = "",
    way: Way = ALONE,
) -> str:
    """The whole HTML of one lesson. run: the line that says how to run it. way: the pages around
    it.
    """
    links = [(before, "before", "← ", ""), (after, "next", "", " →")]
    around = "".join(
        f'<a class="{where}" href="{page.file}">{left}{page.number}'
        f'<span class="long"> {escape(page.topic)}</span>{right}</a>'
        for page, where, left, right in links
        if page
    )
    top = f'<p class="around">{around}</p>' if around else ""
    drawn = emblem(page.file)
    content = drawn + TITLE.sub(lambda title: f"{title[0]}\n{run}", rendered.content, count=1)
    content += f"<footer>{around}</footer>" if around else ""
    navigation = _navigation("This lesson", page.file, rendered.headings, way, top)
    title = f"{page.number} {page.topic} · TinyLM"
    script = views_script(rendered.modules) + _scoped("progress")
    model = MODEL_TAG if rendered.asks else ""
    return _fill(
        title, "lesson", content, script, navigation, page.question, own("course/code.css"), model
    )


def guide_page(text: str, lessons: Collection[str], way: Way = ALONE) -> str:
    """The HTML of a page in Markdown.

    Its links to notebooks lead to the lessons among these files; others are text.
    """
    prose = Prose()
    content = MarkdownWithMath(renderer=prose).render(text)

    def lead(link: re.Match[str]) -> str:
        page = f"{Path(link[1]).stem}.html"
        return f'<a href="{page}">{link[2]}</a>' if page in lessons else link[2]

    content = re.sub(r'<a href="(?!https?:)([^"]*)">(.*?)</a>', lead, content)
    navigation = _navigation("This page", GUIDE, prose.headings, way)
    title = words_of(prose.headings[0][2])
    script = _scoped("progress")
    return _fill(
        f"{title} · TinyLM", "lesson", content, script, navigation, title, own("course/code.css")
    )


def list_page(file: str, content: str, way: Way = ALONE) -> str:
    """The HTML of one of LISTS; the headings of the second rank in its content become the table of
    contents.
    """
    title, description = LISTS[file]
    headings = [(2, anchor, escape(words_of(text))) for anchor, text in LISTED.findall(content)]
    navigation = _navigation("This page", file, headings, way)
    script = _scoped("progress") + (_scoped("glossary") if file == GLOSSARY else "")
    look = own("course/code.css")
    return _fill(f"{title} · TinyLM", "lesson", content, script, navigation, description, look)


def index_page(
    lessons: Sequence[MapEntry],
    sections: Sequence[Sequence],
    others: Mapping[str, str],
) -> str:
    """The HTML of the front page, with a search through the sections of lessons, as `with_terms`
    gives them.

    others: the files of the other pages and what they are called.
    """
    links = '<a href="#lessons">Lessons</a>'
    links += "".join(f'<a href="{file}">{title}</a>' for file, title in others.items())
    guide, reference = (file if file in others else "" for file in (GUIDE, REFERENCE))
    navigation = (
        '<nav aria-label="This site"><a class="home" href="index.html">TinyLM</a>'
        f"{links}{SEARCH}</nav>"
    )
    found = '<p class="quiet" role="status"></p><ul class="found"></ul>'
    content = f'{found}<div class="front">{front_page(lessons, sections, guide, reference)}</div>'
    script = views_script({"watch"}) + "".join(map(_scoped, ("search", "front", "progress")))
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
        print(f"Open {options.to / 'index.html'}")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _entry(page: Page, rendered: Rendered, further: Mapping[Page, Rendered]) -> Entry:
    """A lesson in the sidebar, with the pages that go further."""
    name = f"{page.number} {escape(page.topic)}"
    below = [
        _entry(other, found, {})._replace(name=escape(other.topic))
        for other, found in further.items()
    ]
    return Entry(page.file, name, len(counted(rendered.headings)), below)


def _navigation(label: str, file: str, headings: Sequence[Heading], way: Way, top: str = "") -> str:
    """The links around a page: above it in a narrow window, at its side in a wide one."""
    return f'<nav aria-label="{label}">{HOME}{top}{contents(way, file, headings)}{PROGRESS}</nav>'


def _sections(page: Page, rendered: Rendered) -> list[list]:
    return sections_of(page, rendered.headings, rendered.texts)


def _scoped(name: str) -> str:
    """A script of the site, whose names are its own."""
    return f"{{\n{own(f'course/{name}.js')}}}\n"


def _with_covers(cells: Iterable[NotebookNode], shown: Iterable[str]) -> Iterator[str]:
    """The HTML shown of the cells; what follows a prediction is covered as far as the next
    prediction, heading or exercise.
    """
    cover, end = COVERED.split("{}")
    asked = inside = False
    for cell, html in zip(cells, shown, strict=True):
        goes_on = not (is_prediction(cell) or ENDS_COVER.search(cell.source))
        if inside and not goes_on:
            yield end
        if asked and goes_on:
            yield cover
        inside = goes_on and (asked or inside)
        asked = is_prediction(cell)
        # one cover is enough
        yield html.replace(cover, cover.replace("<details", "<details open")) if inside else html
    if inside:
        yield end


def _code_cell(cell: NotebookNode, modules: set[str]) -> str:
    code = ""
    if _legible(cell).strip():
        code = f'<pre class="code"><code>{colored(cell.source)}</code></pre>'
    folded = "Code" if cell.metadata.get("jupyter", {}).get("source_hidden") else ""
    folded = "Imports" if only_imports(cell.source) else folded
    if code and folded:
        code = f"<details><summary>{folded}</summary>{code}</details>"
    outputs = "".join(output_html(output, modules) for output in cell.outputs)
    if is_covered(cell):
        outputs = COVERED.format(outputs)
    return f'<div class="cell">{code}{outputs}</div>'


def _legible(cell: NotebookNode) -> str:
    """The code of a cell that a reader can read: a prediction is in ROT13."""
    return "" if is_prediction(cell) else cell.source


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
