"""The pictures of lesson 01: what a model reads, how numbers and scripts are cut, how tokens grow,
and what a cut does to the loss.
"""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from tinylm_lib.text.bpe import BPETokenizer

from ..display.figures import axes, display, drawing, ink_on, unframed
from ..display.theme import HEAT, INK, QUIET, SERIES
from .lettering import LEVEL, hide_axes, set_type

_WIDTH = 11.4
_WHOLE = SERIES[0]
_HIDDEN = SERIES[1]
_HARDEST = 4.0  # nats: the darkest ground


def reads(tokenizer: BPETokenizer, word: str, letter: str = "") -> None:
    """Shows the ids of a word, one box each.

    letter: shows the tokens above the boxes, too, and marks those that are this letter or contain
    it.
    """
    ids = tokenizer.encode(word)
    tokens = [tokenizer.decode([i]) for i in ids]
    title = "A letter inside of a longer token is hidden" if letter else "What a model reads"
    with drawing(_WIDTH, 3.0) as figure:
        ax = figure.subplots()
        for at, (i, token) in enumerate(zip(ids, tokens, strict=True)):
            color = "white"
            if letter and letter in token:
                color = _WHOLE if token == letter else _HIDDEN
            _box(ax, at, 0, 1, str(i), color, 26)
            if letter:
                style = {"family": "monospace", "size": 32, "ha": "center"}
                ax.text(at + 0.5, -0.55, token, va="baseline", **style)
        ax.set(xlim=(0, len(ids)), ylim=(0.5, -1.25), xlabel="token", ylabel="id")
        ax.set_title(title, size=24)
        hide_axes(ax)
    alone = [i for i, token in zip(ids, tokens, strict=True) if token == letter]
    inside = [i for i, token in zip(ids, tokens, strict=True) if letter in token != letter]
    caption = f"A word as a model reads it: {len(ids)} numbers."
    if letter:
        caption = (
            f"Blue: {letter} is a token of its own ({len(alone)} times in this word). Orange: it "
            f"is inside of a longer token (number of such tokens: {len(inside)})."
        )
    table: dict[str, list] = {"id": list(ids)}
    if letter:
        table["token"] = [repr(token) for token in tokens]
    display(
        figure,
        alt=f"A row of boxes with the ids {', '.join(map(str, ids))}. {caption}",
        caption=caption,
        table=table,
    )


def numbers(tokenizer: BPETokenizer, first: int) -> None:
    """Shows how ten numbers from `first` on are cut, each with a space before it."""
    rows = []
    for number in range(first, first + 10):
        rows.append([tokenizer.decode([i]).strip() for i in tokenizer.encode(f" {number}")])
    with drawing(_WIDTH, 4.4) as figure:
        ax = figure.subplots()
        for at, tokens in enumerate(rows):
            begin = 7.0 * (at // 5)
            for digits in tokens:
                if digits:  # the space alone is not drawn
                    color = _WHOLE if len(digits) > 1 else "white"
                    _box(ax, begin, at % 5, len(digits), digits, color, 25)
                begin += len(digits)
        ax.set(xlim=(-2, 13), ylim=(4.6, -0.6), xlabel="digits", ylabel="number")
        ax.set_title("Cut by frequency, not by value", size=24)
        hide_axes(ax)
    cuts = ["|".join(filter(None, tokens)) for tokens in rows]
    display(
        figure,
        alt=f"Ten numbers, each a row of boxes for its tokens: {', '.join(cuts)}.",
        caption="Each box is one token; blue ones contain several digits.",
        table={"number": [str(first + i) for i in range(10)], "cut": cuts},
    )


def scripts(greetings: Mapping[str, str], tokenizer: BPETokenizer) -> None:
    """Shows how many tokens a greeting has in each language, {language: greeting}."""
    found = {name: len(tokenizer.encode(text)) for name, text in greetings.items()}
    with axes("Other scripts take more tokens", "tokens", " ", (_WIDTH, 4.4)) as (figure, ax):
        ax.barh(range(len(found)), list(found.values()), 0.66, color=_WHOLE)
        for row, n in enumerate(found.values()):
            ax.text(n + 0.5, row, str(n), va="center", size=20, weight="bold")
        names = [f"{name}, {len(greetings[name])} characters" for name in found]
        ax.set_yticks(range(len(found)), names)
        ax.set(ylim=(len(found) - 0.5, -0.5), xlim=(0, 1.1 * max(found.values())))
        ax.grid(axis="y", visible=False)
        set_type(ax, 19)
    listed = ", ".join(f"{name} {n}" for name, n in found.items())
    display(
        figure,
        alt=f"Bars: the number of tokens of the same greeting in each language: {listed}.",
        caption="*Good morning* in six languages, cut by a tokenizer that has read English only.",
        table={
            "language": list(found),
            "greeting": list(greetings.values()),
            "characters": list(map(len, greetings.values())),
            "bytes": [len(text.encode()) for text in greetings.values()],
            "tokens": list(found.values()),
        },
    )


def growing(
    byte_ids: list[int], learn: Callable[[list[int], int], tuple[list[int], dict]], n_merges: int
) -> None:
    """Shows a text after 0, 1, 2, ... merges, a row of tokens each; what a merge has just made is
    blue.

    learn: from ids and a number of merges to the merged ids, and the bytes of each id.
    """
    rows = []
    for n in range(n_merges + 1):
        ids, vocab = learn(byte_ids, n)
        rows.append([vocab[i].decode() for i in ids])
    with drawing(_WIDTH, 0.8 + 0.72 * len(rows)) as figure:
        ax = figure.subplots()
        known: set[str] = set(rows[0])
        for row, tokens in enumerate(rows):
            begin = 0
            for token in tokens:
                color = "white" if token in known else _WHOLE
                _box(ax, begin, row, len(token), token.replace(" ", "␣"), color, 25)
                begin += len(token)
            ax.text(begin + 0.4, row, f"{len(tokens)} tokens", va="center", size=20)
            known |= set(tokens)
        n = sum(map(len, rows[0]))
        ax.set(xlim=(0, n + 4.2), ylim=(len(rows) - 0.4, -0.6), xlabel="text", ylabel="merges")
        ax.set_title("Each merge makes one new token", size=24)
        hide_axes(ax)
    cuts = ["|".join(tokens) for tokens in rows]
    display(
        figure,
        alt=f"A text in boxes, after each merge: {'; '.join(cuts)}.",
        caption="A row for each merge, from none on. Blue is what the merge of this row has made.",
        table={"merges": list(range(len(rows))), "text": cuts, "tokens": list(map(len, rows))},
    )


def same_sum(cuts: Mapping[str, tuple[Sequence[str], Sequence[float]]]) -> None:
    """Shows one text in several cuts, {cut: (tokens, loss of each)}, with the sums of the losses at
    the right.
    """
    with drawing(_WIDTH, 4.6) as figure:
        ax = figure.subplots()
        for row, (tokens, losses) in enumerate(cuts.values()):
            begin = 0
            for token, loss in zip(tokens, losses, strict=True):
                ground = HEAT(min(1.0, loss / _HARDEST))
                _box(ax, begin, row, len(token), token, ground, 21)
                begin += len(token)
            ax.text(
                begin + 0.8, row, f"{sum(losses):.2f} nats", va="center", size=21, weight="bold"
            )
        n = sum(map(len, next(iter(cuts.values()))[0]))
        ax.set(xlim=(0, n + 10), ylim=(len(cuts) - 0.4, -0.6), xticks=[], ylabel=" ")
        ax.set_title("Cut it as you like: the loss is the same", size=24)
        ax.set_xlabel("darker: harder to predict", size=20)
        names = [f"{name}\n{len(tokens)} tokens" for name, (tokens, _) in cuts.items()]
        ax.set_yticks(range(len(cuts)), names, size=19)
        ax.grid(visible=False)
        unframed(ax)
    display(
        figure,
        alt=(
            f"The beginning of a story {len(cuts)} times, cut into {', '.join(cuts)}. Darker "
            "pieces are harder to predict: the whole word, or its first letters. The sum at the "
            "right is the same."
        ),
        caption=(
            "One text, several cuts. In the last row the first characters of a word have all of "
            "its loss, and the others are certain. The sums are equal."
        ),
        table={
            "cut": list(cuts),
            "tokens": [len(tokens) for tokens, _ in cuts.values()],
            "nats": [f"{sum(losses):.4f}" for _, losses in cuts.values()],
        },
    )


def by_text_seen(letters: Tensor, tokens: Mapping[str, tuple[float, Tensor]], floor: float) -> None:
    """Shows the loss of a story for readers who know the last 1, 2, ... letters, (letters, seeds),
    and for readers who know the last token, {tokenizer: (letters of a token, losses by seed)}.
    """
    with axes(
        "What counts is how much text is in view", "letters of the text in view",
        "nats per story", (_WIDTH, 5.4),
    ) as (figure, ax):  # fmt: skip
        known = range(1, len(letters) + 1)
        ax.plot(known, letters.mean(1), color=_WHOLE, linestyle="-", linewidth=3)
        for k, row in zip(known, letters, strict=True):
            ax.plot([k] * len(row), row, "o", color=_WHOLE, markersize=11)
        for name, (size, losses) in tokens.items():
            ax.plot([size] * len(losses), losses, "D", color=_HIDDEN, markersize=12)
            middle = losses.mean().item()
            at = {"color": _HIDDEN, "size": 20, "ha": "right", "va": "top"}
            ax.text(size - 0.1, middle - 18, name, **at)
        ax.axhline(floor, **LEVEL)
        ax.text(known[-1], floor + 14, "floor", size=20, ha="right", va="bottom", color=QUIET)
        ax.text(2.1, letters[1].mean() + 60, "the last letters", color=_WHOLE, size=22)
        ax.set(ylim=(0, 1200), xlim=(0.4, len(letters) + 0.4), xticks=list(known))
        set_type(ax, 20)
    table: dict[str, list] = {"last": ["1 letter", *(f"{k} letters" for k in known[1:])]}
    table["last"] += [f"token of {name}" for name in tokens]
    table["letters in it"] = [*map(str, known), *(f"{size:.1f}" for size, _ in tokens.values())]
    rows = [*letters, *(losses for _, losses in tokens.values())]
    table["nats per story"] = [", ".join(f"{x:.0f}" for x in row) for row in rows]
    display(
        figure,
        alt=(
            "The loss of a story falls with the number of letters that a reader knows, from about "
            "1,120 to about 200 nats. Readers who know the last token lie near this curve, at the "
            "number of letters that their tokens have. The floor is far below."
        ),
        caption=(
            f"Readers who count in 2,000 stories and are tested on others, {letters.shape[1]} sets "
            "of each. Blue: they know the last letters. Orange: they know the last token, drawn at "
            "the number of letters that it has on average."
        ),
        table=table,
    )


def _box(ax: Axes, x: float, y: float, width: float, text: str, color: object, size: float) -> None:
    """A token as a box, its text spread over the width so that letters of all rows are aligned."""
    shape = Rectangle((x + 0.05, y - 0.36), width - 0.1, 0.72, facecolor=color, edgecolor=QUIET)
    ax.add_patch(shape)
    ink = ink_on(shape.get_facecolor())
    style = {"color": INK if ink == "black" else ink, "ha": "center", "va": "center_baseline"}
    if width == 1:
        ax.text(x + 0.5, y, text, family="monospace", size=size, **style)
        return
    for i, letter in enumerate(text):
        ax.text(x + i + 0.5, y, letter, family="monospace", size=size, **style)
