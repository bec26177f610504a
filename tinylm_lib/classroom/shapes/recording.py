"""What the lines of a traced source made, round by round, and how that is written at their margin."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import combinations, groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from .comments import Comment, Letters, Shape, Size
from .letters import axis_names, explained, spelled, spelled_html, used_letters

MOST_PARTS, MOST_ROUNDS = 4, 3  # of a tuple, and of a loop whose rounds differ, that are written out
ALIKE = ({"T", "S"}, {"G", "H"})  # letters that often have one size for a good reason

LIE = "color:#fff;background:#b3400b;border-radius:4px;padding:1px 6px"
QUIET = '<span style="opacity:0.75">{}</span>'


class Line(NamedTuple):
    """One line of a source: its number, its text, its highlighted text, and whether it should have run but did not."""

    number: int
    text: str
    html: str
    is_idle: bool


class Part(NamedTuple):
    """A tensor that a line made, of some kind, or a whole number as a text."""

    size: Size | None
    kind: str


class Round(NamedTuple):
    """What a line made in the rounds `first` to `last`, and how its comment and the letters known there name it."""

    first: int
    last: int
    made: tuple[Part, ...]
    said: tuple[Shape, ...]
    letters: Letters


@dataclass
class Recording:
    """The rounds of every line, by its number. background: letters for axes that nothing else names."""

    background: Mapping[str, int]
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    arguments: dict[int, list[tuple[str, Round]]] = field(default_factory=dict)
    true: set[int] = field(default_factory=set)  # lines whose shape comment has come true
    lies: dict[int, str] = field(default_factory=dict)
    latest: tuple[int, Any] = (0, None)  # the newest line and its value
    letters: Letters = field(default_factory=dict)

    def note(self, comment: Comment, value: Any, letters: Letters) -> None:
        """Keeps the shapes of what a line has made."""
        number, made = comment.line, tuple(_parts(value))
        self.latest, self.letters = (number, value), {**self.letters, **letters}
        if comment.lie:
            self.lies[number] = f"✗ the comment says {comment.text.lstrip('# ')}"
            self.true.discard(number)
        elif comment.results:
            self.true.add(number)
        rounds = self.rounds.setdefault(number, [])
        if rounds and rounds[-1].made == made:
            rounds[-1] = rounds[-1]._replace(last=rounds[-1].last + 1)
        else:
            n = rounds[-1].last + 1 if rounds else 1
            rounds.append(Round(n, n, made, () if comment.lie else tuple(comment.results), dict(letters)))

    def note_arguments(self, number: int, arguments: Mapping[str, Any], letters: Letters) -> None:
        """Keeps the shapes of what flows in, for the line of the `def`."""
        made = [(name, tuple(_parts(value))) for name, value in arguments.items()]
        self.arguments[number] = [
            (name, Round(1, 1, parts, (), dict(letters))) for name, parts in made if any(part.size for part in parts)
        ]

    def has_tensors(self) -> bool:
        """Whether any line made a tensor."""
        return any(part.size is not None for rounds in self.rounds.values() for each in rounds for part in each.made)

    def margin(self, number: int, details: bool) -> list[tuple[str, str]]:
        """What is written at the margin of a line, as plain text and as HTML, top down."""
        found = [
            line for name, one in self.arguments.get(number, ()) for line in self._written(one, details, f"{name} ")
        ]
        rounds = [one for one in self.rounds.get(number, ()) if one.made]
        if len(rounds) > 1 and not any(part.size is not None for one in rounds for part in one.made):
            rounds = []  # a counter
        mark = "✓ " if number in self.true else ""
        if len(rounds) == 1 and rounds[0].first == 1:
            n = rounds[0].last
            found += self._written(rounds[0], details, mark, f" × {n}" if n > 1 else "")
        else:
            shown = rounds if len(rounds) <= MOST_ROUNDS else [*rounds[: MOST_ROUNDS - 1], rounds[-1]]
            for place, one in enumerate(shown):
                if one is not rounds[place]:
                    found.append(("...", "&hellip;"))
                found += self._written(one, details, f"{mark}{_named(one, last=one is rounds[-1])}: ")
        lie = self.lies.get(number, "")
        return [*found, (lie, f'<b style="{LIE}">{escape(lie)}</b>')] if lie else found

    def _written(self, one: Round, details: bool, before: str = "", behind: str = "") -> list[tuple[str, str]]:
        """Returns one line for each part, or for several alike in a row."""
        lines = []
        grouped = [(part, names, len(list(same))) for (part, names), same in groupby(self._named_parts(one))]
        for part, names, n in grouped[:MOST_PARTS]:
            times = f"{n} × " if n > 1 else ""
            kind = f" {part.kind}" if details and part.size is not None else ""
            text = part.kind if part.size is None else f"{times}{spelled(part.size, names)}"
            html = escape(part.kind) if part.size is None else f"{times}{spelled_html(part.size, names)}"
            quiet = [QUIET.format(escape(words)) if words else "" for words in (before, f"{kind}{behind}")]
            lines.append((f"{before}{text}{kind}{behind}", f"{quiet[0]}{html}{quiet[1]}"))
        if len(grouped) > MOST_PARTS:
            more = f"and {sum(n for _, _, n in grouped[MOST_PARTS:])} more"
            lines.append((more, more))
        return lines

    def _named_parts(self, one: Round) -> Iterator[tuple[Part, Shape]]:
        """Yields the parts of a round, each tensor with the names of its axes."""
        letters = self._known(one)
        said = one.said * (len(one.made) if len(one.said) == 1 else 1)
        for place, part in enumerate(one.made):
            own = said[place] if len(said) == len(one.made) else ()
            yield part, () if part.size is None else axis_names(part.size, letters, own)

    def _known(self, one: Round) -> Letters:
        return {**self.background, **self.letters, **one.letters}

    def legend(self, more: Letters) -> list[tuple[str, str]]:
        """The letters that occur, and more, with what they are and their size, where that is one size throughout."""
        sizes = {**{letter: {n} for letter, n in more.items()}, **self._sizes()}
        one = {letter: next(iter(found)) for letter, found in sizes.items() if len(found) == 1}
        return explained(used_letters([tuple(sizes)]), one)

    def note_on_doubles(self) -> str:
        """A sentence about letters of one size, which only their order in the legend tells apart."""
        sizes = self._sizes()
        alike = [(a, b) for a, b in combinations(used_letters([tuple(sizes)]), 2) if sizes[a] == sizes[b] != {1}]
        alike = [(a, b) for a, b in alike if {a, b} not in ALIKE]
        if not alike:
            return ""
        pairs = " and ".join(f"{a} = {b} = {next(iter(sizes[a]))}" for a, b in alike)
        return f"Here {pairs}: with sizes that differ, no letter could be mistaken for another."

    def _sizes(self) -> dict[str, set[int]]:
        """Returns the sizes at which each letter occurs."""
        sizes: dict[str, set[int]] = {}
        rounds = [one for rounds in self.rounds.values() for one in rounds]
        rounds += [one for arguments in self.arguments.values() for _, one in arguments]
        for one in rounds:
            for part, names in self._named_parts(one):
                for name, n in zip(names, part.size or (), strict=True):
                    for letter in used_letters([(name,)]):
                        found = sizes.setdefault(letter, set())
                        if n := n if name == letter else self._known(one).get(letter):
                            found.add(n)
        return sizes


def _named(one: Round, last: bool) -> str:
    """Returns which rounds these are."""
    rounds = f"round {one.first}" if one.first == one.last else f"rounds {one.first} to {one.last}"
    return f"{rounds}, the last" if last and one.last > 1 else rounds


def _parts(value: Any) -> list[Part]:
    """Returns the tensors in a value, or a whole number; nothing for anything else."""
    if isinstance(value, torch.Tensor):
        return [Part(tuple(value.shape), f"{str(value.dtype).removeprefix('torch.')} {value.device}")]
    if isinstance(value, np.ndarray):
        return [Part(value.shape, str(value.dtype))]
    if isinstance(value, torch.Size):
        return [Part(tuple(value), "torch.Size")]
    if isinstance(value, bool | int):
        return [Part(None, str(value))]
    if not isinstance(value, tuple | list) or len(value) > 10_000:
        return []
    parts = [part for item in value for part in _parts(item)]
    return parts if any(part.size is not None for part in parts) else []
