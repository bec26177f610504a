"""The library's own source in a notebook: `show(RMSNorm)` says where it is defined and which lesson
builds it.
"""

import inspect
import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Operator, String

from ..folders import PACKAGES, ROOT
from .cards import CODE, Card, card, fold, paragraph, unmarked

CLINIC = f"{PACKAGES[1]}.clinic"
# No colour has enough contrast on white and on dark paper: weight, slant and a marker pen have it
# on both.
STYLES = {
    **dict.fromkeys((Keyword, Operator.Word), "font-weight:700"),
    **dict.fromkeys((Name.Function, Name.Class), "font-weight:700;text-decoration:underline"),
    Comment: "font-style:italic;opacity:0.85",
    String: "background:#8a94a02e;border-radius:3px",
}


def show(*objects: Any) -> None:
    """Displays the source of functions, classes and methods of the library, one folded card for
    each.

    Raises: ValueError for anything that is not the library's own.
    """
    for each in [_source_card(item) for item in objects]:
        each.show()


def _source_card(item: Any) -> Card:
    item = inspect.unwrap(getattr(item, "fget", None) or getattr(item, "__func__", None) or item)
    if why := _refusal(item):
        raise ValueError(why)
    source = textwrap.dedent(inspect.getsource(item)).rstrip()
    caption = " · ".join(filter(None, (f"`{place(item)}`", lesson_of(item))))
    n = source.count("\n") + 1
    parts = [
        paragraph(caption),
        fold(f"the source, {n} lines" if n > 1 else "the source, 1 line", block(source)),
    ]
    return card(item.__qualname__, parts, f"{item.__qualname__} · {unmarked(caption)}\n\n{source}")


def _refusal(item: Any) -> str:
    """What an item is that the library does not have, and what to show instead."""
    kind = type(item)
    if any((getattr(thing, "__module__", None) or "").startswith(CLINIC) for thing in (item, kind)):
        return (
            "the clinic stays closed: its sources say what is wrong with a patient. Measure it "
            "instead"
        )
    text = repr(item)
    if inspect.isfunction(item) or inspect.isclass(item):
        others = (
            f"{item.__qualname__} is from {item.__module__}, not from tinylm_lib: show() displays "
            "the library's "
        )
        return "" if _is_ours(item) else f"{others}own source, for everything else there is help()"
    if _is_ours(kind):
        return (
            f"this is one {kind.__qualname__}, an object without a source: "
            f"show({kind.__qualname__})"
        )
    brief = text if len(text) < 40 and "\n" not in text else f"an object of type {kind.__name__}"
    return (
        f"{brief} is not a function, class or method: show() prints the source of one, such as "
        "show(softmax)"
    )


def _is_ours(item: Any) -> bool:
    return (getattr(item, "__module__", None) or "").partition(".")[0] in PACKAGES


def place(item: Any) -> str:
    """Where a function or class is written: its file inside the repository, or its module, or the
    notebook.
    """
    if _is_ours(item):
        return Path(inspect.getsourcefile(item)).relative_to(ROOT).as_posix()
    module = getattr(item, "__module__", None) or "an unknown module"
    return "this notebook" if module == "__main__" else module


def lesson_of(item: Any) -> str:
    """The lesson that builds an object, such as `notebooks 05 and 07`: said by its docstring, class
    or file.
    """
    module = inspect.getmodule(item)
    owner = item.__qualname__.rpartition(".")[0]
    for place in (item, getattr(module, owner, None), module):
        said = getattr(place, "__doc__", None) or ""
        if found := re.search(r"notebooks? \d\d(?:(?:, | and )\d\d)*", said, re.I):
            return found[0].lower()
    return ""


def block(source: str) -> str:
    """A source as a block of highlighted code."""
    lines = "\n".join(highlighted(source))
    style = f"{CODE};margin:8px 0 0;white-space:pre;overflow-x:auto;background:none"
    return f'<pre style="{style}">{lines}</pre>'


def highlighted(source: str) -> list[str]:
    """The lines of a source as HTML, coloured by inline styles alone."""
    html = ""
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        style = next((STYLES[parent] for parent in reversed(kind.split()) if parent in STYLES), "")
        pieces = map(escape, text.split("\n"))
        html += "\n".join(
            f'<span style="{style}">{x}</span>' if style and x.strip() else x for x in pieces
        )
    return html.split("\n")
