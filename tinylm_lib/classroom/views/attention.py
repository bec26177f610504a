"""Attention in stages: who looks at whom in every layer and head, from scores to shares to what is mixed."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import torch
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from torch import Tensor

from ...attention import causal_mask
from ...model import TransformerLM
from ...storyworld.lookback import share_told, told_by
from ...text.cutting import words
from ..display.cards import number_table
from ..display.figures import MASKED, framed
from ..display.numbers import fixed
from ..display.theme import HEAT, INK, LINE, QUIET, STYLE
from ..shapes.capture import Captured, Stages, capture
from .base import View, named, packed, readable

MOST_TOKENS, MOST_LIVE_TOKENS = 17, 32  # a line end and 16 words
MOST_STORED = 36_000  # characters; a model whose layers need more stores one, and its kernel answers for the others
PLACES = {"q": 2, "k": 2, "v": 1}  # q and k make the numbers in the cells; of v the height of small bars is seen
CELL_INCHES, ROW_INCHES = 0.43, 6.3  # of a cell, and of all cells of a row at most
LEAST_WRITTEN, TURN = 0.2, 0.62  # smaller weights have no number in the picture; above TURN it is white
SHARPNESS = 1.0
STEPS = 10  # shades of cells


class Shown(NamedTuple):
    """One head as the picture shows it: scores, scaled, weights (T, T), and the cell that the words are about."""

    tokens: list[str]
    layer: int
    head: int
    scores: Tensor
    scaled: Tensor
    weights: Tensor
    row: int
    column: int
    told: list[list[int]]

    @property
    def says(self) -> str:
        """The selected cell in plain words."""
        asks, offers = (named(self.tokens[place]) for place in (self.row, self.column))
        return f"{asks} gives {100 * self.weights[self.row, self.column]:.0f} % of its attention to {offers}."


def attention_view(
    model: TransformerLM, tokenizer: Any, text_or_ids: str | Sequence[int] | Tensor, layer: int = 0, head: int = 0
) -> View:
    """The attention of a model as a view: scores, scaled, masked, weights and what is mixed, or all heads at once.

    layer, head: the first to be shown, counted from 0. Of the beginning of a StoryWorld story it is marked which words
    tell the next one. Beside a kernel another text of up to 32 tokens can be typed: a story begins after a line end,
    another text after the blanks of this one.
    Raises: ValueError for a layer or head that the model does not have, and for fewer than 2 or more than 17 tokens.
    """
    for name, value, size in (("layer", layer, model.config.n_layers), ("head", head, model.config.n_heads)):
        if not 0 <= value < size:
            raise ValueError(f"{name} {value} is none of the model's {size}, which count from 0 to {size - 1}")
    ids = _ids(tokenizer, text_or_ids, MOST_TOKENS)
    lead = text_or_ids[: len(text_or_ids) - len(text_or_ids.lstrip())] if isinstance(text_or_ids, str) else ""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        text = request.get("text", "").strip()
        begun = ("\n" if told_by(text) else lead) + text
        asked = _ids(tokenizer, begun, MOST_LIVE_TOKENS) if "text" in request else ids
        return _stored(_read(model, asked), tokenizer, request.get("layers", range(model.config.n_layers)))

    caught = _read(model, ids)
    data = _stored(caught, tokenizer, range(model.config.n_layers))
    if _length(data["layers"]) > MOST_STORED:
        data = _stored(caught, tokenizer, [layer])
    data |= {"layer": layer, "head": head, "n_layers": model.config.n_layers}
    if isinstance(text_or_ids, str):
        data["text"] = text_or_ids.strip()
    shown = _shown(caught.attention(layer), data, layer, head)
    text = f"Attention in stages, layer {layer}, head {head}, {len(ids)} tokens. {shown.says}"
    return View("attention", data, html=_figure_html(shown), text=text, answer=answer)


def _ids(tokenizer: Any, text_or_ids: str | Sequence[int] | Tensor, most: int) -> Tensor:
    encoded = tokenizer.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
    ids = torch.as_tensor(encoded).flatten()  # (T)
    if not 2 <= len(ids) <= most:
        remedy = "take a shorter piece of the text" if len(ids) > most else "take a longer one"
        raise ValueError(f"the view shows 2 to {most} tokens, not {len(ids)}: {remedy}")
    return ids


def _read(model: TransformerLM, ids: Tensor) -> Captured:
    return capture(model, ids[None].to(next(model.parameters()).device))


def _stored(caught: Captured, tokenizer: Any, layers: Sequence[int]) -> dict[str, Any]:
    """What the browser draws from: the tokens, what tells the next ones, and q, k and v of some layers, head by head.

    Key-value heads that serve several query heads are stored once.
    """
    config, ids = caught.model.config, caught.ids[0].tolist()
    pieces = [tokenizer.decode([token]) for token in ids]
    told = told_by("".join(pieces)) if pieces == words("".join(pieces)) else None
    shared = {"q": 1, "k": config.n_heads // config.n_kv_heads, "v": config.n_heads // config.n_kv_heads}

    def one(layer: int) -> dict[str, Any]:
        stages = caught.attention(layer)
        return {name: packed(getattr(stages, name)[0, :: shared[name]].cpu(), PLACES[name]) for name in PLACES}

    return {
        "tokens": [readable(piece) for piece in pieces],
        "told": [list(places) for places in told or ()],
        "layers": {str(layer): one(layer) for layer in layers},
    }


def _length(layers: dict[str, Any]) -> int:
    return sum(len(head) for layer in layers.values() for part in layer.values() for head in part["digits"])


def _shown(stages: Stages, data: dict[str, Any], layer: int, head: int) -> Shown:
    scores, scaled, weights = (x[0, head].float().cpu() for x in (stages.scores, stages.scaled, stages.weights))
    row = len(weights) - 1
    return Shown(data["tokens"], layer, head, scores, scaled, weights, row, int(weights[row].argmax()), data["told"])


def _figure_html(shown: Shown) -> str:
    caption = (
        f"Layer {shown.layer}, head {shown.head}. Each row is a word that asks (query), each column a word it may look "
        f"back at (key); hatched is masked, because it comes later; the colour goes from 0 to 1, and weights of "
        f"{LEAST_WRITTEN} and more have their number. {shown.says}"
    )
    if any(shown.told):
        share = share_told(shown.weights, shown.told)
        caption += (
            " A ring marks the words that tell the next one, as StoryWorld knows. This head gives them "
            f"{100 * share.heads:.0f} % of its attention; equal looking gives {100 * share.equal:.0f} %."
        )
    alt = f"Heat map of the attention weights, query by row and key by column, from 0 to 1. {shown.says}"
    weights = [
        [name, *(fixed(x, 2) for x in row[: i + 1])]
        for i, (name, row) in enumerate(zip(shown.tokens, shown.weights.tolist(), strict=True))
    ]
    steps = zip(*(stage[shown.row].tolist() for stage in (shown.scores, shown.scaled, shown.weights)), strict=True)
    course = [
        [name, fixed(score, 1), fixed(scaled, 1), fixed(weight, 2)]
        for name, (score, scaled, weight) in zip(shown.tokens, steps, strict=True)
    ]
    tables = (
        number_table(["query ↓ key →", *shown.tokens], weights),
        f"<p>Step by step for {escape(named(shown.tokens[shown.row]))}, the last row:</p>",
        number_table(["key", "q · k", "scaled", "weight"], course),
    )
    scrolls = "".join(f'<div style="overflow-x:auto">{table}</div>' for table in tables)
    return framed(_draw(shown), alt, caption, scrolls, flat=True, sharpness=SHARPNESS)


def _draw(shown: Shown) -> Figure:
    T = len(shown.tokens)
    each = min(CELL_INCHES, ROW_INCHES / T)
    size = (2.0 + each * max(T, 8), 1.9 + 0.72 * each * T)
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=size, layout="constrained")
        ax = figure.subplots()
        ax.set_title("Who looks at whom", pad=30)
        steps = (STEPS * shown.weights).round() / STEPS
        ax.imshow(steps.masked_fill(~causal_mask(T), math.nan).numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto")
        stairs = [(i + 0.5, i + down) for i in range(T - 1) for down in (-0.5, 0.5)]
        ax.add_patch(Polygon([*stairs, (T - 0.5, T - 1.5), (T - 0.5, -0.5)], fc=MASKED, ec=LINE, hatch="/", lw=0))
        for i, row in enumerate(shown.weights.tolist()):
            for j, weight in enumerate(row[: i + 1]):
                color = "white" if weight > TURN else "black"
                if weight >= LEAST_WRITTEN:
                    ax.text(j, i, fixed(weight, 2), ha="center", va="center", size=10.5, color=color)
                if i < len(shown.told) and j in shown.told[i]:
                    round_ = "round,pad=0,rounding_size=0.3"
                    ring = FancyBboxPatch((j - 0.4, i - 0.35), 0.8, 0.7, boxstyle=round_, fill=False, ec=color, lw=1.6)
                    ax.add_patch(ring)
        ax.add_patch(Rectangle((-0.5, shown.row - 0.5), T, 1, fill=False, edgecolor=INK, linewidth=2))
        ax.set_xticks(range(T), shown.tokens, rotation=50, ha="left", rotation_mode="anchor", size=12)
        ax.set_yticks(range(T), shown.tokens, size=12)
        ax.tick_params(length=0, colors=QUIET, labelcolor=INK)
        ax.xaxis.tick_top()
        ax.spines[:].set_visible(False)
        ax.set(ylabel="query: row", xlabel="key: column")
        ax.xaxis.set_label_position("bottom")
    return figure
