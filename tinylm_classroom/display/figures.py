"""The figures of the series, in the style of `theme`: one helper adds alt text, caption and
numbers.
"""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from itertools import product
from typing import Any

import numpy as np
from IPython.display import publish_display_data
from matplotlib import pyplot, style
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from .cards import fold, inline, number_table, unmarked
from .numbers import fixed, marked, rounded
from .theme import AXIS_COLORS, HEAT, IN_THE_DARK, INK, LINE, QUIET, SERIES, SIGNED, STYLE, SURFACES

PIXELS_PER_INCH = 96
SHARPNESS = 1.5
TABLE_ROWS = 8
CELL_INCHES = 0.62
CELL_POINTS = 13
UPRIGHT = 5  # letters of a name that fit above a cell
PAGE_INCHES = 10.6
WORD_POINTS = 13
# of a ramp in a flat picture: two numbers that differ by a tenth of it have two colours
RAMP_STEPS = 10
COLORS = 256  # of any other picture: it looks the same, in a third of the bytes
TINTS = (0.5, 0.2)  # of a colour on white: the edges of its lines, and its fills
MASKED = SURFACES["soft"].light
# Of JupyterLab; an untrusted notebook strips it, and a white card stays.
DARK_NOTEBOOK = f"<style>[data-jp-theme-light=false] figure>img{{{IN_THE_DARK}}}</style>"
# relative luminance below which white has more contrast than black: sqrt(1.05 * 0.05) - 0.05
DARK = 0.179


@contextmanager
def drawing(width: float, height: float, **settings: Any) -> Iterator[Figure]:
    """An empty figure in the style of the series, to be drawn inside the `with` block; its size is
    in inches.

    settings: more of matplotlib's, with `_` for `.` in their names.
    """
    with style.context(
        ["default", STYLE, {name.replace("_", ".", 1): value for name, value in settings.items()}]
    ):
        yield Figure(figsize=(width, height), layout="constrained")


@contextmanager
def axes(
    title: str, x: str, y: str, size: tuple[float, float] = (8.6, 4.6)
) -> Iterator[tuple[Figure, Axes]]:
    """A titled, labelled figure and its axes, to be drawn inside the `with` block; size in inches,
    96 pixels each.
    """
    with drawing(*size) as figure:
        ax = figure.subplots()
        ax.set(title=title, xlabel=x, ylabel=y)
        yield figure, ax


def display(
    figure: Figure, *, alt: str, caption: str, table: Mapping[str, Sequence[Any]], digits: int = 3
) -> None:
    """Displays the figure with alt text, caption and its numbers as a foldable table, and closes
    it.

    table: the columns by their heading, all equally long; floats are rounded to `digits`
    significant digits.
    Raises: ValueError if anything a reader needs is missing.
    """
    ax = figure.axes[0] if figure.axes else None
    x = (ax and ax.get_xlabel()) or figure.get_supxlabel()
    if not (ax and ax.get_title(loc="left") + ax.get_title() and x and ax.get_ylabel()):
        raise ValueError(
            "a figure needs a title and two axis labels: make it with `axes(title, x, y)`"
        )
    if not alt.strip() or not caption.strip():
        raise ValueError(
            "a figure needs an alt text (what it shows) and a caption (what to see in it)"
        )
    lengths = {len(column) for column in table.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "a figure needs its numbers: table={'step': [...], 'loss': [...]}, columns equally long"
        )
    rows = zip(*table.values(), strict=True)
    cells = (
        [rounded(cell, digits) if isinstance(cell, float) else str(cell) for cell in row]
        for row in rows
    )
    _publish(figure, alt, caption, number_table(list(table), cells))
    pyplot.close(figure)


def _publish(figure: Figure, alt: str, caption: str, numbers: str) -> None:
    html = framed(figure, alt, caption, numbers)
    publish_display_data({"text/html": html, "text/plain": f"Figure: {alt}\n{unmarked(caption)}"})


def framed(
    figure: Figure,
    alt: str,
    caption: str,
    numbers: str,
    *,
    flat: bool = False,
    sharpness: float = SHARPNESS,
) -> str:
    """The HTML of a figure: its picture with alt text, its caption, and its numbers, which are HTML
    too, folded.

    flat: keep only the colours of `palette`, which makes the picture of a view a third of the size.
    sharpness: pixels of the picture for one of the page.
    """
    below = fold("The numbers", f'<div style="overflow-x:auto">{numbers}</div>')
    below = f'<figcaption style="margin:6px 2px">{inline(caption)}</figcaption>{below}'
    picture = DARK_NOTEBOOK + _image(figure, alt, flat, sharpness)
    return f'<figure style="margin:4px 0 12px">{picture}{below}</figure>'


def loss_curve(
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    levels: Mapping[str, float] | None = None,
    *,
    caption: str,
    title: str = "Loss while training",
    unit: str = "nats per token",
) -> None:
    """Shows losses over steps, {name: (steps, losses)}, and horizontal lines to compare with,
    {name: loss}.
    """
    levels = levels or {}
    with axes(title, "step (one update each)", f"loss ({unit})") as (figure, ax):
        ends = []
        for name, (steps, losses) in curves.items():
            (line,) = ax.plot(steps, losses, marker="o" if len(steps) <= TABLE_ROWS else "")
            ends.append((losses[-1], name, line.get_color()))
        for name, value in levels.items():
            ax.axhline(value, color=QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
            ends.append((value, f"{name} = {rounded(value, 3)}", QUIET))
        _name_at_the_right(ax, ends)
    courses = [
        f"{name} goes from {rounded(y[0], 2)} to {rounded(y[-1], 2)}"
        for name, (_, y) in curves.items()
    ]
    lines = [f"{name} lies at {rounded(value, 3)}" for name, value in levels.items()]
    alt = f"Line chart of the loss in {unit} over the steps: {'; '.join(courses + lines)}."
    display(figure, alt=alt, caption=caption, table=_loss_table(curves, levels), digits=2)


def heat_map(
    values: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    caption: str,
    y: str = "query: row",
    x: str = "key: column",
    limits: tuple[float, float] = (0.0, 1.0),
    digits: int = 2,
) -> None:
    """Shows a small matrix (len(rows), len(columns)) as shaded cells with their numbers; NaN is
    masked, and hatched.

    limits: the numbers of the lightest and the darkest colour. From -1 to 1, say, 0 is white and
    each sign has its hue.
    """
    values = np.asarray(values, dtype=float)
    (low, high) = limits
    size = (2.6 + CELL_INCHES * max(len(columns), 9), 2.2 + 0.72 * CELL_INCHES * len(rows))
    with axes(title, x, y, size) as (figure, ax):
        ax.grid(visible=False)
        cells(
            ax,
            values,
            (values - low) / (high - low),
            rows,
            [digits] * len(rows),
            SIGNED if low < 0 else HEAT,
        )
        slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(
            range(len(columns)), columns, **(slanted if max(map(len, columns)) > UPRIGHT else {})
        )
    ends = f"from {low:g} to {high:g}"
    alt = (
        f"Heat map: {title}. {y.partition(':')[0]} by row, {x.partition(':')[0]} by column, {ends}."
    )
    hatched = " Hatched is masked." if np.isnan(values).any() else ""
    numbers = (["" if np.isnan(value) else fixed(value, digits) for value in row] for row in values)
    table = number_table(
        ["", *columns], ([name, *row] for name, row in zip(rows, numbers, strict=True))
    )
    _publish(figure, alt, f"{caption} The colour goes {ends}.{hatched}", table)


def cells(
    ax: Axes,
    values: Any,
    shades: Any,
    rows: Sequence[str],
    digits: Sequence[int],
    hues: LinearSegmentedColormap = HEAT,
) -> None:
    """Draws numbers (R, S) in cells of these shades, 0 to 1 or NaN: hatched.

    digits: of each row.
    """
    shades = np.asarray(shades)
    ax.imshow(shades, cmap=hues, vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(np.asarray(values)):
        if np.isnan(shades[i, j]):
            ax.add_patch(
                Rectangle((j - 0.5, i - 0.5), 1, 1, fc=MASKED, ec=LINE, hatch="////", linewidth=0)
            )
            continue
        color = ink_on(hues(shades[i, j]))
        ax.text(
            j, i, fixed(value, digits[i]), ha="center", va="center", size=CELL_POINTS, color=color
        )
    ax.set_yticks(range(len(rows)), rows)
    unframed(ax)


def ink_on(ground: Sequence[float]) -> str:
    """The colour of text on a ground, red, green and blue from 0 to 1: white or black, which has
    more contrast.

    Source: Web Content Accessibility Guidelines 2.2, relative luminance.
    """
    level = np.asarray(ground[:3])
    linear = np.where(level <= 0.04045, level / 12.92, ((level + 0.055) / 1.055) ** 2.4)
    return "white" if linear @ (0.2126, 0.7152, 0.0722) < DARK else "black"


def shaded_words(
    words: Sequence[str],
    rows: Mapping[str, Sequence[float]],
    *,
    title: str,
    caption: str,
    limit: float,
    learned: bool = False,
) -> None:
    """Shows a text once for each row of numbers, {name: one per word}: the ground of a word is
    darker for a larger one.

    limit: the number of the darkest ground; at 0 it is nearly white.
    learned: the numbers come from a training, so they differ a little from machine to machine, and
    are marked.
    """
    letter = 0.602 * WORD_POINTS / 72  # inches, in DejaVu Sans Mono
    width = int((PAGE_INCHES - 0.3) / letter)
    places = []
    line = 0
    column = 0
    for word in words:
        if column + len(word) > width:
            line = line + 1
            column = 0
        places.append((line, column))
        column += len(word) + 1
    with drawing(PAGE_INCHES, 0.5 + len(rows) * (0.5 + 0.26 * (line + 1))) as figure:
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=19)
        for ax, (name, values) in zip(
            figure.subplots(len(rows), squeeze=False)[:, 0], rows.items(), strict=True
        ):
            ax.set(xlim=(-0.5, width + 0.5), ylim=(line + 0.5, -0.5))
            ax.set_title(name, size=15, weight="normal", pad=4)
            ax.axis("off")
            for word, (down, right), value in zip(words, places, values, strict=True):
                ground = HEAT(min(1.0, float(value) / limit))
                ax.add_patch(
                    Rectangle(
                        (right - 0.4, down - 0.44), len(word) + 0.8, 0.88, fc=ground, linewidth=0
                    )
                )
                style = {"family": "DejaVu Sans Mono", "size": WORD_POINTS, "color": ink_on(ground)}
                ax.text(right, down, word, va="center_baseline", **style)
    alt = (
        f"{title}: the text {len(rows)} times, each word on a ground that is darker for a larger "
        "number."
    )
    numbers = zip(words, *rows.values(), strict=True)
    shown = marked if learned else str
    table = ([word, *(shown(fixed(value, 1)) for value in values)] for word, *values in numbers)
    _publish(figure, alt, caption, number_table(["word", *rows], table))


def unframed(ax: Axes) -> None:
    """Leaves of the axes their names: no spines, no ticks."""
    ax.tick_params(length=0, colors=QUIET, labelcolor=INK)
    ax.spines[:].set_visible(False)


def box(ax: Axes, x: float, y: float, text: str, letter: str = "") -> None:
    """Draws a part of a model as a box around its name, framed in the colour of an axis letter or
    in ink.
    """
    frame = {
        "boxstyle": "round,pad=0.45",
        "facecolor": "white",
        "edgecolor": _color(letter),
        "linewidth": 2,
    }
    ax.text(x, y, text, ha="center", va="center", bbox=frame, zorder=6)


def arrow(
    ax: Axes,
    start: Sequence[float],
    end: Sequence[float],
    letter: str = "B",
    width: float = 2,
    bend: str | None = None,
) -> None:
    """Draws what flows from one part to the next, in the colour of an axis letter. bend: a
    connection style.
    """
    line = {
        "arrowstyle": "-|>",
        "color": _color(letter),
        "lw": width,
        "mutation_scale": 14 + 2 * width,
    }
    line |= {"shrinkA": 0, "shrinkB": 0} | ({"connectionstyle": bend} if bend else {})
    ax.annotate("", end, start, arrowprops=line)


def _color(letter: str) -> str:
    return AXIS_COLORS[letter].light if letter else INK


@cache
def palette() -> tuple[tuple[int, int, int], ...]:
    """The red, green and blue, 0 to 255, of every colour of a flat picture, each once, and the
    tints of its edges.
    """
    plain = [*SERIES, INK, QUIET, *(shade.light for shade in AXIS_COLORS.values())]
    named = [to_rgb(color) for color in (*plain, LINE, MASKED, "white", "black")]
    ramps = []
    for hues in (HEAT, SIGNED):
        ramps += [hues(step / RAMP_STEPS)[:3] for step in range(RAMP_STEPS + 1)]
    tints = []
    for color, part in product(plain, TINTS):
        tints.append([1 - part * (1 - level) for level in to_rgb(color)])
    colors = [*named, *ramps, *tints]
    return tuple(dict.fromkeys(tuple(round(255 * level) for level in color) for color in colors))


def _flat(drawn: Image.Image) -> Image.Image:
    """The picture in the nearest colours of the palette; it holds only those that it uses."""
    pixels = np.asarray(drawn.convert("RGB")).reshape(-1, 3)
    colors = np.array(palette())
    found, places = np.unique(pixels @ [1 << 16, 1 << 8, 1], return_inverse=True)
    levels = np.stack([found >> 16, found >> 8 & 255, found & 255], -1)  # (found, 3)
    nearest = np.square(levels[:, None] - colors).sum(-1).argmin(-1)
    used, numbers = np.unique(nearest, return_inverse=True)
    flat = Image.fromarray(numbers[places].reshape(drawn.height, drawn.width).astype(np.uint8))
    flat.putpalette(colors[used].ravel().tolist())
    return flat


def _quantized(drawn: Image.Image) -> Image.Image:
    """The picture in at most `COLORS` colours of its own."""
    method = Image.Quantize.MEDIANCUT
    return drawn.convert("RGB").quantize(COLORS, method, dither=Image.Dither.NONE)


def _image(figure: Figure, alt: str, flat: bool, sharpness: float) -> str:
    buffer = io.BytesIO()
    options = {"dpi": PIXELS_PER_INCH * sharpness, "pil_kwargs": {"compress_level": 1}}
    with style.context("default"):  # the layout, too, is computed with sizes of the style
        figure.savefig(buffer, format="png", facecolor="white", **options)
    drawn = Image.open(buffer)
    drawn = _flat(drawn) if flat else _quantized(drawn)
    buffer = io.BytesIO()
    drawn.save(buffer, format="png", optimize=True)
    width = round(figure.get_figwidth() * PIXELS_PER_INCH)
    points = min(
        text.get_fontsize()
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip()
    )
    card = "max-width:100%;height:auto;background:#fff;border:1px solid #c5ccd3;border-radius:10px"
    data = base64.b64encode(buffer.getvalue()).decode()
    facts = f'width="{width}" data-points="{points:g}" style="{card}"'
    return f'<img alt="{escape(alt)}" {facts} src="data:image/png;base64,{data}">'


def _loss_table(curves: Mapping[str, tuple], levels: Mapping[str, float]) -> dict[str, list]:
    values = {name: dict(zip(*curve, strict=True)) for name, curve in curves.items()}
    shown = set()
    for steps, _ in curves.values():
        shown.update(steps[at] for at in spread(len(steps)))
    steps = sorted(shown)
    table = {"step": [*steps, *levels]}
    for name, at in values.items():
        table[name] = [
            *(float(at[step]) if step in at else "" for step in steps),
            *map(float, levels.values()),
        ]
    return table


def spread(n: int, most: int = TABLE_ROWS) -> list[int]:
    """At most so many of the indices 0 to n - 1, evenly spread, with the first and the last."""
    return list(dict.fromkeys(round(i * (n - 1) / (most - 1)) for i in range(most))) if n else []


def _name_at_the_right(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    bottom, top = ax.get_ylim()
    gap = (top - bottom) / 15
    below = float("-inf")
    for height, name, color in sorted(ends):
        below = max(height, below + gap)
        ax.text(1.01, below, name, color=color, va="center", transform=ax.get_yaxis_transform())
