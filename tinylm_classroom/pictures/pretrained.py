"""The pictures of lesson 18: what a real model says, what becomes what, where mistakes show, and
what a small update learns and forgets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..display.figures import axes, cells, display
from ..display.theme import AXIS_COLORS, INK, SERIES

TYPE = 20
HUES = {"embed": "V", "attention": "H", "ffn.": "F"}
EASE = torch.linspace(0, 1, 40).pow(2) * (3 - 2 * torch.linspace(0, 1, 40))


def answers(said: Mapping[str, Mapping[str, float]]) -> None:
    """Shows the likeliest next words, a group of bars for each model."""
    firsts = [max(words.items(), key=lambda pair: pair[1]) for words in said.values()]
    title = " and ".join(dict.fromkeys(word.strip() for word, _ in firsts))
    title = f"It says {title}: " + ", then ".join(f"{p:.2f}" for _, p in firsts)
    with axes(title, "probability", "next word", (9, 1.4 + 1.7 * len(said))) as (
        figure,
        ax,
    ):
        at = 0
        ticks = []
        for color, (name, words) in zip(SERIES, said.items(), strict=False):
            for i, (word, p) in enumerate(words.items()):
                ax.barh(at, p, color=color, label=name if i == 0 else None)
                ax.text(p + 0.01, at, f"{p:.2f}", va="center", size=TYPE)
                ticks.append(word.strip())
                at += 1
            at += 0.5
        places = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
        ax.set_yticks(places, ticks, size=TYPE)
        ax.set_xlim(0, 1)
        ax.invert_yaxis()
        if len(said) > 1:
            ax.legend(fontsize=TYPE, frameon=False)
    rows = []
    for name, words in said.items():
        rows += [(name, word.strip(), p) for word, p in words.items()]
    display(
        figure,
        alt="Bars: the next words with the highest probabilities. " + title,
        caption="The words with the highest probabilities after the sentence.",
        table=dict(zip(("model", "word", "probability"), zip(*rows, strict=True), strict=True)),
    )


def conversion(tensors: Sequence[tuple[str, str, int]]) -> None:
    """Shows which tensor of a file becomes which part of ours: (name, our name, numbers), in the
    order of the file. Of the blocks it shows block 0.
    """
    ours = {
        name: our for name, our, _ in tensors if our.split(".")[:1] != ["blocks"] or ".0." in our
    }
    right = {name: at for at, name in enumerate(sorted(ours, key=lambda name: _order(ours[name])))}
    title = "Each tensor becomes a part that you have built"
    with axes(title, "left: the file, right: our model", "tensors", (7.8, 5.2)) as (fig, ax):
        for at, name in enumerate(ours):
            letter = next((hue for part, hue in HUES.items() if part in ours[name]), "B")
            middle = at + (right[name] - at) * EASE
            color = AXIS_COLORS[letter].light
            ax.fill_between(
                torch.linspace(0, 1, 40), middle - 0.4, middle + 0.4, color=color, alpha=0.6, lw=0
            )
            ax.text(-0.03, at, _short(name), ha="right", va="center", size=18)
            ax.text(1.03, right[name], _short(ours[name]), va="center", size=18)
        ax.set(xlim=(-0.9, 2.15), ylim=(len(ours) - 0.4, -0.6), xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    display(
        fig,
        alt="Bands lead from the tensors of the file to the parts of our model.",
        caption="Block 0 and what is outside of the blocks. Green: embedding, purple: attention, "
        "pink: feed-forward, grey: norms.",
        table={"in the file": list(ours), "in our model": list(ours.values())},
    )


def fingerprints(errors: Mapping[str, Sequence[float]], at: Sequence[int]) -> None:
    """Shows the error of the logits at some positions, a row for each mistake."""
    shown = torch.tensor([list(row) for row in errors.values()]).clamp(max=1)
    title = "Wrong scores: right at position 0"
    with axes(title, "position in the text", "mistake", (6.8, 4.2)) as (figure, ax):
        ax.grid(visible=False)
        cells(ax, shown, shown, list(errors), [2] * len(errors))
        ax.set_xticks(range(len(at)), at)
    display(
        figure,
        alt="Heat map: mistakes that only change scores are right at position 0, others are not.",
        caption="Largest error of a logit, relative to the largest logit; 1.00 is that or more.",
        table={"mistake": list(errors)}
        | {f"position {p}": [f"{row[i]:.2f}" for row in errors.values()] for i, p in enumerate(at)},
    )


def learned_and_forgotten(points: Mapping[str, Sequence[Any]], before: Sequence[float]) -> None:
    """Shows for each training how well it knows the village, and its loss on old stories."""
    title = "A higher rate learns more and forgets more"
    x = "probability of the village's words"
    y = "loss on old stories"
    with axes(title, x, y, (8.6, 4.5)) as (figure, ax):
        ax.plot(*before, "s", color=INK, markersize=12)
        ax.annotate("before", before, (12, 0), textcoords="offset points", size=TYPE)
        for color, (name, found) in zip(SERIES, points.items(), strict=False):
            ax.plot(*zip(*found, strict=True), "o", color=color, markersize=13, label=name)
        ax.legend(fontsize=TYPE, frameon=False)
    rows = []
    for name, found in points.items():
        rows += [(name, *each) for each in found]
    display(
        figure,
        alt="Scatter plot: what is further right, and has learned more, is higher.",
        caption="Each dot is a training. Right is better for the village, down for the old world.",
        table=dict(zip(("trained", x, y), zip(*rows, strict=True), strict=True)),
        digits=2,
    )


def _order(ours: str) -> tuple:
    pieces = ours.split(".")
    rank = {"embed": 0, "blocks": 1, "final_norm": 2}[pieces[0]]
    return (
        rank,
        int(pieces[1]) if pieces[0] == "blocks" else 0,
        "ffn" in ours,
        "norm" not in ours,
        ours,
    )


def _short(name: str) -> str:
    """A tensor's name without its block and without `weight`."""
    return name.removeprefix("blk.0.").removeprefix("blocks.0.").removesuffix(".weight")


def levels(numbers: torch.Tensor) -> None:
    """Shows 32 numbers of one block (32) and the levels that they are on."""
    title = f"32 numbers, {len(numbers.unique())} of 16 levels"
    low = numbers.min().item()
    high = numbers.max().item()
    with axes(title, "which of the 32 numbers", "weight", (9.0, 4.5)) as (figure, ax):
        for level in torch.linspace(low, high, 16).tolist():
            ax.axhline(level, color=AXIS_COLORS["B"].light, lw=1.5)
        ax.grid(visible=False)
        ax.plot(range(32), numbers.tolist(), "o", color=SERIES[0], markersize=11)
    display(
        figure,
        alt="Dots: each of 32 weights lies on one of 16 equally spaced lines.",
        caption="The lines are the levels between the smallest and the largest of them.",
        table={"number": list(range(32)), "weight": numbers.tolist()},
    )


def languages(counts: Mapping[str, int]) -> None:
    """Shows how many tokens one sentence takes in some languages."""
    names = list(counts)
    title = f"{names[-1]} takes {counts[names[-1]] / counts[names[0]]:.0f} times as many tokens"
    with axes(title, "tokens of the same sentence", "language", (9, 3.8)) as (figure, ax):
        ax.barh(names, list(counts.values()), color=SERIES[0])
        for i, n in enumerate(counts.values()):
            ax.text(n + 1, i, str(n), va="center", size=TYPE)
        ax.set_xlim(0, 1.12 * max(counts.values()))
        ax.invert_yaxis()
    display(
        figure,
        alt="Bars: the tokens that one sentence takes in each language.",
        caption="A tokenizer needs the fewest tokens for what it was trained on.",
        table={"language": names, "tokens": list(counts.values())},
    )
