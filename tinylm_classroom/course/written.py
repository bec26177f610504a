"""The slides of a lesson whose source writes its deck: a sentence as title, and one thing under it.

Of a text a slide shows the formulas, quotations, lists and tables, of a cell of code its picture or
view alone, or its output below at most a few lines, large. A section's note is read on its first
slide, and the lesson's own text on the slide before it: it says what was seen there.
"""

import re
from collections.abc import Iterable
from html import escape
from typing import Any

from nbconvert.filters.markdown_mistune import MarkdownWithMath
from nbformat import NotebookNode

from .cells import Page, Prose, coded, words_of
from .deck import Deck, Slide, folded, lines_of, plan_of, pre
from .lesson.cut import is_prediction, is_rich
from .lesson.notes import introduces, usual_answers
from .lesson.read import PLANS
from .lesson.written import title_of

SHOWN = ("list", "block_quote", "table")
# the links of a bullet to its evidence
EVIDENCE = re.compile(r" \((?:(?:, )?\[section \d+\]\(#\S*?\))+\)")
HELP = ("hints", "solution")
MATH = {"block_math", "latex_environment"}
SECTIONS = "**Sections.** {}"
PICTURE = "**Picture.** {}"
TEXT = "**Text.** {}"
HEADING = re.compile(r"^#+ .*\n?", re.MULTILINE)


class Shown(Prose):
    """What a slide shows of a text: no sentences and no headings, they are said."""

    def __call__(self, tokens: Iterable[dict[str, Any]], state: Any) -> str:
        return super().__call__(filter(_is_shown, tokens), state)


class WrittenDeck(Deck):
    """The slides that a lesson's source names, each a column of its own unless it is a step."""

    def __init__(self, notebook: NotebookNode, page: Page, instructor: bool):
        self._shown = MarkdownWithMath(renderer=Shown())
        self._section = ""
        self._plan = PLANS[0]
        self._anchors = ""  # of the sections that the next slide is the first of
        self._deck = ""  # the title of the cell
        self._text_before = ""  # of a section, read on its first slide
        super().__init__(notebook, page, instructor)
        self._say(self._before)
        self.columns[-1][-1].title += self._anchors
        self._move_help_to_the_end()

    def _move_help_to_the_end(self) -> None:
        """Hints and solutions are for the second hour: they are a last column."""
        help_slides = []
        for column in self.columns:
            help_slides += [slide for slide in column if slide.kind in HELP]
            column[:] = [slide for slide in column if slide.kind not in HELP]
        if help_slides:
            self.columns.append(help_slides)

    def _add(self, cell: NotebookNode, kind: str | None, following: NotebookNode | None) -> None:
        self._deck = title_of(cell)
        solves = "solution" in cell.metadata.get("tags", ())
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
        elif "exercise" in cell.metadata.get("tags", ()):
            self._exercise(cell)
        else:
            self._begin(kind)
            self._show(cell)
            if cell.cell_type == "markdown":
                self._read(cell.source, opens=False)

    def _read(self, source: str, opens: bool) -> None:
        """Notes the lesson's own text for the instructor; one that opens, for the next slide."""
        text = HEADING.sub("", EVIDENCE.sub("", source)).strip()
        if not self.instructor or not text:
            return
        if opens or self._before or self._text_before:
            self._text_before = "\n\n".join(filter(None, (self._text_before, text)))
        else:
            self._say(TEXT.format(text))

    def _follow(self, cell: NotebookNode) -> None:
        """Notes the sections that begin in a text."""
        for level, anchor, title in self._headings(cell.source):
            if level == 2:
                self._section = words_of(title)
                self._plan = plan_of(cell)
            self._anchors += f'<span id="{anchor}"></span>'

    def _headings(self, text: str) -> list[tuple[int, str, str]]:
        known = len(self.prose.headings)
        _ = self._markdown.render(text)
        return self.prose.headings[known:]

    def _begin(
        self,
        kind: str | None,
        look: str = "",
        title: str = "",
        anchor: str = "",
        plan: int = PLANS[0],
    ) -> None:
        """Begins a slide: below the one before if it is a step of it, or what helps with an
        exercise.
        """
        helps = look in HELP
        slide = Slide(self._section, look, plan=self._plan)
        slide.title = ("" if helps else coded(self._deck)) + self._anchors
        self._anchors = ""
        if helps or (kind == "subslide" and look != "exercise"):
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

    def _show(self, cell: NotebookNode) -> None:
        """What the slide of a cell shows; below a title alone there is nothing."""
        if cell.cell_type == "markdown":
            shown = self._shown.render(EVIDENCE.sub("", cell.source))
        else:
            outputs = "".join(self._outputs(cell))
            shown = self._code(cell) + outputs
            shown = f'<div class="cell">{shown}</div>' if shown else ""
            for caption in re.findall(r"<figcaption.*?</figcaption>", outputs, re.S):
                if self.instructor:
                    self._say(PICTURE.format(escape(words_of(caption), quote=False)))
        if shown.strip():
            self._put(shown)

    def _code(self, cell: NotebookNode) -> str:
        hidden = cell.metadata.get("jupyter", {}).get("source_hidden")
        drawn = any(map(is_rich, cell.outputs))
        if hidden or drawn or is_prediction(cell) or not cell.source.strip():
            return ""
        lines = lines_of(cell.source)
        marked = cell.metadata["tinylm"].get("essential")
        return folded(lines, marked) if marked else pre(lines)

    def _stub(self, source: str, name: str) -> str:
        """The signature and the first lines of the task; the notebook has all of it."""
        task = super()._stub(source, name)
        begins, more, _ = task.partition("\n\n")
        return f'{begins} ..."""\n    ...' if more else task

    def _note(self, cell: NotebookNode, following: NotebookNode | None) -> None:
        """A note before a section is read on its first slide, or where nothing of it is shown on
        the next one.
        """
        if self._before or (following is not None and introduces(cell.source, following.source)):
            self._before = "\n\n".join(filter(None, (self._before, cell.source)))
        else:
            self._say(cell.source)

    def _say_plans(self) -> None:
        places = [f"{first.section}: {number}" for number, first in self._firsts()[1:]]
        first = self.columns[0][0]
        first.notes.insert(0, self._markdown.render(SECTIONS.format("; ".join(places))))
        super()._say_plans()

    def _firsts(self) -> list[tuple[int, Slide]]:
        firsts = super()._firsts()
        sections = ["-", *(slide.section for _, slide in firsts)]
        return [
            found
            for before, found in zip(sections, firsts, strict=False)
            if found[1].section != before
        ]

    def _slide(self, slide: Slide) -> str:
        if slide.kind == "title":
            return super()._slide(slide)
        notes = f'<aside class="notes">{"".join(slide.notes)}</aside>' if slide.notes else ""
        alone = "" if slide.parts else " alone"
        return (
            f'<section class="leaf written {slide.kind}{alone}"><div class="frame">'
            f'<header><h2>{slide.title}</h2><span class="page"></span></header>'
            f'<div class="body">{"".join(slide.parts)}</div></div>{notes}</section>'
        )


def _is_shown(token: dict[str, Any]) -> bool:
    """Whether a block of a text is on a slide; a formula of its own is a paragraph of one."""
    inside = {child["type"] for child in token.get("children", ()) or ()}
    return token["type"] in SHOWN or (token["type"] == "paragraph" and inside <= MATH and inside)
