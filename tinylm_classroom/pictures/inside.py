"""The pictures of lesson 16: who has the thing, where its name can be read and where it is used,
what probes find, what pushes change, and which head marks a name.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Generator, Tensor

from tinylm_lib.model import TransformerLM

from ..display.figures import axes, cells, display, drawing
from ..display.numbers import fixed, learned
from ..display.theme import INK, QUIET, SERIES
from ..experiments import owners
from ..experiments.reading import WORDS
from .lettering import LEVEL, hide_axes, set_type

TYPE = 20
DEPTHS = ("embedding", "after block 0", "after block 1", "after block 2")
# of three curves, where nothing crosses them: the point, its side, letters in a line
LABELS = ((-0.3, 0.3, "right", 8), (-1.9, 1.09, "left", 20), (0, -0.1, "left", 20))
ENDINGS = {"A gives": "a gift", "trade": "a trade"}


def two_stories(model: TransformerLM, tokenizer: Any, said: Mapping[str, str]) -> None:
    """Shows two stories that differ in one sentence, and how probable the model finds both people
    as the owner.
    """
    title = "After a gift the model is sure, after a trade it is not"
    texts = {event: owners.texts_of([event], [said])[0] for event in ENDINGS}
    ways = [owners.EVENTS[event].format(**said) for event in ENDINGS]
    before, after = texts["A gives"].split(ways[0])
    found = {}
    with axes(title, "probability", "story", (11.4, 5.9)) as (figure, ax):
        _paragraph(ax, 0, before)
        for row, (event, way) in enumerate(zip(ENDINGS, ways, strict=True)):
            top = 4.6 + 2.3 * row
            ax.text(0, top, way.strip(), size=TYPE, weight="bold", color=SERIES[row])
            for i, role in enumerate("AB"):
                probs = owners.probs_of(model, tokenizer, [said[role]], [texts[event]])
                found[f"{ENDINGS[event]}: {said[role]}"] = p = probs.item()
                y = top - 0.55 + 0.85 * i
                ax.text(66, y + 0.2, said[role], size=TYPE, ha="right", va="center")
                ax.barh(y + 0.15, 15 * p, 0.62, left=67, color=SERIES[row])
                ax.text(67.8 + 15 * p, y + 0.2, fixed(p, 2), size=TYPE, va="center")
        _paragraph(ax, 9.1, f"{after.strip()} ___")
        ax.set(xlim=(0, 90), ylim=(11.0, -0.8))
        ax.set_title(title, size=23)
        hide_axes(ax)
    told = ", ".join(f"after {name} {fixed(p, 2)}" for name, p in found.items())
    display(
        figure,
        alt=f"{title}. {before.strip()} Then a gift or a trade. {after.strip()}: {told}.",
        caption=(
            "Two stories that differ in one sentence. Bars: how probable the model finds each name "
            "as the next word."
        ),
        table={"story: name": list(found), "probability": list(found.values())},
        digits=2,
    )


def _paragraph(ax: Axes, top: float, text: str) -> None:
    for i, line in enumerate(textwrap.wrap(text.strip(), 74)):
        ax.text(0, top + 0.95 * i, line, size=19, color=QUIET, va="center")


def by_event(found: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Shows the probability of each right owner as a dot, by what has happened: {event: (probs (N),
    whether it is the first choice (N))}.
    """
    title = "Sure after one gift, lost after a trade or two gifts"
    with axes(title, "the model's probability of the right owner", "before it", (11.4, 4.9)) as (
        figure,
        ax,
    ):
        for row, (probs, right) in enumerate(found.values()):
            noise = torch.rand(len(probs), generator=Generator().manual_seed(row)) - 0.5
            style = {"markersize": 9, "alpha": 0.4, "markeredgewidth": 0, "linestyle": "none"}
            ax.plot(probs, row + 0.55 * noise, "o", color=SERIES[row], **style)
            counted = f"{int(right.sum())} of {len(right)} right"
            ax.text(1.05, row, counted, size=TYPE, color=SERIES[row], va="center", weight="bold")
        ax.axvline(0.5, **LEVEL)
        ax.set_yticks(range(len(found)), list(found))
        ax.set(xlim=(-0.02, 1.02), ylim=(len(found) - 0.5, -0.5), xticks=[0, 0.5, 1], ylabel=" ")
        set_type(ax, 19)
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False)
        ax.set_title(title, size=23)
    rows = {group: f"{int(right.sum())} of {len(right)}" for group, (_, right) in found.items()}
    told = ", ".join(f"{group}: {counted} right" for group, counted in rows.items())
    display(
        figure,
        alt=f"{title}. Three rows of dots: {told}.",
        caption=(
            "Each dot is a name of an owner in a story. Right: the most probable word is this name."
        ),
        table={
            "before it": list(rows),
            "right": list(rows.values()),
            "mean probability": [probs.mean().item() for probs, _ in found.values()],
            "lowest": [probs.min().item() for probs, _ in found.values()],
        },
        digits=2,
    )


def maps(read: Tensor, used: Tensor) -> None:
    """Shows where the receiver can be read and where it is used, (L + 1, W) each, with the
    embedding at the bottom.
    """
    title = "What can be read is not what is used"
    panels = {
        "Read: how often a linear reader finds the receiver": (read, (read - 0.5) * 2),
        "Used: the other name's probability after an exchange here": (used, used),
    }
    depths = DEPTHS[::-1]
    with drawing(12.0, 6.2, axes_grid=False) as figure:
        both = figure.subplots(2, 1, sharex=True)
        for ax, (name, (values, shades)) in zip(both, panels.items(), strict=True):
            cells(ax, values.flip(0), shades.flip(0).clamp(0, 1), depths, [2] * 4)
            for text in ax.texts:
                number = float(text.get_text())
                is_small = number < (0.75 if ax is both[0] else 0.05)
                shown = "" if is_small else fixed(number, 1)
                text.set(text=shown, size=19)
            ax.set_title(name, size=19, weight="normal", pad=7)
            ax.tick_params(labelsize=19, length=0)
        both[1].set_xticks(
            range(len(WORDS)), WORDS, rotation=60, ha="right", rotation_mode="anchor", size=19
        )
        both[1].set_ylabel(" ")
        both[0].set_ylabel(" ")
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=24)
        both[0].set_xlabel("position")
        both[0].xaxis.label.set_visible(False)
    rows = {}
    for name, (values, _) in panels.items():
        for depth, row in zip(DEPTHS, values.tolist(), strict=True):
            rows[f"{name.split(':')[0]}, {depth}"] = row
    display(
        figure,
        alt=(
            f"{title}. Two maps of depth by position. Above, the receiver can be read at the names "
            "and later also at the full stop, at they and at the last word. Below, only the "
            "receiver's name and then the last word have an effect."
        ),
        caption=(
            "Each column is a word, to be read upwards. White means chance above, one half, and no "
            "effect below. Numbers near white are left out."
        ),
        table={"position": WORDS, **rows},
        digits=2,
    )


def probed(found: Mapping[str, Sequence[float]]) -> None:
    """Shows how often a probe at the last word is right at each depth, a line for each question."""
    title = "It knows who came first, not who has the thing"
    with axes(title, "the probe reads", "right in new texts", (11.4, 5.0)) as (figure, ax):
        ends = sorted((values[-1], name) for name, values in found.items())
        below = -1.0
        for end, name in ends:
            color = SERIES[list(found).index(name)]
            ax.plot(range(4), found[name], "-o", color=color, markersize=10, lw=3.5)
            below = max(end, below + 0.09)
            ax.text(3.12, below, name, size=TYPE, color=color, va="center", weight="bold")
        ax.axhline(0.5, **LEVEL)
        ax.text(-0.15, 0.43, "chance", size=19, color=QUIET)
        ax.set_xticks(range(4), DEPTHS)
        ax.set(xlim=(-0.2, 3.1), ylim=(0.3, 1.05), yticks=[0.5, 0.75, 1])
        set_type(ax, 19)
        ax.set_title(title, size=23)
        ax.grid(visible=False)
    rows = {name: [learned(value, 0, 1) for value in values] for name, values in found.items()}
    told = "; ".join(f"{name} {fixed(values[-1], 2)}" for name, values in found.items())
    display(
        figure,
        alt=f"{title}. After block 2: {told}; chance is one half.",
        caption="Stories after a trade or two gifts. A dot is a probe, trained on other stories.",
        table={"the probe reads": list(DEPTHS), **rows},
    )


def steered(
    strengths: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    changes: Mapping[str, Sequence[float]],
) -> None:
    """Shows how a push along a direction changes a probability, and, for pushes of half the
    distance, the largest change along each direction of several kinds.
    """
    title = "A push along the direction of the receiver changes the answer"
    with drawing(11.4, 5.3) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        for i, (name, curve) in enumerate(curves.items()):
            left.plot(strengths, curve, "-o", color=SERIES[i], markersize=8, lw=3)
            style = {"size": 19, "color": SERIES[i], "weight": "bold", "va": "center"}
            x, y, side, letters = LABELS[i]
            left.text(x, y, textwrap.fill(name, letters), ha=side, **style)
        left.set(ylim=(-0.16, 1.12), yticks=[0, 0.5, 1])
        left.set_xlabel("push, in distances")
        left.set_ylabel("probability of Mia")
        for row, values in enumerate(changes.values()):
            noise = torch.rand(len(values), generator=Generator().manual_seed(row)) - 0.5
            alone = len(values) == 1
            style = {"markersize": 13 if alone else 7, "alpha": 1 if alone else 0.35}
            height = [row] if alone else row + 0.5 * noise
            color = SERIES[0] if alone else INK
            right.plot(values, height, "o", color=color, markeredgewidth=0, ls="none", **style)
        right.set_yticks(range(len(changes)), list(changes))
        right.set(xlim=(-0.02, 0.6), ylim=(len(changes) - 0.5, -0.5), xticks=[0, 0.25, 0.5])
        right.set_xlabel("change by a push of 0.5")
        right.set_ylabel(" ")
        for ax in (left, right):
            set_type(ax, 19)
            ax.grid(visible=False)
        right.tick_params(axis="y", length=0)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=22)
        left.set_title(" ", size=4)
    most = {name: max(values) for name, values in changes.items()}
    told = ", ".join(f"{name} {fixed(value, 2)}" for name, value in most.items())
    display(
        figure,
        alt=f"{title}. Curves over the strength of a push, and the largest changes: {told}.",
        caption=(
            "Left: the mean over 16 texts. Right: each dot is a direction, all pushes are equally "
            "long; the larger change of the two, forwards and backwards."
        ),
        table={"direction": list(most), "largest change": list(most.values())},
        digits=2,
    )


def marks(found: Mapping[str, Tensor]) -> None:
    """Shows the probability of the giver if one head's outputs at the two names are exchanged, for
    each head of the first layers (L, H), a panel for each model.
    """
    title = "Same shortcut, another head"
    with drawing(11.4, 3.9, axes_grid=False) as figure:
        panels = figure.subplots(1, len(found), squeeze=False)[0]
        for ax, (name, values) in zip(panels, found.items(), strict=True):
            rows = [f"layer {i}" for i in range(len(values))][::-1]
            cells(ax, values.flip(0), values.flip(0).clamp(0, 1), rows, [2] * len(values))
            for text in ax.texts:
                text.set_size(TYPE)
            ax.set_xticks(range(values.shape[1]), [f"head {i}" for i in range(values.shape[1])])
            ax.tick_params(labelsize=18, length=0)
            ax.set_title(name, size=TYPE, weight="normal")
            ax.set_ylabel(" ")
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
        panels[0].set_xlabel("head")
        panels[0].xaxis.label.set_visible(False)
    table: dict[str, list[Any]] = {"model": [], "head": [], "giver": []}
    for name, values in found.items():
        for layer, row in enumerate(values.tolist()):
            for head, p in enumerate(row):
                table["model"].append(name)
                table["head"].append(f"layer {layer}, head {head}")
                table["giver"].append(p)
    best = {name: divmod(int(values.argmax()), values.shape[1]) for name, values in found.items()}
    told = "; ".join(f"{name}: layer {i}, head {head}" for name, (i, head) in best.items())
    display(
        figure,
        alt=f"{title}. The largest number: {told}.",
        caption=(
            "The probability of the giver, if what one head adds at giver and receiver is "
            "exchanged. Nothing else is changed."
        ),
        table=table,
        digits=2,
    )
