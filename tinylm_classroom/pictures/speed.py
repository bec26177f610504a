"""The pictures of lesson 14: the operations of one token, roofs, an update next to its products,
tiles of attention, and what a change is worth.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import torch
from matplotlib.axes import Axes
from torch import Tensor

from ..display.figures import axes, display, drawing
from ..display.numbers import measured
from ..display.theme import INK, QUIET, SERIES
from ..experiments.speed import Operation, intensity_in_bf16

_TITLE = 23
_LABEL = 19
_WORD = 19
_INSIDE = 20
_ROWS = 4
_PALE = "#b9c4cf"
# FLOPs and bytes per second. Source: NVIDIA 2021, A100 Tensor Core GPU data sheet (bf16, 80 GB).
A100 = (312e12, 2e12)


def timeline(operations: Sequence[Operation]) -> None:
    """Shows each operation of a piece of work as a box over its time, in a few rows."""
    end = operations[-1].end
    row = end / _ROWS
    products = sum(each.is_product for each in operations)
    with axes("One token: many short operations, few products", "", "", (11, 4.8)) as (figure, ax):
        for each in operations:
            color = SERIES[0] if each.is_product else SERIES[1]
            for line, start, stop in _pieces(each, row):
                ax.barh(line, stop - start, left=start, height=0.62, color=color, ec="white", lw=1)
        ax.set(xlim=(0, row), ylim=(_ROWS - 0.45, -0.85))
        ax.set_title("One token: many short operations, few products", size=_TITLE)
        ax.set_xlabel("microseconds, with the profiler; the rows follow each other", size=_LABEL)
        ax.set_ylabel("row", size=_LABEL)
        ax.set_yticks(range(_ROWS), range(1, _ROWS + 1), size=_WORD)
        ax.tick_params(labelsize=_WORD)
        ax.grid(visible=False)
        style = {"size": _INSIDE, "weight": "bold", "va": "center"}
        ax.text(0, -0.6, "products and attention", color=SERIES[0], **style)
        ax.text(0.42 * row, -0.6, "everything else", color=SERIES[1], **style)
        ax.text(0.72 * row, -0.6, "white: gaps", color=INK, **style)
    within = {
        name: sum(each.end - each.start for each in operations if each.is_product is wanted)
        for name, wanted in (("products", True), ("everything else", False))
    }
    rest = end - sum(within.values())
    counts = [products, len(operations) - products]
    display(
        figure,
        alt=(
            "Boxes along the time of one token, in four rows that follow each other: a box for "
            "each operation, short ones in two colours, with white gaps between them."
        ),
        caption=(
            "What PyTorch does for one token, recorded by a profiler, which makes everything about "
            "twice as slow. Read the number and the order of the boxes, not the microseconds: in "
            "the gaps Python and the profiler work."
        ),
        table={
            "": ["products and attention", "everything else", "gaps"],
            "operations": [*(measured(n, "operations", 1, 10_000) for n in counts), ""],
            "time": [measured(took, "µs", 1, 1e6) for took in (*within.values(), max(rest, 1.0))],
        },
    )


def _pieces(operation: Operation, row: float) -> list[tuple[int, float, float]]:
    """The parts of an operation in each row of the time."""
    first = int(operation.start // row)
    last = min(_ROWS - 1, int(operation.end // row))
    found = []
    for line in range(first, last + 1):
        start = max(operation.start - line * row, 0.0)
        found.append((line, start, min(operation.end - line * row, row)))
    return found


def roof(peak: float, bandwidth: float, points: Mapping[str, tuple[float, float, float]]) -> None:
    """Shows measured work, by its name FLOPs, bytes and seconds, below the roof of this machine."""
    drawn = {name: (flops / n, flops / took) for name, (flops, n, took) in points.items()}
    with drawing(11.2, 6) as figure:
        ax = figure.subplots()
        bottom = min(rate for _, rate in drawn.values()) / 6e9
        _roof_lines(ax, peak / 1e9, bandwidth / 1e9, (0.01, 1000), bottom)
        for name, (intensity, rate) in drawn.items():
            adds = "+" in name
            ax.plot(intensity, rate / 1e9, "o", markersize=14, color=SERIES[2 if adds else 1])
            ax.annotate(
                name.partition(" at")[0],
                (intensity, rate / 1e9),
                (11, -24),
                textcoords="offset points",
                size=_WORD,
            )
        ax.set_ylim(bottom, 3 * peak / 1e9)
        ax.set_title("One token is far below the peak, many come nearer", size=_TITLE)
        ax.set_ylabel("billion FLOPs per second", size=_LABEL)
    display(
        figure,
        alt=(
            "A roofline, both axes logarithmic: a slope that becomes a ceiling, with points for an "
            "addition at the left and for a linear map of 1, 4, 16, 64 and 256 tokens further and "
            "further to the right."
        ),
        caption=(
            "The line is the most that the measured bandwidth and peak allow; the points are "
            "measured work, a linear map of 4096 features for so many tokens at once. The line is "
            "what is possible: work can be well below it."
        ),
        table={
            "work": list(drawn),
            "FLOPs per byte": [intensity for intensity, _ in drawn.values()],
            "measured": [
                measured(rate / 1e9, "billion/s", 1e-3, 50_000) for _, rate in drawn.values()
            ],
            "of the roof": [
                measured(100 * rate / min(peak, bandwidth * i), "%", 0.1, 1000)
                for i, rate in drawn.values()
            ],
        },
    )


def gpu(tokens: int, width: int, others: Sequence[tuple[int, int]]) -> None:
    """Shows where a linear map is on the roof of an A100, strong, and other settings of it, pale.

    others: (tokens, width) each.
    """
    peak, bandwidth = A100
    intensity = intensity_in_bf16(tokens, width)
    most = min(peak, bandwidth * intensity)
    with drawing(10, 5.2) as figure:
        ax = figure.subplots()
        _roof_lines(ax, peak / 1e12, bandwidth / 1e12, (0.4, 4000), 0.1)
        for each in others:
            x = intensity_in_bf16(*each)
            y = min(peak, bandwidth * x) / 1e12
            ax.plot(x, y, "o", markersize=13, color=_PALE, zorder=3)
        ax.plot(intensity, most / 1e12, "o", markersize=22, color=SERIES[1], zorder=5)
        said = f"{most / peak:.1%}" if most < peak else "100%"
        ax.annotate(
            f"{said} of the peak",
            (intensity, most / 1e12),
            (16, -30) if intensity < 100 else (-16, -42),
            textcoords="offset points",
            size=_INSIDE,
            weight="bold",
            color=SERIES[1],
            ha="left" if intensity < 100 else "right",
        )
        ax.set_ylim(0.1, 900)
        name = "token" if tokens == 1 else "tokens"
        ax.set_title(f"{tokens} {name} at once, {width} features", size=_TITLE)
        ax.set_ylabel("trillion FLOPs per second", size=_LABEL)
    display(
        figure,
        alt=f"The roofline of an A100, one strong point at {intensity:.0f} FLOPs per byte.",
        caption="Strong: this product. Pale: all other settings. The roof: its data sheet.",
        table={"FLOPs per byte": [intensity], "trillion FLOPs/s, at most": [most / 1e12]},
    )


def _roof_lines(
    ax: Axes, peak: float, bandwidth: float, ends: tuple[float, float], bottom: float
) -> None:
    meet = peak / bandwidth
    over = torch.tensor([ends[0], meet, ends[1]])
    line = (bandwidth * over).clamp(max=peak)
    ax.fill_between(over, line, 1e-4, color=SERIES[0], alpha=0.1, linewidth=0)
    ax.plot(over, line, color=SERIES[0], linewidth=4)
    ax.axvline(meet, color=INK, linestyle=":", linewidth=2)
    style = {"size": _WORD, "weight": "bold"}
    ax.text(meet / 1.3, bottom * 1.4, "the memory limits", ha="right", **style)
    ax.text(meet * 1.3, bottom * 1.4, "the processor limits", **style)
    ax.set(xscale="log", yscale="log", xlim=ends)
    ax.set_xlabel("FLOPs per byte", size=_LABEL)
    ax.tick_params(labelsize=_WORD)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")


def update(spent: Mapping[str, float], best: Mapping[str, float]) -> None:
    """Shows the seconds of each part of an update, and those of its products at the peak."""
    total = sum(spent.values())
    times = total / sum(best.values())
    hues = dict(zip(spent, (SERIES[4], SERIES[0], SERIES[1], QUIET, SERIES[2]), strict=True))
    title = "An update takes longer than its products alone"
    with axes(title, "", "", (11, 3.9)) as (figure, ax):
        for row, parts in enumerate((best, spent)):
            left = 0.0
            for part, seconds in parts.items():
                ax.barh(row, 1000 * seconds, left=1000 * left, height=0.62, color=hues[part])
                left += seconds
        ax.set_yticks([0, 1], ["at the peak", "measured"], size=_WORD)
        ax.text(
            1000 * sum(best.values()) + 12 * total,
            0,
            f"{1 / times:.0%} of the measured time",
            size=_INSIDE,
            weight="bold",
            va="center",
        )
        left = 0.0
        for part, seconds in spent.items():
            if seconds > 0.08 * total:
                middle = 1000 * (left + seconds / 2)
                ax.text(
                    middle, 1.52, part, size=_WORD, color=hues[part], ha="center", weight="bold"
                )
            left += seconds
        ax.set_title(title, size=_TITLE)
        ax.set_xlabel("milliseconds", size=_LABEL)
        ax.set_ylabel("update", size=_LABEL)
        ax.set(ylim=(-0.5, 1.85), xlim=(0, 1020 * total))
        ax.tick_params(labelsize=_WORD)
        ax.grid(visible=False, axis="y")
    display(
        figure,
        alt=(
            "Two bars in one scale. The upper one is a measured update, in pieces. The lower one, "
            "far shorter, is the time that the products of forward and backward would take at the "
            "machine's peak."
        ),
        caption=(
            "Above: one update, the median of several. Below: all products of its forward and "
            "backward pass, if each ran at the peak."
        ),
        table={
            "part": [*spent, "all"],
            "time": [measured(1000 * s, "ms", 1e-4, 60_000) for s in (*spent.values(), total)],
        },
    )


def tiles(weights: Tensor, size: int = 6) -> None:
    """Shows attention weights (T, S) in tiles, numbered in the order in which they are computed."""
    n = len(weights) // size
    order = [(row, column) for row, column in product(range(n), repeat=2) if column <= row]
    with drawing(8.2, 5.7) as figure:
        ax = figure.subplots()
        shown = weights.clone()
        shown[torch.ones_like(weights, dtype=torch.bool).triu(1)] = 0.0
        ax.imshow(shown.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1.6)
        for row in range(n):
            for column in range(n):
                done = (row, column) in order
                ax.text(
                    size * column + (size - 1) / 2,
                    size * row + (size - 1) / 2,
                    order.index((row, column)) + 1 if done else "skipped",
                    size=26 if done else _WORD,
                    weight="bold" if done else "normal",
                    color=INK if done else QUIET,
                    ha="center",
                    va="center",
                )
        for edge in range(1, n):
            ax.axhline(size * edge - 0.5, color=INK, linewidth=2)
            ax.axvline(size * edge - 0.5, color=INK, linewidth=2)
        ax.grid(visible=False)
        ticks = range(0, len(weights), size)
        ax.set(xticks=ticks, yticks=ticks)
        ax.tick_params(labelsize=_WORD)
        ax.set_title(f"{len(order)} tiles computed, {n * n - len(order)} skipped", size=_TITLE)
        ax.set_xlabel("key", size=_LABEL)
        ax.set_ylabel("query", size=_LABEL)
    display(
        figure,
        alt=(
            f"A table of attention weights, cut into {n} by {n} tiles. Those on and below the "
            "diagonal are numbered, those above it are skipped."
        ),
        caption=(
            "Only one tile at a time has to be in the processor's small fast memory. The tiles "
            "above the diagonal are completely masked, so nobody computes them."
        ),
        table={"tiles": ["computed", "skipped"], "how many": [len(order), n * n - len(order)]},
    )


def changes(faster: Mapping[str, Mapping[str, float]]) -> None:
    """Shows how many times as fast each change makes each model: {change: {model: times}}."""
    models = [*next(iter(faster.values()))]
    title = "A change must move the limit to help"
    with axes(title, "", "", (11, 1.6 + 1.2 * len(faster))) as (figure, ax):
        for row, times in enumerate(faster.values()):
            for i, (model, hue) in enumerate(zip(models, SERIES, strict=False)):
                y = row + 0.2 - 0.4 * i
                ax.plot(
                    [1, times[model]],
                    [y, y],
                    "-",
                    color=hue,
                    linewidth=9,
                    alpha=0.5,
                    solid_capstyle="butt",
                )
                ax.plot(times[model], y, "o", color=hue, markersize=17)
                _beside(ax, times[model], y, hue)
        ax.axvline(1, color=INK, linewidth=2.5)
        highest = max(max(times.values()) for times in faster.values())
        lowest = min(min(times.values()) for times in faster.values())
        ax.set(xscale="log", xlim=(min(0.5, lowest / 2), max(4, 2.2 * highest)))
        ax.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16], ["1/4", "1/2", "1", "2", "4", "8", "16"])
        ax.set_xlim(min(0.5, lowest / 2), max(4, 2.2 * highest))
        ax.minorticks_off()
        ax.set_ylim(-0.6, len(faster) + 0.05)
        ax.set_yticks(range(len(faster)), faster, size=_WORD)
        for model, hue, x in zip(models, SERIES, (0.02, 0.14), strict=False):
            ax.text(
                x,
                0.94,
                model,
                color=hue,
                size=_INSIDE,
                weight="bold",
                transform=ax.transAxes,
                va="center",
            )
        ax.set_title(title, size=_TITLE)
        ax.set_xlabel("times as fast (tokens per second)", size=_LABEL)
        ax.set_ylabel("change", size=_LABEL)
        ax.tick_params(labelsize=_WORD)
        ax.grid(visible=False, axis="y")
    display(
        figure,
        alt=(
            "For each change and each of two models a point: how many times as many tokens per "
            "second. A line marks 1, as fast as before."
        ),
        caption="Right of the line the change made the model faster, left of it slower.",
        table={
            "change": [*faster],
            **{
                model: [measured(times[model], "times", 0.01, 100) for times in faster.values()]
                for model in models
            },
        },
    )


def _beside(ax: Axes, times: float, y: float, hue: str) -> None:
    """Writes how many times as fast next to its point, away from the line of 1."""
    slower = times < 1
    ax.annotate(
        f"{times:.1f} x" if times < 10 else f"{times:.0f} x",
        (times, y),
        (-16 if slower else 16, 0),
        textcoords="offset points",
        size=_INSIDE,
        va="center",
        ha="right" if slower else "left",
        color=hue,
        weight="bold",
    )
