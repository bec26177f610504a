"""The residual stream in depth: what the final norm and the head read in it after each block (the logit lens)."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib import style
from matplotlib.figure import Figure
from torch import Tensor

from ...layers import softmax
from ...model import TransformerLM
from ..display.cards import number_table
from ..display.figures import framed
from ..display.theme import HEAT, QUIET, STYLE, TURN
from ..shapes.capture import capture
from .base import View, few_digits, named, readable

MOST_STORED, MOST_LIVE, BEST = 16, 32, 5
CELL_INCHES = (0.78, 0.5)


class Depths(NamedTuple):
    """The model's answer and its stream at L + 1 depths: at the embedding, then after each of L blocks.

    probs (L + 1, T, V): the final norm and the head applied there, and softmax. The lengths of the vectors: stream
    (L + 1, T), and attention and ffn (L, T), what each of a block's two parts added.
    """

    probs: Tensor
    stream: Tensor
    attention: Tensor
    ffn: Tensor


class Shown(NamedTuple):
    """What the picture shows: the best word and its probability at each depth and position, and the selected cell."""

    tokens: list[str]
    words: list[list[str]]
    probs: Tensor
    depth: int
    position: int

    @property
    def says(self) -> str:
        """The selected cell in plain words."""
        d, t, end = self.depth, self.position, len(self.words) - 1
        place = f"after block {d}" if d else "at the embedding"
        first, last = (f"{named(self.words[i][t])} with {self.probs[i, t]:.2f}" for i in (d, end))
        return f"At {named(self.tokens[t])}, {place}, the model would say {first}; in the end it says {last}."


def residual_view(model: TransformerLM, tokenizer: Any, text: str) -> View:
    """What the model would say next at each depth and position of a text, and how its residual stream grows.

    Beside a kernel the view reads other texts, too.
    Raises: ValueError for a text that the tokenizer does not know, without a token, or with more than 16 (typed: 32).
    """
    lead = text[: len(text) - len(text.lstrip())]

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return _data(model, tokenizer, lead + request["text"].strip(), MOST_LIVE)[0]

    data, shown = _data(model, tokenizer, text, MOST_STORED)
    told = f"What the model would say at each depth, {len(shown.words) - 1} blocks, {len(shown.tokens)} tokens."
    return View("residual", data, html=_figure_html(shown), text=f"{told} {shown.says}", answer=answer)


def depths(model: TransformerLM, ids: Tensor) -> Depths:
    """Read ids (T,) once and look at every depth.

    Raises AssertionError unless the deepest answer is the model's own.
    """
    device = next(model.parameters()).device
    caught = capture(model, ids[None].to(device))
    blocks = [f"blocks.{i}" for i in range(model.config.n_layers)]
    stream = torch.cat([caught.inputs[blocks[0]], *(caught.outputs[name] for name in blocks)])
    head = model.embed if model.lm_head is None else model.lm_head
    with torch.no_grad():
        logits = F.linear(model.final_norm(stream), head.weight)
    torch.testing.assert_close(logits[-1:], caught.logits)
    added = (torch.cat([caught.outputs[f"{name}.{part}"] for name in blocks]) for part in ("attention", "ffn"))
    lengths = (x.float().norm(dim=-1).cpu() for x in (stream, *added))
    return Depths(softmax(logits.float(), dim=-1).cpu(), *lengths)


def _data(model: TransformerLM, tokenizer: Any, text: str, most: int) -> tuple[dict[str, Any], Shown]:
    ids = torch.tensor(tokenizer.encode(text), dtype=torch.long)
    if not 1 <= len(ids) <= most:
        raise ValueError(f"the view shows 1 to {most} tokens, not {len(ids)}: take another piece of the text")
    read = depths(model, ids)
    probs, best = read.probs.topk(min(BEST, read.probs.shape[-1]))
    last = read.probs.gather(-1, best[-1:, :, :1].expand(len(best), -1, -1))[..., 0]
    known = sorted(set(best.flatten().tolist()))
    vocabulary = [readable(tokenizer.decode([token])) for token in known]
    place = {token: i for i, token in enumerate(known)}
    tokens = [readable(tokenizer.decode([token])) for token in ids.tolist()]
    words = [[vocabulary[place[token]] for token in row] for row in best[..., 0].tolist()]
    position = _turns(best[..., 0], probs[..., 0])
    shown = Shown(tokens, words, probs[..., 0], len(last) - 2, position)
    data = {"text": text.strip(), "tokens": tokens, "vocabulary": vocabulary, "probs": few_digits(probs)}
    data["best"] = [[[place[token] for token in cell] for cell in row] for row in best.tolist()]
    data |= {"last": few_digits(last), "depth": shown.depth, "position": position}
    data |= {name: few_digits(getattr(read, name)) for name in ("stream", "attention", "ffn")}
    return data | {"normed": not model.blocks[0].final_norm}, shown


def _turns(best: Tensor, probs: Tensor) -> int:
    """Return where the surest readout before the last block differs from the answer; the last position if none does."""
    different = probs[-2].where(best[-2] != best[-1], -1.0)
    return int(different.argmax()) if different.max() > 0 else best.shape[1] - 1


def _figure_html(shown: Shown) -> str:
    caption = (
        "Each column is a word that was read, each row a depth, to be read upwards from the embedding. A cell names "
        "the next word that the model would say there; the darker, the surer, from 0 to 1. Each row is read with the "
        f"final norm and the head, which were trained for the top row. {shown.says}"
    )
    alt = f"Heat map of the most likely next word, by depth and position, shaded by its probability. {shown.says}"
    rows = (
        [name, *(f"{word} {p:.2f}" for word, p in zip(words, probs, strict=True))]
        for name, words, probs in reversed(list(zip(_depths(shown), shown.words, shown.probs.tolist(), strict=True)))
    )
    table = number_table(["depth ↓ read →", *shown.tokens], rows)
    return framed(_draw(shown), alt, caption, f'<div style="overflow-x:auto">{table}</div>', flat=True)


def _depths(shown: Shown) -> list[str]:
    return ["embedding", *(f"after block {d}" for d in range(1, len(shown.words)))]


def _draw(shown: Shown) -> Figure:
    T, wide, high = len(shown.tokens), *CELL_INCHES
    size = (2.2 + wide * max(T, 8), 1.9 + high * len(shown.words))
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=size, layout="constrained")
        ax = figure.subplots()
        ax.imshow(shown.probs.numpy(), cmap=HEAT, vmin=0, vmax=1, aspect="auto", origin="lower")
        for d, row in enumerate(shown.words):
            for t, word in enumerate(row):
                ends = word == shown.words[-1][t]
                color = "white" if shown.probs[d, t] > TURN["light"] - 0.1 else "black"
                weight = "bold" if ends else "normal"
                ax.text(t, d, word, ha="center", va="center", size=11, color=color, weight=weight)
        ax.set(title="What the model would say next at each depth", xlabel="the word just read")
        ax.set_xticks(range(T), shown.tokens, size=12)
        ax.set_yticks(range(len(shown.words)), _depths(shown), size=13)
        ax.tick_params(length=0, colors=QUIET)
        ax.spines[:].set_visible(False)
    return figure
