"""The pictures of lesson 12: the tree of all texts, what a dial and three cuts do to four bars, a
coin for each gift, what a low temperature gives and takes, and why.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from torch import Tensor

from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.storyworld import words

from ..display.figures import axes, display, drawing, ink_on
from ..display.theme import INK, LINE, QUIET, SERIES
from ..experiments.decoding import Piece, Run
from .lettering import LEVEL, set_type

TYPE = 20
SMALL = 0.047  # of the height: a box below it has no word
PALE = 0.24
TOGETHER = " they"  # who trade
EDGE: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.5}
WRONG = SERIES[1]
BRANCHES = (SERIES[2], SERIES[0], SERIES[3])
RULES = (
    ("temperature", 0.5),
    ("temperature", 2.0),
    ("top_k", 2),
    ("top_k", 3),
    ("top_p", 0.6),
    ("min_p", 0.2),
)


def texts(
    levels: Sequence[Sequence[Piece]],
    title: str,
    *,
    dart: float | None = None,
    possible: Callable[[str], bool] | None = None,
    framed: Collection[str] = (),
) -> None:
    """Shows all texts that can come next, a column for each word: the height of a box is the
    probability of its text.

    dart: a height; the boxes at it are framed, as those of the texts `framed`. possible: whether a
    text can be; those that cannot are orange and have a cross. Probabilities are written where
    texts are framed.
    """
    colors = _colors(levels)
    rows = []
    path = ""
    with axes(title, "words written", "probability, added up", (11.4, 6.3)) as (figure, ax):
        for column, level in enumerate(levels, start=1):
            wrong = 0.0
            for text, begin, length in level:
                color = colors[text]
                word = words(text)[-1]
                label = word.strip() + (f"  {length:.2f}" if framed else "")
                if possible is not None and not possible(text):
                    color = to_rgb(WRONG)
                    label = f"✗ {label}"
                    wrong += length
                hit = dart is not None and begin <= dart < begin + length
                path += word if hit else ""
                _box(ax, column, begin, length, color, hit or text in framed)
                if length > SMALL:
                    where = {"ha": "center", "va": "center_baseline", "zorder": 5}
                    y = begin + length / 2
                    ax.text(column, y, label, size=22, color=ink_on(color), **where)
            rows.append((column, len(level), sum(length for *_, length in level), wrong))
        if dart is not None:
            ax.plot(0.45, dart, ">", color=INK, markersize=16, clip_on=False, zorder=6)
        ax.set(xlim=(0.45, len(levels) + 0.5), ylim=(1, 0), yticks=[0, 0.25, 0.5, 0.75, 1])
        ax.grid(visible=False)
        ax.set_xticks([])
        set_type(ax, 22)
        ax.xaxis.label.set_visible(False)
        ax.spines["bottom"].set_visible(False)
        ax.set_title(title, size=23)
    alt = f"{title}. {len(levels)} columns of boxes, one for each word."
    caption = "The height of a box is the probability of its text."
    if dart is not None:
        alt += f" The dart at {dart:g} writes:{path}."
        caption += f" The dart at {dart:g} writes: …{path} …"
    names = ("words", "texts drawn", "their probability")
    table = dict(zip(names, map(list, list(zip(*rows, strict=True))[:3]), strict=True))
    if framed:
        alt += " " + ", ".join(f"{text.strip()} {length:.2f}" for text, _, length in levels[-1])
        caption += " The frame: the most probable text."
    if possible is not None:
        caption += " Orange, with a cross: impossible."
        table["impossible"] = [wrong for *_, wrong in rows]
    display(figure, alt=alt, caption=caption, table=table, digits=2)


def _colors(levels: Sequence[Sequence[Piece]]) -> dict[str, tuple[float, ...]]:
    """The ground of each text, by its second word: the three most probable ones have a colour."""
    first = len(words(levels[0][0][0]))
    weight: dict[str, float] = {}
    for text, _, length in levels[min(1, len(levels) - 1)]:
        name = words(text)[-1]
        weight[name] = weight.get(name, 0.0) + length
    ranked = sorted(weight, key=lambda name: -weight[name])[: len(BRANCHES)]
    ranked.sort(key=lambda name: (name != TOGETHER, name))  # the same colours at each temperature
    branches = {name: _pale(color) for name, color in zip(ranked, BRANCHES, strict=False)}
    found = {text: to_rgb(LINE) for text, *_ in levels[0]}
    for level in levels[1:]:
        found |= {text: branches.get(words(text)[first], to_rgb(LINE)) for text, *_ in level}
    return found


def _pale(color: str) -> tuple[float, ...]:
    return tuple(1 - PALE * (1 - level) for level in to_rgb(color))


def _box(
    ax: Axes, column: int, begin: float, length: float, color: tuple[float, ...], framed: bool
) -> None:
    edge = {"edgecolor": INK, "linewidth": 4, "zorder": 4} if framed else EDGE
    inset = 0.006 if framed else 0
    ax.bar(column, length - 2 * inset, 0.95, begin + inset, color=[color], **edge)


def rules(before: Tensor) -> None:
    """Shows the probabilities (V) of a few words and what a temperature and three cuts make of
    them: bars, next to the old ones, and a cross for a word that is cut.
    """
    title = "The dial moves all probabilities, a cut sets some to 0"
    after = {
        f"{name.replace('_', '-')} {value:g}": next_token_probs(
            before.double().log()[None],
            **{name: value},  # in fp32, 0.375 is a tie of digits
        )
        for name, value in RULES
    }
    with drawing(11.4, 5.6, axes_grid=False) as figure:
        panels = figure.subplots(2, 3, sharex=True, sharey=True).flatten()
        for ax, (name, (probs,)) in zip(panels, after.items(), strict=True):
            for place, (old, new) in enumerate(zip(before.tolist(), probs.tolist(), strict=True)):
                ax.bar(place, old, 0.86, fill=False, edgecolor=QUIET, linewidth=1.5, linestyle=":")
                ax.bar(place, new, 0.6, color=SERIES[0])
                says = f"{new:.2f}" if new else "✗"
                color = INK if new else WRONG
                ax.text(place, max(new, old) + 0.03, says, size=TYPE, ha="center", color=color)
            ax.set_title(name, size=TYPE, loc="left")
            ax.set(xlabel="four words", ylabel="probability", ylim=(0, 1.02), xticks=[], yticks=[])
            ax.xaxis.label.set_visible(ax in panels[3:])
            ax.yaxis.label.set_visible(ax in panels[::3])
            set_type(ax, TYPE)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
    table = {"before": before.tolist()} | {name: probs[0].tolist() for name, probs in after.items()}
    display(
        figure,
        alt=f"{title}. Four bars under {', '.join(after)}.",
        caption="Dotted: the probabilities before. A cross: this word is cut, and never drawn.",
        table=table,
        digits=2,
    )


def gifts(parts: Sequence[float]) -> None:
    """Shows for each story which part of the probability of gifts is on impossible ones."""
    title = f"{len(parts)} stories: a wrong gift is as probable as a right one"
    x = "of the probability of gifts, on impossible ones"
    with axes(title, x, "story", (10.4, 4.2)) as (figure, ax):
        ax.axvline(0.5, **LEVEL)
        ax.text(0.51, -1.2, "a coin", size=18, color=QUIET)
        ax.plot(parts, range(len(parts)), "o", color=WRONG, markersize=13, linestyle="none")
        ax.set(xlim=(0, 1), ylim=(len(parts), -2), yticks=[])
        ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["none", "¼", "½", "¾", "all"])
        set_type(ax, TYPE)
        ax.set_title(title, size=22)
    display(
        figure,
        alt=f"{title}: {min(parts):.2f} to {max(parts):.2f}.",
        caption="Each dot is a new story, after what is said in it.",
        table={"story": list(range(1, len(parts) + 1)), "impossible": list(parts)},
        digits=2,
    )


def trade_off(dial: Sequence[Run], others: Mapping[str, Run], title: str) -> None:
    """Shows impossible stories over variety, both with their standard errors: the temperatures as
    a line, and other ways to write by their name.
    """
    y = "impossible stories"
    with axes(title, "distinct runs of four words, in eight stories", y, (11.4, 6)) as (figure, ax):
        _crosses(ax, dial, SERIES[0])
        ax.plot([run.variety for run in dial], [run.part for run in dial], "-", color=SERIES[0])
        for run in dial:
            at = (run.variety, run.part)
            says = f"temperature {run.value:g}" if run is dial[0] else f"{run.value:g}"
            offset = (14, 8)
            ax.annotate(says, at, offset, textcoords="offset points", size=TYPE, color=SERIES[0])
        for name, run in others.items():
            _crosses(ax, [run], SERIES[2])
            at = (run.variety, run.part)
            offset = (0, 12)
            style = {"size": TYPE, "color": SERIES[2], "ha": "center"}
            ax.annotate(name, at, offset, textcoords="offset points", **style)
        ax.set(xlim=(0.8, 0.9), ylim=(1.04, -0.14))
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["none", "¼", "½", "¾", "all"])
        ax.set_xticks([0.8, 0.82, 0.84, 0.86, 0.88, 0.9], [f"{n} %" for n in range(80, 91, 2)])
        set_type(ax, TYPE)
        ax.set_title(title, size=23)
        style = {"arrowstyle": "-|>", "lw": 3, "color": QUIET, "mutation_scale": 26}
        ax.annotate(
            "better", (0.845, 0.02), (0.825, 0.22), size=TYPE, color=QUIET, arrowprops=style
        )
    runs = {f"temperature {run.value:g}": run for run in dial} | dict(others)
    told = ", ".join(f"{name} {run.part:.2f}" for name, run in runs.items())
    display(
        figure,
        alt=f"{title}. Impossible stories over variety: {told}.",
        caption=(
            f"{dial[0].n} stories each; the crosses are two standard errors long in each "
            "direction. At the top right, stories are possible and varied."
        ),
        table={
            "stories": list(runs),
            "impossible": [run.part for run in runs.values()],
            "distinct runs": [run.variety for run in runs.values()],
        },
        digits=2,
    )


def _crosses(ax: Axes, runs: Sequence[Run], color: str) -> None:
    x = [run.variety for run in runs]
    y = [run.part for run in runs]
    style = {"color": color, "linestyle": "none", "elinewidth": 3, "markersize": 12}
    errors = {"xerr": [2 * r.error for r in runs], "yerr": [2 * r.part_error for r in runs]}
    ax.errorbar(x, y, marker="o", **errors, **style)


def same_events(lines: Mapping[str, Sequence[Run]]) -> None:
    """Shows impossible stories over the temperature: of all stories, and of those that were made to
    begin with the same events.
    """
    title = "With the same events, cold stories go wrong as often"
    with axes(title, "temperature", "impossible stories", (11.4, 5.6)) as (figure, ax):
        for (name, runs), color in zip(
            lines.items(), (SERIES[0], SERIES[1], SERIES[2]), strict=False
        ):
            x = [run.value for run in runs]
            y = [run.part for run in runs]
            error = [2 * run.part_error for run in runs]
            style = {"color": color, "markersize": 12, "elinewidth": 3, "linestyle": "-"}
            ax.errorbar(x, y, error, marker="o", **style)
            ax.text(1.03, y[-1], name, size=TYPE, color=color, va="center")
        ax.set(xlim=(0, 1.42), ylim=(1, 0), xticks=[0.1, 0.3, 0.5, 0.7, 1])
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1], ["none", "¼", "½", "¾", "all"])
        set_type(ax, TYPE)
        ax.set_title(title, size=23)
    ends = "; ".join(
        f"{name} {runs[0].part:.2f} to {runs[-1].part:.2f}" for name, runs in lines.items()
    )
    display(
        figure,
        alt=f"{title}. Impossible stories from temperature 0.1 to 1: {ends}.",
        caption=(
            "The bars are two standard errors long in each direction. Where the events were "
            "given, the model wrote only what comes after them."
        ),
        table={"temperature": [run.value for run in next(iter(lines.values()))]}
        | {name: [run.part for run in runs] for name, runs in lines.items()},
        digits=2,
    )


def typical(log_probs: Sequence[float], best: float, title: str) -> None:
    """Shows the log probabilities of sequences that were drawn, and that of the best one."""
    with axes(title, "log probability (nats)", "sequences", (10.4, 4.8)) as (figure, ax):
        heights, edges, _ = ax.hist(log_probs, bins=20, color=SERIES[0])
        ax.axvline(best, color=WRONG, linewidth=3, linestyle="-")
        ax.text(best - 3, heights.max() * 0.9, "all heads", color=WRONG, ha="right", size=TYPE)
        middle = sum(log_probs) / len(log_probs)
        ax.text(middle + 25, heights.max() * 0.5, "drawn", color=SERIES[0], size=TYPE)
        set_type(ax, TYPE)
    display(
        figure,
        alt=f"{title}. The drawn ones are around {middle:.0f}; a line at {best:.0f}: all heads.",
        caption=f"{len(log_probs)} drawn sequences, and the most probable one.",
        table={
            "from": edges[:-1:4].tolist(),
            "sequences": heights.reshape(5, 4).sum(1).astype(int).tolist(),
        },
    )
