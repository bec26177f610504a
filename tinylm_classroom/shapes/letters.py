"""The letters of the axes: their meaning, their colours, and which axis of a tensor is which."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ..display.theme import AXIS_COLORS, QUIET
from .comments import Letters, Shape, Size

LEGEND = {
    "B": "texts in the batch",
    "T": "positions",
    "S": "positions of the keys",
    "C": "width of the stream",
    "H": "query heads",
    "G": "key-value heads",
    "D": "width of a head",
    "F": "inner width of the feed-forward",
    "V": "vocabulary",
}


def axis_names(size: Size, letters: Letters, said: Shape = ()) -> Shape:
    """A name for every axis: its letter, or its size as a text where no letter is known.

    letters: the sizes of the known letters. A letter is used once as long as there is another of
    the same size, B at most once; an axis of size 1 has no letter. said: the dimensions of a true
    shape comment, taken as they are.
    """
    if "..." in said:
        at = said.index("...")
        said = (*said[:at], *("..." for _ in range(len(size) - len(said) + 1)), *said[at + 1 :])
    known = {letter: letters[letter] for letter in used_letters(letters)}
    known |= {f"{a}*D": known[a] * known["D"] for a in "GH" if a in known and "D" in known}
    named: list[str] = []
    for place, n in enumerate(size):
        dim = said[place] if len(said) == len(size) else "..."
        fitting = [a for a in known if known[a] == n != 1 and (a not in named or a != "B")]
        fitting.sort(key=lambda letter: ("*" in letter, letter in (*named, *said)))
        named.append(dim if dim != "..." else [*fitting, str(n)][0])
    return tuple(named)


def spelled(size: Size, names: Shape) -> str:
    """A shape in letters and in numbers, `(B, T, C) = (2, 16, 64)`, or in numbers alone where there
    is no letter.
    """
    numbers = f"({', '.join(map(str, size))})"
    return f"({', '.join(names)}) = {numbers}" if used_letters(names) else numbers


def axis_in_words(size: Size, place: int, letters: Letters) -> str:
    """One axis in words: `C = 64`, or `64`."""
    name = axis_names(size, letters)[place]
    return f"{name} = {size[place]}" if used_letters([name]) else name


def chips(text: str) -> str:
    """Names of axes with every letter on its colour, legible on light and on dark paper."""
    return re.sub("[A-Z]", lambda letter: _chip(letter[0]), escape(text))


def _chip(letter: str) -> str:
    color = AXIS_COLORS[letter].light if letter in AXIS_COLORS else QUIET
    return (
        f'<b style="color:#fff;background:{color};border-radius:4px;padding:1px 5px">{letter}</b>'
    )


def used_letters(names: Iterable[str]) -> list[str]:
    """The letters that occur in names of axes, in the order of the legend."""
    found = set(re.findall("[A-Z]", " ".join(names)))
    return [*(letter for letter in LEGEND if letter in found), *sorted(found - set(LEGEND))]


def legend(names: Iterable[str], sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    """The letters that occur with what they are: `("B", "= 2 texts in the batch")`."""
    letters = used_letters(names)
    return [
        (a, f"{f'= {sizes[a]} ' if a in sizes else ''}{LEGEND.get(a, '')}".strip()) for a in letters
    ]


def legend_html(entries: Sequence[tuple[str, str]]) -> str:
    """The letters and what they are in one paragraph, no letter torn from its meaning."""
    items = (
        (f'<span style="white-space:nowrap;margin-right:16px">{chips(a)} {escape(text)}</span>')
        for a, text in entries
    )
    return f'<p style="margin:8px 0;line-height:1.9">{" ".join(items)}</p>'
