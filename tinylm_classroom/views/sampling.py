"""Sampling step by step: how temperature, top-k, top-p and min-p change the probabilities of the
next word.
"""

import base64
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib.inputs import check_number
from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM
from tinylm_lib.probabilities import check_options, next_token_probs, sample

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed
from ..display.theme import LINE, SERIES
from .base import Answer, View, few_digits, named, page_model, pictured, readable_tokens

_SHOWN = 8
_WRITTEN = 12
_MOST_WRITTEN = 60
_LARGEST_VOCABULARY = 600
_HOTTEST = 3
_OPTIONS = ("temperature", "top_k", "top_p", "min_p")


class Writer:
    """Continues a prompt word by word, and keeps the logits (V) before each word and its
    probability when it was drawn.

    Each word is drawn as `generate` does it, with options that may change on the way.
    """

    def __init__(self, model: TransformerLM, prompt: Tensor, seed: int):
        check_number("seed", seed, int, lambda n: 0 <= n < 2**63, "a whole number from 0")
        self.model = model
        self.ids = prompt
        self.n_prompt = len(prompt)
        self.generator = torch.Generator(prompt.device).manual_seed(seed)
        self.shares: list[float] = []
        self.logits = [self._read()]

    def write(self, n: int, **options: Any) -> None:
        """Draw n more tokens. options: as in `next_token_probs`."""
        done = len(self.shares)
        room = _MOST_WRITTEN - len(self.shares)
        wanted = (
            f"from 1 to {room}, since {done} of {_MOST_WRITTEN} tokens are written: begin again"
        )
        check_number("n", n, int, lambda n: 1 <= n <= room, wanted)
        check_options(self.model.config.vocab_size, **options)
        for _ in range(n):
            probs = next_token_probs(self.logits[-1][None], **options)
            token = sample(probs, self.generator)
            self.shares.append(probs[0, token].item())
            self.ids = torch.cat([self.ids, token])
            self.logits.append(self._read())

    def _read(self) -> Tensor:
        with evaluation_mode(self.model):
            return self.model(self.ids[None, -self.model.config.max_seq_len :])[0, -1].float()

    def data(self) -> dict[str, Any]:
        """What the browser shows: the tokens written, their probabilities, logits before each and
        after the last.
        """
        written = zip(self.ids[self.n_prompt :].tolist(), few_digits(self.shares), strict=True)
        packed = [
            base64.b64encode(logits.cpu().numpy().astype("<f4").tobytes()).decode()
            for logits in self.logits
        ]
        return {"path": [list(step) for step in written], "logits": packed}


def sampling_view(
    model: TransformerLM,
    tokenizer: Any,
    prompt: str,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    seed: int = 0,
) -> View:
    """The next word's probabilities, sliders for the options of `next_token_probs`, and a text
    drawn from them.

    The options are what the sliders begin with, and what the stored text of 12 tokens is drawn
    with; with a kernel the view continues with the sliders as they are.
    Raises: ValueError for an option out of range, a temperature above 3, a vocabulary of more than
    600 tokens, and a prompt that the tokenizer does not know or that holds no token.
    """
    options = dict(zip(_OPTIONS, (temperature, top_k, top_p, min_p), strict=True))
    V = model.config.vocab_size
    check_options(V, **options)
    if temperature > _HOTTEST:
        raise ValueError(
            f"temperature {temperature} is beyond the slider, which ends at {_HOTTEST}: take less"
        )
    if V > _LARGEST_VOCABULARY:
        raise ValueError(
            f"the view stores every logit, at most {_LARGEST_VOCABULARY}, not {V}: take fewer words"
        )
    ids = torch.tensor(
        tokenizer.encode(prompt), dtype=torch.long, device=next(model.parameters()).device
    )
    if len(ids) == 0:
        raise ValueError(
            "the prompt holds no token, and an empty prompt predicts nothing: give it a word"
        )
    writer = Writer(model, ids, seed)
    turn = 0
    writer.write(_WRITTEN, **options)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal writer, turn
        if request["begin"]:
            writer = Writer(model, ids, request["seed"])
        writer.write(request["n"], **{name: request[name] for name in _OPTIONS})
        turn += 1
        return {"turn": turn, **writer.data()}

    data = {
        "prompt": prompt,
        "words": readable_tokens(tokenizer, range(V)),
        "options": options,
        "seed": seed,
    }
    data |= {"turn": turn, **writer.data(), **page_model(model, tokenizer)}
    return _pictured(data, writer.logits[0], answer)


def _pictured(data: dict[str, Any], logits: Tensor, answer: Answer) -> View:
    """The view with the first drawn word's probabilities as its picture. logits: (V)."""
    words = data["words"]
    options = data["options"]
    own, drawn = (next_token_probs(logits[None], **kind)[0].cpu() for kind in ({}, options))
    order = own.sort(descending=True, stable=True).indices.tolist()
    chosen = ", ".join(f"{name} {value:g}" for name, value in options.items() if value is not None)
    best = order[0]
    says = (
        f"With {chosen}, {int((drawn > 0).sum())} of {len(words)} words may be drawn; "
        f"{named(words[best])} goes from probability {own[best]:.2f} to {drawn[best]:.2f}."
    )
    rows = [(words[i], own[i], drawn[i]) for i in order[:_SHOWN]]
    if others := sorted(order[_SHOWN:]):
        rows.append(("all others", own[others].sum(), drawn[others].sum()))
    cells = (
        [word, _share(own), _share(drawn) if drawn > 0 else "cut"] for word, own, drawn in rows
    )
    return pictured(
        "sampling",
        data,
        _draw(*zip(*rows[:_SHOWN], strict=True)),
        text=f"Sampling the next word. {says}",
        alt=(
            "Bar chart of the most likely next words: the model's own probabilities and the ones "
            f"used. {says}"
        ),
        caption=(
            f"The next word after “{data['prompt'].strip()}”. The bar is the probability it is "
            f"drawn with, the stroke the model's own. {says}"
        ),
        numbers=number_table(["word", "the model's", "drawn with"], cells),
        answer=answer,
    )


def _share(x: Tensor) -> str:
    return "<0.01" if x < 0.005 else fixed(x, 2)


def _draw(words: tuple[str, ...], own: tuple[Tensor, ...], drawn: tuple[Tensor, ...]) -> Figure:
    with drawing(7.6, 1.7 + 0.24 * len(words), axes_grid=False) as figure:
        ax = figure.subplots()
        places = range(len(words))
        ax.barh(
            places,
            list(map(float, drawn)),
            height=0.62,
            color=SERIES[0],
            label="probability it is drawn with",
        )
        stroke = {"marker": "|", "s": 190, "linewidths": 3, "color": SERIES[1], "zorder": 3}
        ax.scatter(list(map(float, own)), places, label="the model's own probability", **stroke)
        ax.set(title="How the next word is drawn", xlabel="probability")
        ax.set_yticks(places, words, size=12)
        ax.set_xlim(0)
        ax.invert_yaxis()
        ax.tick_params(length=0)
        ax.spines["bottom"].set_color(LINE)
        ax.legend(frameon=False, loc="lower right")
    return figure
