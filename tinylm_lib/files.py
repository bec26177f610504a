"""Files that are whole or not there, written under another name before they get their own; output
that never fails.
"""

import errno
import hashlib
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError


def work_folder(default: Path = Path("work")) -> Path:
    """Where everything that is made is kept: the folder that the environment variable TINYLM_WORK
    names.
    """
    return Path(os.path.expanduser(os.environ.get("TINYLM_WORK") or default))


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes its place at `path` when all is written; after an error nothing of
    it is left.

    Raises FileExistsError where `path` is a folder or a device, such as /dev/null, which would be
    replaced.
    """
    if path.exists() and not path.is_file():
        raise FileExistsError(f"{path} is not a regular file; choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{secrets.token_hex(4)}.{path.name}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
        put_in_place(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is whole or not there; what was there before stays until then."""
    with whole_file(path) as file:
        file.write(content)


def put_in_place(partial: Path, path: Path) -> None:
    """Give a finished file, or a folder of files, its own name in one step, when all of it is on
    the disk.
    """
    for file in sorted(partial.iterdir()) if partial.is_dir() else [partial]:
        with suppress(PermissionError):  # on a disk that knows no permissions
            os.chmod(file, 0o666 & ~_umask())  # safetensors lets nobody else read
        sync(file)
    if partial.is_dir():
        sync(partial)
    os.replace(partial, path)


def _umask() -> int:
    """The permissions that new files do not get; they show only while others are set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, where the system lets us."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Turn a failed write into an OSError that says what cannot be written, where, why, and what to
    do.
    """
    try:
        yield
    except (OSError, SafetensorError) as e:
        number = e.errno if isinstance(e, OSError) and e.errno else errno.EIO
        why = os.strerror(number) if isinstance(e, OSError) and e.errno else str(e)
        raise OSError(
            number,
            f"cannot write {what} {path}: {why}; free some space or choose another folder "
            f"(what was there before is unharmed)",
        ) from None


# What a file begins with that is not what its name says, what it then is, and what to do.
_FOREIGN = {
    b"version https://git-lfs": (
        "a Git LFS pointer instead of the file; run git lfs pull, or download it again"
    ),
    b"<": "a web page or other markup, not the file itself; download it again",
    b"PK": (
        "a zip archive, such as a pickle of PyTorch, under another name; take a version of the "
        "model in safetensors"
    ),
    b"\x80": "a pickle under another name; take a version of the model in safetensors",
    b"GGUF": "a GGUF file under another name; open it alone with load_model",
    b"\xff\xfe": "a text in UTF-16; save it again as UTF-8",
    b"\xfe\xff": "a text in UTF-16; save it again as UTF-8",
}


def foreign(path: Path) -> str:
    """What a file is that is not what its name says, and what to do; "" where nothing of that kind
    is found.
    """
    with open(path, "rb") as file:
        begin = file.read(64)
    if not begin:
        return "empty; download it again"
    text = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((what for mark, what in _FOREIGN.items() if text.startswith(mark)), "")


def print_anything() -> None:
    """Print ? for characters that the output cannot encode, such as on a pipe of Windows, instead
    of failing.
    """
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
