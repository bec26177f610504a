"""Exports the built lessons as web pages: one file each, which works from disk, without a kernel and without a network.

python -m tinylm_lib.classroom.pages [NN ...] [--to FOLDER]
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import nbformat
from latex2mathml.converter import convert
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from .lab import NOTEBOOKS, WORK
from .look import css
from .view import MIME, SHARED, source

OUTSIDE = re.compile(
    r"<(?:img|script|link|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data)\s*=\s*"
    r"[\"']?(?!data:)[^\s\"'>]+",
    re.IGNORECASE,
)
TITLE = re.compile(r"# (?P<number>\d\d) (?P<topic>.+)\n+\*\*(?P<question>.+?)\*\*", re.S)


class Page(NamedTuple):
    """What the index says of a lesson."""

    file: str
    number: str
    topic: str
    question: str


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
    written = []
    for path in wanted:
        place = known.index(path)
        around = (pages[place - 1] if place else None, pages[place + 1] if place + 1 < len(pages) else None)
        written.append(_write(folder / f"{path.stem}.html", lesson_page(lessons[path], pages[place], *around)))
    return [*written, _write(folder / "index.html", index_page(pages))]


def lesson_page(notebook: NotebookNode, page: Page, before: Page | None = None, after: Page | None = None) -> str:
    """The whole HTML of one lesson.

    Raises: ValueError where something would be fetched from elsewhere.
    """
    prose = Prose()
    markdown = MarkdownWithMath(renderer=prose)
    modules: set[str] = set()
    show = {"markdown": lambda cell: markdown.render(cell.source), "code": partial(_code_cell, modules=modules)}
    content = "\n".join(show[cell.cell_type](cell) for cell in notebook.cells if cell.cell_type in show)
    if found := OUTSIDE.search(content):
        raise ValueError(f"{page.file}: a page fetches nothing, so embed what this names: {found[0][:120]}")
    parts = "".join(f'<li><a href="#{anchor}">{text}</a></li>' for level, anchor, text in prose.headings if level == 2)
    home = '<a class="home" href="index.html">TinyLM: all lessons</a>'
    links = [(before, "before", "← "), (after, "next", "")]
    footer = "".join(
        f'<a class="{where}" href="{other.file}">{arrow}{other.number} {escape(other.topic)}{"" if arrow else " →"}</a>'
        for other, where, arrow in links
        if other
    )
    return _fill(
        title=f"{page.number} {page.topic} · TinyLM",
        kind="lesson",
        navigation=f'<nav aria-label="This lesson">{home}<ol>{parts}</ol></nav>',
        content=content + (f"<footer>{footer}</footer>" if footer else ""),
        script=_script(sorted(modules)),
    )


def index_page(pages: Sequence[Page]) -> str:
    """The HTML of the list of lessons."""
    lines = "".join(
        f'<li><a href="{page.file}"><span class="number">{page.number}</span><b>{escape(page.topic)}</b>'
        f'<span class="question">{escape(page.question)}</span></a></li>'
        for page in pages
    )
    content = (
        "<h1>TinyLM</h1><p>A modern language model, built piece by piece. These pages hold the lessons as they ran; "
        f'their views move without a kernel and without a network.</p><ul class="lessons">{lines}</ul>'
    )
    return _fill(title="TinyLM: all lessons", kind="index", navigation="", content=content, script="")


def main(argv: Sequence[str] | None = None, notebooks: Path = NOTEBOOKS) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tinylm_lib.classroom.pages", description=__doc__.split("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="two digits: only these lessons")
    parser.add_argument("--to", type=Path, default=WORK / "pages", metavar="FOLDER", help="default: work/pages")
    options = parser.parse_args(argv)
    try:
        for path in export(notebooks, options.to, options.numbers):
            print(path)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _mathml(formula: str, display: str) -> str:
    found = convert(
        formula.replace("{aligned}", "{split}"), display=display
    )  # the same thing, and the one that it knows
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
        data = json.dumps(view["data"], ensure_ascii=False).replace("<", "\\u003c")
        still = output.data["text/html"]
        return (
            f'<div class="output rich" data-view="{escape(view["module"])}">'
            f'<script type="application/json">{data}</script>{still}</div>'
        )
    if html := output.data.get("text/html"):
        return f'<div class="output rich">{html}</div>'
    return f'<pre class="output">{escape(strip_ansi(output.data.get("text/plain", "")))}</pre>'


def _script(modules: Sequence[str]) -> str:
    """The modules of the views as one plain script: a page from disk may import nothing."""
    if not modules:
        return ""
    drawn = (f"(() => {{\n{source(module).replace('export default', f'views.{module} =')}}})();" for module in modules)
    text = "\n".join([source(SHARED), *drawn])
    if "</script" in text.lower():
        raise ValueError("a module of a view may not hold </script: the page would end there")
    return text


def _fill(**parts: str) -> str:
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(parts | {"title": escape(parts["title"]), "look": css()})


def _write(path: Path, html: str) -> Path:
    path.write_text(html, encoding="utf-8", newline="\n")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
