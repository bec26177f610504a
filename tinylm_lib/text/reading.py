"""Text files, read in blocks: UTF-8 only, and a clear error for anything that is not.

Notebook 01.
"""

import codecs
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BYTES_PER_READ = 1 << 20


def is_file(name: str | Path) -> bool:
    """Whether a file of this name exists, for a text of any length and content."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or with a zero byte: no file has such a name
        return False


def read_blocks(path: Path, progress: Callable[[int], Any] = lambda n_bytes: None) -> Iterator[str]:
    """Yield the text of a UTF-8 file, without its byte-order mark, in blocks: in constant memory.

    The line ends of every system become \\n, as where Python opens a text file; a warning says how
    many did.
    progress: is called with the number of bytes of each block.
    Raises UnicodeError (a ValueError) for a binary or differently encoded file, naming the first
    wrong byte and its offset.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    n_read = 0
    line_ends = io.IncrementalNewlineDecoder(None, translate=True)
    n_translated = 0
    with open(path, "rb") as file:
        raw = None
        while raw != b"":
            raw = file.read(BYTES_PER_READ)
            progress(len(raw))
            if n_read == 0 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise UnicodeError(
                    f"{path} is UTF-16; convert it with: iconv -f utf-16 -t utf-8 FILE > NEW "
                    f"(PowerShell: Get-Content FILE | Set-Content NEW -Encoding utf8)"
                )
            if b"\0" in raw:
                raise UnicodeError(
                    f"{path} is binary (a zero byte at offset {n_read + raw.index(0)}), or UTF-16 "
                    "without a byte-order mark; give a UTF-8 text file"
                )
            n_read += len(raw)
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as e:
                offset = n_read - len(e.object) + e.start
                raise UnicodeError(
                    f"{path} is not UTF-8 (byte {e.object[e.start]:#04x} at offset {offset}); "
                    "convert it, for example with iconv -f latin1 -t utf-8"
                ) from None
            n_translated += text.count("\r")
            yield line_ends.decode(text, final=not raw)
    if n_translated:
        what = f"{n_translated:,} line ends of Windows (\\r\\n, or \\r alone)"
        warnings.warn(
            f"{path}: {what} were read as \\n", stacklevel=1
        )  # of this line: said once for a file
