"""One word through the machine: the forward pass of a text as a film, from its tokens to the word
that is drawn.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from tinylm_lib.cost import count_parameters
from tinylm_lib.layers import evaluation_mode, softmax
from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import frequencies, stretch
from tinylm_lib.storyworld import words

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.theme import PART_COLORS, SERIES
from ..live.film import film
from ..live.record import MOST_PARAMETERS
from ..live.stories import exact_probs
from ..shapes.model_steps import model_steps
from .base import (
    View,
    few_digits,
    ids_of,
    leading_blanks,
    named,
    packed,
    page_model,
    pictured,
    readable_tokens,
)
from .typed import typed_text

_MOST_TOKENS = 16
_MOST_BARS = 400  # logits that are drawn
_RACERS = 5
_SEEN = 0.04  # a probability from which a second word is in the race
_DRAWS = 2
_SEED = 0
_LISTED = 40  # words of a draw that have a part of their own on the line
_LEAST = 0.002
# what is drawn as small pictures, each part with one unit of its own, and what is written
_PICTURES = ("stream", "normed", "queries", "keys", "values", "mixed", "gated")
_NUMBERS = ("lengths", "normed_lengths", "scores", "weights")


def one_word(model: TransformerLM, tokenizer: Any, text: str) -> View:
    """A film of what a model computes for a text, up to the words that are drawn after it.

    It can be played, stepped through and stopped anywhere; a block is opened and a head chosen.
    Raises: ValueError for a text of fewer than 2 or more than 16 tokens, and for a model of more
    than 5,000,000 parameters.
    """
    n = count_parameters(model.config).total
    if n > MOST_PARAMETERS:
        raise ValueError(
            f"the film shows models of up to {MOST_PARAMETERS:,} parameters, not {n:,}: "
            "choose a smaller one"
        )
    lead = leading_blanks(text)
    generator = torch.Generator().manual_seed(_SEED)
    numbers = few_digits(torch.rand(_DRAWS, generator=generator))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return _data(model, tokenizer, typed_text(tokenizer, request["typed"], lead), numbers)

    data = _data(model, tokenizer, text, numbers)
    says = _says(data)
    rows = [
        [place, f"{data['film']['lengths'][at][-1]:.1f}", word, _percent(p)]
        for at, (place, (word, p)) in enumerate(zip(_places(data), data["best"], strict=True))
    ]
    return pictured(
        "one_word",
        {**data, **_facts(model), "numbers": numbers, **page_model(model, tokenizer)},
        _draw(data),
        text=f"One word through the machine. {says}",
        alt=f"Columns of tokens rise through {data['sizes']['L']} blocks. {says}",
        caption=f"Each column is the stream of a token. {says}",
        numbers=number_table(
            ["after", "length of the last column", "next word", "probability"], rows
        ),
        answer=answer,
    )


def _facts(model: TransformerLM) -> dict[str, Any]:
    """What is the same for every text: the steps that the model has, and how positions rotate."""
    config = model.config
    has = [step.name for step in model_steps(config, 1)]
    facts = {"has": has, "normed_first": model.blocks[0].final_norm, "speeds": []}
    facts["most"] = config.max_seq_len - _DRAWS  # tokens that leave room for the drawn ones
    if "rotation.q" in has:
        speeds = frequencies(config.d_head, config.rope_base)
        if config.rope_scaling is not None:
            speeds = stretch(speeds, config.rope_scaling)
        facts |= {"speeds": few_digits(speeds), "rope_layout": config.rope_layout}
    return facts


def _data(
    model: TransformerLM, tokenizer: Any, text: str, numbers: Sequence[float]
) -> dict[str, Any]:
    """What the browser draws of one text.

    film: what `film` keeps, small pictures packed; best: the most probable word at each depth;
    race: the words that were ahead or close, and their probabilities at each depth; bars: the
    logits of some words, and what is subtracted from them before exp gives a probability; draws: as
    in `_drawn`; open: the block and the head to begin with.
    """
    config = model.config
    ids = ids_of(tokenizer, text, 2, min(_MOST_TOKENS, config.max_seq_len - _DRAWS))
    found = film(model, ids)
    lens = found["lens"]
    best = lens.max(dim=-1)
    names = readable_tokens(tokenizer, best.indices.tolist())
    racers = _racers(lens)
    kept: dict[str, Any] = {
        part: packed(found[part].flatten(0, -2)[:, None], 1) for part in _PICTURES
    }
    kept |= {part: few_digits(found[part]) for part in _NUMBERS}
    sizes = {
        "V": config.vocab_size, "C": config.d_model, "H": config.n_heads, "G": config.n_kv_heads,
        "D": config.d_head, "F": config.d_ff, "L": config.n_layers,
        "parameters": count_parameters(config).total,
    }  # fmt: skip
    return {
        "text": text,
        "tokens": readable_tokens(tokenizer, ids.tolist()),
        "ids": ids.tolist(),
        "sizes": sizes,
        "film": kept,
        "best": [[name, few_digits(p)] for name, p in zip(names, best.values, strict=True)],
        "race": {
            "words": readable_tokens(tokenizer, racers),
            "probs": few_digits(lens[:, racers]),
        },
        "bars": _bars(found["logits"]),
        "draws": _drawn(model, tokenizer, text, ids.tolist(), numbers),
        "open": _opened(found),
    }


def _racers(lens: Tensor) -> list[int]:
    """The ids whose probabilities at each depth, lens (places, V), are compared, in the order in
    which they come to the front.
    """
    two = lens.topk(2)
    ahead = two.indices[:, 0].tolist()
    close = two.indices[:, 1][two.values[:, 1] > _SEEN].tolist()
    all_of_them = list(dict.fromkeys([*ahead, *close]))
    largest = sorted(all_of_them, key=lambda token: -lens[:, token].max().item())
    kept = {ahead[-1], *[token for token in largest if token != ahead[-1]][: _RACERS - 1]}
    return [token for token in all_of_them if token in kept]


def _bars(logits: Tensor) -> dict[str, Any]:
    """The logits (V) of every word, or of each second, third and so on; the largest among them."""
    every = math.ceil(len(logits) / _MOST_BARS)
    top = int(logits.argmax())
    shown = sorted({*range(0, len(logits), every), top})
    return {
        "logits": packed(logits[shown][None, None], 2),
        "every": every,
        "top": shown.index(top),
        "largest": few_digits(logits[top]),
        "all": few_digits(torch.logsumexp(logits.double(), dim=-1)),
    }


def _drawn(
    model: TransformerLM, tokenizer: Any, text: str, ids: list[int], numbers: Sequence[float]
) -> list[dict[str, Any]]:
    """One word after the other, each where its number falls on the probabilities laid end to end.

    top: the most probable words [word, p, exact p or None]; at: the place of the drawn word there;
    before: the probabilities in front of it, added up; fits: words whose exact p is above 0.
    """
    draws = []
    heard = words(text)
    is_story = heard == [tokenizer.decode([token]) for token in ids]
    for u in numbers:
        device = next(model.parameters()).device
        with evaluation_mode(model), torch.no_grad():
            logits = model(torch.tensor([ids], device=device))[0, -1].double().cpu()
        probs, order = softmax(logits, dim=-1).sort(descending=True, stable=True)
        at = min(int((probs.cumsum(0) <= u).sum()), len(order) - 1)
        exact = exact_probs(heard[int(heard[:1] == ["\n"]) :]) if is_story else None
        shown = [rank for rank in range(min(_LISTED, len(order))) if probs[rank] >= _LEAST]
        shown += [at] if at not in shown else []
        top = []
        for rank in shown:
            token = tokenizer.decode([int(order[rank])])
            true = None if exact is None else exact.get(token, 0.0)
            name = readable_tokens(tokenizer, [int(order[rank])])[0]
            top.append([name, few_digits(probs[rank]), true and few_digits(torch.tensor(true))])
        draw = {"u": u, "at": shown.index(at), "top": top, "id": int(order[at])}
        draw |= {"before": few_digits(probs[:at].sum()), "fits": exact and len(exact)}
        draws.append(draw)
        ids = [*ids, int(order[at])]
        heard.append(tokenizer.decode([ids[-1]]))
    return draws


def _opened(found: dict[str, Tensor]) -> list[int]:
    """The block whose attention does most for the word that wins, and its head with the largest
    weight on another token than the first and the last.
    """
    lens = found["lens"][:, found["lens"][-1].argmax()]
    gains = lens[1::2] - lens[:-1:2]
    block = int(gains.argmax())
    weights = found["weights"][block]
    looks = weights[:, 1:-1] if weights.shape[1] > 2 else weights
    return [block, int(looks.max(dim=-1).values.argmax())]


def _places(data: dict[str, Any]) -> list[str]:
    """Where the stream is read: a name for each depth."""
    blocks = range(data["sizes"]["L"])
    names = [[f"attention of block {k}", f"feed-forward of block {k}"] for k in blocks]
    return sum(names, ["embedding"])


def _percent(p: float) -> str:
    if 0 < p < 0.0005:
        return "<0.1 %"
    return f"{100 * p:.0f} %" if 0.0995 < p < 0.9905 or p > 0.9995 else f"{100 * p:.1f} %"


def _says(data: dict[str, Any]) -> str:
    """How the most probable next word changes from the embedding to the head."""
    text = data["text"].strip()
    order: list[str] = []
    for word, _ in data["best"]:
        if order[-1:] != [word]:
            order.append(word)
    word, p = data["best"][-1]
    went = f" Read after each part it was first {', then '.join(map(named, order))}."
    return (
        f"After “{text}” the most probable next word is {named(word)}, {_percent(p)}."
        f"{went if order[1:] else ''}"
    )


def _draw(data: dict[str, Any]) -> Figure:
    """The whole machine: the columns, what the last one looks at, and the answer at each depth."""
    T = len(data["tokens"])
    L = data["sizes"]["L"]
    answers = dict.fromkeys(named(word) for word, _ in data["best"])
    title = f"The answer is {next(iter(answers))} from the embedding to the top"
    if len(answers) > 1:
        title = f"The answer changes from {' to '.join(answers)}"
    with drawing(9.6, 1.5 + 1.15 * L, axes_grid=False) as figure:
        ax = figure.subplots()
        ax.set(title=title, xlim=(-2.3, T + 2.1), ylim=(-0.75, L + 0.15))
        ax.axis("off")
        stream = PART_COLORS["stream"].light
        for column, token in enumerate(data["tokens"]):
            is_last = column == T - 1
            ax.plot([column] * 2, [-0.2, L], "-", color=stream, lw=4 if is_last else 1.6,
                    alpha=1 if is_last else 0.35, zorder=2)  # fmt: skip
            ax.text(column, -0.48, token, ha="center", va="center", size=min(13.5, 150 / T),
                    weight="bold" if is_last else "normal", parse_math=False)  # fmt: skip
            for level in range(L + 1):
                ax.plot(column, level, "s", color=stream, ms=8, mec="white", zorder=4)
        for block in range(L):
            _draw_block(ax, data, block)
        for level in range(L + 1):
            word, p = data["best"][2 * level]
            ax.annotate(f"{word} {_percent(p)}", (T - 0.8, level), (T - 0.35, level), size=14,
                        weight="bold", color=SERIES[1], va="center", parse_math=False,
                        arrowprops={"arrowstyle": "<-", "color": SERIES[1]})  # fmt: skip
    return figure


def _draw_block(ax: Axes, data: dict[str, Any], block: int) -> None:
    """A block's two bands, and a thread for each weight of the last token, in all heads."""
    T = len(data["tokens"])
    for name, low, high in (("attention", 0.1, 0.6), ("feed-forward", 0.66, 0.9)):
        color = PART_COLORS[name].light
        band = (-0.6, block + low), T - 0.3, high - low
        ax.add_patch(Rectangle(*band, color=color, alpha=0.08, lw=0, zorder=0))
        ax.text(
            -0.75, block + (low + high) / 2, name, color=color, ha="right", va="center", size=12
        )
    x = torch.linspace(0, 1, 24)
    rise = x**2 * (3 - 2 * x)
    for head, weights in enumerate(data["film"]["weights"][block]):
        is_open = [block, head] == data["open"]
        for column, weight in enumerate(weights[:-1]):
            if weight > _SEEN:
                ax.plot(column + (T - 1 - column) * rise, block + 0.1 + 0.5 * x, "-",
                        color=PART_COLORS["attention"].light, lw=0.8 + 6 * weight,
                        alpha=0.95 if is_open else 0.12 + 0.3 * weight, zorder=3)  # fmt: skip
