"""The library's own source in a notebook: `show(RMSNorm)` says where it stands and which lesson builds it."""

import inspect
import re
import textwrap
from html import escape
from pathlib import Path
from typing import Any

from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Operator, String

from .cards import CODE, Card, card, fold, paragraph

PACKAGE = Path(__file__).parents[2]
# No colour has enough contrast on white and on dark paper: weight, slant and a marker pen have it on both.
STYLES = {
    Keyword: "font-weight:700",
    Operator.Word: "font-weight:700",
    Name.Function: "font-weight:700;text-decoration:underline",
    Name.Class: "font-weight:700;text-decoration:underline",
    Comment: "font-style:italic;opacity:0.85",
    String: "background:#8a94a02e;border-radius:3px",
}


def show(*objects: Any) -> None:
    """Displays the source of functions, classes and methods of the library, one folded card for each.

    Raises: ValueError for what is not the library's own.
    """
    for item in [_source_card(item) for item in objects]:
        item.show()


def _source_card(item: Any) -> Card:
    item = inspect.unwrap(getattr(item, "fget", None) or getattr(item, "__func__", None) or item)
    source = textwrap.dedent(inspect.getsource(_checked(item))).rstrip()
    where, lessons = place(item), lesson_of(item)
    caption = f"`{where}`" + (f" · {lessons}" if lessons else "")
    n = source.count("\n") + 1
    parts = [paragraph(caption), fold(f"the source, {n} lines" if n > 1 else "the source, 1 line", block(source))]
    return card(item.__qualname__, parts, f"{item.__qualname__} · {caption.replace('`', '')}\n\n{source}")


def _checked(item: Any) -> Any:
    """Returns a function or class of the library.

    Raises: ValueError naming what it is and what to show instead.
    """
    package = __name__.partition(".")[0]
    if inspect.isfunction(item) or inspect.isclass(item):
        if item.__module__.partition(".")[0] != package:
            raise ValueError(
                f"{item.__qualname__} is from {item.__module__}, not from {package}: show() displays the library's own "
                "source, for everything else there is help()"
            )
        return item
    kind = type(item)
    if kind.__module__.partition(".")[0] == package:
        raise ValueError(f"this is one {kind.__qualname__}, an object without a source: show({kind.__qualname__})")
    raise ValueError(
        f"{_brief(item)} is no function, class or method: show() prints the source of one, such as show(softmax)"
    )


def _brief(item: Any) -> str:
    text = repr(item)
    return text if len(text) < 40 and "\n" not in text else f"an object of type {type(item).__name__}"


def place(item: Any) -> str:
    """Where a function or class is written: its file inside the repository, or its module, or the notebook."""
    module = getattr(item, "__module__", None) or "an unknown module"
    if module.partition(".")[0] == __name__.partition(".")[0]:
        return Path(inspect.getsourcefile(item)).relative_to(PACKAGE.parent).as_posix()
    return "this notebook" if module == "__main__" else module


def lesson_of(item: Any) -> str:
    """The lesson that builds an object, such as `notebooks 05 and 07`: said by its docstring, class or file."""
    module = inspect.getmodule(item)
    owner = item.__qualname__.rpartition(".")[0]
    for place in (item, getattr(module, owner, None), module):
        if found := re.search(r"notebooks? \d\d(?:(?:, | and )\d\d)*", getattr(place, "__doc__", None) or "", re.I):
            return found[0].lower()
    return ""


def block(source: str) -> str:
    """A source as a block of highlighted code."""
    lines = "\n".join(highlighted(source))
    return f'<pre style="{CODE};margin:8px 0 0;white-space:pre;overflow-x:auto;background:none">{lines}</pre>'


def highlighted(source: str) -> list[str]:
    """The lines of a source as HTML, told apart by inline styles alone."""
    lines = [""]
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        style = next((STYLES[parent] for parent in reversed(kind.split()) if parent in STYLES), "")
        for i, piece in enumerate(text.split("\n")):
            if i:
                lines.append("")
            if piece:
                lines[-1] += (
                    f'<span style="{style}">{escape(piece)}</span>' if style and piece.strip() else escape(piece)
                )
    return lines
