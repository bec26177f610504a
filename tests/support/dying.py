"""A training run that kills itself at a place, in a process of its own."""

import itertools
import os
import signal
import sys
from pathlib import Path

from tinylm_lib.__main__ import main

WRITES = ("os.mkdir", "open", "os.rename", "os.remove", "os.rmdir")


def train(place: Path, arguments: list[str], at: int | str | None = None, n_bytes: int | None = None) -> None:
    """Run a command in a folder, and die at an event: just before it, or n_bytes into the next file that is written.

    An event is a file or folder of the run that is about to be made, opened, renamed or deleted (an audit event of
    Python's), from the second checkpoint on that this process writes. at: its number, or the name of a file that is
    first written under another one.
    """
    import resource

    folders, numbers = set(), itertools.count()

    def die(event: str, arguments: tuple) -> None:
        path = str(arguments[0]) if arguments else ""
        if event == "os.mkdir" and "step_" in path:
            folders.add(path)
        if len(folders) < 2 or event not in WRITES or "run" not in path:
            return
        if next(numbers) == at or path.endswith(f".{at}.partial"):
            if n_bytes is None:
                os.kill(os.getpid(), signal.SIGKILL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))

    os.chdir(place)
    with open("said.txt" if n_bytes is None else os.devnull, "a", encoding="utf-8") as said:
        sys.stdout = sys.stderr = said
        sys.addaudithook(die)
        code = main(arguments)
    os._exit(code)
