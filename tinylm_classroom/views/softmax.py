"""Softmax step by step: from scores to probabilities, with a temperature, a shift, and what fp32
makes of both.
"""

import math
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib.layers import softmax

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed, rounded
from ..display.theme import SERIES
from .base import View, pictured

_MOST_SCORES = 8
OVERFLOWS_ABOVE = math.log(torch.finfo(torch.float32).max)


def softmax_view(scores: Tensor | Sequence[float], names: Sequence[str]) -> View:
    """Scores and what softmax makes of them as a view: divide by the temperature, take exp, divide
    by the sum.

    scores (V): 2 to 8 finite numbers; the view moves each of them, and all together. names: what
    they are scores of.
    Raises: ValueError for another number of scores, for scores that are not finite and names that
    do not fit.
    """
    scores = torch.as_tensor(scores, dtype=torch.float32).detach().cpu()
    names = [name.strip() for name in names]
    if scores.ndim != 1 or not 2 <= len(scores) <= _MOST_SCORES:
        raise ValueError(
            f"scores must be one row of 2 to {_MOST_SCORES} numbers, got the shape "
            f"{tuple(scores.shape)}"
        )
    if not scores.isfinite().all():
        raise ValueError(
            f"scores must be finite, got {scores[~scores.isfinite()][0].item()}: leave it out"
        )
    if len(names) != len(scores) or not all(names) or len(set(names)) < len(names):
        raise ValueError(
            f"names must be {len(scores)} different words, one for each score, got {names}"
        )
    data = {"names": names, "scores": [round(score, 4) for score in scores.tolist()]}
    scores = torch.tensor(data["scores"])
    powers = (scores - scores.max()).exp()
    probs = softmax(scores, dim=0)
    best = int(probs.argmax())
    says = (
        f"{names[best]}, with the score {scores[best]:.2f}, gets {100 * probs[best]:.1f} % of the "
        "probability."
    )
    lines = zip(names, scores.tolist(), powers.tolist(), probs.tolist(), strict=True)
    rows = (
        [name, fixed(score, 2), rounded(power, 3), fixed(prob, 3)]
        for name, score, power, prob in lines
    )
    return pictured(
        "softmax",
        data,
        _draw(names, scores, powers, probs),
        text=f"Softmax of {len(names)} scores, step by step. {says}",
        alt=(
            "Bar charts of the scores, their exponentials and the probabilities, for "
            f"{', '.join(names)}. {says}"
        ),
        caption=(
            "From left to right: the scores; their exponentials, with the largest score "
            f"subtracted first; and those divided by their sum. {says} (In fp32, exp of more than "
            f"{OVERFLOWS_ABOVE:.2f} would overflow.)"
        ),
        numbers=number_table(["", "score", "exp(score − largest)", "probability"], rows),
    )


def _draw(names: list[str], scores: Tensor, powers: Tensor, probs: Tensor) -> Figure:
    with drawing(10, 0.9 + 0.42 * len(names), axes_titlesize=16) as figure:
        panels = figure.subplots(1, 3, sharey=True)
        stages = (
            ("score", scores, lambda x: fixed(x, 2)),
            ("exp(score − largest)", powers, lambda x: rounded(x, 2)),
            ("probability", probs, lambda x: fixed(100 * x, 1) + " %"),
        )
        for ax, (title, values, write) in zip(panels, stages, strict=True):
            bars = ax.barh(names, values.tolist(), color=SERIES[0], height=0.62)
            ax.bar_label(bars, [write(x) for x in values.tolist()], padding=5, size=14)
            low = min(0.0, values.min().item())
            high = max(0.0, values.max().item())
            ax.set(title=title, xticks=[], xlim=(low * 1.5, high + 0.5 * (high - low) or 1.0))
            ax.grid(visible=False)
            ax.spines[["bottom", "left"]].set_visible(False)
            ax.tick_params(length=0)
        panels[0].invert_yaxis()
    return figure
