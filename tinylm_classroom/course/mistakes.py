"""The page of the mistakes that the checks know by name, each with what it looks like and why it is
wrong.
"""

from collections.abc import Iterable, Mapping

from ..exercises import EXERCISES
from ..exercises.base import Exercise
from .cells import Page, coded, lesson_heading
from .grading.sections import Section

MISTAKES = "mistakes.html"


def mistakes_content(pages: Iterable[Page], sections: Mapping[tuple[str, str], Section]) -> str:
    """The content of the page: the exercises of these lessons that have a section, and their
    mistakes.

    sections: by the number of the lesson and the name of the exercise, as `find_sections` finds
    them.
    """
    shown = []
    count = 0
    for page in pages:
        here = [
            e
            for e in EXERCISES.values()
            if e.lesson == page.number and (e.lesson, e.name) in sections
        ]
        count += sum(len(exercise.faults) for exercise in here)
        if here:
            shown.append(lesson_heading(page))
            shown += [
                _entry(exercise, sections[exercise.lesson, exercise.name]) for exercise in here
            ]
    introduction = (
        f"The checks know {count:,} mistakes by name. Each line has the words of the check: how a "
        "function looks, and why that is wrong. The section with the exercise is linked."
    )
    return f"<h1>Mistakes</h1><p>{introduction}</p>{''.join(shown)}"


def _entry(exercise: Exercise, section: Section) -> str:
    lines = (
        f"<li><b>{coded(fault.looks)}</b>. {coded(fault.why)}</li>"
        for fault in exercise.faults.values()
    )
    where = f'section <a href="{section.page}">{coded(section.heading)}</a>'
    return (
        f'<h3 id="{exercise.name}"><code>{exercise.name}</code>, {where}</h3><details>'
        f"<summary>{len(exercise.faults)} mistakes: it looks like "
        f"…</summary><ul>{''.join(lines)}</ul></details>"
    )
