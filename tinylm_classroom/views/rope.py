"""Rotary positions as a view: how pairs turn, how fast, what becomes of a score, and which numbers
form a pair.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import LAYOUTS, Positions, Rotary, angles, frequencies, sinusoidal_table

from ..display.cards import number_table
from ..display.figures import drawing, spread
from ..display.numbers import fixed, rounded
from ..display.theme import SERIES, SIGNED
from .base import (
    View,
    capture_ids,
    check_index,
    few_digits,
    ids_of,
    named,
    pictured,
    readable_tokens,
)

_PARTS = ("bank", "score")
_SPAN = 128  # positions across the bank
REACH = 64  # distances in the score
STARTS = (0, 40, 400)  # positions of the key when the two move together
_WIDEST_HEAD = 128
_HUES = 21  # of the cosines in the picture, which few colours keep small


class QueryKey(NamedTuple):
    """A query and a key of one head before they are turned, each (D), and how they are turned."""

    q: Tensor
    k: Tensor
    base: float
    layout: str
    offset: int

    def scores(self, key: Tensor, offset: Tensor, layout: str | None = None) -> Tensor:
        """q . k with keys at `key` and queries `offset` further on, both (N), turned in this
        layout. Returns (N).
        """
        turn = Rotary(len(self.q), int((key + offset).max()) + 1, self.base, layout or self.layout)
        return _dot(
            turn(self.q.expand(len(key), -1), key + offset), turn(self.k.expand(len(key), -1), key)
        )

    def mixed_up(self, key: Tensor) -> Tensor:
        """As `scores`, with the angles in the order of interleaved pairs and the partners of
        halves.
        """
        size = int(key.max()) + self.offset + 1
        angle, turn = (
            Rotary(len(self.q), size, self.base, layout) for layout in ("interleaved", "halves")
        )
        both = (self.q, key + self.offset), (self.k, key)
        return _dot(
            *(turn(x.expand(len(key), -1), Positions(at, angle.rows(at))) for x, at in both)
        )

    def added(self, key: Tensor, offset: Tensor) -> Tensor:
        """As `scores`, but with the waves of the position added to q and k."""
        waves = sinusoidal_table(int((key + offset).max()) + 1, len(self.q))
        return _dot(self.q + waves[key + offset], self.k + waves[key])


def rope_view(
    model: TransformerLM,
    tokenizer: Any,
    text_or_ids: str | Sequence[int] | Tensor,
    layer: int = 0,
    head: int = 0,
    query: int = -1,
    key: int = 0,
    part: str = "bank",
) -> View:
    """Rotary positions on the query of one token and the key of another, as one head has them
    before they are turned.

    query, key: positions in the text, negative from its end. part: what is seen first: bank,
    all pairs, or score, over the distance.
    Raises: ValueError for a model without plain rotary positions or with heads wider than 128, and
    for a layer, head, position or part that does not exist, or a key that comes after the query.
    """
    config = model.config
    _check(model, part)
    check_index("layer", layer, config.n_layers)
    check_index("head", head, config.n_heads)
    ids = ids_of(tokenizer, text_or_ids, 1, config.max_seq_len)
    query, key = (_place(name, place, len(ids)) for name, place in (("query", query), ("key", key)))
    if not 0 <= query - key <= REACH:
        raise ValueError(
            f"the key at {key} must be 0 to {REACH} positions before the query at {query}: swap or "
            "move it"
        )
    caught = capture_ids(model, ids).inputs
    q, k = (caught[f"blocks.{layer}.attention.rotation.{name}"][0].float().cpu() for name in "qk")
    k = k[head * len(k) // len(q), key]
    pair = QueryKey(q[head, query], k, config.rope_base, config.rope_layout, query - key)
    words = readable_tokens(tokenizer, ids[[query, key]].tolist())
    data = {
        "part": part, "layer": layer, "head": head, "query_word": words[0], "key_word": words[1],
        "offset": pair.offset, "base": pair.base, "layout": pair.layout,
        "longest": config.max_seq_len,
        "q": few_digits(pair.q), "k": few_digits(pair.k), "reach": REACH,
    }  # fmt: skip
    return _pictured(data, pair)


def _pictured(data: dict[str, Any], pair: QueryKey) -> View:
    here, there = (
        fixed(pair.scores(torch.tensor([at]), torch.tensor(pair.offset)).item(), 2)
        for at in (0, 1000)
    )
    says = (
        f"Layer {data['layer']}, head {data['head']}: {named(data['query_word'])} and "
        f"{named(data['key_word'])}, {pair.offset} apart: the score is {here}, and both moved on "
        f"by 1,000 it is {there}."
    )
    n = len(pair.q) // 2
    longest = 2 * math.pi / frequencies(len(pair.q), pair.base)[-1].item()
    return pictured(
        "rope",
        data,
        _draw(pair),
        text=f"Rotary positions. {says}",
        alt=(
            f"A bank of {n} waves, fast above slow, and the score over the distance, equal at both "
            f"positions. {says}"
        ),
        caption=(
            f"{says} Above: each position rotates the {n} pairs of numbers by angles of their own, "
            f"here as cosines; the slowest pair takes {longest:,.0f} positions for one circle. "
            f"Below: the score over the distance, wide and pale with the key at {STARTS[0]}, thin "
            f"with the key at {STARTS[-1]}. Rotated, the two are one line; with waves added "
            "instead they are not."
        ),
        numbers=_tables(pair),
    )


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1)


def _check(model: TransformerLM, part: str) -> None:
    rotation = model.blocks[0].attention.rotation
    config = model.config
    if not isinstance(rotation, Rotary) or rotation.scaling is not None:
        raise ValueError(
            "the view shows plain rotary positions, and this model has position = "
            f"{config.position!r} with rope_scaling = {config.rope_scaling!r}: take a model of the "
            "preset 'modern'"
        )
    if config.d_head > _WIDEST_HEAD:
        raise ValueError(
            f"the view shows heads of at most {_WIDEST_HEAD} numbers, not d_head = {config.d_head}"
        )
    if part not in _PARTS:
        raise ValueError(f"part {part!r} is not one of {', '.join(_PARTS)}")


def _place(name: str, place: int, size: int) -> int:
    if not -size <= place < size:
        raise ValueError(
            f"{name} {place} is not a position in a text of {size} tokens: take 0 to {size - 1}"
        )
    return place % size


def _tables(pair: QueryKey) -> str:
    """The score by every way to turn, for several positions of the key, and the speed of some
    pairs.
    """
    starts = torch.tensor(STARTS)
    offset = torch.tensor(pair.offset)
    ways = {layout: pair.scores(starts, offset, layout) for layout in LAYOUTS}
    ways |= {"mixed up": pair.mixed_up(starts), "waves added": pair.added(starts, offset)}
    rows = [
        [name, *(fixed(score, 2) for score in scores.tolist())] for name, scores in ways.items()
    ]
    speeds = frequencies(len(pair.q), pair.base).tolist()
    some = [
        [str(i), rounded(speeds[i], 3), rounded(2 * math.pi / speeds[i], 3)]
        for i in spread(len(speeds), 6)
    ]
    table = number_table(["score", *(f"key at {start}" for start in STARTS)], rows)
    return table + number_table(["pair", "radians per position", "positions for one circle"], some)


def _draw(pair: QueryKey) -> Figure:
    waves = angles(_SPAN, frequencies(len(pair.q), pair.base)).cos().T.numpy()  # (D/2, positions)
    away = torch.arange(REACH + 1)
    with drawing(8.2, 6.4) as figure:
        bank, score = figure.subplots(2, 1, height_ratios=[1, 1.15])
        image = bank.imshow(
            waves,
            cmap=SIGNED.resampled(_HUES),
            vmin=-1,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        figure.colorbar(
            image, ax=bank, ticks=[-1, 0, 1], label="cosine", pad=0.01
        ).outline.set_visible(False)
        bank.set(
            title="Fast pairs repeat, slow ones hardly move",
            xlabel="position",
            ylabel="pair",
        )
        bank.set(xticks=range(0, _SPAN, 16), yticks=spread(len(waves), 6))
        bank.grid(visible=False)
        bank.spines[:].set_visible(False)
        for name, color, scores in (
            ("rotated", SERIES[0], pair.scores),
            ("added", SERIES[1], pair.added),
        ):
            before, after = (
                scores(torch.full_like(away, start), away).tolist()
                for start in (STARTS[0], STARTS[-1])
            )
            score.plot(
                away,
                before,
                color=color,
                linewidth=9,
                alpha=0.25,
                linestyle="-",
                solid_capstyle="round",
            )
            score.plot(away, after, color=color, label=name)
        score.set(
            title="Only distance counts",
            xlabel="how many positions back the key is",
            ylabel="q · k",
        )
        score.set(xticks=range(0, REACH + 1, 8), xlim=(0, REACH))
        spacing = {
            "handlelength": 1.6,
            "columnspacing": 1.2,
            "loc": "lower right",
            "bbox_to_anchor": (1, 0.99),
        }
        score.legend(frameon=False, fontsize=15, ncols=2, **spacing)
    return figure
