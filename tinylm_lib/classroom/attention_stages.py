"""Attention in stages: who looks at whom in one layer, from scores to shares to what is mixed."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import torch
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from ..attention import causal_mask
from ..model import TransformerLM
from .capture import Stages, capture
from .cards import number_table
from .figures import cells, framed
from .look import INK, STYLE
from .measured import fixed
from .view import View, few_digits

MOST_TOKENS = 16
CELL_INCHES = 0.47


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

    @property
    def says(self) -> str:
        """The selected cell in plain words."""
        asks, offers = (_named(self.tokens[place]) for place in (self.row, self.column))
        return f"{asks} gives {100 * self.weights[self.row, self.column]:.0f} % of its attention to {offers}."


def attention_view(
    model: TransformerLM, tokenizer: Any, text_or_ids: str | Sequence[int] | Tensor, layer: int = 0, head: int = 0
) -> View:
    """The attention of one layer as a view: scores, scaled, masked, weights and what is mixed, one head at a time.

    layer, head: counted from 0; the view can switch to the layer's other heads.
    Raises: ValueError for a layer or head that the model does not have, and for fewer than 2 or more than 16 tokens.
    """
    encoded = tokenizer.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
    ids = torch.as_tensor(encoded).flatten()  # (T)
    for name, value, size in (("layer", layer, model.config.n_layers), ("head", head, model.config.n_heads)):
        if not 0 <= value < size:
            raise ValueError(f"{name} {value} is none of the model's {size}, which count from 0 to {size - 1}")
    if not 2 <= len(ids) <= MOST_TOKENS:
        raise ValueError(f"the view shows 2 to {MOST_TOKENS} tokens, not {len(ids)}: take a shorter piece of the text")
    device = next(model.parameters()).device
    stages = Stages(*(x[0].float().cpu() for x in capture(model, ids[None].to(device)).attention(layer)))
    tokens = [_readable(tokenizer.decode([token])) for token in ids.tolist()]
    scores, scaled, weights = (stage[head] for stage in (stages.scores, stages.scaled, stages.weights))  # (T, T)
    shown = Shown(tokens, layer, head, scores, scaled, weights, len(ids) - 1, int(weights[-1].argmax()))
    data = {"layer": layer, "head": head, "tokens": tokens}
    data |= {name: few_digits(getattr(stages, name)) for name in ("q", "k", "v")}  # each (H, T, D)
    text = f"Attention in stages, layer {layer}, head {head}, {len(ids)} tokens. {shown.says}"
    return View("attention", data, html=_figure_html(shown), text=text)


def _readable(token: str) -> str:
    return token.strip(" ").replace("\n", "↵").replace("\t", "⇥") or "␣"


def _named(token: str) -> str:
    return token if any(map(str.isalnum, token)) else f"“{token}”"


def _figure_html(shown: Shown) -> str:
    caption = (
        f"Layer {shown.layer}, head {shown.head}. Each row is a word that asks (query), each column a word it may look "
        f"back at (key); hatched is masked, because it comes later; the colour goes from 0 to 1. {shown.says} The "
        f"three rows below show how the shares of {_named(shown.tokens[shown.row])} come about; the colour of the "
        "first two goes from their lowest to their highest number."
    )
    alt = f"Heat map of the attention weights, query by row and key by column, from 0 to 1. {shown.says}"
    weights = [
        [name, *(fixed(x, 2) if j <= i else "" for j, x in enumerate(row))]
        for i, (name, row) in enumerate(zip(shown.tokens, shown.weights.tolist(), strict=True))
    ]
    steps = zip(*(stage[shown.row].tolist() for stage in (shown.scores, shown.scaled, shown.weights)), strict=True)
    course = [
        [name, fixed(score, 1), fixed(scaled, 1), fixed(weight, 2)]
        for name, (score, scaled, weight) in zip(shown.tokens, steps, strict=True)
    ]
    tables = (
        number_table(["query ↓ key →", *shown.tokens], weights),
        f"<p>Step by step for {escape(_named(shown.tokens[shown.row]))}, the last row:</p>",
        number_table(["key", "q · k", "scaled", "weight"], course),
    )
    scrolls = "".join(f'<div style="overflow-x:auto">{table}</div>' for table in tables)
    return framed(_draw(shown), alt, caption, scrolls)


def _draw(shown: Shown) -> Figure:
    T = len(shown.tokens)
    size = (2.4 + CELL_INCHES * max(T, 8), 2.6 + 0.72 * CELL_INCHES * (T + 4))
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=size, layout="constrained")
        whole, below = figure.subplots(2, 1, height_ratios=[T, 3])
        cells(whole, shown.weights, shown.weights.masked_fill(~causal_mask(T), math.nan), shown.tokens, [2] * T)
        whole.set_title("Who looks at whom", pad=30)
        whole.set_xticks(range(T), shown.tokens, rotation=50, ha="left", rotation_mode="anchor")
        whole.xaxis.tick_top()
        whole.set_ylabel("query: row")
        whole.add_patch(Rectangle((-0.5, shown.row - 0.5), T, 1, fill=False, edgecolor=INK, linewidth=2))
        steps = torch.stack([stage[shown.row] for stage in (shown.scores, shown.scaled, shown.weights)])  # (3, T)
        low, high = steps.min(-1, keepdim=True).values, steps.max(-1, keepdim=True).values
        shades = torch.cat([((steps - low) / (high - low).clamp_min(1e-9))[:2], steps[2:]])
        cells(below, steps, shades, ["q · k", "scaled", "softmax"], [1, 1, 2])
        below.set(xlabel="key: column", ylabel=f"“{shown.tokens[shown.row]}”", xticks=[])
    return figure
