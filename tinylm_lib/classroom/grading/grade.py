"""Grading a folder of notebooks: each lesson of a student in a process of its own, judged in this one, which runs none."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..checks.calling import Outcome, moved, outcome_of
from ..checks.check import is_open, judge, no_function
from ..exercises import EXERCISES, find_exercise
from ..exercises.base import Diagnosis, Exercise
from ..folders import ROOT
from .marks import Mark
from .submissions import Submission, submissions
from .wire import decode_call

MOST_BYTES = 32 * 2**20  # of one answer
STARTING = 180.0  # seconds until a process has imported torch


@dataclass(frozen=True)
class Limits:
    """What one process may use: bytes, seconds for each exercise, CPU seconds in all, and numbers."""

    seconds: float = 30.0
    cpu_seconds: int = 120
    memory: int = 4 * 2**30
    file_size: int = 64 * 2**20
    files: int = 256
    processes: int = 64


def grade(
    folder: Path, results: Path | None = None, jobs: int | None = None, limits: Limits | None = None
) -> Iterator[Mark]:
    """Yields a Mark for each exercise of each lesson that was handed in, as soon as it is known.

    results: a file to which each finished submission is appended, a line of JSON; what it has already is not run again.
    jobs: how many processes at a time; as many as there are cores where it is None.
    Raises FileNotFoundError for a folder without notebooks.
    """
    found, limits = submissions(folder), limits or Limits()
    known = _known(results)
    for submission in found:
        yield from known.get(_key(submission), ())
    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        open_ones = [s for s in found if _key(s) not in known]
        running = {pool.submit(_answers, s, limits): s for s in open_ones}
        try:
            for done in as_completed(running):
                submission = running[done]
                marks = _marks(submission, done.result())
                if results:
                    _append(results, _key(submission), marks)
                yield from marks
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _key(submission: Submission) -> str:
    """Which submission this is: another one, or other exercises, and it is graded again."""
    digest = EXERCISES[next(iter(EXERCISES))].digest
    return " ".join((submission.student, submission.lesson, submission.digest, digest))


def _known(results: Path | None) -> dict[str, list[Mark]]:
    """What a results file holds; a last line that was cut off is not there."""
    known = {}
    for line in results.read_text("utf-8").splitlines() if results and results.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            known[entry["key"]] = [Mark(**mark) for mark in entry["marks"]]
    return known


def _append(results: Path, key: str, marks: list[Mark]) -> None:
    line = json.dumps({"key": key, "marks": [asdict(mark) for mark in marks]}) + "\n"
    results.parent.mkdir(parents=True, exist_ok=True)
    with open(results, "ab+") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
            line = "\n" + line  # the last one was cut off
        file.write(line.encode())


def _answers(submission: Submission, limits: Limits) -> dict[str, dict]:
    """What the processes say of each exercise. One that ends early costs only the exercise that it was at."""
    waiting = {name: a.text for name, a in submission.attempts.items() if a and not a.problem}
    answers: dict[str, dict] = {}
    while waiting:
        try:
            for answer in _run(waiting, limits):
                answers[answer["exercise"]] = answer
        except _Ended as end:
            answers[next(name for name in waiting if name not in answers)] = {"why": str(end)}
        waiting = {name: text for name, text in waiting.items() if name not in answers}
    return answers


class _Ended(Exception):
    """How a process ended that did not say all."""


def _run(texts: dict[str, str], limits: Limits) -> Iterator[dict]:
    """Yields what one process says, exercise by exercise. Raises _Ended when it says something else, or no more."""
    own = {name: value for name, value in asdict(limits).items() if name != "seconds"}
    job = json.dumps({"limits": own, "exercises": texts}).encode()
    with TemporaryDirectory(prefix="tinylm-grade-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.child"], cwd=folder, env=_environment(folder),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            with suppress(OSError):
                process.stdin.write(job)
                process.stdin.close()
            lines = _lines(process)
            _message(lines, STARTING, process, {"ready"})
            for name in texts:
                answer = _message(lines, limits.seconds, process, {"exercise"})
                if answer["exercise"] != name:
                    raise _Ended("what its process says cannot be read")
                yield answer
                if answer.get("last"):
                    return
        finally:
            _kill(process)


def _environment(folder: str) -> dict[str, str]:
    """Nothing of ours that a student's code could use, and what Python needs."""
    kept = {n: v for n in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if (v := os.environ.get(n))}
    return kept | {
        "HOME": folder, "USERPROFILE": folder, "TMPDIR": folder, "TEMP": folder, "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "", "TINYLM_WORKSHOP": "off", "TINYLM_WORK": folder,
    }  # fmt: skip


def _lines(process: subprocess.Popen) -> "queue.Queue[bytes]":
    """What a process writes, line by line; the last one is empty."""
    lines: queue.Queue[bytes] = queue.Queue(maxsize=2)

    def read() -> None:
        with suppress(OSError, ValueError):
            while line := process.stdout.readline(MOST_BYTES):
                lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    return lines


def _message(lines: "queue.Queue[bytes]", seconds: float, process: subprocess.Popen, keys: set[str]) -> dict:
    try:
        line = lines.get(timeout=seconds)
    except queue.Empty:
        raise _Ended(f"it did not end within {seconds:.0f} s and was stopped") from None
    if not line:
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
        raise _Ended(f"its process ended early, {_end(process.returncode)}")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not keys <= message.keys():
        raise _Ended("what its process says cannot be read")
    return message


def _end(code: int | None) -> str:
    return f"by signal {-code}" if code and code < 0 else f"with the status {code}"


def _kill(process: subprocess.Popen) -> None:
    with suppress(OSError):
        os.killpg(process.pid, 9) if hasattr(os, "killpg") else process.kill()
    process.wait()


class Received:
    """A learner's function in another process: what has come of it there."""

    def __init__(self, exercise: Exercise, answer: dict[str, Any]):
        self.probes = exercise.probes
        self.outcomes = [_outcome(probe, data) for probe, data in zip(self.probes, answer["calls"], strict=False)]
        if not self.outcomes or (self.outcomes[-1].ended and len(self.outcomes) < len(self.probes)):
            raise ValueError("calls are missing")
        self._again, self._moved = answer["again"], {(i, place): data for i, place, data in answer["moved"]}

    def again(self, i: int) -> Outcome:
        return _outcome(self.probes[i], self._again[i]) if i < len(self._again) else self.outcomes[i]

    def moved(self, i: int, place: int) -> Outcome | None:
        data = self._moved.get((i, place))
        return data and _outcome(moved(self.probes[i], place), data)


def _outcome(probe, data) -> Outcome:
    import torch

    from ..checks.calling import SEED

    return outcome_of(decode_call(data, probe.make(torch.Generator().manual_seed(SEED))), probe)


def _marks(submission: Submission, answers: dict[str, dict]) -> list[Mark]:
    who = (submission.student, submission.lesson)
    if submission.problem:
        return [Mark(*who, "", "could not be run", "", _line(submission.problem))]
    marks = []
    for name, attempt in submission.attempts.items():
        if attempt is None:
            marks.append(Mark(*who, name, "not attempted", "", ""))
            continue
        verdict, mistake, says = _judged(find_exercise(name), attempt.problem, answers.get(name, {}))
        notes = [submission.taken.get(name, "")]
        if attempt.library:
            notes.append("calls the library's " + ", ".join(attempt.library))
        says = " ".join([says, *(f"({note})" for note in notes if note)])
        marks.append(Mark(*who, name, verdict, mistake, _line(says)))
    return marks


def _judged(exercise: Exercise, problem: str, answer: dict[str, Any]) -> tuple[str, str, str]:
    """A verdict, the mistake's name and what is said of one exercise."""
    if why := problem or answer.get("why"):
        return "could not be run", "", str(why)
    try:
        if "kind" in answer:
            found = no_function(exercise, str(answer["kind"])[:100])
        else:
            found = judge(exercise, Received(exercise, answer)).diagnosis
    except Exception as error:  # values that no function of ours returns
        return "could not be run", "", f"what its process says cannot be read ({type(error).__name__})"
    if found.passed:
        return "right", "", found.message
    if is_open(found):
        return "not attempted", "", ""
    return ("mistake" if found.mistake else "not right"), found.mistake or "", found.message


def _line(text: str) -> str:
    """One line of plain text, without what could move a cursor or turn the reading direction."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:1000]
