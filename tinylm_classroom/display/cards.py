"""What a card looks like: one frame for all that a notebook shows to be read, alive in one that was
only opened.

Plain HTML with inline styles and no colour of its own for text: an untrusted notebook strips the
rest, and a dark theme must stay legible.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from IPython.display import display

TONES = {"plain": "#8a94a0", "good": "#1f8f6a", "bad": "#d9541e", "open": "#3b82d6"}
FRAME = (
    "border:1px solid #8a94a066;border-left:6px solid {tone};border-radius:10px;"
    "padding:12px 20px 14px;max-width:960px;margin:6px 0 12px;"
    "font-size:15px;line-height:1.5;overflow-x:auto"
)
# JupyterLab breaks what is preformatted anywhere, also inside of words.
WRAPPED = "white-space:pre-wrap;overflow-wrap:break-word;word-break:normal"
COLUMNS = 80  # of a text in a terminal
NUMBERS = "font-size:13px;margin:6px 0;text-align:right;font-variant-numeric:tabular-nums"
# What a message may mark. A star opens and closes at a word, so that `a * b`, `2*3*4` and
# `f(*x, *y)` stay as they are; shared.js has the same rule.
_WORDS = r"(?![\s*])([^*]*?[^\s*])"
_MARKED = re.compile(
    rf"`([^`]+)`|(?<![\w*])\*\*{_WORDS}\*\*(?![\w*])|(?<![\w*])\*{_WORDS}\*(?![\w*])"
)
FINGER_HIGH = (
    "cursor:pointer;padding:6px 0"  # high enough for a finger: WCAG 2.2, success criterion 2.5.8
)
CODE = "font:14px/1.55 ui-monospace,'DejaVu Sans Mono',monospace"


class Card:
    """Something to read: HTML in a notebook, the same words as plain text everywhere else."""

    def __init__(self, html: str, text: str):
        self.html = html
        self.text = text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html

    def show(self) -> None:
        """Displays the card below the running cell."""
        display(self)


def card(title: str, parts: Sequence[str], text: str, tone: str = "plain") -> Card:
    """A card with a bold title and parts of HTML below it; text is what a terminal prints.

    Raises KeyError for a tone that is not in TONES.
    """
    head = f'<p style="font-size:17px;font-weight:700;margin:0 0 6px">{escape(title)}</p>'
    return _framed([head, *parts], text, tone)


def _framed(parts: Sequence[str], text: str, tone: str) -> Card:
    return Card(f'<div style="{FRAME.format(tone=TONES[tone])}">{"".join(parts)}</div>', text)


def show_text(texts: str | Sequence[str] | Mapping[str, str]) -> None:
    """Displays a text to be read, wrapped at words; it keeps its own line breaks.

    texts: one text, several, or {label: text}. Blanks and empty lines around a text are left out.
    """
    labelled = (
        texts
        if isinstance(texts, Mapping)
        else dict(enumerate([texts] if isinstance(texts, str) else texts))
    )
    parts = []
    lines = []
    for label, text in labelled.items():
        if isinstance(label, str):
            parts.append(f'<div style="font-weight:700;margin:6px 0 0">{inline(label)}</div>')
            lines.append(f"{unmarked(label)}:")
        parts.append(text_block(text))
        lines += [wrapped(text), ""]
    _framed(parts, "\n".join(lines[:-1]), "plain").show()


def text_block(text: str) -> str:
    """A text to be read as a part of a card: nothing in it is marked."""
    words = escape(text.strip(), quote=False)
    return f'<div style="font-size:1.15em;margin:4px 0 8px;{WRAPPED}">{words}</div>'


def wrapped(text: str) -> str:
    """A text to be read for a terminal: its lines are wrapped at words."""
    lines = text.strip().split("\n")
    return "\n".join(
        textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False)
        for line in lines
    )


def message(title: str, lines: Sequence[str], tone: str = "plain") -> Card:
    """A card with a bold title and a paragraph for each line."""
    return card(
        title, [paragraph(line) for line in lines], "\n".join([title, *map(unmarked, lines)]), tone
    )


def paragraph(text: str) -> str:
    """One paragraph, marked as in `inline`."""
    return f'<p style="margin:6px 0">{inline(text)}</p>'


def code(text: str) -> str:
    """A few characters of code."""
    style = f"{CODE};background:#8a94a026;padding:1px 5px;border-radius:4px"
    return f'<code style="{style}">{escape(text)}</code>'


def inline(text: str, code: Callable[[str], str] = code) -> str:
    """Text inside a line as HTML: `code`, **strong** and *emphasized*. code: how a piece of code
    looks.
    """
    shown = []
    end = 0
    for found in _MARKED.finditer(text):
        shown.append(escape(text[end : found.start()], quote=False))
        marked, strong, emphasized = found.groups()
        if marked:
            shown.append(code(marked))
        else:
            tag = "strong" if strong else "em"
            shown.append(f"<{tag}>{inline(strong or emphasized, code)}</{tag}>")
        end = found.end()
    return "".join([*shown, escape(text[end:], quote=False)])


def unmarked(text: str) -> str:
    """The words of a text that is marked as in `inline`, for terminals and tables."""
    return _MARKED.sub(lambda found: found[1] or unmarked(found[2] or found[3]), text)


def fold(summary: str, html: str) -> str:
    """A part that unfolds under its summary."""
    line = f'<summary style="{FINGER_HIGH}">{escape(summary)}</summary>'
    return f"<details>{line}{html}</details>"


def number_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, of_words: bool = False
) -> str:
    """A small table of numbers; the first cell of each row names it. of_words: its cells begin at
    the left.
    """
    left = (
        (' style="text-align:left"') if of_words else ""
    )  # of each cell: JupyterLab aligns cells at the right

    def cell(tag: str, text: str, scope: str = "") -> str:
        return f"<{tag}{scope}{left}>{escape(text)}</{tag}>"

    top = "".join(cell("th", text, ' scope="col"') if text else cell("td", "") for text in head)
    body = (
        cell("th", name, (' scope="row"')) + "".join(cell("td", text) for text in rest)
        for name, *rest in rows
    )
    lines = "".join(f"<tr>{line}</tr>" for line in body)
    return f'<table cellpadding="3" style="{NUMBERS}"><tr>{top}</tr>{lines}</table>'
