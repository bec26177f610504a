"""The pictures of lesson 07: what heads look back for, what two of them learn, how their results
are added up, which of them share keys, and what breaks without one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from tinylm_lib.storyworld import words
from tinylm_lib.storyworld.stories import Story

from ..display.figures import axes, display, drawing, ink_on, unframed
from ..display.numbers import fixed, learned
from ..display.theme import HEAT, INK, LINE, QUIET, SERIES
from ..shapes.capture import capture
from .lettering import hide_axes, set_type, side_by_side
from .story import draw_story, draw_thread

LEAST = 0.4  # of the weight that a thread needs
SMALL = 0.05  # a number below it is not written
TYPE = 20
LN_2 = 0.693
PART = r"times its $\mathbf{W_O}$"


def threads(model: Any, tokenizer: Any, story: Story, kinds: Sequence[str], *, layer: int) -> None:
    """Shows a story with a thread to each word of these kinds from an earlier one that determines
    it, in the colour of the head that looks there, just before it, with a weight above 0.4.
    """
    title = "Each head looks for different words"
    said = words(story.text)
    ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (B, T)
    weights = capture(model, ids).attention(layer).weights[0]  # (H, T, S)
    found = []
    for target, (kind, sources) in enumerate(zip(story.kinds, story.lookback, strict=True)):
        for source in sources if kind in kinds else ():
            for head, weight in enumerate(weights[:, target, source + 1].tolist()):
                if weight > LEAST:
                    found.append((head, source, target, weight))
    with drawing(11.4, 6.2, axes_grid=False) as figure:
        ax = figure.subplots()
        grounds = {target: SERIES[head] for head, _, target, _ in found}
        sources = {source for _, source, *_ in found}
        at = draw_story(ax, said, grounds, sources)
        for head, source, target, weight in found:
            aside = 0.5 * (head - 1.5)
            ends = []
            for i in (source, target):
                column, line = at[i]
                ends.append((column + len(said[i].strip()) / 2 + aside, line))
            draw_thread(ax, *ends, weight, SERIES[head])
        for head in sorted({head for head, *_ in found}):
            style = {"color": SERIES[head], "linestyle": "-", "linewidth": 6}
            ax.plot([], [], label=f"head {head}", **style)
        where = {"loc": "outside lower center", "ncols": 4, "frameon": False}
        if found:
            figure.legend(fontsize=TYPE, handlelength=1.6, **where)
        ax.set_xlabel(" ")
        ax.set_title(title, size=24)
    pairs = [(f"head {head}", said[a].strip(), said[b].strip(), w) for head, a, b, w in found]
    told = ", ".join(f"{head} from {b} back to {a}" for head, a, b, _ in pairs) or "none"
    columns = zip(*(pairs or [("none", "none", "none", "-")]), strict=True)
    names = ("head", "looks at", "before it says", "weight")
    display(
        figure,
        alt=f"{title}. Threads in a story: {told}.",
        caption=(
            "A thread leads from an earlier word to the word that it determines: the head looks at "
            "the first just before the model says the second. The thicker, the larger the weight."
        ),
        table=dict(zip(names, map(list, columns), strict=True)),
        digits=2,
    )


def trained(one: Tensor, two: Tensor, losses: Mapping[str, Sequence[float]]) -> None:
    """Shows where one head and two heads learned to look, (H, T, S) each, and the last loss of
    each run, a dot for each seed.
    """
    title = "One head mixes two words, two heads share the work"
    with drawing(11.4, 4.6, axes_grid=False) as figure:
        *maps, dots = figure.subplots(1, 4, width_ratios=(1, 1, 1, 0.95))
        names = ("one head", "two: head 0", "two: head 1")
        for ax, weights, name in zip(maps, torch.cat((one, two)), names, strict=True):
            ax.imshow(weights[:10, :10].numpy(), cmap=HEAT, vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.set_title(name, size=TYPE, loc="center", weight="normal")
            for back in (1, 2):
                share = weights.diagonal(-back)[3:].mean().item()
                if share > 0.25:
                    text = f"{back} back: {fixed(share, 2)}"
                    where = {"ha": "right", "size": 18, "color": INK, "weight": "bold"}
                    ax.text(9.3, 0.4 + 1.2 * (back - 1), text, va="center", **where)
            unframed(ax)
        maps[0].set_ylabel("position", size=TYPE)
        for place, found in enumerate(losses.values()):
            at = side_by_side(place, len(found), 0.09)
            dots.plot(at, found, "o", color=SERIES[place], markersize=12, linestyle="none")
        dots.axhline(LN_2, color=QUIET, lw=1.8, linestyle=":")
        dots.text(1.45, LN_2 + 0.03, "ln 2", size=18, color=QUIET, ha="right")
        dots.set_xticks(range(len(losses)), list(losses))
        dots.set(xlim=(-0.5, 1.5), ylim=(-0.05, 1.05), yticks=[0, 0.5, 1])
        dots.set_title("loss of each run", size=TYPE, loc="center", weight="normal")
        set_type(dots, 19)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
        figure.supxlabel("looks at (the first ten positions)", size=TYPE, x=0.37)
    ends = [f"{learned(min(each), 0, 4)} to {learned(max(each), 0, 4)}" for each in losses.values()]
    told = "; ".join(f"{name}: {end}" for name, end in zip(losses, ends, strict=True))
    display(
        figure,
        alt=f"{title}. Three attention maps, and the losses of the runs: {told}.",
        caption=(
            "Left: mean attention weights of the first run. Right: a dot is a run with a seed of "
            "its own. At the dotted line a reader knows both tokens, but not their order."
        ),
        table={"heads": list(losses), "loss in nats": ends},
    )


def flow(maps: Tensor) -> None:
    """Shows the way of the features through a layer, from the split to the sum of what each head
    adds, with the attention maps (H, T, S) of a model.
    """
    title = "Split, attend, project: each head adds its own part"
    steps = {
        "q, k, v": (3.9, "(B, T, C)"),
        "split": (14.0, "(B, H, T, D)"),
        "weights": (23.6, "(B, H, T, S)"),
        "results": (33.2, "(B, H, T, D)"),
        PART: (42.4, "(B, T, C) each"),
        "the sum": (53.0, "(B, T, C)"),
    }
    with axes(title, "steps", "heads", (11.4, 5.9)) as (figure, ax):
        for head, (weights, color) in enumerate(zip(maps, SERIES, strict=False)):
            floor = 15.6 - 5.4 * head
            for sheet in range(3):  # q, k and v
                left = 0.9 * sheet + 1.5 * head
                _sheet(ax, left, 7.2 - 0.9 * sheet, 1.5, 5, color)
                _sheet(ax, 12.6 + 0.8 * sheet, floor + 0.4 - 0.5 * sheet, 1.4, 3.8, color)
            extent = (20.9, 26.3, floor, floor + 4.6)
            ax.imshow(weights.numpy(), cmap=HEAT, vmin=0, vmax=0.8, extent=extent, zorder=3)
            edge = {"fill": False, "ec": color, "lw": 3, "zorder": 4}
            ax.add_patch(Rectangle((20.9, floor), 5.4, 4.6, **edge))
            _sheet(ax, 32.5, floor + 0.2, 1.4, 4.2, color)
            _sheet(ax, 39.6, floor + 0.9, 5.6, 2.8, color)
            ax.text(33.2, floor + 2.3, str(head), ha="center", va="center", size=19, color="white")
            _sheet(ax, 50, 6.6 + 1.3 * head, 6, 1.3, color)
            if head:
                ax.text(49.1, 6.6 + 1.3 * head, "+", ha="center", va="center", size=TYPE)
        for x in (10.6, 18.6, 29.4, 36.6, 46.6):
            style = {"arrowstyle": "-|>", "fc": INK, "ec": INK, "lw": 2}
            ax.annotate("", (x + 1.1, 9.4), (x - 1.1, 9.4), arrowprops=style)
        for name, (x, shape) in steps.items():
            ax.text(x, 22.2, name, ha="center", va="center", size=19, weight="bold")
            ax.text(x, -3.4, shape, ha="center", va="center", size=19)
        ax.set(xlim=(-1, 58), ylim=(-4.6, 23.4), aspect="auto")
        ax.title.set_size(23)
        hide_axes(ax)
    display(
        figure,
        alt=(
            "Queries, keys and values are cut into a colour for each head. Each colour has its own "
            "attention map and result, and makes of it a part of the output. The parts are added."
        ),
        caption=(
            "A colour is a head; the maps are those of the shipped model. Until the sum at the "
            "right no head depends on another."
        ),
        table={
            "step": [name.replace(PART, "times its part of W_O") for name in steps],
            "shape": [shape for _, shape in steps.values()],
        },
    )


def _sheet(ax: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    ax.add_patch(Rectangle((x, y), width, height, fc=color, ec="white", lw=1.2, zorder=3))


def groups(n_heads: int, shared: Sequence[int]) -> None:
    """Shows which query head uses which key-value head, for each number of key-value heads."""
    title = "Grouped queries share keys and values"
    kinds = {n_heads: "each its own", 1: "one for all (MQA)"}
    with axes(title, "heads", "queries, keys and values", (11.4, 4.3)) as (figure, ax):
        for part, n_kv in enumerate(shared):
            left = part * (n_heads + 1.6)
            for head in range(n_heads):
                group = head * n_kv // n_heads
                x = left + (group + 0.5) * n_heads / n_kv
                color = SERIES[group % 4]
                ax.plot([left + head + 0.5, x], [2.0, 1.2], "-", color=color, lw=2.5, zorder=1)
                _sheet(ax, left + head + 0.1, 2.0, 0.8, 0.7, color)
            for group in range(n_kv):
                x = left + (group + 0.5) * n_heads / n_kv
                for down in (0.5, 0):
                    _sheet(ax, x - 0.4, 0.2 + down, 0.8, 0.5, SERIES[group % 4])
            name = kinds.get(n_kv, f"{n_kv} for {n_heads} (GQA)")
            ax.text(left + n_heads / 2, 3.2, name, ha="center", va="center", size=TYPE)
        for y, name in ((2.35, "q"), (0.95, "k"), (0.45, "v")):
            ax.text(-0.5, y, name, ha="center", va="center", size=TYPE, weight="bold")
        ax.set(xlim=(-1, len(shared) * (n_heads + 1.6) - 1), ylim=(0, 3.6))
        ax.title.set_size(23)
        hide_axes(ax)
    told = [f"{n_kv} key-value heads" for n_kv in shared]
    display(
        figure,
        alt=f"{title}. {n_heads} query heads, with {', then '.join(told)}.",
        caption="Above the query heads, below the keys and values that they use.",
        table={
            "key-value heads": list(shared),
            "query heads of each": [n_heads // n_kv for n_kv in shared],
        },
    )


def maps(
    panels: Mapping[str, Mapping[str, Tensor]], marked: Sequence[tuple[str, int, int]] = ()
) -> None:
    """Shows tables side by side, heads by row (layer by layer) and kinds of words by column, each
    {kind: (L, H)}, with a frame around the marked cells (kind, layer, head).
    """
    last = list(panels)[-1]
    title = (
        "Look and use often disagree" if len(panels) > 1 else "Each head looks for different words"
    )
    with drawing(11.4, 5.6, axes_grid=False) as figure:
        both = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for ax, (name, panel) in zip(both, panels.items(), strict=True):
            shares = torch.stack([each.flatten() for each in panel.values()], -1)  # (L * H, kinds)
            _large_numbers(ax, shares)
            for kind, layer, head in marked:
                corner = (list(panel).index(kind) - 0.5, 4 * layer + head - 0.5)
                ax.add_patch(Rectangle(corner, 1, 1, fill=False, ec=SERIES[1], lw=4, zorder=5))
            for edge in (3.5, 7.5):
                ax.axhline(edge, color=INK, lw=2)
            ax.set_xticks(range(len(panel)), list(panel), rotation=35, ha="right", size=18)
            ax.set_yticks(range(len(shares)), [i % 4 for i in range(len(shares))], size=18)
            ax.set_title(name, size=TYPE, loc="center", weight="normal")
            unframed(ax)
        both[0].set_ylabel("head, of layers 0, 1 and 2", size=TYPE)
        figure.suptitle(title, x=0.012, ha="left", weight="bold", size=23)
        figure.supxlabel("kind of word that comes next", size=TYPE)
    rows = {}
    for name, panel in panels.items():
        rows |= {f"{name}: {kind}": each.flatten().tolist() for kind, each in panel.items()}
    heads = [f"layer {i // 4}, head {i % 4}" for i in range(len(next(iter(rows.values()))))]
    display(
        figure,
        alt=f"{title}. Heads by row, kinds of words by column: {', then '.join(panels)}.",
        caption=(
            f"{last}, as a fraction of the words. Numbers below 0.05 are left out."
            if len(panels) == 1
            else "Left: how often the head looks most at a word that determines the next one. "
            "Right: the fraction of words that is lost without it. Framed: the text is about them."
        ),
        table={"head": heads, **rows},
        digits=2,
    )


def _large_numbers(ax: Axes, shares: Tensor) -> None:
    """Cells from 0 to 1, with their numbers from 0.05 on."""
    ax.imshow(shares.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(shares.tolist()):
        for j, value in enumerate(row):
            if value >= SMALL:
                where = {"ha": "center", "va": "center", "size": 18}
                ax.text(j, i, fixed(value, 2), color=ink_on(HEAT(min(value, 1.0))), **where)


def pushes(found: Mapping[tuple[int, int], tuple[float, Sequence[float]]]) -> None:
    """Shows for each head by how much it raises the logit of the name that it looks at: (layer,
    head): (how often it looks at a name, one mean for each set of stories).
    """
    title = "Five heads raise the name they look at, one lowers it"
    shown = {at: means for at, (often, means) in found.items() if often > 0.5}
    labels = [f"layer {layer}, head {head}" for layer, head in shown]
    with axes(title, "added to the logit of the name that it looks at", " ", (11.0, 5.0)) as (
        figure,
        ax,
    ):
        for row, means in enumerate(shown.values()):
            mean = sum(means) / len(means)
            ax.barh(row, mean, 0.62, color=SERIES[mean < 0])
            ax.plot(means, [row] * len(means), "o", color=INK, markersize=6, linestyle="none")
            away = 0.15 if mean > 0 else -0.15
            where = {"va": "center", "ha": "left" if mean > 0 else "right", "size": TYPE}
            end = max(means, key=abs) + away
            ax.text(end, row, f"{mean:+.1f}".replace("-", "\N{MINUS SIGN}"), weight="bold", **where)
        ax.axvline(0, color=LINE, lw=1.5)
        ax.set_yticks(range(len(shown)), labels)
        ax.set(xlim=(-4.8, 3.8), ylim=(len(shown) - 0.5, -0.5), xticks=[-4, -2, 0, 2])
        set_type(ax, 19)
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, x=-0.28, size=22)
        ax.grid(visible=False)
    means = [sum(each) / len(each) for each in shown.values()]
    told = ", ".join(f"{name} {mean:+.1f}" for name, mean in zip(labels, means, strict=True))
    display(
        figure,
        alt=f"{title}. Added to the logit: {told}.",
        caption=(
            "All heads that look at a name in more than half of the cases. A black dot is a set of "
            "stories, a bar is their mean."
        ),
        table={"head": labels, "added": means},
        digits=2,
    )
