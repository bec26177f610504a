"""One thing in a text or inside the model is changed: the next word before and after it."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import torch
from matplotlib.figure import Figure
from torch import Tensor

from tinylm_lib import storyworld
from tinylm_lib.attention import causal_mask
from tinylm_lib.interventions import intervene, mean_heads
from tinylm_lib.layers import softmax
from tinylm_lib.model import TransformerLM
from tinylm_lib.text.cutting import words

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed
from ..display.theme import INK, LINE, QUIET, SERIES
from ..live.stories import exact_probs
from .base import (
    View,
    capture_ids,
    check_index,
    few_digits,
    ids_of,
    leading_blanks,
    named,
    page_model,
    pictured,
    readable,
    readable_tokens,
)
from .typed import spelled, typed_text

_MOST_TOKENS = 32
_BEST = 5  # most likely words before, and as many after
_LEAST = 0.0005  # what is less likely before and after is not shown
_UNITS = 5  # the strongest ones that are offered
_N_STORIES = 64  # over which a head's mean is taken
_SEED = 0
# One example of each change; its numbers are a layer, then a head or a unit, or positions.
EXAMPLES = {
    "word": "word 5 Mia",
    "silence": "silence 1 2",
    "mean": "mean 1 2",
    "forbid": "forbid 1 2 9 4",
    "stop": "stop 1 ffn",
    "write": "write 1 17 kite",
}
PARTS = {"attention": "attention", "ffn": "feed-forward"}


class Change(NamedTuple):
    """One change: what is done, where (layer, then head or unit, or positions), and with what."""

    verb: str
    at: tuple[int, ...]
    what: str = ""

    def __str__(self) -> str:
        return " ".join(
            [self.verb, *map(str, self.at), *filter(None, [quote(self.what, safe="!'()*")])]
        )


def what_if(
    model: TransformerLM,
    tokenizer: Any,
    text: str,
    state: str = "",
    *,
    texts: Sequence[str] | None = None,
) -> View:
    """The probabilities of the next word after a text, before and after a reader's changes.

    A word is exchanged, a head silenced or given its mean at each position, a look forbidden, a
    part of a block stopped, or what a unit writes replaced by the output row of a word.
    state: the changes to begin with, as the view writes them: "silence 1 2; word 5 Mia".
    texts: at least as long as what is typed (32 tokens at most); over them the mean of a head is
    taken. Without them, over stories, where the tokenizer knows those.
    Raises: ValueError for a text that the tokenizer does not know, without a token or of more than
    32, a state that cannot be read, and a change that the model does not have.
    """
    means = _means(model, tokenizer, texts)
    lead = leading_blanks(text)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        own = request.get("text")
        whole = text if own is None else typed_text(tokenizer, own, lead)
        return _data(model, tokenizer, whole, request, means)

    data = _data(model, tokenizer, text, {"state": state}, means)
    says = _says(data)
    rows = [[row[0], *map(_percent, row[1:])] for row in data["rows"]]
    stored = {
        **data,
        "classes": _classes(data),
        "means": _packed(means),
        **page_model(model, tokenizer),
    }
    return pictured(
        "what_if",
        stored,
        _draw(data),
        text=f"What if? {data['text'].strip()!r}. {says}",
        alt=f"Bars: the probability of the next word before and after the change. {says}",
        caption=(
            "The most likely next words, before (outlined) and after (filled) the change. A line "
            f"is the exact probability, where the text is a story's beginning. {says}"
        ),
        numbers=number_table(["next word", "before", "after", "exact", "exact after"], rows),
        answer=answer,
    )


def read_state(state: str) -> list[Change]:
    """The changes that a state names; of two at one place the last.

    Raises: ValueError for one that cannot be read, with an example.
    """
    if not isinstance(state, str):
        raise TypeError(f"state must be a text such as 'silence 1 2', got {state!r}")
    changes: dict[Any, Change] = {}
    for part in filter(None, map(str.strip, state.split(";"))):
        verb, *fields = part.split()
        example = EXAMPLES.get(verb, "").split()[1:]
        if not example:
            raise ValueError(
                f"a change begins with {', '.join(EXAMPLES)}, not with {verb!r}: write for "
                f"example {EXAMPLES['silence']!r}"
            )
        fits = len(fields) == len(example)
        for field, shown in zip(fields, example, strict=False):
            fits = fits and (not shown.isdecimal() or (field.isascii() and field.isdecimal()))
        if not fits:
            raise ValueError(f"{part!r} cannot be read: write it like {EXAMPLES[verb]!r}")
        n = sum(map(str.isdecimal, example))
        what = unquote(fields[n]) if fields[n:] else ""
        change = Change(verb, tuple(map(int, fields[:n])), what)
        changes[(verb, change.at, verb == "stop" and what)] = change
    return list(changes.values())


def exchanged(ids: Tensor, changes: Iterable[Change], tokenizer: Any) -> Tensor:
    """The ids (T) with the words exchanged that the changes name.

    Raises: ValueError for a position that the text does not have, and for an unknown word.
    """
    ids = ids.clone()
    for change in changes:
        if change.verb == "word":
            if change.at[0] >= len(ids):
                raise ValueError(
                    f"position {change.at[0]} is not one of the text's {len(ids)}, which count "
                    "from 0"
                )
            old = tokenizer.decode([int(ids[change.at[0]])])
            ids[change.at[0]] = token_like(tokenizer, change.what, old)
    return ids


def token_like(tokenizer: Any, word: str, old: str) -> int:
    """The id of a word instead of `old`: with a blank before it where that has one.

    Raises: ValueError for a word that the tokenizer does not know, or not as one token.
    """
    spellings = [word, f" {word}"]
    if old.startswith(" "):
        spellings.reverse()
    shortest = min(spelled(tokenizer, spellings), key=len)
    if len(shortest) != 1:
        raise ValueError(f"{word!r} is not one token: give a word that is a single token")
    return int(shortest[0])


def arguments(
    changes: Iterable[Change], tokenizer: Any, means: Tensor | None = None
) -> dict[str, Any]:
    """The changes inside the model as arguments of `intervene`. means (L, H, S, D).

    Raises: ValueError for an unknown word or part, and for a mean where there are none.
    """
    found: dict[str, Any] = {"silence": [], "means": {}, "forbid": [], "stop": [], "write": []}
    for verb, at, what in changes:
        if verb == "mean":
            if means is None:
                raise ValueError(
                    "a mean needs texts to take it over: give texts=[...], each at least as long "
                    "as this one"
                )
            check_index("layer", at[0], len(means))
            check_index("head", at[1], means.shape[1])
            found["means"][at] = means[at]
        elif verb == "write":
            found["write"].append((*at, token_like(tokenizer, what, " ")))
        elif verb == "stop":
            found["stop"].append((*at, what))
        elif verb != "word":
            found[verb].append(at)
    return found


def _data(
    model: TransformerLM,
    tokenizer: Any,
    text: str,
    request: Mapping[str, Any],
    means: Tensor | None,
) -> dict[str, Any]:
    """What the browser draws from.

    rows: of each word among the likeliest its probability before, after, and the exact ones (None
    where there is none). look: layer, head and asking position; looks: its weights after the
    changes. units: of layer unit_layer, the strongest at the last position.
    """
    changes = read_state(request.get("state", ""))
    ids = ids_of(tokenizer, text, 1, _MOST_TOKENS)
    T = len(ids)
    new = exchanged(ids, changes, tokenizer)
    config = model.config
    unit_layer = request.get("unit_layer", config.n_layers - 1)
    inside = arguments(changes, tokenizer, means)
    before = softmax(capture_ids(model, ids).logits[0, -1].double(), dim=-1)
    with intervene(model, **inside):
        caught = capture_ids(model, new)
    after = softmax(caught.logits[0, -1].double(), dim=-1)
    if "look" in request:
        layer, head, row = request["look"]
    elif inside["forbid"]:
        layer, head, row, _ = inside["forbid"][0]
    else:
        layer, head = _strongest(caught)
        row = T - 1
    row = min(row, T - 1)
    weights = look_weights(caught, layer, head, inside["forbid"])[row]
    unit_values = caught.inputs[f"blocks.{unit_layer}.ffn.down_proj"][0, -1]
    strongest = unit_values.abs().topk(min(_UNITS, len(unit_values))).indices.tolist()
    best = [probs.topk(min(_BEST, len(probs))).indices.tolist() for probs in (before, after)]
    shown = list(dict.fromkeys([*best[0], *best[1]]))
    exact = [_exact(tokenizer.decode(each.tolist())) for each in (ids, new)]
    rows = []
    for token in shown:
        if max(before[token], after[token]) < _LEAST:
            continue
        word = tokenizer.decode([token])
        exacts = [None if probs is None else probs.get(word, 0.0) for probs in exact]
        rows.append([readable(word), *map(few_digits, (before[token], after[token])), *exacts])
    return {
        "text": text,
        "state": "; ".join(map(str, changes)),
        "tokens": readable_tokens(tokenizer, ids.tolist()),
        "changed": readable_tokens(tokenizer, new.tolist()),
        "rows": rows,
        "look": [layer, head, row],
        "looks": few_digits(weights[: row + 1]),
        "unit_layer": unit_layer,
        "units": [[unit, few_digits(unit_values[unit])] for unit in strongest],
        "sizes": [config.n_layers, config.n_heads, config.d_ff],
    }


def look_weights(caught: Any, layer: int, head: int, forbid: Iterable[tuple[int, ...]]) -> Tensor:
    """The attention weights (T, T) of a head, with 0 for the looks that are forbidden."""
    name = f"blocks.{layer}.attention"
    q = caught.outputs[f"{name}.rotation.q"][0]  # (H, T, D)
    k = caught.outputs[f"{name}.rotation.k"][0]  # (G, T, D)
    k = k[head * len(k) // len(q)]
    scores = q[head] @ k.T / q.shape[-1] ** 0.5  # (T, T)
    allowed = causal_mask(len(scores))
    for at in forbid:
        if at[:2] == (layer, head):
            allowed[at[2], at[3]] = False
    return softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1).nan_to_num()


def _strongest(caught: Any) -> tuple[int, int]:
    """Layer and head whose largest look from the last word, not at the first one or at itself, is
    the largest.
    """
    config = caught.model.config
    most = -1.0
    where = (config.n_layers - 1, 0)
    for layer in range(config.n_layers):
        for head in range(config.n_heads):
            looks = look_weights(caught, layer, head, ())[-1, 1:-1]
            if len(looks) and looks.max() > most:
                most = looks.max().item()
                where = (layer, head)
    return where


def _exact(text: str) -> dict[str, float] | None:
    """The exact probability of each next word, where the text is the beginning of a story."""
    heard = words(text)
    return exact_probs(heard[int(heard[:1] == ["\n"]) :])


def _means(model: TransformerLM, tokenizer: Any, texts: Sequence[str] | None) -> Tensor | None:
    """The mean of each head's mixture at each position (L, H, S, D), in half precision."""
    if texts is None:
        texts = [f"\n{line}" for line in storyworld.corpus(_N_STORIES, _SEED).splitlines()]
        try:
            tokenizer.encode(texts[0])
        except ValueError:
            return None
    if isinstance(texts, str) or not texts:
        raise ValueError(f"texts must be a list of texts, got {texts!r}")
    cut = [list(tokenizer.encode(each))[:_MOST_TOKENS] for each in texts]
    least = min(map(len, cut))
    ids = torch.tensor([each[:least] for each in cut])
    return mean_heads(model, ids).half().float()


def _packed(means: Tensor | None) -> dict[str, Any] | None:
    """The means as text, which the page's engine unpacks: half precision, little-endian."""
    if means is None:
        return None
    data = base64.b64encode(means.cpu().half().numpy().astype("<f2").tobytes()).decode("ascii")
    return {"shape": list(means.shape), "halves": data}


def _classes(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """The words of each kind of which the text has one: what it may be exchanged for."""
    kinds = storyworld.CLASSES.items()
    return {kind: [*each] for kind, each in kinds if set(each) & set(data["tokens"])}


def _says(data: Mapping[str, Any]) -> str:
    """What changed, in one sentence."""
    rows = data["rows"]
    before = max(rows, key=lambda row: row[1])
    if not data["state"]:
        return f"As it is, the model expects {named(before[0])}, with {_percent(before[1])}."
    moved = max(rows, key=lambda row: abs(row[2] - row[1]))
    first = max(rows, key=lambda row: row[2])
    doings = "; ".join(_named(change, data) for change in read_state(data["state"]))
    if _percent(moved[1]) == _percent(moved[2]):
        stays = f"the model still expects {named(before[0])}, with {_percent(before[2])}"
        return f"{doings}: nothing changes that one could see, {stays}."
    also = ""
    if first is not moved:
        also = f" It now expects {named(first[0])} first, with {_percent(first[2])}."
    return (
        f"{doings}: the probability of {named(moved[0])} goes from {_percent(moved[1])} to "
        f"{_percent(moved[2])}.{also}"
    )


def _named(change: Change, data: Mapping[str, Any]) -> str:
    verb, at, what = change
    if verb == "word":
        return f"{named(data['tokens'][at[0]])} is now {named(what)}"
    if verb == "stop":
        return f"the {PARTS[what]} of layer {at[0]} is stopped"
    if verb == "write":
        return f"unit {at[1]} of layer {at[0]} writes {named(what)}"
    head = f"head {at[1]} of layer {at[0]}"
    if verb == "forbid":
        asks, looked_at = (named(data["changed"][position]) for position in at[2:])
        return f"in {head} {asks} may not look at {looked_at}"
    return f"{head} is silent" if verb == "silence" else f"{head} gives its mean"


def _percent(p: float | None) -> str:
    return "–" if p is None else f"{fixed(100 * p, 1)} %"


def _draw(data: Mapping[str, Any]) -> Figure:
    rows = data["rows"][::-1]
    with drawing(8.6, 1.6 + 0.55 * len(rows)) as figure:
        ax = figure.subplots()
        for y, (_, before, after, exact, exact_after) in enumerate(rows):
            ax.barh(y + 0.2, before, 0.36, fc="none", ec=QUIET, lw=1.5)
            ax.barh(y - 0.2, after, 0.36, color=SERIES[0])
            for place, p in ((y + 0.2, exact), (y - 0.2, exact_after)):
                if p is not None:
                    ax.vlines(p, place - 0.2, place + 0.2, color=INK, lw=2.5)
        ax.set_yticks(range(len(rows)), [row[0] for row in rows])
        ax.set(
            title="Before (outlined) and after (filled)", xlabel="probability", ylabel="next word"
        )
        ax.set_xlim(0, 1.02)
        ax.grid(axis="x", color=LINE)
    return figure
