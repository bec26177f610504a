"""What a lesson's slides are made of: the deck of a lesson that the build has cut."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from string import Template
from typing import Any

from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode

from ..display.cards import inline
from ..display.theme import page_head
from ..exercises import EXERCISES
from ..folders import own
from ..views.base import MIME, WITH_ENGINE
from .cells import Page, Prose, colored, led_to_anchors, output_html, views_script, words_of
from .front import model_script
from .lesson.cut import CODE_LINES, is_prediction, is_rich
from .lesson.links import without_links
from .lesson.notes import NOTE, UsualAnswer, introduces, usual_answers
from .lesson.read import PLANS

CALL_LINES = 3  # of code that only asks for a view or a figure: shown on a button
JUMP = (
    "**To jump**, press G in the window of the slides, type a slide's number and press Enter. O "
    "shows all slides."
)
SHORTER = "**From the plan of {} minutes.** With less time go to *{}*: G, {}, Enter."
HOMEWORK = "**From the plan of {} minutes.** With less time this exercise is homework."
SECTION = re.compile(r'(?=<h2 id="[\w-]+">)')
FOLDED = '<button type="button" class="gap" data-opens>⋯ {} line{}</button>'


@dataclass
class Slide:
    """One slide: its section, what is on it, and what the presenter reads."""

    section: str
    kind: str = ""
    anchor: str = ""
    plan: int = PLANS[0]
    title: str = ""
    parts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Deck:
    """The slides of a lesson that the build has cut, in columns that each begin with a section."""

    def __init__(self, notebook: NotebookNode, page: Page, instructor: bool):
        self.page = page
        self.instructor = instructor
        self.prose = Prose()
        self.modules: set[str] = set()
        self.needs_model = False  # whether a view answers by the model in the page
        self.columns: list[list[Slide]] = []
        self._markdown = MarkdownWithMath(renderer=self.prose)
        self._before = ""  # the note of the section that comes next
        self._usual: list[UsualAnswer] = []  # of the section, until a slide is about them
        for cell, following in zip(notebook.cells, [*notebook.cells[1:], None], strict=True):
            self._add(cell, cell.metadata.get("slideshow", {}).get("slide_type"), following)
        if instructor:
            self._say_plans()

    def html(self) -> str:
        """The whole page.

        Raises: ValueError where something would be fetched from elsewhere.
        """
        columns = "".join(
            f"<section>{''.join(map(self._slide, slides))}</section>" for slides in self.columns
        )
        return Template(own("course/slides.html")).substitute(
            head=page_head(f"{self.page.number} {self.page.topic} · TinyLM"),
            slides=led_to_anchors(columns, self.page, self.prose.headings),
            deck=own("course/reveal/reveal.css"),
            style=own("course/code.css") + own("course/slides.css"),
            library="\n".join(
                own(f"course/reveal/{name}.js")
                for name in ("reveal", *(["notes"] if self.instructor else []))
            ),
            views=(model_script() if self.needs_model else "") + views_script(self.modules),
            script=own("course/slides.js"),
        )

    def _add(self, cell: NotebookNode, kind: str | None, following: NotebookNode | None) -> None:
        tags = cell.metadata.get("tags", ())
        if kind == "skip" or (not self.instructor and (kind == "notes" or "solution" in tags)):
            return
        if kind == "notes":
            self._note(cell, following)
        elif "exercise" in tags:
            self._exercise(cell)
        elif cell.cell_type == "markdown":
            self._text(cell, kind, "solution" in tags)
        elif cell.cell_type == "code":
            self._begin(kind)
            self._put(
                f'<div class="cell">{self._code(cell)}{"".join(self._outputs(cell))}</div>', kind
            )

    def _begin(
        self,
        kind: str | None,
        look: str = "",
        title: str = "",
        anchor: str = "",
        plan: int = PLANS[0],
    ) -> None:
        """Begins a slide if the kind says so."""
        if kind == "slide" or not self.columns:
            self.columns.append([Slide(title, look, anchor, plan)])
            self._usual = usual_answers(self._before)
            self._say(self._before)
            self._before = ""
        elif kind == "subslide":
            self.columns[-1].append(Slide(self.columns[-1][-1].section, look))

    def _put(self, html: str, kind: str | None = None) -> None:
        fragment = " fragment" if kind == "fragment" else ""
        self.columns[-1][-1].parts.append(f'<div class="part{fragment}">{html}</div>')

    def _text(self, cell: NotebookNode, kind: str | None, solves: bool) -> None:
        first, *sections = SECTION.split(self._markdown.render(without_links(cell.source)))
        if first.strip():
            title = first.startswith("<h1")
            self._begin(None if solves else kind, look="title" if title else "")
            self._put(self._title() + first.partition("</p>")[2] if title else first, kind)
        for section in sections:
            found = re.match(r'<h2 id="([\w-]+)">(.*?)</h2>(.*)', section, re.S)
            anchor, title, rest = found.groups()
            self._begin("slide", "section", words_of(title), anchor, plan_of(cell))
            self._put(f"<h2>{title}</h2>{rest}")

    def _title(self) -> str:
        number, topic, question = map(escape, self.page[1:])
        return f'<p class="number">{number}</p><h1>{topic}</h1><p class="asked">{question}</p>'

    def _note(self, cell: NotebookNode, following: NotebookNode | None) -> None:
        """A note that introduces a section is read there, the others where they are."""
        if following is not None and introduces(cell.source, following.source):
            self._before = cell.source
        else:
            self._say(cell.source)

    def _say(self, *paragraphs: str) -> None:
        """Adds to the notes of the last slide."""
        if said := "\n\n".join(filter(None, paragraphs)):
            self.columns[-1][-1].notes.append(self._markdown.render(said))

    def _usual_here(self, names: Iterable[str]) -> str:
        """The usual answers that go by one of these names, for the first slide that knows it."""
        known = set(map(str.casefold, names))
        here = [answer for answer in self._usual if answer.names & known]
        self._usual = [answer for answer in self._usual if answer not in here]
        return "\n".join([f"**{NOTE[3]}**", *(answer.text for answer in here)]) if here else ""

    def _say_plans(self) -> None:
        """Says first how to jump, and in each section that a shorter plan leaves out where that
        plan continues.
        """
        self.columns[0][0].notes.insert(0, self._markdown.render(JUMP))
        firsts = self._firsts()
        for place, (_, first) in enumerate(firsts):
            kept = [found for found in firsts[place + 1 :] if found[1].plan < first.plan]
            if kept:
                number, there = kept[0]
                says = SHORTER.format(first.plan, there.section, number)
                first.notes.insert(0, self._markdown.render(says))

    def _firsts(self) -> list[tuple[int, Slide]]:
        """The first slide of each section and the number of its column, which G goes to."""
        return [(number, column[0]) for number, column in enumerate(self.columns, 1)]

    def _exercise(self, cell: NotebookNode) -> None:
        facts = cell.metadata["tinylm"]
        head = "Exercise: <code>{name}</code>".format(**facts)
        about = "Difficulty {difficulty} of 5, about {minutes} minutes.".format(**facts)
        self._begin("subslide", look="exercise")
        stub = pre(lines_of(self._stub(cell.source, facts["name"])))
        self._put(f'<h3>{head}</h3><p class="about">{about}</p>{stub}')
        known = EXERCISES.get(facts["name"])  # lesson 00 checks one of its own
        if self.instructor:
            later = plan_of(cell) > self.columns[-1][0].plan
            self._say(
                HOMEWORK.format(plan_of(cell)) if later else "",
                self._usual_here(known.faults if known else ()),
            )
        if known:
            first, *others = map(inline, known.hints)
            hints = f"<li>{first}</li>"
            hints += "".join(f'<li class="fragment">{hint}</li>' for hint in others)
            self._begin("subslide", look="hints")
            self._put(f"<h3>Hints: <code>{facts['name']}</code></h3><ol>{hints}</ol>")
        if self.instructor:
            self._begin("subslide", look="solution")
            self._put(
                "<h3>Solution: "
                f"<code>{facts['name']}</code></h3>{pre(lines_of(_without_words(cell.source)))}"
            )

    def _stub(self, source: str, name: str) -> str:
        """An exercise without its solution: the signature and the task."""
        node = _defined(source, name)
        says = node.body[0]
        is_docstring = isinstance(says, ast.Expr) and isinstance(says.value, ast.Constant)
        end = says.end_lineno if is_docstring else says.lineno - 1
        return "\n".join([*source.split("\n")[node.lineno - 1 : end], "    ..."])

    def _code(self, cell: NotebookNode) -> str:
        """The code of a cell: all of it, or its essential lines with all of it behind a button."""
        if cell.metadata.get("jupyter", {}).get("source_hidden") or not cell.source.strip():
            return ""
        lines = lines_of(cell.source)
        marked = cell.metadata.get("tinylm", {}).get("essential")
        if any(map(is_rich, cell.outputs)) and (len(lines) <= CALL_LINES or is_prediction(cell)):
            return f'<details class="source"><summary>Code</summary>{pre(lines)}</details>'
        if len(_squeezed(lines)) <= CODE_LINES:
            return pre(lines)
        shown = marked or [[len(lines) - CODE_LINES + 1, len(lines)]]
        return folded(lines, shown, "" if marked else " data-unmarked")

    def _outputs(self, cell: NotebookNode) -> Iterator[str]:
        for output in cell.outputs:
            yield output_html(output, self.modules)
            view = output.get("data", {}).get(MIME, {"module": "", "data": {}})
            self.needs_model |= view["module"] in WITH_ENGINE or "model" in view["data"]
            if view["module"] == "predict":
                yield '<span class="fragment answer"></span>'
                asked = view["data"]
                if self.instructor:
                    answer = "**Answer.** {answer}. {because}".format(**asked)
                    self._say(answer, self._usual_here(_guesses(asked)))

    def _slide(self, slide: Slide) -> str:
        section = ""
        if slide.section and slide.kind != "section":
            section = f"<b>{escape(slide.section)}</b>"
        lesson = f"{self.page.number} {escape(self.page.topic)}"
        notes = f'<aside class="notes">{"".join(slide.notes)}</aside>' if slide.notes else ""
        anchor = f' id="{slide.anchor}"' if slide.anchor else ""
        return (
            f'<section{anchor} class="leaf {slide.kind}">'
            f"<header><span>{lesson}</span>{section}</header>"
            f'<div class="body">{"".join(slide.parts)}</div>'
            f'<footer><span class="question">{escape(self.page.question)}</span>'
            '<span class="page"></span></footer>'
            f"{notes}</section>"
        )


def lines_of(source: str) -> list[str]:
    """The coloured lines of some code, without the remarks to our formatter."""
    return colored(re.sub(r"  # fmt: skip$", "", source.strip("\n"), flags=re.M)).split("\n")


def pre(lines: Sequence[str]) -> str:
    """Lines of code as HTML."""
    spans = ""
    for line in _squeezed(lines):
        words = re.sub("<[^>]*>", "", line)
        indent = len(words) - len(words.lstrip(" "))
        style = f' style="--indent: {indent}ch"' if indent else ""
        spans += f'<span class="line"{style}>{line}</span>'
    return f'<pre class="code">{spans}</pre>'


def folded(lines: Sequence[str], shown: Sequence[Sequence[int]], facts: str = "") -> str:
    """Some of the lines as HTML, all of them behind a button."""
    all_of_it = f"<details><summary>All {len(lines)} lines</summary>{pre(lines)}</details>"
    return f'<div class="folded"{facts}>{pre(list(_essential(lines, shown)))}{all_of_it}</div>'


def _squeezed(lines: Sequence[str]) -> list[str]:
    """The lines with at most one blank line in a row, and none first."""
    return [line for before, line in pairwise(["", *lines]) if before.strip() or line.strip()]


def _essential(lines: Sequence[str], shown: Sequence[Sequence[int]]) -> Iterator[str]:
    """The lines that are shown, and between them a button for those that are not."""
    end = 0
    for first, last in [*shown, (len(lines) + 1, len(lines))]:
        if first > end + 1:
            yield FOLDED.format(first - end - 1, "s" if first - end > 2 else "")
        yield from lines[first - 1 : last]
        end = last


def _without_words(source: str) -> str:
    """An exercise without its first comment and its docstrings, which were on the slide before."""
    lines = source.split("\n")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            says = node.body[0]
            lines[says.lineno - 1 : says.end_lineno] = [None] * (says.end_lineno - says.lineno + 1)
    return "\n".join(
        line for line in lines if line is not None and not line.startswith("# Exercise ")
    )


def plan_of(cell: NotebookNode) -> int:
    """The plan that a cell belongs to, in minutes."""
    return cell.metadata.get("tinylm", {}).get("plan", PLANS[0])


def _guesses(asked: dict[str, Any]) -> list[str]:
    """The answers to a prediction that it has a word for, as a note names them."""
    guesses = [asked["key"], *(wrong for wrong, _ in asked["feedback"])]
    return [f"{guess:g}" if isinstance(guess, float) else str(guess) for guess in guesses]


def _defined(source: str, name: str) -> ast.FunctionDef | ast.ClassDef:
    return next(node for node in ast.parse(source).body if getattr(node, "name", "") == name)
