"""Grades submitted notebooks with the checks of the course.

    python -m tinylm_lib grade FOLDER [--to FOLDER] [--lessons NN ...] [--jobs N] [--seconds S]
                               [--site ADDRESS]

FOLDER holds a notebook, or a folder of notebooks and kept parts, for each student; a folder without
a notebook is a student, too. The exercise functions are taken out of them and run in processes of
their own, with limits; INSTRUCTORS.md says what these do not stop.

The target folder gets marks.csv (a row for each exercise), marks_table.csv (students and points,
for a gradebook), marks.json, class.html (for you: exercises, commonest mistakes, students,
submissions with one text) and students/NAME.html (one for each student). If the command is stopped,
the same command continues: what is in the target's results.jsonl is not run again, unless a
submission, the course or --seconds has changed.

The exit status is 0 if everything was graded, whatever the marks are, 2 for a mistake in the call,
130 after Ctrl-C.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path

from tqdm import tqdm

from ...folders import private_folder
from .grade import grade
from .launch import Limits, permitted
from .marks import Mark
from .notebook import LESSONS
from .pages import Pages, counted
from .report import as_table, in_a_line, write_report
from .results import Results
from .sections import find_sections
from .similar import alike
from .submissions import left_out, submissions

TABLES = ("marks.csv", "marks_table.csv", "marks.json")
CONFINED = {"network": "the network", "files": "your files", "processes": "your other processes"}


def main(argv: Sequence[str] = ()) -> int:
    """Grades a folder, prints the table and writes the report; returns the exit status.

    Raises FileNotFoundError for a folder without notebooks, ValueError or OSError for a target that
    cannot be used.
    """
    options = _parser().parse_args(list(argv))
    folder = options.folder.resolve()
    to = options.to or folder.with_name(f"{folder.name}_graded")
    found = [
        s
        for s in submissions(options.folder)
        if not options.lessons or s.lesson in ("", *options.lessons)
    ]
    if not found:
        raise ValueError(
            f"{options.folder} holds nothing of lesson {', '.join(options.lessons)}; leave out "
            "--lessons for all"
        )
    limits = Limits(seconds=options.seconds)
    results = Results(_usable(to, folder) / "results.jsonl", limits)
    students = {s.student for s in found}
    _say(f"{counted(len(found), 'submission')} of {counted(len(students), 'student')}{_missing()}")
    if names := left_out(options.folder):
        _say(
            "left out, because they are neither notebooks nor named after a lesson: "
            f"{', '.join(names)}"
        )
    if n := sum(results.of(s) is not None for s in found):
        _say(f"{n} of them are graded already, by an earlier run")
    marks: list[Mark] = []
    try:
        with closing(grade(found, results, options.jobs, limits)) as graded:
            marks.extend(_with_progress(graded, len(found)))
    except KeyboardInterrupt:
        _say("\nwhat is finished is kept: the same command continues")
        raise
    texts = {}
    for s in found:
        texts |= {(s.student, name): one.body for name, one in s.attempts.items() if one}
    pages = Pages(marks, find_sections(), alike(texts), texts, _address(options.site))
    shown = write_report(to, pages)
    print(as_table(marks))
    tables = ", ".join(str(to / name) for name in TABLES)
    print(f"\nThe class: {shown}\nEach student: {to / 'students'}\nTables: {tables}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tinylm_lib grade", description=__doc__, allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the submissions")
    says = "where the report goes; default: FOLDER_graded, next to FOLDER"
    parser.add_argument("--to", type=Path, metavar="FOLDER", help=says)
    says = f"only these, two digits each: {', '.join(LESSONS)}"
    parser.add_argument(
        "--lessons", nargs="+", choices=LESSONS, default=(), metavar="NN", help=says
    )
    parser.add_argument(
        "--jobs",
        type=_number(int),
        metavar="N",
        help="processes at a time; default: one per core",
    )
    says = (
        f"for all that an exercise is tried with; default: {Limits.seconds:.0f}. A call has 5 of "
        "its own"
    )
    parser.add_argument(
        "--seconds", type=_number(float), default=Limits.seconds, metavar="S", help=says
    )
    says = (
        "the folder or address of the exported lessons (make site), to which the pages link; "
        "default: no links"
    )
    parser.add_argument("--site", default="", metavar="ADDRESS", help=says)
    return parser


def _number(kind: type) -> type:
    """A type of argparse: a number above 0."""

    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be above 0 (got {text})")
        return value

    number.__name__ = kind.__name__  # as argparse says it
    return number


def _usable(to: Path, folder: Path) -> Path:
    """The target folder, made where it is missing so that nobody but its owner can open it."""
    if to.resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"the target {to} is among the submissions; choose a folder outside {folder} with --to"
        )
    return private_folder(to, f"the target {to}", "choose another with --to")


def _missing() -> str:
    """What this system does not let us keep from submissions."""
    closed = permitted()
    open_to_them = [words for name, words in CONFINED.items() if name not in closed]
    if not open_to_them:
        return ""
    return (
        f"\nThis system does not let us keep them from {', '.join(open_to_them)}: see "
        "INSTRUCTORS.md for a container"
    )


def _with_progress(marks: Iterator[Mark], total: int) -> Iterator[Mark]:
    """The marks, with a bar on a terminal, and otherwise a line for each submission."""
    is_terminal = sys.stderr.isatty()
    with tqdm(
        total=total, desc="grading", unit="submission", disable=not is_terminal, leave=False
    ) as bar:
        for done, ((student, lesson), group) in enumerate(
            groupby(marks, lambda m: (m.student, m.lesson)), 1
        ):
            yield from group
            bar.update()
            if not is_terminal:
                _say(f"{done}/{total} {student} {lesson}".rstrip())


def _address(site: str) -> str:
    """The address of a site, of a folder as a browser wants it."""
    return Path(site).resolve().as_uri() if site and os.path.isdir(site) else site


def _say(text: str) -> None:
    print("\n".join(map(in_a_line, text.split("\n"))), file=sys.stderr, flush=True)
