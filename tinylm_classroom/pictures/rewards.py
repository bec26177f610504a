"""The pictures of lesson 17: a run of verdicts and what it costs, estimates with four baselines,
runs without one, what a model avoids, the price of a penalty, and a margin that grows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from torch import Tensor

from ..display.figures import axes, display, drawing
from ..display.numbers import fixed, learned
from ..display.theme import INK, QUIET, SERIES
from ..experiments.judging import Kinds, Portrait, Preferred, Run, mixed, part_possible
from .lettering import LEVEL, set_type, side_by_side

TYPE = 19
HEADLINE = 22
MARKS = "^vDo"
POINTS = "possible stories (fraction)"


def judged(
    verdicts: Sequence[float],
    away: Sequence[float],
    others: Sequence[Run],
    coin: Sequence[Portrait],
) -> None:
    """Shows a run: the verdicts of its updates, and how far it is from the language before and
    after; other runs are pale, and those with a coin as judge are rings.
    """
    title = "More stories are possible, and the model leaves the language"
    n = len(verdicts)
    middles = [start + 2.5 for start in range(0, n, 4)]
    with drawing(11.4, 5.4) as figure:
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=HEADLINE)
        left, right = figure.subplots(1, 2)
        pale = {"color": QUIET, "linewidth": 2, "alpha": 0.6}
        for each, _ in others:
            left.plot(middles, _in_fours(each), "-", **pale)
        _draw_ends(right, away, [portrait for _, portrait in others], coin)
        left.plot(range(1, n + 1), verdicts, "o", color=SERIES[0], alpha=0.35, markersize=9)
        left.plot(middles, _in_fours(verdicts), "-", color=SERIES[0], linewidth=5)
        left.set(ylabel=POINTS, xlabel="updates")
        left.set(ylim=(0, 1), xlim=(0, n + 0.6), xticks=[0, 4, 8, 12, 16])
        right.set(xlabel=f"judge of {n} updates")
        left.set_title("what we reward", size=TYPE)
        right.set_title("distance from the language", size=TYPE)
        for ax in (left, right):
            set_type(ax, TYPE)
    means = _in_fours(verdicts)
    display(
        figure,
        alt=f"{title}. Verdicts over {n} updates, and the distance before and after, larger.",
        caption=(
            "Colour: the run above, a dot for the 32 stories of an update, the line through the "
            "means of four. Gray: recorded runs with other seeds. Right: the exact KL divergence, "
            "on 160 new stories; rings: a coin judged."
        ),
        table={
            "updates": ["1 to 4", f"{n - 3} to {n}"],
            "possible": [learned(means[0], 0, 1), learned(means[-1], 0, 1)],
            "distance": [learned(each, 0, 2) for each in away],
        },
    )


def _draw_ends(
    ax: Axes, away: Sequence[float], others: Sequence[Portrait], coin: Sequence[Portrait]
) -> None:
    """The distance before and after our run, after others, and after those with a coin as judge."""
    for place, portraits, fill in ((1, others, QUIET), (2, coin, "none")):
        far = [portrait.from_language for portrait in portraits]
        style = {"color": QUIET, "markerfacecolor": fill, "markersize": 12, "linestyle": "none"}
        ax.plot(side_by_side(place, len(far), 0.13), far, "o", **style)
    ax.plot([0, 0.6], away, "o", color=SERIES[1], markersize=16, linestyle="none")
    highest = max(*away, *(portrait.from_language for portrait in (*others, *coin)))
    ax.set(xlim=(-0.5, 2.5), ylim=(0, 1.15 * highest), ylabel="nats per token")
    ax.set_xticks([0, 1, 2], ["before", "verdicts", "a coin"])


def _in_fours(values: Sequence[float]) -> list[float]:
    """The means of each four values."""
    return [sum(values[i : i + 4]) / 4 for i in range(0, len(values), 4)]


def estimates(found: Mapping[str, Tensor], exact: float, strong: str) -> None:
    """Shows the estimates of many batches for each baseline, a row for each, one of them strong."""
    error = found[strong].std() / len(found[strong]) ** 0.5
    title = f"Baseline {strong}: {fixed(found[strong].mean(), 2)} ± {fixed(error, 2)} on average, "
    title += f"spread {fixed(found[strong].std(), 2)}"
    with axes(title, "estimated gradient", " ", (11.0, 5.2)) as (figure, ax):
        for row, (name, each) in enumerate(found.items()):
            counts = Counter(round(value, 3) for value in each.tolist())
            most = max(counts.values())
            color = SERIES[0] if name == strong else QUIET
            for value, n in counts.items():
                style = {"color": color, "alpha": 1.0 if name == strong else 0.45}
                ax.vlines(value, row, row - 0.8 * n / most, linewidth=7, **style)
        ax.axvline(exact, color=SERIES[1], linewidth=3)
        ax.set_yticks(range(len(found)), list(found))
        ax.set(xlim=(-4, 4), ylim=(len(found) - 0.8, -0.95))
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.title.set_size(HEADLINE)
        set_type(ax, TYPE)
    display(
        figure,
        alt=f"{title}. Four rows of estimates around the exact gradient, a vertical line.",
        caption=(
            "Each row: the estimates of 1000 batches of 20 throws, higher where there are more. "
            "The line is the exact gradient. ±: the standard error of the average. A baseline of "
            "10 leaves rewards of 0 and 1."
        ),
        table={
            "baseline": list(found),
            "mean": [fixed(each.mean(), 2) for each in found.values()],
            "spread": [fixed(each.std(), 2) for each in found.values()],
        },
    )


def without_baseline(
    rows: Mapping[str, tuple[Sequence[Run], Sequence[Run]]], before: Portrait
) -> None:
    """Shows the possible stories after a run, a dot for each: for each pair of rewards with the
    mean of the group as a baseline, and without one.
    """
    title = "Without a baseline, a reward for wrong stories, too, stops the learning"
    with axes(title, "rewards for an impossible and for a possible story", POINTS, (11.4, 5.4)) as (
        figure,
        ax,
    ):
        level = part_possible(before.kinds)
        ax.axhline(level, **LEVEL)
        ax.text(len(rows) - 0.55, level + 0.015, "start", size=TYPE, color=QUIET, ha="right")
        for at, both in enumerate(rows.values()):
            for away, color, runs in zip((-0.16, 0.16), SERIES, both, strict=False):
                values = [part_possible(portrait.kinds) for _, portrait in runs]
                places = side_by_side(at + away, len(values), 0.035)
                ax.plot(places, values, "o", color=color, markersize=12, linestyle="none")
        for color, name in zip(
            SERIES, ("minus the mean of the group", "no baseline"), strict=False
        ):
            ax.plot([], [], "o", color=color, markersize=12, linestyle="none", label=name)
        ax.set_xticks(range(len(rows)), list(rows))
        ax.set(xlim=(-0.5, len(rows) - 0.5), ylim=(-0.03, 0.98))
        ax.legend(loc="upper right", fontsize=TYPE, framealpha=1, ncols=2)
        ax.title.set_size(HEADLINE)
        set_type(ax, TYPE)
    means = [[_mean(runs) for runs in both] for both in rows.values()]
    display(
        figure,
        alt=f"{title}. Dots of possible stories, five runs with and five without a baseline each.",
        caption=(
            "A dot is a recorded run of 16 updates, which wrote 768 new stories to 12 beginnings. "
            "With the mean of the group all three pairs of rewards make the same run, so its dots "
            "are repeated."
        ),
        table={
            "rewards": list(rows),
            "with": [each for each, _ in means],
            "without": [each for _, each in means],
        },
        digits=2,
    )


def _mean(runs: Sequence[Run]) -> float:
    return sum(part_possible(portrait.kinds) for _, portrait in runs) / len(runs)


def avoided(before: Kinds, after: Sequence[Kinds]) -> None:
    """Shows what a run changed, a dot for each: how many stories would be possible if only the
    kinds of stories had changed, or only the care, and how many are.
    """
    title = "Most of the progress: difficult sentences have become rare"
    groups = {
        "before": [part_possible(before)],
        "new mix,\nold care": [mixed(each, before) for each in after],
        "old mix,\nnew care": [mixed(before, each) for each in after],
        "after": [part_possible(each) for each in after],
    }
    colors = (QUIET, SERIES[1], SERIES[2], SERIES[0])
    with axes(title, "stories", POINTS, (11.4, 5.4)) as (figure, ax):
        for at, (values, color) in enumerate(zip(groups.values(), colors, strict=True)):
            mean = sum(values) / len(values)
            ax.bar(at, mean, 0.66, color=color, alpha=0.55)
            places = side_by_side(at, len(values), 0.09)
            ax.plot(places, values, "o", color=INK, markersize=8, linestyle="none")
            top = max(values) + 0.035
            ax.text(at, top, fixed(mean, 2), ha="center", size=TYPE, weight="bold")
        ax.set_xticks(range(len(groups)), list(groups))
        ax.xaxis.label.set_visible(False)
        ax.set(ylim=(0, 0.8))
        ax.title.set_size(HEADLINE)
        set_type(ax, TYPE)
    display(
        figure,
        alt=f"{title}. Four bars: before, with the new mix alone, with the new care alone, after.",
        caption=(
            "Mix: how many stories have a gift, an owner sentence, both or none. Care: how many of "
            "each kind are possible. A dot is a run with 768 new stories to 12 beginnings."
        ),
        table={
            "stories": [name.replace("\n", " ") for name in groups],
            "possible": [sum(values) / len(values) for values in groups.values()],
        },
        digits=2,
    )


def penalties(
    runs: Mapping[float, Sequence[Portrait]], curve: Sequence[tuple[float, float]]
) -> None:
    """Shows possible stories over the distance from the start and from the language, a mark for
    each run, {beta: runs}, and the least distance from the start, (nats, fraction).
    """
    title = "The penalty trades possible stories for nearness"
    with drawing(11.4, 5.6) as figure:
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=HEADLINE)
        left, right = figure.subplots(1, 2, sharey=True)
        left.plot(*zip(*curve, strict=True), "-", color=INK, linewidth=4)
        left.text(1.6, 0.92, "no model is nearer", size=TYPE)
        for (beta, each), mark, color in zip(runs.items(), MARKS, SERIES, strict=False):
            fine = [part_possible(portrait.kinds) for portrait in each]
            style = {"color": color, "markersize": 13, "linestyle": "none"}
            left.plot([portrait.from_start for portrait in each], fine, mark, **style)
            far = [portrait.from_language for portrait in each]
            right.plot(far, fine, mark, label=f"β = {beta:g}", **style)
        left.set(ylabel=POINTS, ylim=(0, 1), xlim=(-0.2, None))
        right.set(ylabel=" ", xlim=(0, None))
        right.yaxis.label.set_visible(False)
        for ax, what, unit in ((left, "start", "story"), (right, "language", "token")):
            ax.set_title(f"distance from the {what}", size=TYPE)
            ax.set_xlabel(f"nats per {unit}")
        right.legend(loc="lower right", fontsize=TYPE, framealpha=1)
        for ax in (left, right):
            set_type(ax, TYPE)
    rows: list[tuple[float, Portrait]] = []
    for beta, each in runs.items():
        rows += [(beta, portrait) for portrait in each]
    display(
        figure,
        alt=f"{title}. Two charts: the larger beta is, the nearer the models stay to the language.",
        caption=(
            "A mark is a recorded run of 40 updates. Line: no model with as many possible stories "
            "is nearer to the start."
        ),
        table={
            "beta": [fixed(beta, 2) for beta, _ in rows],
            "possible": [part_possible(portrait.kinds) for _, portrait in rows],
            "nats per story": [portrait.from_start for _, portrait in rows],
        },
        digits=2,
    )


def margins(runs: Mapping[str, Sequence[Sequence[Preferred]]], before: Kinds) -> None:
    """Shows runs of DPO over their steps, {what they learn from: runs, each its looks}: how many
    new pairs they rank right, how their two stories change, and how many stories are possible.
    """
    title = "DPO raises a margin, and both stories of a pair become less likely"
    with drawing(11.4, 5.4) as figure:
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=HEADLINE)
        ranks, moves, stories = figure.subplots(1, 3)
        looks_of = zip(runs.items(), (SERIES[1], SERIES[2]), "o^", strict=False)
        for (name, each), color, mark in looks_of:
            for number, looks in enumerate(each):
                label = name if number == 0 else None
                steps = [0, *(look.step for look in looks)]
                ranked = [0.5, *(look.ranked for look in looks)]
                fine = [part_possible(before), *(part_possible(look.kinds) for look in looks)]
                style = {"color": color, "linewidth": 3, "markersize": 9}
                ranks.plot(steps, ranked, f"{mark}-", label=label, **style)
                stories.plot(steps, fine, f"{mark}-", **style)
        _draw_moves(moves, next(iter(runs.values())))
        ranks.set(ylim=(0.4, 1), ylabel="fraction")
        stories.set(ylim=(0, None), ylabel=" ")
        moves.set(ylabel=" ")
        for ax in (moves, stories):
            ax.yaxis.label.set_visible(False)
        ranks.set_title("new pairs right", size=20)
        moves.set_title("DPO: change in nats", size=20)
        stories.set_title("possible stories", size=20)
        if len(runs) > 1:
            ranks.legend(loc="upper left", fontsize=19, framealpha=1, handlelength=1)
        for ax in (ranks, moves, stories):
            ax.set(xlabel="steps")
            set_type(ax, TYPE)
    first = next(iter(runs.values()))
    display(
        figure,
        alt=f"{title}. Three line charts over the steps, a line for each of {len(first)} runs.",
        caption=(
            "A line is a recorded run. Left and middle: new pairs, which it has not learned from. "
            "Right: 768 new stories at each dot."
        ),
        table={
            "step": [look.step for look in first[0]],
            "ranked right": [_over(first, i, "ranked") for i in range(len(first[0]))],
            "chosen": [_over(first, i, "chosen") for i in range(len(first[0]))],
            "rejected": [_over(first, i, "rejected") for i in range(len(first[0]))],
            "possible": [
                sum(part_possible(looks[i].kinds) for looks in first) / len(first)
                for i in range(len(first[0]))
            ],
        },
        digits=2,
    )


def _over(runs: Sequence[Sequence[Preferred]], look: int, name: str) -> float:
    """The mean of one number over the runs."""
    return sum(getattr(looks[look], name) for looks in runs) / len(runs)


def _draw_moves(ax: Axes, runs: Sequence[Sequence[Preferred]]) -> None:
    """The changes of the chosen and the rejected stories, each named where no line is."""
    corner = {"chosen": (0.97, 0.96, "right", "top"), "rejected": (0.04, 0.05, "left", "bottom")}
    for (name, (x, y, across, up)), color, line in zip(
        corner.items(), (SERIES[0], INK), ("-", "--"), strict=True
    ):
        for looks in runs:
            values = [0.0, *(getattr(look, name) for look in looks)]
            ax.plot([0, *(look.step for look in looks)], values, line, color=color, linewidth=3)
        place = {"transform": ax.transAxes, "ha": across, "va": up}
        ax.text(x, y, name, color=color, size=HEADLINE, weight="bold", **place)
