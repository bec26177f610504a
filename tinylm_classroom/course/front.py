"""The site's front page: a model that writes, three ways in, and the map of the course."""

import base64
import io
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from itertools import chain
from string import Template
from typing import NamedTuple

from nbformat import NotebookNode
from PIL import Image

from tinylm_lib.cost import count_parameters
from tinylm_lib.pretrained import load_pretrained

from ..folders import own
from ..live.record import live_record
from ..live.scripts import engine_script, learning_script
from ..views.base import MIME, computable, json_in_html
from ..views.watch import IMPOSSIBLE
from .cells import Page, coded
from .contents import FACTS
from .emblems import emblem
from .sidebar import seen_of
from .threads import clear_threads, threads_drawing

MODEL = "model.js"
# A story of StoryWorld, which the front page shows before the model writes one of its own.
STORY = (
    "\nOne stormy evening, shy Elsa ran to Springfield. She brought a golden lantern. There she "
    'met Ivan, a pilot with a yellow bell. Ivan whispered to Elsa, "Young dreams dance nearby." '
    "Then Elsa gave Ivan the golden lantern. Then Ivan gave Elsa the yellow bell. Afterwards they "
    'left Springfield for Brookside. Often Elsa thought, "Young dreams dance nearby."'
)
# How a visitor may begin a story: the model writes on from the first.
FIRST_WORDS = ("\nOne stormy evening, shy Elsa", "\nOne hot day,", IMPOSSIBLE)
WIDE = 1060  # units of the drawing of this story for a laptop
NARROW = 460  # and for a phone
LESSON_GROUPS = (
    "A text becomes numbers",
    "A word looks back",
    "A model learns",
    "It writes, fast and at scale",
    "Inside, and beyond",
)
GROUP_SIZE = 4  # lessons; the last group has all that follow
# the tag of the cell whose figure is the lesson's picture, not the first one
SIGNATURE = "signature"
PREVIEW_SIZE = (1200, 630)  # pixels
FIGURE = re.compile(r'<img\b[^>]*?\bsrc="data:image/png;base64,([^"]+)"')


class MapEntry(NamedTuple):
    """What the map shows of a lesson: its page, what it builds, its minutes, whether something
    in it moves, links to its other forms, and how many sections of it a reader can have seen.
    """

    page: Page
    builds: str
    minutes: int
    has_view: bool
    links: Sequence[str]
    sections: int


@cache
def model_script() -> str:
    """The script of the site that has a file of its own: `tinylm`, and `tinylmModel` with the model
    as data.
    """
    shipped = load_pretrained("storyworld")
    data = computable(shipped.model, shipped.tokenizer)
    scripts = engine_script() + learning_script()
    return f"{scripts}globalThis.tinylmModel = {json_in_html(data)};\n"


def map_entry(
    notebook: NotebookNode, page: Page, links: Sequence[str] = (), sections: int = 0
) -> MapEntry:
    """What the map shows of a built lesson. links: to its other forms, as HTML."""
    facts = FACTS.search(" ".join(notebook.cells[0].source.split()))
    builds, minutes = (facts[2], int(facts[4]) + int(facts[5] or 0)) if facts else ("", 0)
    has_view = any(MIME in data for data in _shown(notebook))
    return MapEntry(page, builds, minutes, has_view, links, sections)


def preview(notebook: NotebookNode) -> bytes:
    """The lesson's first picture on a ground of the size that other sites show with a link; empty
    if it has none.
    """
    if not (picture := _signature(_shown(notebook))):
        return b""
    drawn = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    drawn.thumbnail((PREVIEW_SIZE[0] - 40, PREVIEW_SIZE[1] - 30), Image.Resampling.LANCZOS)
    ground = Image.new("RGB", PREVIEW_SIZE, "white")
    ground.paste(drawn, ((ground.width - drawn.width) // 2, (ground.height - drawn.height) // 2))
    buffer = io.BytesIO()
    ground.quantize(256, Image.Quantize.FASTOCTREE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _shown(notebook: NotebookNode) -> list[dict]:
    """What the cells show, but for questions; the cell of the signature picture comes first."""
    cells = sorted(notebook.cells, key=lambda cell: SIGNATURE not in cell.metadata.get("tags", ()))
    outputs = chain.from_iterable(cell.get("outputs", ()) for cell in cells)
    shown = [output.get("data", {}) for output in outputs]
    return [data for data in shown if data.get(MIME, {}).get("module") != "predict"]


def _signature(shown: Sequence[dict]) -> str:
    """The first picture, a PNG in base64; empty if there is none."""
    return next(
        (found[1] for data in shown if (found := FIGURE.search(data.get("text/html", "")))), ""
    )


def front_page(
    lessons: Sequence[MapEntry], sections: Sequence[Sequence], guide: str, reference: str
) -> str:
    """The content of the front page, with a search through sections, as `with_terms` gives them.

    guide, reference: the pages for instructors and of the library's public names, or nothing.
    """
    shipped = load_pretrained("storyworld")
    threads = clear_threads(shipped.model.eval(), shipped.tokenizer, STORY)
    drawings = {
        name: threads_drawing(STORY, threads, width)
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    }
    first = lessons[0].page if lessons else None
    fingerprint = live_record(shipped.model, shipped.tokenizer)["fingerprint"]
    first_words = {"model": fingerprint, "beginnings": FIRST_WORDS}
    first_words |= {"page": True, "writes": True}
    return Template(own("course/front.html")).substitute(
        drawings,
        parameters=f"{count_parameters(shipped.model.config).total:,}",
        heads="".join(
            f'<li class="head-{n}">head {n}</li>' for n in range(shipped.model.config.n_heads)
        ),
        start=f'<a class="start" href="{first.file}">Start with lesson {first.number}</a>'
        if first
        else "",
        lessons=len(lessons),
        hours=round(sum(lesson.minutes for lesson in lessons) / 60),
        guide=f'<a href="{guide}">Teaching with TinyLM</a>' if guide else "",
        reference=f'<a href="{reference}">The reference of all public names</a>'
        if reference
        else "",
        map=_map(lessons),
        sections=json_in_html(sections),
        first_words=json_in_html(first_words),
    )


def _map(lessons: Sequence[MapEntry]) -> str:
    groups: dict[str, list[str]] = {}
    for lesson in lessons:
        group = LESSON_GROUPS[min(int(lesson.page.number) // GROUP_SIZE, len(LESSON_GROUPS) - 1)]
        groups.setdefault(group, []).append(_card(lesson))
    return "".join(f"<h3>{name}</h3><ol>{''.join(cards)}</ol>" for name, cards in groups.items())


def _card(lesson: MapEntry) -> str:
    page = lesson.page
    drawn = emblem(page.file)
    builds = coded(lesson.builds)
    facts = [f"{lesson.minutes} min"] if lesson.minutes else []
    facts += ["interactive view"] if lesson.has_view else []
    links = f'<p class="slides">{" · ".join(lesson.links)}</p>' if lesson.links else ""
    return (
        f'<li {seen_of(page.file, lesson.sections)}><a href="{page.file}">'
        f'<span class="picture">{drawn}</span>'
        f'<span class="number">{page.number}</span> <b>{escape(page.topic)}</b>'
        f'<span class="question">{escape(page.question)}</span></a>'
        f'<p class="builds">{f"<i>Builds</i> {builds}." if builds else ""}</p>'
        f'<p class="facts">{" · ".join(facts)}</p>{links}</li>'
    )
