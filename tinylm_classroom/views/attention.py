"""Attention in stages: who looks at whom in every layer and head, from scores to weights to what is
mixed.
"""

import math
from collections.abc import Sequence
from html import escape
from itertools import product
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from torch import Tensor

from tinylm_lib.attention import causal_mask
from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld.lookback import share_told, told_by
from tinylm_lib.text.cutting import words

from ..display.cards import number_table
from ..display.figures import MASKED, RAMP_STEPS, drawing, ink_on, unframed
from ..display.numbers import fixed
from ..display.theme import HEAT, INK, LINE
from ..shapes.capture import Captured, Stages
from .base import (
    Answer,
    View,
    capture_ids,
    check_index,
    ids_of,
    leading_blanks,
    named,
    packed,
    page_model,
    pictured,
    readable,
)
from .typed import typed_text

_MOST_TOKENS = 17  # a line end and 16 words
_MOST_LIVE_TOKENS = 32
# characters; a model whose layers need more stores one, and its kernel answers for the others
_MOST_STORED = 36_000
# q and k make the numbers in the cells; of v the height of small bars is seen
_DIGITS = {"q": 2, "k": 2, "v": 1}
_CELL_INCHES = 0.43
_ROW_INCHES = 6.3  # of all cells of a row at most
_LEAST_WRITTEN = 0.2  # smaller weights have no number in the picture


def attention_view(
    model: TransformerLM,
    tokenizer: Any,
    text_or_ids: str | Sequence[int] | Tensor,
    layer: int = 0,
    head: int = 0,
) -> View:
    """The attention of a model as a view: scores, scaled, masked, weights and what is mixed, or all
    heads at once.

    layer, head: the first to be shown, counted from 0. In the beginning of a StoryWorld story the
    words that determine the next one are marked. With a kernel, another text of up to 32 tokens can
    be typed; see `typed_text`.
    Raises: ValueError for a layer or head that the model does not have, and for fewer than 2 or
    more than 17 tokens.
    """
    n_layers = model.config.n_layers
    check_index("layer", layer, n_layers)
    check_index("head", head, model.config.n_heads)
    ids = ids_of(tokenizer, text_or_ids, 2, _MOST_TOKENS)
    lead = leading_blanks(text_or_ids) if isinstance(text_or_ids, str) else ""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        asked = ids
        if "text" in request:
            typed = typed_text(tokenizer, request["text"], lead)
            asked = ids_of(tokenizer, typed, 2, _MOST_LIVE_TOKENS)
        caught = capture_ids(model, asked)
        layers = request.get("layers", range(n_layers))
        return _stored(caught, tokenizer, {i: caught.attention(i) for i in layers})

    caught = capture_ids(model, ids)
    stages = {i: caught.attention(i) for i in range(n_layers)}
    data = _stored(caught, tokenizer, stages)
    if _length(data["layers"]) > _MOST_STORED:
        data["layers"] = {str(layer): data["layers"][str(layer)]}
    data |= {"layer": layer, "head": head, "n_layers": n_layers}
    if isinstance(text_or_ids, str):
        data |= {"text": text_or_ids, **page_model(model, tokenizer)}
    return _pictured(data, stages[layer], answer)


def _pictured(data: dict[str, Any], stage: Stages, answer: Answer) -> View:
    """The view, with the weights of the first shown head as its picture. stage: of its layer."""
    tokens = data["tokens"]
    told = data["told"]
    layer = data["layer"]
    head = data["head"]
    scores, scaled, weights = (
        each[0, head].float().cpu() for each in (stage.scores, stage.scaled, stage.weights)
    )
    best = int(weights[-1].argmax())
    says = (
        f"{named(tokens[-1])} gives {100 * weights[-1, best]:.0f} % of its attention to "
        f"{named(tokens[best])}."
    )
    return pictured(
        "attention",
        data,
        _draw(tokens, weights, told),
        text=f"Attention in stages, layer {layer}, head {head}, {len(tokens)} tokens. {says}",
        alt=(
            "Heat map of the attention weights, query by row and key by column, from 0 to 1. "
            f"{says}"
        ),
        caption=(
            f"Layer {layer}, head {head}. Each row is a word that asks (query), each column a word "
            "it may look back at (key); hatched is masked, because it comes later; the colour goes "
            f"from 0 to 1, and weights of {_LEAST_WRITTEN} and more have their number. "
            f"{says}{_says_told(weights, told)}"
        ),
        numbers=_tables(tokens, weights, zip(scores[-1], scaled[-1], weights[-1], strict=True)),
        answer=answer,
        sharpness=1.0,
    )


def _stored(caught: Captured, tokenizer: Any, stages: dict[int, Stages]) -> dict[str, Any]:
    """What the browser draws: the tokens, what determines the next ones, and q, k and v of some
    layers, head by head.

    Key-value heads that serve several query heads are stored once.
    """
    config = caught.model.config
    pieces = [tokenizer.decode([token]) for token in caught.ids[0].tolist()]
    text = "".join(pieces)
    shared = {
        "q": 1,
        "k": config.n_heads // config.n_kv_heads,
        "v": config.n_heads // config.n_kv_heads,
    }
    return {
        "tokens": [readable(piece) for piece in pieces],
        "told": [
            list(places) for places in (told_by(text) if pieces == words(text) else None) or ()
        ],
        "layers": {
            str(layer): {
                name: packed(getattr(stage, name)[0, :: shared[name]].cpu(), _DIGITS[name])
                for name in _DIGITS
            }
            for layer, stage in stages.items()
        },
    }


def _length(layers: dict[str, Any]) -> int:
    length = 0
    for parts in layers.values():
        for part in parts.values():
            length += sum(map(len, part["digits"]))
    return length


def _says_told(weights: Tensor, told: list[list[int]]) -> str:
    if not any(told):
        return ""
    share = share_told(weights, told)
    return (
        " A ring marks the words that determine the next one in StoryWorld. This head gives them "
        f"{100 * share.heads:.0f} % of its attention; equal attention would give "
        f"{100 * share.equal:.0f} %."
    )


def _tables(tokens: list[str], weights: Tensor, steps: Any) -> str:
    rows = [
        [name, *(fixed(x, 2) for x in row[: i + 1])]
        for i, (name, row) in enumerate(zip(tokens, weights.tolist(), strict=True))
    ]
    course = [
        [name, fixed(score, 1), fixed(scaled, 1), fixed(weight, 2)]
        for name, (score, scaled, weight) in zip(tokens, steps, strict=True)
    ]
    return (
        number_table(["query ↓ key →", *tokens], rows)
        + f"<p>Step by step for {escape(named(tokens[-1]))}, the last row:</p>"
        + number_table(["key", "q · k", "scaled", "weight"], course)
    )


def _draw(tokens: list[str], weights: Tensor, told: list[list[int]]) -> Figure:
    T = len(tokens)
    each = min(_CELL_INCHES, _ROW_INCHES / T)
    with drawing(2.0 + each * max(T, 8), 1.9 + 0.72 * each * T, axes_grid=False) as figure:
        ax = figure.subplots()
        ax.set_title("Who looks at whom", pad=30)
        steps = (RAMP_STEPS * weights).round() / RAMP_STEPS
        shades = steps.tolist()
        ax.imshow(
            steps.masked_fill(~causal_mask(T), math.nan).numpy(),
            cmap=HEAT,
            vmin=0,
            vmax=1,
            aspect="auto",
        )
        stairs = [(i + 0.5, i + down) for i, down in product(range(T - 1), (-0.5, 0.5))]
        corners = [*stairs, (T - 0.5, T - 1.5), (T - 0.5, -0.5)]
        ax.add_patch(Polygon(corners, fc=MASKED, ec=LINE, hatch="/", lw=0))
        for i, row in enumerate(weights.tolist()):
            for j, weight in enumerate(row[: i + 1]):
                color = ink_on(HEAT(shades[i][j]))
                if weight >= _LEAST_WRITTEN:
                    ax.text(
                        j, i, fixed(weight, 2), ha="center", va="center", size=10.5, color=color
                    )
                if i < len(told) and j in told[i]:
                    corner = (j - 0.4, i - 0.35)
                    shape = "round,pad=0,rounding_size=0.3"
                    ax.add_patch(
                        FancyBboxPatch(
                            corner, 0.8, 0.7, boxstyle=shape, fill=False, ec=color, lw=1.6
                        )
                    )
        ax.add_patch(Rectangle((-0.5, T - 1.5), T, 1, fill=False, edgecolor=INK, linewidth=2))
        ax.set_xticks(range(T), tokens, rotation=50, ha="left", rotation_mode="anchor", size=12)
        ax.set_yticks(range(T), tokens, size=12)
        unframed(ax)
        ax.xaxis.tick_top()
        ax.set(ylabel="query: row", xlabel="key: column")
        ax.xaxis.set_label_position("bottom")
    return figure
