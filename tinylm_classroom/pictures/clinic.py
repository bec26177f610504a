"""The pictures of lesson 19: six curves of which one is healthy, a tree of questions and who stops
where, and what the instruments show.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from ..display.figures import axes, cells, display, drawing
from ..display.numbers import fixed, learned, marked
from ..display.theme import INK, LINE, QUIET, SERIES
from .lettering import LEVEL, hide_axes, set_type

TYPE = 18
V = 345  # words of StoryWorld
# the columns of the tree
SPINE = 0.0
THEN = 5.0
LEAF = 10.2
GROUND = "#f3f5f7"


def curves(runs: Mapping[str, Sequence[float]], floor: float) -> None:
    """Shows the losses of six runs, each under its letter, with ln V and the floor of new texts."""
    title = "Six training runs, and one of them is healthy"
    with drawing(11.4, 5.8) as figure:
        for place, (ax, (name, found)) in enumerate(
            zip(figure.subplots(2, 3, sharey=True).flat, runs.items(), strict=True)
        ):
            ax.plot(range(1, len(found) + 1), found, color=SERIES[0], linewidth=1.6)
            for level in (math.log(V), floor):
                ax.axhline(level, **LEVEL)
            if place == 0:
                ax.text(len(found), math.log(V) - 0.2, "ln V", va="top", ha="right", size=TYPE)
                ax.text(2, floor + 0.15, "floor", va="bottom", size=TYPE, color=INK)
            ended = next((i for i, loss in enumerate(found, 1) if math.isnan(loss)), None)
            if ended:
                ax.text(ended, 3.2, "NaN", ha="right", size=TYPE, weight="bold")
            ax.set_title(name, size=24, loc="left")
            ax.set(ylim=(-0.2, 6.6), yticks=[0, 3, 6], xticks=[0, len(found) // 50 * 50])
            ax.set_xlabel("update" if place > 2 else "")
            ax.set_ylabel("loss" if place % 3 == 0 else "")
            set_type(ax, TYPE)
        figure.axes[0].set_xlabel(" ")
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
    ends = [_last(found) for found in runs.values()]
    display(
        figure,
        alt=f"{title}. Six curves, which end at {', '.join(ends)} nats.",
        caption=(
            "The loss of each update, in nats per token. Above is the loss of equal probabilities, "
            "below the floor of new texts."
        ),
        table={"run": list(runs), "updates": list(map(len, runs.values())), "last loss": ends},
    )


def _last(found: Sequence[float]) -> str:
    return "NaN" if math.isnan(found[-1]) else marked(fixed(found[-1], 1))


def tree(questions: Sequence[Any], patients: Mapping[str, tuple[int, int]] | None = None) -> None:
    """Shows the questions from top to bottom, with a second one after each no, and two leaves.

    questions: each with a `text`, `then` and `leaves`, which are (answer, where to look).
    patients: the question and the leaf of each, {name: (row, leaf)}; their names are below the
    leaves.
    """
    asked = "Six questions, the cheap ones first" if patients is None else ""
    title = asked or "Everybody stops somewhere, and nobody at the first question"
    names: dict[tuple[int, int], list[str]] = {}
    for name, place in (patients or {}).items():
        names.setdefault(place, []).append(name)
    with axes(title, "from question to leaf", "questions", (11.1, 5.45)) as (figure, ax):
        for row, question in enumerate(questions):
            y = -2.0 * row
            _box(ax, SPINE, y, question.text, SERIES[0], 3.5)
            _box(ax, THEN, y, question.then, QUIET, 2.9)
            _arrow(ax, (SPINE + 1.75, y), (THEN - 1.45, y), "no")
            _arrow(ax, (SPINE, y - 0.66), (SPINE, y - 1.34), "yes")
            for leaf, (answer, look) in enumerate(question.leaves):
                here = names.get((row, leaf), [])
                end = y + 0.5 - 1.0 * leaf
                ax.plot([THEN + 1.45, LEAF - 1.75], [y, end], color=QUIET, lw=2, linestyle="-")
                where = {"va": "center", "size": 20}
                ax.text(LEAF - 1.65, end, f"{answer}:", color=QUIET, **where)
                text = look if patients is None else ", ".join(here)
                color = INK if patients is None else SERIES[1]
                ax.text(LEAF + 0.6, end, text, color=color, **where)
        ax.text(SPINE - 1.75, -11.75, "healthy, as far as we can see", va="center", size=20)
        ax.set(xlim=(-1.85, 15.1), ylim=(-12.2, 0.95))
        ax.title.set_size(23)
        hide_axes(ax)
    rows = []
    for row, question in enumerate(questions):
        for leaf, (answer, look) in enumerate(question.leaves):
            here = ", ".join(names.get((row, leaf), [])) or "nobody"
            rows.append((question, answer, look, here))
    told = "; ".join(
        f"{_line(question.text)} If not: {_line(question.then)} {answer}: {look}"
        for question, answer, look, _ in rows
    )
    table = {
        "question": [_line(question.text) for question, *_ in rows],
        "if not": [_line(question.then) for question, *_ in rows],
        "answer": [answer for _, answer, *_ in rows],
        "look at": [look for _, _, look, _ in rows],
    }
    if patients is not None:
        table["patients"] = [here for *_, here in rows]
    display(
        figure,
        alt=f"{title}. {told}.",
        caption=(
            "Go down as long as the answer is yes. At the first no, the second question has two "
            "answers, and each says where to look."
            if patients is None
            else "The leaf that each patient comes to, found by measurements alone."
        ),
        table=table,
    )


def _line(text: str) -> str:
    return text.replace("\n", " ")


def _box(ax: Axes, x: float, y: float, text: str, color: str, width: float) -> None:
    shape = {"boxstyle": "round,pad=0,rounding_size=0.16", "fc": GROUND, "ec": color, "lw": 2.5}
    ax.add_patch(FancyBboxPatch((x - width / 2, y - 0.66), width, 1.32, zorder=2, **shape))
    ax.text(x, y, text, ha="center", va="center", size=19, zorder=3, linespacing=0.95)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], says: str) -> None:
    line = {"arrowstyle": "-|>", "color": INK, "lw": 2.2, "mutation_scale": 20}
    ax.annotate("", end, start, arrowprops={**line, "shrinkA": 0, "shrinkB": 0})
    x = (start[0] + end[0]) / 2
    y = (start[1] + end[1]) / 2
    if says == "no":
        ax.text(x, y + 0.12, says, ha="center", va="bottom", size=20, color=QUIET)
    else:
        ax.text(x + 0.15, y, says, va="center", size=18, color=QUIET)


def flat(runs: Mapping[str, Sequence[float]]) -> None:
    """Shows the losses of two runs that do not fall, and ln V."""
    title = "Both stop: is it the same fault?"
    with axes(title, "update", "loss (nats per token)", (11.4, 4.4)) as (figure, ax):
        for (name, found), color in zip(runs.items(), SERIES, strict=False):
            ax.plot(range(1, len(found) + 1), found, color=color, linewidth=3)
            ax.text(len(found) - 1, found[-1] - 0.2, name, va="top", ha="right", size=20, color=INK)
        ax.axhline(math.log(V), **LEVEL)
        ax.text(1, math.log(V) + 0.12, "ln V", va="bottom", size=20)
        ax.set(ylim=(0, 6.9), yticks=[0, 2, 4, 6])
        ax.title.set_size(23)
        set_type(ax, 20)
    ends = [learned(found[-1], 3.5, 6) for found in runs.values()]
    display(
        figure,
        alt=f"{title}: {', '.join(runs)} end at {' and '.join(ends)} nats.",
        caption="One stays at ln V. The other falls a little, and stops far above 0.",
        table={"patient": list(runs), "last loss": ends},
    )


def looks(who: Any) -> None:
    """Shows to which of the first words of a text each of them attends."""
    words, weights = who.looks()
    next_word = weights.diagonal(1).mean().item()
    title = "Each word looks at the word that it has to predict"
    with axes(title, "looks at (key)", "the word that looks (query)", (11.4, 5.6)) as (figure, ax):
        ax.grid(visible=False)
        rows = words[:-1]  # the next word of the last one is not in the picture
        cells(ax, weights[: len(rows)], weights[: len(rows)], rows, [2] * len(rows))
        for text in ax.texts:
            text.set_visible(float(text.get_text()) >= 0.1)
            text.set_size(18)
        ax.set_xticks(range(len(words)), words, rotation=35, ha="right", rotation_mode="anchor")
        ax.title.set_size(23)
        set_type(ax, TYPE)
    display(
        figure,
        alt=f"{title}: on the next word is {marked(fixed(next_word, 2))} of the attention.",
        caption=(
            f"The attention of {who.title}, mean of both heads; weights of 0.1 and more have their "
            "number."
        ),
        table={
            "word": words[:-1],
            "weight on the next word": [marked(fixed(w, 2)) for w in weights.diagonal(1).tolist()],
        },
    )


def apart(who: Any, n: int = 12) -> None:
    """Shows how far the logits of each token, read one at a time, are from those of one pass."""
    found = who.apart()[:n]
    title = "The first token agrees, the second one does not"
    label = "difference of logits"
    with axes(title, "token that is read through the cache", label, (11.4, 4.4)) as (figure, ax):
        ax.set(yscale="log", ylim=(1e-6, 100))
        ax.set_yticks([1e-5, 1e-3, 0.1, 10], ["0.00001", "0.001", "0.1", "10"])
        ax.minorticks_off()
        ax.vlines(range(1, n + 1), 1e-6, [max(each, 2e-6) for each in found], color=LINE, lw=2)
        ax.plot(
            range(1, n + 1),
            [max(each, 2e-6) for each in found],
            "o",
            color=SERIES[1],
            markersize=13,
            linestyle="none",
        )
        ax.set_xticks(range(1, n + 1))
        ax.title.set_size(23)
        set_type(ax, 20)
    shown = ["0" if each < 1e-3 else marked(fixed(each, 1)) for each in found]
    display(
        figure,
        alt=f"{title}. A dot for each token: {', '.join(shown)}.",
        caption=(
            "The largest difference of the logits of each token, read with all others at once and "
            "one by one. Each line is 100 times the one below."
        ),
        table={"token": list(range(1, n + 1)), "difference": shown},
    )


def halving(parts: Sequence[str], rounds: Sequence[tuple[Sequence[str], bool]]) -> None:
    """Shows each run of a bisection: which parts were exchanged, and whether it was healed.

    rounds: (the exchanged parts, whether the complaint was still there).
    """
    title = f"{len(rounds)} runs find the ill one of {len(parts)} parts"
    suspects = list(parts)
    with axes(title, "parts", "runs", (11.4, 5.6)) as (figure, ax):
        for row, (exchanged, ill) in enumerate(rounds):
            for column, part in enumerate(parts):
                hit = part in exchanged
                left = SERIES[1] if part in suspects else "white"
                face = SERIES[2] if hit else left
                edge = SERIES[2] if hit else LINE
                ax.scatter(column, -row, s=520, facecolors=face, edgecolors=edge, linewidths=2)
            says = "still ill" if ill else "healed"
            ax.text(len(parts) - 0.2, -row, says, va="center", size=20, weight="bold")
            suspects = [part for part in suspects if (part in exchanged) != ill]
        for part in suspects:
            ring = {"s": 980, "facecolors": "none", "edgecolors": INK, "linewidths": 3}
            ax.scatter(parts.index(part), 1 - len(rounds), **ring)
        names = [part.replace("_", " ") for part in parts]
        ax.set_xticks(range(len(parts)), names, rotation=40, ha="right", rotation_mode="anchor")
        runs = [f"run {i + 1}" for i in range(len(rounds))]
        ax.set_yticks([-i for i in range(len(rounds))], runs)
        ax.set(xlim=(-0.7, len(parts) + 1.9), ylim=(-len(rounds) + 0.4, 0.6))
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        ax.xaxis.label.set_visible(False)
        ax.yaxis.label.set_visible(False)
        ax.title.set_size(23)
        set_type(ax, TYPE)
    display(
        figure,
        alt=f"{title}. What is left at the end: {', '.join(suspects)}.",
        caption=(
            "Green: a healthy part is put in. Orange: still under suspicion. White: cleared by an "
            "earlier run. The ring: what is left."
        ),
        table={
            "run": [str(i + 1) for i in range(len(rounds))],
            "exchanged": [", ".join(exchanged) for exchanged, _ in rounds],
            "then": ["still ill" if ill else "healed" for _, ill in rounds],
        },
    )
