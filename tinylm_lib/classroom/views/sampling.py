"""Sampling step by step: how temperature, top-k, top-p and min-p make the shares that the next word is drawn from."""

import base64
from typing import Any, NamedTuple

import torch
from matplotlib import style
from matplotlib.figure import Figure
from torch import Tensor

from ...layers import evaluation_mode
from ...model import TransformerLM
from ...probabilities import check_number, check_options, next_token_probs, sample
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed
from ..display.theme import LINE, SERIES, STYLE
from .base import View, named, readable

SHOWN, STEPS, MOST_WRITTEN, LARGEST_VOCABULARY, HOTTEST = 8, 12, 60, 600, 3
OPTIONS = ("temperature", "top_k", "top_p", "min_p")


class Shown(NamedTuple):
    """What the picture shows: each word, its own share and the one that it is drawn with, both (V), and the options."""

    words: list[str]
    own: Tensor
    drawn: Tensor
    options: dict[str, Any]

    @property
    def says(self) -> str:
        """How many words stay, and what becomes of the likeliest, in plain words."""
        best, kept = int(self.own.argmax()), int((self.drawn > 0).sum())
        asked = ", ".join(f"{name} {value:g}" for name, value in self.options.items() if value is not None)
        shares = f"{named(self.words[best])} goes from a share of {self.own[best]:.2f} to {self.drawn[best]:.2f}"
        return f"With {asked}, {kept} of {len(self.words)} words may be drawn; {shares}."


class Writer:
    """Continues a prompt word by word, and keeps the logits (V) before each word and the share that it was drawn with.

    Each word is drawn as `generate` does it, with options that may change on the way.
    """

    def __init__(self, model: TransformerLM, prompt: Tensor, seed: int):
        check_number("seed", seed, int, lambda n: 0 <= n < 2**63, "a whole number from 0")
        self.model, self.ids, self.n_prompt = model, prompt, len(prompt)
        self.generator = torch.Generator(prompt.device).manual_seed(seed)
        self.shares: list[float] = []
        self.logits = [self._read()]

    def write(self, n: int, **options: Any) -> None:
        """Draw n more tokens. options: as in `next_token_probs`."""
        check_number("n", n, int, lambda n: 1 <= n <= MOST_WRITTEN - len(self.shares), self._room())
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

    def _room(self) -> str:
        done = len(self.shares)
        return f"from 1 to {MOST_WRITTEN - done}, since {done} of {MOST_WRITTEN} tokens are written: begin again"

    def data(self) -> dict[str, Any]:
        """What the browser shows: the tokens written, their shares, and the logits before each and after the last."""
        path = [
            [token, float(f"{p:.5g}")] for token, p in zip(self.ids[self.n_prompt :].tolist(), self.shares, strict=True)
        ]
        return {"path": path, "logits": [_packed(logits) for logits in self.logits]}


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
    """The next word's probabilities, sliders for the options of `next_token_probs`, and a text drawn from them.

    The options are what the sliders begin with, and what the stored text of 12 tokens is drawn with; beside a kernel
    the view writes on with the sliders as they stand.
    Raises: ValueError for an option out of range, a temperature above 3, a vocabulary of more than 600 tokens, and a
    prompt that the tokenizer does not know or that holds no token.
    """
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    V = model.config.vocab_size
    check_options(V, **options)
    if temperature > HOTTEST:
        raise ValueError(f"temperature {temperature} is beyond the slider, which ends at {HOTTEST}: take less")
    if V > LARGEST_VOCABULARY:
        raise ValueError(f"the view stores every logit, at most {LARGEST_VOCABULARY}, not {V}: take fewer words")
    ids = torch.tensor(tokenizer.encode(prompt), dtype=torch.long, device=next(model.parameters()).device)
    if len(ids) == 0:
        raise ValueError("the prompt holds no token, and an empty prompt predicts nothing: give it a word")
    writer = Writer(model, ids, seed)
    writer.write(STEPS, **options)
    words = [readable(tokenizer.decode([token])) for token in range(V)]
    data = {"prompt": prompt.strip(), "words": words, "options": options, "seed": seed}
    first = writer.logits[:1]
    own, drawn = (next_token_probs(torch.stack(first), **kind)[0].cpu() for kind in ({}, options))
    shown = Shown(words, own, drawn, options)
    return View(
        "sampling", data | {"turn": 0} | writer.data(), html=_figure_html(shown, prompt),
        text=f"Sampling the next word. {shown.says}", answer=_answer(model, ids, writer),
    )  # fmt: skip


def _answer(model: TransformerLM, prompt: Tensor, first: Writer) -> Any:
    at = {"writer": first, "turn": 0}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["begin"]:
            at["writer"] = Writer(model, prompt, request["seed"])
        at["writer"].write(request["n"], **{name: request[name] for name in OPTIONS})
        at["turn"] += 1
        return {"turn": at["turn"], **at["writer"].data()}

    return answer


def _packed(logits: Tensor) -> str:
    return base64.b64encode(logits.cpu().numpy().astype("<f4").tobytes()).decode()


def _figure_html(shown: Shown, prompt: str) -> str:
    order = shown.own.sort(descending=True, stable=True).indices[:SHOWN].tolist()
    caption = (
        f"The next word after “{prompt.strip()}”. The bar is the share that a word is drawn with, the "
        f"stroke the model's own. {shown.says}"
    )
    alt = f"Bar chart of the likeliest next words: the model's own shares and those they are drawn with. {shown.says}"
    others = torch.ones(len(shown.words), dtype=torch.bool).index_fill(0, torch.tensor(order), False)
    pairs = [(shown.words[i], shown.own[i], shown.drawn[i]) for i in order]
    if others.any():
        pairs += [("all others", shown.own[others].sum(), shown.drawn[others].sum())]
    rows = [[word, _share(own), _share(drawn) if drawn > 0 else "cut"] for word, own, drawn in pairs]
    return framed(
        _draw(shown, order), alt, caption, number_table(["word", "the model's", "drawn with"], rows), flat=True
    )


def _share(x: Tensor) -> str:
    return "<0.01" if x < 0.005 else fixed(x, 2)


def _draw(shown: Shown, order: list[int]) -> Figure:
    with style.context(["default", STYLE, {"axes.grid": False}]):
        figure = Figure(figsize=(7.6, 1.7 + 0.24 * len(order)), layout="constrained")
        ax = figure.subplots()
        places = range(len(order))
        own, drawn = (x[order].tolist() for x in (shown.own, shown.drawn))
        ax.barh(places, drawn, height=0.62, color=SERIES[0], label="share it is drawn with")
        ax.scatter(
            own, places, marker="|", s=190, linewidths=3, color=SERIES[1], zorder=3, label="the model's own share"
        )
        ax.set(title="How the next word is drawn", xlabel="share", yticks=[])
        ax.set_yticks(places, [shown.words[i] for i in order], size=12)
        ax.set_xlim(0)
        ax.invert_yaxis()
        ax.tick_params(length=0)
        ax.spines["bottom"].set_color(LINE)
        ax.legend(frameon=False, loc="lower right")
    return figure
