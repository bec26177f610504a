"""The pictures of lesson 10: the whole model and what it would say on the way, the blocks in
another order, the first loss, where the gender of a name is, and where the parameters are. Depth
runs upwards: the embedding is at the bottom.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from torch import Tensor

from tinylm_lib.model import TransformerLM

from ..display.figures import arrow, axes, box, display, ink_on, unframed
from ..display.numbers import fixed
from ..display.theme import AXIS_COLORS, HEAT, INK, LINE, QUIET, SERIES
from ..shapes.capture import capture
from .lettering import LEVEL, hide_axes, set_type, side_by_side

TYPE = 19
TITLE = 23
STREAM = 3.85  # where the stream is, from left to right
BLOCK = 2.2  # from one block to the next
FIRST = 1.85  # where block 0 begins
PARTS = ("token tables", "attention", "feed-forwards")
GROUPS = {"embed": 0, "lm_head": 0, "attention": 1, "ffn": 2}


def early_words(
    model: TransformerLM, tokenizer: Any, text: str
) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """The next word and its probability, if the final norm and the head read the stream of the
    last token at the embedding, and after each block; and the three largest logits at the end.
    """
    ids = torch.tensor([tokenizer.encode("\n" + text)])  # (B, T)
    caught = capture(model, ids)
    depths = ["embed", *(f"blocks.{i}" for i in range(model.config.n_layers))]
    found = []
    with torch.no_grad():
        for depth in depths:
            logits = model.unembed(model.final_norm(caught.outputs[depth]))[0, -1]  # (V)
            best = int(logits.argmax())
            found.append((tokenizer.decode([best]).strip(), float(logits.softmax(-1)[best])))
    best = caught.logits[0, -1].topk(3)
    words = [tokenizer.decode([token]).strip() for token in best.indices.tolist()]
    return found, list(zip(words, best.values.tolist(), strict=True))


def whole_model(model: TransformerLM, tokenizer: Any, text: str, names: Sequence[str]) -> None:
    """Shows the model as one stream with its parts, from the ids at the bottom to the logits at
    the top, and the next word that the head would say at each depth, for each of two names.

    text: with `{}` where the name comes.
    """
    title = "One stream, and three blocks that add to it"
    n = model.config.n_layers
    read = {name: early_words(model, tokenizer, text.format(name)) for name in names}
    ids = tokenizer.encode("\n" + text.format(names[0]))
    top = FIRST + n * BLOCK
    depths = [FIRST - 0.2 + i * BLOCK for i in range(n + 1)]
    with axes(title, "parts of the model", "depth", (11.4, 8.2)) as (figure, ax):
        arrow(ax, (STREAM, 0.12), (STREAM, top + 2.15), "C", width=5)
        for i in range(n):
            _draw_block(ax, FIRST + i * BLOCK, f"block {i}")
        for name, at, letter in (
            ("embedding", 1.02, "V"),
            ("final norm", top + 0.5, ""),
            ("head", top + 1.35, "V"),
        ):
            box(ax, STREAM, at, name, letter)
            ax.texts[-1].set_size(TYPE)
        first = ", ".join(map(str, ids[:4]))
        last = ",  ".join(f"{word} {fixed(value, 1)}" for word, value in read[names[0]][1])
        for text_of, at in (
            (rf"$\mathbf{{ids}}$  [{first}, ..., {ids[-1]}]", -0.12),
            (rf"$\mathbf{{logits}}$  {last}, ...", top + 2.45),
        ):
            ax.text(STREAM, at, text_of, ha="center", va="center", size=TYPE)
        for shape, at in (("(B, T)", 0.33), ("(B, T, C)", FIRST - 0.23), ("(B, T, V)", top + 1.92)):
            ax.text(STREAM - 0.25, at, shape, ha="right", va="center", size=16, color=QUIET)
        ax.text(10.05, top + 1.15, "the head would say", ha="center", size=TYPE, color=QUIET)
        for column, name in enumerate(names):
            across = 9.0 + 2.1 * column
            ax.text(across, top + 0.55, name, ha="center", size=TYPE, weight="bold")
            for high, (word, prob) in zip(depths, read[name][0], strict=True):
                _draw_reading(ax, across, high, word, prob)
        ax.hlines(depths, STREAM + 0.15, 7.9, color=QUIET, linewidth=1.8, linestyle=":")
        ax.set(xlim=(-0.4, 12.1), ylim=(-0.35, top + 2.8))
        ax.title.set_size(TITLE)
        hide_axes(ax)
    rows = ["embedding", *(f"block {i}" for i in range(n))]
    said = {name: [f"{word} {fixed(prob, 2)}" for word, prob in read[name][0]] for name in names}
    told = "; ".join(f"for {name} {', '.join(words)}" for name, words in said.items())
    display(
        figure,
        alt=(
            f"Diagram, to be read upwards: ids, embedding, {n} blocks, final norm, head, logits. "
            "In each block attention and feed-forward read the stream through a norm and are added "
            f"to it. The next word if the head read the stream here: {told}."
        ),
        caption=(
            "From the bottom to the top: what the head would say after "
            f"*{text.format('...')}*, if it read the stream at this height already."
        ),
        table={"read after": rows, **said},
    )


def _draw_block(ax: Axes, low: float, name: str) -> None:
    """Attention at the left and the feed-forward above it at the right: each reads the stream
    through a norm, and what it returns is added.
    """
    style = {"boxstyle": "round,pad=0,rounding_size=0.15", "fc": "#f3f6f9", "ec": LINE, "lw": 1.2}
    ax.add_patch(FancyBboxPatch((-0.3, low), 8.0, BLOCK - 0.4, zorder=0, **style))
    ax.text(0.72, low + 1.37, name, ha="center", va="center", size=TYPE, weight="bold")
    for side, reads, part, letter in (
        (-1, 0.24, "attention", "D"),
        (1, 0.94, "feed-\nforward", "F"),
    ):
        start, end = low + reads, low + reads + 0.56
        x = STREAM + side * 2.75
        inner = x - side * 0.9  # the side of the part that faces the stream
        arrow(ax, (STREAM, start), (inner + side * 0.05, start), letter, width=2.4)
        arrow(ax, (inner, end), (STREAM + side * 0.2, end), letter, width=2.4)
        frame = {"fc": "white", "ec": AXIS_COLORS[letter].light, "lw": 2, "zorder": 5}
        round_ = "round,pad=0,rounding_size=0.12"
        corner = (x - 0.9, start - 0.17)
        ax.add_patch(FancyBboxPatch(corner, 1.8, 0.9, boxstyle=round_, **frame))
        where = {"ha": "center", "va": "center", "size": 18, "zorder": 6}
        ax.text(x, start + 0.28, part, linespacing=0.95, **where)
        norm = {"boxstyle": "round,pad=0.22", "fc": "white", "ec": INK, "lw": 1.6}
        ax.text(STREAM + side * 0.95, start, "norm", bbox=norm, **{**where, "size": 15})
        plus = {"boxstyle": "circle,pad=0.1", "fc": INK, "ec": "none"}
        bold = {**where, "size": 15, "color": "white", "weight": "bold", "zorder": 7}
        ax.text(STREAM, end, "+", bbox=plus, **bold)


def _draw_reading(ax: Axes, across: float, high: float, word: str, prob: float) -> None:
    """A word and its probability, on a ground that is darker for a larger probability."""
    color = HEAT(prob)
    ground = {"boxstyle": "round,pad=0.3", "facecolor": color, "edgecolor": "none"}
    style = {"size": TYPE, "ha": "center", "va": "center", "color": ink_on(color)}
    ax.text(across, high, f"{word} {fixed(prob, 2)}", bbox=ground, **style)


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
    size = 15 if len(words) < 15 else 13
    with axes(title, "position that is exchanged", " ", (11.4, 4.3)) as (figure, ax):
        ax.imshow(grid.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto", origin="lower")
        for depth, values in enumerate(grid.tolist()):
            for at, value in enumerate(values):
                if value >= 0.05:
                    style = {"ha": "center", "va": "center", "size": size, "weight": "bold"}
                    ax.text(at, depth, fixed(value, 2), color=ink_on(HEAT(value)), **style)
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
    where = [
        f"{rows[depth]} at {words[at]}"
        for depth, values in enumerate(grid.tolist())
        for at, value in enumerate(values)
        if value > 0.5
    ]
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
    title = "Most parameters are in the feed-forwards"
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
