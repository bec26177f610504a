"""One sentence that looks back: arcs over its words, and the picture that grows over them, step by
step, from one query to the weights of all words.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.textpath import TextPath
from torch import Tensor

from tinylm_lib.attention import causal_mask
from tinylm_lib.layers import softmax

from ..display.figures import MASKED, display, drawing, ink_on
from ..display.numbers import fixed
from ..display.theme import HEAT, INK, LINE, QUIET, SERIES
from ..shapes.capture import capture
from .lettering import hide_axes

STEPS = {
    "arcs": "Before it guesses, the last word looks at the fan",
    "keys": "Keys say what a word is, the query what is looked for",
    "scores": "The score is large where a key fits the query",
    "weights": "Softmax makes one 4 among zeros the largest weight",
    "values": "What comes back is mostly the value of fan",
    "matrix": "All words ask at once: one row of scores for each",
    "mask": "Minus infinity hides what comes later",
    "softmax": "Each row distributes its 1 over the past",
}
PINK = "It looks for the pink thing, wherever it is"
TWO = "First the things take up colours, then pink finds its thing"
WIDTH = 11.4  # inches; a coordinate is a pixel of the page
HEIGHT = 5.7
PIXEL = 96
TYPE = 20  # points of the sentence, and of labels and numbers
SMALL = 18
LEAST = {".": 22}  # pixels of a column, so that a number fits
USUAL = 46
GAP = 9
# heights: the sentence, the keys over it, the rows over those
WORDS = 24
KEYS = 48
ROWS = 110
CELL = 27
LEAST_DRAWN = 0.1  # a smaller look has no arc
COLOURS = {
    "pink": "#ffc2da", "gray": "#d3d9df", "red": "#ffb9ae", "blue": "#bcd7ff", "green": "#c4e8c4",
    "yellow": "#ffe9a0", "purple": "#e0ccf5", "golden": "#f3dca0", "white": "#f1f4f7",
    "black": "#b9c0c8", "brown": "#e3c7ae", "silver": "#dfe4ea",
}  # fmt: skip


class Line(NamedTuple):
    """Where the words of a sentence are: the left and the right edge of each one's column, and
    where what comes after them begins; in pixels.
    """

    words: tuple[str, ...]
    edges: tuple[tuple[float, float], ...]
    after: float

    @property
    def middles(self) -> list[float]:
        """The middle of each column."""
        return [(left + right) / 2 for left, right in self.edges]


def grow(
    step: str,
    words: Sequence[str],
    *,
    keys: Tensor | None = None,
    queries: Tensor | None = None,
    values: Tensor | None = None,
    weights: Sequence[float] | None = None,
    title: str = "",
) -> None:
    """Shows a sentence and, over it, one step of attention; its words are where they were in the
    step before.

    step: "arcs" (of `weights`, a number per word), then "keys", "scores", "weights" and "values" of
    the last word's query, then "matrix", "mask" and "softmax" of all queries.
    keys, queries (T, 2): the pink and the gray thing. values (T, 3): person, fan, book.
    Raises: ValueError for an unknown step.
    """
    if step not in STEPS:
        raise ValueError(f"the steps are {', '.join(STEPS)}, not {step!r}")
    line = line_of(words)
    title = title or STEPS[step]
    with drawing(WIDTH, HEIGHT) as figure:
        ax = _plane(figure, [0, 0, 1, 0.91], HEIGHT * 0.91)
        ax.set_title(title, x=0.012, size=22)
        _sentence(ax, line, WORDS)
        if weights is not None:
            shown = torch.as_tensor(weights).float()[None]
            _arcs(ax, line, len(line.words) - 1, shown[0].tolist(), WORDS + 20, 1.05)
        else:
            _keys(ax, line, keys)
            if step in ("matrix", "mask", "softmax"):
                shown = _rows(ax, line, step, queries @ keys.T)
            else:
                shown = _one_row(ax, line, step, keys, queries[-1:], values)
    asking = line.words[-len(shown) :]
    best = shown.argmax(-1).tolist()
    at = [f"{line.words[place]} (word {place + 1})" for place in best]
    most = [row[place].item() for row, place in zip(shown, best, strict=True)]
    alt = f"{title}. The sentence {' '.join(line.words)!r}, and over it {ALT[step]}."
    table = {"query": asking, "largest for": at, "number": most}
    display(figure, alt=alt, caption=CAPTIONS[step], table=table, digits=2)


ALT = {
    "arcs": "an arc from the last word to each word that it looks at",
    "keys": "two numbers for each word, and at the right the two of the last word's query",
    "scores": "a score for each word: 4 over fan, 0 over the others",
    "weights": "a bar for each word: the one of fan is by far the longest",
    "values": "the bars, what each word hands over, and the sum at the right",
    "matrix": "a square of scores, rows are queries and columns keys",
    "mask": "the square of scores, its upper right half hatched",
    "softmax": "a square of weights, its upper right half hatched",
}
CAPTIONS = {
    "arcs": (
        "An arc is as thick as the weight of the word that it leads to, in one head of the shipped "
        "model."
    ),
    "keys": (
        "Over each word its key, two numbers: *I am the pink thing*, *I am the gray thing*. At the "
        "right the query of the last word."
    ),
    "scores": "A score is the dot product of the query at the right with the key below the score.",
    "weights": "The bars are the attention weights. Together they are 1.",
    "values": "Each word hands over its value, times its weight. The sum is at the right.",
    "matrix": (
        "Each row is a word that asks (its query), each column a word that may answer (its key). "
        "The outlined row is the one from before."
    ),
    "mask": "Hatched is what the query of a row must not see, because it comes later.",
    "softmax": (
        "In each row the weights sum to 1, and words that do not match have equal weights, so "
        "their number is written once. Hatched is masked."
    ),
}


def looks(
    model: Any, tokenizer: Any, *texts: str, title: str = "", earlier: bool = False, head: int = 0
) -> None:
    """Shows where the last word of each text looks in the last layer, as arcs over its words, and
    the word that the model guesses.

    earlier: with every look of the things in layer 1, under the words. A thing is the word after a
    colour.
    """
    title = title or (TWO if earlier else PINK)
    high = (2.85 if earlier else 2.65) * len(texts)
    table: dict[str, list] = {"text": [], "query": [], "looks above 0.1": []}
    with drawing(WIDTH, high) as figure:
        for row, text in enumerate(texts):
            ids = tokenizer.encode("\n" + text)
            caught = capture(model, torch.tensor([ids]))
            words = [tokenizer.decode([token]).strip() for token in ids[1:]]
            guess = tokenizer.decode([caught.logits[0, -1].argmax().item()]).strip()
            part = (1 - 0.52 / high) / len(texts)
            ax = _plane(figure, [0, part * (len(texts) - 1 - row), 1, part], part * high)
            line = line_of(words)
            floor = 92.0 if earlier else WORDS
            _sentence(ax, line, floor, guess)
            asking = [(2, len(words) - 1)]
            asking += [(1, at) for at in _things(words)] if earlier else []
            for layer, query in asking:
                weights = caught.attention(layer=layer).weights[0, head, query + 1, 1:].tolist()
                room = (ax.get_ylim()[1] - floor - 62) if layer == 2 else -(floor - 46)
                base = floor + (20 if layer == 2 else -18)
                _arcs(ax, line, query, weights[: query + 1], base, room=room)
                seen = zip(words, weights, strict=True)
                told = [f"{word} {fixed(w, 2)}" for word, w in seen if w > LEAST_DRAWN]
                table["text"].append(text.strip())
                table["query"].append(f"{words[query]}, layer {layer}")
                table["looks above 0.1"].append(", ".join(told))
        figure.axes[0].set_title(title, x=0.012, size=22)
    rows = zip(table["query"], table["looks above 0.1"], strict=True)
    alt = f"{title}. " + "; ".join(f"{who}: {what or 'none'}" for who, what in rows) + "."
    says = "Each arc is a look of more than 0.1, as thick as its weight. Blue: the model's guess."
    says += " Over the words is layer 2, under them layer 1." if earlier else ""
    display(figure, alt=alt, caption=says, table=table)


def line_of(words: Sequence[str]) -> Line:
    """The places of the words, one after the other, each in a column that a number fits into."""
    x = 14.0
    edges = []
    for word in words:
        width = max(LEAST.get(word, USUAL), _width(word, TYPE)) + GAP
        edges.append((x, x + width))
        x += width
    return Line(tuple(words), tuple(edges), x + 12)


def _width(text: str, points: float) -> float:
    letters = TextPath((0, 0), text, size=points, prop=FontProperties(family="DejaVu Sans"))
    return letters.get_extents().width * PIXEL / 72


def _things(words: Sequence[str]) -> list[int]:
    return [at for at in range(1, len(words)) if words[at - 1] in COLOURS]


def _plane(figure: Figure, place: list[float], inches: float) -> Axes:
    """Axes over the whole width whose coordinates are pixels of the page."""
    figure.set_layout_engine("none")
    ax = figure.add_axes(place, xticks=[], yticks=[])
    ax.set(xlim=(0, WIDTH * PIXEL), ylim=(0, inches * PIXEL), xlabel="words", ylabel="weight")
    hide_axes(ax)
    return ax


def _sentence(ax: Axes, line: Line, y: float, guess: str = "") -> None:
    for word, x in zip(line.words, line.middles, strict=True):
        _word(ax, word, x, y, TYPE)
    if guess:
        style = {"size": TYPE, "weight": "bold", "color": SERIES[0]}
        ax.text(line.after, y, guess, va="center_baseline", **style)


def _word(
    ax: Axes, word: str, x: float, y: float, points: float, ha: str = "center", high: float = 25
) -> None:
    """A word, on its ground if it is a colour."""
    if word in COLOURS:
        wide = _width(word, points)
        left = x - (wide / 2 if ha == "center" else 0)
        ground = FancyBboxPatch((left - 3, y - high / 2), wide + 6, high, fc=COLOURS[word], lw=0)
        ground.set_boxstyle("round", pad=0, rounding_size=4)
        ax.add_patch(ground)
    ax.text(x, y, word, ha=ha, va="center_baseline", size=points, zorder=4)


def _arcs(
    ax: Axes,
    line: Line,
    query: int,
    weights: Sequence[float],
    base: float,
    rise: float = 0,
    room: float = 0,
) -> None:
    """Arcs from a word to each that it looks at; the widest is `room` high, or each `rise` times
    its radius. Below the words `room` is negative.
    """
    angle = np.linspace(0, np.pi, 90)
    middles = line.middles
    widest = (middles[query] - middles[0]) / 2
    drawn = [at for at, weight in enumerate(weights) if weight >= LEAST_DRAWN and at != query]
    outer = (middles[query] - middles[drawn[0]]) / 2 if drawn else 0
    color = SERIES[0] if rise or room > 0 else SERIES[1]
    for place, weight in zip(middles, weights, strict=False):
        half = (middles[query] - place) / 2
        if weight < LEAST_DRAWN or not half:
            continue
        top = half * rise or room * (half / widest) ** 0.5
        x = place + half + half * np.cos(angle)
        y = base + top * np.sin(angle)
        ax.plot(x, y, "-", lw=24 * weight, color=color, solid_capstyle="butt")
        halo = [withStroke(linewidth=5, foreground="white")]
        style = {"size": SMALL, "weight": "bold", "ha": "center", "va": "center", "zorder": 5}
        above = np.sign(top) * (16 + 14 * weight)
        if top > 0 and half < 0.7 * outer:
            above *= -1  # inside, where a wider arc may be above it
        ax.text(place + half, base + top + above, fixed(weight, 2), path_effects=halo, **style)


def _keys(ax: Axes, line: Line, keys: Tensor) -> None:
    for (left, right), key in zip(line.edges, keys.tolist(), strict=True):
        _pair(ax, left, right - left, key)


def _pair(ax: Axes, left: float, width: float, numbers: Sequence[float]) -> None:
    """Two numbers, the gray thing's below the pink thing's."""
    for place, (number, kind) in enumerate(zip(reversed(numbers), ("gray", "pink"), strict=True)):
        ground = COLOURS[kind] if number else "white"
        _cell(ax, left, KEYS + place * CELL, width, CELL, ground, f"{number:g}", bool(number))


def _cell(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    ground: Any,
    text: str,
    strong: bool = False,
) -> None:
    ax.add_patch(Rectangle((x, y), width, height, fc=ground, ec=LINE, lw=1))
    color = INK
    if ground == "white":
        color = QUIET
    elif not isinstance(ground, str):
        color = ink_on(ground)
    style = {"weight": "bold" if strong else "normal", "color": color}
    middle = {"ha": "center", "va": "center_baseline", "size": SMALL}
    ax.text(x + width / 2, y + height / 2, text, **middle, **style)


def _says(ax: Axes, x: float, y: float, text: str, ha: str = "left") -> None:
    ax.text(x, y, text, size=SMALL, color=INK, ha=ha, va="center_baseline")


def _one_row(
    ax: Axes, line: Line, step: str, keys: Tensor, query: Tensor, values: Tensor | None
) -> Tensor:
    """The query of the last word, and what becomes of it: scores, weights, the sum of values."""
    left = line.edges[0][0]
    right = WIDTH * PIXEL - 14
    _pair(ax, line.after, USUAL + GAP, query[0].tolist())
    _says(ax, left, ROWS + 12, "keys: the pink thing, below it the gray thing")
    _says(ax, right, ROWS + 12, "query", "right")
    scores = query @ keys.T
    if step in ("keys", "scores"):
        _wanted(ax, line, int(scores.argmax()), ROWS + (106 if step == "scores" else 30))
    if step == "keys":
        return scores
    for (x, end), score in zip(line.edges, scores[0].tolist(), strict=True):
        ground = HEAT(min(1.0, abs(score) / 6)) if score else "white"
        _cell(ax, x, ROWS + 34, end - x, 34, ground, f"{score:g}", bool(score))
    _says(ax, left, ROWS + 86, "scores = query · key")
    if step == "scores":
        return scores
    weights = softmax(scores, dim=-1)
    base = ROWS + 112
    for (x, end), weight in zip(line.edges, weights[0].tolist(), strict=True):
        ax.add_patch(Rectangle((x + 3, base), end - x - 6, 170 * weight + 1, fc=SERIES[0], lw=0))
        if weight > 0.04:
            style = {"size": SMALL, "weight": "bold", "ha": "center", "va": "bottom"}
            ax.text((x + end) / 2, base + 170 * weight + 4, fixed(weight, 2), **style)
    _says(ax, left, base + 230, "weights = softmax of the scores")
    if step == "values":
        _values(ax, line, weights, values, base)
    return weights


def _wanted(ax: Axes, line: Line, key: int, base: float) -> None:
    """The look that is to be computed, pale, from the last word to a key."""
    angle = np.linspace(0, np.pi, 90)
    middle = (line.middles[-1] + line.middles[key]) / 2
    x = middle + (line.middles[-1] - middle) * np.cos(angle)
    top = 0.72 * (ax.get_ylim()[1] - base)
    ax.plot(x, base + top * np.sin(angle), "-", lw=18, color="#d5e5f6", solid_capstyle="butt")
    style = {"size": 30, "weight": "bold", "color": SERIES[0], "ha": "center", "va": "center"}
    ax.text(middle, base + top - 44, "?", **style)


def _values(ax: Axes, line: Line, weights: Tensor, values: Tensor, base: float) -> None:
    names = ("person", "fan", "book")
    for (x, end), value, weight in zip(line.edges, values, weights[0], strict=True):
        if value.any():
            large = float(weight) > 0.4
            y = base + 170 * float(weight) + (-16 if large else 14)
            style = {"size": SMALL, "ha": "center", "va": "center_baseline", "zorder": 5}
            color = "white" if large else INK
            ax.text((x + end) / 2, y, names[int(value.argmax())], color=color, **style)
    right = WIDTH * PIXEL - 14
    _says(ax, right, base + 230, "result", "right")
    for down, (name, total) in enumerate(zip(names, (weights @ values)[0].tolist(), strict=True)):
        style = {"size": SMALL, "ha": "right", "va": "center_baseline"}
        style |= {"weight": "bold", "color": SERIES[0]} if total > 0.4 else {}
        ax.text(right, base + 202 - 28 * down, f"{name} {fixed(total, 2)}", **style)


def _rows(ax: Axes, line: Line, step: str, scores: Tensor) -> Tensor:
    """A row for each query, the first word's on top: scores, masked scores or weights."""
    n = len(line.words)
    high = (ax.get_ylim()[1] - ROWS - 4) / n
    allowed = causal_mask(n) if step != "matrix" else torch.ones(n, n, dtype=torch.bool)
    shown = scores.masked_fill(~allowed, -torch.inf)
    if step == "softmax":
        shown = softmax(shown, dim=-1)
    for i, word in enumerate(line.words):
        y = ROWS + (n - 1 - i) * high
        _word(ax, word, line.after, y + high / 2, SMALL, "left", high - 1)
        for j, (x, end) in enumerate(line.edges):
            if not allowed[i, j]:
                style = {"fc": MASKED, "ec": "#aab4bf", "hatch": "//", "lw": 0}
                ax.add_patch(Rectangle((x, y), end - x, high, **style))
                continue
            number = shown[i, j].item()
            text = f"{number:g}"
            if step == "softmax":
                once = j == 0 or number > 1.5 * shown[i, 0].item()
                text = fixed(number, 2) if once else ""
            ground = HEAT(min(1.0, number if step == "softmax" else abs(number) / 6))
            strong = bool(number) and step != "softmax"
            _cell(ax, x, y, end - x, high, ground if number else "white", text, strong)
    left = line.edges[0][0]
    right = line.edges[-1][1]
    ax.add_patch(Rectangle((left, ROWS), right - left, high, fill=False, ec=INK, lw=2.5, zorder=6))
    if step == "mask":
        middle = {"ha": "center", "va": "center", "size": 44, "weight": "bold", "color": QUIET}
        halo = [withStroke(linewidth=8, foreground="white")]
        ax.text(0.72 * right, ROWS + 0.72 * n * high, "−∞", path_effects=halo, **middle)
    return shown
