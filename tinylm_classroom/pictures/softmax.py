"""The pictures of lesson 03: from scores to probabilities, what a loss is, how a table learns,
where a mean loss is lowest, and what a second softmax does.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from ..display.figures import axes, display, drawing, unframed
from ..display.theme import INK, QUIET, SERIES
from .lettering import LEVEL, set_type

_STAGES = ("score", "exponential", "probability")
_DIAMOND: dict[str, Any] = {
    "mfc": "white",
    "mec": INK,
    "mew": 2,
    "ms": 11,
    "clip_on": False,
    "linestyle": "none",
}
_EXAMPLES = (0.5, 0.7)  # exact probabilities of the two valleys


def columns(tokenizer: Any, ids: Tensor, scores: Tensor, exact: Tensor, n_stages: int = 3) -> None:
    """Shows for some tokens their scores, the exponentials of these, and their probabilities with
    the exact ones, one column beside the other; only the first `n_stages` of them.

    ids: the tokens shown (n), the least likely one last. scores, exact: of all tokens (V).
    """
    words = [tokenizer.decode([i]).strip() for i in ids.tolist()]
    probs = scores.softmax(0)[ids]  # (V) -> (n)
    scores = scores[ids]  # (n)
    exact = exact[ids]  # (n)
    stages = dict(zip(_STAGES[:n_stages], (scores, scores.exp(), probs), strict=False))
    with drawing(12.4, 6.3) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        for ax, stage in zip(panels, _STAGES, strict=True):
            if stage not in stages:
                ax.axis("off")
                continue
            top = exact if stage == "probability" else torch.zeros(len(words))
            _bars(ax, stage, stages[stage], top)
        panels[0].set_yticks(range(len(words)), words, size=20)
        panels[0].set_ylim(len(words) - 0.4, -0.8)
        if n_stages == 3:
            panels[2].plot(exact, range(len(words)), marker="D", label="exact", **_DIAMOND)
            panels[2].legend(frameon=False, loc="lower right", fontsize=21, handletextpad=0.1)
    says = f"{words[0]} has the highest score, and {words[-1]}, far behind, the lowest one."
    if n_stages == 3:
        says += f" {words[0]} gets the probability {probs[0]:.3f}, and {words[-1]} nearly 0."
    table = {"word": words} | {stage: values.tolist() for stage, values in stages.items()}
    if n_stages == 3:
        table["exact"] = exact.tolist()
    display(
        figure,
        alt=f"Bars of {len(words)} words, one column for {', '.join(stages)}. {says}",
        caption=(
            "The scores of a trained model for the next word: ten that can come, and one that "
            "cannot."
            if n_stages < 3
            else "Scores become positive, and then each is divided by the sum of all 345. The "
            "diamonds are the exact probabilities, which nobody showed to the model."
        ),
        table=table,
    )


def _bars(ax: Axes, stage: str, values: Tensor, top: Tensor) -> None:
    high = values.max().item()
    low = values.min().item()
    colors = [SERIES[0] if value > 0 else SERIES[1] for value in values.tolist()]
    ax.barh(range(len(values)), values.tolist(), color=colors, height=0.7)
    for i, value in enumerate(values.tolist()):
        label = {"score": f"{value:.1f}", "exponential": f"{value:,.{0 if value > 9 else 2}f}"}
        right = max(value, top[i].item(), 0)
        says = label.get(stage, f"{value:.{3 if value > 0.001 else 7}f}")
        ax.text(right + 0.08 * high, i, says, va="center_baseline", size=20)
    ax.set(xlim=(min(0, 1.2 * low), 1.6 * high), xticks=[])
    ax.set_title(stage, size=24)
    ax.grid(visible=False)
    ax.set_xlabel(stage)
    ax.set_ylabel("next word")
    ax.xaxis.label.set_visible(False)
    ax.yaxis.label.set_visible(False)
    unframed(ax)


def loss_of_what_comes(losses: Mapping[str, float]) -> None:
    """Shows the loss over the probability of what comes, with the given losses as points; those
    that are too high for the picture are named above it.
    """
    given = torch.linspace(0.0005, 1, 2000)
    title = "The less expected, the higher the loss"
    with axes(title, "probability of what came", "loss (nats)", (10.4, 5.2)) as (figure, ax):
        ax.plot(given, -given.log(), color=SERIES[0], linestyle="-", linewidth=3)
        for word, loss in losses.items():
            if loss > 7.5:
                says = f"{word}: {loss:.1f} nats, far above this picture"
                ax.text(0.03, 6.9, says, size=20, va="center")
                continue
            ax.plot(math.exp(-loss), loss, "o", color=INK, markersize=12)
            ax.text(math.exp(-loss) + 0.025, loss + 0.15, word, size=20)
        ax.set(xlim=(0, 1.02), ylim=(0, 7.6), xticks=[0, 0.25, 0.5, 0.75, 1])
        set_type(ax, 19)
    probs = [math.exp(-loss) for loss in losses.values()]
    points = ", ".join(f"{word} {loss:.1f}" for word, loss in losses.items())
    display(
        figure,
        alt=f"The loss falls with the probability, steeply at first, to 0 at 1. Points: {points}.",
        caption=(
            "What was certain has a loss of 0. The smaller the probability of what comes, the "
            "faster the loss rises."
        ),
        table={"word": [*losses], "probability": probs, "loss (nats)": [*losses.values()]},
    )


Runs = Sequence[Sequence[float]]  # the losses of some training runs


def table_learns(runs: Mapping[str, Runs], levels: Mapping[str, float]) -> None:
    """Shows the losses of training runs, several for each name, and some levels."""
    title = "Without their order, only frequencies are left"
    with axes(title, "update", "loss (nats per token)", (11.2, 5.6)) as (figure, ax):
        n = 0
        for color, (name, losses) in zip(SERIES, runs.items(), strict=False):
            for one in losses:
                n = len(one)
                ax.plot(range(n), one, color=color, linestyle="-", linewidth=1.8, alpha=0.8)
            middle = sum(one[n // 2] for one in losses) / len(losses)
            ax.text(n, middle - 0.2, name, color=color, size=20, va="top", ha="right")
        for name, level in levels.items():
            ax.plot([0, n], [level, level], **LEVEL)
            ax.text(1.03 * n, level, name, color=QUIET, va="center", size=19)
        ax.set(xlim=(0, 1.62 * n), ylim=(0, 6.4), xticks=[0, n // 2, n])
        set_type(ax, 19)
    ends = {name: sum(one[-1] for one in losses) / len(losses) for name, losses in runs.items()}
    says = "; ".join(f"{name} ends at {end:.1f}" for name, end in ends.items())
    n_runs = len(next(iter(runs.values())))
    display(
        figure,
        alt=(
            f"Falling curves of the loss, {n_runs} training runs each, and levels of guessing: "
            f"{says}."
        ),
        caption=(
            f"The same table and the same tokens, {n_runs} training runs each. In their order the "
            "table learns what follows what; in random order only how common each token is."
        ),
        table={"level": [*levels], "nats per token": [f"{level:.1f}" for level in levels.values()]},
    )


def valleys(points: Mapping[str, float]) -> None:
    """Shows the mean loss of two words over the probability given to the first, which really comes
    in 0.5 or in 0.7 of all cases; points: probabilities given, all on the valley of 0.5.
    """
    given = torch.arange(1, 100) / 100  # (99)
    title = "Lowest at the exact probability"
    names = ("probability given to Carlos", "mean loss (nats)")
    with axes(title, *names, (10.8, 5.4)) as (figure, ax):
        for color, exact in zip(SERIES, _EXAMPLES, strict=False):
            valley = _mean_loss(exact, given)
            ax.plot(given, valley, color=color, linestyle="-", linewidth=3)
            ax.plot(exact, valley.min(), "v", color=color, markersize=15)
            at = {0.5: (0.04, 0.7), 0.7: (0.8, 0.52)}[exact]
            ax.text(*at, f"exact: {exact}", color=color, size=20, weight="bold")
        for name, p in points.items():
            loss = _mean_loss(0.5, torch.tensor(p)).item()
            ax.plot(p, loss, "o", color=INK, markersize=12)
            at = (p - 0.02, loss + 0.32) if p < 0.9 else (p - 0.3, loss)
            ax.text(*at, f"{name} {loss:.2f}", size=20, va="center")
        ax.set(xlim=(0, 1.02), ylim=(0.45, 2.6))
        set_type(ax, 19)
    losses = [_mean_loss(0.5, torch.tensor(p)).item() for p in points.values()]
    display(
        figure,
        alt=(
            "The mean loss over the probability given to Carlos is a valley: its lowest point is "
            "at 0.5 if that is the exact probability, and at 0.7 if that is."
        ),
        caption=(
            "Each valley is lowest at the exact probability. The black points are on the valley of "
            "0.5: the model is near its bottom."
        ),
        table={"distribution": [*points], "Carlos": [*points.values()], "mean loss": losses},
    )


def _mean_loss(exact: float, given: Tensor) -> Tensor:
    return -(exact * given.log() + (1 - exact) * (1 - given).log())


def once_and_twice(at: Sequence[int], right: Mapping[str, Tensor]) -> None:
    """Shows the fraction of right answers after so many updates, (at, seeds) for each name: a dot
    for each seed.
    """
    title = "Softmax twice: more than 100 times as slow"
    with axes(title, "updates", "right answers (%)", (10.8, 5.2)) as (figure, ax):
        for i, (name, rows) in enumerate(right.items()):
            percent = 100 * rows  # (at, seeds)
            for update, row in zip(at, percent, strict=True):
                ax.plot([update] * len(row), row, "o", color=SERIES[i], markersize=11, mec="white")
            middle = percent.mean(dim=1)
            ax.plot(at, middle, color=SERIES[i], linestyle="-", linewidth=2, alpha=0.6)
            where = (1.25 * at[1], 88) if i == 0 else (at[-2], middle[-2].item() - 18)
            ax.text(where[0], where[1], name, color=SERIES[i], size=22, weight="bold", va="center")
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks(at, [f"{update:,}" for update in at])
        ax.set(ylim=(-4, 108), yticks=[0, 50, 100])
        set_type(ax, 19)
    n = next(iter(right.values())).shape[1]
    ends = "; ".join(f"{name} {100 * rows[-1].mean():.0f} %" for name, rows in right.items())
    shown = {
        name: [f"{100 * row.min():.0f} to {100 * row.max():.0f} %" for row in rows]
        for name, rows in right.items()
    }
    display(
        figure,
        alt=f"Right answers over the updates, a dot for each of {n} seeds. At the end: {ends}.",
        caption=(
            f"Each dot is one table of {n} that start from random scores. On average at the end: "
            f"{ends}."
        ),
        table={"updates": [*at], **shown},
    )
