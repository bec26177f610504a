"""Pictures of queries that match keys: the shapes of attention, what training makes of the scores,
and how often it finds the right key.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from ..display.figures import axes, display, drawing
from ..display.theme import AXIS_COLORS, INK, QUIET, SERIES, SIGNED
from .lettering import hide_axes, set_type

MARKERS = "sod"
NAMES = ("red", "blue", "green", "pink", "gray", "white")


def shapes(q: Tensor, k: Tensor, weights: Tensor, v: Tensor, out: Tensor) -> None:
    """Shows the matrices of attention to scale: q (T, d_k), k (S, d_k), weights (T, S), v (S, d_v)
    and out (T, d_v).
    """
    hue = {
        "T": AXIS_COLORS["T"].light,
        "S": AXIS_COLORS["S"].light,
        "$d_k$": AXIS_COLORS["D"].light,
    }
    over = q.shape[0] + 1.6
    second = q.shape[1] + 2.2
    third = second + k.shape[0] + 2.2
    drawn = [
        ("q", q, 0, 0, "T", "$d_k$"),
        ("k,\ntransposed", k.mT, second, over, "$d_k$", "S"),
        ("scores; softmax\nalong each row:\nweights", weights, second, 0, "T", "S"),
        ("v", v, third, over, "S", "$d_v$"),
        ("result", out, third, 0, "T", "$d_v$"),
    ]
    title = "Sides of one colour have one length"
    with axes(title, "columns", "rows", (9.6, 5.9)) as (figure, ax):
        for name, matrix, x, y, rows, columns in drawn:
            height, width = matrix.shape
            corners = ([x, x + width, x + width, x], [y, y, y + height, y + height])
            ax.fill(*corners, "#eef3f9")
            side = hue.get(rows, INK)
            top = hue.get(columns, INK)
            ax.plot([x, x], [y, y + height], color=side, lw=6, linestyle="-")
            ax.plot([x, x + width], [y + height] * 2, color=top, lw=6, linestyle="-")
            ax.text(x - 0.3, y + height / 2, rows, color=side, ha="right", va="center", size=22)
            ax.text(x + width / 2, y + height + 0.3, columns, color=top, ha="center", size=22)
            ax.text(x + width / 2, y + height / 2, name, ha="center", va="center", size=19)
        ax.set(aspect="equal", xticks=[], yticks=[])
        hide_axes(ax)
    display(
        figure,
        alt=(
            "q (T, d_k) times k transposed (d_k, S) gives scores (T, S); their softmax times v "
            "(S, d_v) gives the result (T, d_v)."
        ),
        caption=(
            "To scale. A product has the rows of the matrix at its left and the columns of the "
            "matrix above it."
        ),
        table={
            "matrix": [name.replace("\n", " ") for name, *_ in drawn],
            "shape": [tuple(matrix.shape) for _, matrix, *_ in drawn],
        },
    )


def scores(
    before: Tensor,
    after: Tensor,
    names: Sequence[str] = NAMES,
    title: str = "Only the answer was given, and pink finds pink",
) -> None:
    """Shows two maps of scores side by side, queries by row and keys by column: before a training
    and after it.
    """
    with drawing(11.4, 5.6, axes_grid=False) as figure:
        both = figure.subplots(1, 2, sharey=True)
        for ax, shown, when in zip(
            both, (before, after), ("before training", "after"), strict=True
        ):
            image = ax.imshow(shown.numpy(), cmap=SIGNED, vmin=-6, vmax=6, aspect="auto")
            ax.set_xticks(range(len(names)), names, rotation=45, size=19)
            ax.set_yticks(range(len(names)), names, size=19)
            ax.set_title(when, size=20, weight="normal", loc="center")
        both[0].set_ylabel("the query's colour", size=19)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
        figure.supxlabel("the key's colour", size=19)
        bar = figure.colorbar(image, ax=both, ticks=[-6, 0, 6])
        bar.set_label("score", size=19)
        bar.ax.tick_params(labelsize=19)
    means = [f"{each.diagonal().mean().item():.0f}" for each in (before, after)]
    display(
        figure,
        alt=(
            f"{title}. Scores of {len(names)} query colours by {len(names)} key colours: without a "
            "pattern before training, with a high diagonal afterwards."
        ),
        caption=(
            "The score of each query for each key. Nobody wrote these numbers. Afterwards a query "
            "for a colour matches the key of this colour."
        ),
        table={"training": ["before", "after"], "mean score on the diagonal": means},
    )


def found(
    runs: Mapping[str, Mapping[float, Sequence[float]]],
    *,
    title: str,
    chance: float,
    x: str = "learning rate",
) -> None:
    """Shows the weight on the right key, a dot for each seed: {name: {x: one weight per seed}}."""
    with axes(title, x, "weight on the right thing", (10.4, 5.4)) as (figure, ax):
        for i, (name, row) in enumerate(runs.items()):
            style = {"ms": 13, "color": SERIES[i], "linestyle": "none"}
            for place, weights in enumerate(row.values()):
                shift = [0.24 * (i - 1) + 0.05 * (j - 1) for j in range(len(weights))]
                at = [place + each for each in shift]
                ax.plot(at, weights, MARKERS[i], **style)
            ax.plot([], [], MARKERS[i], label=name, **style)
        ax.axhline(chance, color=QUIET, lw=1.8, linestyle=":")
        labels = [f"{value:g}" for value in next(iter(runs.values()))]
        ax.set_xticks(range(len(labels)), labels)
        ax.text(len(labels) - 0.52, chance + 0.03, "chance", size=18, color=QUIET, ha="right")
        ax.set(ylim=(-0.05, 1.08), xlim=(-0.5, len(labels) - 0.5), yticks=[0, 0.5, 1])
        set_type(ax, 19)
        ax.title.set_size(22)
        figure.legend(loc="outside lower center", ncols=3, fontsize=19)
    rows = []
    for name, row in runs.items():
        for value, weights in row.items():
            rows.append((name, value, f"{min(weights):.1f} to {max(weights):.1f}"))
    told = "; ".join(f"{name}, {value:g}: {seen}" for name, value, seen in rows)
    display(
        figure,
        alt=f"{title}. Dots: {told}.",
        caption="A dot is a run, each with a seed of its own. The dotted line is chance.",
        table={
            "scores": [name for name, *_ in rows],
            x: [f"{value:g}" for _, value, _ in rows],
            "weights found": [seen for *_, seen in rows],
        },
    )
