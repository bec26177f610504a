"""The residual stream in depth: what the final norm and the head read in it after each block (the
logit lens).
"""

from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib.layers import softmax
from tinylm_lib.model import TransformerLM

from ..display.cards import number_table
from ..display.figures import drawing, ink_on
from ..display.theme import HEAT, QUIET
from .base import (
    View,
    capture_ids,
    few_digits,
    ids_of,
    leading_blanks,
    named,
    pictured,
    readable_tokens,
)
from .typed import typed_text

_MOST_TOKENS = 16
_MOST_LIVE_TOKENS = 32
_BEST = 5


class Depths(NamedTuple):
    """The model's answer and its stream at L + 1 depths: at the embedding, then after each of L
    blocks.

    probs (L + 1, T, V): the final norm and the head applied there, and softmax. The lengths of the
    vectors: stream (L + 1, T), and attention and ffn (L, T), what each of a block's two parts
    added.
    """

    probs: Tensor
    stream: Tensor
    attention: Tensor
    ffn: Tensor


def residual_view(model: TransformerLM, tokenizer: Any, text: str) -> View:
    """What the model would say next at each depth and position of a text, and how its residual
    stream grows.

    With a kernel, the view reads other texts, too.
    Raises: ValueError for a text that the tokenizer does not know, without a token, or with more
    than 16 (typed: 32).
    """

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return _data(
            model,
            tokenizer,
            typed_text(tokenizer, request["text"], leading_blanks(text)),
            _MOST_LIVE_TOKENS,
        )

    data = _data(model, tokenizer, text, _MOST_TOKENS)
    tokens = data["tokens"]
    d = data["depth"]
    t = data["position"]
    best = [[data["vocabulary"][cell[0]] for cell in row] for row in data["best"]]
    probs = torch.tensor(data["probs"])[..., 0]
    names = [
        "embedding",
        *(f"after block {i}" for i in range(len(best) - 1)),
    ]  # counted from 0, as in the model
    first, last = (f"{named(best[i][t])} with {probs[i, t]:.2f}" for i in (d, -1))
    place = names[d] if d else "at the embedding"
    says = (
        f"At {named(tokens[t])}, {place}, the model would say {first}; in the end it says {last}."
    )
    rows = [
        [names[i], *(f"{word} {p:.2f}" for word, p in zip(best[i], probs[i], strict=True))]
        for i in reversed(range(len(names)))
    ]
    return pictured(
        "residual",
        data,
        _draw(tokens, names, best, probs),
        text=(
            f"What the model would say at each depth, {len(best) - 1} blocks, {len(tokens)} "
            f"tokens. {says}"
        ),
        alt=(
            "Heat map of the most likely next word, by depth and position, shaded by its "
            f"probability. {says}"
        ),
        caption=(
            "Each column is a word that was read, each row a depth, to be read upwards from the "
            "embedding. A cell names the next word that the model would say there; the darker, the "
            "surer, from 0 to 1. Each row is read with the final norm and the head, which were "
            f"trained for the top row. {says}"
        ),
        numbers=number_table(["depth ↓ read →", *tokens], rows),
        answer=answer,
    )


def depths(model: TransformerLM, ids: Tensor) -> Depths:
    """Read ids (T,) once and look at every depth.

    Raises AssertionError unless the deepest answer is the model's own.
    """
    caught = capture_ids(model, ids)
    blocks = [f"blocks.{i}" for i in range(model.config.n_layers)]
    stream = torch.cat([caught.inputs[blocks[0]], *(caught.outputs[name] for name in blocks)])
    with torch.no_grad():
        logits = model.unembed(model.final_norm(stream))
    torch.testing.assert_close(logits[-1:], caught.logits)
    added = (
        torch.cat([caught.outputs[f"{name}.{part}"] for name in blocks])
        for part in ("attention", "ffn")
    )
    lengths = (x.float().norm(dim=-1).cpu() for x in (stream, *added))
    return Depths(softmax(logits.float(), dim=-1).cpu(), *lengths)


def _data(model: TransformerLM, tokenizer: Any, text: str, most: int) -> dict[str, Any]:
    """What the browser draws from; it begins at the position where the depth before the last is
    surest of another word.

    best: of each depth and position the most likely tokens, as ids; last: what each depth gives to
    the token that the model says in the end.
    """
    ids = ids_of(tokenizer, text, 1, most)
    read = depths(model, ids)
    probs, best = read.probs.topk(min(_BEST, read.probs.shape[-1]))
    last = read.probs.gather(-1, best[-1:, :, :1].expand(len(best), -1, -1))[..., 0]
    known, places = best.unique(return_inverse=True)
    turned = probs[-2, :, 0].where(best[-2, :, 0] != best[-1, :, 0], -1.0)
    return {
        "text": text.strip(),
        "tokens": readable_tokens(tokenizer, ids.tolist()),
        "vocabulary": readable_tokens(tokenizer, known.tolist()),
        "probs": few_digits(probs),
        "best": places.tolist(),
        "last": few_digits(last),
        "depth": len(last) - 2,
        "position": int(turned.argmax()) if turned.max() > 0 else len(ids) - 1,
        **{name: few_digits(getattr(read, name)) for name in ("stream", "attention", "ffn")},
        "normed": not model.blocks[0].final_norm,
    }


def _draw(tokens: list[str], names: list[str], best: list[list[str]], probs: Tensor) -> Figure:
    T = len(tokens)
    L = len(names)
    with drawing(2.2 + 0.78 * max(T, 8), 1.9 + 0.5 * L, axes_grid=False) as figure:
        ax = figure.subplots()
        ax.imshow(probs.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto", origin="lower")
        for d, row in enumerate(best):
            for t, word in enumerate(row):
                color = ink_on(HEAT(float(probs[d, t])))
                weight = "bold" if word == best[-1][t] else "normal"
                ax.text(t, d, word, ha="center", va="center", size=11, color=color, weight=weight)
        ax.set(title="What the model would say next at each depth", xlabel="the word just read")
        ax.set_xticks(range(T), tokens, size=12)
        ax.set_yticks(range(L), names, size=13)
        ax.tick_params(length=0, colors=QUIET)
        ax.spines[:].set_visible(False)
    return figure
