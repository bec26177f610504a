"""The pictures of lesson 20: where a text is held out, what to expect of its size, how its model
learned, which passages are copies, and the two roads to a model of one's own.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from matplotlib.axes import Axes

from ..display.figures import axes, display, drawing, ink_on, unframed
from ..display.theme import HEAT, INK, LINE, QUIET, SERIES
from ..experiments.yours import SEVEN, Size, copied
from .lettering import hide_axes, set_type, side_by_side

TYPE = 20
MOST_LINES = 3  # of each text
COLUMNS = 58  # characters in a line of a shaded text
FLOOR = 0.66
LN_V = {"storyworld": math.log(345), "pydoc": math.log(512)}


def pieces(text: Any) -> None:
    """Shows a text as a strip, with the pieces that are held out."""
    n = len(text.lengths) // 2
    ends = [0, *accumulate(text.lengths)]
    title = f"A tenth of {text.name} is held out, in {n} places"
    with axes(title, "KB of text", "text", (11.4, 2.6)) as (figure, ax):
        for i, (start, end) in enumerate(pairwise(ends)):
            held = i % 2
            color = SERIES[1] if held else "#cfe2f7"
            ax.barh(0, (end - start) / 1000, left=start / 1000, height=1, color=color)
        ax.set(yticks=[], ylim=(-0.5, 0.75), xlim=(0, ends[-1] / 1000))
        ax.set_ylabel("text", color="none")
        unframed(ax)
        set_type(ax, TYPE)
        ax.text(0, 0.55, "trained on", size=TYPE, color=SERIES[0])
        ax.text(ends[-1] / 1000, 0.55, "held out", size=TYPE, color=SERIES[1], ha="right")
        held_out = f"{text.held_out_bytes / 1000:,.0f} of {text.n_bytes / 1000:,.0f} KB"
        display(
            figure,
            alt=f"A strip for the text; {n} pieces of it, each the end of a block, are held out.",
            caption=f"{held_out} are never trained on, not by the tokenizer either.",
            table={"part": ["trained on", "held out"], "characters": _halves(text.lengths)},
        )


def sizes(found: Mapping[str, Mapping[int, Size]]) -> None:
    """Shows the losses over the size of the text, for each corpus."""
    every = []
    for corpus, rows in found.items():
        every += [(corpus, n, row) for n, row in rows.items()]
    with drawing(11.4, 5.2) as figure:
        for ax, (corpus, rows) in zip(figure.subplots(1, 2), found.items(), strict=True):
            _draw_sizes(ax, corpus, rows)
        handles = figure.axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=TYPE - 1)
        for ax, corpus in zip(figure.axes, found, strict=True):
            few, more = (found[corpus][n].bits for n in (20_000, 100_000))
            says = f"{corpus}: {more:.2f} bits per byte\nwith 100 KB, {few:.2f} with 20 KB"
            ax.set_title(says, size=TYPE)
        display(
            figure,
            alt=(
                "Two line charts of losses over the size of the text, from 20 to 400 KB. For small "
                "texts the training loss is near 0 and the held-out loss at the end is above that "
                "of a model that knows nothing; with more text the two meet. The lowest held-out "
                "loss falls with the size."
            ),
            caption=(
                "Means of three texts, 300 updates each. Where blue and orange are far apart, the "
                "model knows its text by heart. The green line is what early stopping keeps."
            ),
            table={
                "text": [f"{corpus} {n // 1000} KB" for corpus, n, _ in every],
                "training": [row.training for _, _, row in every],
                "held out": [row.at_end for _, _, row in every],
                "lowest": [row.lowest for _, _, row in every],
                "bits per byte": [row.bits for _, _, row in every],
            },
        )


def learning(text: Any, looks: Sequence[Any], compressor: float) -> None:
    """Shows both losses of a training in bits per byte, with the compressor and, where it is known,
    the floor.
    """
    steps = [look.step for look in looks]
    curves = {
        "training": [text.bits_per_byte(look.training) for look in looks],
        "held out": [text.bits_per_byte(look.held_out) for look in looks],
    }
    best = min(curves["held out"])
    levels = {"lzma": compressor}
    if text.floor is not None:
        levels["floor"] = text.bits_per_byte(text.floor)
    beats = "needs fewer bits than" if best < compressor else "does not reach"
    title = f"On new text your model {beats} a compressor"
    with axes(title, "updates", "bits per byte", (10.4, 5.2)) as (figure, ax):
        for name, values in curves.items():
            ax.plot(steps, values, marker="o", linewidth=3, markersize=8, label=name)
        for name, value in levels.items():
            ax.axhline(value, color=QUIET, linewidth=2, linestyle=(0, (1, 1.5)))
            level = {"transform": ax.get_yaxis_transform(), "va": "center"}
            ax.text(1.01, value, f"{name} {value:.2f}", size=TYPE, **level)
        ax.set_ylim(0)
        set_type(ax, TYPE)
        ax.legend(fontsize=TYPE, frameon=False)
        display(
            figure,
            alt=(
                f"The held-out line goes from {curves['held out'][0]:.2f} down to {best:.2f} bits "
                f"per byte; the compressor needs {compressor:.2f}."
            ),
            caption=(
                "lzma reads the training text first, like the model. Nothing can be below the floor"
                " on new text; only StoryWorld's is known."
            ),
            table={"update": steps, **curves},
            digits=2,
        )


def copies(text: Any, shown: Mapping[str, Sequence[int]]) -> None:
    """Shows texts with the passages of seven tokens or more that are in the training text, too, the
    darker the longer; {whose: ids}.
    """
    known = text.training.tolist()
    found = {name: copied(known, ids) for name, ids in shown.items()}
    most = {name: max(copied(known, ids, 1), default=0) for name, ids in shown.items()}
    first, *_ = most
    title = f"{first}: {most[first]} of {len(shown[first])} tokens are one copy"
    every = {name: _lines(text, ids, found[name]) for name, ids in shown.items()}
    lines = {name: each[:MOST_LINES] for name, each in every.items()}
    for name, each in lines.items():
        if len(every[name]) > len(each):
            at, word, _ = each[-1][-1]
            each[-1].append((at + len(word), " ...", 0))
    n_lines = sum(len(each) + 1.85 for each in lines.values())
    letters = {"size": TYPE, "va": "center", "family": "monospace", "parse_math": False}
    with axes(title, "column", "line", (11.3, 0.36 * n_lines + 0.5)) as (figure, ax):
        y = 0.0
        for name, rows in lines.items():
            ax.text(0, y, f"{name}: longest copy {most[name]} tokens", size=TYPE, color=QUIET)
            y += 0.95
            for row in rows:
                for at, word, length in row:
                    if length:
                        shade = HEAT(0.12 + 0.6 * min(1, length / 100))
                        ax.barh(y, len(word), left=at, height=0.94, color=shade, linewidth=0)
                    ink = ink_on(shade) if length else INK
                    for i, letter in enumerate(word):
                        ax.text(at + i + 0.5, y, letter, ha="center", color=ink, **letters)
                y += 1
            y += 0.9
        ax.set(xlim=(0, COLUMNS + 5), ylim=(y - 0.6, -0.6))
        hide_axes(ax)
        display(
            figure,
            alt="; ".join(f"{name}: longest copy {n} tokens" for name, n in most.items()) + ".",
            caption=(
                f"Blue: {SEVEN} tokens or more in a row are in the training text, too; the darker, "
                f"the longer the passage. The first {MOST_LINES} lines of each."
            ),
            table={"text": list(most), "longest copy": list(most.values())},
        )


def roads(rows: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Shows bits per byte on held-out text for each road; {text: {road: one number a run}}."""
    title = "With 20 KB, the real model wins after 20 updates"
    with axes(title, "bits per byte on held-out text", "road", (11.2, 5.0)) as (figure, ax):
        y = 0.0
        every = []  # text, road, mean, where
        runs = chain.from_iterable(each.values() for each in rows.values())
        most = 1.15 * max(chain.from_iterable(runs))
        for corpus, roads_of in rows.items():
            ax.text(
                most, y + 2, f"20 KB of {corpus}", size=TYPE, weight="bold", ha="right", va="center"
            )
            for i, (road, values) in enumerate(roads_of.items()):
                mean = sum(values) / len(values)
                ax.barh(y, mean, height=0.7, color=SERIES[i], alpha=0.3)
                ax.plot(values, side_by_side(y, len(values), 0.16), "o", color=SERIES[i], ms=9)
                ax.text(max(values) + 0.05, y, f"{mean:.2f}", va="center", size=TYPE)
                every.append((corpus, road, mean, y))
                y += 1
            y += 0.6
        ax.set_yticks([place for *_, place in every], [road for _, road, *_ in every])
        ax.set(ylim=(y - 0.9, -0.6), xlim=(0, most))
        ax.set_ylabel("road", color="none")
        unframed(ax)
        ax.xaxis.grid(True, color=LINE)
        set_type(ax, TYPE)
        said = [f"{corpus}, {road}: {mean:.2f}" for corpus, road, mean, _ in every]
        display(
            figure,
            alt=f"Bars of bits per byte: {'; '.join(said)}.",
            caption=(
                "Recorded: each dot is one training on 20 KB, measured on its held-out tenth. From "
                "scratch the best weights count; section 5 has the last."
            ),
            table={
                "road": [f"{corpus}: {road}" for corpus, road, *_ in every],
                "bits per byte": [mean for _, _, mean, _ in every],
            },
        )


def _draw_sizes(ax: Axes, corpus: str, rows: Mapping[int, Size]) -> None:
    named = {
        "training, at the end": "training",
        "held out, at the end": "at_end",
        "held out, lowest": "lowest",
    }
    kb = [n / 1000 for n in rows]
    for (name, key), mark in zip(named.items(), "osD", strict=True):
        values = [getattr(row, key) for row in rows.values()]
        ax.semilogx(kb, values, marker=mark, linewidth=3, markersize=8, label=name)
    levels = {"ln V: knows nothing": LN_V[corpus]}
    if corpus == "storyworld":
        levels["floor"] = FLOOR
    for name, value in levels.items():
        ax.axhline(value, color=QUIET, linewidth=1.8, linestyle=(0, (1, 1.5)))
        right = name != "floor"
        at = kb[-1] if right else kb[0]
        ax.text(at, value + 0.1, name, size=TYPE, color=QUIET, ha="right" if right else "left")
    ax.set_xticks(kb, [f"{size:.0f}" for size in kb])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="KB of text", ylabel="loss (nats per token)", ylim=(0, 9))
    set_type(ax, TYPE)


def _halves(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[0::2]), sum(lengths[1::2])]


def _lines(text: Any, ids: Sequence[int], found: Sequence[int]) -> list[list[tuple]]:
    """Tokens in lines: (column, text, how long the copy is)."""
    lines: list[list[tuple]] = [[]]
    column = 0
    for token, length in zip(ids, found, strict=True):
        word = text.tokenizer.decode([token]).replace("\n", " ")
        if column + len(word) > COLUMNS and word.startswith(" "):
            lines.append([])
            column = 0
        word = word if column else word.lstrip()
        lines[-1].append((column, word, length))
        column += len(word)
    return lines
