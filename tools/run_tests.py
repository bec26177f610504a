"""Run the checks of this repository, all of them even if some fail, and say at the end what failed.

    python tools/run_tests.py                    what is quick: style, tests, notebooks
    python tools/run_tests.py --all              and what takes long: browsers, compilers, kills, the solutions
    python tools/run_tests.py style notebooks    these parts

Only the standard library. Each part prints its own progress; the last lines say what failed, how to run that alone, and
how many tests passed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfEs", "--durations=10", "--color=no"]
# Two at a time: tests and lessons keep about one core busy. Each file stays whole, since its tests share things.
TWO = ["--numprocesses=2", "--dist=loadfile"]
STEAL = ["--numprocesses=2", "--dist=worksteal"]  # long tests share little, and some take a minute
NBVAL = [*PYTEST, "--nbval"]
# Where nothing else is set: two workers with more threads than cores wait for each other, and longer if they spin.
SETTINGS = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\[]+?(?:\[.*?\])?)(?: - .*)?$")
SLOW = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(.+)$")
COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")


@dataclass
class Part:
    """Something to check: what it is, minutes on two quiet cores, and the commands that do it."""

    what: str
    minutes: float
    commands: list[list[str]]
    status: str = "not run"
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    slow: list[tuple[float, str]] = field(default_factory=list)


PARTS = {
    "style": Part(
        "the linter, and the formatter's opinion",
        0.1,
        [[sys.executable, "-m", "ruff", "check"], [sys.executable, "-m", "ruff", "format", "--check"]],
    ),
    "tests": Part("all quick tests", 7, [[*PYTEST, *TWO, "-m", "not slow and not browser", "tests"]]),
    "notebooks": Part("each lesson against its stored outputs", 5, [[*NBVAL, *TWO, "notebooks"]]),
    "solutions": Part("each lesson with its exercises solved, likewise", 6, [[*NBVAL, *TWO, "notebooks/solutions"]]),
    "long": Part("browsers, compilers, kills", 18, [[*PYTEST, *STEAL, "-m", "slow or browser", "tests"]]),
}
QUICK = ("style", "tests", "notebooks")


def alone(part: str, test: str) -> str:
    """The command that runs one failed test."""
    python = os.path.relpath(sys.executable)
    if part == "style":
        return f"{python} -m ruff check && {python} -m ruff format --check"
    if ".ipynb" in test:
        return f"{python} -m pytest --nbval {test.partition('::')[0]}"
    return f'{python} -m pytest "{test}"'


def run(part: Part, deadline: float, environment: Mapping[str, str] = os.environ, log: Path | None = None) -> None:
    """Run the commands of a part, pass on what they print, or keep it in a log, and note how they end."""
    started, part.status = time.monotonic(), "ok"
    for command in part.commands:
        try:
            with log.open("ab") if log else nullcontext(sys.stdout.buffer) as out:
                code = follow(command, part, deadline, {**SETTINGS, **environment}, out)
        except (TimeoutError, KeyboardInterrupt) as error:
            part.status = str(error) or "interrupted"
            break
        if code:
            part.status = "FAILED"
    part.seconds = time.monotonic() - started


def follow(command: list[str], part: Part, deadline: float, environment: Mapping[str, str], out: BinaryIO) -> int:
    """Run a command and pass on what it prints, reading from it what failed and what was slow. Returns its exit code.

    Raises TimeoutError if it is still running at the deadline.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": os.name == "posix"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **options) as process:
        late = threading.Timer(max(0.0, deadline - time.monotonic()), end, [process])
        late.start()
        try:
            for line in lines(process, out):
                read(line, part)
            code = process.wait()
        except BaseException:
            end(process)
            raise
        finally:
            late.cancel()
    if time.monotonic() >= deadline:
        raise TimeoutError("stopped: no time left")
    return code


def lines(process: subprocess.Popen, out: BinaryIO) -> Iterator[str]:
    """Write what a process prints as it comes, and yield its lines."""
    line = b""
    while piece := process.stdout.read1(4096):
        out.write(piece)
        out.flush()
        *whole, line = (line + piece).split(b"\n")
        yield from (one.decode("utf-8", "replace").rstrip() for one in whole)


def read(line: str, part: Part) -> None:
    """Note what a line of pytest's says."""
    if found := FAILED.match(line):
        part.failed.append(found[1])
    elif found := SLOW.match(line):
        part.slow.append((float(found[1]), found[2]))
    elif line.startswith("=") and re.search(r" in [\d.]+s", line):
        for number, what in COUNTS.findall(line):
            part.counts[what] = part.counts.get(what, 0) + int(number)


def end(process: subprocess.Popen) -> None:
    """End a process and its children."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL) if os.name == "posix" else process.kill()


def main() -> int:
    """Returns 0 if all that was asked for passed, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)}")
    parser.add_argument("--all", action="store_true", help="all parts")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="stop after so many, with a summary")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="list the N slowest items")
    options = parser.parse_args()
    if unknown := sorted({*options.parts} - {*PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    names = [*PARTS] if options.all else options.parts or QUICK
    if options.all:  # in the same kernels, so that no lesson is executed a third time
        PARTS["notebooks"].commands[0].append("--going-back")
        PARTS["notebooks"].what += ", then each cell again, from the last to the first"
        PARTS["notebooks"].minutes = 8
    chosen = {name: part for name, part in PARTS.items() if name in names}
    deadline = time.monotonic() + 60 * options.minutes
    print(f"About {sum(part.minutes for part in chosen.values()):.0f} minutes on two quiet cores:")
    for name, part in chosen.items():
        print(f"  {name:<10} {part.minutes:4.1f} min  {part.what}")
    for i, (name, part) in enumerate(chosen.items(), 1):
        print(f"\n== {i} of {len(chosen)}: {name}", flush=True)
        run(part, deadline)
        if part.status not in ("ok", "FAILED"):
            break
    return summary(chosen, options.slowest)


def summary(chosen: dict[str, Part], n_slowest: int) -> int:
    """Print what failed, how to run it alone, and the counts. Returns the exit code."""
    slow = sorted((item for part in chosen.values() for item in part.slow), reverse=True)[:n_slowest]
    if slow:
        print("\n== slowest")
        print("\n".join(f"{seconds:7.1f} s  {what}" for seconds, what in slow))
    print("\n== summary")
    for name, part in chosen.items():
        counts = ", ".join(f"{n} {what}" for what, n in part.counts.items())
        print(f"{name:<10} {part.status:<8} {part.seconds:6.0f} s  {counts}")
        failed = part.failed or ([""] if part.status == "FAILED" else [])
        for again in dict.fromkeys(alone(name, test) for test in failed):
            print(f"  again: {again}")
    passed, failed = (sum(sum(p.counts.get(what, 0) for what in names) for p in chosen.values())
                      for names in (("passed",), ("failed", "error")))  # fmt: skip
    bad = [name for name, part in chosen.items() if part.status != "ok"]
    print(f"{passed} passed, {failed or len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
