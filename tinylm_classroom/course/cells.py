"""The cells of a built lesson as HTML that fetches nothing, for the site and for the slides."""

import ast
import re
from collections.abc import Sequence
from html import escape, unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from latex2mathml.converter import convert
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer
from nbformat import NotebookNode
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tinylm_lib.files import write_whole

from ..display import frames
from ..display.cards import inline
from ..folders import own
from ..views.base import MIME, SHARED, json_in_html, source
from .lesson.links import without_links

OUTSIDE = re.compile(
    r"<(?:img|script|link|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|data)\s*=\s*"
    r"[\"']?(?!data:)[^\s\"'>]+",
    re.IGNORECASE,
)
# what a cell of imports may call
SET_UP = {"torch.manual_seed", "torch.set_grad_enabled", "plt.style.use"}
TITLE = re.compile(r"# (?P<number>\d\d) (?P<topic>.+)\n+\*\*(?P<question>.+?)\*\*", re.S)


class Page(NamedTuple):
    """A lesson's file and what its first cell says of it."""

    file: str
    number: str
    topic: str
    question: str


class Prose(IPythonRenderer):
    """Markdown whose formulas become MathML and whose headings are collected for the table of
    contents.
    """

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


def built_lessons(notebooks: Path, numbers: Sequence[str] = ()) -> dict[str, Path]:
    """The built notebooks in a folder by their number.

    Raises: ValueError if one of the named lessons is not there.
    """
    built = {path.stem[:2]: path for path in sorted(notebooks.glob("*.ipynb"))}
    if unknown := sorted(set(numbers) - built.keys()):
        raise ValueError(
            f"no built lesson {', '.join(unknown)}; there are {', '.join(built)}: run make "
            "notebooks"
        )
    return built


def page_of(path: Path, notebook: NotebookNode) -> Page:
    """The page that a notebook becomes.

    Raises: ValueError for a notebook without the title of a lesson.
    """
    found = TITLE.match(without_links(notebook.cells[0].source)) if notebook.cells else None
    if not found:
        raise ValueError(
            f"{path.name} begins with no title such as '# 05 Attention' and a question in bold"
        )
    return Page(
        f"{path.stem}.html",
        found["number"],
        found["topic"].strip(),
        " ".join(found["question"].split()),
    )


def colored(code: str) -> str:
    """Python with its words marked for code.css."""
    return highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip()


def only_imports(code: str) -> bool:
    """Whether a cell only imports, but for the seed and the look of figures, so that a reader may
    pass over it.
    """
    try:
        rest = [
            line
            for line in ast.parse(code).body
            if not isinstance(line, (ast.Import, ast.ImportFrom))
        ]
    except SyntaxError:  # a magic of IPython
        return False
    done = [getattr(line, "value", None) for line in rest]
    names = {ast.unparse(value.func) if isinstance(value, ast.Call) else "" for value in done}
    return "import " in code and names <= SET_UP


def output_html(output: NotebookNode, modules: set[str]) -> str:
    """One output of a cell; the modules of the views among them are added to a set."""
    if output.output_type in ("stream", "error"):
        text = output.get("text") or f"{output.ename}: {output.evalue}"
        return f'<pre class="output">{escape(strip_ansi(text).rstrip())}</pre>'
    if view := output.data.get(MIME) or _control(output.data):
        modules.add(view["module"])
        data = f'<script type="application/json">{json_in_html(view["data"])}</script>'
        return (
            '<div class="output rich" '
            f'data-view="{view["module"]}">{data}{output.data["text/html"]}</div>'
        )
    if html := output.data.get("text/html"):
        return f'<div class="output rich">{html}</div>'
    return f'<pre class="output">{escape(strip_ansi(output.data.get("text/plain", "")))}</pre>'


def _control(data: dict[str, Any]) -> dict[str, Any] | None:
    """The frames of a control as a view that steps through them."""
    found = data.get(frames.MIME)
    if not found:
        return None
    return {"module": "control", "data": frames.with_first(found, data["text/html"])}


def led_to_anchors(content: str, page: Page, headings: list[tuple[int, str, str]]) -> str:
    """The HTML with its links to headings, as JupyterLab names them, led to the anchors of the
    page.

    Raises: ValueError for a heading that the lesson does not have, and where something would be
    fetched.
    """
    anchors = {words_of(text).replace(" ", "-"): anchor for _, anchor, text in headings}

    def lead(link: re.Match[str]) -> str:
        heading = unquote(unescape(link[1]))
        if heading not in anchors:
            raise ValueError(
                f"{page.file}: a link leads to {heading!r}; there is {', '.join(anchors)}"
            )
        return f'href="#{anchors[heading]}"'

    if found := OUTSIDE.search(content):
        raise ValueError(
            f"{page.file}: a page fetches nothing, so embed what this names: {found[0][:120]}"
        )
    return re.sub(r'href="#([^"]+)"', lead, content)


def words_of(html: str) -> str:
    """The words of some HTML in one line."""
    apart = re.sub(r"</?(?:p|li|h\d|td|th|tr|pre|div|blockquote|summary)\b[^>]*>", " ", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", apart)).split())


def coded(text: str) -> str:
    """A line of text as HTML, marked as in a card, in the look of the page."""
    return inline(text, lambda piece: f"<code>{escape(piece, quote=False)}</code>")


def lesson_link(page: Page, anchor: str = "") -> str:
    """A link to a lesson, or to an anchor in it, with its number and topic."""
    return (
        f'<a href="{page.file}{f"#{anchor}" if anchor else ""}">{page.number} '
        f"{escape(page.topic)}</a>"
    )


def lesson_heading(page: Page) -> str:
    """The heading, on a page of its own, of what comes from a lesson."""
    return f'<h2 id="lesson-{page.number}">{lesson_link(page)}</h2>'


def views_script(modules: set[str]) -> str:
    """The modules of views and `drawView(place)` as one plain script: a page from disk may import
    nothing.
    """
    if not modules:
        return ""
    scripts = ((module, source(module)) for module in sorted(modules))
    drawn = (
        f"(() => {{\n{text.replace('export default', f'views.{module} =')}}})();"
        for module, text in scripts
    )
    text = "\n".join(["const views = {};", source(SHARED), *drawn, own("course/mount.js")])
    if "</script" in text.lower():
        raise ValueError("a module of a view may not hold </script: the page would end there")
    return text


def write_page(path: Path, html: str) -> Path:
    """Writes a page, with the line ends of every system, and returns its path."""
    write_whole(path, html.encode())
    return path


def _mathml(formula: str, display: str) -> str:
    # the same, under a name that it knows
    found = convert(formula.replace("{aligned}", "{split}"), display=display)
    if unknown := re.search(r"<mi>(\\\w+|&)</mi>", found):
        raise ValueError(
            f"no MathML for {unknown[1]} in the formula {formula}: write it with other commands"
        )
    return found
