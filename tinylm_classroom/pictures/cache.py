"""The pictures of lesson 13: calls of a model that writes, seconds of a whole text, and mistakes
with a cache.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patheffects import withStroke
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..display.figures import axes, display, drawing, heat_map
from ..display.numbers import measured
from ..display.theme import INK, QUIET, SERIES

_EMPTY, _KEPT, _AGAIN, _NEW = range(4)
_HUES = ListedColormap(["white", "#cfe1f5", SERIES[1], SERIES[0]])
_TITLE = 23
_LABEL = 19
_WORD = 18
_INSIDE = 21


def calls(
    tokenizer: Any, written: Tensor, reads: Sequence[int], same: Tensor | None = None
) -> None:
    """Shows which positions each call of a model computes: a row for each call.

    written (1, S): the text at the end. reads: how many positions each call reads.
    same: (calls, positions) bool, where a call makes the keys and values of the call before again;
    with it a second grid shows only what is new.
    """
    n_calls = len(reads)
    read = written[0, : max(reads)].tolist()
    words = [tokenizer.decode([token]).strip() or "(line end)" for token in read]
    columns = torch.arange(max(reads))
    is_read = columns < torch.tensor(reads)[:, None]  # (calls, positions)
    total = sum(reads)
    table: dict[str, list[Any]] = {"call": [*range(1, n_calls + 1)], "computed": list(reads)}
    alt = f"A row for each of {n_calls} calls, a column for each of {max(reads)} positions. "
    caption = f"The model writes {n_calls} tokens. Each row is a call, each cell a position."
    if same is None:
        with drawing(9.6, 5.4) as figure:
            ax = figure.subplots()
            _grid(ax, _NEW * is_read, words, f"{n_calls} calls compute {total} positions")
        alt += f"Together {total} positions are computed, one more in each call."
    else:
        n_same = int(same.sum())
        with drawing(11.4, 5.4) as figure:
            left, right = figure.subplots(1, 2, sharey=True)
            _grid(left, _NEW * is_read - 1 * same, words, f"It computes {total} positions")
            _grid(right, _NEW * is_read - 2 * same, words, f"Only {total - n_same} are new")
        right.set_ylabel("")
        _inside(left, "the same again", "white", SERIES[1])
        _inside(right, "was there before", "black", _HUES(_KEPT))
        for ax in (left, right):
            ax.text(9.6, 2.5, "new", color=SERIES[0], size=_INSIDE, weight="bold", va="center")
        alt += (
            f"Left: of {total} positions {n_same} are computed again. Right: only "
            f"{total - n_same} are new."
        )
        caption += (
            " Orange: all keys and values of this position, from all layers, are the same as in "
            "the call before, up to rounding."
        )
        table["of them new"] = (is_read & ~same).sum(1).tolist()
    display(figure, alt=alt, caption=caption, table=table)


def _grid(ax: Axes, kinds: Tensor, words: Sequence[str], title: str) -> None:
    n_calls, n_positions = kinds.shape
    ax.imshow(kinds.numpy(), cmap=_HUES, vmin=0, vmax=_NEW, aspect="auto")
    ax.set_title(title, size=_TITLE)
    ax.set_xlabel("position", size=_LABEL)
    ax.set_ylabel("call of the model", size=_LABEL)
    ax.set_xticks(range(n_positions), words, rotation=90, size=_WORD)
    ax.set_yticks(range(n_calls), range(1, n_calls + 1), size=_WORD)
    ax.set_xticks([x - 0.5 for x in range(n_positions + 1)], minor=True)
    ax.set_yticks([y - 0.5 for y in range(n_calls + 1)], minor=True)
    ax.grid(visible=False)
    ax.grid(which="minor", color="white", linewidth=2.5, linestyle="-")
    ax.tick_params(which="both", length=0)


def _inside(ax: Axes, text: str, ink: str, ground: Any) -> None:
    """Writes over the cells in which nothing is new; a rim in their colour covers the lines."""
    rim = [withStroke(linewidth=7, foreground=ground)]
    style = {"size": _INSIDE, "weight": "bold", "ha": "center", "va": "center"}
    ax.text(4, 5, text, color=ink, path_effects=rim, **style)


def mask(allowed: Tensor) -> None:
    """Shows which keys the newest positions may see: allowed (T, S) bool."""
    n_new, n_keys = allowed.shape
    n_kept = n_keys - n_new
    heat_map(
        allowed,
        [f"new {i}, at {n_kept + i}" for i in range(n_new)],
        [*(f"kept {j}" for j in range(n_kept)), *(f"new {j}" for j in range(n_new))],
        title="The mask moves right by what is kept",
        caption=(
            "1 is allowed, 0 is not. Each new position sees everything that is kept, the new ones "
            "before it, and itself."
        ),
        digits=0,
    )


def seconds(with_cache: Sequence[float], without: Sequence[float]) -> None:
    """Shows the seconds that a text has taken after each of its tokens, written in two ways."""
    tokens = [*range(1, len(without) + 1)]
    with axes("Without a cache, a long text takes far longer", "", "", (9.8, 5.0)) as (figure, ax):
        both = (("everything again", without, SERIES[1]), ("with a cache", with_cache, SERIES[0]))
        for name, spent, color in both:
            ax.plot(tokens, spent, "-", color=color, linewidth=4)
            style = {"color": color, "size": _INSIDE, "weight": "bold"}
            ax.text(tokens[-1] * 1.015, spent[-1], name, va="center", **style)
        ax.set_xlabel("tokens written so far", size=_LABEL)
        ax.set_ylabel("seconds so far", size=_LABEL)
        ax.tick_params(labelsize=_WORD)
        ax.set(xlim=(0, tokens[-1] * 1.42), ylim=(0, None))
        ax.set_xticks([tokens[-1] * part // 4 for part in range(5)])
    shown = [tokens[-1] * part // 4 for part in range(1, 5)]
    display(
        figure,
        alt=(
            "Line chart of the seconds that a text has taken over its tokens: the curve of reading "
            "everything again bends upwards, the line with a cache stays low."
        ),
        caption=(
            "Measured on the machine that ran this notebook. Both ways write the same text; only "
            "the amount of work differs."
        ),
        table={
            "tokens": shown,
            "everything again": [measured(without[n - 1], "s", 1e-3, 1e4) for n in shown],
            "with a cache": [measured(with_cache[n - 1], "s", 1e-3, 1e4) for n in shown],
        },
    )


def judged(logits: Mapping[str, Tensor], texts: Tensor) -> dict[str, tuple[float, float, float]]:
    """Of each cache: the loss inside the prompt, that of single steps, and the fraction of steps
    whose most probable token is not that of the first one.

    logits (B, T, V) of texts (B, T), of which the first half is the prompt. The prediction at its
    last token belongs to both parts and is left out.
    """
    half = texts.shape[1] // 2
    right = next(iter(logits.values()))[:, half:].argmax(-1)  # (B, T / 2)
    rows = {}
    for name, each in logits.items():
        losses = cross_entropy(each[:, :-1].mT, texts[:, 1:], reduction="none")  # (B, T - 1)
        other = (each[:, half:].argmax(-1) != right).float().mean()
        steps = losses[:, half:].mean()
        rows[name] = (losses[:, : half - 1].mean().item(), steps.item(), other.item())
    return rows


def mistakes(rows: Mapping[str, tuple[float, float, float]]) -> None:
    """Shows the loss inside the prompt and of single steps, for a right cache and wrong ones.

    rows: by name, both losses and the fraction of steps whose most probable token is another one.
    """
    names = list(rows)
    places = torch.arange(len(rows))
    kinds = (("inside the prompt", 0, QUIET), ("single steps", 1, SERIES[1]))
    with axes("One loss of two looks right", "", "", (10.4, 4.9)) as (figure, ax):
        for name, which, color in kinds:
            losses = [values[which] for values in rows.values()]
            at = places + 0.38 * (which - 0.5)
            ax.barh(at, losses, height=0.36, color=color, label=name)
            for y, loss in zip(at.tolist(), losses, strict=True):
                ax.text(loss + 0.08, y, f"{loss:.2f}", va="center", size=_WORD, color=INK)
        for y, (_, _, other) in zip(places.tolist(), rows.values(), strict=True):
            says = f"{other:.0%}"
            ax.text(1.0, y, says, transform=ax.get_yaxis_transform(), size=_INSIDE, weight="bold",
                    ha="right", va="center")  # fmt: skip
        says = {"transform": ax.transAxes, "size": _WORD, "ha": "right", "va": "bottom"}
        ax.text(1.0, 1.02, "other tokens", **says)
        ax.set_yticks(places, names, size=_WORD)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("loss in nats", size=_LABEL)
        ax.set_ylabel("cache", size=_LABEL)
        ax.set_xlim(0, 1.3 * max(max(values[:2]) for values in rows.values()))
        ax.tick_params(labelsize=_WORD)
        ax.legend(frameon=False, fontsize=_WORD, loc="upper center", bbox_to_anchor=(0.5, 1.0))
    worst = "; ".join(f"{name}: {a:.2f} and {b:.2f}" for name, (a, b, _) in rows.items())
    display(
        figure,
        alt=f"Bars of the loss inside the prompt and of single steps. {worst}.",
        caption=(
            "Of 128 stories 20 tokens are the prompt, and 20 more are read one by one. At the "
            "right: in how many of the single steps another token is the most probable one."
        ),
        table={
            "cache": names,
            "loss inside the prompt": [f"{values[0]:.2f}" for values in rows.values()],
            "loss of single steps": [f"{values[1]:.2f}" for values in rows.values()],
            "other most probable token": [f"{values[2]:.0%}" for values in rows.values()],
        },
    )
