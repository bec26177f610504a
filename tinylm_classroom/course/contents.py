"""What README.md and INSTRUCTORS.md say of the lessons and where they are: tables from the first
lines of their sources, numbers that are counted, and badges.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ..exercises import EXERCISES
from .cells import TITLE
from .lesson.links import REPOSITORY, on_colab, site

PAGES = ("README.md", "INSTRUCTORS.md")
QUESTIONS = "| lesson | question |"
NEEDS = "| lesson | needs | builds | runs | teaches | exercises |"
FACTS = re.compile(
    r"\*Needs\* (.+?)\. \*Builds\* (.+?)\. \*Runs\* in about (\d+ s)\b.*? "
    r"\*Teaches\* in (?:about )?(\d+) minutes?(?:, plus (\d+) of exercises)?\."
)


BADGES = re.compile(r"(?m)^\[!\[.*$")


def with_tables(page: str, sources: Sequence[Path]) -> str:
    """A page with its tables of these lessons and their number; a page that has none stays as it
    is.
    """
    rows = {QUESTIONS: map(_question, sources), NEEDS: _needs(sources)}
    for head, lines in rows.items():
        above = re.escape(f"{head}\n{re.sub('[^|]+', '---', head)}\n")
        page = re.sub(rf"(?<={above})(?:\|.*\n)*", "".join(lines).replace("\\", r"\\"), page)
    n_mistakes = sum(len(exercise.faults) for exercise in EXERCISES.values())
    page = re.sub(r"(?<=checks know )[\d,]+(?= mistakes)", f"{n_mistakes:,}", page)
    page = BADGES.sub(_badges(), page)
    return re.sub(r"\d+(?= lessons ·)", str(len(sources)), page)


def _badges() -> str:
    test = f"https://github.com/{REPOSITORY}/actions/workflows/test.yml"
    open_it = "https://colab.research.google.com/assets/colab-badge.svg"
    return (
        f"[![Tests]({test}/badge.svg)]({test}) "
        f"[![Open lesson 00 in Colab]({open_it})]({on_colab('00_start')}) [The site]({site()})"
    )


def _title(source: Path) -> str:
    first, *_ = re.split(r"(?m)^# %%.*\n", source.read_text(encoding="utf-8"))[1:] or [""]
    return re.sub(r"(?m)^# ?", "", first)


def _link(source: Path) -> str:
    return f"[{source.stem.replace('_', ' ')}](notebooks/{source.stem}.ipynb)"


def _question(source: Path) -> str:
    title = TITLE.match(_title(source))
    further = sorted(source.parent.glob(f"more/{source.stem[:2]}_*.py"))
    links = ", ".join(f"[{more.stem[3:]}](notebooks/more/{more.stem}.ipynb)" for more in further)
    asked = " ".join(title["question"].split()) if title else ""
    return f"| {_link(source)} | {asked}{f' More: {links}' if links else ''} |\n"


def _needs(sources: Sequence[Path]) -> list[str]:
    found = [FACTS.search(" ".join(_title(source).split())) for source in sources]
    facts = [match.groups(default="0") if match else ("",) * 3 + ("0",) * 2 for match in found]
    rows = [
        f"| {' | '.join((_link(source), *row))} |\n"
        for source, row in zip(sources, facts, strict=True)
    ]
    teaches, exercises = (sum(int(row[column]) for row in facts) for column in (3, 4))
    return [*rows, f"| all | | | | {teaches} | {exercises} |\n"]
