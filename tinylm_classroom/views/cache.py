"""Writing step by step: what is computed with a cache of keys and values, and what is computed
again without one.
"""

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from tinylm_lib.config import ModelConfig
from tinylm_lib.cost import forward_flops, kv_cache_bytes
from tinylm_lib.model import TransformerLM

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed
from ..display.theme import INK, LINE, SERIES
from .base import View, ids_of, pictured, readable_tokens

_MOST_TOKENS = 16
_CELL_INCHES = 0.3
_EMPTY, _KEPT, _AGAIN, _NEW = range(4)
_SIGNS = ("", "kv", "↻", "●")
_HUES = ("#fff", "#dbe8f7", SERIES[1], SERIES[0])


class ReadingStep(NamedTuple):
    """One call of the model: positions computed with a cache, positions there are, and the
    operations of both ways.

    Without a cache all `n_keys` positions are computed. The `total` ones add up all steps so far.
    """

    n_new: int
    n_keys: int
    cached_flops: int
    plain_flops: int
    cached_total: int
    plain_total: int


def reading_steps(
    config: ModelConfig, n_tokens: int, n_prompt: int, chunk: int
) -> list[ReadingStep]:
    """The calls that read a prompt, `chunk` tokens at a time, and then every token that was
    written, one at a time.
    """
    ends = [*range(chunk, n_prompt, chunk), *range(n_prompt, n_tokens + 1)]
    sizes = [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]
    cached = [forward_flops(config, 1, n_new, n_keys) for n_new, n_keys in sizes]
    plain = [forward_flops(config, 1, n_keys) for _, n_keys in sizes]
    rows = zip(sizes, cached, plain, accumulate(cached), accumulate(plain), strict=True)
    return [ReadingStep(*size, *numbers) for size, *numbers in rows]


def cache_view(
    model: TransformerLM | ModelConfig, tokenizer: Any, text: str, n_prompt: int | None = None
) -> View:
    """What each step of writing a text computes and what it takes from a cache, with and without
    one.

    model: only its config counts; the numbers are those of one sequence in fp32. n_prompt: how many
    tokens of the text are the prompt, default half of them; the others are written, one by one.
    Raises: ValueError for fewer than 2 or more than 16 tokens, a text too long for the model, an
    impossible n_prompt.
    """
    config = getattr(model, "config", model)
    ids = ids_of(tokenizer, text, 2, min(_MOST_TOKENS, config.max_seq_len)).tolist()
    T = len(ids)
    tokens = readable_tokens(tokenizer, ids)
    n_prompt = T // 2 if n_prompt is None else n_prompt
    if not 1 <= n_prompt <= T:
        raise ValueError(f"n_prompt {n_prompt} must be from 1 to {T}, the tokens of the text")
    each = forward_flops(config, 1, 1, 0)
    data = {
        "tokens": tokens, "prompt": n_prompt, "each": each,
        "cell": forward_flops(config, 1, 1, 1) - each,
        "bytes": kv_cache_bytes(config, 1, 1), "layers": config.n_layers,
        "groups": config.n_kv_heads,
        "width": config.d_head,
    }  # fmt: skip
    steps = reading_steps(config, T, n_prompt, 1)
    cached = steps[-1].cached_flops
    plain = steps[-1].plain_flops
    rows = [
        [
            str(i),
            str(s.n_new),
            str(s.n_keys),
            f"{s.cached_flops:,}",
            f"{s.plain_flops:,}",
            _times_so_far(s),
        ]
        for i, s in enumerate(steps, start=1)
    ]
    says = (
        f"Step {T}: one new position, {T} keys and values; without a cache {T} positions would be "
        f"computed, {T - 1} of them again: {plain / cached:.1f} times the work, so far "
        f"{_times_so_far(steps[-1])} times."
    )
    return pictured(
        "cache",
        data,
        _draw(tokens, steps),
        text=f"Writing {T} tokens step by step. {says}",
        alt=f"Two grids, steps by row and positions by column, without and with a cache. {says}",
        caption=(
            "Each row is a step of writing, each column a position. Blue is computed for the "
            f"first time, orange ↻ is computed again, pale kv is taken from the cache. {says}"
        ),
        numbers=number_table(
            ["step", "new", "keys", "operations with", "without", "times so far"], rows
        ),
    )


def _times_so_far(step: ReadingStep) -> str:
    """How many times the work of all steps up to this one is without a cache."""
    return fixed(step.plain_total / step.cached_total, 1)


def _draw(tokens: list[str], steps: list[ReadingStep]) -> Figure:
    T = len(tokens)
    size = (1.6 + 2 * _CELL_INCHES * max(T, 10), 1.9 + _CELL_INCHES * T)
    with drawing(*size, axes_grid=False) as figure:
        left, right = figure.subplots(1, 2)
        for ax, old, title in ((left, _AGAIN, "Without a cache"), (right, _KEPT, "With a cache")):
            state = np.full((T, T), _EMPTY)
            for row, step in enumerate(steps):
                state[row, : step.n_keys] = old
                state[row, step.n_keys - step.n_new : step.n_keys] = _NEW
            ax.imshow(state, cmap=ListedColormap(_HUES), vmin=_EMPTY, vmax=_NEW)
            for (i, j), value in np.ndenumerate(state):
                color = INK if value == _KEPT else "white"
                ax.text(j, i, _SIGNS[value], ha="center", va="center", size=10, color=color)
            ax.set(title=title, xlabel="position")
            ax.set_xticks(
                range(T), tokens, rotation=50, ha="right", rotation_mode="anchor", size=12
            )
            ax.set_yticks(range(T), range(1, T + 1), size=12)
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_ticks(np.arange(T + 1) - 0.5, minor=True)
            ax.grid(which="minor", color=LINE, linewidth=1)
            ax.tick_params(which="both", length=0)
        left.set_ylabel("step")
    return figure
