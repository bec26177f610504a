"""The pictures of lesson 00: the threads of a story, guesses, readers who count, stories with an
impossible word, and a model that learns.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from tinylm_lib.storyworld import words

from ..display.figures import axes, display, drawing
from ..display.theme import INK, QUIET, SERIES
from .lettering import LEVEL
from .story import draw_story, draw_thread

_MOST_BARS = 12
_THREAD_COLORS = dict(zip(("people", "places", "things", "the saying"), SERIES, strict=False))


def threads(
    story: str,
    found: Sequence[tuple[int, int, str, float]],
    kinds: Sequence[str] = tuple(_THREAD_COLORS),
    *,
    title: str,
    word: str = "",
    impossible: int | None = None,
) -> None:
    """Shows a story with a thread from each word to the later words that the model expects because
    of it.

    found: (source, target, kind, lost), words counted from 0. kinds: of which threads are drawn.
    word: only the threads that begin with it. impossible: the position of a word in a black box.
    """
    said = words(story)
    shown = [each for each in found if each[2] in kinds and word in ("", said[each[0]].strip())]
    with drawing(11.4, 6.2, axes_grid=False) as figure:
        ax = figure.subplots()
        grounds = {target: _THREAD_COLORS[kind] for _, target, kind, _ in shown}
        if impossible is not None:
            grounds[impossible] = INK
        sources = {source for source, *_ in shown}
        sources |= {i for i, each in enumerate(said) if word and each.strip() == word}
        at = draw_story(ax, said, grounds, sources)
        for source, target, kind, lost in shown:
            ends = [(at[i][0] + len(said[i].strip()) / 2, at[i][1]) for i in (source, target)]
            draw_thread(ax, *ends, lost, _THREAD_COLORS[kind])
        for kind in kinds:
            ax.plot([], [], color=_THREAD_COLORS[kind], linestyle="-", linewidth=6, label=kind)
        if impossible is not None:
            ax.plot([], [], "s", color=INK, markersize=17, label="impossible")
        where = {"loc": "outside lower center", "ncols": 5, "frameon": False}
        figure.legend(fontsize=20, handlelength=1.6, **where)
        ax.set_title(title, size=24)
        ax.set_xlabel(
            "a thread: change its first word, and its last is no longer expected", size=20
        )
    pairs = [(said[source].strip(), said[target].strip()) for source, target, *_ in shown]
    listed = ", ".join(f"{first} to {last}" for first, last in pairs) or "none"
    rows = [(*pair, each[3]) for pair, each in zip(pairs, shown, strict=True)]
    columns = zip(*(rows or [("none", "none", "-")]), strict=True)
    table = dict(zip(("changed", "later word", "lost"), map(list, columns), strict=True))
    caption = (
        "Each thread is an experiment: we change the word at its beginning, and the word at its "
        "end loses at least 40 percentage points of its probability."
    )
    display(
        figure,
        alt=f"{title}. Threads in a story: {listed}.",
        caption=caption,
        table=table,
        digits=2,
    )


def guesses(
    panels: Mapping[str, tuple[Mapping[str, float], Mapping[str, float]]],
    *,
    title: str,
    most: int = _MOST_BARS,
) -> None:
    """Shows for each text the most probable next words of a model as bars and the exact
    probabilities as marks: {text: (of the model, exact)}, each {word: probability}.
    """
    caption = "Bars: the model. Black marks: the exact probabilities, from the rules of StoryWorld."
    chosen = {}
    for text, (model, exact) in panels.items():
        best = sorted(model, key=model.__getitem__, reverse=True)[:most]
        chosen[text] = [(word, model[word], exact.get(word, 0.0)) for word in best]
    n_bars = sum(map(len, chosen.values()))
    with drawing(10.2, 1.5 + 0.35 * n_bars + 0.75 * len(chosen), axes_grid=False) as figure:
        heights = [len(rows) + 1 for rows in chosen.values()]
        every = figure.subplots(len(chosen), sharex=True, squeeze=False, height_ratios=heights)[
            :, 0
        ]
        for ax, (text, rows) in zip(every, chosen.items(), strict=True):
            places = range(len(rows))
            ax.barh(
                places, [p for _, p, _ in rows], height=0.62, color=SERIES[0], label="the model"
            )
            mark = {"marker": "|", "s": 420, "linewidths": 5, "color": INK, "zorder": 3}
            ax.scatter([p for *_, p in rows], places, label="exact", clip_on=False, **mark)
            ax.set_yticks(places, [word.strip() or "line end" for word, *_ in rows], size=21)
            ax.set_title(text, size=21, loc="left", weight="normal")
            ax.tick_params(labelsize=21, length=0)
            ax.invert_yaxis()
            ax.set_xlim(0)
        every[-1].set_xlabel("probability of the next word", size=21)
        every[0].set_ylabel(" ")
        figure.suptitle(title, size=23, weight="bold")
        where = {"loc": "outside lower center", "ncols": 2, "frameon": False}
        figure.legend(*every[0].get_legend_handles_labels(), fontsize=21, **where)
    flat = []
    for text, rows in chosen.items():
        flat += [(text, *row) for row in rows]
    columns = dict(zip(("after", "word", "model", "exact"), zip(*flat, strict=True), strict=True))
    columns["word"] = [word.strip() for word in columns["word"]]
    alt = f"{title}. " + "; ".join(f"{word} {p:.2f}, exact {q:.2f}" for _, word, p, q in flat)
    figure.axes[0].set_xlabel(" " if len(chosen) > 1 else figure.axes[0].get_xlabel())
    display(figure, alt=alt, caption=caption, table=columns, digits=2)


def counting(runs: Mapping[int, Sequence[Sequence[float]]], levels: Mapping[str, float]) -> None:
    """Shows the loss of readers who count in so many stories, the mean of some runs, by how many
    words they look back, and the losses of others as dotted lines.
    """
    title = "With 50 times the stories, one more word helps"
    caption = (
        "The losses of readers who count, with the smallest of each. Counting is best three or "
        "four words back. The model is far below it, near the floor."
    )
    curves = {}
    for n, rows in runs.items():
        curves[f"{n:,} stories"] = [sum(each) / len(each) for each in zip(*rows, strict=True)]
    with axes(title, "words that the reader looks back", "loss in nats per token", (10.6, 5.6)) as (
        figure,
        ax,
    ):
        for color, (name, losses) in zip(SERIES, curves.items(), strict=False):
            back = list(range(1, len(losses)))
            ax.plot(back, losses[1:], "-o", color=color, linewidth=3, markersize=8)
            ax.text(back[-1] + 0.12, losses[-1], name, color=color, va="center", size=20)
            best = min(back, key=losses.__getitem__)
            text = f"{losses[best]:.2f}"
            away = (
                -24 if name == list(curves)[-1] else 12
            )  # points; the lowest curve has room below
            ax.annotate(text, (best, losses[best]), (0, away), textcoords="offset points",
                        ha="center", size=20, color=color, weight="bold")  # fmt: skip
        _draw_levels(ax, levels, len(losses) - 1 + 0.12)
        ax.set(xlim=(0.8, len(losses) - 1), ylim=(0.5, 2.25), xticks=back)
        _large(ax, title)
    every = {name: list(map(float, losses[1:])) for name, losses in curves.items()}
    alt = f"{title}. " + "; ".join(
        f"{name}: {', '.join(f'{x:.2f}' for x in losses)}" for name, losses in every.items()
    )
    display(figure, alt=alt, caption=caption, table={"words back": back, **every}, digits=3)


def _draw_levels(ax: Axes, levels: Mapping[str, float], right: float) -> None:
    """Dotted lines with their names at the right, above one another where they would overlap."""
    for level in levels.values():
        ax.axhline(level, **LEVEL)
    gap = 0.065 * (ax.get_ylim()[1] - ax.get_ylim()[0])
    below = -gap
    for name, level in sorted(levels.items(), key=lambda each: each[1]):
        below = max(level, below + gap)
        ax.text(right, below, f"{name} {level:.2f}", va="center", size=20, color=QUIET)


def _large(ax: Axes, title: str) -> None:
    ax.set_title(title, size=23)
    ax.tick_params(labelsize=21)
    ax.xaxis.label.set_size(20)
    ax.yaxis.label.set_size(20)


def impossible(stories: Sequence[tuple[int, int | None]]) -> None:
    """Shows each story as a line of its words, marked where its first impossible word is: (words,
    position of that word or None).
    """
    title = "Four of five stories contain an impossible word"
    caption = (
        "The first mistake is seldom before word 40. There the first gift begins, and it matters "
        "who has what."
    )
    order = sorted(stories, key=lambda each: (each[1] is None, each[1] or each[0]))
    with axes(title, "words of the story", " ", (10.6, 6.2)) as (figure, ax):
        for y, (length, wrong) in enumerate(order):
            color = SERIES[0] if wrong is None else "#c9d1d9"
            ax.plot([0, length], [y, y], "-", color=color, linewidth=4, solid_capstyle="butt")
        wrong = [(at, y) for y, (_, at) in enumerate(order) if at is not None]
        if wrong:
            ax.plot(*zip(*wrong, strict=True), "s", color=SERIES[1], markersize=8, zorder=3)
        ax.plot([], [], "s", color=SERIES[1], markersize=10, label="first impossible word")
        ax.plot([], [], "-", color="#c9d1d9", linewidth=4, label="a story")
        ax.plot([], [], "-", color=SERIES[0], linewidth=4, label="a possible story")
        where = {"loc": "outside lower center", "ncols": 3, "frameon": False}
        figure.legend(fontsize=20, **where)
        ax.set(ylim=(len(order), -1), xlim=(0, None), yticks=[])
        ax.set_ylabel(f"{len(order)} stories", size=20)
        ax.grid(visible=False)
        _large(ax, title)
    positions = ["none" if at is None else str(at) for _, at in order]
    alt = f"{title}. {len(wrong)} of {len(order)} lines, one for each story, have a mark."
    numbered = list(range(1, len(order) + 1))
    table = {"story": numbered, "first impossible word at": positions}
    display(figure, alt=alt, caption=caption, table=table)


def learning(losses: Sequence[float], levels: Mapping[str, float]) -> None:
    """Shows the loss over the steps of a training, on a logarithmic scale, with the mean of five
    steps and dotted lines to compare with.
    """
    title = f"In {len(losses)} steps it does better than counting"
    caption = (
        "Each dot marks the first step below a dotted line. Grey: single steps; blue: mean of five."
    )
    n = len(losses)
    smooth = []
    for i in range(n):
        half = min(i, 2)
        near = losses[i - half : i + half + 1]
        smooth.append(sum(near) / len(near))
    steps = list(range(1, n + 1))
    with axes(title, "step, on a logarithmic scale", "loss in nats per token", (10.6, 5.8)) as (
        figure,
        ax,
    ):
        ax.plot(steps, losses, "-", color=QUIET, linewidth=1.2)
        ax.plot(steps, smooth, "-", color=SERIES[0], linewidth=4)
        ax.set(xscale="log", xlim=(0.9, n), ylim=(0, 6.6))
        _draw_levels(ax, levels, n * 1.06)
        for level in levels.values():
            passed = [place for place in zip(steps, smooth, strict=True) if place[1] < level][:1]
            if passed:
                ax.plot(*passed[0], "o", color=SERIES[1], markersize=13)
        marked = [step for step in (1, 2, 5, 10, 20, 50, 90) if step <= n]
        ax.set_xticks(marked, marked)
        ax.minorticks_off()
        _large(ax, title)
    shown = [i for i in (0, 4, 9, 19, 39, 59, 89) if i < n]
    table = {"step": [steps[i] for i in shown], "loss, mean of five": [smooth[i] for i in shown]}
    alt = (
        f"{title}. The loss falls over {n} steps and passes some of the dotted lines: "
        f"{', '.join(levels)}."
    )
    display(figure, alt=alt, caption=caption, table=table, digits=2)
