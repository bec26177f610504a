"""The pictures of lesson 11: a story shaded by loss, three ways down a valley, the stages of a run,
learning rates, skills that arrive, and what mistakes look like.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld import words
from tinylm_lib.storyworld.stories import Entropies, Story

from ..display.figures import axes, display, drawing, ink_on, unframed
from ..display.numbers import fixed, learned
from ..display.theme import HEAT, INK, QUIET, SERIES
from ..experiments.training import SKILLS, Watched, bands, height
from .lettering import LEVEL, hide_axes, set_type, side_by_side
from .story import places

FIRST_LINES = 2  # of a story that are enough to see that all of it is dark
MOST = 6.0  # nats of the darkest word
TYPE = 19
LETTER = {"family": "monospace", "va": "center_baseline"}
COLORS = dict(
    zip(
        ("nothing", "frequencies", "the token before", "the last three tokens"),
        ("#8b95a0", SERIES[1], SERIES[0], SERIES[2]),
        strict=True,
    )
)
SAMPLE = 54  # characters of a sample
SHORT = 29  # and of one next to dots
BEGIN = 0.55  # of the logarithmic axis of updates
FAR = 7.4  # nats at which a loss above 7 is drawn


def shaded(story: Story, models: Mapping[str, TransformerLM], tokenizer: Any) -> None:
    """Shows a story for each model, a darker ground for a word with a higher loss; the whole of it
    for the last one, and its first lines for the others.
    """
    title = "After training only those words are dark that nothing determines"
    said = words(story.text)
    at = places(said)
    ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (1, T + 1)
    losses = {}
    for name, model in models.items():
        with torch.no_grad():
            log_probs = model(ids[:, :-1]).log_softmax(-1)  # (1, T, V)
        losses[name] = -log_probs.gather(-1, ids[:, 1:, None])[0, :, 0]  # (T)
    lines = [FIRST_LINES] * (len(models) - 1) + [at[-1][1] + 1]
    with drawing(11.4, 5.6) as figure:
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=21)
        panels = figure.subplots(len(losses), squeeze=False, height_ratios=lines)[:, 0]
        for ax, n_lines, (name, row) in zip(panels, lines, losses.items(), strict=True):
            for word, (column, line), loss in zip(said, at, row.tolist(), strict=True):
                if line >= n_lines:
                    break
                ground = HEAT(min(1.0, loss / MOST))
                pad = 0.25 * (word.startswith(" ") or column == 0)  # a mark is close to its word
                corner = (column - pad, line - 0.42)
                width = len(word.strip()) + pad
                ax.add_patch(Rectangle(corner, width, 0.84, fc=ground, linewidth=0))
                style = {"size": TYPE, "color": ink_on(ground), "ha": "center"}
                for i, letter in enumerate(word.strip()):
                    ax.text(column + i + 0.5, line, letter, **LETTER, **style)
            ax.set(xlim=(-0.8, 63), ylim=(n_lines - 0.4, -0.6))
            ax.set_title(name, size=TYPE, weight="normal", pad=4)
            hide_axes(ax)
        panels[0].set(xlabel="words", ylabel="lines")
    display(
        figure,
        alt=f"{title}: the text for {len(losses)} models, each word darker for a higher loss.",
        caption="The darker a word, the higher its loss, up to 6 nats.",
        table={"word": [word.strip() for word in said]}
        | {name: [fixed(loss, 1) for loss in row.tolist()] for name, row in losses.items()},
    )


def valley(ways: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Shows ways down a narrow valley, a line of points for each."""
    title = "Plain steps jump across the valley, and then creep along it"
    with axes(title, "first weight", "second weight", (11.4, 5.4)) as (figure, ax):
        across = torch.linspace(-9.2, 2.2, 90)
        along = torch.linspace(-2, 2, 60)
        ground = height(torch.stack(torch.meshgrid(across, along, indexing="xy")))
        ax.contour(across, along, ground.sqrt(), levels=9, colors="#c5cdd5", linewidths=1)
        for (name, points), color in zip(ways.items(), SERIES, strict=False):
            style = {"marker": "o", "markersize": 7, "linewidth": 2.2, "linestyle": "-"}
            ax.plot(*zip(*points, strict=True), color=color, label=name, **style)
        ax.plot(0, 0, marker="*", markersize=26, color=INK, linestyle="none", zorder=5)
        ax.legend(loc="lower right", fontsize=TYPE, ncols=3, framealpha=1)
        ax.set(ylim=(-2.9, 2), yticks=[-1, 0, 1])
        ax.grid(visible=False)
        ax.title.set_size(22)
        set_type(ax, TYPE)
    ends = {name: float(height(torch.tensor(points[-1]))) for name, points in ways.items()}
    display(
        figure,
        alt=f"{title}. Paths of 40 steps: {', '.join(ways)}.",
        caption=(
            "40 steps towards the star, each way with a rate found by trying. The valley is 30 "
            "times steeper across than along."
        ),
        table={"way": list(ends), "height at the end": list(ends.values())},
        digits=2,
    )


def stages(runs: Mapping[int, Watched], levels: Entropies, n_tokens: int) -> None:
    """Shows the loss of the first run over a ground that says which predictor the model resembles,
    a strip of such grounds for each other run, and what the first one writes in each stage.
    """
    title = "Frequencies first, then the token before, then the last three"
    first, *others = runs
    run = runs[first]
    end = len(run.losses)
    with drawing(11.4, 5.75) as figure:
        sizes = [2.4, 0.33 * len(others), 1.9]
        top, strips, told = figure.subplots(3, 1, height_ratios=sizes)
        _draw_bands(top, run)
        steps = range(1, end + 1)
        top.plot(steps, run.losses, color=INK, linestyle="-", linewidth=2.6)
        for value in (math.log(n_tokens), *levels):
            top.axhline(value, **LEVEL)
        top.set(ylim=(0, 9.8), yticks=[0, 2, 4, 6], title=title)
        top.set(xlabel=" ", ylabel="loss in nats")
        for line, seed in enumerate(others):
            for name, left, stop in _drawn(runs[seed]):
                box = (left, line - 0.36), stop - left, 0.72
                strips.add_patch(Rectangle(*box, fc=COLORS[name], alpha=0.45, linewidth=0))
        strips.set_yticks(range(len(others)), [f"run {n}" for n in range(2, 2 + len(others))])
        strips.set(ylim=(len(others) - 0.5, -0.5))
        for ax in (top, strips):
            ax.set_xscale("log")
            ax.set(xlim=(BEGIN, end))
            names = ["update 1", "3", "10", "30", "100", str(end)]
            ax.set_xticks([1, 3, 10, 30, 100, end], names)
            ax.minorticks_off()
            ax.grid(visible=False)
            set_type(ax, TYPE)
        top.tick_params(labelbottom=False)
        top.xaxis.label.set_visible(False)
        strips.spines[["left", "bottom"]].set_visible(False)
        strips.tick_params(length=0)
        top.title.set_size(22)
        _draw_samples(told, run)
    noted = [step for step in (1, 3, 6, 10, 16, 24, 40, 60, 100, 160, end) if step in run.distances]
    table: dict[str, list[Any]] = {"update": noted}
    for name in COLORS:
        table[name] = [learned(run.distances[step][name], 0, 1) for step in noted]
    order = ", then ".join(name for name, *_ in bands(run))
    display(
        figure,
        alt=f"{title}. The loss over a logarithmic axis of updates; the model resembles {order}.",
        caption=(
            "The ground shows which of four predictors the model resembles most, above in the "
            "first run, below in the others. At the bottom: what the first one writes."
        ),
        table=table,
    )


def _drawn(run: Watched) -> list[tuple[str, float, float]]:
    """The bands of a run; the first one begins where the axis does."""
    return [(name, start if start > 1 else BEGIN, stop) for name, start, stop in bands(run)]


def _draw_bands(ax: Axes, run: Watched) -> None:
    """A ground for each band, and the name of each predictor in its widest one."""
    widest: dict[str, float] = {}
    for name, left, stop in _drawn(run):
        ax.axvspan(left, stop, color=COLORS[name], alpha=0.22, linewidth=0)
        widest[name] = max(widest.get(name, 1), stop / left)
    end = len(run.losses)
    for name, left, stop in _drawn(run):
        if stop / left < widest[name]:
            continue
        label = name.removesuffix(" tokens").replace("token ", "token\n").replace("last ", "last\n")
        style = {"size": TYPE, "weight": "bold", "color": COLORS[name], "va": "top"}
        at = 0.97 * end if stop == end else math.sqrt(left * stop)
        ax.text(at, 9.6, label, ha="right" if stop == end else "center", **style)


def _draw_samples(ax: Axes, run: Watched) -> None:
    """What a run wrote, a line for each sample."""
    for line, (step, text) in enumerate(run.samples.items()):
        said = textwrap.shorten(text, SAMPLE, placeholder=" ...").replace("$", r"\$")
        ax.text(0, line, f"after {step}", size=TYPE, va="center", color=QUIET)
        style = {"size": TYPE, "family": "monospace", "color": INK}
        ax.text(0.15, line, said, va="center", in_layout=False, **style)
    ax.set(xlim=(0, 1), ylim=(len(run.samples) - 0.4, -0.6))
    hide_axes(ax)


def rates(found: Mapping[int, Mapping[float, Sequence[float]]]) -> None:
    """Shows the loss at the end of runs over the learning rate, {updates: {rate: one loss for each
    seed}}, a dot for each seed.
    """
    title = "The best rate matters after 60 updates, less after 300"
    with axes(title, "learning rate", "loss at the end (nats per token)", (11.4, 5.6)) as (
        figure,
        ax,
    ):
        for (updates, losses), color in zip(found.items(), (SERIES[1], SERIES[0]), strict=False):
            means = [sum(each) / len(each) for each in losses.values()]
            ax.plot(range(len(means)), means, "-", color=color, linewidth=3)
            for place, each in enumerate(losses.values()):
                at = side_by_side(place, len(each), 0.08)
                ax.plot(at, each, "o", color=color, markersize=9, linestyle="none")
            where = {"ha": "left", "va": "bottom", "size": 21, "weight": "bold"}
            ax.text(0.15, means[0] + 0.02, f"{updates} updates", color=color, **where)
        names = [f"{rate:g}" for rate in next(iter(found.values()))]
        ax.set_xticks(range(len(names)), names)
        ax.set(ylim=(1.2, 4.1), yticks=[2, 3, 4])
        ax.title.set_size(23)
        set_type(ax, TYPE)
    table: dict[str, list[Any]] = {"learning rate": names}
    for updates, losses in found.items():
        table[f"after {updates} updates"] = [sum(each) / len(each) for each in losses.values()]
    n = len(next(iter(next(iter(found.values())).values())))
    display(
        figure,
        alt=f"{title}. A deep U after the short run, and a long flat floor after the longer one.",
        caption=f"A dot is a run with a seed of its own ({n} for each rate), a line their mean.",
        table=table,
    )


def skills(runs: Sequence[Mapping[int, Mapping[str, float]]]) -> None:
    """Shows the fraction right over the updates, a panel for each skill and a line for each run,
    {update: {skill: fraction}}; the first run is bold.
    """
    title = "Skills arrive at different times, and two in either order"
    names = SKILLS
    with drawing(11.4, 4.8) as figure:
        panels = figure.subplots(1, len(names), sharey=True)
        for ax, name, color in zip(panels, names, SERIES, strict=False):
            for n, run in enumerate(runs):
                style = {"color": color, "linestyle": "-", "alpha": 0.55 if n else 1.0}
                right = [each[name] for each in run.values()]
                ax.plot(list(run), right, linewidth=1.8 if n else 4, **style)
            last = max(runs[0])
            ax.set_title(name, size=TYPE, loc="center", weight="bold", color=color)
            ax.set(xlim=(0, last), ylim=(-0.03, 1.03), yticks=[0, 0.5, 1])
            ax.set_xticks([0, last], ["0", str(last)])
            set_type(ax, 18)
        panels[0].set_ylabel("fraction right", size=TYPE)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
        figure.supxlabel("update", size=TYPE)
    noted = [step for step in runs[0] if step % 100 == 0]
    table: dict[str, list[Any]] = {"update": noted}
    for name in names:
        table[name] = [learned(runs[0][step][name], 0, 1) for step in noted]
    display(
        figure,
        alt=f"{title}. A panel for each kind of word: {', '.join(names)}.",
        caption=(
            "A panel is a kind of word that has to be looked up; each line is a run with a seed of "
            "its own, the bold one is the run above."
        ),
        table=table,
    )


def mistakes(
    found: Mapping[str, Sequence[Mapping[str, Any]]], levels: Entropies, n_tokens: int
) -> None:
    """Shows for each mistake the training loss and the loss on new stories, a dot for each run, and
    how the model of the first run writes.
    """
    title = "Two of seven mistakes have a healthy training loss"
    with axes(title, "loss in nats per token", " ", (11.4, 5.75)) as (figure, ax):
        for row, runs in enumerate(found.values()):
            ax.axhline(row + 0.5, color="#e3e8ed", linewidth=1)
            for kind, color, aside in (("last", SERIES[0], -0.14), ("new", SERIES[1], 0.14)):
                at = [min(run[kind], FAR) for run in runs]
                ax.plot(at, [row + aside] * len(at), "o", color=color, markersize=11, alpha=0.75)
            said = _shortened(runs[0]["writes"], SHORT)
            where = {"size": TYPE, "va": "center", "color": INK}
            ax.text(8.4, row, said.replace("$", r"\$"), **where)
        marks = {"floor": levels.floor, "ln V": math.log(n_tokens)}
        for mark, value in marks.items():
            ax.vlines(value, -0.5, len(found) - 0.5, **LEVEL)
            ax.text(value, -0.62, mark, ha="center", va="bottom", size=TYPE, color=QUIET)
        ax.text(8.4, -0.62, "it writes", size=TYPE, va="bottom", color=QUIET)
        for name, color, x in (("training", SERIES[0], 0.2), ("new stories", SERIES[1], 4.2)):
            where = {"size": TYPE, "weight": "bold", "color": color, "va": "center"}
            ax.text(x, len(found) - 0.1, name, **where)
        ax.set_yticks(range(len(found)), list(found))
        ax.set_xticks([0, 2, 4, 6, FAR], ["0", "2", "4", "6", "> 7"])
        ax.set(xlim=(-0.4, 21.5), ylim=(len(found) + 0.3, -1.2))
        ax.xaxis.set_label_coords(0.2, -0.1)
        ax.grid(visible=False)
        set_type(ax, TYPE)
        unframed(ax)
        ax.set_title(title, x=-0.36, size=22)
    table: dict[str, list[Any]] = {"mistake": list(found)}
    for heading, kind in (("training loss", "last"), ("loss on new stories", "new")):
        table[heading] = [learned(runs[0][kind], 0, 100) for runs in found.values()]
    table["it writes"] = [runs[0]["writes"] for runs in found.values()]
    display(
        figure,
        alt=f"{title}. A row for each mistake, with its losses and what the model writes.",
        caption="A dot is a run with a seed of its own, after 60 updates.",
        table=table,
    )


def _shortened(text: str, most: int) -> str:
    """The first words of a text, or its first letters if it is one long word."""
    if len(text) <= most or " " not in text[:most]:
        return text if len(text) <= most - 5 else f"{text[: most - 5]} ..."
    return textwrap.shorten(text, most, placeholder=" ...")
