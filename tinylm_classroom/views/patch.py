"""Activation patching: one vector of a run exchanged for that of another text, and what the model
then says.
"""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from tinylm_lib.layers import evaluation_mode
from tinylm_lib.model import TransformerLM

from ..display.cards import number_table
from ..display.figures import MASKED, RAMP_STEPS, drawing, ink_on, unframed
from ..display.numbers import fixed
from ..display.theme import LINE, SIGNED
from ..shapes.capture import Captured
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
from .typed import spelled, typed_text

_MOST_TOKENS = 17  # a line end and 16 words
_MOST_LIVE_TOKENS = 32
_LEAST_DIFFERENCE = 0.1  # of the two texts' logit differences, by which an effect is divided
_LEAST_WRITTEN = 0.05  # smaller effects have no number in the picture
PATCHED = {"stream": "residual stream", "attention": "attention", "ffn": "feed-forward"}
# why exchanging a vector cannot change anything
SAME = "same"
LATE = "late"


def patch_view(
    model: TransformerLM, tokenizer: Any, text: str, other: str, words: Sequence[str]
) -> View:
    """Where a model carries what distinguishes two texts: each vector of `text` exchanged for that
    of `other`, in turn.

    For the residual stream before each block and after the last one, and for what attention and
    feed-forward of each block add, at every position: the probabilities of the two words as the
    next one after `text` with this one vector exchanged. With d the logit of the first word minus
    that of the second, the effect is (d - d of text) / (d of other - d of text): 0 is as after
    `text`, 1 as after `other`.
    text, other: equally many tokens, 17 at most. words: two words of one token each; the model
    expects the first after `text` and the second after `other`. With a kernel, others can be typed,
    of up to 32 tokens.
    Raises: ValueError for a text or a word that the tokenizer does not know, texts that are equal
    or not equally long, too long texts, words of more than one token, and words whose logit
    difference does not fall from `text` to `other`.
    """
    lead = leading_blanks(text)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        typed, typed_other = (
            typed_text(tokenizer, request[name], lead) for name in ("text", "other")
        )
        return _data(model, tokenizer, typed, typed_other, request["words"], _MOST_LIVE_TOKENS)

    data = _data(model, tokenizer, text, other, words, _MOST_TOKENS)
    says = _says(data, data["part"], data["layer"], data["position"])
    (before, after) = data["runs"]
    pair = data["words"]
    names = [
        one if one == two else f"{one} / {two}"
        for one, two in zip(data["tokens"], data["others"], strict=True)
    ]
    rows = {
        part: [
            [
                row_name(part, layer, data["n_layers"]),
                *("–" if no else fixed(x, 2) for x, no in zip(*row, strict=True)),
            ]
            for layer, row in reversed(
                [*enumerate(zip(data["effect"][part], data["zero"][part], strict=True))]
            )
        ]
        for part in PATCHED
    }
    tables = (
        f"<p>Effect, {PATCHED[part]}:</p>" + number_table(["", *names], lines)
        for part, lines in rows.items()
    )
    return pictured(
        "patch",
        data,
        _draw(data, names),
        text=(
            f"One vector exchanged for that of another text, {data['n_layers']} blocks, "
            f"{len(names)} tokens. {says}"
        ),
        alt=(
            "Three heat maps of the effect of exchanging one vector, by block and position, from "
            f"−1 to 1. {says}"
        ),
        caption=(
            "The model reads the first text, with one vector exchanged for that of the other text. "
            "Each column is a position, each row a place in the model, to be read upwards; the "
            "colour is the effect on the next word. 0: as after the first text, where "
            f"P({pair[0]}) is {before[0]:.2f} and P({pair[1]}) is {before[1]:.2f}. 1: as after the "
            f"other, where they are {after[0]:.2f} and {after[1]:.2f}. Effects of {_LEAST_WRITTEN} "
            "and more have their number. Hatched: nothing can change, because the vector is the "
            "same in both texts or can no longer reach the last position, which predicts the next "
            f"word. {says}"
        ),
        numbers="".join(tables),
        answer=answer,
    )


def patched_logits(
    model: TransformerLM, ids: Tensor, donor: Captured, part: str, layer: int
) -> Tensor:
    """The logits (T, V) after the last of ids (T); in row t one vector, at position t, is exchanged
    for the donor's.

    donor: a run of equally many ids. part: "stream" before block `layer`, or after the last block
    for `layer` L; "attention" or "ffn", what this part of the block adds.
    """
    T = len(ids)
    enters = part == "stream" and layer < model.config.n_layers
    name = f"blocks.{min(layer, model.config.n_layers - 1)}"
    if part != "stream":
        name += f".{part}"
    vectors = (donor.inputs if enters else donor.outputs)[name][0]  # (T, C)
    at = torch.arange(T)  # (T)

    def exchanged(x: Tensor) -> Tensor:
        x = x.clone()  # (T, T, C): row, position
        x[at, at] = vectors
        return x

    module = model.get_submodule(name)
    if enters:
        hook = module.register_forward_pre_hook(lambda _, args: (exchanged(args[0]), *args[1:]))
    else:
        hook = module.register_forward_hook(lambda _, args, output: exchanged(output))
    try:
        with evaluation_mode(model):
            return model(ids.to(vectors.device).expand(T, T), last_only=True)[:, 0]
    finally:
        hook.remove()


def word_id(tokenizer: Any, word: str) -> int:
    """The id of a next word: with a blank before it where the tokenizer knows it so, otherwise as
    it is.

    Raises: ValueError for an empty word, an unknown one and one of more than one token.
    """
    bare = word.strip(" ")
    if not bare:
        raise ValueError(
            "a next word is empty: give two words, the first for the text and the second for the "
            "other"
        )
    shortest = min(spelled(tokenizer, (f" {bare}", bare)), key=len)
    if len(shortest) != 1:
        raise ValueError(
            f"the next word {bare!r} is {len(shortest)} tokens, not one: give a word that is a "
            "single token"
        )
    return int(shortest[0])


def word_ids(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The ids of a pair of next words.

    Raises: ValueError unless they are two, and different.
    """
    if isinstance(words, str) or len(words) != 2:
        raise ValueError(f'words must be two words, as in ("She", "He"), got {words!r}')
    pair = [word_id(tokenizer, word) for word in words]
    if pair[0] == pair[1]:
        raise ValueError(
            f"the two next words are the same, {words[0].strip()!r}: give one for each text"
        )
    return pair


def pair_of(tokenizer: Any, text: str, other: str, most: int) -> tuple[Tensor, Tensor]:
    """The ids (T) of two texts.

    Raises: ValueError unless they are equally many, and different.
    """
    pair = [torch.as_tensor(tokenizer.encode(each), dtype=torch.long) for each in (text, other)]
    lengths = [len(ids) for ids in pair]
    shared = zip(*(ids.tolist() for ids in pair), strict=False)
    first = next((at for at, (one, two) in enumerate(shared) if one != two), min(lengths))
    if lengths[0] != lengths[1]:
        shown = (
            repr(tokenizer.decode([int(ids[first])])) if first < len(ids) else "the end"
            for ids in pair
        )
        raise ValueError(
            f"the texts must have equally many tokens, not {lengths[0]} and {lengths[1]}; they "
            f"first differ at position {first}, {' and '.join(shown)}: exchange a word for one of "
            "as many tokens"
        )
    if first == lengths[0]:
        raise ValueError("the two texts are the same: change a word in the other one")
    text_ids, other_ids = (ids_of(tokenizer, ids, 1, most) for ids in pair)
    return text_ids, other_ids


def row_name(part: str, layer: int, n_layers: int) -> str:
    """A row of the grid: a place of the stream, or a block, counted from 0."""
    if part != "stream":
        return f"block {layer}"
    return f"before block {layer}" if layer < n_layers else f"after block {layer - 1}"


def cannot_change(part: str, layer: int, n_layers: int, changed: list[bool]) -> list[str]:
    """For each position: why exchanging its vector cannot change the next word, or "".

    changed (T): whether the word there differs. Before the first that does, all vectors are the
    same in both texts; before block 0, wherever the word is the same. After what is last to mix
    positions, only the last one is read.
    """
    first = changed.index(True)
    last = len(changed) - 1
    is_embedding = part == "stream" and layer == 0
    is_past = layer >= n_layers - (part != "stream")
    why = []
    for t, differs in enumerate(changed):
        if t < first or (is_embedding and not differs):
            why.append(SAME)
        else:
            why.append(LATE if is_past and t < last else "")
    return why


def _data(
    model: TransformerLM, tokenizer: Any, text: str, other: str, words: Sequence[str], most: int
) -> dict[str, Any]:
    """What the browser draws from; it begins before the last block, at the position with the
    largest effect there.

    runs: the probabilities of the words after each text; differences: the first's logit minus the
    second's. probs, difference and effect: the same after an exchange, for each part, layer and
    position; zero: why it changes nothing.
    """
    ids, other_ids = pair_of(tokenizer, text, other, most)
    pair = word_ids(tokenizer, words)
    names = readable_tokens(tokenizer, pair)
    donor = capture_ids(model, other_ids)
    (before, d_text), (after, d_other) = (
        _read(run.logits[0, -1], pair) for run in (capture_ids(model, ids), donor)
    )
    if not d_text - d_other >= _LEAST_DIFFERENCE:
        raise ValueError(
            f"the logit of {names[0]!r} minus that of {names[1]!r} must be larger after the first "
            f"text than after the other, but is {d_text:.1f} and {d_other:.1f}: give the words in "
            "the order of the texts, each a word that the model expects after its text"
        )
    found: dict[str, dict[str, list]] = {
        name: {} for name in ("effect", "difference", "probs", "zero")
    }
    L = model.config.n_layers
    changed = (ids != other_ids).tolist()
    for part in PATCHED:
        layers = range(L + (part == "stream"))
        logits = torch.stack([patched_logits(model, ids, donor, part, layer) for layer in layers])
        probs, difference = _read(logits, pair)
        zero = found["zero"][part] = [cannot_change(part, layer, L, changed) for layer in layers]
        stays = torch.tensor([[bool(why) for why in row] for row in zero])
        effect = ((difference - d_text) / (d_other - d_text)).masked_fill(stays, 0.0)
        found["effect"][part] = few_digits(effect)
        found["difference"][part] = few_digits(d_text.where(stays, difference))
        found["probs"][part] = few_digits(before.where(stays[..., None], probs))
    return {
        "text": text.strip(),
        "other": other.strip(),
        "words": names,
        "n_layers": L,
        **{
            name: readable_tokens(tokenizer, one.tolist())
            for name, one in (("tokens", ids), ("others", other_ids))
        },
        "runs": few_digits([before.tolist(), after.tolist()]),
        "differences": few_digits([d_text.item(), d_other.item()]),
        **found,
        "part": "stream",
        "layer": L - 1,
        "position": int(torch.tensor(found["effect"]["stream"][L - 1]).abs().argmax()),
    }


def _read(logits: Tensor, pair: list[int]) -> tuple[Tensor, Tensor]:
    """The probabilities (..., 2) of two tokens in logits (..., V), and the first's logit minus the
    second's (...).
    """
    logits = logits.double().cpu()
    return logits.softmax(-1)[..., pair], logits[..., pair[0]] - logits[..., pair[1]]


def _says(data: dict[str, Any], part: str, layer: int, t: int) -> str:
    """What the view says of a cell."""
    where = row_name(part, layer, data["n_layers"])
    what = (
        f"the stream {where}"
        if part == "stream"
        else f"what {'the ' if part == 'ffn' else ''}{PATCHED[part]} adds in {where}"
    )
    one, two = (data[name][t] for name in ("tokens", "others"))
    there = "" if one == two else f", which has {named(two)} there"
    begin = f"At position {t}, {named(one)}, {what} is taken from the other text{there}."
    moves = (
        f"P({word}) {_moves(old, new)}"
        for word, old, new in zip(
            data["words"], data["runs"][0], data["probs"][part][layer][t], strict=True
        )
    )
    return f"{begin} {', '.join(moves)}: effect {fixed(data['effect'][part][layer][t], 2)}."


def _moves(old: float, new: float) -> str:
    if fixed(old, 2) == fixed(new, 2):
        return f"stays {fixed(new, 2)}"
    return f"{'rises' if new > old else 'falls'} from {fixed(old, 2)} to {fixed(new, 2)}"


def _draw(data: dict[str, Any], names: list[str]) -> Figure:
    T = len(names)
    L = data["n_layers"]
    with drawing(2.6 + 0.56 * max(T, 8), 2.9 + 0.36 * (3 * L + 1), axes_grid=False) as figure:
        panels = figure.subplots(3, 1, sharex=True, height_ratios=[L, L, L + 1])
        figure.suptitle(
            "Effect of one vector from the other text", x=0.01, ha="left", weight="bold", size=19
        )
        for ax, (part, title) in zip(reversed(panels), PATCHED.items(), strict=True):
            effect = torch.tensor(data["effect"][part])
            steps = (RAMP_STEPS * effect.clamp(-1, 1)).round() / RAMP_STEPS
            ax.imshow(steps.numpy(), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", origin="lower")
            for layer, row in enumerate(data["zero"][part]):
                for t, why in enumerate(row):
                    if why:
                        ax.add_patch(
                            Rectangle(
                                (t - 0.5, layer - 0.5), 1, 1, fc=MASKED, ec=LINE, hatch="//", lw=0
                            )
                        )
                    elif abs(x := float(effect[layer, t])) >= _LEAST_WRITTEN:
                        color = ink_on(SIGNED((1 + float(steps[layer, t])) / 2))
                        ax.text(
                            t, layer, fixed(x, 2), ha="center", va="center", size=12, color=color
                        )
            ax.vlines([t + 0.5 for t in range(T - 1)], -0.5, len(effect) - 0.5, color="white", lw=2)
            ax.hlines(
                [layer + 0.5 for layer in range(len(effect) - 1)],
                -0.5,
                T - 0.5,
                color="white",
                lw=2,
            )
            ax.set_title(title, size=14, pad=6)
            ax.set_yticks(
                range(len(effect)),
                [row_name(part, layer, L) for layer in range(len(effect))],
                size=12,
            )
            unframed(ax)
        panels[-1].set_xticks(range(T), [name.replace(" / ", "\n/ ") for name in names], size=12)
        panels[-1].set_xlabel("position, with its word in the two texts", size=13)
    return figure
