"""A training run that kills itself at a place, in a process of its own, and what is left of a run."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tinylm_lib.__main__ import main


def everything(run: Path) -> dict[str, bytes]:
    """Every file of a run: weights, optimizer, random states, settings and losses."""
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}


WRITES = ("os.mkdir", "open", "os.rename", "os.remove", "os.rmdir")


def watch(reached: Callable[[int, str], None]) -> None:
    """From the second checkpoint on that this process writes, call a function with number and path of each event.

    An event is a file or folder of the run that is about to be made, opened, renamed or deleted: an audit event of
    Python's.
    """
    folders, n_events = set(), 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal n_events
        path = str(arguments[0]) if arguments else ""
        if event == "os.mkdir" and "step_" in path:
            folders.add(path)
        if len(folders) > 1 and event in WRITES and "run" in path:
            n_events += 1
            reached(n_events - 1, path)

    sys.addaudithook(hook)


def train(place: Path, arguments: list[str], at: int | str | None = None, n_bytes: int | None = None) -> None:
    """Run a command in a folder, and die at an event: just before it, or n_bytes into the next file that is written.

    at: the event's number, or how its path ends.
    """
    import resource

    def die(i: int, path: str) -> None:
        if i == at or (isinstance(at, str) and path.endswith(at)):
            if n_bytes is None:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))

    os.chdir(place)
    with open("said.txt" if n_bytes is None else os.devnull, "a", encoding="utf-8") as said:
        sys.stdout = sys.stderr = said
        if at is not None:
            watch(die)
        code = main(arguments)
    os._exit(code)
