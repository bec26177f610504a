"""What a student has built: parts kept from the notebooks, models made of them, and the map of the series.

The parts lie in `work/parts`. All of this is off where outputs must not depend on a student: with TINYLM_WORKSHOP=off
in the environment, and under pytest (which runs nbval) unless it is TINYLM_WORKSHOP=on.
"""

import os
from collections.abc import Callable
from html import escape
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ...config import ModelConfig
from ...files import whole_file
from ...model import TransformerLM
from ..checkout import lessons
from ..checks.check import diagnose, is_open
from ..display.cards import CODE, TONES, Card, card, paragraph
from ..exercises import find, names
from .adapters import PLACES, Fitting, callable_parts
from .extract import ROOT, Extract, KeepError, Part, check_in_fresh_process, extract, read, sealed

PARTS = ROOT / "work" / "parts"
SHOWN = "work/parts"
# How a status looks: sign, word and tone of the cards.
LOOKS = {
    "done": ("✓", "kept", "good"),
    "stale": ("!", "stale", "bad"),
    "broken": ("✗", "broken", "bad"),
    "open": ("○", "open", "plain"),
}

CELL = "padding:2px 14px 2px 10px;text-align:left;vertical-align:middle;font-size:15px"
CHIP = "display:inline-block;border-radius:9px;padding:1px 10px;margin:3px 8px 3px 0;white-space:nowrap"
QUIET = "opacity:0.75;font-size:13px"
BAR = "border-collapse:collapse;table-layout:fixed;width:100%;max-width:640px;margin:4px 0 8px"

NO_PART = "nothing to keep"


class Kept(NamedTuple):
    """What became of a `keep`: whether the part is in its file now, and what was said. Its card has been shown."""

    name: str
    kept: bool
    message: str

    def _ipython_display_(self) -> None: ...


class Use(NamedTuple):
    """A part that a model could call: in how many places it calls the student's, and why not where that is 0."""

    name: str
    places: int
    why: str = ""


def is_off() -> bool:
    """Whether the workshop neither reads nor writes parts here."""
    switch = os.environ.get("TINYLM_WORKSHOP")
    return switch == "off" or (switch != "on" and not {"PYTEST_VERSION", "PYTEST_CURRENT_TEST"}.isdisjoint(os.environ))


def keep(name: str, function: Callable[..., Any]) -> Kept:
    """Write a function that passes its check to `work/parts/name.py`, with all that it needs; shows what was done.

    The file is checked in a fresh process first. An earlier part that differs is put into `work/parts/earlier`.
    Raises KeyError for an unknown name.
    """
    exercise = find(name)
    diagnosis = diagnose(name, function)
    if is_open(diagnosis):
        return _say(name, False, f"{name}: nothing to keep yet", [], "open")
    if not diagnosis.passed:
        title = f"{name}: not kept, it does not pass its check"
        return _say(name, False, title, [diagnosis.message], "bad")
    try:
        extracted = extract(function)
        return _keep(name, extracted, sealed(exercise, extracted))
    except (KeepError, OSError, UnicodeError) as error:
        return _say(name, False, f"{name}: right, but it cannot be kept like this", [str(error)], "bad")


def build(config: ModelConfig) -> TransformerLM:
    """A model of the config that calls the student's parts where they are kept and right, and the library's elsewhere.

    Its weights have the library's names. `using(model)` tells which parts are whose; a part that is broken or stale is
    left out, and a card says so.
    """
    plain, parts = TransformerLM(config), _parts()
    possible = callable_parts(plain)
    fitting = Fitting({part.name: part.function for part in parts if part.status == "done"})
    model = fitting.fit(plain)
    model.uses = [_use(part, fitting) for part in parts if part.name in possible | fitting.unused.keys()]
    if skipped := [part for part in parts if part.why and part.name in possible]:
        title = f"Left out of this model: {', '.join(part.name for part in skipped)}"
        _card(title, [*map(_complaint, skipped), "The library's own parts stand in."], "bad").show()
    return model


def using(model: TransformerLM) -> Card:
    """A card of the parts that a model of `build` can call: whose each is, and why the library's where it is.

    Raises ValueError for a model of the library.
    """
    uses = getattr(model, "uses", None)
    if uses is None:
        raise ValueError("this model has no place for your parts: make one with build(config)")
    yours = [use for use in uses if use.places]
    title = f"{len(yours)} of the {len(uses)} parts in this model are yours"
    chips, lines = {"yours": "", "the library's": ""}, [title]
    for use in uses:
        whose, why = "the library's", use.why
        if use.places:
            whose, why = "yours", f"in {use.places} place{'s' * (use.places > 1)}"
        chips[whose] += _chip(use.name, "done" if use.places else "open", why)
        lines.append(f"  {use.name:<22}{whose:<15}{why}".rstrip())
    rows = [_row(f"<b>{whose}</b>", chips[whose]) for whose in chips if chips[whose]]
    return card(title, [_table(rows)], "\n".join(lines), "good" if yours else "plain")


def progress() -> Card:
    """The map of the series: every lesson with its exercises, which of them are kept, and what comes next."""
    parts = _parts()
    done = sum(part.status == "done" for part in parts)
    title = f"Your workshop: {done} of {len(parts)} parts kept"
    after, rows, lines = _next(parts), [], [title]
    for number, topic in _topics().items():
        here = [part for part in parts if find(part.name).lesson == number]
        lesson = f'<span style="{QUIET}">{number}</span> <b>{topic}</b>'
        chips = "".join(_chip(part.name, part.status) for part in here) or f'<span style="{QUIET}">{NO_PART}</span>'
        rows.append(_row(lesson, chips, TONES["open"] if after in here else "transparent"))
        said = ", ".join(f"{LOOKS[part.status][0]} {part.name} {LOOKS[part.status][1]}" for part in here)
        lines.append(f"  {number} {topic:<15}{said or NO_PART}")
    ending = [*(_complaint(part) for part in parts if part.why), _advice(after)]
    html = [_bar(parts), _table(rows), *map(paragraph, ending)]
    return card(title, html, "\n".join([*lines, *ending]), "good" if done else "plain")


def _keep(name: str, extracted: Extract, text: str) -> Kept:
    path, place = PARTS / f"{name}.py", f"`{SHOWN}/{name}.py`"
    called = ["Models that you build call it."] if any(name in p.parts for p in PLACES.values()) else []
    if is_off():
        lines = [f"In a notebook of your own this writes {place}.", *called]
        return _say(name, False, f"{name}: ready to be kept", lines, "good")
    earlier = path.read_bytes() if path.exists() else None
    if earlier == text.encode():
        return _say(name, True, f"{name}: kept already", [f"{place} holds this very function."], "good")
    with TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8", newline="\n")
        diagnosis = check_in_fresh_process(name, trial)
    if not diagnosis.passed:
        lines = ["It passes in this notebook, and does not in a fresh Python: something that it needs stayed here."]
        return _say(name, False, f"{name}: not kept", [*lines, diagnosis.message], "bad")
    lines = [f"It stands in {place}, and has passed its check once more, in a fresh Python."]
    if extracted.along:
        lines.append("Taken along: " + ", ".join(f"`{thing}`" for thing in extracted.along) + ".")
    lines += called
    if earlier is not None:
        lines.append(f"The one that stood there before is `{SHOWN}/earlier/{_put_aside(path, earlier)}`.")
    with whole_file(path) as file:
        file.write(text.encode())
    return _say(name, True, f"{name}: kept", lines, "good")


def _put_aside(path: Path, content: bytes) -> str:
    """Write an earlier part under a name that is free, and return the name."""
    folder = path.parent / "earlier"
    free = next(place for n in count(1) if not (place := folder / f"{path.stem}_{n}.py").exists())
    with whole_file(free) as file:
        file.write(content)
    return free.name


def _parts() -> list[Part]:
    """All parts in the order of the lessons, none of them kept where the workshop is off."""
    return [Part(name, "open") if is_off() else read(name, PARTS / f"{name}.py") for name in names()]


def _use(part: Part, fitting: Fitting) -> Use:
    if part.name in fitting.used:
        return Use(part.name, fitting.used[part.name])
    missing = f"not kept yet, lesson {find(part.name).lesson}" if part.status == "open" else f"yours is {part.status}"
    return Use(part.name, 0, fitting.unused.get(part.name, missing))


def _complaint(part: Part) -> str:
    reason = "passed an earlier check, not the one of today" if part.status == "stale" else "does not work"
    return f"`{SHOWN}/{part.name}.py` {reason}. {part.why}"


def _next(parts: list[Part]) -> Part | None:
    """What to do next: mend what was right before, then go on where the lessons go on."""
    return next((part for part in parts if part.why), next((part for part in parts if part.status == "open"), None))


def _advice(part: Part | None) -> str:
    if part is None:
        return "Everything is kept. The models that you build are yours."
    lesson = find(part.name).lesson
    doing = "mend" if part.why else "write"
    return f"Next: {doing} `{part.name}` in lesson {lesson} {_topics()[lesson]}, then keep it."


def _topics() -> dict[str, str]:
    """The topic of each lesson, empty where only the library is installed."""
    numbers = [find(name).lesson for name in names()]
    return dict(sorted((dict.fromkeys(numbers, "") | lessons()).items()))


def _say(name: str, kept: bool, title: str, lines: list[str], tone: str) -> Kept:
    shown = _card(title, lines, tone)
    shown.show()
    return Kept(name, kept, str(shown))


def _card(title: str, lines: list[str], tone: str) -> Card:
    return card(title, [paragraph(line) for line in lines], "\n".join([title, *lines]), tone)


def _row(head: str, chips: str, mark: str = "transparent") -> str:
    """A row of chips, with a mark of a colour at its left."""
    left = f"{CELL};border-left:5px solid {mark};white-space:nowrap;vertical-align:top;padding-top:6px"
    return f'<tr style="background:none"><td style="{left}">{head}</td><td style="{CELL}">{chips}</td></tr>'


def _chip(name: str, status: str, word: str = "") -> str:
    """A part with its state as a sign, a word and a colour."""
    sign, usual, tone = LOOKS[status]
    color = TONES[tone]
    shade = f"{color}24" if status != "open" else "transparent"
    return (
        f'<span style="{CHIP};border:1.5px solid {color}{"" if status != "open" else "80"};background:{shade}">'
        f'<b style="color:{color}">{sign}</b> <span style="{CODE}">{escape(name)}</span> '
        f'<span style="{QUIET}">{escape(word or usual)}</span></span>'
    )


def _bar(parts: list[Part]) -> str:
    """One segment per part."""
    colors = [TONES[LOOKS[part.status][2]] + ("" if part.status != "open" else "40") for part in parts]
    cells = "".join(
        f'<td style="padding:0;border:2px solid transparent;background:{color} padding-box"></td>' for color in colors
    )
    return f'<table aria-hidden="true" style="{BAR}"><tr style="height:14px;background:none">{cells}</tr></table>'


def _table(rows: list[str]) -> str:
    return f'<table style="border-collapse:collapse;color:inherit;margin:6px 0">{"".join(rows)}</table>'
