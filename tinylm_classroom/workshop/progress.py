"""Cards of a student's parts: the map of the series, and which parts of a model are whose."""

from html import escape

from tinylm_lib.model import TransformerLM

from ..display.cards import CODE, TONES, Card, card, paragraph, unmarked
from ..exercises import EXERCISES, find_exercise
from ..folders import WORK, lessons
from .parts import PartState, parts_of_no_lesson, read_parts

# How a status looks: sign, word and tone of the cards.
_LOOKS = {
    "done": ("✓", "kept", "good"),
    "stale": ("!", "stale", "bad"),
    "broken": ("✗", "broken", "bad"),
    "open": ("○", "open", "plain"),
}
_CELL = "padding:2px 14px 2px 10px;text-align:left;vertical-align:middle;font-size:15px"
_CHIP = (
    "display:inline-block;border-radius:9px;padding:1px 10px;margin:3px 8px 3px "
    "0;white-space:nowrap"
)
_QUIET = "opacity:0.75;font-size:13px"
_BAR = "border-collapse:collapse;table-layout:fixed;width:100%;max-width:640px;margin:4px 0 8px"
_NO_PART = "nothing to keep"


def progress() -> Card:
    """The map of the series: every lesson with its exercises, which of them are kept, and what
    comes next.
    """
    parts = read_parts()
    done = sum(part.status == "done" for part in parts)
    title = f"Your workshop: {done} of {len(parts)} parts kept"
    after = _next(parts)
    rows = []
    lines = [title]
    for number, topic in _topics().items():
        here = [part for part in parts if find_exercise(part.name).lesson == number]
        lesson = f'<span style="{_QUIET}">{number}</span> <b>{topic}</b>'
        chips = "".join(_chip(part.name, part.status) for part in here) or (
            f'<span style="{_QUIET}">{_NO_PART}</span>'
        )
        rows.append(_row(lesson, chips, TONES["open"] if after in here else "transparent"))
        said = ", ".join(
            f"{_LOOKS[part.status][0]} {part.name} {_LOOKS[part.status][1]}" for part in here
        )
        lines.append(f"  {number} {topic:<15}{said or _NO_PART}")
    ending = [
        *(part.complaint for part in parts if part.why),
        *map(_of_no_lesson, parts_of_no_lesson()),
        _advice(after),
    ]
    html = [_bar(parts), _table(rows), *map(paragraph, ending)]
    return card(
        title, html, "\n".join([*lines, *map(unmarked, ending)]), "good" if done else "plain"
    )


def using(model: TransformerLM) -> Card:
    """A card of the parts that a model of `build` can call: whose each is, and why the library's
    where it is.

    Raises ValueError for a model of the library.
    """
    uses = getattr(model, "uses", None)
    if uses is None:
        raise ValueError("this model cannot use your parts: make one with build(config)")
    title = (
        f"{sum(use.places > 0 for use in uses)} of the {len(uses)} parts in this model are yours"
    )
    chips = {"yours": "", "the library's": ""}
    lines = [title]
    for use in uses:
        whose = "the library's"
        status = "open"
        why = use.why
        if use.places:
            whose = "yours"
            status = "done"
            why = f"in {use.places} places" if use.places > 1 else "in 1 place"
        chips[whose] += _chip(use.name, status, why)
        lines.append(f"  {use.name:<22}{whose:<15}{why}".rstrip())
    rows = [_row(f"<b>{whose}</b>", found) for whose, found in chips.items() if found]
    return card(title, [_table(rows)], "\n".join(lines), "good" if chips["yours"] else "plain")


def _next(parts: list[PartState]) -> PartState | None:
    """What to do next: fix what was right before, then continue with the lessons."""
    return next(
        (part for part in parts if part.why),
        next((part for part in parts if part.status == "open"), None),
    )


def _advice(part: PartState | None) -> str:
    if part is None:
        return "Everything is kept. The models that you build are yours."
    lesson = find_exercise(part.name).lesson
    doing = "fix" if part.why else "write"
    named = f"{lesson} {_topics()[lesson]}".rstrip()
    return f"Next: {doing} `{part.name}` in lesson {named}, then keep it."


def _of_no_lesson(name: str) -> str:
    return (
        f"`{WORK.name}/parts/{name}.py` is of an exercise that no lesson has any more. It stays "
        "there, and no model calls it."
    )


def _topics() -> dict[str, str]:
    """The topic of each lesson, empty where only the library is installed."""
    numbers = dict.fromkeys((exercise.lesson for exercise in EXERCISES.values()), "")
    return dict(sorted((numbers | lessons()).items()))


def _row(head: str, chips: str, mark: str = "transparent") -> str:
    """A row of chips, with a mark of a colour at its left."""
    left = (
        f"{_CELL};border-left:5px solid {mark};"
        "white-space:nowrap;vertical-align:top;padding-top:6px"
    )
    return (
        f'<tr style="background:none"><td style="{left}">{head}</td>'
        f'<td style="{_CELL}">{chips}</td></tr>'
    )


def _chip(name: str, status: str, word: str = "") -> str:
    """A part with its state as a sign, a word and a colour."""
    sign, usual, tone = _LOOKS[status]
    color = TONES[tone]
    border, shade = (f"{color}80", "transparent") if status == "open" else (color, f"{color}24")
    return (
        f'<span style="{_CHIP};border:1.5px solid {border};background:{shade}">'
        f'<b style="color:{color}">{sign}</b> <span style="{CODE}">{escape(name)}</span> '
        f'<span style="{_QUIET}">{escape(word or usual)}</span></span>'
    )


def _bar(parts: list[PartState]) -> str:
    """One segment per part."""
    colors = [
        TONES[_LOOKS[part.status][2]] + ("40" if part.status == "open" else "") for part in parts
    ]
    style = "padding:0;border:2px solid transparent;background:{} padding-box"
    cells = "".join(f'<td style="{style.format(color)}"></td>' for color in colors)
    row = f'<tr style="height:14px;background:none">{cells}</tr>'
    return f'<table aria-hidden="true" style="{_BAR}">{row}</table>'


def _table(rows: list[str]) -> str:
    style = "border-collapse:collapse;color:inherit;margin:6px 0"
    return f'<table style="{style}">{"".join(rows)}</table>'
