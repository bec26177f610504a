"""The pictures of lesson 02: a map of words, a linear map as three grids, the slope of a loss, the
chain rule, questions that are found, and a direction that is fitted on some names and removed from
all.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import torch
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from torch import Tensor
from torch.nn.functional import normalize

from ..display.figures import arrow, axes, box, display, drawing, ink_on, unframed
from ..display.numbers import fixed, learned
from ..display.theme import AXIS_COLORS, INK, QUIET, SERIES, SIGNED
from .lettering import hide_axes, set_type, side_by_side

_MARKS = "osD^vX"
_HUES = [*SERIES[:4], AXIS_COLORS["S"].light, INK]
# Where the name of a cloud is, as two clouds may be one.
_SIDES = {"boys": (0, 1), "things": (0, 1), "colours": (1, 0), "traits": (-1, 0)}
_ABOVE = {"girls": "boys"}  # the name of one cloud of two kinds has two lines
_LIMIT = 3.0  # of the colours of weights


def in_plane(rows: Tensor, first: Tensor) -> Tensor:
    """rows (N, C). Their coordinates (N, 2) along the two directions in which they vary most.

    first (N,): the rows that are on the positive side of both axes on average, as an axis may point
    either way.
    """
    cloud = normalize(rows, dim=-1)
    cloud = cloud - cloud.mean(0)
    plane = cloud @ torch.linalg.svd(cloud, full_matrices=False).Vh[:2].T  # (N, 2)
    return plane * plane[first].mean(0).sign()


def word_map(tables: Mapping[str, Tensor], kinds: Mapping[str, Tensor]) -> None:
    """Shows words as points, seen from the side from which they are widest, once for each table.

    tables: {when: (V, C)}; the second is drawn large, with the names of the kinds. kinds: the ids
    of the words of each.
    """
    ids = torch.cat([*kinds.values()])
    sizes = [len(members) for members in kinds.values()]
    first = torch.arange(len(ids)) < sizes[0]
    planes = {when: in_plane(table[ids], first).split(sizes) for when, table in tables.items()}
    with drawing(11.4, 6.4, axes_grid=False) as figure:
        both = figure.subplots(1, 2, width_ratios=(2, 3))
        for ax, (when, points), size in zip(both, planes.items(), (40, 95), strict=True):
            _draw_kinds(ax, points, size, kinds if size > 40 else ())
            ax.set(xlabel="first direction", xticks=[], yticks=[])
            ax.set_title(when, size=20, weight="normal", loc="center")
            ax.xaxis.label.set_size(20)
        both[0].set_ylabel("second direction", size=20)
        both[1].margins(x=0.14)
        both[0].set_box_aspect(1)
        both[1].set_box_aspect(1)
        title = "Training sorts the words, and nobody named a kind"
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
    table: dict[str, list[object]] = {"kind, mean of": [*kinds]}
    for when, points in planes.items():
        for axis, name in enumerate(("first", "second")):
            table[f"{when}, {name}"] = [learned(of.mean(0)[axis].item(), -1, 1) for of in points]
    display(
        figure,
        alt=(
            f"{title}. {len(ids)} words as points, coloured by kind: mixed before training; "
            "afterwards places, things and names are clouds of their own. Names of girls and of "
            "boys lie together, and so do colours and traits."
        ),
        caption=(
            "Each point is a word, seen along the two directions in which the cloud is widest "
            "(*principal components*). The colours are ours, added after training."
        ),
        table=table,
    )


def _draw_kinds(ax: Axes, points: Sequence[Tensor], size: int, names: Sequence[str]) -> None:
    for at, of_kind in enumerate(points):
        across, up = of_kind.T.tolist()
        style = {"s": size, "color": _HUES[at], "marker": _MARKS[at], "edgecolors": "white"}
        ax.scatter(across, up, **style)
    for at, name in enumerate(names):
        other = _ABOVE.get(name, name)
        cloud = points[[*names].index(other)] if other in names else points[at]
        side = torch.tensor(_SIDES.get(other, (0, -1)))
        low = cloud.amin(0)
        high = cloud.amax(0)
        middle = cloud.mean(0)
        edge = torch.where(side > 0, high + 0.04, torch.where(side < 0, low - 0.04, middle))
        halo = [withStroke(linewidth=6, foreground="white")]
        style = {"size": 20, "weight": "bold", "color": _HUES[at], "path_effects": halo}
        across = {1: "left", -1: "right"}.get(int(side[0]), "center")
        up = 22 if other in names and other != name else 0  # points
        ax.annotate(
            name, edge.tolist(), (0, up), textcoords="offset points", ha=across, va="center",
            zorder=5, **style,
        )  # fmt: skip


def _grid(
    ax: Axes, numbers: Tensor, rows: Sequence[str], columns: Sequence[str], digits: int = 0
) -> None:
    """Draws numbers (rows, columns) as square cells: blue is positive, orange negative."""
    ax.imshow(numbers.numpy(), cmap=SIGNED, vmin=-_LIMIT, vmax=_LIMIT, aspect="equal")
    for i, row in enumerate(numbers.tolist()):
        for j, number in enumerate(row):
            color = ink_on(SIGNED((number + _LIMIT) / (2 * _LIMIT)))
            at = {"ha": "center", "va": "center_baseline", "color": color}
            ax.text(j, i, fixed(number, digits), size=20, **at)
    slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(columns)), columns, size=20, **slanted)
    ax.set_yticks(range(len(rows)), rows, size=20)
    unframed(ax)
    ax.grid(visible=False)


def three_grids(
    x: Tensor, weight: Tensor, words: Sequence[str], features: Sequence[str], asked: Sequence[str]
) -> None:
    """Shows a linear map to scale: x (words, in), its weight (out, in) and the answers (words,
    out); one answer is framed with the two rows that it comes from.
    """
    answers = x @ weight.T  # (words, in) @ (in, out) -> (words, out)
    short = [each.split()[-1] for each in asked]
    grids = {
        "x": (x, words, features),
        "weight": (weight, asked, features),
        "answers": (answers, words, short),
    }
    widths = [numbers.shape[1] for numbers, _, _ in grids.values()]
    with drawing(12.4, 5.2, axes_grid=False) as figure:
        three = figure.subplots(1, 3, width_ratios=widths)
        for ax, (name, (numbers, rows, columns)) in zip(three, grids.items(), strict=True):
            _grid(ax, numbers, rows, columns)
            ax.set(ylim=(len(words) - 0.5, -0.5), anchor="N")  # as high as the others: to scale
            ax.tick_params(axis="x", pad=4)
            ax.set_title(f"{name} {tuple(numbers.shape)}", size=20, weight="normal", loc="center")
        for ax, width in zip(three, (widths[0], widths[1], 1), strict=True):
            edges = {"xy": (-0.5, -0.5), "width": width, "height": 1, "fill": False}
            frame = type(ax.patch)(**edges, ec=SERIES[1], lw=5, zorder=3, clip_on=False)
            ax.add_patch(frame)
        title = "A row of x times a row of the weight is one answer"
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
        terms = zip(x[0].tolist(), weight[0].tolist(), strict=True)
        summed = " + ".join(f"{feature:.0f}·{w:.0f}" for feature, w in terms)
        figure.supxlabel(f"{summed} = {answers[0, 0]:.0f}", size=22, color=SERIES[1])
        three[0].set_ylabel("word", size=20)
    display(
        figure,
        alt=(
            f"{title}. Three grids to scale: {len(words)} words with {len(features)} features, "
            f"{len(asked)} questions with as many weights, and their answers. The first word, the "
            f"first question and their answer, {answers[0, 0]:.0f}, are framed."
        ),
        caption=(
            f"Multiply the framed rows number by number and add up: *{words[0]}*, asked "
            f"*{asked[0]}*"
        ),
        table={
            "word": [*words],
            **{each: answers[:, i].tolist() for i, each in enumerate(asked)},
        },
    )


def slope(inputs: Sequence[float], wanted: float, weights: Sequence[float]) -> None:
    """Shows the loss over the first of two weights, with its slope at the weights given and a step
    against it.
    """
    (first, second) = weights
    (a, b) = inputs

    def loss(weight: float) -> float:
        return (weight * a + second * b - wanted) ** 2

    gradient = 2 * (first * a + second * b - wanted) * a
    here = loss(first)
    tried = [1 + n / 50 for n in range(66)]
    title = "The gradient is the slope of the loss"
    with axes(title, "first weight", "loss", (10, 4.9)) as (figure, ax):
        ax.plot(tried, [loss(weight) for weight in tried], "-", lw=4)
        ends = [first - 0.16, first + 0.3]
        line = [here + gradient * (end - first) for end in ends]
        ax.plot(ends, line, "-", lw=4, color=SERIES[1])
        ax.plot([first], [here], "o", markersize=15, color=INK, zorder=3)
        arrow(ax, (first - 0.04, here), (first - 0.26, here), letter="T", width=4)
        ax.text(first + 0.04, here - 0.15, f"the weight is {first:.0f}", size=20)
        told = f"slope {gradient:.0f}:\nthe gradient"
        ax.text(first + 0.23, here + 0.55, told, size=20, color=SERIES[1])
        against = "a step against\nthe gradient"
        ax.text(first - 0.28, here + 0.12, against, size=20, color=SERIES[1])
        ax.text(1.32, 2, "the loss", size=20, color=SERIES[0])
        ax.set(xlim=(1.15, 2.5), ylim=(-0.1, 3.2))
        set_type(ax, 18)
    display(
        figure,
        alt=(
            f"The loss over the first weight is a parabola. At {first:.0f} it is {here:.0f}, and a "
            f"straight line of slope {gradient:.0f} touches it. An arrow leads to the left."
        ),
        caption=(
            f"At {first:.0f} the loss grows to the right, with the slope {gradient:.0f}, so "
            "learning takes a step to the left."
        ),
        table={"first weight": tried[::10], "loss": [loss(weight) for weight in tried[::10]]},
    )


def chain(inputs: Sequence[float], wanted: float, weights: Sequence[float]) -> None:
    """Shows the way from the first of two weights to the loss in boxes, what each step does above
    its arrow, and below, on the way back, its slope.
    """
    (first, second) = weights
    (a, b) = inputs
    guess = first * a + second * b
    error = guess - wanted
    values = [f"weight {first:g}", f"guess {guess:g}", f"error {error:g}", f"loss {error**2:g}"]
    steps = [
        f"times {a:g}, {'minus' if second * b < 0 else 'plus'} {abs(second * b):g}",
        f"minus the wanted {wanted:g}",
        "squared",
    ]
    slopes = [a, 1.0, 2 * error]
    title = "Forward the values, backward the slopes"
    with axes(title, "step", "value", (12, 3.9)) as (figure, ax):
        for i, name in enumerate(values):
            box(ax, 4 * i, 0, name, letter="" if i else "C")
            ax.texts[-1].set_size(21)
        for i, (step, each) in enumerate(zip(steps, slopes, strict=True)):
            start = 4 * i + 1.05
            end = start + 1.9
            arrow(ax, (start, 0.2), (end, 0.2), letter="C", width=2.5)
            arrow(ax, (end, -0.2), (start, -0.2), letter="T", width=2.5)
            ax.text(4 * i + 2, 0.42, step, ha="center", va="bottom", size=19)
            at = {"ha": "center", "va": "top", "size": 20, "color": SERIES[1]}
            ax.text(4 * i + 2, -0.42, f"slope {each:g}", **at)
        gradient = math.prod(slopes)
        told = " · ".join(f"{each:g}" for each in reversed(slopes))
        at = {"ha": "center", "size": 22, "color": SERIES[1]}
        ax.text(6, -1.45, f"back from the loss: {told} = {gradient:g}", **at)
        ax.set(xlim=(-1.3, 13.3), ylim=(-1.65, 0.95), xticks=[], yticks=[])
        hide_axes(ax)
    display(
        figure,
        alt=(
            f"{', '.join(values)}, in a row. Arrows to the right carry values, arrows back the "
            f"slopes, whose product is {gradient:g}."
        ),
        caption=(
            "A slope says by how much the value at its right grows for each 1 that the value at "
            f"its left grows. The product of all, {gradient:g}, is the gradient."
        ),
        table={"from": values[:-1], "to": values[1:], "slope": [*slopes]},
    )


def found_questions(
    learn: Callable[..., Tensor],
    hidden: Tensor,
    asked: Sequence[str],
    features: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Shows weights (out, in) during a training, a question in each row, and below them how far
    each of several runs is from the hidden questions.

    learn: learn(words, updates, seed=...) returns the weights after so many updates.
    """
    every = range(5)
    grids = {f"{n} updates" if n else "at the start": learn(every, n) for n in (0, 100)}
    grids["hidden"] = hidden
    errors = {n: _errors(learn, hidden, n, seeds) for n in (0, 10, 30, 100)}
    title = "From answers alone, each row becomes a question"
    with drawing(12.4, 6.4, axes_grid=False) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=(4.4, 2.6))
        row = above.subplots(1, len(grids), sharey=True)
        for ax, (when, weights) in zip(row, grids.items(), strict=True):
            _grid(ax, weights, asked, features, digits=1)
            ax.set_aspect("auto")
            ax.set_title(when, size=20, weight="normal", loc="center")
        row[0].set_ylabel("question", size=20)
        row[0].set_xlabel("weight of", size=20)
        above.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
        ax = below.subplots()
        for place, runs in enumerate(errors.values()):
            beside = side_by_side(place, len(runs), 0.06)
            ax.plot(beside, runs, "o", ms=12, color=SERIES[0], linestyle="none")
        ax.set_xticks(range(len(errors)), [f"{updates} updates" for updates in errors], size=20)
        ax.tick_params(axis="y", labelsize=20)
        ax.set(xlim=(-0.5, len(errors) - 0.5), ylim=(-0.2, 1.1 * max(map(max, errors.values()))))
        told = "largest difference from the hidden weights, a dot for each run"
        ax.set_title(told, size=20, weight="normal")
        ax.grid(visible=True, axis="y")
    told = "; ".join(f"{n} updates, at most {max(runs):.1f}" for n, runs in errors.items())
    columns = {when: weights.flatten().tolist() for when, weights in grids.items()}
    display(
        figure,
        alt=(
            f"{title}. Grids of weights, a question in each row: random at the start, after "
            f"training equal to the hidden ones. Largest differences: {told}."
        ),
        caption=(
            "A row is a question. Every run begins with random numbers, sees only words and "
            "answers, and finds the weights that we had hidden."
        ),
        table={
            "question": [each for each, _ in product(asked, features)],
            "weight of": [each for _, each in product(asked, features)],
            **columns,
        },
        digits=2,
    )


def _errors(
    learn: Callable[..., Tensor], hidden: Tensor, updates: int, seeds: Sequence[int]
) -> list[float]:
    found = [learn(range(5), updates, seed=seed) for seed in seeds]
    return [(each - hidden).abs().max().item() for each in found]


def fit_and_test(splits: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Shows how many pronouns are right without a direction, for the names that it was made from
    and for the others: a dot for each split of the names.

    splits: for each, which names made the direction, and which keep their pronoun, (N) both.
    """
    n = int(splits[0][0].sum())
    fitted = [int(kept[made].sum()) for made, kept in splits]
    others = [int(kept[~made].sum()) for made, kept in splits]
    title = "Without it, the others keep their pronoun"
    with axes(title, "names", f"right pronouns of {n}", (10.4, 5.6)) as (figure, ax):
        for place, (runs, color) in enumerate(((fitted, SERIES[1]), (others, SERIES[0]))):
            beside = side_by_side(place, len(runs), 0.06)
            ax.plot(beside, runs, "o", ms=15, color=color, linestyle="none", alpha=0.85)
        ax.axhline(n / 2, color=QUIET, lw=1.8, linestyle=":")
        ax.text(1.46, n / 2 + 0.4, "a coin", size=19, color=QUIET, ha="right")
        ax.set_xticks((0, 1), ("they made the direction", "they did not"))
        ax.set(xlim=(-0.5, 1.5), ylim=(-0.6, n + 1), yticks=[0, n / 4, n / 2, 3 * n / 4, n])
        set_type(ax, 19)
        ax.set_xlabel(f"{n} names each, a dot for each split")
        ax.title.set_size(22)
    spans = [f"{min(runs)} to {max(runs)}" for runs in (fitted, others)]
    display(
        figure,
        alt=(
            f"{title}. Right pronouns of {n}: of the names that made the direction {spans[0]}, of "
            f"the others {spans[1]}."
        ),
        caption=(
            "A direction that half of the names made is removed from all. Of these names "
            f"{spans[0]} of {n} keep their pronoun, of the others {spans[1]}."
        ),
        table={"names": ["made the direction", "others"], "right": spans},
    )
