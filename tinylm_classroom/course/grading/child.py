"""The process that runs a student's code: python -m tinylm_classroom.course.grading.child

It reads one JSON object from its standard input: limits, and the texts of exercises by name. For
each exercise it writes a line of JSON to what was its standard output: the plain values that came
of the probes, or why there are none. It decides nothing. What the student's code prints goes to the
null device. The code finds the names that every kernel has; they do nothing here.
"""

import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ...checks.calling import calls_of, moved, still_running
from ...checks.surroundings import supply_names_of_a_notebook
from ...exercises import find_exercise
from ...exercises.base import Exercise
from .touching import Watch
from .wire import encode_call

SLOW = 4.0  # seconds for all probes, after which nothing more is tried


def main() -> None:
    """Run all exercises, one after the other."""
    job = json.loads(sys.stdin.buffer.read())
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for name in job["exercises"]:  # torch starts up here, with our functions
        calls_of(find_exercise(name).reference, find_exercise(name).probes)
    limit(**job["limits"])
    supply_names_of_a_notebook()
    watch = Watch(os.getcwd())
    _write(channel, {"ready": True})
    for name, text in job["exercises"].items():
        found = _run(find_exercise(name), text)
        _write(
            channel, {"exercise": name, **found, "touched": watch.take(), "last": still_running()}
        )
        if still_running():  # it would slow down the others
            break
    os._exit(0)  # not through what a student's code has registered


def limit(*, memory: int, cpu_seconds: int, file_size: int, files: int, processes: int) -> None:
    """Lower the limits of the operating system for this process and everything that it starts,
    where there are any.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    statm = Path("/proc/self/statm")
    own = int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 0
    wanted = {
        "RLIMIT_CPU": int(used.ru_utime + used.ru_stime) + 1 + cpu_seconds,
        "RLIMIT_FSIZE": file_size,
        "RLIMIT_NOFILE": files,
        "RLIMIT_CORE": 0,
        **({"RLIMIT_AS": own + memory} if own else {}),
        "RLIMIT_NPROC": _processes_of_this_user() + processes,
    }
    for name, most in wanted.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _processes_of_this_user() -> int:
    """How many threads the limit counts already, where the system shows them."""
    count = 0
    user = os.getuid()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                count += len(os.listdir(folder / "task"))
        except OSError:  # it has ended
            continue
    return count


def _run(exercise: Exercise, text: str) -> dict[str, Any]:
    """What comes of the probes, or `why` there is nothing."""
    path = Path(f"{exercise.name}.py").absolute()
    path.write_text(text, encoding="utf-8")
    try:
        function = runpy.run_path(str(path), run_name="__main__").get(exercise.name)
    except BaseException as error:  # it is a student's code: it may raise anything
        return {"why": _said(error, path)}
    if not callable(function):
        return {"kind": type(function).__name__}
    start = time.monotonic()
    calls = calls_of(function, exercise.probes)
    found: dict[str, Any] = {
        "calls": [encode_call(call) for call in calls],
        "again": [],
        "moved": [],
    }
    if calls[-1].ended and time.monotonic() - start < SLOW:
        found["again"] = [encode_call(call) for call in calls_of(function, exercise.probes, seed=1)]
        others: list[tuple[int, int]] = []
        for i in range(len(exercise.probes)):
            others += [(i, place) for place in range(len(calls[i].arguments))]
        known = {at: probe for at in others if (probe := moved(exercise.probes[at[0]], at[1]))}
        found["moved"] = [
            [*at, encode_call(call)]
            for at, call in zip(known, calls_of(function, tuple(known.values())), strict=False)
        ]
    return found


def _said(error: BaseException, path: Path) -> str:
    """An error of the definitions, with the student's line."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    line = f" in the line `{frames[-1].line}`" if frames and frames[-1].line else ""
    return f"{type(error).__name__}{line}: {error}"[:1000]


def _write(channel: Any, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


if __name__ == "__main__":
    main()
