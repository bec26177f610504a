"""Story threads as a drawing: which earlier words a model looks at before a word that they
determine.
"""

from collections.abc import Sequence
from html import escape
from itertools import takewhile
from typing import NamedTuple

import torch
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from torch import Tensor

from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld import told_by, words
from tinylm_lib.text.base import Tokenizer

from ..shapes.capture import capture

CLEAR = 0.4  # the least attention weight that becomes a thread
# in units of the drawing: letters, lines, space between words, in a box
SIZE = 23
LEADING = 56
GAP = 3
PADDING = 6
HEAD_STEP = 7  # how far apart the threads of two heads begin


class Thread(NamedTuple):
    """One head's attention weight on the word at position `source`, when it predicts the word at
    `target`.
    """

    head: int
    source: int
    target: int
    weight: float


class Box(NamedTuple):
    """Where a word is: its left end, its width, and its line, counted from 0."""

    left: float
    width: float
    line: int

    @property
    def middle(self) -> float:
        """The middle of the word, from the left."""
        return self.left + self.width / 2


@torch.no_grad()
def clear_threads(model: TransformerLM, tokenizer: Tokenizer, story: str) -> list[Thread]:
    """The clear threads of the last layer to words of a story that earlier words determine.

    story: begins with a line end, and each of its words is a token.
    """
    ids = torch.tensor([tokenizer.encode(story)])  # (B, T)
    weights: Tensor = capture(model, ids).attention(model.config.n_layers - 1).weights[0]
    told = told_by(story)[: ids.shape[1] - 1]
    found: list[Thread] = []
    for place, sources in enumerate(told):
        for source in sources:
            of_heads = weights[:, place, source].tolist()
            found += [Thread(head, source, place + 1, w) for head, w in enumerate(of_heads)]
    return [thread for thread in found if thread.weight >= CLEAR]


def threads_drawing(story: str, threads: Sequence[Thread], width: int) -> str:
    """A story as SVG, `width` units wide: determined words are boxes, and a thread leads to each
    from its source.

    The colours are those of the page: its custom properties and the classes `source`, `target` and
    `head-0`, ...
    """
    said = words(story)
    kinds = [""] * len(said)
    for thread in threads:
        kinds[thread.source] = "source"
    for thread in threads:  # a word that is both is a target
        kinds[thread.target] = "target"
    boxes = _boxes(said, kinds, width)
    height = (boxes[-1].line + 1) * LEADING
    drawn = [_curve(thread, boxes) for thread in threads]
    for word, kind, box in list(zip(said, kinds, boxes, strict=True))[1:]:
        y = box.line * LEADING + SIZE
        if kind == "target":
            drawn.append(
                f'<rect x="{box.left:.0f}" y="{y - SIZE}" width="{box.width:.0f}" height="32" '
                'rx="7"/>'
            )
        drawn.append(
            f'<text class="{kind}" x="{box.middle:.0f}" y="{y}">{escape(word.strip())}</text>'
        )
    label = escape(f"A story, with threads between its words: {story.strip()}")
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {width} {height}">'
        f"{''.join(drawn)}</svg>"
    )


def _boxes(said: Sequence[str], kinds: Sequence[str], width: float) -> list[Box]:
    """Sets the words in lines; a mark stays on the line of its word, and outside of its box."""
    widths = [
        _width(word.strip(), "bold" if kind else "normal") + 2 * PADDING
        for word, kind in zip(said, kinds, strict=True)
    ]
    boxes = [Box(0, 0, 0)]
    left = PADDING
    line = 0
    for i, word in enumerate(said[1:], start=1):
        is_apart = word.startswith(" ")
        marks = takewhile(lambda j: not said[j].startswith(" "), range(i + 1, len(said)))
        if is_apart:
            left += GAP
        elif kinds[i - 1] == "target":
            left -= PADDING
        else:
            left -= 2 * PADDING
        if is_apart and left + widths[i] + sum(widths[j] - 2 * PADDING for j in marks) > width:
            left = -PADDING
            line = line + 1
        boxes.append(Box(left, widths[i], line))
        left += widths[i]
    return boxes


def _width(word: str, weight: str) -> float:
    font = FontProperties(family="DejaVu Sans", weight=weight, size=SIZE)
    return TextToPath().get_text_width_height_descent(word, font, False)[0]


def _curve(thread: Thread, boxes: Sequence[Box]) -> str:
    """From below the source to the target: an arc below their line, or down to a later line."""
    source = boxes[thread.source]
    target = boxes[thread.target]
    shift = (thread.head - 1.5) * HEAD_STEP
    x1 = source.middle + shift
    x2 = target.middle + shift
    below = [box.line * LEADING + 33 for box in (source, target)]
    alike = source.line == target.line
    y1 = below[0]
    y2 = below[1] if alike else below[1] - 33
    bend = 26 if alike else max(20, (y2 - y1) / 2)
    path = (
        f"M{x1:.0f} {y1}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 + (bend if alike else -bend):.0f} "
        f"{x2:.0f} {y2}"
    )
    style = f"stroke-width:{1.5 + 7 * thread.weight**2:.1f};--at:{thread.target}"
    return f'<path class="head-{thread.head}" pathLength="1" style="{style}" d="{path}"/>'
