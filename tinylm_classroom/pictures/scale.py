"""The pictures of lesson 15: a budget as an area, a valley for each budget, what a recipe changes,
skills that arrive, a law beyond its measurements, and the valleys of a published formula.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..display.figures import axes, display, drawing
from ..display.theme import INK, LINE, QUIET, SERIES
from ..experiments.scale import KINDS, Run, best_of, budgets_of, curve, of_budget
from .lettering import LEVEL, set_type

TYPE = 20
PALE = "#b9c3cd"
MARKS = "osD^"
COIN = math.log(2)
STAR: dict[str, Any] = {"marker": "*", "color": INK, "linestyle": "none", "zorder": 6}


def spent(runs: Sequence[Run], size: int) -> None:
    """Shows a budget as the area of a rectangle with the sides N and D, and the loss that each size
    bought with it, the chosen one strong.
    """
    title = "One budget, many sizes: the area is fixed"
    sizes = sorted({run.size for run in runs})
    budget = runs[0].budget
    tokens = budget / 6 / size
    with drawing(11.4, 5.4) as figure:
        area, losses = figure.subplots(1, 2, width_ratios=(1, 1.15))
        along = _between(sizes[0], sizes[-1])
        area.plot([n / 1e3 for n in along], [budget / 6 / n / 1e3 for n in along], "-", color=PALE)
        box = {"fc": SERIES[0], "ec": INK, "lw": 2, "alpha": 0.75, "zorder": 3}
        area.add_patch(Rectangle((0, 0), size / 1e3, tokens / 1e3, **box))
        area.set(xlim=(0, 1.03 * sizes[-1] / 1e3), ylim=(0, 1.03 * budget / 6e3 / sizes[0]))
        area.set(xlabel="thousand parameters", ylabel="thousand tokens")
        losses.plot([run.size for run in runs], [run.loss for run in runs], "o", color=PALE, ms=12)
        chosen = [run.loss for run in runs if run.size == size]
        losses.plot([size] * len(chosen), chosen, "o", color=SERIES[0], ms=17, mec=INK)
        losses.set(xscale="log", xlabel="parameters", ylabel="loss (nats per token)")
        _size_ticks(losses, (3_000, 10_000, 30_000))
        for ax in (area, losses):
            set_type(ax, TYPE)
        area.set_title(" ", size=4)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
    display(
        figure,
        alt=(
            f"{title}. {size:,} parameters read {tokens:,.0f} tokens; the loss of each run: "
            f"{', '.join(f'{loss:.2f}' for loss in chosen)}."
        ),
        caption=(
            f"{size:,} parameters read {tokens:,.0f} tokens for {budget / 1e9:g} billion FLOPs. "
            "Each dot is a run."
        ),
        table={
            "parameters": [f"{run.size:,}" for run in runs],
            "loss": [run.loss for run in runs],
        },
    )


def _size_ticks(ax: Axes, sizes: Sequence[int]) -> None:
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.minorticks_off()


def valleys(runs: Sequence[Run], floor: float) -> None:
    """Shows the losses over the size, a valley for each budget with a star at its lowest point."""
    title = "Every budget has a best size"
    stars = []
    with axes(title, "parameters", "loss (nats per token)", (11.4, 5.7)) as (figure, ax):
        budgets = budgets_of(runs)
        for budget, mark, color in zip(budgets, MARKS, SERIES, strict=False):
            same = of_budget(runs, budget)
            _valley(ax, same, mark, color)
            best = best_of(same)
            stars.append((best, curve(same, [best])[0]))
            right = max(run.size for run in same) * 1.06
            label = f"{budget / 1e9:.0f} billion" + (" FLOPs" if budget == budgets[0] else "")
            where = {"va": "center", "size": TYPE, "weight": "bold"}
            ax.text(1.06 * right, curve(same, [right])[0], label, color=color, **where)
        x, y = zip(*stars, strict=True)
        ax.plot(x, y, "--", color=INK, lw=2.5)
        ax.plot(x, y, ms=28, **STAR)
        where = {"size": TYPE, "weight": "bold", "ha": "center"}
        ax.text(x[0], y[0] + 0.14, "best size", **where)
        ax.axhline(floor, **LEVEL)
        ax.text(
            2_500, floor + 0.015, "floor: no model is below", color=QUIET, va="bottom", size=TYPE
        )
        ax.set(xscale="log", xlim=(2_400, 1_700_000), ylim=(0.58, 1.86))
        _size_ticks(ax, (3_000, 10_000, 30_000, 100_000, 300_000))
        set_type(ax, TYPE)
        ax.title.set_size(23)
    best_sizes = ", ".join(f"{n:,.0f}" for n in x)
    display(
        figure,
        alt=(
            f"{title}. Four valleys, one for each budget, each lower than the one before. Best "
            f"sizes: {best_sizes} parameters."
        ),
        caption=(
            "Each point is a run that used up its budget. To the right of a star the models have "
            "read too little, to the left they are too small for what they read."
        ),
        table={
            "FLOPs": [f"{budget:.1e}" for budget in budgets],
            "best size": [f"{n:,.0f}" for n in x],
            "loss there": list(y),
        },
    )


def _valley(ax: Axes, runs: Sequence[Run], mark: str, color: str) -> None:
    sizes = [run.size for run in runs]
    along = _between(min(sizes) * 0.94, max(sizes) * 1.06)
    ax.plot(along, curve(runs, along), linestyle="-", linewidth=3, color=color)
    style = {"linestyle": "none", "markersize": 9, "color": color, "alpha": 0.75}
    ax.plot(sizes, [run.loss for run in runs], mark, **style)


def _between(low: float, high: float) -> list[float]:
    """Sizes from low to high, evenly spread on a logarithmic axis."""
    return [low * (high / low) ** (i / 80) for i in range(81)]


def recipes(runs: Mapping[str, Sequence[Run]], title: str) -> None:
    """Shows the valley of one budget for each recipe."""
    with axes(title, "parameters", "loss (nats per token)", (11.4, 5.4)) as (figure, ax):
        for (name, same), mark, color in zip(runs.items(), MARKS, SERIES, strict=False):
            _valley(ax, same, mark, color)
            right = max(run.size for run in same) * 1.06
            where = {"va": "center", "size": TYPE, "weight": "bold"}
            ax.text(1.03 * right, curve(same, [right])[0], name, color=color, **where)
        ax.set(xscale="log", xlim=(2_600, 100_000))
        _size_ticks(ax, (3_000, 10_000, 30_000))
        set_type(ax, TYPE)
        ax.title.set_size(23)
    rows = []
    for name, same in runs.items():
        rows += [(name, f"{run.size:,}", run.loss) for run in same]
    names = ("recipe", "parameters", "loss")
    display(
        figure,
        alt=f"{title}. Two valleys of one budget: {', '.join(runs)}.",
        caption="Both recipes have the same budget; each point is a run.",
        table=dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)),
    )


def skills(runs: Sequence[Run], shipped: Mapping[str, float], loss: float) -> None:
    """Shows for each kind of word how far each model is from the exact distribution, over its loss;
    a star is the shipped model.
    """
    title = "Skills arrive one after the other"
    with drawing(11.4, 5.8) as figure:
        panels = figure.subplots(2, 3, sharex=True, sharey=True)
        for i, (ax, kind) in enumerate(zip(panels.flat, KINDS, strict=True)):
            x = [run.loss for run in runs]
            style = {"markersize": 9, "alpha": 0.6, "color": SERIES[0], "linestyle": "none"}
            ax.plot(x, [run.nats[i] for run in runs], "o", **style)
            ax.plot(loss, shipped[kind], ms=22, **STAR | {"color": SERIES[1]})
            ax.axhline(0, color=LINE, lw=1.5)
            ax.set_title(kind, size=TYPE)
            ax.set(xlim=(1.85, 0.58), ylim=(-0.5, 5.3), xticks=[1.5, 1], yticks=[0, 2, 4])
            set_type(ax, TYPE)
        panels[0, 0].axhline(COIN, **LEVEL)
        panels[0, 0].text(1.12, COIN + 0.15, "a coin", color=QUIET, va="bottom", size=TYPE)
        panels[0, 0].set_ylabel("nats above exact")
        panels[0, 0].yaxis.label.set_visible(False)
        figure.supylabel("nats above exact", size=TYPE)
        style = {"arrowstyle": "-|>", "lw": 3, "color": INK, "mutation_scale": 26}
        panels[0, 2].annotate("", (0.75, 4.7), (1.2, 4.7), arrowprops=style)
        panels[0, 2].text(1.23, 4.7, "better", size=TYPE, va="center", ha="right")
        figure.supxlabel("loss of the model (nats per token)", size=TYPE)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
    display(
        figure,
        alt=(
            f"{title}. Six panels, one for each kind of word; each model is a point, and the loss "
            "falls from left to right."
        ),
        caption=(
            "Each point is a run. At 0 a model knows this kind of word as well as possible. Stars: "
            "the shipped model. Dotted: guessing he or she with a coin (0.69)."
        ),
        table={"loss": [run.loss for run in runs]}
        | {kind: [run.nats[i] for run in runs] for i, kind in enumerate(KINDS)},
        digits=2,
    )


def beyond(
    runs: Sequence[Run],
    law: Callable[[float, float], float],
    fitted: Sequence[float],
    floor: float,
    title: str,
) -> None:
    """Shows the measured losses, and the curve of a law for each budget: a full line where the law
    was fitted, a broken one beyond. law: the loss of N parameters and D tokens.
    """
    rows = []
    with axes(title, "parameters", "loss (nats per token)", (11.4, 5.7)) as (figure, ax):
        for budget, mark, color in zip(budgets_of(runs), MARKS, SERIES, strict=False):
            same = of_budget(runs, budget)
            sizes = [run.size for run in same]
            along = _between(min(sizes) * 0.9, max(sizes) * 1.1)
            style = "-" if budget in fitted else (0, (3, 1.5))
            says = [law(n, budget / 6 / n) for n in along]
            ax.plot(along, says, linestyle=style, linewidth=3, color=color)
            ax.plot(sizes, [run.loss for run in same], mark, ms=9, color=color, alpha=0.75)
            rows += [
                (f"{budget:.1e}", f"{r.size:,}", r.loss, law(r.size, budget / 6 / r.size))
                for r in same
            ]
            label = f"{budget / 1e9:.0f} billion" + ("" if budget in fitted else ", predicted")
            if budget not in fitted:
                last = max(same, key=lambda run: run.size)
                text = {"va": "top", "ha": "left", "size": TYPE, "color": color}
                ax.text(0.8 * last.size, last.loss - 0.06, "measured", **text)
            where = {"va": "center", "size": TYPE, "color": color, "weight": "bold"}
            ax.text(along[-1] * 1.05, says[-1], label, **where)
        ax.axhline(floor, **LEVEL)
        ax.text(2_500, floor + 0.02, "floor", color=QUIET, va="bottom", size=TYPE)
        ax.set(xscale="log", xlim=(2_400, 5_200_000), ylim=(0.5, 1.9))
        _size_ticks(ax, (3_000, 10_000, 30_000, 100_000, 300_000))
        set_type(ax, TYPE)
        ax.title.set_size(23)
    names = ("FLOPs", "parameters", "loss", "law")
    display(
        figure,
        alt=f"{title}. Points are measured; a curve for each budget is the law.",
        caption=(
            "Points are measured, curves are the law. It was fitted to the full lines; the broken "
            "one is its prediction."
        ),
        table=dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)),
        digits=2,
    )


def formula(valley: Callable[..., Any], exponent: int, ratio: float) -> None:
    """Shows the valleys of a published formula, the chosen budget strong, with a dot where it is
    spent at so many tokens per parameter. valley: {budget: (sizes, losses, best size)}.
    """
    title = "The bottoms are near 20 tokens for each parameter"
    chosen = 10.0**exponent
    with axes(title, "billion parameters", "predicted loss (nats)", (11.4, 5.6)) as (figure, ax):
        stars = []
        for each in (17, 19, 21, 23, 25):
            strong = each == exponent
            sizes, losses, best = valley(10.0**each)
            lowest = losses.min().item()
            near = (losses < lowest + 0.4) & ((sizes / best).log().abs() < math.log(14))
            color = SERIES[0] if strong else PALE
            ax.plot(sizes[near], losses[near], "-", lw=4 if strong else 2.5, color=color)
            ax.plot(
                best, lowest, ms=24 if strong else 15, **STAR | {"color": INK if strong else QUIET}
            )
            stars.append((best, lowest))
            where = {"va": "center", "size": TYPE, "color": SERIES[0] if strong else QUIET}
            up = each < 25  # the last star has a curve above it
            near_star = where | {"va": "bottom" if up else "top", "ha": "center"}
            y = lowest + (0.11 if up else -0.08)
            ax.text(best, y, f"{10.0**each / 6 / best**2:.0f}", **near_star)
            ax.text(sizes[near][-1] * 1.15, losses[near][-1], f"$10^{{{each}}}$ FLOPs", **where)
        size = math.sqrt(chosen / 6 / ratio)
        sizes, losses, best = valley(chosen)
        here = losses[(sizes - size).abs().argmin()].item()
        ax.plot(size, here, "o", ms=17, color=SERIES[1], mec=INK, zorder=7)
        ax.set(xscale="log", xlim=(3e6, 6e13), ylim=(1.5, 4.9))
        ax.set_xticks([1e7, 1e8, 1e9, 1e10, 1e11, 1e12], ["0.01", "0.1", "1", "10", "100", "1,000"])
        ax.minorticks_off()
        set_type(ax, TYPE)
        ax.title.set_size(23)
    tokens = ratio * size
    says = (
        f"{_large(size)} parameters read {_large(tokens)} tokens: predicted loss {here:.3f}. "
        f"The best size is {_large(best)}: {losses.min().item():.3f}. At each star: its tokens "
        "for each parameter."
    )
    display(
        figure,
        alt=f"{title}: five smooth valleys, each lower and further to the right. {says}",
        caption=says,
        table={
            "FLOPs": [f"1e{each}" for each in (17, 19, 21, 23, 25)],
            "best size": [_large(best) for best, _ in stars],
            "predicted loss": [loss for _, loss in stars],
        },
    )


def _large(n: float) -> str:
    name, unit = next(
        (name, unit)
        for name, unit in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6), ("", 1.0))
        if n >= unit
    )
    return f"{n / unit:.3g} {name}".strip()
