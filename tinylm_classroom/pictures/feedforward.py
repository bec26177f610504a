"""The pictures of lesson 08: where units are active and what they raise, a plane and a folded
sheet, many small networks, activation functions, SwiGLU, and words that a unit writes.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Polygon
from torch import Tensor

from ..display.figures import arrow, axes, box, display, drawing, ink_on, unframed
from ..display.numbers import fixed
from ..display.theme import AXIS_COLORS, HEAT, INK, LINE, QUIET, SERIES
from .lettering import LEVEL, hide_axes, set_type
from .story import LETTERS, places

TYPE = 20
LINE_HIGH = 1.3
FULL = 11.0  # the activation of the darkest ground
LEAST = 0.1  # of it: what is less active has no ground
LEARNED = 0.01  # a loss above it: not learned
BEST_LINEAR = 1 / 16
DEPTH = (0.62, 0.42)  # where a step along the second fact leads, in a drawing of the unit square
WIDE = 1.5  # a step along the first fact
N_NAMED = 3  # of the words that are not said


def units(
    said: Sequence[str],
    active: Mapping[int, Sequence[float]],
    raised: Mapping[int, Sequence[str]] | None = None,
) -> None:
    """Shows the same text for each unit, {unit: activation at each token}: the darker a token, the
    more active is the unit there.

    said: the tokens, with the blanks in front of them. raised: the words that its column raises.
    """
    title = "Each unit reacts to a few words" if not raised else "If it reads this, it raises that"
    at = places(said)
    n_lines = at[-1][1] + 1 + bool(raised)
    with drawing(11.4, 1.3 + len(active) * (0.35 + 0.38 * n_lines), axes_grid=False) as figure:
        panels = figure.subplots(len(active), 1, squeeze=False)[:, 0]
        for ax, (unit, numbers) in zip(panels, active.items(), strict=True):
            for token, place, number in zip(said, at, numbers, strict=True):
                _shaded(ax, token.strip(), place, number / FULL)
            if raised:
                then = f"then it raises:  {',  '.join(raised[unit])}"
                where = {"size": TYPE, "weight": "bold", "color": AXIS_COLORS["V"].light}
                ax.text(0, LINE_HIGH * (n_lines - 0.85), then, va="center_baseline", **where)
            bottom = LINE_HIGH * (n_lines - 0.4)
            ax.set(xlim=(-0.5, LETTERS + 0.5), ylim=(bottom, -0.7), xticks=[], yticks=[])
            ax.set_ylabel(f"unit {unit}", size=TYPE, weight="bold")
            unframed(ax)
        panels[0].set_title(title, size=24)
        figure.supxlabel("darker: the unit is more active", size=TYPE)
    words = [token.strip() for token in said]
    table: dict[str, Sequence[object]] = {"word": words}
    table |= {f"unit {unit}": numbers for unit, numbers in active.items()}
    told = []
    for unit, numbers in active.items():
        most = max(range(len(words)), key=lambda i: numbers[i])
        told.append(f"unit {unit} is most active at {words[most]}")
    for unit, each in (raised or {}).items():
        told.append(f"unit {unit} raises {', '.join(each)}")
    display(
        figure,
        alt=f"{title}. The words are darker where a unit is active. {'; '.join(told)}.",
        caption=(
            "If: the words at which the unit is active. Then: the next words that it raises most."
            if raised
            else "Nobody programmed these units: training found them. What is the rule of each?"
        ),
        table=table,
        digits=2,
    )


def _shaded(ax: Axes, word: str, place: tuple[int, int], shade: float) -> None:
    """A word at its column and line, on a ground that is darker for a larger shade."""
    (x, y) = place
    color = HEAT(min(max(shade, 0.0), 1.0))
    if shade > LEAST:
        ground = {"boxstyle": "round,pad=0,rounding_size=0.2", "fc": color, "ec": color}
        corner = (x - 0.1, LINE_HIGH * y - 0.5)
        ax.add_patch(FancyBboxPatch(corner, len(word) + 0.2, 1.0, **ground))
    style = {"family": "monospace", "va": "center_baseline", "ha": "center", "size": TYPE}
    style["color"] = ink_on(color) if shade > LEAST else INK
    for i, letter in enumerate(word):
        ax.text(x + i + 0.5, LINE_HIGH * y, letter, **style)


def _at(first: float, second: float, height: float) -> tuple[float, float]:
    """Where a point over the unit square is in the drawing."""
    return (WIDE * first + DEPTH[0] * second, DEPTH[1] * second + height)


def plane_and_sheet(plane: tuple[float, float, float]) -> None:
    """Shows the four cases of two facts as corners of a square, with the wanted heights 0, 0, 0 and
    1, under a plane (two weights and an offset) and under a sheet that is folded once.
    """
    title = "A plane misses, a folded sheet does not"
    corners = [(0, 0), (1, 0), (0, 1), (1, 1)]
    wanted = [0.0, 0.0, 0.0, 1.0]
    first, second, offset = plane
    flat = [first * a + second * b + offset for a, b in corners]
    misses = [abs(height - goal) for height, goal in zip(flat, wanted, strict=True)]
    with drawing(11.4, 5.4, axes_grid=False) as figure:
        left, right = figure.subplots(1, 2)
        for ax, heights, faces in (
            (left, flat, ((0, 1, 3, 2),)),
            (right, wanted, ((0, 1, 2), (1, 3, 2))),
        ):
            for face, alpha in zip(faces, (0.35, 0.6), strict=False):
                points = [_at(*corners[i], heights[i]) for i in face]
                style = {"fc": SERIES[0], "ec": SERIES[0], "lw": 2, "alpha": alpha, "zorder": 2}
                ax.add_patch(Polygon(points, closed=True, **style))
            base = [_at(*corners[i], 0) for i in (0, 1, 3, 2)]
            ax.add_patch(Polygon(base, closed=True, fill=False, ec=QUIET, lw=1.6, ls=":"))
            for corner, height, goal in zip(corners, heights, wanted, strict=True):
                x, y = _at(*corner, goal)
                if abs(height - goal) > 0.005:
                    style = {"color": SERIES[1], "lw": 5, "zorder": 3, "solid_capstyle": "round"}
                    ax.plot([x, x], [_at(*corner, height)[1], y], "-", **style)
                ax.plot(x, y, "o", color=INK, markersize=15, zorder=4)
                side = -0.14 if corner[0] == 0 else 0.14
                ha = "right" if corner[0] == 0 else "left"
                where = {"size": TYPE, "va": "center", "ha": ha, "zorder": 5}
                ax.text(x + side, y, f"{goal:.0f}", weight="bold", **where)
            ax.annotate(
                "first fact", (1.0, -0.32), (0.75, -0.32), ha="center", va="center", size=TYPE
            )
            ax.text(1.88, 0.02, "second\nfact", ha="left", va="center", size=TYPE)
            ax.set(xlim=(-0.5, 2.75), ylim=(min(-0.6, *flat) - 0.05, 1.75))
            ax.set(xticks=[], yticks=[])
            unframed(ax)
        missed = f"plane: misses by {fixed(max(misses), 2)}"
        left.set_title(missed, size=TYPE, loc="center", weight="normal")
        right.set_title("sheet with one fold: hits", size=TYPE, loc="center", weight="normal")
        left.set(xlabel=" ", ylabel=" ")
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=24)
    names = [f"({a}, {b})" for a, b in corners]
    told = ", ".join(f"{name} {fixed(height, 2)}" for name, height in zip(names, flat, strict=True))
    display(
        figure,
        alt=(
            f"{title}. A square whose corners should have the heights 0, 0, 0 and 1. Left a plane "
            f"over it, with the heights {told}. Right a sheet that lies flat over three corners "
            "and rises to the fourth."
        ),
        caption=(
            "Black dots: what we want at the four corners. Orange: by how much the plane misses. "
            "The sheet is one unit with ReLU: first fact + second fact - 1, cut off at 0."
        ),
        table={"facts": names, "wanted": wanted, "plane": flat, "sheet": wanted},
        digits=2,
    )


def runs(losses: Mapping[str, Tensor], alive: Mapping[str, Tensor]) -> None:
    """Shows the last loss of many runs, a dot for each (R), in a panel for each activation
    function, and how many units are alive in those that failed.
    """
    failed = {name: int((found > LEARNED).sum()) for name, found in losses.items()}
    names = list(losses)
    if "SiLU" in names:
        title = "All units off at the start: only ReLU cannot learn"
    else:
        title = "Without an activation function no run learns"
    n_runs = len(next(iter(losses.values())))
    with drawing(11.4, 4.9) as figure:
        panels = figure.subplots(1, len(losses), sharey=True)
        for ax, (name, found) in zip(panels, losses.items(), strict=True):
            ax.axhline(BEST_LINEAR, **LEVEL)
            bad = found > LEARNED
            at = torch.arange(n_runs)
            style = {"markersize": 9, "linestyle": "none"}
            ax.plot(at[~bad].tolist(), found[~bad].tolist(), "o", color=SERIES[0], **style)
            ax.plot(at[bad].tolist(), found[bad].tolist(), "o", color=SERIES[1], **style)
            if 0 < bad.sum() < n_runs / 2:
                for run in at[bad].tolist():
                    where = {"size": 19, "color": SERIES[1], "weight": "bold", "ha": "center"}
                    ax.text(run, found[run].item() + 0.008, int(alive[name][run]), **where)
                style = {"size": 19, "color": SERIES[1], "va": "center"}
                ax.text(-0.5, 0.2, "number: units alive", **style)
            learned = n_runs - failed[name]
            ax.set_title(f"{name}: {learned} of {n_runs} learn", size=TYPE, loc="center")
            ax.title.set_weight("normal")
            ax.set(xlim=(-2, n_runs + 1), ylim=(-0.012, 0.225), yticks=[0, 0.1, 0.2])
            ax.set_xticks([0, n_runs // 2, n_runs])
            set_type(ax, 19)
            ax.grid(visible=False)
        panels[0].set_ylabel("last loss", size=TYPE)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=24)
        figure.supxlabel("run (a dot is a run with a seed of its own)", size=TYPE)
    told = ", ".join(f"{name}: {n_runs - n} of {n_runs} learn" for name, n in failed.items())
    if any(0 < n < n_runs / 2 for n in failed.values()):
        above = "Numbers: how many of the six units of such a run are alive at the end."
    else:
        above = ""
    display(
        figure,
        alt=f"{title}. {told}.",
        caption=(
            "Dotted: 1/16, the best that a linear map can do. Orange runs have not learned the "
            f"task. {above}".strip()
        ),
        table={"activation function": names, "runs that fail": [failed[name] for name in names]},
    )


def curves(functions: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
    """Shows activation functions from -5 to 3, and their slopes, which autograd computes."""
    title = "Left of 0 ReLU is flat, SiLU and GELU are not"
    x = torch.linspace(-5, 3, 801, dtype=torch.float64, requires_grad=True)
    values = {name: function(x) for name, function in functions.items()}
    slopes = {name: torch.autograd.grad(y.sum(), x)[0] for name, y in values.items()}
    values = {name: y.detach() for name, y in values.items()}
    x = x.detach()
    with drawing(11.4, 5.0) as figure:
        left, right = figure.subplots(1, 2)
        for ax, lines, name in ((left, values, "result"), (right, slopes, "slope")):
            ax.axhline(0, color=LINE, lw=1.5)
            for (label, y), color, dash in zip(
                lines.items(), SERIES, ("-", "--", ":"), strict=False
            ):
                ax.plot(x.tolist(), y.tolist(), color=color, lw=4, linestyle=dash, label=label)
            ax.set_title(name, size=TYPE, loc="center", weight="normal")
            ax.set(xlabel="x", xticks=[-4, -2, 0, 2])
            set_type(ax, 19)
            ax.grid(visible=False)
        left.set(yticks=[0, 1, 2, 3], ylabel=" ")
        right.set(yticks=[0, 0.5, 1])
        left.legend(frameon=False, loc="upper left", fontsize=TYPE, handlelength=2.2)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=24)
    some = [100, 200, 300, 400, 500, 600, 700]  # of the points: -4 to 2
    table = {"x": [fixed(x[i], 0) for i in some]}
    table |= {name: [fixed(y[i], 4) for i in some] for name, y in values.items()}
    table |= {f"slope of {name}": [fixed(y[i], 4) for i in some] for name, y in slopes.items()}
    display(
        figure,
        alt=(
            f"{title}. ReLU has a corner at 0 and is 0 on its left. SiLU and GELU dip below 0 and "
            "come back to it. Right: the slope of ReLU jumps from 0 to 1, the others cross 0 where "
            "the dip is lowest."
        ),
        caption="Left the functions, right their slopes: the gradient is multiplied by the slope.",
        table=table,
    )


def branches() -> None:
    """Shows the way through SwiGLU: two branches and their product, with the shapes."""
    title = "SwiGLU: one branch decides how much of the other passes"
    arrows = (
        ((0.065, 0.56), (0.126, 0.76), "C"),
        ((0.065, 0.44), (0.141, 0.24), "C"),
        ((0.294, 0.8), (0.39, 0.8), "F"),
        ((0.47, 0.8), (0.617, 0.553), "F"),
        ((0.285, 0.2), (0.61, 0.465), "F"),
        ((0.672, 0.5), (0.725, 0.5), "F"),
        ((0.905, 0.5), (0.965, 0.5), "C"),
    )
    boxes = (
        (0.21, 0.8, "gate_proj\n(F, C)"),
        (0.43, 0.8, "silu"),
        (0.21, 0.2, "up_proj\n(F, C)"),
        (0.815, 0.5, "down_proj\n(C, F)"),
    )
    labels = (
        (0.0, 0.5, "x\n(B, T, C)", "C"),
        (0.66, 0.82, "(B, T, F)\nhow much?", "F"),
        (0.6, 0.2, "(B, T, F)\nof what?", "F"),
        (1.04, 0.5, "(B, T, C)", "C"),
    )
    with axes(title, "from left to right", "branches", (11.4, 4.8)) as (figure, ax):
        for start, end, letter in arrows:
            arrow(ax, start, end, letter, width=4)
        for x, y, says in boxes:
            box(ax, x, y, says)
        for x, y, says, letter in labels:
            style = {"color": AXIS_COLORS[letter].light, "weight": "bold", "size": 19}
            ax.text(x, y, says, ha="center", va="center", **style)
        ax.plot(0.64, 0.5, "o", color=INK, markersize=34)
        ax.text(0.64, 0.495, "×", color="white", size=28, ha="center", va="center")
        for text in ax.texts:
            text.set_fontsize(max(text.get_fontsize(), 19))
        ax.set(xlim=(-0.07, 1.12), ylim=(0.05, 0.95))
        ax.set_title(title, size=23)
        hide_axes(ax)
    display(
        figure,
        alt=(
            "Diagram: x goes through gate_proj and silu on one branch and through up_proj on the "
            "other; their product goes through down_proj."
        ),
        caption="Blue is C wide, pink F. The branches meet in the product, number by number.",
        table={
            "after": ["gate_proj, silu", "up_proj", "product", "down_proj"],
            "shape": ["(B, T, F)"] * 3 + ["(B, T, C)"],
        },
    )


def written(
    words: Sequence[str], probabilities: Mapping[str, Sequence[float]], said: Sequence[str]
) -> None:
    """Shows, for each word that a unit writes, its probability after two beginnings of a sentence,
    {beginning: one for each word}, in the order of the first. said: the most probable word there.
    """
    (first, second) = probabilities.values()
    order = sorted(range(len(words)), key=lambda i: first[i])
    missed = {words[i]: said[i] for i in order if words[i] != said[i]}
    n = len(words)
    title = f"Write a word, and the model says it: {n - len(missed)} of {n}"
    with axes(title, "word that the unit writes", "its probability", (11.4, 5.4)) as (figure, ax):
        for (name, probs), color, y in zip(probabilities.items(), SERIES, (0.9, 0.1), strict=False):
            style = {"color": color, "markersize": 7, "linestyle": "none"}
            ax.plot(range(n), [probs[i] for i in order], "o", **style)
            where = {"size": TYPE, "weight": "bold", "color": color, "ha": "right", "va": "center"}
            ax.text(n, y, f"after {name}", **where)
        if usual := [x for x, i in enumerate(order) if second[i] > 0.1]:
            text = f"{' and '.join(words[order[x]] for x in usual)}, as always"
            style = {"size": TYPE, "color": SERIES[1], "ha": "center", "va": "center"}
            ax.text(sum(usual) / len(usual), second[order[usual[0]]] - 0.1, text, **style)
        named: dict[str, str] = {}
        for word, other in missed.items():
            if other not in named.values() and len(named) < N_NAMED:
                named[word] = other
        lines = [f"the other {len(missed)} say a similar word:"]
        lines += [f"write {word}, it says {other}" for word, other in named.items()]
        for row, line in enumerate(lines if named else ()):
            ax.text(0.3 * n, 0.84 - 0.09 * row, line, size=TYPE, color=QUIET, va="center")
        ax.set(xlim=(-8, n + 6), ylim=(-0.04, 1.06), yticks=[0, 0.5, 1], xticks=[])
        set_type(ax, TYPE)
        ax.set_title(title, size=22)
        ax.grid(visible=False)
    rows = order[:: max(1, n // 20)]
    table = {"word": [words[i] for i in rows], "the model says": [said[i] for i in rows]}
    table |= {f"after {name}": [each[i] for i in rows] for name, each in probabilities.items()}
    display(
        figure,
        alt=f"{title}. A dot for each word: its probability after {' and '.join(probabilities)}.",
        caption="A dot is a word. The numbers are those of every 16th word.",
        table=table,
        digits=2,
    )
