"""One text cut into tokens in several ways, and the merges of byte-pair encoding replayed on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import Rectangle

from ...layers import pick
from ...text.base import Tokenizer
from ...text.bpe import BPETokenizer, merge
from ...text.cutting import pre_tokens
from ..display.cards import number_table
from ..display.figures import framed
from ..display.numbers import fixed
from ..display.theme import INK, QUIET, SERIES, STYLE
from .base import View

MOST_CHARACTERS, MOST_MERGES = 200, 600
DRAWN_CHARACTERS, LISTED_MERGES = 36, 6
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
NAMES = {"bytes": "bytes", "chars": "characters", "words": "words", "bpe": "BPE"}
BYTES_OF = {
    "bytes": lambda tokenizer, token: bytes([token]),
    "chars": lambda tokenizer, token: tokenizer.characters[token].encode(),
    "words": lambda tokenizer, token: tokenizer.words[token].encode(),
    "bpe": lambda tokenizer, token: tokenizer.vocab[token],
}


class Shown(NamedTuple):
    """One text as it is cut: for each tokenizer its ids and its tokens, or None and why it refuses the text."""

    text: str
    tokenizers: Sequence[Tokenizer]
    ids: list[list[int] | None]
    tokens: list[list[bytes]]
    refused: list[str]

    @property
    def says(self) -> str:
        """How many tokens each makes of it, in plain words."""
        parts = [
            f"{NAMES[tokenizer.kind]} {'refuse it' if ids is None else len(ids)}"
            for tokenizer, ids in zip(self.tokenizers, self.ids, strict=True)
        ]
        return f"{len(self.text)} characters, {len(self.text.encode())} bytes; tokens: {', '.join(parts)}."


def token_view(texts: Mapping[str, str], tokenizers: Sequence[Tokenizer]) -> View:
    """Texts cut by several tokenizers as a view, with a slider that replays the merges of the BPE among them.

    texts: by the name that the view gives them; the picture shows the first. tokenizers: at most one of each kind.
    Beside a kernel a reader may type another text.
    Raises: ValueError or TypeError for a text that is empty, too long or not Unicode, for no text or tokenizer, two of
    a kind, an unknown kind, and for more than 600 merges.
    """
    kinds = [tokenizer.kind for tokenizer in tokenizers]
    if not texts or not kinds or len(set(kinds)) < len(kinds):
        raise ValueError(f"give at least one text and one tokenizer of each kind: {len(texts)} texts, kinds {kinds}")
    for kind in kinds:
        pick(BYTES_OF, kind, "kind of tokenizer")
    merging = next((one for one in tokenizers if isinstance(one, BPETokenizer)), None)
    shown = {name: _cut(text, tokenizers) for name, text in texts.items()}
    data = {"cuts": [{"kind": one.kind, "name": NAMES[one.kind], "vocab_size": one.vocab_size} for one in tokenizers]}
    data |= {"bpe": _rules(merging), "texts": [{"name": name, **_stored(one, merging)} for name, one in shown.items()]}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return {"own": {"name": "yours", **_stored(_cut(request.get("text"), tokenizers), merging)}}

    first = next(iter(shown.values()))
    text = f"A text cut into tokens: {first.says}"
    return View("token", data, html=_figure_html(shown, merging), text=text, answer=answer)


def _cut(text: Any, tokenizers: Sequence[Tokenizer]) -> Shown:
    if not isinstance(text, str):
        raise TypeError(f"the text must be a str, got {type(text).__name__}")
    if not text:
        raise ValueError("the text is empty: write at least one character")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the text has {len(text)} characters, and the view shows {MOST_CHARACTERS}: shorten it")
    if half := next((c for c in text if "\ud800" <= c <= "\udfff"), ""):
        raise ValueError(f"the text holds half a character, U+{ord(half):04X}, which UTF-8 cannot write: take it out")
    shown = Shown(text, tokenizers, [], [], [])
    for tokenizer in tokenizers:
        try:
            ids, why = tokenizer.encode(text), ""
        except ValueError as e:
            ids, why = None, str(e)
        shown.ids.append(ids)
        shown.tokens.append([BYTES_OF[tokenizer.kind](tokenizer, token) for token in ids or ()])
        shown.refused.append(why)
    return shown


def _stored(shown: Shown, merging: BPETokenizer | None) -> dict[str, Any]:
    cuts = [
        {"refused": why} if ids is None else {"ids": ids, "sizes": [len(token) for token in tokens]}
        for ids, tokens, why in zip(shown.ids, shown.tokens, shown.refused, strict=True)
    ]
    return {"text": shown.text, "cuts": cuts, "pieces": _pieces(shown.text, merging)}


def _pieces(text: str, merging: BPETokenizer | None) -> list[str]:
    return pre_tokens(text, merging.special_tokens) if merging else []


def _rules(merging: BPETokenizer | None) -> dict[str, Any]:
    """What the script needs to apply merges: the ids of the 256 bytes, of each pair and what it becomes."""
    if merging is None:
        return {"bytes": [], "merges": [], "special": {}}
    if len(merging.merges) > MOST_MERGES:
        raise ValueError(
            f"the BPE has {len(merging.merges):,} merges, and the view replays {MOST_MERGES:,}: train a smaller one"
        )
    ids = merging.ids
    merges = [[ids[first], ids[second], ids[first + second]] for first, second in merging.merges]
    return {"bytes": [ids[bytes([b])] for b in range(256)], "merges": merges, "special": merging.special_ids}


def joins(text: str, bpe: BPETokenizer) -> Counter:
    """How many places of a text each merge joins, by the merge's rank."""
    ranks = {pair: rank for rank, pair in enumerate(bpe.merges)}
    counts: Counter[int] = Counter()
    for piece in _pieces(text, bpe):
        tokens = [bytes([b]) for b in piece.encode()] if piece not in bpe.special_ids else []
        while found := [pair for pair in pairwise(tokens) if pair in ranks]:
            first = min(found, key=ranks.__getitem__)
            before, tokens = tokens, merge(tokens, first)
            counts[ranks[first]] += len(before) - len(tokens)
    return counts


def _figure_html(texts: Mapping[str, Shown], merging: BPETokenizer | None) -> str:
    shown = next(iter(texts.values()))
    rows = [
        [name, NAMES[one.kind], f"{one.vocab_size:,}", *_counts(len(each.text), ids)]
        for name, each in texts.items()
        for one, ids in zip(each.tokenizers, each.ids, strict=True)
    ]
    tables = [number_table(["text", "cut into", "different ids", "tokens", "characters per token"], rows)]
    if merging:
        counts = joins(shown.text, merging)
        lines = []
        for rank in sorted(counts)[:LISTED_MERGES]:
            left, right = merging.merges[rank]
            lines.append([str(rank + 1), *map(_readable, (left, right, left + right)), str(counts[rank])])
        tables += ["<p>The first merges that join something in the first text:</p>"]
        tables += [number_table(["merge", "left", "right", "new token", "places"], lines)]
    caption = (
        "The beginning of the text, each box one token; ␣ is a blank, and belongs to the word after it. "
        f"The whole text: {shown.says}"
    )
    alt = f"The same text cut into tokens, one line for each way. {shown.says}"
    return framed(_draw(shown), alt, caption, "".join(tables), flat=True)


def _counts(n_characters: int, ids: list[int] | None) -> list[str]:
    return ["refused", ""] if ids is None else [str(len(ids)), fixed(n_characters / len(ids), 1)]


def _readable(token: bytes) -> str:
    """A token as it can be seen: signs for blanks, and bytes that are no character by their hexadecimal numbers."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return token.hex(" ").upper()
    return "".join(SIGNS.get(c, c) for c in text)


def _draw(shown: Shown) -> Figure:
    places = [place for place, c in enumerate(shown.text[:DRAWN_CHARACTERS]) for _ in c.encode()]  # of each byte
    with style.context(["default", STYLE]):
        figure = Figure(figsize=(9.6, 0.9 + 0.48 * len(shown.tokens)), layout="constrained")
        ax = figure.subplots()
        ax.set(xlim=(-7.2, DRAWN_CHARACTERS + 6.2), ylim=(len(shown.tokens) - 0.4, -0.6), title="One text, many cuts")
        ax.axis("off")
        for row, (one, tokens) in enumerate(zip(shown.tokenizers, shown.tokens, strict=True)):
            ax.text(-0.6, row, NAMES[one.kind], ha="right", va="center", color=QUIET)
            ax.text(
                DRAWN_CHARACTERS + 0.6,
                row,
                f"{len(tokens)} tokens" if tokens else "refused",
                va="center",
                weight="bold",
            )
            _draw_row(ax, row, shown.text, places, tokens)
    return figure


def _draw_row(ax: Axes, row: int, text: str, places: list[int], tokens: list[bytes]) -> None:
    """Boxes over the characters; the bytes of one character share its place."""
    known = get_font(findfont(FontProperties(family="DejaVu Sans Mono")))
    start = 0
    for number, token in enumerate(tokens):
        inside = places[start : start + len(token)]
        start += len(token)
        if not inside:
            break
        share = sum(place == inside[0] for place in places)  # bytes of the first character
        width = inside[-1] - inside[0] + 1 if len(token) >= share else len(token) / share
        left = inside[0] + (start - len(token) - places.index(inside[0])) / share
        color = SERIES[0] if number % 2 else QUIET
        ax.add_patch(
            Rectangle((left + 0.06, row - 0.33), width - 0.12, 0.66, fc=f"{color}2e", ec=color, linewidth=1, snap=True)
        )
    for place, c in enumerate(text[:DRAWN_CHARACTERS] if tokens else ""):
        sign = SIGNS.get(c, c if known.get_char_index(ord(c)) else "□")
        ax.text(place + 0.5, row, sign, ha="center", va="center_baseline", family="DejaVu Sans Mono", size=13,
                color=QUIET if c in SIGNS else INK, parse_math=False)  # fmt: skip
