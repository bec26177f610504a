"""Corpora: built in, downloaded once, or a file of yours. Notebook 11."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from ..files import work_folder
from ..storyworld.stories import corpus
from .download import Source, download


def storyworld_text() -> str:
    """20,000 stories, one a line: 10 MB of a language whose exact entropy is known (see the room storyworld)."""
    return corpus(20_000, seed=0)


def pydoc_text() -> str:
    """The help topics that every CPython carries: about 460 KB of English prose about Python."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"


CACHE = work_folder() / "cache/corpora"
SHAKESPEARE = Source(
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    n_bytes=1_115_394,
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)


def shakespeare_text() -> str:
    """Tiny Shakespeare, 1.1 MB of his plays: downloaded once, then kept in work/cache/corpora.

    Raises ConnectionError for a download that fails.
    """
    path = CACHE / "shakespeare.txt"
    download(SHAKESPEARE, path)
    return path.read_bytes().decode("utf-8")


CORPORA = {"storyworld": storyworld_text, "pydoc": pydoc_text, "shakespeare": shakespeare_text}
LINES = {"storyworld"}  # corpora in which each line is a text of its own
BYTES_PER_READ = 1 << 20
TO_UTF8 = (
    "convert it with: iconv -f {0} -t utf-8 FILE > NEW (PowerShell: "
    "Get-Content FILE -Encoding {1} | Set-Content NEW -Encoding utf8)"
)


def load_corpus(name_or_path: str | Path) -> str:
    """Return the text of a built-in corpus (a key of CORPORA) or of a UTF-8 file.

    Raises FileNotFoundError for what is neither, ValueError for an empty, binary or differently encoded file,
    ConnectionError for a corpus that cannot be downloaded.
    """
    if name_or_path in CORPORA:
        return CORPORA[name_or_path]()
    path = Path(name_or_path)
    try:
        found = path.is_file()
    except (OSError, ValueError):  # too long, or with a zero byte: no file has such a name
        found = False
    if not found:
        raise FileNotFoundError(
            f"{str(name_or_path)!r} is neither a file nor a corpus; the corpora are {', '.join(CORPORA)}"
        )
    text = "".join(read_blocks(path))
    if not text.strip():
        raise ValueError(f"{path} is empty; give a file with text")
    return text


def read_blocks(path: Path) -> Iterator[str]:
    """Yield the text of a UTF-8 file, without its byte-order mark, in blocks: in constant memory.

    Raises ValueError, naming the first wrong byte and its offset, for a binary or differently encoded file.
    """
    decoder, n_read = codecs.getincrementaldecoder("utf-8-sig")(), 0
    with open(path, "rb") as file:
        while True:
            raw = file.read(BYTES_PER_READ)
            if not n_read:
                _refuse_utf16(path, raw)
            n_read += len(raw)
            if b"\0" in raw:
                offset = n_read - len(raw) + raw.index(0)
                raise ValueError(f"{path} is binary (a zero byte at offset {offset}); give a UTF-8 text file")
            try:
                text = decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as e:
                offset = n_read - len(e.object) + e.start
                raise ValueError(
                    f"{path} is not UTF-8 (byte {e.object[e.start]:#04x} at offset {offset}); convert it, for example "
                    f"with iconv -f latin1 -t utf-8"
                ) from None
            yield text
            if not raw:
                return


def _refuse_utf16(path: Path, raw: bytes) -> None:
    """Raise ValueError for bytes that begin with UTF-16's mark, or are of text with Latin letters in it."""
    halves = (raw[1:512:2], raw[0:512:2])  # where little and big endian have the zeros of Latin letters and spaces
    for mark, (zeros, others), name, windows in (
        (codecs.BOM_UTF16_LE, halves, "utf-16le", "Unicode"),
        (codecs.BOM_UTF16_BE, halves[::-1], "utf-16be", "BigEndianUnicode"),
    ):
        if raw.startswith(mark) or (zeros.count(0) > len(zeros) / 2 and not others.count(0)):
            known = "utf-16" if raw.startswith(mark) else name
            raise ValueError(f"{path} is UTF-16; {TO_UTF8.format(known, windows)}")
