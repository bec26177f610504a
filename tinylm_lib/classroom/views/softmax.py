"""Softmax step by step: from scores to shares, with a temperature, a shift, and what fp32 makes of both."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib import style
from matplotlib.figure import Figure
from torch import Tensor

from ...layers import softmax
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed, rounded
from ..display.theme import SERIES, STYLE
from .base import View

MOST_SCORES = 8
OVERFLOWS_ABOVE = math.log(torch.finfo(torch.float32).max)


def softmax_view(scores: Tensor | Sequence[float], names: Sequence[str]) -> View:
    """Scores and the shares that softmax makes of them as a view: divide by the temperature, exp, divide by the sum.

    scores (V): 2 to 8 finite numbers; the view moves each of them, and all together. names: what they are scores of.
    Raises: ValueError for another number of scores, for scores that are not finite and names that do not fit.
    """
    scores = torch.as_tensor(scores, dtype=torch.float32).detach().cpu()
    names = [name.strip() for name in names]
    if scores.ndim != 1 or not 2 <= len(scores) <= MOST_SCORES:
        raise ValueError(f"scores must be one row of 2 to {MOST_SCORES} numbers, got the shape {tuple(scores.shape)}")
    if not scores.isfinite().all():
        raise ValueError(f"scores must be finite, got {scores[~scores.isfinite()][0].item()}: leave it out")
    if len(names) != len(scores) or not all(names) or len(set(names)) < len(names):
        raise ValueError(f"names must be {len(scores)} different words, one for each score, got {names}")
    data = {"names": names, "scores": [round(score, 4) for score in scores.tolist()]}
    stored = torch.tensor(data["scores"])
    shares = softmax(stored, dim=0)
    best = int(shares.argmax())
    says = f"{names[best]}, with the score {stored[best]:.2f}, gets {100 * shares[best]:.1f} % of the whole."
    text = f"Softmax of {len(names)} scores, step by step. {says}"
    return View("softmax", data, html=_figure_html(names, stored, says), text=text)


def _figure_html(names: list[str], scores: Tensor, says: str) -> str:
    powers, shares = (scores - scores.max()).exp(), softmax(scores, dim=0)
    lines = zip(names, scores.tolist(), powers.tolist(), shares.tolist(), strict=True)
    rows = [[name, fixed(score, 2), rounded(power, 3), fixed(share, 3)] for name, score, power, share in lines]
    table = number_table(["", "score", "exp(score − largest)", "share"], rows)
    caption = (
        "From left to right: the scores; their exponentials, with the largest score taken away first; and those "
        f"divided by their sum. {says} (In fp32, exp of more than {OVERFLOWS_ABOVE:.2f} would overflow.)"
    )
    alt = f"Bar charts of the scores, their exponentials and the shares, for {', '.join(names)}. {says}"
    return framed(_draw(names, [scores, powers, shares]), alt, caption, table, flat=True)


def _draw(names: list[str], stages: list[Tensor]) -> Figure:
    titles = ("score", "exp(score − largest)", "share")
    written: list[Any] = [lambda x: fixed(x, 2), lambda x: rounded(x, 2), lambda x: fixed(100 * x, 1) + " %"]
    with style.context(["default", STYLE, {"axes.titlesize": 16}]):
        figure = Figure(figsize=(10, 0.9 + 0.42 * len(names)), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for ax, title, values, write in zip(panels, titles, stages, written, strict=True):
            bars = ax.barh(names, values.tolist(), color=SERIES[0], height=0.62)
            ax.bar_label(bars, [write(x) for x in values.tolist()], padding=5, size=14)
            low, high = min(0.0, values.min().item()), max(0.0, values.max().item())
            ax.set(title=title, xticks=[], xlim=(low * 1.5, high + 0.5 * (high - low) or 1.0))
            ax.grid(visible=False)
            ax.spines[["bottom", "left"]].set_visible(False)
            ax.tick_params(length=0)
        panels[0].invert_yaxis()
    return figure
