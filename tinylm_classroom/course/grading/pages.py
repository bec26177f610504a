"""A page for each student and one for the class; they load nothing, and what a student wrote is
escaped in them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

from ...display.cards import inline
from ...display.theme import page_head
from ...exercises import find_exercise, names
from .marks import Mark, stopped
from .sections import Section, answer_to
from .similar import LONG, Alike

# How a verdict looks: its sign, the word in a count and the class in the style of a page.
LOOKS = {
    "right": ("✓", "right", "good"),
    "mistake": ("✗", "wrong", "bad"),
    "not right": ("✗", "wrong", "bad"),
    "not attempted": ("○", "not attempted", "open"),
    "could not be run": ("!", "could not be run", "stop"),
}
SIGNS = {word: (sign, tone) for sign, word, tone in LOOKS.values()}
CHECKED = ("right", "mistake", "not right")
# The headline of a mistake whose first sentence is too long for one, or different for each student.
GENERAL = {"raises an error": "The function raises an error.", "": "The result is not right."}
TOUCHED = "⚑"  # marks code that tried to change something outside of itself
END = re.compile(r"[.!?](?=\s+[^a-z\s]|\s*$)")  # of a sentence
LONGEST_HEADLINE = 140  # characters
LONGEST_CODE = 20_000  # characters


def in_order(marks: Iterable[Mark]) -> list[Mark]:
    """The marks by student, then in the order of the lessons and their exercises."""
    place = {name: i for i, name in enumerate(names())}
    return sorted(
        marks, key=lambda m: (m.student.casefold(), m.student, m.lesson, place.get(m.exercise, -1))
    )


@dataclass(frozen=True)
class Pages:
    """What the pages are made from.

    sections: where the lessons answer. groups: who handed in one text. texts: what was handed in
    for each (student, exercise). site: the address of the exported lessons, to which the pages
    link; empty: they only name the section.
    """

    marks: Sequence[Mark]
    sections: Mapping[tuple[str, str], Section] = field(default_factory=dict)
    groups: Sequence[Alike] = ()
    texts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    site: str = ""

    @cached_property
    def files(self) -> dict[str, str]:
        """The file of each student's page; a long name is cut, and gets a number if it is taken."""
        found: dict[str, str] = {}
        for student in dict.fromkeys(mark.student for mark in in_order(self.marks)):
            name = f"students/{student[:50]}.html"
            taken = {other.casefold() for other in found.values()}
            if name.casefold() in taken:
                name = f"students/{student[:50]}-{len(found)}.html"
            found[student] = name
        return found

    def of_student(self, student: str) -> str:
        """The HTML of one student: each exercise, what the check says, the section that answers it,
        and the code.
        """
        mine = [mark for mark in in_order(self.marks) if mark.student == student]
        parts = [f"<h1>{escape(student)}</h1>", _summary(mine)]
        for lesson in dict.fromkeys(mark.lesson for mark in mine):
            here = [mark for mark in mine if mark.lesson == lesson]
            known = (section.lesson for mark in here if (section := answer_to(mark, self.sections)))
            title = next(known, f"Lesson {lesson}" if lesson else "What belongs to no lesson")
            parts.append(f"<h2>{escape(title)}</h2>")
            problems = dict(stopped(here))
            shown = [
                mark for mark in here if mark.verdict != "could not be run" or mark in problems
            ]
            parts += [self._mark(mark, problems.get(mark, [mark.exercise])) for mark in shown]
        return _fill(student, parts)

    def of_class(self) -> str:
        """The HTML of the class: the exercises, the commonest mistakes, the students, and who
        handed in one text.
        """
        n = len(self.files)
        problems = stopped(in_order(self.marks))
        parts = [
            f"<h1>The class</h1><p class='quiet'>{counted(n, 'student')}</p>",
            _summary(self.marks),
        ]
        parts += ["<h2>The exercises</h2>", self._exercises()]
        parts += ["<h2>The commonest mistakes</h2>", *self._mistakes()]
        parts += ["<h2>The students</h2>", self._students(), *self._touched()]
        if problems:
            rows = (
                (
                    self._link(m.student),
                    escape(m.lesson),
                    ", ".join(map(_code, exercises)),
                    inline(as_sentence(m.says)),
                )
                for m, exercises in problems
            )
            parts += [
                "<h2>What could not be run</h2>",
                _table(("student", "lesson", "exercise", "why"), rows),
            ]
        return _fill("The class", [*parts, "<h2>Submissions with one text</h2>", *self._groups()])

    def _mark(self, mark: Mark, exercises: Sequence[str]) -> str:
        """One card of a student's page, about one exercise or several of which the same is said."""
        sign, _, tone = LOOKS[mark.verdict]
        title = f"{mark.verdict[:1].upper()}{mark.verdict[1:]}"
        says = mark.says
        if tone == "bad":
            title, says = headline(mark)
        elif tone == "stop":
            says = as_sentence(says)
        named = " ".join(map(_code, exercises))
        head = f'<h3>{named}<span class="sign">{sign} {inline(title)}</span></h3>'
        says = says.removeprefix(f"{mark.exercise}: right. ")
        text = f"<p>{inline(says)}</p>" if says else ""
        code = self._code_of(mark.student, exercises[0] if exercises else "", is_open=tone == "bad")
        return f'<div class="mark {tone}">{head}{text}{self._answer(mark, "Read")}{code}</div>'

    def _code_of(self, student: str, exercise: str, is_open: bool) -> str:
        """What a student wrote, to unfold; nothing where there is nothing."""
        text = self.texts.get((student, exercise), "").strip()
        if not text:
            return ""
        opened = " open" if is_open else ""
        return (
            f"<details{opened}><summary>Your code</summary>"
            f"<pre>{escape(text[:LONGEST_CODE])}</pre></details>"
        )

    def _answer(self, mark: Mark, before: str) -> str:
        """The section that answers a mark, as a paragraph."""
        section = answer_to(mark, self.sections)
        if section is None or mark.verdict in ("right", "could not be run"):
            return ""
        name = f"{escape(section.lesson)}, section {inline(section.heading)}"
        if self.site:
            name = f'<a href="{escape(self.site.rstrip("/"))}/{section.page}">{name}</a>'
        return f'<p class="small"><span class="quiet">{before}:</span> {name}</p>'

    def _link(self, student: str) -> str:
        address = quote(self.files[student], errors="backslashreplace")
        return f'<a href="{address}">{escape(student)}</a>'

    @cached_property
    def _columns(self) -> list[tuple[str, str]]:
        """The (lesson, exercise) of all lessons of which there is a mark, in their order."""
        lessons = {mark.lesson for mark in self.marks}
        return [
            (lesson, name) for name in names() if (lesson := find_exercise(name).lesson) in lessons
        ]

    @cached_property
    def _by_exercise(self) -> dict[tuple[str, str], dict[str, Mark]]:
        """The marks of each (lesson, exercise), by student."""
        found: dict[tuple[str, str], dict[str, Mark]] = {}
        for mark in in_order(self.marks):
            found.setdefault((mark.lesson, mark.exercise), {})[mark.student] = mark
        return found

    def _exercises(self) -> str:
        rows = []
        for key in self._columns:
            counts = _counts(self._by_exercise.get(key, {}).values())
            rows.append(
                (key[0], _code(key[1]), _bar(counts), *(str(n or "") for n in counts.values()))
            )
        return _table(("lesson", "exercise", "answers", *SIGNS), rows, "exercises")

    def _mistakes(self) -> Iterator[str]:
        """A part for each mistake that two students or more made; the others are folded."""
        found: dict[tuple[str, str, str], list[Mark]] = {}
        for mark in in_order(self.marks):
            if LOOKS[mark.verdict][1] == "wrong":
                found.setdefault((mark.lesson, mark.exercise, mark.mistake), []).append(mark)
        often = sorted((marks for marks in found.values() if len(marks) > 1), key=len, reverse=True)
        once = [self._mistake(marks) for marks in found.values() if len(marks) == 1]
        yield from map(self._mistake, often) if often else ["<p>No mistake was made twice.</p>"]
        if once:
            says = f"{counted(len(once), 'mistake')} made by one student each"
            yield f"<details><summary>{says}</summary>{''.join(once)}</details>"

    def _mistake(self, marks: Sequence[Mark]) -> str:
        """A mistake, why it is one, where it is answered and who made it; what is not in the
        catalogue is quoted.
        """
        mark = marks[0]
        faults = find_exercise(mark.exercise).faults
        known = [faults[name] for name in mark.mistake.split(" + ") if name in faults]
        titles = {headline(one)[0] for one in marks}
        says = titles.pop() if len(titles) == 1 else GENERAL.get(mark.mistake, GENERAL[""])
        rest = {one.student: one.says.removeprefix(says) for one in marks}
        title = f'<span class="sign">✗ {inline(says)}</span>'
        n = f'<span class="n">{counted(len(marks), "student")}</span>'
        head = f"<h3>{title}{_code(mark.exercise)}{n}</h3>"
        if known:
            says = " ".join(fault.why for fault in known)
            who = ", ".join(self._link(one.student) for one in marks)
            text = f'<p>{inline(says)}</p><p class="small quiet">{who}</p>'
        else:
            text = "".join(
                f'<p class="small">{self._link(one.student)}: {inline(rest[one.student])}</p>'
                for one in marks
            )
        return f'<div class="mark bad">{head}{text}{self._answer(mark, "Answered in")}</div>'

    def _students(self) -> str:
        """A table of signs: the students below one another, the exercises side by side."""
        lessons = [lesson for lesson, _ in self._columns]
        marked = [
            ' class="first"' if i == lessons.index(lesson) else ""
            for i, lesson in enumerate(lessons)
        ]
        names = (
            f"<th scope='col'{m}><span>{' '.join(key)}</span></th>"
            for key, m in zip(self._columns, marked, strict=True)
        )
        rows = [self._row(student, marked) for student in self.files]
        head = f'<tr><th scope="col">student</th>{"".join(names)}<th scope="col">points</th></tr>'
        key = ", ".join(f"{sign} {word}" for word, (sign, _) in SIGNS.items())
        if any(mark.touched for mark in self.marks):
            key += f", {TOUCHED} tried to change something outside"
        body = f'<table class="class"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'
        return (
            f'<p class="small quiet">{key}, empty: not handed in</p>'
            f'<div class="scroll" tabindex="0">{body}</div>'
        )

    def _row(self, student: str, marked: Sequence[str]) -> str:
        """A student's row of signs; a file of an unknown lesson may hold what is missing. marked:
        classes of cells.
        """
        name = f'<th scope="row">{self._link(student)}</th>'
        unknown = [mark for mark in self.marks if mark.student == student and not mark.exercise]
        marks = [self._by_exercise.get(key, {}).get(student) for key in self._columns]
        if unknown and not any(marks):
            says = "; ".join(inline(mark.says) for mark in unknown)
            return (
                f"<tr>{name}"
                f'<td class="note first" colspan="{len(marks) or 1}">{says}</td><td>0</td></tr>'
            )
        shown = (mark or (unknown[0] if unknown else None) for mark in marks)
        signs = "".join(f"<td{m}>{_sign(mark)}</td>" for mark, m in zip(shown, marked, strict=True))
        return f"<tr>{name}{signs}<td>{sum(mark.points for mark in marks if mark)}</td></tr>"

    def _touched(self) -> Iterator[str]:
        """What students' code tried to change outside of itself; nothing where it did not."""
        found = [mark for mark in in_order(self.marks) if mark.touched]
        rows = (
            (self._link(m.student), escape(m.lesson), _code(m.exercise), inline(m.touched))
            for m in found
        )
        if found:
            yield "<h2>Attempts to change something outside</h2>"
            yield (
                "<p>No exercise needs this. INSTRUCTORS.md says what the system kept from this "
                "code.</p>"
            )
            yield _table(("student", "lesson", "exercise", "its code"), rows)

    def _groups(self) -> Iterator[str]:
        yield (
            "<p>These functions have one text if their own names, comments, annotations and "
            f"layout are left out. Functions of fewer than {LONG} lines are listed only next to a "
            "longer one. The list has no verdict: where a lesson prepares an exercise well, "
            "students may write the same independently.</p>"
        )
        for group in self.groups:
            shared = ", ".join(
                f"{_code(name)} ({counted(n, 'line')})" for name, n in group.exercises.items()
            )
            sides = "".join(self._side_by_side(group, name) for name in group.exercises)
            head = f"<h3><span>{' and '.join(map(self._link, group.students))}</span></h3>"
            texts = f"<details><summary>side by side</summary>{sides}</details>"
            yield f'<div class="mark open">{head}<p>{shared}</p>{texts}</div>'
        if not self.groups:
            yield "<p>There are none.</p>"

    def _side_by_side(self, group: Alike, exercise: str) -> str:
        texts = ((who, self.texts.get((who, exercise), "").strip()) for who in group.students)
        columns = (
            f"<div><h4>{escape(who)}</h4><pre>{escape(text)}</pre></div>" for who, text in texts
        )
        return f'<div class="side" tabindex="0">{"".join(columns)}</div>'


def headline(mark: Mark) -> tuple[str, str]:
    """The first sentence of what is said of a wrong function, and the rest; a full stop in `code`
    ends none.
    """
    at = 0
    for i, piece in enumerate(mark.says.split("`")):
        if i % 2 == 0 and (end := END.search(piece)) and at + end.end() <= LONGEST_HEADLINE:
            cut = at + end.end()
            return mark.says[:cut], mark.says[cut:].strip()
        at += len(piece) + 1
    return GENERAL.get(mark.mistake, GENERAL[""]), mark.says


def as_sentence(says: str) -> str:
    """A reason with a capital letter and a full stop; the name of a file at its beginning stays as
    it is.
    """
    if says.partition(" ")[0].isalpha():
        says = says[:1].upper() + says[1:]
    return says if says.endswith((".", "!", "?")) else f"{says}."


def _counts(marks: Iterable[Mark]) -> dict[str, int]:
    """How many marks have each word."""
    counts = Counter(LOOKS[mark.verdict][1] for mark in marks)
    return {word: counts[word] for word in SIGNS}


def _summary(marks: Iterable[Mark]) -> str:
    """A bar, and its numbers in words."""
    counts = _counts(marks)
    items = (
        f'<li class="{SIGNS[w][1]}"><span class="sign">{SIGNS[w][0]}</span> {n} {w}</li>'
        for w, n in counts.items()
        if n
    )
    return f'{_bar(counts)}<ul class="counts">{"".join(items)}</ul>'


def _bar(counts: Mapping[str, int]) -> str:
    parts = (
        f'<span class="{SIGNS[word][1]}" style="--n:{n}">{n}</span>'
        for word, n in counts.items()
        if n
    )
    return f'<div class="bar" aria-hidden="true">{"".join(parts)}</div>'


def _sign(mark: Mark | None) -> str:
    """A verdict in one character, with its words for anyone who points at it or listens."""
    if mark is None:
        return ""
    sign, word, tone = LOOKS[mark.verdict]
    says = escape(headline(mark)[0] if tone == "bad" else word).replace("`", "")
    flag = f'<span title="{escape(mark.touched)}">{TOUCHED}</span>' if mark.touched else ""
    hidden = f'<span class="hidden">{word}</span>'
    return (
        f'<span class="sign {tone}" title="{says}" aria-hidden="true">{sign}</span>{hidden}{flag}'
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "plain") -> str:
    """A table of cells of HTML."""
    top = "".join(f'<th scope="col">{text}</th>' if text else "<td></td>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll" tabindex="0"><table class="{kind}">{inside}</table></div>'


def _code(name: str) -> str:
    return f"<code>{escape(name)}</code>" if name else ""


def counted(n: int, what: str) -> str:
    """`1 student`, `2 students`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _fill(title: str, parts: Sequence[str]) -> str:
    page = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return page.substitute(head=page_head(f"{title} · TinyLM"), content="\n".join(parts))
