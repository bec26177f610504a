"""What a run noted on its way: a file with one JSON object a line, which outlives the run however
it ends.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import explained, sync, whole_file

LOG_NAME = "log.jsonl"


def append_log(path: Path, entries: list[dict[str, Any]]) -> None:
    """Add entries to a log, one line each, and wait until they are on the disk.

    Raises OSError, naming the file and what to do, where it cannot be written.
    """
    with explained("the log", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        sync(path)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a log; a line that was cut off or damaged is left out.

    No file is an empty log.
    """
    return [entry for _, entry in _entries(path)]


def cut_log(path: Path, update: int) -> None:
    """Forget what came after an update, which a run that continues there writes again, and lines
    that are damaged.

    Warns where the log does not hold every update before.
    Raises OSError, naming the file and what to do, where it cannot be written.
    """
    kept = [(line, entry) for line, entry in _entries(path) if entry["update"] <= update]
    if [entry["update"] for _, entry in kept if "loss" in entry] != list(range(1, update + 1)):
        warnings.warn(
            f"{path} does not hold every update from 1 to {update}: it was damaged or lost",
            stacklevel=2,
        )
    with explained("the log", path):
        for left in path.parent.glob(f".*.{path.name}.partial"):  # by a cut that was killed
            left.unlink()
        with whole_file(path) as file:
            file.writelines(line for line, _ in kept)


def _entries(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the whole lines of a log with what they say."""
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if line.endswith(b"\n") and isinstance(entry, dict) and type(entry.get("update")) is int:
            yield line, entry
