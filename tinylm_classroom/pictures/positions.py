"""The pictures of lesson 06: what a last word looks at, a head that learns to count to two, waves,
a rotation, and what becomes of positions and distances beyond those of the training.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from torch import Tensor

from ..display.figures import arrow, axes, display, drawing
from ..display.theme import HEAT, INK, QUIET, SERIES, SIGNED
from .lettering import hide_axes, set_type, side_by_side

_MARKERS = "sod"


def last_looks(sentences: Sequence[Sequence[str]], weights: Sequence[Sequence[float]]) -> None:
    """Shows the attention weights of the last word of each sentence, on the words in their order.

    Two sentences are joined word by word.
    """
    names = ["the same weight for each word, wherever it is"]
    title = "The last word looks at all words" if len(sentences) == 1 else "Same word, same weight"
    with axes(title, "word", "weight", (11.4, 0.7 + 1.4 * len(sentences))) as (figure, ax):
        places = [{word: x for x, word in enumerate(words)} for words in sentences]
        for y, (words, row) in enumerate(zip(sentences, weights, strict=True)):
            for x, (word, weight) in enumerate(zip(words, row, strict=True)):
                ground = HEAT(min(0.5, 2 * weight))
                says = {"ha": "center", "va": "center", "color": INK}
                box = {"boxstyle": "round,pad=0.3", "facecolor": ground, "edgecolor": QUIET}
                ax.text(x, -1.6 * y, word, size=20, bbox=box, zorder=4, **says)
                ax.text(x, -1.6 * y - 0.5, f"{weight:.2f}", size=19, **says)
        for word, x in places[0].items() if len(places) > 1 else ():
            across = places[1][word]
            color = SERIES[1] if across != x else QUIET
            ends = ([x, across], [-0.66, -1.25])
            ax.plot(*ends, color=color, lw=2.5 if across != x else 1.2, linestyle="-")
        ax.set(xlim=(-0.6, len(sentences[0]) - 0.4), ylim=(-1.6 * len(sentences) + 0.85, 0.5))
        hide_axes(ax)
    told = "; ".join(
        " ".join(f"{word} {weight:.2f}" for word, weight in zip(words, row, strict=True))
        for words, row in zip(sentences, weights, strict=True)
    )
    n = len(sentences)
    table: dict[str, list] = {"word": list(sentences[0]), "weight": list(weights[0])}
    if n > 1:
        table["in the other sentence"] = [weights[1][places[1][word]] for word in sentences[0]]
    display(
        figure,
        alt=f"{title}. The weights of the last word: {told}.",
        caption="Where the full stop looks, in one layer of attention without positions: "
        + (names[0] if n > 1 else "its weights for the words before it, and for itself")
        + ".",
        table=table,
        digits=2,
    )


def counting(maps: Mapping[str, Mapping[int, Tensor]], back: int) -> None:
    """Shows attention maps (T, S) by kind of model, a row of maps each, and number of updates."""
    moments = list(next(iter(maps.values())))
    with drawing(11.4, 6.3, axes_grid=False) as figure:
        grid = figure.subplots(len(maps), len(moments), sharex=True, sharey=True)
        for y, (row, (name, of_kind)) in enumerate(zip(grid, maps.items(), strict=True)):
            for ax, (n, weights) in zip(row, of_kind.items(), strict=True):
                ax.imshow(weights[:16, :16].numpy(), cmap=HEAT, vmin=0, vmax=1)
                ax.set(xticks=[0, 5, 10, 15], yticks=[0, 5, 10, 15])
                when = "" if y else f"{n} updates"
                ax.set_title(when, size=20, weight="normal", loc="center")
                ax.tick_params(labelsize=20)
            row[0].set_ylabel(name, size=20)
        figure.supxlabel("looks at position", size=20)
    found = {
        f"weight {back} back, {name}": [each.diagonal(-back).mean().item() for each in row.values()]
        for name, row in maps.items()
    }
    display(
        figure,
        alt=(
            f"{len(maps)} rows of attention maps, after {', '.join(map(str, moments))} updates. "
            "Without positions they stay blurred. With positions a dark diagonal line appears: "
            f"each position looks {back} back."
        ),
        caption=(
            "Each row of a map shows where one position looks. Without positions (above) no line "
            f"appears; with positions (below) every position learns to look {back} back."
        ),
        table={"updates": moments, **found},
        digits=2,
    )


def waves(table: Tensor) -> None:
    """Shows the rows (positions, d) of sinusoidal positions as a heat map."""
    title = "Fast waves at the left, slow ones at the right"
    n, d = table.shape
    with axes(title, "number in the row", "position", (10.8, 5.2)) as (figure, ax):
        image = ax.imshow(table.numpy(), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto")
        bar = figure.colorbar(image, ax=ax, ticks=[-1, 0, 1])
        bar.ax.tick_params(labelsize=19)
        ax.grid(visible=False)
        set_type(ax, 19)
        ax.title.set_size(22)
    seen = [0, 1, 6, n - 1]
    display(
        figure,
        alt=(
            f"A heat map of {n} rows and {d} columns: the columns at the left change their colour "
            "every few rows, those at the right hardly change."
        ),
        caption=(
            "One row for each position. The first pair of columns repeats after about 6 positions; "
            f"the last pairs have not finished a full circle in {n}."
        ),
        table={
            "position": seen,
            **{f"number {i}": table[seen, i].tolist() for i in (0, 1, d // 2, d - 2)},
        },
        digits=2,
    )


def circle(tips: Sequence[Sequence[float]]) -> None:
    """Shows one pair of numbers at position 0, 1, 2 and so on as arrows from the origin."""
    title = "Each position rotates it further"
    with axes(title, "first number", "second number", (6.6, 6.4)) as (figure, ax):
        around = [2 * math.pi * i / 200 for i in range(201)]
        ring = ([math.cos(a) for a in around], [math.sin(a) for a in around])
        ax.plot(*ring, color=QUIET, linewidth=1.2, linestyle="-")
        for p, (x, y) in enumerate(tips):
            arrow(ax, (0, 0), (x, y), letter="C", width=2.8)
            ax.text(1.17 * x, 1.17 * y, f"{p}", ha="center", va="center", size=22, weight="bold")
        ax.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[-1, 0, 1])
        ax.set(yticks=[-1, 0, 1])
        set_type(ax, 21)
        ax.set_title(title, size=21)
    display(
        figure,
        alt=f"{len(tips)} arrows on a circle, numbered from 0, each rotated by 1 radian further.",
        caption=(
            "The same pair of numbers at seven positions. The length stays, and the direction "
            "shows the position. At 6 the circle is nearly closed."
        ),
        table={
            "position": list(range(len(tips))),
            "first": [x for x, _ in tips],
            "second": [y for _, y in tips],
        },
        digits=2,
    )


def beyond(runs: Mapping[str, Sequence[Tensor]], back: int, trained: int) -> None:
    """Shows how often heads are right by position, a dot for each run: {kind: right (T - back) of
    each}. trained: the length of the texts that they learned from.
    """
    spans = [(back, trained)]
    while spans[-1][1] < len(next(iter(runs.values()))[0]) + back:
        spans.append((spans[-1][1], spans[-1][1] + trained))
    found = {
        kind: [[r[a - back : b - back].mean().item() for r in each] for a, b in spans]
        for kind, each in runs.items()
    }
    labels = [f"{a} to {b - 1}" for a, b in spans]
    title = "Only rotary is right at positions it never saw"
    with axes(title, "positions", "guesses that are right", (11.4, 5.8)) as (figure, ax):
        ax.axvspan(-0.5, 0.5, color=QUIET, alpha=0.12)
        ax.text(-0.45, 0.5, f"trained:\n{trained} positions", size=19, color=INK, va="center")
        for i, (kind, rows) in enumerate(found.items()):
            style = {"marker": _MARKERS[i % 3], "ms": 13, "color": SERIES[i], "linestyle": "none"}
            for place, row in enumerate(rows):
                _side_by_side(ax, place + 0.24 * (i - 1), row, style)
            ax.plot([], [], label=kind, **style)
        ax.set_xticks(range(len(labels)), labels)
        ax.set(ylim=(-0.05, 1.08), xlim=(-0.5, len(labels) - 0.5), yticks=[0, 0.5, 1])
        set_type(ax, 20)
        ax.title.set_size(22)
        figure.legend(loc="outside lower center", ncols=3, fontsize=20)
    seen = {kind: [f"{min(row):.2f} to {max(row):.2f}" for row in of] for kind, of in found.items()}
    told = "; ".join(f"{kind}: {', '.join(rows)}" for kind, rows in seen.items())
    n = len(next(iter(runs.values())))
    display(
        figure,
        alt=f"{title}. Fraction of right guesses at the positions {', '.join(labels)}. {told}.",
        caption=(
            f"A dot is a head, {n} of each kind with seeds of their own, trained on texts of "
            f"{trained} tokens. At each position it sees the last {trained} tokens, as many as in "
            "its training."
        ),
        table={"positions": labels, **seen},
    )


def long_texts(lines: Mapping[str, Sequence[Tensor]], step: int, trained: int) -> None:
    """Shows losses by position in long texts, a dot for each set of texts: {how they are read: (B,
    T) of each set}, averaged over `step` positions at a time.
    """
    found = {}
    for name, sets in lines.items():
        found[name] = [losses.mean(0).unflatten(0, (-1, step)).mean(1) for losses in sets]
    n = len(next(iter(found.values()))[0])
    title = "Beyond its training the loss rises"
    if len(lines) > 1:
        title = "With a window, most of the rise is gone"
    with axes(title, "position in the text", "loss, nats per token", (11.4, 5.8)) as (figure, ax):
        ax.axvspan(0, trained, color=QUIET, alpha=0.12)
        ax.text(trained / 2, 1.62, "as long as\nin training", size=19, ha="center", va="center")
        at = [step * (i + 0.5) for i in range(n)]
        for i, (name, rows) in enumerate(found.items()):
            color = SERIES[1 - i]
            for row in rows:
                ax.plot(at, row, _MARKERS[1 - i], ms=12, color=color)
            middle = [sum(row[j].item() for row in rows) / len(rows) for j in range(n)]
            ax.plot(at, middle, color=color, lw=3, linestyle="-")
            end = {"color": color, "size": 20, "va": "center"}
            ax.text(step * n + 4, middle[-1], name.replace(" ", "\n", 1), **end)
        ax.set(xlim=(0, 1.24 * step * n), ylim=(0, 1.9), yticks=[0, 0.5, 1, 1.5])
        ax.set_xticks([trained * i for i in range(step * n // trained + 1)])
        set_type(ax, 20)
        ax.title.set_size(22)
    spans = [f"{step * i} to {step * i + step - 1}" for i in range(n)]
    table: dict[str, list] = {"positions": spans}
    for name, rows in found.items():
        table[name] = [f"{sum(row[j].item() for row in rows) / len(rows):.2f}" for j in range(n)]
    told = "; ".join(f"{name}: {', '.join(table[name])}" for name in lines)
    n_texts = len(next(iter(lines.values()))[0])
    display(
        figure,
        alt=f"{title}. The loss by position, {step} at a time. {told}.",
        caption=(
            f"The shipped model reads texts of {step * n} tokens; each dot is the mean of a set of "
            f"{n_texts} texts over {step} positions, and the lines are the means of the "
            f"{len(next(iter(found.values())))} sets."
        ),
        table=table,
    )


def _side_by_side(ax: Axes, at: float, values: Sequence[float], style: dict) -> None:
    """A dot for each value, a little apart."""
    ax.plot(side_by_side(at, len(values), 0.035), values, **style)
