"""Text files encoded into a token file: in blocks, by several processes, never whole in memory. Notebook 11."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..text.base import Tokenizer
from ..text.tokenizers import tokenizer_from_dict
from .corpora import read_blocks
from .token_file import write_blocks

SMALL = 1 << 25  # bytes of text that one process encodes before others have started
MOST_PROCESSES = 8  # each has torch in memory
INTERRUPTS = {signal.SIGINT, signal.SIGTERM}
_OWN: list[Tokenizer] = []  # the tokenizer of a process that encodes


class Block(NamedTuple):
    """A piece of a file that is encoded on its own: its text, and how many characters are before it."""

    path: Path
    text: str
    position: int
    ends: bool  # nothing of the file is left, and the text is empty


def encode_files(paths: list[Path], out: Path, tokenizer: Tokenizer, progress: Callable[[int], Any]) -> int:
    """Encode UTF-8 files, one after the other, into a token file.

    Each file is a text: its ids are those that `encode` gives for all of it, then comes the first of the tokenizer's
    `ending`, where it has one. Large files are encoded by a process on each core.
    progress: is called with the number of bytes of each block.
    Returns the number of ids.
    Raises ValueError, naming the file, for one that is not UTF-8 text or holds what has no id.
    """
    blocks = _blocks(paths, tokenizer, progress)
    if sum(path.stat().st_size for path in paths) > SMALL:
        return write_blocks(out, _by_processes(blocks, tokenizer), tokenizer)
    _OWN[:] = [tokenizer]
    return write_blocks(out, map(_encode, blocks), tokenizer)


def _blocks(paths: list[Path], tokenizer: Tokenizer, progress: Callable[[int], Any]) -> Iterator[Block]:
    for path in paths:
        position = 0
        for text in tokenizer.blocks(read_blocks(path)):
            yield Block(path, text, position, False)
            position += len(text)
            progress(len(text.encode("utf-8")))
        yield Block(path, "", position, True)


def _encode(block: Block) -> np.ndarray:
    tokenizer = _OWN[0]
    if block.ends:
        return np.array(tokenizer.ending[:1], np.int32)
    try:
        return np.array(tokenizer.encode_block(block.text, block.position > 0), np.int32)
    except ValueError as e:
        raise ValueError(f"{block.path}, counted from character {block.position}: {e}") from None


def _start(values: dict[str, Any]) -> None:
    """Prepare a process that encodes; Ctrl-C is for the one that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    _OWN[:] = [tokenizer_from_dict(values)]


@contextmanager
def _later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait, also in the processes that start here: half-started ones would print errors."""
    seen: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: seen.append(number)) for number in INTERRUPTS}
    if os.name == "posix":
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        if os.name == "posix":
            signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in seen[:1]:
            signal.raise_signal(number)


def _by_processes(blocks: Iterable[Block], tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    """Encode blocks with a process on each core; the results come in order, and few blocks wait."""
    n, waiting = min(os.cpu_count() or 1, MOST_PROCESSES), deque[Future[np.ndarray]]()
    with ProcessPoolExecutor(n, get_context("spawn"), _start, (tokenizer.to_dict(),)) as pool:
        try:
            for block in blocks:
                with _later():  # the first one starts the processes
                    waiting.append(pool.submit(_encode, block))
                if len(waiting) > 2 * n:
                    yield waiting.popleft().result()
            yield from (future.result() for future in waiting)
        except BrokenProcessPool:
            raise OSError("a process that encoded was ended, perhaps because memory ran out; try again") from None
