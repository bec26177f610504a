"""Where the lessons answer: the section of each exercise, and of each mistake that a presenter's
note names.
"""

import re
from pathlib import Path
from typing import NamedTuple

import nbformat

from ...folders import NOTEBOOKS
from .marks import Mark

_FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
# in a note's usual answers: - *the answer* (`name of the mistake`): the reply
_NAMED = re.compile(r"\(`([^`]+)`")
_ELSEWHERE = re.compile(r"\(`([^`]+)`.*\bsection (\d+)")  # the reply sends to another section


class Section(NamedTuple):
    """A part of a lesson: `05 Attention`, `4.

    No looking ahead`, and the page with its anchor on the exported site.
    """

    lesson: str
    heading: str
    page: str


def find_sections(notebooks: Path = NOTEBOOKS) -> dict[tuple[str, str], Section]:
    """The section by (number of the lesson, name of the exercise or of the mistake); empty without
    notebooks.
    """
    found: dict[tuple[str, str], Section] = {}
    for path in sorted(notebooks.glob("solutions/[0-9][0-9]_*.ipynb")):
        lesson = ""
        section = None
        note = ""
        numbered: dict[str, Section] = {}
        elsewhere: dict[str, str] = {}
        place = 0
        for cell in nbformat.read(path, as_version=4).cells:
            tags = cell.metadata.get("tags", [])
            if "note" in tags:
                note = cell.source
            elif cell.cell_type == "markdown" and "solution" not in tags:
                for level, text in re.findall(
                    r"^(#{1,6}) "
                    r"+(.+)",
                    _FENCE.sub("", cell.source),
                    re.M,
                ):
                    lesson = text if level == "#" else lesson
                    if level == "##":
                        section = Section(lesson, text, f"{path.stem}.html#part-{place}")
                        numbered[text.partition(".")[0]] = section
                        found |= {(path.stem[:2], name): section for name in _NAMED.findall(note)}
                        elsewhere |= dict(_ELSEWHERE.findall(note))
                    note = ""
                    place = place + 1
            if section and "exercise" in tags:
                found[path.stem[:2], cell.metadata["tinylm"]["name"]] = section
        for name, number in elsewhere.items():
            found[path.stem[:2], name] = numbered.get(number, found[path.stem[:2], name])
    return found


def answer_to(mark: Mark, sections: dict[tuple[str, str], Section]) -> Section | None:
    """The section that answers a mistake, otherwise the one of the exercise, if the lesson is
    known.
    """
    return sections.get((mark.lesson, mark.mistake)) or sections.get((mark.lesson, mark.exercise))
