"""The pictures of lesson 04: sizes on their way through a chain, which chains learn, what the rate
depends on, and what the two norms do to points in space.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from ..display.figures import axes, display, drawing
from ..display.numbers import learned, rounded
from ..display.theme import INK, LINE, QUIET, SERIES
from .lettering import LEVEL, set_type

_WITHOUT = SERIES[1]
_WITH = SERIES[0]
_OVERFLOWN = 1.36  # of the loss of guessing: where a loss is drawn that is not a number
_WIDE = (19, 13, 7)  # so that dots on the same place are rings


def sizes_on_the_way(chains: Mapping[str, Sequence[float]]) -> None:
    """Shows the size of a vector after each layer, a line for each chain; one whose name speaks of
    a norm has the colour of the norm.
    """
    title = "Small factors multiply"
    with axes(title, "layer", "size of the vector", (10.4, 5.2)) as (figure, ax):
        for name, sizes in chains.items():
            color = _WITH if "norm" in name else _WITHOUT
            ax.plot(range(len(sizes) + 1), [1.0, *sizes], color=color, linestyle="-", linewidth=3.5)
            at = len(sizes) + 0.4
            ax.text(at, sizes[-1], name.replace(", ", ",\n"), color=color, va="center", size=19)
        ax.set_yscale("log")
        ax.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        ax.minorticks_off()
        ax.set(xlim=(0, 32), ylim=(0.002, 200), xticks=[0, 8, 16, 24])
        set_type(ax, 19)
    ends = "; ".join(f"{name} ends at {rounded(sizes[-1], 2)}" for name, sizes in chains.items())
    table = {"layer": [1, 8, 16, 24]}
    table |= {name: [sizes[i] for i in (0, 7, 15, 23)] for name, sizes in chains.items()}
    display(
        figure,
        alt=f"The size of one vector after each of 24 layers, on a logarithmic scale: {ends}.",
        caption=f"On a logarithmic scale, a repeated factor is a straight line: {ends}.",
        table=table,
        digits=2,
    )


def starts(factors: Sequence[float], without: Tensor, with_norm: Tensor, guessing: float) -> None:
    """Shows the loss of each run without and with a norm, (factors, seeds): a dot for each seed.

    guessing: the loss of a chain that knows nothing, in nats.
    """
    with axes(
        "Without a norm, the start must be just right",
        "factor of each of the 24 layers at the start",
        "loss after 100 updates",
        (11.4, 6.2),
    ) as (figure, ax):
        ax.axhline(guessing, **LEVEL)
        ax.text(9.45, guessing - 0.08, "guessing", size=20, ha="right", va="top", color=QUIET)
        for losses, color, aside in ((without, _WITHOUT, -0.2), (with_norm, _WITH, 0.2)):
            for place, row in enumerate(losses):
                _dots(ax, place + aside, row, color, guessing * _OVERFLOWN)
        ax.text(6.6, 2.2, "without a norm", color=_WITHOUT, size=24, weight="bold", va="center")
        ax.text(6.6, 0.62, "with a norm", color=_WITH, size=24, weight="bold", va="center")
        top = guessing * _OVERFLOWN + 0.2
        says = {"color": _WITHOUT, "size": 20, "ha": "right", "va": "bottom"}
        ax.text(9.45, top, "overflow: NaN", **says)
        ax.set_xticks(range(len(factors)), [f"{factor:g}" for factor in factors], size=20)
        ax.set_yticks([0, 1, 2, 3], ["0", "1", "2", "3"], size=20)
        ax.set(ylim=(-0.2, guessing * _OVERFLOWN + 0.75), xlim=(-0.5, len(factors) - 0.5))
        ax.xaxis.label.set_size(20)
        ax.yaxis.label.set_size(20)
    n = without.shape[1]
    display(
        figure,
        alt=(
            f"A dot for each of {n} seeds: the loss of a chain over its factor at the start. "
            "Without a norm it is low at the factor 1 for every seed; it is that of guessing for "
            "small factors and NaN for large ones. With a norm it is low for every seed from 0.7 "
            "to 2, and high at 0.4 and 0.5."
        ),
        caption=(
            f"Each dot is one chain of 24 layers, {n} seeds for each factor. Orange: without a "
            "norm only the factor 1 learns with every seed. Blue: with a norm all factors from 0.7 "
            "to 2 do."
        ),
        table={
            "factor": [*factors],
            "without a norm": [_shown(row) for row in without],
            "with a norm": [_shown(row) for row in with_norm],
        },
    )


def one_curve(rates: Sequence[float], losses: Mapping[float, Tensor]) -> None:
    """Shows the losses of chains with a norm, {factor: (rates, seeds)}, over the rate, and over the
    rate divided by the square of the factor.
    """
    with drawing(12.4, 5.6) as figure:
        sides = figure.subplots(1, 2, sharey=True)
        for at, (factor, rows) in enumerate(losses.items()):
            for ax, divisor in zip(sides, (1.0, factor**2), strict=True):
                for rate, row in zip(rates, rows, strict=True):
                    x = [rate / divisor] * len(row)
                    ax.plot(x, row, "o", color=SERIES[at], markersize=_WIDE[at])
                middle = rows.median(dim=1).values
                x = [rate / divisor for rate in rates]
                ax.plot(x, middle, color=SERIES[at], linestyle="-", linewidth=2, alpha=0.6)
            mark = {"color": SERIES[at], "markersize": _WIDE[at]}
            sides[0].plot([], [], "o", label=f"factor {factor:g}", **mark)
        for ax, over in zip(sides, ("rate", "rate / factor squared"), strict=True):
            ax.set_xscale("log")
            ax.set_xlabel(f"learning {over}" if over == "rate" else over, size=20)
            ax.set(ylim=(-0.15, 3.7))
            ax.minorticks_off()
            marks = (0.001, 0.01, 0.1, 1, 10)
            ax.set_xticks(marks, [f"{mark:g}" for mark in marks], size=20)
            ax.tick_params(axis="y", labelsize=20)
        sides[0].set_ylabel("loss after 100 updates", size=20)
        sides[0].legend(
            frameon=False,
            loc="upper center",
            ncols=3,
            fontsize=20,
            columnspacing=0.6,
            handletextpad=0.1,
        )
        sides[0].set_title("Three factors, three curves ...", size=22)
        sides[1].set_title("... and over rate / size², one", size=22)
    table: dict[str, list] = {"rate": [f"{rate:.3g}" for rate in rates]}
    for factor, rows in losses.items():
        table[f"factor {factor:g}"] = [_shown(row) for row in rows]
    n = next(iter(losses.values())).shape[1]
    display(
        figure,
        alt=(
            "Two diagrams of the loss after training, with a norm. Over the learning rate, chains "
            "that start with three factors have three curves, one beside the other. Over the rate "
            "divided by the square of the factor, the three curves coincide."
        ),
        caption=(
            f"Each dot is one chain with a norm, {n} seeds for each rate. Left: each start needs a "
            "rate of its own. Right: the same dots over the rate divided by the square of the "
            "factor lie on one curve, which rises where the rate is too large."
        ),
        table=table,
    )


def spheres(divide_by_size: Callable[[Tensor], Tensor]) -> None:
    """Shows four groups of points in space, seen from the side, and what both norms make of them;
    the last group is the first with the same number added everywhere.
    """
    groups = _groups()
    normed = {
        "RMSNorm": divide_by_size(groups),
        "LayerNorm": divide_by_size(groups - groups.mean(-1, keepdim=True)),
    }
    up = torch.ones(3) / 3**0.5
    right = torch.tensor([1.0, -1, 0]) / 2**0.5
    back = torch.tensor([1.0, 1, -2]) / 6**0.5
    tilt = 0.35  # radians: we look down on the circle a little
    screen = torch.stack((right, math.cos(tilt) * up + math.sin(tilt) * back), dim=-1)  # (3, 2)
    around = torch.linspace(0, 2 * math.pi, 200)[:, None]  # (200, 1)
    circle = 3**0.5 * (around.cos() * right + around.sin() * back) @ screen  # (200, 2)
    tip = 2.75 * up @ screen
    panels = {"Before": groups, **normed}
    with drawing(12.8, 4.7) as figure:
        for ax, (title, points) in zip(figure.subplots(1, 3), panels.items(), strict=True):
            _sphere(ax, circle, tip.tolist(), filled=title != "Before")
            for group, mark, wide in zip(points @ screen, "osDo", (15, 12, 12, 7), strict=True):
                ax.plot(*group.T, mark, markersize=wide, markeredgecolor="white")
            ax.set_title(title, size=23)
    sizes = {title: points.square().mean(-1).sqrt() for title, points in panels.items()}
    columns = {f"size, {title}": rows.mean(-1).tolist() for title, rows in sizes.items()}
    display(
        figure,
        alt=(
            "Three drawings of four groups of points in space, with an arrow along (1, 1, 1). "
            "Before: three rays from the middle, and a copy of one, moved up along the arrow. "
            "RMSNorm: each ray has become a spot on a sphere. LayerNorm: all spots are on one "
            "circle of the sphere, and the copy covers its original."
        ),
        caption=(
            "RMSNorm moves each point along its ray to a sphere, so a ray becomes a spot. "
            "LayerNorm first moves it along the arrow to the plane of the circle. The small "
            "points are the round ones with 1.3 added to each number: only LayerNorm brings the "
            "two together."
        ),
        table={"group": ["1", "2", "3", "1, with 1.3 added"], **columns},
        digits=2,
    )


def _groups() -> Tensor:
    """Three rays of points and a copy of the first, moved along (1, 1, 1); (4, 30, 3)."""
    generator = torch.Generator().manual_seed(2)
    middles = torch.tensor([[2.1, -1.3, -1.2], [-1.9, 1.7, 0.1], [-0.8, -1.5, 0.8]])
    spread = middles[:, None] + 0.11 * torch.randn(3, 30, 3, generator=generator)
    rays = (0.3 + 0.8 * torch.rand(3, 30, 1, generator=generator)) * spread
    return torch.cat((rays, rays[:1] + 1.3))


def _sphere(ax: Axes, circle: Tensor, tip: Sequence[float], filled: bool) -> None:
    ax.add_patch(Circle((0, 0), 3**0.5, facecolor="#dfe6ee" if filled else "none", edgecolor=QUIET))
    ax.plot(*circle.T, "-", color=INK if filled else LINE, linewidth=2.2)
    ax.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 2})
    ax.text(tip[0] - 0.2, tip[1] - 0.1, "(1, 1, 1)", size=21, color=INK, va="center", ha="right")
    ax.set(xlim=(-3.0, 3.0), ylim=(-2.1, 3.3), aspect="equal", xticks=[], yticks=[])
    ax.set_xlabel("seen from the side", size=21)
    ax.set_ylabel("the mean", size=21)


def _dots(ax: Axes, x: float, losses: Tensor, color: str, top: float) -> None:
    """A dot for each loss; those that are not numbers are crosses at the top."""
    spread = torch.linspace(-0.14, 0.14, len(losses))
    for aside, loss in zip(spread.tolist(), losses.tolist(), strict=True):
        fine = math.isfinite(loss)
        mark = {"marker": "o" if fine else "X", "markersize": 11}
        ax.plot(x + aside, loss if fine else top, color=color, markeredgecolor="white", **mark)


def _shown(losses: Tensor) -> str:
    """The middle loss of some seeds, marked as learned; NaN if it is not a number."""
    middle = losses.median().item()
    return learned(round(middle, 3), 0, 5) if math.isfinite(middle) else "NaN"
