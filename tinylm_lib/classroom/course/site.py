"""Exports the built lessons as a site: one file each and an index with a search, all from disk, without a network.

The reference of the library lies next to them, in api/.

python -m tinylm_lib.classroom.course.site [NN ...] [--to FOLDER]
"""

import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from urllib.parse import unquote

import nbformat
from latex2mathml.converter import convert
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from ..display.theme import css
from ..folders import NOTEBOOKS, WORK
from ..views.base import MIME, SHARED, source
from .reference import TOP, write_reference

REFERENCE = f"api/{TOP}.html"
OUTSIDE = re.compile(
    r"<(?:img|script|link|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data)\s*=\s*"
    r"[\"']?(?!data:)[^\s\"'>]+",
    re.IGNORECASE,
)
SEARCH = (
    '<form role="search" action="index.html"><input type="search" name="q" aria-label="Search all lessons" '
    'placeholder="Search all lessons"></form>'
)
TITLE = re.compile(r"# (?P<number>\d\d) (?P<topic>.+)\n+\*\*(?P<question>.+?)\*\*", re.S)


class Page(NamedTuple):
    """What the index says of a lesson."""

    file: str
    number: str
    topic: str
    question: str


class Rendered(NamedTuple):
    """A lesson as HTML, the headings in it (level, anchor, HTML), what each section says, and the views it needs."""

    content: str
    headings: list[tuple[int, str, str]]
    texts: list[str]
    modules: set[str]


class Prose(IPythonRenderer):
    """Markdown whose formulas become MathML and whose headings are collected for the table of contents."""

    def __init__(self) -> None:
        super().__init__(escape=False, exclude_anchor_links=True)
        self.headings: list[tuple[int, str, str]] = []

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        anchor = f"part-{len(self.headings)}"
        self.headings.append((level, anchor, text))
        return f'<h{level} id="{anchor}">{text}</h{level}>\n'

    def inline_math(self, body: str) -> str:
        return _mathml(body, "inline")

    def block_math(self, body: str) -> str:
        return f'<div class="math">{_mathml(body.strip(), "block")}</div>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(f"\\begin{{{name}}}{body}\\end{{{name}}}")


def export(notebooks: Path, folder: Path, numbers: Sequence[str] = ()) -> list[Path]:
    """Writes a page for each built lesson, or for the lessons named, and the index; returns the paths written.

    Raises: ValueError for a lesson that is not built or a page that would need the network.
    """
    built = {path.stem[:2]: path for path in sorted(notebooks.glob("*.ipynb"))}
    if unknown := sorted(set(numbers) - built.keys()):
        raise ValueError(f"no built lesson {', '.join(unknown)}; there are {', '.join(built)}: run make notebooks")
    lessons = {path: nbformat.read(path, as_version=4) for path in built.values()}
    wanted = [path for number, path in built.items() if not numbers or number in numbers]
    folder.mkdir(parents=True, exist_ok=True)
    known = [path for path in lessons if path in wanted or (folder / f"{path.stem}.html").exists()]
    pages = [_page(path, lessons[path]) for path in known]
    written, sections = [], []
    for place, path in enumerate(known):
        rendered = render(lessons[path], pages[place])
        sections += _sections(rendered, pages[place])
        if path in wanted:
            around = (pages[place - 1] if place else None, pages[place + 1] if place + 1 < len(pages) else None)
            written.append(_write(folder / f"{path.stem}.html", lesson_page(rendered, pages[place], *around)))
    reference = REFERENCE if (folder / REFERENCE).exists() else ""
    return [*written, _write(folder / "index.html", index_page(pages, sections, reference))]


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
    content = _linked("\n".join(shown), page, prose.headings)
    if found := OUTSIDE.search(content):
        raise ValueError(f"{page.file}: a page fetches nothing, so embed what this names: {found[0][:120]}")
    said = [_plain(text + code) for text, code in zip(texts, codes, strict=True)]
    return Rendered(content, prose.headings, said[1:], modules)


def lesson_page(rendered: Rendered, page: Page, before: Page | None = None, after: Page | None = None) -> str:
    """The whole HTML of one lesson."""
    headings = (f'<li><a href="#{anchor}">{text}</a></li>' for level, anchor, text in rendered.headings if level == 2)
    home = f'<a class="home" href="index.html">TinyLM: all lessons</a>{SEARCH}'
    links = [(before, "before", "← ", ""), (after, "next", "", " →")]
    footer = "".join(
        f'<a class="{where}" href="{page.file}">{left}{page.number} {escape(page.topic)}{right}</a>'
        for page, where, left, right in links
        if page
    )
    navigation = f'<nav aria-label="This lesson">{home}<ol>{"".join(headings)}</ol></nav>'
    content = rendered.content + (f"<footer>{footer}</footer>" if footer else "")
    return _fill(f"{page.number} {page.topic} · TinyLM", "lesson", content, _script(rendered.modules), navigation)


def index_page(pages: Sequence[Page], sections: Sequence[Sequence[str]], reference: str = "") -> str:
    """The HTML of the list of lessons, with a search through their sections: file, lesson, anchor, heading, text.

    reference: the page of the library's reference, if there is one.
    """
    lines = "".join(
        f'<li><a href="{page.file}"><span class="number">{page.number}</span><b>{escape(page.topic)}</b>'
        f'<span class="question">{escape(page.question)}</span></a></li>'
        for page in pages
    )
    link = f'<p>The library: <a href="{reference}">the reference of its public names</a>.</p>' if reference else ""
    content = (
        "<h1>TinyLM</h1><p>A modern language model, built piece by piece. These pages hold the lessons as they ran; "
        f'their views move without a kernel and without a network.</p>{SEARCH}<p class="quiet" role="status"></p>'
        f'<ul class="found"></ul>{link}<ul class="lessons">{lines}</ul>'
        f'<script type="application/json" id="sections">{_json(sections)}</script>'
    )
    script = Path(__file__).with_name("search.js").read_text(encoding="utf-8")
    return _fill("TinyLM: all lessons", "index", content, script)


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


def _mathml(formula: str, display: str) -> str:
    found = convert(formula.replace("{aligned}", "{split}"), display=display)  # the same, under a name that it knows
    if unknown := re.search(r"<mi>(\\\w+|&)</mi>", found):
        raise ValueError(f"no MathML for {unknown[1]} in the formula {formula}: write it with other commands")
    return found


def _page(path: Path, notebook: NotebookNode) -> Page:
    found = TITLE.match(notebook.cells[0].source) if notebook.cells else None
    if not found:
        raise ValueError(f"{path.name} begins with no title such as '# 05 Attention' and a question in bold")
    return Page(f"{path.stem}.html", found["number"], found["topic"].strip(), " ".join(found["question"].split()))


def _code_cell(cell: NotebookNode, modules: set[str]) -> str:
    code = highlight(cell.source, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    code = f'<pre class="code"><code>{code}</code></pre>' if cell.source.strip() else ""
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        code = f"<details><summary>Code</summary>{code}</details>"
    return f'<div class="cell">{code}{"".join(_output(output, modules) for output in cell.outputs)}</div>'


def _output(output: NotebookNode, modules: set[str]) -> str:
    if output.output_type in ("stream", "error"):
        text = output.get("text") or f"{output.ename}: {output.evalue}"
        return f'<pre class="output">{escape(strip_ansi(text).rstrip())}</pre>'
    if view := output.data.get(MIME):
        modules.add(view["module"])
        data = f'<script type="application/json">{_json(view["data"])}</script>'
        return f'<div class="output rich" data-view="{view["module"]}">{data}{output.data["text/html"]}</div>'
    if html := output.data.get("text/html"):
        return f'<div class="output rich">{html}</div>'
    return f'<pre class="output">{escape(strip_ansi(output.data.get("text/plain", "")))}</pre>'


def _sections(rendered: Rendered, page: Page) -> list[list[str]]:
    """What the search knows of a lesson: its sections with what they say, but for the sources."""
    lesson = f"{page.number} {page.topic}"
    found = zip(rendered.headings, rendered.texts, strict=True)
    return [[page.file, lesson, anchor, _plain(text), said] for (_, anchor, text), said in found if text != "Sources"]


def _linked(content: str, page: Page, headings: list[tuple[int, str, str]]) -> str:
    """The HTML with its links to headings, as JupyterLab names them, led to the anchors of the page.

    Raises: ValueError for a heading that the lesson does not have.
    """
    anchors = {_plain(text).replace(" ", "-"): anchor for _, anchor, text in headings}

    def lead(link: re.Match[str]) -> str:
        heading = unquote(unescape(link[1]))
        if heading not in anchors:
            raise ValueError(f"{page.file}: a link leads to {heading!r}; there is {', '.join(anchors)}")
        return f'href="#{anchors[heading]}"'

    return re.sub(r'href="#([^"]+)"', lead, content)


def _plain(html: str) -> str:
    """The words of some HTML in one line."""
    apart = re.sub(r"</?(?:p|li|h\d|td|th|tr|pre|div|blockquote|summary)\b[^>]*>", " ", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", apart)).split())


def _json(data: Any) -> str:
    """Data as they may stand in a script."""
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


def _script(modules: set[str]) -> str:
    """The modules of the views as one plain script: a page from disk may import nothing."""
    if not modules:
        return ""
    scripts = ((module, source(module)) for module in sorted(modules))
    drawn = (f"(() => {{\n{text.replace('export default', f'views.{module} =')}}})();" for module, text in scripts)
    text = "\n".join([source(SHARED), *drawn])
    if "</script" in text.lower():
        raise ValueError("a module of a view may not hold </script: the page would end there")
    return text


def _fill(title: str, kind: str, content: str, script: str, navigation: str = "") -> str:
    page = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    parts = {"kind": kind, "content": content, "script": script, "navigation": navigation}
    syntax = Path(__file__).with_name("code.css").read_text(encoding="utf-8")
    return page.substitute(title=escape(title), look=css(), syntax=syntax, **parts)


def _write(path: Path, html: str) -> Path:
    path.write_text(html, encoding="utf-8", newline="\n")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
