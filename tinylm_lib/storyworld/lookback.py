"""Where a reader of StoryWorld has to look: which words determine the next one, and how much
attention goes there.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from ..text.cutting import words
from .scenes import Slot, choices
from .stories import Reader

DeterminingPositions = Sequence[Sequence[int]]


def told_by(text: str) -> list[tuple[int, ...]] | None:
    """For each word of a story's beginning, the positions of those words up to it that determine
    the word after it.

    Empty where the next word is new, or not yet decided; None for anything but the beginning of one
    story. A line end before the story counts as a word. Positions are those in `words(text)`.
    """
    heard = words(text)
    first = int(heard[:1] == ["\n"])
    slots = _slots(heard[first:])
    if slots is None or "\n" in heard[first:-1]:
        return None
    mentions: dict[str, list[int]] = {}
    tells: list[tuple[int, ...]] = [()] * first
    for position, slot in enumerate(slots, start=first):
        tells.append(tuple(mentions.get(slot.role, ())) if slot.kind else ())
        if slot.role:
            mentions.setdefault(slot.role, []).append(position)
    return tells[1:]


def _slots(heard: Sequence[str]) -> list[Slot] | None:
    """What each word is in its sentence, and the word after the last; no slot for a word that may
    be several things.
    """
    reader = Reader()
    whole = list[Slot]()
    count = 0
    for word in heard:
        before = reader.readings
        if not reader.read(word):
            return None
        count += 1
        if all(reading.n_read == 0 for reading in reader.readings):
            option = next(
                r.option for r in before if word in choices(r.option.slots[r.n_read], r.role_words)
            )
            whole += option.slots
    begun = [reading.option.slots for reading in reader.readings]
    sure = [_agreed([slots[at] for slots in begun]) for at in range(count - len(whole) + 1)]
    return [*whole, *sure]


def _agreed(slots: Sequence[Slot]) -> Slot:
    same = {(slot.role, slot.kind) for slot in slots}
    return slots[0] if len(same) == 1 else Slot("")


class AttentionFraction(NamedTuple):
    """Which fraction of the attention goes to the determining words, of each head (...), and when
    all get the same.
    """

    heads: Tensor
    equal: float


def share_told(weights: Tensor, determining: DeterminingPositions) -> AttentionFraction:
    """The mean over all words whose next one is determined; weights (..., T, S).

    Raises ValueError for a text in which no next word is determined.
    """
    rows = [(i, list(positions)) for i, positions in enumerate(determining) if positions]
    if not rows:
        raise ValueError(
            "no word of the text is determined by earlier ones: take a longer piece of the story"
        )
    heads = sum(weights[..., i, positions].sum(-1) for i, positions in rows) / len(rows)
    return AttentionFraction(
        heads, sum(len(positions) / (i + 1) for i, positions in rows) / len(rows)
    )
