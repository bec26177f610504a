"""The pictures of lesson 10: the blocks in another order, the first loss, where the gender of a
name is, and where the parameters are. Depth runs upwards: the embedding is at the bottom.
"""

from collections.abc import Mapping, Sequence
from math import log

import torch
from torch import Tensor

from tinylm_lib.model import TransformerLM

from ..display.figures import axes, display, ink_on, unframed
from ..display.numbers import fixed
from ..display.theme import AXIS_COLORS, HEAT, INK, QUIET, SERIES
from .lettering import LEVEL, set_type, side_by_side

TYPE = 20
TITLE = 23
PARTS = ("token tables", "attention", "feed-forwards")
GROUPS = {"embed": 0, "lm_head": 0, "attention": 1, "ffn": 2}


def orders(losses: Mapping[str, Sequence[float]]) -> None:
    """Shows the loss of the trained blocks in other orders: a bar for each, a dot for each set of
    stories.
    """
    title = "Reversed, the blocks do more harm than good"
    with axes(title, "loss in nats per token", " ", (10.6, 4.4)) as (figure, ax):
        means = {name: sum(found) / len(found) for name, found in losses.items()}
        for row, (name, found) in enumerate(losses.items()):
            color = QUIET if name == "no blocks" else SERIES[0]
            ax.barh(row, means[name], 0.62, color=color)
            at = side_by_side(row, len(found), 0.13)
            ax.plot(found, at, "o", color=INK, markersize=6, linestyle="none")
            end = max(found) + 0.08
            ax.text(end, row, fixed(means[name], 1), va="center", size=TYPE, weight="bold")
        ax.set_yticks(range(len(losses)), list(losses))
        ax.set(xlim=(0, 5), ylim=(len(losses) - 0.5, -0.5))
        set_type(ax, TYPE)
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, x=-0.36, size=TITLE)
        ax.grid(visible=False)
    told = ", ".join(f"{name} {fixed(mean, 2)}" for name, mean in means.items())
    display(
        figure,
        alt=f"{title}. Loss in nats per token: {told}.",
        caption="A black dot is a set of stories, a bar is the mean of the sets.",
        table={"blocks": list(means), "loss": list(means.values())},
        digits=2,
    )


def first_losses(losses: Mapping[float, Sequence[float]], vocab_size: int, width: int) -> None:
    """Shows the first loss of untrained models over the spread of the head's weights, a dot for
    each seed, with the curve ln V + s^2 / 2.
    """
    title = "The wider the first logits, the higher the first loss"
    level = log(vocab_size)
    stds = list(losses)
    with axes(title, "standard deviation of the head's weights", "first loss in nats", (10, 5)) as (
        figure,
        ax,
    ):
        curve = torch.linspace(0, max(stds) * 1.05, 60)
        ax.plot(curve, level + width * curve**2 / 2, color=QUIET, lw=3)
        ax.axhline(level, **LEVEL)
        for std, found in losses.items():
            gap = max(stds) / 130
            at = side_by_side(std, len(found), gap)
            ax.plot(at, found, "o", color=SERIES[0], markersize=9, linestyle="none")
        end = max(stds) * 1.03
        ax.text(end, level - 0.13, f"ln {vocab_size}", size=TYPE, color=QUIET, ha="right", va="top")
        high = level + width * (0.8 * max(stds)) ** 2 / 2
        where = {"size": TYPE, "color": QUIET, "ha": "right", "va": "bottom"}
        ax.text(0.78 * max(stds), high, f"ln {vocab_size} + s²/2", **where)
        ax.set(xlim=(0, max(stds) * 1.05), ylim=(level - 0.6, None))
        ax.set_xticks([0, 0.05, 0.1, 0.15, 0.2], ["0", "0.05", "0.1", "0.15", "0.2"])
        set_type(ax, TYPE)
        ax.title.set_size(TITLE)
    means = [sum(found) / len(found) for found in losses.values()]
    told = ", ".join(f"{fixed(m, 2)} at {std:g}" for std, m in zip(stds, means, strict=True))
    display(
        figure,
        alt=f"{title}. Dots follow a curve that begins at ln {vocab_size} and bends up: {told}.",
        caption=(
            "A dot is an untrained model, five seeds for each spread. The curve is not fitted: "
            "s is the standard deviation times the root of C."
        ),
        table={
            "standard deviation": stds,
            "mean first loss": means,
            "ln V + s²/2": [level + width * std**2 / 2 for std in stds],
        },
    )


def exchanges(grid: Tensor, text: str, title: str) -> None:
    """Shows the probability of the other pronoun when the vector at one position (column) and
    depth (row, the embedding at the bottom) comes from a text of the other gender: (depths, T).

    text: its words, with blanks between them, one for each position.
    """
    words = text.split()
    n = len(grid) - 1
    rows = ["embedding", *(f"after block {i}" for i in range(n))]
    digits = 2 if len(words) < 15 else 1
    with axes(title, "position that is exchanged", " ", (11.4, 4.3)) as (figure, ax):
        ax.imshow(grid.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto", origin="lower")
        for depth, values in enumerate(grid.tolist()):
            for at, value in enumerate(values):
                if value >= 0.05:
                    style = {"ha": "center", "va": "center", "size": 18, "weight": "bold"}
                    ax.text(at, depth, fixed(value, digits), color=ink_on(HEAT(value)), **style)
        slanted = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(range(len(words)), words, **slanted)
        ax.set_yticks(range(n + 1), rows)
        ax.set_xticks([at - 0.5 for at in range(1, len(words))], minor=True)
        ax.set_yticks([at - 0.5 for at in range(1, n + 1)], minor=True)
        ax.grid(visible=False)
        ax.grid(visible=True, which="minor", color="white", linewidth=2)
        ax.tick_params(which="minor", length=0)
        unframed(ax)
        set_type(ax, 18)
        ax.set_title(title, x=-0.17, size=22)
    where = []
    for depth, at in (grid > 0.5).nonzero().tolist():
        where.append(f"{rows[depth]} at {words[at]}")
    display(
        figure,
        alt=f"{title}. Heat map, to be read upwards. Dark cells: {', '.join(where) or 'none'}.",
        caption=(
            "The probability of the wrong pronoun, mean of 40 names, when one vector comes from a "
            "text of the other gender. Dark: here is the gender that the model uses. Numbers below "
            "0.05 are left out."
        ),
        table={
            "depth": rows,
            **{
                f"{at} {word}": [fixed(value, 2) for value in column]
                for at, (word, column) in enumerate(zip(words, grid.T.tolist(), strict=True))
            },
        },
    )


def parts_of(model: TransformerLM) -> list[int]:
    """The parameters in token tables (embedding and head), in attention and in feed-forwards."""
    found = [0] * len(PARTS)
    for name, p in model.named_parameters():
        part = name.split(".")[2 * name.startswith("blocks")]
        if part in GROUPS:
            found[GROUPS[part]] += p.numel()
    return found


def where_parameters(models: Mapping[str, TransformerLM]) -> None:
    """Shows the fraction of each model's parameters that each kind of part holds."""
    title = "The feed-forwards hold the largest part"
    percent: dict[str, list[str]] = {name: [] for name in PARTS}
    with axes(title, "fraction of all parameters", " ", (11.4, 5.0)) as (figure, ax):
        names = []
        for row, (name, model) in enumerate(models.items()):
            total = sum(p.numel() for p in model.parameters())
            names.append(f"{name}\n{total / 1e6:,.1f} million")
            left = 0.0
            for part, letter, count in zip(PARTS, "VDF", parts_of(model), strict=True):
                share = count / total
                hue = AXIS_COLORS[letter].light
                label = part if row == 0 else None
                ax.barh(row, share, 0.66, left, color=hue, edgecolor="white", label=label)
                style = {"ha": "center", "va": "center", "color": "white", "weight": "bold"}
                ax.text(left + share / 2, row, f"{share:.0%}", size=18, **style)
                percent[part].append(f"{share:.0%}")
                left += share
        ax.set_yticks(range(len(names)), names)
        ax.set(xlim=(0, 1), xticks=[0, 0.5, 1], ylim=(len(names) - 0.5, -0.5))
        set_type(ax, 18)
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False)
        ax.set_title(title, x=-0.22, size=TITLE)
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=18)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{part} {percent[part][i]}" for part in PARTS)
        for i, name in enumerate(models)
    )
    display(
        figure,
        alt=f"{title}. {told}.",
        caption=(
            "The token tables are the embedding and the head. Norms, biases and tables of "
            "positions are too few to be seen."
        ),
        table={"model": list(models), **percent},
    )


def growth(sizes: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Shows how the stream of untrained models grows from layer to layer: for each kind of first
    weights one course for each seed.
    """
    title = "First weights decide how the stream grows"
    n = len(next(iter(sizes.values()))[0])
    with axes(title, "after layer", "standard deviation", (10.6, 5.2)) as (figure, ax):
        for place, (name, courses) in enumerate(sizes.items()):
            color = SERIES[place % len(SERIES)]
            for course in courses:
                ax.plot(range(n), course, color=color, linewidth=2)
            last = courses[0][-1]
            ax.text(n - 0.8, last, name, va="center", size=TYPE, color=color, weight="bold")
        ax.set_yscale("log")
        ax.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        ax.set(xlim=(0, n + 3.2), xticks=range(0, n, 2))
        set_type(ax, TYPE)
        ax.title.set_size(TITLE)
    times = {
        name: sum(course[-1] / course[0] for course in courses) / len(courses)
        for name, courses in sizes.items()
    }
    told = ", ".join(f"{name} {fixed(value, 1)} times" for name, value in times.items())
    display(
        figure,
        alt=f"{title}. Line chart, logarithmic, over {n - 1} layers: {told}.",
        caption="A line is a seed. Layer 0 is the stream before the first layer.",
        table={"first weights": list(times), "times as large at the end": list(times.values())},
        digits=2,
    )
