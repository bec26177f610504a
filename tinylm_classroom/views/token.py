"""One text cut into tokens in several ways, and the merges of byte-pair encoding replayed on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle

from tinylm_lib.layers import pick
from tinylm_lib.text.base import Tokenizer
from tinylm_lib.text.bpe import BPETokenizer, merge
from tinylm_lib.text.cutting import pre_tokens

from ..display.cards import number_table
from ..display.figures import drawing
from ..display.numbers import fixed
from ..display.theme import INK, QUIET, SERIES
from .base import View, pictured
from .typed import for_readers

_MOST_CHARACTERS = 200
_MOST_MERGES = 600
_DRAWN_CHARACTERS = 36
_LISTED_MERGES = 6
_MONO = "DejaVu Sans Mono"
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
# What each kind of tokenizer is called, and the bytes of one of its tokens.
TOKENIZER_KINDS = {
    "bytes": ("bytes", lambda tokenizer, token: bytes([token])),
    "chars": ("characters", lambda tokenizer, token: tokenizer.characters[token].encode()),
    "words": ("words", lambda tokenizer, token: tokenizer.words[token].encode()),
    "bpe": ("BPE", lambda tokenizer, token: tokenizer.vocab[token]),
}


class _Cut(NamedTuple):
    """A text as one tokenizer cuts it: its ids and its tokens, or why it refuses the text."""

    name: str
    vocab_size: int
    ids: list[int]
    tokens: list[bytes]
    refused: str = ""


def token_view(texts: Mapping[str, str], tokenizers: Sequence[Tokenizer]) -> View:
    """Texts cut by several tokenizers as a view, with a slider that replays the merges of the BPE
    among them.

    texts: by the name that the view gives them; the picture shows the first. tokenizers: at most
    one of each kind. With a kernel, a reader may type another text.
    Raises: ValueError or TypeError for a text that is empty, too long or not Unicode, for no text
    or tokenizer, two of a kind, an unknown kind, and for more than 600 merges.
    """
    kinds = [tokenizer.kind for tokenizer in tokenizers]
    if not texts or not kinds or len(set(kinds)) < len(kinds):
        raise ValueError(
            f"give at least one text and one tokenizer of each kind: {len(texts)} texts, kinds "
            f"{kinds}"
        )
    bpe = next((one for one in tokenizers if isinstance(one, BPETokenizer)), None)
    cuts = {name: _cut(text, tokenizers) for name, text in texts.items()}

    def stored(name: str, text: str, cuts: list[_Cut]) -> dict[str, Any]:
        found = [
            {"refused": cut.refused}
            if cut.refused
            else {"ids": cut.ids, "sizes": [*map(len, cut.tokens)]}
            for cut in cuts
        ]
        return {"name": name, "text": text, "cuts": found, "pieces": _pieces(text, bpe)}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return {"own": stored("yours", request.get("text"), _cut(request.get("text"), tokenizers))}

    text = next(iter(texts.values()))
    first = next(iter(cuts.values()))
    counts = ", ".join(
        f"{cut.name} {'refuse it' if cut.refused else len(cut.ids)}" for cut in first
    )
    says = f"{len(text)} characters, {len(text.encode())} bytes; tokens: {counts}."
    return pictured(
        "token",
        {
            "cuts": [
                {
                    "kind": one.kind,
                    "name": TOKENIZER_KINDS[one.kind][0],
                    "vocab_size": one.vocab_size,
                }
                for one in tokenizers
            ],
            "bpe": _rules(bpe),
            "texts": [stored(name, texts[name], cut) for name, cut in cuts.items()],
        },
        _draw(text, first),
        text=f"A text cut into tokens: {says}",
        alt=f"The same text cut into tokens, one line for each way. {says}",
        caption=(
            "The beginning of the text, each box one token; ␣ is a space, and belongs to the word "
            f"after it. The whole text: {says}"
        ),
        numbers=_tables(texts, cuts, bpe),
        answer=answer,
    )


def _cut(text: Any, tokenizers: Sequence[Tokenizer]) -> list[_Cut]:
    if not isinstance(text, str):
        raise TypeError(f"the text must be a str, got {type(text).__name__}")
    if not text:
        raise ValueError("the text is empty: write at least one character")
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(
            f"the text has {len(text)} characters, and the view shows {_MOST_CHARACTERS}: shorten "
            "it"
        )
    if half := next((c for c in text if "\ud800" <= c <= "\udfff"), ""):
        raise ValueError(
            f"the text holds half a character, U+{ord(half):04X}, which UTF-8 cannot write: take "
            "it out"
        )
    cuts = []
    for tokenizer in tokenizers:
        name, bytes_of = pick(TOKENIZER_KINDS, tokenizer.kind, "kind of tokenizer")
        try:
            ids = tokenizer.encode(text)
            cuts.append(
                _Cut(name, tokenizer.vocab_size, ids, [bytes_of(tokenizer, token) for token in ids])
            )
        except ValueError as e:
            cuts.append(_Cut(name, tokenizer.vocab_size, [], [], for_readers(e, "It")))
    return cuts


def _pieces(text: str, bpe: BPETokenizer | None) -> list[str]:
    return pre_tokens(text, bpe.special_tokens) if bpe else []


def _rules(bpe: BPETokenizer | None) -> dict[str, Any]:
    """What the script needs to apply merges: the ids of the 256 bytes, of each pair and what it
    becomes.
    """
    if bpe is None:
        return {"bytes": [], "merges": [], "special": {}}
    if len(bpe.merges) > _MOST_MERGES:
        raise ValueError(
            f"the BPE has {len(bpe.merges):,} merges, and the view replays {_MOST_MERGES:,}: train "
            "a smaller one"
        )
    merges = [
        [bpe.ids[first], bpe.ids[second], bpe.ids[first + second]] for first, second in bpe.merges
    ]
    return {
        "bytes": [bpe.ids[bytes([b])] for b in range(256)],
        "merges": merges,
        "special": bpe.special_ids,
    }


def joins(text: str, bpe: BPETokenizer) -> Counter:
    """How many pairs in a text each merge joins, by the merge's rank."""
    ranks = {pair: rank for rank, pair in enumerate(bpe.merges)}
    counts: Counter[int] = Counter()
    for piece in _pieces(text, bpe):
        tokens = [bytes([b]) for b in piece.encode()] if piece not in bpe.special_ids else []
        while found := [pair for pair in pairwise(tokens) if pair in ranks]:
            first = min(found, key=ranks.__getitem__)
            before = tokens
            tokens = merge(tokens, first)
            counts[ranks[first]] += len(before) - len(tokens)
    return counts


def _tables(
    texts: Mapping[str, str], cuts: Mapping[str, list[_Cut]], bpe: BPETokenizer | None
) -> str:
    rows = []
    for name, text in texts.items():
        for cut in cuts[name]:
            counts = (
                ("refused", "")
                if cut.refused
                else (str(len(cut.ids)), fixed(len(text) / len(cut.ids), 1))
            )
            rows.append([name, cut.name, f"{cut.vocab_size:,}", *counts])
    tables = number_table(
        ["text", "cut into", "different ids", "tokens", "characters per token"], rows
    )
    if bpe is None:
        return tables
    lines = []
    for rank, count in sorted(joins(next(iter(texts.values())), bpe).items())[:_LISTED_MERGES]:
        left, right = bpe.merges[rank]
        lines.append([str(rank + 1), *map(_readable, (left, right, left + right)), str(count)])
    tables += "<p>The first merges that join something in the first text:</p>"
    return tables + number_table(["merge", "left", "right", "new token", "joined pairs"], lines)


def _readable(token: bytes) -> str:
    """A token as it can be seen: signs for spaces, and bytes that are not a character by their
    hexadecimal numbers.
    """
    try:
        return "".join(_SIGNS.get(c, c) for c in token.decode())
    except UnicodeDecodeError:
        return token.hex(" ").upper()


def _draw(text: str, cuts: list[_Cut]) -> Figure:
    with drawing(9.6, 0.9 + 0.48 * len(cuts)) as figure:
        ax = figure.subplots()
        ax.set(
            xlim=(-7.2, _DRAWN_CHARACTERS + 6.2),
            ylim=(len(cuts) - 0.4, -0.6),
            title="One text, many cuts",
        )
        ax.axis("off")
        for row, cut in enumerate(cuts):
            count = "refused" if cut.refused else f"{len(cut.tokens)} tokens"
            ax.text(-0.6, row, cut.name, ha="right", va="center", color=QUIET)
            ax.text(_DRAWN_CHARACTERS + 0.6, row, count, va="center", weight="bold")
            _draw_row(ax, row, text, cut.tokens)
    return figure


def _draw_row(ax: Axes, row: int, text: str, tokens: list[bytes]) -> None:
    """Boxes over the characters; the bytes of one character share its box."""
    known = get_font(findfont(FontProperties(family=_MONO)))
    places = []  # of each byte
    for place, c in enumerate(text[:_DRAWN_CHARACTERS]):
        places += [place] * len(c.encode())
    start = 0
    for number, token in enumerate(tokens):
        inside = places[start : start + len(token)]
        if not inside:
            break
        share = places.count(inside[0])  # bytes of the first character
        width = inside[-1] - inside[0] + 1 if len(token) >= share else len(token) / share
        left = inside[0] + (start - places.index(inside[0])) / share
        color = SERIES[0] if number % 2 else QUIET
        shape = {"fc": f"{color}2e", "ec": color, "linewidth": 1, "snap": True}
        ax.add_patch(Rectangle((left + 0.06, row - 0.33), width - 0.12, 0.66, **shape))
        start += len(token)
    for place, c in enumerate(text[:_DRAWN_CHARACTERS] if tokens else ""):
        sign = _SIGNS.get(c, c if known.get_char_index(ord(c)) else "□")
        how = {
            "family": _MONO,
            "size": 13,
            "color": QUIET if c in _SIGNS else INK,
            "parse_math": False,
        }
        ax.text(place + 0.5, row, sign, ha="center", va="center_baseline", **how)
