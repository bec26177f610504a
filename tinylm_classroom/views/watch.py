"""A model that writes, word by word: its probabilities next to the exact ones, in the browser
itself.
"""

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import Any

import torch
from matplotlib.figure import Figure

from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM
from tinylm_lib.probabilities import next_token_probs
from tinylm_lib.storyworld import words
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.writing import stream_text

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.theme import INK, LINE, SERIES
from ..live.stories import exact_probs
from .base import View, computable, pictured, readable

SEED = 0
SAMPLE_TOKENS = 300
IMPOSSIBLE = "\nOne sunny day, brave kite"  # no story of StoryWorld begins like this
# For a model of StoryWorld, after one's own beginning: the first determines the next word.
BEGINNINGS = (
    "\nOne dark evening, calm Mia ran to Foxhollow. She had a golden bowl. There she met Farah, a "
    "doctor with a "
    'yellow basket. Farah whispered to Mia, "Early dreams return forever." Then they traded their '
    "things. Afterwards "
    'they left Foxhollow for Northgate. Often Mia thought, "Early dreams',
    IMPOSSIBLE,
)
UNITS = {"words": "word", "bytes": "byte", "chars": "character", "bpe": "token"}
# of the picture: tokens that the model has written, bars, characters of a line, inches
_WRITTEN = 27
_BARS = 6
_LINE = 74
_WIDTH = 8.4


def watch(model: TransformerLM, tokenizer: Tokenizer, beginning: str = "\n") -> View:
    """A model that writes in the browser: a text of one's own to begin with, the probabilities of
    what comes next and, where StoryWorld's words are the tokens, the exact ones.

    beginning: how the first text begins; the white space at its start is read by the model before
    everything that a visitor types.
    The browser computes with the model as it is at the call: a page of the site has it, and a
    kernel sends it; no notebook stores it. Elsewhere a text and the bars of its next word are seen.
    Raises: TypeError or ValueError for a beginning that is empty or has unknown words, and for a
    model that a page cannot compute with (see `live_record`).
    """
    found = computable(model, tokenizer)
    check_beginning(tokenizer, beginning)
    is_story = found["stories"] is not None
    text = sampled(model, tokenizer, beginning, is_story, _WRITTEN)
    data = {
        "model": found["record"]["fingerprint"],
        "beginnings": beginnings_of(tokenizer, beginning, text, is_story),
    }
    return _pictured(model, tokenizer, text, data, found)


def check_beginning(tokenizer: Tokenizer, beginning: Any) -> None:
    """Raises TypeError or ValueError for a beginning from which the tokenizer gets no token."""
    if not isinstance(beginning, str):
        raise TypeError(f"beginning must be a text, got {beginning!r}")
    try:
        ids = tokenizer.encode(beginning)
    except ValueError as e:
        raise ValueError(
            f"beginning {beginning!r} cannot be read; choose another one: {e}"
        ) from None
    if not ids:
        raise ValueError(
            f"beginning must have at least one token, got {beginning!r}; give beginning='The'"
        )


def sampled(
    model: TransformerLM,
    tokenizer: Tokenizer,
    beginning: str,
    is_story: bool,
    most: int = SAMPLE_TOKENS,
    temperature: float = 1.0,
) -> str:
    """A text of the model; a story of StoryWorld ends where it ends."""
    generator = torch.Generator(model.embed.weight.device).manual_seed(SEED)
    how = {"stop": ("\n",) if is_story else (), "temperature": temperature, "generator": generator}
    pieces = stream_text(model, tokenizer, beginning, most, **how)
    return beginning + "".join(pieces)


def beginnings_of(tokenizer: Tokenizer, beginning: str, sample: str, is_story: bool) -> list[str]:
    """The texts that a visitor can choose to begin with; the view begins with the first.

    A beginning of nothing but white space comes after the first words of the sample, if they can be
    typed.
    """
    return [
        *_opening(tokenizer, beginning, sample),
        beginning,
        *(BEGINNINGS if is_story else ()),
    ]


def _opening(tokenizer: Tokenizer, beginning: str, sample: str) -> list[str]:
    words = re.match(r"\S+(?: \S+){0,4}", sample[len(beginning) :].lstrip())
    if beginning.strip() or not words or len(words[0]) > 60:
        return []
    try:
        tokenizer.encode(beginning + words[0])
    except ValueError:
        return []
    return [beginning + words[0]]


def _pictured(
    model: TransformerLM, tokenizer: Tokenizer, text: str, data: dict[str, Any], found: dict
) -> View:
    """The view with the text and the bars of its next token as its picture."""
    unit = UNITS[tokenizer.kind]
    ids = torch.tensor([tokenizer.encode(text)], device=model.embed.weight.device)
    with evaluation_mode(model):
        logits = model(ids[:, -model.config.max_seq_len :])[:, -1, : tokenizer.vocab_size]
    probs = next_token_probs(logits.float())[0].cpu()
    likeliest = probs.sort(descending=True, stable=True).indices[:_BARS].tolist()
    exact = _exact(text) if found["stories"] else None
    rows = [(tokenizer.decode([token]), probs[token].item()) for token in likeliest]
    bars = [(readable(word), p, exact and exact.get(word, 0.0)) for word, p in rows]
    name, p, true = bars[0]
    says = f"The likeliest next {unit} is “{name}”, with a probability of {_percent(p)}."
    says += f" Its exact probability is {_percent(true)}." if exact else ""
    head = [unit, "model", "exact"] if exact else [unit, "model"]
    table = ([name, *map(_percent, ps[: len(head) - 1])] for name, *ps in bars)
    marks = " Each mark is the exact one, from the rules of StoryWorld." if exact else ""
    return pictured(
        "watch",
        data,
        _draw(text, unit, bars),
        text=f"A model that writes. {text.strip()} ... {says}",
        alt=f"A text that the model wrote, and a bar chart of its next {unit}. {says}",
        caption=(
            f"The model wrote this text with seed {SEED}. Each bar is a probability.{marks} {says}"
        ),
        numbers=number_table(head, table),
        record=lambda: found,
    )


def _exact(text: str) -> dict[str, float] | None:
    """The exact probability of each word that can come after a text of StoryWorld, or None."""
    return exact_probs(words(text.lstrip("\n").rpartition("\n")[2]))


def _percent(p: float) -> str:
    return "<0.1 %" if 0 < p < 0.0005 else f"{100 * p:.1f} %"


def _drawable(text: str) -> str:
    """The text with a sign for each character that no font has."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def _draw(text: str, unit: str, bars: Sequence[tuple[str, float, float | None]]) -> Figure:
    """The text, and below it the bars (name, probability, exact or None) of its next token."""
    lines = wrap(_drawable(text.strip()), _LINE)[-6:] or [""]
    heights = [0.3 * len(lines) + 0.1, 0.33 * len(bars) + 0.7]
    names, probs, exact = zip(*bars, strict=True)
    places = range(len(bars))
    with drawing(_WIDTH, sum(heights) + 0.3, axes_grid=False) as figure:
        above, ax = figure.subplots(2, height_ratios=heights)
        above.axis("off")
        shown = "\n".join([*lines[:-1], f"{lines[-1]} ..."])
        above.text(0, 1, shown, va="top", size=14, parse_math=False)
        ax.barh(places, probs, height=0.62, color=SERIES[0], label="the model")
        if exact[0] is not None:
            mark = {"marker": "|", "s": 190, "linewidths": 3, "color": INK, "zorder": 3}
            ax.scatter(exact, places, label="exact", **mark)
            where = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
            ax.legend(frameon=False, ncols=2, borderpad=0, **where)
        ax.set(title=f"The next {unit}", xlabel="probability")
        ax.set_yticks(places, map(_drawable, names), size=13.5, parse_math=False)
        ax.set_xlim(0)
        ax.invert_yaxis()
        ax.tick_params(length=0)
        ax.spines["bottom"].set_color(LINE)
    return figure
