"""What the lines of a traced source made, round by round, and how their margin says it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import chain, combinations, groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from .comments import Comment, Letters, Shape, Size
from .letters import axis_names, chips, legend, spelled, used_letters

# of a tuple, and of a loop whose rounds differ, that are written out
MOST_PARTS = 4
MOST_ROUNDS = 3
ALIKE = ({"T", "S"}, {"G", "H"})  # letters that often have one size for a good reason

_LIE = '<b style="color:#fff;background:#b3400b;border-radius:4px;padding:1px 6px">{}</b>'
_PALE = '<span style="opacity:0.75">{}</span>'


class Made(NamedTuple):
    """A tensor that a line made, of some kind, or a whole number as a text."""

    size: Size | None
    kind: str


class Round(NamedTuple):
    """What a line made in the rounds `first` to `last`, and how its comment and the letters known
    there name it.
    """

    first: int
    last: int
    made: tuple[Made, ...]
    said: tuple[Shape, ...]
    letters: Letters


@dataclass
class Recording:
    """The rounds of every line, by its number. background: letters for axes that nothing else
    names.
    """

    background: Mapping[str, int]
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    arguments: dict[int, list[tuple[str, Round]]] = field(default_factory=dict)
    comments: dict[int, Comment] = field(default_factory=dict)
    latest: tuple[int, Any] = (0, None)  # the newest line and its value
    letters: Letters = field(default_factory=dict)

    def note(self, comment: Comment, value: Any, letters: Letters) -> None:
        """Keeps the shapes of what a line has made."""
        number = comment.line
        made = tuple(_made(value))
        self.latest = (number, value)
        self.letters = {**self.letters, **letters}
        self.comments[number] = comment
        rounds = self.rounds.setdefault(number, [])
        if rounds and rounds[-1].made == made:
            rounds[-1] = rounds[-1]._replace(last=rounds[-1].last + 1)
        else:
            n = rounds[-1].last + 1 if rounds else 1
            rounds.append(
                Round(n, n, made, () if comment.lie else tuple(comment.results), dict(letters))
            )

    def note_arguments(self, number: int, arguments: Mapping[str, Any], letters: Letters) -> None:
        """Keeps the shapes of what flows in, for the line of the `def`."""
        made = [
            (name, Round(1, 1, tuple(_made(value)), (), dict(letters)))
            for name, value in arguments.items()
        ]
        self.arguments[number] = [
            (name, one) for name, one in made if any(part.size for part in one.made)
        ]

    def margin(self, number: int, details: bool) -> list[tuple[str, str]]:
        """What is written at the margin of a line, as plain text and as HTML, top down."""
        given = self.arguments.get(number, ())
        found: list[tuple[str, str]] = []
        for name, one in given:
            found += self._written(one, details, f"{name} ")
        rounds = [one for one in self.rounds.get(number, ()) if one.made]
        if len(rounds) > 1 and not _has_tensors(rounds):
            rounds = []  # a counter
        comment = self.comments.get(number)
        many = len(rounds) > MOST_ROUNDS
        mark = "✓ " if comment and comment.results and not comment.lie else ""
        for one in [*rounds[: MOST_ROUNDS - 1], rounds[-1]] if many else rounds:
            last = one is rounds[-1]
            if last and many:
                found.append(("...", "&hellip;"))
            if one.first == 1 and last:
                found += self._written(one, details, mark, f" × {one.last}" if one.last > 1 else "")
            else:
                which = f"round {one.first}"
                if one.first != one.last:
                    which = f"rounds {one.first} to {one.last}"
                which += ", the last" if last else ""
                found += self._written(one, details, f"{mark}{which}: ")
        if comment and comment.lie:
            lie = f"✗ the comment says {comment.text.lstrip('# ')}"
            found.append((lie, _LIE.format(escape(lie))))
        return found

    def _written(
        self, one: Round, details: bool, before: str = "", behind: str = ""
    ) -> list[tuple[str, str]]:
        """Returns one line for each part, or for several alike in a row."""
        lines = []
        grouped = [
            (part, names, len(list(same))) for (part, names), same in groupby(self._named(one))
        ]
        for part, names, n in grouped[:MOST_PARTS]:
            if part.size is None:
                text = part.kind
                html = escape(part.kind)
                after = behind
            else:
                text = spelled(part.size, names)
                if n > 1:
                    text = f"{n} × {text}"
                html = chips(text)
                after = f" {part.kind}{behind}" if details else behind
            pale = [_PALE.format(escape(words)) if words else "" for words in (before, after)]
            lines.append((f"{before}{text}{after}", f"{pale[0]}{html}{pale[1]}"))
        if len(grouped) > MOST_PARTS:
            lines.append((f"and {sum(n for _, _, n in grouped[MOST_PARTS:])} more",) * 2)
        return lines

    def _named(self, one: Round) -> Iterator[tuple[Made, Shape]]:
        """Yields the parts of a round, each tensor with the names of its axes."""
        said = one.said * (len(one.made) if len(one.said) == 1 else 1)
        for place, part in enumerate(one.made):
            own = said[place] if len(said) == len(one.made) else ()
            yield part, () if part.size is None else axis_names(part.size, self._known(one), own)

    def _known(self, one: Round) -> Letters:
        return {**self.background, **self.letters, **one.letters}

    def legend(self, more: Letters) -> list[tuple[str, str]]:
        """The letters that occur, and more, with what they are and their size, where that is one
        size throughout.
        """
        sizes = {**{letter: {n} for letter, n in more.items()}, **self._sizes()}
        return legend(
            sizes, {letter: next(iter(found)) for letter, found in sizes.items() if len(found) == 1}
        )

    def note_on_doubles(self) -> str:
        """A sentence about letters of one size: only their order in the legend tells them apart."""
        sizes = self._sizes()
        pairs = [pair for pair in combinations(used_letters(sizes), 2) if {*pair} not in ALIKE]
        alike = [
            f"{a} = {b} = {next(iter(sizes[a]))}" for a, b in pairs if sizes[a] == sizes[b] != {1}
        ]
        many = " and ".join(alike)
        return (
            f"Here {many}: with sizes that differ, no letter could be mistaken for another."
            if alike
            else ""
        )

    def _sizes(self) -> dict[str, set[int]]:
        """Returns the sizes at which each letter occurs."""
        sizes: dict[str, set[int]] = {}
        given = [one for _, one in chain.from_iterable(self.arguments.values())]
        for one in [*chain.from_iterable(self.rounds.values()), *given]:
            for part, names in self._named(one):
                for name, n in zip(names, part.size or (), strict=True):
                    for letter in used_letters([name]):
                        n = n if name == letter else self._known(one).get(letter)
                        sizes.setdefault(letter, set()).update([n] if n else [])
        return sizes


def _has_tensors(rounds: list[Round]) -> bool:
    made = chain.from_iterable(one.made for one in rounds)
    return any(part.size is not None for part in made)


def _made(value: Any) -> list[Made]:
    """Returns the tensors in a value, or a whole number; nothing for anything else."""
    if isinstance(value, torch.Tensor):
        return [
            Made(tuple(value.shape), f"{str(value.dtype).removeprefix('torch.')} {value.device}")
        ]
    if isinstance(value, np.ndarray):
        return [Made(value.shape, str(value.dtype))]
    if isinstance(value, torch.Size):
        return [Made(tuple(value), "torch.Size")]
    if isinstance(value, bool | int):
        return [Made(None, str(value))]
    if not isinstance(value, tuple | list) or len(value) > 10_000:
        return []
    made = list(chain.from_iterable(map(_made, value)))
    return made if any(part.size is not None for part in made) else []
