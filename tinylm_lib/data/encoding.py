"""Text files encoded into a token file, never whole in memory. Notebook 11."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..text.base import Tokenizer
from ..text.reading import read_blocks
from .token_file import write_tokens


def encode_files(
    paths: list[Path], out: Path, tokenizer: Tokenizer, progress: Callable[[int], Any]
) -> int:
    """Encode UTF-8 files, one after the other, into a token file.

    Each file is a text: its ids are those that `encode` gives for all of it, then comes the first
    of the tokenizer's `ending`, where it has one.
    progress: is called with the number of bytes of each block that is read.
    Returns the number of ids.
    Raises ValueError, naming the file, for one that is not UTF-8 text or holds what has no id.
    """

    def ids() -> Iterator[int]:
        for path in paths:
            try:
                yield from tokenizer.encode_iterable(read_blocks(path, progress))
            except UnicodeError:  # of reading, which names the file
                raise
            except ValueError as e:
                raise ValueError(f"{path}: {e}") from None
            yield from tokenizer.ending[:1]

    return write_tokens(out, ids(), tokenizer)
