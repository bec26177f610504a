"""A story as lines of words, and threads from words to later ones."""

from collections.abc import Container, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path

from ..display.figures import unframed
from ..display.theme import INK, QUIET

LETTERS = 62  # of a line of the story
WORD_POINTS = 20
MARKS = (".", ",", '"', ' "')


def places(said: Sequence[str]) -> list[tuple[int, int]]:
    """Where each word begins: its column and its line. A mark stays on the line of its word."""
    found = []
    column = 0
    line = 0
    for i, word in enumerate(said):
        marks = [len(mark) for mark in said[i + 1 : i + 3] if mark in MARKS]
        column += word.startswith(" ") and column > 0
        if column + len(word.strip()) + sum(marks) > LETTERS:
            column = 0
            line += 1
        found.append((column, line))
        column += len(word.strip())
    return found


def draw_story(
    ax: Axes, said: Sequence[str], grounds: Mapping[int, str], sources: Container[int]
) -> list[tuple[int, int]]:
    """All words of a story, and nothing else. Returns the place of each.

    grounds: the colour under a word, for those that have one. sources: where threads begin.
    """
    at = places(said)
    for i, word in enumerate(said):
        draw_word(ax, word.strip(), at[i], grounds.get(i), i in sources)
    limits = {"xlim": (-0.8, LETTERS + 1), "ylim": (at[-1][1] + 0.7, -0.5)}
    ax.set(xticks=[], yticks=[], ylabel=" ", **limits)
    unframed(ax)
    return at


def draw_word(
    ax: Axes, word: str, place: tuple[int, int], ground: str | None, is_source: bool
) -> None:
    """A word at its place, bold at the beginning of a thread and white on a ground at its end."""
    column, line = place
    if ground:
        style = {"boxstyle": "round,pad=0,rounding_size=0.12", "fc": ground, "ec": ground}
        corner = (column - 0.15, line - 0.26)
        ax.add_patch(FancyBboxPatch(corner, len(word) + 0.3, 0.52, zorder=3, **style))
    strong = ground or is_source
    style = {"family": "monospace", "size": WORD_POINTS, "weight": "bold" if strong else "normal"}
    style["color"] = INK if is_source else QUIET
    if ground:
        style["color"] = "white"
    for i, letter in enumerate(word):
        where = {"ha": "center", "va": "center_baseline", "zorder": 4}
        ax.text(column + i + 0.5, line, letter, **where, **style)


def draw_thread(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], strength: float, color: str
) -> None:
    """A curve from below one word to another, thicker for a larger strength, 0 to 1."""
    x1 = start[0]
    x2 = end[0]
    y1 = start[1] + 0.27
    if start[1] == end[1]:
        curve = [(x1, y1), (x1, y1 + 0.3), (x2, y1 + 0.3), (x2, y1)]
    else:
        y2 = end[1] - 0.27
        bend = max(0.3, (y2 - y1) / 2)
        curve = [(x1, y1), (x1, y1 + bend), (x2, y2 - bend), (x2, y2)]
    path = Path(curve, [Path.MOVETO, *[Path.CURVE4] * 3])
    line = {"fc": "none", "ec": color, "lw": 1 + 6 * strength, "alpha": 0.8, "capstyle": "round"}
    ax.add_patch(PathPatch(path, zorder=2, **line))
