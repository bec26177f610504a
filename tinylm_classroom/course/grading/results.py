"""The marks that earlier runs have found, in a file that grows by a line for each submission."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from itertools import chain
from pathlib import Path

import torch

import tinylm_lib

from .marks import Mark
from .submissions import Submission

CODE = (Path(tinylm_lib.__file__).parent, Path(__file__).parents[2])


class Results:
    """The marks of submissions that are finished. Another submission, or another grader, is graded
    again.

    path: a file of JSON lines; a last line that was cut off is not there. limits: what else a mark
    depends on.
    """

    def __init__(self, path: Path, limits: object = None):
        self.path = path
        self.limits = limits
        self.marks: dict[str, list[Mark]] = {}
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            with suppress(ValueError, TypeError, KeyError):
                entry = json.loads(line)
                self.marks[entry["key"]] = [Mark(**mark) for mark in entry["marks"]]

    def of(self, submission: Submission) -> list[Mark] | None:
        """The marks of a submission, None for one that is not finished."""
        return self.marks.get(self._key(submission))

    def add(self, submission: Submission, marks: Sequence[Mark]) -> None:
        """Append the marks of a finished submission."""
        line = (
            json.dumps({"key": self._key(submission), "marks": [asdict(mark) for mark in marks]})
            + "\n"
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                line = "\n" + line  # the last one was cut off
            file.write(line.encode())

    def _key(self, submission: Submission) -> str:
        handed_in = (submission.student, submission.lesson, submission.digest)
        return " ".join((*handed_in, digest_of_grader(CODE), str(self.limits)))


@cache
def digest_of_grader(packages: tuple[Path, ...]) -> str:
    """A hash of all code that may decide about a mark: the checks, what they compare with, and
    PyTorch's version.
    """
    source = hashlib.sha256(torch.__version__.encode())
    for path in sorted(chain.from_iterable(package.rglob("*.py") for package in packages)):
        source.update(path.read_bytes())
    return source.hexdigest()[:12]
