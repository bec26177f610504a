"""Starting the processes that run students' code, with limits, and reading what they say."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ...folders import ROOT
from .confine import TOO_MANY
from .submissions import Submission

ANSWER_BYTES = 8 * 2**20  # of one answer
STARTING = 180.0  # seconds until a process has imported torch
UNREADABLE = "the answer of its process cannot be read"
CONFINE = [sys.executable, "-I", "-S", str(Path(__file__).with_name("confine.py"))]


@dataclass(frozen=True)
class Limits:
    """What one process may use.

    `seconds` are for each exercise, `cpu_seconds` for all; memory and files are in bytes.
    """

    seconds: float = 40.0
    cpu_seconds: int = 120
    memory: int = 4 * 2**30
    file_size: int = 64 * 2**20
    files: int = 256
    processes: int = 64


class _EarlyEndError(Exception):
    """How a process ended before it had answered everything."""


def permitted() -> list[str]:
    """Which of "network", "files" and "processes" we can take from a student's code here."""
    if sys.platform != "linux":
        return []
    with TemporaryDirectory() as folder:
        command = [*_confined(Limits(), (), folder), sys.executable, "-I", "-S", "-c", ""]
        return json.loads(
            subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout
        )["permitted"]


def answers(
    submission: Submission,
    limits: Limits,
    hidden: Sequence[Path] = (),
    stop: threading.Event | None = None,
) -> dict[str, dict]:
    """What the processes say of each exercise. One that ends early costs only the exercise that it
    was at.

    stop: once it is set, the process is ended and what has no answer yet is left out.
    """
    stop = stop or threading.Event()
    waiting = {name: a.text for name, a in submission.attempts.items() if a and not a.problem}
    found: dict[str, dict] = {}
    while waiting and not stop.is_set():
        try:
            for answer in _run(waiting, limits, hidden, stop):
                found[answer["exercise"]] = answer
        except _EarlyEndError as end:
            found[next(name for name in waiting if name not in found)] = {"why": str(end)}
        waiting = {name: text for name, text in waiting.items() if name not in found}
    return found


def _run(
    texts: dict[str, str], limits: Limits, hidden: Sequence[Path], stop: threading.Event
) -> Iterator[dict]:
    """Yields what one process says, exercise by exercise.

    Raises _EarlyEndError when it says no more, or nonsense.
    """
    own = {name: value for name, value in asdict(limits).items() if name != "seconds"}
    job = json.dumps({"limits": own, "exercises": texts}).encode()
    with TemporaryDirectory(prefix="tinylm-grade-", ignore_cleanup_errors=True) as folder:
        command = [*_confined(limits, hidden, folder), sys.executable, "-m", f"{__package__}.child"]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            with suppress(OSError):
                process.stdin.write(job)
                process.stdin.close()
            lines = _lines(process, len(texts) + 2)
            for key in ("permitted", "ready")[sys.platform != "linux" :]:
                _message(process, lines, STARTING, stop, key)
            for name in texts:
                answer = _message(process, lines, limits.seconds, stop, "exercise")
                if answer["exercise"] != name:
                    raise _EarlyEndError(UNREADABLE)
                yield answer
                if answer.get("last"):
                    return
        finally:
            _end(process)


def _confined(limits: Limits, hidden: Sequence[Path], folder: str) -> list[str]:
    """The beginning of a command that confines the rest; nothing where the system is not Linux."""
    if sys.platform != "linux":
        return []
    paths = [str(path.resolve()) for path in hidden if path.exists()]
    # the paths of a large class are too long for a command line
    options = Path(folder, "confine.json")
    options.write_text(
        json.dumps({"bytes": 4 * limits.file_size, "hidden": paths, "processes": limits.processes})
    )
    return [*CONFINE, str(options)]


def _environment(folder: str) -> dict[str, str]:
    """What Python needs, and nothing of ours that a student's code could use."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH")
        if name in os.environ
    }
    return kept | {
        "HOME": folder,
        "USERPROFILE": folder,
        "TMPDIR": folder,
        "TEMP": folder,
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TINYLM_WORKSHOP": "off",
        "TINYLM_WORK": folder,
    }


def _lines(process: subprocess.Popen, n: int) -> "queue.Queue[bytes]":
    """The first n lines that a process writes; an empty one is the end."""
    lines: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        with process.stdout as channel:
            for _ in range(n):
                lines.put(channel.readline(ANSWER_BYTES))

    threading.Thread(target=read, daemon=True).start()
    return lines


def _message(
    process: subprocess.Popen,
    lines: "queue.Queue[bytes]",
    seconds: float,
    stop: threading.Event,
    key: str,
) -> dict:
    """The next message, which has this key. Raises _EarlyEndError for anything else."""
    line = None
    deadline = time.monotonic() + seconds
    while line is None:
        if stop.is_set() or time.monotonic() > deadline:
            raise _EarlyEndError(f"it did not end within {seconds:.0f} s and was stopped")
        with suppress(queue.Empty):
            line = lines.get(timeout=0.2)
    if not line:
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
        raise _EarlyEndError(_reason(process.returncode or 0))
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or key not in message:
        raise _EarlyEndError(UNREADABLE)
    return message


def _reason(code: int) -> str:
    """What the status of a process means if it ended before it had answered everything."""
    if code == TOO_MANY:
        return "it started too many processes and was stopped"
    number = -code if code < 0 else code - 128
    return (
        f"its process ended early, {f'by signal {number}' if number > 0 else f'with status {code}'}"
    )


def _end(process: subprocess.Popen) -> None:
    """End a process and everything that it has started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    process.wait()
