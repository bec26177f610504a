"""Writing step by step: what is computed with a cache of keys and values, and what is computed again without one."""

from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ...config import ModelConfig
from ...cost import forward_flops, kv_cache_bytes
from ...model import TransformerLM
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed
from ..display.theme import INK, LINE, SERIES, STYLE
from .base import View, readable

MOST_TOKENS = 16
CELL_INCHES = 0.3
NOT_YET, KEPT, AGAIN, NEW = range(4)


class ReadingStep(NamedTuple):
    """One call of the model: positions computed with a cache, positions there are, and the operations of both ways.

    Without a cache all `n_keys` positions are computed. The `total` ones add up all steps so far.
    """

    n_new: int
    n_keys: int
    cached_flops: int
    plain_flops: int
    cached_total: int
    plain_total: int

    @property
    def times(self) -> float:
        """How many times the work of this step is without a cache."""
        return self.plain_flops / self.cached_flops

    @property
    def times_so_far(self) -> float:
        """The same for all steps up to this one."""
        return self.plain_total / self.cached_total


def reading_steps(config: ModelConfig, n_tokens: int, n_prompt: int, chunk: int) -> list[ReadingStep]:
    """The calls that read a prompt, `chunk` tokens at a time, and then every token that was written, one at a time."""
    ends = [*range(chunk, n_prompt, chunk), *range(n_prompt, n_tokens + 1)]
    sizes = [(end - start, end) for start, end in zip([0, *ends], ends, strict=False)]
    cached = [forward_flops(config, 1, n_new, n_keys) for n_new, n_keys in sizes]
    plain = [forward_flops(config, 1, n_keys) for _, n_keys in sizes]
    rows = zip(sizes, cached, plain, accumulate(cached), accumulate(plain), strict=True)
    return [ReadingStep(*size, *numbers) for size, *numbers in rows]


def cache_view(model: TransformerLM | ModelConfig, tokenizer: Any, text: str, n_prompt: int | None = None) -> View:
    """What each step of writing a text computes and what it takes from a cache, with and without one.

    model: only its config counts; the numbers are those of one sequence in fp32. n_prompt: how many tokens of the text
    are the prompt, default half of them; the others are written, one by one.
    Raises: ValueError for fewer than 2 or more than 16 tokens, a text too long for the model, an impossible n_prompt.
    """
    config = getattr(model, "config", model)
    ids = tokenizer.encode(text)
    T, most = len(ids), min(MOST_TOKENS, config.max_seq_len)
    n_prompt = T // 2 if n_prompt is None else n_prompt
    if not 2 <= T <= most:
        raise ValueError(f"the view shows 2 to {most} tokens, not {T}: take a shorter or longer piece of text")
    if not 1 <= n_prompt <= T:
        raise ValueError(f"n_prompt {n_prompt} must be from 1 to {T}, the tokens of the text")
    tokens = [readable(tokenizer.decode([token])) for token in ids]
    steps = reading_steps(config, T, n_prompt, 1)
    each = forward_flops(config, 1, 1, 0)
    data = {"tokens": tokens, "prompt": n_prompt, "each": each, "cell": forward_flops(config, 1, 1, 1) - each}
    data |= {"bytes": kv_cache_bytes(config, 1, 1), "layers": config.n_layers}
    data |= {"groups": config.n_kv_heads, "width": config.d_head}
    last = steps[-1]
    says = (
        f"Step {T}: one new position, {T} keys and values; without a cache {T} positions would be computed, {T - 1} of "
        f"them again: {last.times:.1f} times the work, so far {last.times_so_far:.1f} times."
    )
    return View("cache", data, html=_figure_html(tokens, steps, says), text=f"Writing {T} tokens step by step. {says}")


def _figure_html(tokens: list[str], steps: list[ReadingStep], says: str) -> str:
    alt = f"Two grids, steps by row and positions by column, without and with a cache. {says}"
    caption = (
        "Each row is a step of writing, each column a position. Blue is computed for the first time, orange ↻ is "
        f"computed again, pale kv is taken from the cache. {says}"
    )
    head = ["step", "new", "keys", "operations with", "without", "times so far"]
    rows = [
        [str(i), str(s.n_new), str(s.n_keys), f"{s.cached_flops:,}", f"{s.plain_flops:,}", fixed(s.times_so_far, 1)]
        for i, s in enumerate(steps, start=1)
    ]
    table = f'<div style="overflow-x:auto">{number_table(head, rows)}</div>'
    return framed(_draw(tokens, steps), alt, caption, table, flat=True)


def _draw(tokens: list[str], steps: list[ReadingStep]) -> Figure:
    T, signs = len(tokens), {NOT_YET: "", KEPT: "kv", AGAIN: "↻", NEW: "●"}
    size = (1.6 + 2 * CELL_INCHES * max(T, 10), 1.9 + CELL_INCHES * T)
    hues = ListedColormap(["#fff", "#dbe8f7", SERIES[1], SERIES[0]])
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=size, layout="constrained")
        for ax, old, title in zip(
            figure.subplots(1, 2), (AGAIN, KEPT), ("Without a cache", "With a cache"), strict=True
        ):
            state = np.full((T, T), NOT_YET)
            for row, step in enumerate(steps):
                state[row, : step.n_keys] = old
                state[row, step.n_keys - step.n_new : step.n_keys] = NEW
            ax.imshow(state, cmap=hues, vmin=NOT_YET, vmax=NEW)
            for (i, j), value in np.ndenumerate(state):
                color = INK if value == KEPT else "white"
                ax.text(j, i, signs[int(value)], ha="center", va="center", size=10, color=color)
            ax.set_title(title)
            ax.set_xticks(range(T), tokens, rotation=50, ha="right", rotation_mode="anchor", size=12)
            ax.set_yticks(range(T), range(1, T + 1), size=12)
            ax.set_xticks(np.arange(T + 1) - 0.5, minor=True)
            ax.set_yticks(np.arange(T + 1) - 0.5, minor=True)
            ax.grid(which="minor", color=LINE, linewidth=1)
            ax.tick_params(which="both", length=0)
            ax.set(xlabel="position")
        figure.axes[0].set_ylabel("step")
    return figure
