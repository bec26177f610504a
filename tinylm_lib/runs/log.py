"""What a run noted as it went: a file with one JSON object a line, which outlives the run however it ends."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..files import sync

NAME = "log.jsonl"


def note(path: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to a log, one line each, and wait until they are on the disk.

    Raises OSError, naming the file and the remedy, where it cannot be written.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        sync(path)


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a log; a line that was cut off or damaged is left out. No file is an empty log."""
    return [entry for _, entry in _entries(path)]


def cut(path: Path, update: int) -> None:
    """Forget what came after an update, which a run that goes on there writes again, and lines that are damaged.

    Warns where the log does not hold every update before.
    Raises OSError, naming the file and the remedy, where it cannot be written.
    """
    kept = [(line, entry) for line, entry in _entries(path) if entry["update"] <= update]
    if [entry["update"] for _, entry in kept if "loss" in entry] != list(range(1, update + 1)):
        warnings.warn(f"{path} does not hold every update from 1 to {update}: it was damaged or lost", stacklevel=2)
    partial = path.with_name(f"{path.name}.partial")
    with _explained(path):
        partial.write_bytes(b"".join(line for line, _ in kept))
        sync(partial)
        os.replace(partial, path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        remedy = "free some space or choose another folder (checkpoints that stand there are unharmed)"
        raise OSError(e.errno, f"cannot write the log {path}: {e.strerror}; {remedy}") from None


def _entries(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the whole lines of a log with what they say."""
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.endswith(b"\n") and isinstance(entry, dict) and type(entry.get("update")) is int:
            yield line, entry
