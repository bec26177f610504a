"""The slides of a lesson: a sentence as title, and one thing under it.

Of a text a slide shows the formulas, quotations, lists and tables, of a cell of code its picture or
view alone, or its output below at most a few lines, large. A section's note is read on its first
slide, and the lesson's own text on the slide before it: it says what was seen there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import Any

from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode

from ..display.cards import inline
from ..display.theme import page_head
from ..exercises import EXERCISES
from ..folders import own
from ..views.base import MIME, WITH_ENGINE
from .cells import Page, Prose, coded, led_to_anchors, output_html, views_script, words_of
from .front import model_script
from .lesson.notes import NOTE, UsualAnswer, introduces, usual_answers
from .lesson.slides import is_rich, title_of
from .listing import folded, lines_of, pre, stub_of, without_words

SHOWN = ("list", "block_quote", "table")
# the links of a bullet to its evidence
EVIDENCE = re.compile(r" \((?:(?:, )?\[section \d+\]\(#\S*?\))+\)")
HELP = ("hints", "solution")
MATH = {"block_math", "latex_environment"}
JUMP = (
    "**To jump**, press G in the window of the slides, type a slide's number and press Enter. O "
    "shows all slides."
)
HOMEWORK = "**Homework**, or a second hour."
SECTIONS = "**Sections.** {}"
PICTURE = "**Picture.** {}"
TEXT = "**Text.** {}"
HEADING = re.compile(r"^#+ .*\n?", re.MULTILINE)


@dataclass
class Slide:
    """One slide: its section, what is on it, and what the presenter reads."""

    section: str
    kind: str = ""
    title: str = ""
    parts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Shown(Prose):
    """What a slide shows of a text: no sentences and no headings, they are said."""

    def __call__(self, tokens: Iterable[dict[str, Any]], state: Any) -> str:
        return super().__call__(filter(_is_shown, tokens), state)


class Deck:
    """The slides that a lesson's source names, each a column of its own unless it is a step."""

    def __init__(self, notebook: NotebookNode, page: Page, instructor: bool):
        self.page = page
        self.instructor = instructor
        self.modules: set[str] = set()
        self.needs_model = False  # whether a view answers by the model in the page
        self.columns: list[list[Slide]] = []
        self.prose = Prose()
        self._markdown = MarkdownWithMath(renderer=self.prose)
        self._shown = MarkdownWithMath(renderer=Shown())
        self._section = ""
        self._anchors = ""  # of the sections that the next slide is the first of
        self._deck = ""  # the title of the cell
        self._before = ""  # the note of the section that comes next
        self._text_before = ""  # of a section, read on its first slide
        self._usual: list[UsualAnswer] = []  # of the section, until a slide is about them
        for cell, following in zip(notebook.cells, [*notebook.cells[1:], None], strict=True):
            self._add(cell, cell.metadata.get("slideshow", {}).get("slide_type"), following)
        if instructor:
            self._say_places()
        self._say(self._before)
        self.columns[-1][-1].title += self._anchors
        self._move_help_to_the_end()

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
        self._deck = title_of(cell)
        tags = cell.metadata.get("tags", ())
        solves = "solution" in tags
        if kind == "notes":
            if self.instructor:
                self._note(cell, following)
            return
        if cell.cell_type == "markdown":
            self._follow(cell)
        if not self.columns:
            self._begin("slide", look="title")
            self._put(self._title())
        elif solves and not self.instructor:
            return
        elif not self._deck:
            if solves:
                self._say(cell.source)
            elif cell.cell_type == "markdown":
                self._read(cell.source, opens=bool(HEADING.search(cell.source)))
        elif "exercise" in tags:
            self._exercise(cell)
        else:
            self._begin(kind)
            self._show(cell)
            if cell.cell_type == "markdown":
                self._read(cell.source, opens=False)

    def _begin(self, kind: str | None, look: str = "") -> None:
        """Begins a slide, or one below it: a step of it, or what helps with an exercise."""
        slide = Slide(self._section, look)
        slide.title = ("" if look in HELP else coded(self._deck)) + self._anchors
        self._anchors = ""
        if kind == "subslide":
            self.columns[-1].append(slide)
        else:
            self.columns.append([slide])
        if self._before:
            self._usual = usual_answers(self._before)
            self._say(self._before)
            self._before = ""
        if self._text_before:
            self._say(TEXT.format(self._text_before))
            self._text_before = ""

    def _put(self, html: str) -> None:
        self.columns[-1][-1].parts.append(f'<div class="part">{html}</div>')

    def _say(self, *paragraphs: str) -> None:
        """Adds to the notes of the last slide."""
        if said := "\n\n".join(filter(None, paragraphs)):
            self.columns[-1][-1].notes.append(self._markdown.render(said))

    def _read(self, source: str, opens: bool) -> None:
        """Notes the lesson's own text for the instructor; one that opens, for the next slide."""
        text = HEADING.sub("", EVIDENCE.sub("", source)).strip()
        if not self.instructor or not text:
            return
        if opens or self._before or self._text_before:
            self._text_before = "\n\n".join(filter(None, (self._text_before, text)))
        else:
            self._say(TEXT.format(text))

    def _note(self, cell: NotebookNode, following: NotebookNode | None) -> None:
        """A note before a section is read on its first slide, or where nothing of it is shown on
        the next one.
        """
        if self._before or (following is not None and introduces(cell.source, following.source)):
            self._before = "\n\n".join(filter(None, (self._before, cell.source)))
        else:
            self._say(cell.source)

    def _follow(self, cell: NotebookNode) -> None:
        """Notes the sections that begin in a text."""
        known = len(self.prose.headings)
        _ = self._markdown.render(cell.source)
        for level, anchor, title in self.prose.headings[known:]:
            if level == 2:
                self._section = words_of(title)
            self._anchors += f'<span id="{anchor}"></span>'

    def _title(self) -> str:
        number, topic, question = map(escape, self.page[1:])
        return f'<p class="number">{number}</p><h1>{topic}</h1><p class="asked">{question}</p>'

    def _show(self, cell: NotebookNode) -> None:
        """What the slide of a cell shows; below a title alone there is nothing."""
        if cell.cell_type == "markdown":
            shown = self._shown.render(EVIDENCE.sub("", cell.source))
        else:
            outputs = "".join(self._outputs(cell))
            shown = _code(cell) + outputs
            shown = f'<div class="cell">{shown}</div>' if shown else ""
            for caption in re.findall(r"<figcaption.*?</figcaption>", outputs, re.S):
                if self.instructor:
                    self._say(PICTURE.format(escape(words_of(caption), quote=False)))
        if shown.strip():
            self._put(shown)

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

    def _exercise(self, cell: NotebookNode) -> None:
        facts = cell.metadata["tinylm"]
        head = "Exercise: <code>{name}</code>".format(**facts)
        about = "Difficulty {difficulty} of 5, about {minutes} minutes.".format(**facts)
        self._begin("slide", look="exercise")
        stub = pre(lines_of(stub_of(cell.source, facts["name"])))
        self._put(f'<h3>{head}</h3><p class="about">{about}</p>{stub}')
        known = EXERCISES[facts["name"]]
        if self.instructor:
            self._say(HOMEWORK, self._usual_here(known.faults))
        first, *others = map(inline, known.hints)
        hints = f"<li>{first}</li>"
        hints += "".join(f'<li class="fragment">{hint}</li>' for hint in others)
        self._begin("subslide", look="hints")
        self._put(f"<h3>Hints: <code>{facts['name']}</code></h3><ol>{hints}</ol>")
        if self.instructor:
            self._begin("subslide", look="solution")
            solution = pre(lines_of(without_words(cell.source)))
            self._put(f"<h3>Solution: <code>{facts['name']}</code></h3>{solution}")

    def _usual_here(self, names: Iterable[str]) -> str:
        """The usual answers that go by one of these names, for the first slide that knows it."""
        known = set(map(str.casefold, names))
        here = [answer for answer in self._usual if answer.names & known]
        self._usual = [answer for answer in self._usual if answer not in here]
        return "\n".join([f"**{NOTE[3]}**", *(answer.text for answer in here)]) if here else ""

    def _say_places(self) -> None:
        """Says first how to jump and where each section begins."""
        places = [f"{first.section}: {number}" for number, first in self._firsts()[1:]]
        first_notes = self.columns[0][0].notes
        first_notes[:0] = map(self._markdown.render, (JUMP, SECTIONS.format("; ".join(places))))

    def _firsts(self) -> list[tuple[int, Slide]]:
        """The title and the first slide of each section, each with the number of its column, which
        G goes to.
        """
        firsts = [(number, column[0]) for number, column in enumerate(self.columns, 1)]
        sections = ["-", *(slide.section for _, slide in firsts)]
        return [
            found
            for before, found in zip(sections, firsts, strict=False)
            if found[1].section != before
        ]

    def _move_help_to_the_end(self) -> None:
        """Hints and solutions are for the second hour: they are a last column."""
        help_slides = []
        for column in self.columns:
            help_slides += [slide for slide in column if slide.kind in HELP]
            column[:] = [slide for slide in column if slide.kind not in HELP]
        if help_slides:
            self.columns.append(help_slides)

    def _slide(self, slide: Slide) -> str:
        notes = f'<aside class="notes">{"".join(slide.notes)}</aside>' if slide.notes else ""
        body = f'<div class="body">{"".join(slide.parts)}</div>'
        if slide.kind == "title":
            return f'<section class="leaf title">{body}{notes}</section>'
        alone = "" if slide.parts else " alone"
        return (
            f'<section class="leaf written {slide.kind}{alone}"><div class="frame">'
            f'<header><h2>{slide.title}</h2><span class="page"></span></header>'
            f"{body}</div>{notes}</section>"
        )


def _code(cell: NotebookNode) -> str:
    """The code that a slide shows: its essential lines, or all; none where something is drawn."""
    hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
    drawn = any(map(is_rich, cell.outputs))  # a picture, or a prediction
    if hidden or drawn or not cell.source.strip():
        return ""
    lines = lines_of(cell.source)
    marked = cell.metadata["tinylm"].get("essential")
    return folded(lines, marked) if marked else pre(lines)


def _is_shown(token: dict[str, Any]) -> bool:
    """Whether a block of a text is on a slide; a formula of its own is a paragraph of one."""
    inside = {child["type"] for child in token.get("children", ()) or ()}
    return token["type"] in SHOWN or (token["type"] == "paragraph" and inside <= MATH and inside)


def _guesses(asked: dict[str, Any]) -> list[str]:
    """The answers to a prediction that it has a word for, as a note names them."""
    guesses = [asked["key"], *(wrong for wrong, _ in asked["feedback"])]
    return [f"{guess:g}" if isinstance(guess, float) else str(guess) for guess in guesses]
