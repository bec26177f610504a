"""The pictures of lesson 09: how the parts of a block are joined, what stacks of them learn, what
gets lost on the way forward and back, and what each part adds to the stream.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from ..display.figures import axes, display, drawing
from ..display.numbers import fixed, learned
from ..display.theme import INK, PART_COLORS, QUIET, SERIES
from ..experiments.stacks import limit_of
from .lettering import LEVEL, hide_axes, set_type, side_by_side

TYPE = 20
ADDED, REPLACED = SERIES[:2]
JOINED = {"add": "added", "replace": "replaced"}  # as a recorded run says it, and as a picture does
COLORS = {"added": ADDED, "replaced": REPLACED}
STREAM, NORM, ATTENTION, FFN = (
    PART_COLORS[name].light for name in ("stream", "norms", "attention", "feed-forward")
)
HEIGHT = {"replaced": 0.6, "added": 1.15, "pre-norm": 1.15, "post-norm": 1.15}  # of the stream
FORMULA = {
    "replaced": "x becomes f(x)",
    "added": "x becomes x + f(x)",
    "pre-norm": "x + f(norm(x))",
    "post-norm": "norm(x + f(x))",
}
TITLES = {
    ("replaced", "added"): "One block: the results replace x, or they are added",
    ("pre-norm", "post-norm"): "In pre-norm nothing but two plus signs is on the stream",
}
ROW = 2.7


def joins(*kinds: str) -> None:
    """Shows one block for each kind: "replaced", "added", "pre-norm" or "post-norm"."""
    title = TITLES[kinds]
    with axes(title, "from left to right", "blocks", (11.4, 5.6)) as (figure, ax):
        for row, kind in enumerate(kinds):
            _block(ax, kind, -ROW * row)
        ax.set(xlim=(-0.25, 11.6), ylim=(-ROW * (len(kinds) - 1) - 0.6, 2.0), aspect="auto")
        ax.title.set_size(23)
        hide_axes(ax)
    steps = {kind: _steps(kind) for kind in kinds}
    told = "; ".join(f"{kind}: {', '.join(each)}" for kind, each in steps.items())
    display(
        figure,
        alt=f"{title}. From left to right, {told}.",
        caption="Read from left to right. The thick line is the vector that goes on.",
        table={"step": [str(i) for i in range(1, 7)], **steps},
    )


def _steps(kind: str) -> list[str]:
    halves = {
        "replaced": ("norm", "{}", "-"),
        "post-norm": ("{}", "+", "norm"),
    }
    half = halves.get(kind, ("norm", "{}", "+"))
    both = product(("attention", "feed-forward"), half)
    return [step.format(part) for part, step in both]


def _block(ax: Axes, kind: str, floor: float) -> None:
    """One block of this kind, its parts at the height of the floor."""
    high = floor + HEIGHT[kind]
    _line(ax, (0.1, high), (11.4, high), STREAM, 6)
    where = {"va": "center", "size": TYPE, "weight": "bold"}
    color = REPLACED if kind == "replaced" else ADDED
    ax.text(0, floor + 1.72, kind, color=color, **where)
    ax.text(2.6, floor + 1.72, FORMULA[kind], va="center", size=TYPE)
    for left, name, color in ((0.5, "attention", ATTENTION), (5.9, "feed-forward", FFN)):
        if kind == "replaced":
            _box(ax, left + 0.9, high, "norm", NORM)
            _box(ax, left + 3.2, high, name, color)
        elif kind == "post-norm":
            _line(ax, (left + 0.3, high), (left + 0.3, floor), STREAM, 3)
            _line(ax, (left + 0.3, floor), (left + 0.9, floor), STREAM, 3, arrow=True)
            _box(ax, left + 2.0, floor, name, color)
            _plus(ax, left + 3.5, high, floor, left + 3.05, color)
            _box(ax, left + 4.5, high, "norm", NORM)
        else:
            _line(ax, (left + 0.3, high), (left + 0.3, floor + 0.35), STREAM, 3, arrow=True)
            _box(ax, left + 0.4, floor, "norm", NORM)
            _line(ax, (left + 1.0, floor), (left + 1.55, floor), INK, 3, arrow=True)
            _box(ax, left + 2.65, floor, name, color)
            _plus(ax, left + 4.2, high, floor, left + 3.7, color)


def _line(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    color: str,
    width: float,
    arrow: bool = False,
) -> None:
    style = "-|>" if arrow or width > 5 else "-"
    line = {"arrowstyle": style, "color": color, "lw": width, "mutation_scale": 14 + 2.5 * width}
    ax.annotate("", end, start, arrowprops={**line, "shrinkA": 0, "shrinkB": 0}, zorder=2)


def _box(ax: Axes, x: float, y: float, name: str, color: str) -> None:
    wide = 0.5 if name == "norm" else 1.02
    shape = {"boxstyle": "round,pad=0.08", "fc": "white", "ec": color, "lw": 3, "zorder": 5}
    ax.add_patch(FancyBboxPatch((x - wide, y - 0.27), 2 * wide, 0.54, **shape))
    ax.text(x, y - 0.02, name, ha="center", va="center", size=TYPE, zorder=6)


def _plus(ax: Axes, x: float, high: float, floor: float, start: float, color: str) -> None:
    """A plus sign on the stream, and the way of a result to it."""
    _line(ax, (start, floor), (x + 0.02, floor), color, 3)
    _line(ax, (x, floor), (x, high - 0.2), color, 3, arrow=True)
    ax.plot(x, high, "o", color=STREAM, markersize=30, zorder=6)
    where = {"ha": "center", "va": "center", "size": 26, "weight": "bold", "zorder": 7}
    ax.text(x, high - 0.02, "+", color="white", **where)


def runs(found: Sequence[Mapping[str, Any]], counting_only: float) -> None:
    """Shows the loss of each recorded run over its updates, a line for each seed.

    counting_only: the loss of a reader who knows only how frequent each word is.
    """
    title = "With plus signs 24 blocks learn; without, not 8"
    groups: dict[tuple[str, int], list[list[float]]] = {}
    for run in found:
        groups.setdefault((run["join"], run["blocks"]), []).append(run["losses"])
    n = len(next(iter(groups.values()))[0])
    updates = [20 * i + 10 for i in range(n)]
    names = {
        ("replace", 2): (210, 3.5, "2 blocks"),
        ("replace", 4): (590, 3.4, "4 blocks"),
        ("replace", 8): (330, 5.33, "8 blocks"),
        ("add", 8): (22, 3.1, "8 and 24 blocks"),
    }
    with axes(title, "updates", "loss", (11.4, 6.2)) as (figure, ax):
        ax.axhline(counting_only, **LEVEL)
        where = {"size": 20, "ha": "right", "va": "bottom", "color": QUIET}
        ax.text(290, counting_only + 0.1, "only word frequencies", **where)
        for (join, blocks), each in groups.items():
            color = ADDED if join == "add" else REPLACED
            for losses in each:
                ax.plot(updates, losses, "-", color=color, linewidth=2.2, alpha=0.85)
            if (join, blocks) in names:
                x, y, says = names[join, blocks]
                ax.text(x, y, says, color=color, size=19, weight="bold")
        ax.text(11, 0.95, "x + f(x)", color=ADDED, size=27, weight="bold")
        ax.text(11, 1.5, "f(x)", color=REPLACED, size=27, weight="bold")
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks([10, 30, 100, 300, 1000], ["10", "30", "100", "300", "1000"])
        ax.set(xlim=(9.5, 1080), ylim=(0.7, 5.95), yticks=[1, 2, 3, 4, 5])
        set_type(ax, 19)
        ax.title.set_size(26)
    ends = {_name(*key): f"{_range(each, -1)}" for key, each in groups.items()}
    told = "; ".join(f"{name} ends at {end}" for name, end in ends.items())
    display(
        figure,
        alt=f"{title}. The loss over {updates[-1] + 10} updates: {told}.",
        caption=(
            f"Models with and without a plus sign, {len(next(iter(groups.values())))} seeds each, "
            "recorded. f is a part together with its norm. All have the same parts, the same "
            "initial weights, the same stories and the same learning rate, 0.001."
        ),
        table={
            "model": list(ends),
            "after 60 updates": [_range(each, 2) for each in groups.values()],
            "after 200": [_range(each, 9) for each in groups.values()],
            f"after {updates[-1] + 10}": list(ends.values()),
        },
    )


def _name(join: str, blocks: int) -> str:
    return f"{blocks} blocks, {'added' if join == 'add' else 'replaced'}"


def _range(each: Sequence[Sequence[float]], at: int) -> str:
    values = [losses[at] for losses in each]
    return f"{fixed(min(values), 2)} to {fixed(max(values), 2)}"


def alike(found: Mapping[str, Tensor]) -> None:
    """Shows how alike the positions of a text are after each block, {name: (seeds, blocks + 1)}."""
    title = "Without the plus sign all positions become alike"
    colors = {
        "words alone, replaced": SERIES[2],
        "texts, added": ADDED,
        "texts, replaced": REPLACED,
    }
    with axes(title, "after how many blocks", "mean cosine", (11.4, 5.4)) as (figure, ax):
        for name, each in found.items():
            for row in each:
                ax.plot(range(len(row)), row, "o-", color=colors[name], lw=2.4, markersize=8)
            where = {"size": TYPE, "weight": "bold", "va": "center"}
            ax.text(
                8.25, each[:, -1].mean(), name.replace(", ", ",\n"), color=colors[name], **where
            )
        ax.set(xlim=(-0.2, 11.2), ylim=(-0.05, 1.05), xticks=range(9), yticks=[0, 0.5, 1])
        set_type(ax, 19)
        ax.title.set_size(23)
    ends = "; ".join(f"{name} {fixed(each[:, -1].mean(), 2)}" for name, each in found.items())
    n = len(next(iter(found.values())))
    display(
        figure,
        alt=f"{title}. The mean cosine between two positions after 8 blocks: {ends}.",
        caption=(
            f"The mean cosine between two positions of a text in untrained models, {n} seeds. "
            "At 1 all vectors have one direction."
        ),
        table={
            "blocks": list(range(len(next(iter(found.values()))[0]))),
            **{name: [fixed(x, 2) for x in each.mean(0)] for name, each in found.items()},
        },
    )


def gradients(found: Mapping[str, Tensor]) -> None:
    """Shows the gradient of each block, {name: (seeds, blocks)}."""
    title = "With SwiGLU and no plus sign, the gradient explodes"
    colors = {"SwiGLU, replaced": REPLACED, "GELU, replaced": SERIES[3], "SwiGLU, added": ADDED}
    places = {
        "SwiGLU, replaced": (9.2, 2500),
        "GELU, replaced": (0.3, 9),
        "SwiGLU, added": (0.3, 0.12),
    }
    with axes(
        title, "block (the loss is at the right)", "gradient of its weights", (11.4, 5.4)
    ) as (figure, ax):
        for name, each in found.items():
            for row in each:
                ax.plot(range(len(row)), row, "-", color=colors[name], linewidth=2.4)
            where = {"size": TYPE, "weight": "bold", "va": "center"}
            ax.text(*places[name], name, color=colors[name], **where)
        ax.set_yscale("log")
        ax.minorticks_off()
        ax.set_yticks([0.1, 1, 10, 100, 1000, 10_000], ["0.1", "1", "10", "100", "1000", "10000"])
        ax.set(xlim=(-0.4, 23.4), xticks=[0, 5, 11, 17, 23])
        set_type(ax, 19)
        ax.title.set_size(23)
    few = [0, 5, 11, 17, 23]
    told = "; ".join(
        f"{name} {learned(each[:, -1].mean().item(), 0, 1e6)} in the last block and "
        f"{learned(each[:, 0].mean().item(), 0, 1e6)} in the first"
        for name, each in found.items()
    )
    display(
        figure,
        alt=f"{title}. On a logarithmic axis: {told}.",
        caption="24 untrained blocks, a line for each of 3 seeds. Block 23 is next to the loss.",
        table={
            "block": few,
            **{
                name: [learned(x, 0, 1e6) for x in each.mean(0)[few].tolist()]
                for name, each in found.items()
            },
        },
    )


def holds(
    steps: Sequence[float],
    cosines: Mapping[tuple[str, str], Tensor],
    rates: Sequence[Mapping[str, Any]],
    counting_only: float,
) -> None:
    """Shows how far a gradient holds, {(join, feed-forward): (seeds, steps)}, next to the recorded
    losses at each learning rate.
    """
    title = "With the plus sign, steps may be much longer"
    with drawing(12.4, 6.2) as figure:
        left, right = figure.subplots(1, 2)
        for ax in (left, right):
            ax.set_xscale("log")
            ax.minorticks_off()
        _cosines(left, steps, cosines)
        best = _rates(right, rates, counting_only)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
    table: dict[str, list] = {"step": [f"{step:g}" for step in steps]}
    for (join, ffn), each in cosines.items():
        table[f"cosine, {ffn}, {join}"] = [learned(x, -1, 1.01) for x in each.mean(0).tolist()]
    told = "; ".join(f"{name} best at {rate:g}" for name, rate in best.items())
    display(
        figure,
        alt=(
            f"{title}. Left: the cosine between the gradients before and after a step, which falls "
            f"at much shorter steps where results replace x. Right, the loss at each rate: {told}."
        ),
        caption=(
            "8 blocks that read each word alone. Left: a dot is a new model; the cosine is 1 "
            "where a step has not turned the gradient. With the plus sign it falls to one half at "
            f"steps {_further(steps, cosines, 'SwiGLU')} times as long (SwiGLU) and "
            f"{_further(steps, cosines, 'GELU')} times as long (GELU). Right: a dot is a recorded "
            "training run, with SwiGLU."
        ),
        table=table,
    )


def _cosines(ax: Axes, steps: Sequence[float], cosines: Mapping[tuple[str, str], Tensor]) -> None:
    """The cosine after each step: a line for each kind of model, a dot for each seed."""
    dashes = {"SwiGLU": "-", "GELU": (0, (2, 1))}
    for (join, ffn), each in cosines.items():
        style = {"color": COLORS[join], "linestyle": dashes[ffn], "linewidth": 3}
        ax.plot(steps, each.mean(0), label=f"{ffn}, {join}", **style)
        for row in each:
            ax.plot(steps, row, "o", color=COLORS[join], markersize=6)
    ax.axhline(0.5, **LEVEL)
    ax.legend(frameon=False, fontsize=TYPE, loc="upper right", handlelength=1.8)
    ax.set(ylim=(-0.25, 2.05), yticks=[0, 0.5, 1])
    ax.set_title("Does the gradient still hold?", size=TYPE, weight="normal", loc="center")
    ax.set(xlabel="length of one step", ylabel="cosine, before and after")
    set_type(ax, TYPE)
    marks = {1e-5: "0.00001", 1e-4: " ", 1e-3: "0.001", 1e-2: "0.01"}
    ax.set_xticks(list(marks), list(marks.values()))


def _rates(ax: Axes, rates: Sequence[Mapping[str, Any]], counting_only: float) -> dict[str, float]:
    """The loss at each learning rate, a dot for each run. Returns the best rate of each join."""
    means: dict[str, dict[float, float]] = {}
    for run in rates:
        name = JOINED[run["join"]]
        losses = run["losses"]
        means.setdefault(name, {})[run["rate"]] = sum(losses) / len(losses)
        ax.plot([run["rate"]] * len(losses), losses, "o", color=COLORS[name], markersize=9)
    for name, each in means.items():
        style = {"color": COLORS[name], "linestyle": "-", "linewidth": 2.5, "alpha": 0.7}
        ax.plot(list(each), list(each.values()), **style)
    ax.axhline(counting_only, **LEVEL)
    says = {"size": TYPE, "ha": "right", "va": "top", "color": QUIET}
    ax.text(0.12, counting_only - 0.09, "word frequencies", **says)
    for name, height in (("replaced", 4.3), ("added", 2.42)):
        ax.text(0.0045, height, name, color=COLORS[name], size=TYPE, weight="bold")
    ax.set_title("Which learning rates learn?", size=TYPE, weight="normal", loc="center")
    ax.set(xlabel="learning rate", ylabel="loss after 60 updates")
    ax.set(ylim=(2.3, 5.6), yticks=[3, 4, 5])
    set_type(ax, TYPE)
    ax.set_xticks([1e-3, 1e-2, 1e-1], ["0.001", "0.01", "0.1"])
    return {name: min(each, key=each.__getitem__) for name, each in means.items()}


def _further(steps: Sequence[float], cosines: Mapping[tuple[str, str], Tensor], ffn: str) -> str:
    """How many times as far the gradient holds with the plus sign."""
    far, near = (limit_of(steps, cosines[join, ffn]) for join in ("added", "replaced"))
    return learned(far / near, 2, 1000)


def parts(
    names: Sequence[str],
    lengths: Sequence[float],
    whole: float,
    without: Tensor,
    no_plus: Tensor,
) -> None:
    """Shows what each part adds, and the loss without it (sets, parts), and without its plus sign.

    lengths: of its addition, in lengths of the stream. whole: the loss with all parts.
    """
    title = "The longest addition is among the least needed"
    with drawing(12.4, 5.4) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(0.72, 1))
        rows = range(len(names))
        colors = [ATTENTION if name.endswith("attention") else FFN for name in names]
        left.barh(rows, lengths, 0.62, color=colors)
        for row, length in zip(rows, lengths, strict=True):
            left.text(length + 0.03, row, fixed(length, 2), va="center", size=TYPE)
        left.set_yticks(rows, names)
        left.set(xlim=(0, max(lengths) + 0.6), xticks=[], ylim=(len(names) - 0.45, -0.55))
        left.set_xlabel("adds (stream lengths)")
        left.set_ylabel("block: part")
        for each, color in ((without, INK), (no_plus, REPLACED)):
            for i, found in enumerate(each):
                at = [row + side_by_side(0, len(each), 0.16)[i] for row in rows]
                right.plot(found, at, "o", color=color, markersize=10, linestyle="none")
        right.axvline(whole, **LEVEL)
        right.set_xlabel("loss; dotted: with all parts")
        right.set(xlim=(0, 8.6), xticks=[0, 2, 4, 6, 8])
        where = {"size": TYPE, "weight": "bold", "va": "center"}
        right.text(1.3, max(0, len(names) - 3), "without the part", color=INK, **where)
        right.text(2.6, len(names) - 1, "without its plus sign", color=REPLACED, **where)
        for ax in (left, right):
            set_type(ax, 20)
            ax.grid(visible=False, axis="y")
            ax.tick_params(axis="y", length=0)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
        left.set_title(" ", size=4)
    table = {
        "part": list(names),
        "adds": [fixed(length, 2) for length in lengths],
        "loss without it": [fixed(x, 2) for x in without.mean(0)],
        "loss without its plus sign": [fixed(x, 2) for x in no_plus.mean(0)],
    }
    told = ", ".join(
        f"{name} {loss}" for name, loss in zip(names, table["loss without it"], strict=True)
    )
    display(
        figure,
        alt=f"{title}. The loss without each part: {told}; with all of them {fixed(whole, 2)}.",
        caption=(
            "The shipped model. Left: how long the vector is that a part adds, compared with the "
            f"stream. Right: a dot is a set of new stories, {len(without)} sets. Without its "
            "plus sign alone, the result of a part replaces the stream."
        ),
        table=table,
    )
