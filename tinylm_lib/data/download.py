"""A file of the web: downloaded once, with a progress bar, and checked. Notebook 11."""

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from ..files import sha256, whole_file

DOWNLOAD_TIMEOUT = 20.0  # seconds without a byte


class Source(NamedTuple):
    """A file of the web: its address, size in bytes and SHA-256."""

    url: str
    n_bytes: int
    sha256: str


def download(source: Source, path: Path) -> None:
    """Download a file to `path` with a progress bar, unless it is already there; in both cases it
    is checked.

    Raises ConnectionError, which says what else to do, if that fails; ValueError if `path` holds
    another file.
    """
    if path.exists():
        if sha256(path) != source.sha256:
            raise ValueError(
                f"{path} is not the file of {source.url} (its SHA-256 differs); delete it and try "
                "again"
            )
        return
    try:
        with whole_file(path) as file:
            for block in _blocks(source):
                file.write(block)
    except (OSError, http.client.HTTPException) as e:
        raise ConnectionError(
            f"cannot download {source.url}: {str(e) or type(e).__name__}. Three ways out: get the "
            f"file elsewhere and put it at {path}; take a text file of your own (--corpus FILE); "
            "or take a corpus that needs no download (--corpus storyworld)"
        ) from None


def _blocks(source: Source) -> Iterator[bytes]:
    name = source.url.rpartition("/")[2]
    digest = hashlib.sha256()
    n_read = 0
    with (
        urllib.request.urlopen(source.url, timeout=DOWNLOAD_TIMEOUT) as answer,
        tqdm(desc=name, total=source.n_bytes, unit="B", unit_scale=True) as bar,
    ):
        while n_read <= source.n_bytes and (block := answer.read(1 << 16)):
            digest.update(block)
            n_read += len(block)
            bar.update(len(block))
            yield block
    if n_read != source.n_bytes:
        raise OSError(f"{n_read} bytes came, and the file has {source.n_bytes}")
    if digest.hexdigest() != source.sha256:
        raise OSError(
            f"what came is another file (SHA-256 {digest.hexdigest()}, not {source.sha256})"
        )
