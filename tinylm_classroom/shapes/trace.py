"""What every line really made: its source with the shapes at the margin, and an explanation where
shapes do not fit.

`trace(function, *arguments)` runs one function, `trace_model` a whole model.
"""

import linecache
from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import Any, NamedTuple

from tinylm_lib.config import ModelConfig

from ..display.cards import CODE, Card, card, code, paragraph, unmarked
from ..display.source import highlighted, lesson_of, place
from .comments import Comment, config_sizes
from .failures import Failure, explain, failure_at, run_traced
from .instrument import definition
from .letters import legend_html
from .mismatch import drawn, in_words
from .recording import Recording

_LINE = "border:none;border-bottom:1px solid #8a94a033"
_CELL = (
    f"{CODE};{_LINE};padding:1px "
    "0;vertical-align:top;text-align:left;max-width:none;line-height:1.7"
)
_MARGIN = f"{_CELL};padding-left:28px;white-space:nowrap"
_PER_CHARACTER = 0.602  # of the font size: the width of a character of the code
_UNFIT = ("✗ does not fit", "<b>✗ does not fit</b>")
_WIDEST = 100  # characters of a line of code in front of its shape, in plain text
Sizes = Mapping[str, int] | ModelConfig | None


class Line(NamedTuple):
    """One line of a source: its number, its text, its highlighted text, and whether it should have
    run but did not.
    """

    number: int
    text: str
    html: str
    is_idle: bool


def trace(what: Any, *args: Any, details: bool = False, sizes: Sizes = None, **kwargs: Any) -> Card:
    """Runs a function, method or module and shows its lines, each with the shape of what it really
    made.

    args, kwargs: what it is called with. details: dtypes and devices too. sizes: letters and their
    sizes, as `{"B": 2, "T": 16}` or a model's config; others are read from the code: its shape
    comments, its variables named by one capital letter, its docstring (`x (B, T, C)`). Where two
    shapes do not fit, the card ends there and explains it; any other error is raised as usual.
    Raises: TypeError and ValueError if it cannot be called so or has no Python source.
    """
    function, arguments, report, recording, error = run_traced(
        what, args, kwargs, _fixed(what, sizes)
    )
    failure = failure_at(report, recording, error) if error else None
    if error and not failure:
        raise error
    node = definition(function)
    recording.note_arguments(node.lineno, arguments, {**recording.background, **report.sizes})
    numbers = [
        line for line in range(node.lineno, node.end_lineno + 1) if line not in _docstring(node)
    ]
    lessons = lesson_of(function)
    caption = f"`{place(function)}`" + (f" · {lessons}" if lessons else "")
    name = (
        "lambda"
        if function.__name__ == "<lambda>"
        else function.__qualname__.rpartition("<locals>.")[2]
    )
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    return _card(
        name, caption, _shown(lines, numbers, report.comments), recording, failure, details
    )


def _fixed(what: Any, sizes: Sizes) -> dict[str, int]:
    config = getattr(what, "config", None)
    known = config_sizes(config) if isinstance(config, ModelConfig) else {}
    return {**known, **(config_sizes(sizes) if isinstance(sizes, ModelConfig) else sizes or {})}


def _docstring(node: Any) -> range:
    first = node.body[0] if isinstance(node.body, list) else None
    text = getattr(getattr(first, "value", None), "value", None)
    return range(first.lineno, first.end_lineno + 1) if isinstance(text, str) else range(0)


def _shown(lines: Sequence[str], numbers: Sequence[int], comments: Sequence[Comment]) -> list[Line]:
    """Returns the lines of a source to be shown; a shape comment that came true becomes its line's
    mark.
    """
    true = {
        c.line: c.text
        for c in comments
        if c.state == "true" and c.results and c.text == c.text.upper()
    }
    idle = {c.line for c in comments if c.state == "never executed"}
    texts = [lines[n - 1].rstrip("\n") for n in numbers]
    texts = [
        text.rpartition(true[n])[0].rstrip() if n in true else text
        for n, text in zip(numbers, texts, strict=True)
    ]
    indent = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    texts = [text[indent:] for text in texts]
    html = highlighted("\n".join(texts))
    return [
        Line(n, text, marked, n in idle)
        for n, text, marked in zip(numbers, texts, html, strict=True)
    ]


def _card(
    title: str,
    caption: str,
    lines: list[Line],
    recording: Recording,
    failure: Failure | None,
    details: bool,
) -> Card:
    width = min(max((len(line.text) for line in lines), default=0), _WIDEST)
    rows = ""
    text = [f"{title} · {unmarked(caption)}" if caption else title, ""]
    for line in lines:
        failed = failure is not None and line.number == failure.line
        margin = recording.margin(line.number, details)
        if failed:
            margin = [*margin, _UNFIT]
        rows += _row(line, "<br>".join(html for _, html in margin), failed)
        shapes = [words for words, _ in margin] or [""]
        both = zip_longest([line.text], shapes, fillvalue="")
        text += [f"{source:<{width}}  {words}".rstrip() for source, words in both]
    style = "border-collapse:collapse;table-layout:auto;width:100%;margin:6px 0"
    table = f'<table style="{style}">{rows}</table>'
    parts = ([paragraph(caption)] if caption else []) + [table]
    if failure:
        html, told = _explained(failure)
        parts += html
        text += ["", f"{failure.found.title}:", *told]
    legend = recording.legend(failure.named_letters() if failure else {})
    note = recording.note_on_doubles()
    if legend:
        parts.append(legend_html(legend))
        text += ["", "  ".join(f"{letter} {meaning}".strip() for letter, meaning in legend)]
    if note:
        parts.append(paragraph(note))
        text.append(unmarked(note))
    return card(title, parts, "\n".join(text), "bad" if failure else "plain")


def _row(line: Line, shapes: str, failed: bool) -> str:
    indent = len(line.text) - len(line.text.lstrip())
    left = f"padding-left:{(indent + 4) * _PER_CHARACTER:.1f}em"
    hang = f"{left};text-indent:-{4 * _PER_CHARACTER:.1f}em"
    shade = "background:#d9541e33" if failed else "background:none"
    pale = ";opacity:0.74" if line.is_idle and not failed else ""
    cells = f'<td style="{_CELL};white-space:pre-wrap;{hang}">{line.html.lstrip() or " "}</td>'
    return f'<tr style="{shade}{pale}">{cells}<td style="{_MARGIN}">{shapes}</td></tr>'


def _explained(failure: Failure) -> tuple[list[str], list[str]]:
    """Returns what does not fit, inside which called function, and what torch said: parts of a
    card, lines of text.
    """
    html = drawn(failure.found, failure.letters)
    text = in_words(failure.found, failure.letters)
    for name, line in failure.inside:
        html.append(f'<p style="margin:6px 0">Inside {code(name)}: {code(line)}</p>')
        text.append(f"  Inside {name}: {line}")
    html.append(
        f'<p style="margin:6px 0;font-size:13px">torch says: <i>{escape(failure.message)}</i></p>'
    )
    return html, [*text, f"  torch says: {failure.message}"]


def explain_shapes(
    function: Any,
    args: Sequence[Any],
    error: BaseException,
    kwargs: Mapping[str, Any] | None = None,
) -> Card | None:
    """Explains an error that a function raised on these arguments, if it is about shapes that do
    not fit.

    The function runs once more, with what it prints thrown away. Nothing that it raises escapes.
    """
    failure = explain(function, args, kwargs or {}, error)
    if failure is None:
        return None
    html, text = _explained(failure)
    line = f'<p style="margin:6px 0">{code(failure.source)}</p>'
    words = "\n".join([f"{failure.found.title}:", f"  {failure.source}", *text])
    return card(failure.found.title, [line, *html], words, "bad")
