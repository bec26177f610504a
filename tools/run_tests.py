"""Run the checks of this repository, all of them even if some fail, and say at the end what
failed.

    python tools/run_tests.py                    what is quick and has changed: style, tests,
                                                 notebooks
    python tools/run_tests.py --all              everything: also browsers, compilers, kills,
                                                 the solutions
    python tools/run_tests.py style notebooks    these parts, changed or not

Only the standard library. Each part prints its own progress; the last lines say what failed, how to
run that alone, and how many tests passed. Without arguments, the tests and each lesson are skipped
if nothing that their result depends on has changed since they last passed on this machine: files,
packages, Python.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "-rfEs",
    "--durations=10",
    "--color=no",
]
# Two at a time: tests and lessons keep about one core busy. Each file stays whole, since its tests
# share things.
TWO = ["--numprocesses=2", "--dist=loadfile"]
STEAL = ["--numprocesses=2", "--dist=worksteal"]  # long tests share little, and some take a minute
NBVAL = [*PYTEST, "--nbval"]
# What goes further than the lessons, which `make test` leaves out.
MORE = ["notebooks/more"] if (ROOT / "notebooks" / "more").is_dir() else []
# Where nothing else is set: two workers with more threads than cores wait for each other, and
# longer if they spin.
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


STYLE = Part(
    "the linter, and the formatter's opinion",
    0.1,
    [[sys.executable, "-m", "ruff", "check"], [sys.executable, "-m", "ruff", "format", "--check"]],
)
PARTS = {
    "style": STYLE,
    "tests": Part(
        "all quick tests", 6, [[*PYTEST, *TWO, "-m", "not slow and not browser", "tests"]]
    ),
    "notebooks": Part("each lesson against its stored outputs", 4, [[*NBVAL, *TWO, "notebooks"]]),
    "backwards": Part(
        "the same, then each cell again, from the last to the first",
        8,
        [[*NBVAL, *TWO, "--going-back", "notebooks"]],
    ),
    "solutions": Part(
        "each lesson with its exercises solved, and what goes further",
        6,
        [[*NBVAL, *TWO, "notebooks/solutions", *MORE]],
    ),
    "long": Part(
        "browsers, compilers, kills", 24, [[*PYTEST, *STEAL, "-m", "slow or browser", "tests"]]
    ),
    "real": Part(
        "lesson 18 with the real model, whose package has 98 MB",
        1,
        [[sys.executable, "tools/real.py", "--check"]],
    ),
    "colab": Part(
        "lesson 00 as on Colab, in an environment that is made once",
        1,
        [[sys.executable, "tools/colab", "00"]],
    ),
}
QUICK = {name: PARTS[name] for name in ("style", "tests", "notebooks")}
# What --all runs: no test and no lesson is collected or executed twice, so `backwards` runs by its
# name only.
ALL = {
    "style": STYLE,
    "tests": Part("all tests, what takes long at last", 30, [[*PYTEST, *STEAL, "tests"]]),
    "notebooks": Part(
        "each lesson against its stored outputs, its solution, and more",
        9,
        [[*NBVAL, *TWO, "notebooks", "notebooks/solutions", *MORE]],
    ),
    "real": PARTS["real"],
    "colab": PARTS["colab"],
}
GREEN = ROOT / "work" / "cache" / "green.json"  # the fingerprints of what has passed
NO_INPUT = {
    ".git",
    ".venv",
    "work",
    "build",
    "dist",
    "__pycache__",
    ".hypothesis",
    ".ipynb_checkpoints",
}


def input_files() -> list[Path]:
    """Every file of the checkout that a result may depend on, relative to its root."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in NO_INPUT and not name.endswith(("_cache", ".egg-info"))
        ]
        found += [Path(folder, name) for name in names]
    # an editor's lock may lead nowhere
    return sorted(path.relative_to(ROOT) for path in found if path.is_file())


def fingerprints() -> dict[str, str]:
    """A digest of all that a result depends on: for the tests each file, for a lesson the product
    and its own files.
    """
    packages = sorted(
        f"{package.metadata['Name']} {package.version}" for package in distributions()
    )
    machine = [sys.version, platform.platform(), *packages]
    lines = {
        path: f"{path} {hashlib.sha256((ROOT / path).read_bytes()).hexdigest()}"
        for path in input_files()
    }
    lessons = [path for path in lines if path.match("notebooks/*.ipynb") and len(path.parts) == 2]
    sources = Path("notebooks/source")
    own = {path for path in lines if path.suffix == ".ipynb" or path.is_relative_to(sources)}
    shared = [lines[path] for path in lines.keys() - own if path.parts[0] not in ("tests", "tools")]
    shared = [*machine, *sorted(shared), *map(str, lessons)]  # lesson 00 shows the list of all
    inputs = {"tests": [*machine, *lines.values()]}
    for lesson in lessons:
        source = Path("notebooks/source", f"{lesson.stem}.py")
        inputs[lesson.as_posix()] = [*shared, lines[lesson], lines.get(source, "")]
    return {
        name: hashlib.sha256("\n".join(each).encode()).hexdigest() for name, each in inputs.items()
    }


def passed_before() -> dict[str, str]:
    """The fingerprints of what has passed on this machine."""
    return json.loads(GREEN.read_text("utf-8")) if GREEN.exists() else {}


def leave_out_unchanged(parts: dict[str, Part], now: Mapping[str, str]) -> list[str]:
    """Take out of the parts what is unchanged since it passed. Returns its names."""
    before = passed_before()
    same = [name for name in now if now[name] == before.get(name)]
    lessons = [name for name in same if name != "tests"]
    share = 1 - len(lessons) / max(1, len(now) - 1)
    if "tests" in same:
        del parts["tests"]
    if lessons:
        part = parts.pop("notebooks")
        commands = [
            [*command, *(f"--ignore={lesson}" for lesson in lessons)] for command in part.commands
        ]
        if share:
            parts["notebooks"] = replace(part, commands=commands, minutes=part.minutes * share)
    return same


def remember(parts: Mapping[str, Part], before: Mapping[str, str]) -> None:
    """Keep the fingerprints of what has passed, except of what was changed meanwhile."""
    passed = {name for name, part in parts.items() if part.status == "ok"}
    unchanged = before.items() & fingerprints().items()
    green = {
        name: digest
        for name, digest in unchanged
        if ("tests" if name == "tests" else "notebooks") in passed
    }
    if green:
        GREEN.parent.mkdir(parents=True, exist_ok=True)
        GREEN.write_text(json.dumps({**passed_before(), **green}, indent=1), "utf-8")


def alone(part: str, test: str) -> str:
    """The command that runs one failed test."""
    python = os.path.relpath(sys.executable)
    if part == "style":
        return f"{python} -m ruff check && {python} -m ruff format --check"
    if not test:
        return f"{python} tools/run_tests.py {part}"
    if ".ipynb" in test:
        return f"{python} -m pytest --nbval {test.partition('::')[0]}"
    return f'{python} -m pytest "{test}"'


def run(
    part: Part,
    deadline: float,
    environment: Mapping[str, str] = os.environ,
    log: Path | None = None,
) -> None:
    """Run the commands of a part, pass on what they print, or keep it in a log, and note how they
    end.
    """
    started = time.monotonic()
    part.status = "ok"
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


def follow(
    command: list[str], part: Part, deadline: float, environment: Mapping[str, str], out: BinaryIO
) -> int:
    """Run a command and pass on what it prints, reading from it what failed and what was slow.
    Returns its exit code.

    Raises TimeoutError if it is still running at the deadline.
    """
    options = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "start_new_session": os.name == "posix",
    }
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
    parser.add_argument("--all", action="store_true", help="everything, if no part is named")
    parser.add_argument(
        "--minutes", type=float, default=24 * 60, help="stop after so many, with a summary"
    )
    parser.add_argument(
        "--slowest", type=int, default=0, metavar="N", help="list the N slowest items"
    )
    options = parser.parse_args()
    if unknown := sorted({*options.parts} - {*PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    chosen = {name: part for name, part in PARTS.items() if name in options.parts}
    chosen = chosen or dict(ALL if options.all else QUICK)
    before = fingerprints()
    skipped = leave_out_unchanged(chosen, before) if not options.parts and not options.all else []
    deadline = time.monotonic() + 60 * options.minutes
    print(f"About {sum(part.minutes for part in chosen.values()):.0f} minutes on two quiet cores:")
    for name, part in chosen.items():
        print(f"  {name:<10} {part.minutes:4.1f} min  {part.what}")
    for i, (name, part) in enumerate(chosen.items(), 1):
        print(f"\n== {i} of {len(chosen)}: {name}", flush=True)
        run(part, deadline)
        if part.status not in ("ok", "FAILED"):
            break
    remember(chosen, before)
    return summary(chosen, options.slowest, skipped)


def summary(chosen: dict[str, Part], n_slowest: int, skipped: list[str]) -> int:
    """Print what failed, how to run it alone, what was skipped, and the counts.

    Returns the exit code.
    """
    items = chain.from_iterable(part.slow for part in chosen.values())
    slow = sorted(items, reverse=True)[:n_slowest]
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
    if skipped:
        n_lessons = len({*skipped} - {"tests"})
        what = f"{n_lessons} lessons" + (" and the quick tests" if "tests" in skipped else "")
        print(
            f'skipped: {what}, unchanged since the last green run; make test ARGS="tests '
            'notebooks" runs them'
        )
    counts = Counter()
    for part in chosen.values():
        counts.update(part.counts)
    passed = counts["passed"]
    failed = counts["failed"] + counts["error"]
    bad = [name for name, part in chosen.items() if part.status != "ok"]
    if any(part.status == "interrupted" for part in chosen.values()):
        print(f"{passed} passed, {failed} failed, interrupted: the rest was not run")
    else:
        print(f"{passed} passed, {failed or len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
