"""What a GGUF file says of itself: its metadata, and where each of its tensors begins.

The package gguf reads the same, in seconds for a vocabulary and without an end where a damaged file
claims a list of 10^18 numbers; here each length is compared with the file first.
Source: the specification of GGUF, versions 2 and 3.
"""

import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import foreign

MAGIC = b"GGUF"
VERSIONS = (2, 3)
BEGIN = 8  # bytes of the magic and the version
ALIGNMENT = 32  # bytes, where general.alignment does not say so
SPLIT = "split.count"

_NUMBERS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "?", 10: "u8"}
_NUMBERS |= {11: "i8", 12: "f8"}  # dtypes of numpy by their number in the file
_TEXT = 8
_LIST = 9


class Placed(NamedTuple):
    """A tensor in a GGUF file: its shape, the number of its kind of storage, its first byte."""

    shape: tuple[int, ...]
    kind: int
    begin: int


class Header(NamedTuple):
    """The metadata of a GGUF file by key, its tensors by name, and the file, mapped to memory."""

    metadata: dict[str, Any]
    tensors: dict[str, Placed]
    content: mmap.mmap


class _Cursor:
    """Reads one value after the other, and never behind the end of the file."""

    def __init__(self, content: mmap.mmap):
        self.content = content
        self.at = BEGIN

    def _advance(self, n_bytes: int) -> int:
        begin = self.at
        self.at += n_bytes
        if self.at > len(self.content):
            raise ValueError(f"it ends after {len(self.content)} bytes, inside its header")
        return begin

    def numbers(self, dtype: str, n: int) -> np.ndarray:
        begin = self._advance(n * np.dtype(dtype).itemsize)
        little = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.content, little, n, begin)

    def number(self, dtype: str) -> Any:
        return self.numbers(dtype, 1)[0].item()

    def text(self) -> str:
        n = int.from_bytes(self.content[self._advance(8) : self.at], "little")
        return self.content[self._advance(n) : self.at].decode("utf-8")

    def value(self) -> Any:
        kind = self.number("u4")
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            raise ValueError(f"a value is of the unknown kind {kind}")
        kind = self.number("u4")
        n = self.number("u8")
        if kind in _NUMBERS:
            return self.numbers(_NUMBERS[kind], n)
        if kind != _TEXT:
            raise ValueError(f"a list has values of kind {kind}")
        return [self.text() for _ in range(n)]


def is_gguf(path: str | Path) -> bool:
    """Whether a file begins as GGUF does, whatever its name."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_header(path: Path) -> Header:
    """What a GGUF file holds; the tensors themselves are not read.

    Raises ValueError for a damaged file, for one of another version or a part of several, and for
    one that is not GGUF.
    """
    if not is_gguf(path):
        raise ValueError(f"{path} is {foreign(path) or 'not a GGUF file; download it again'}")
    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    version = int.from_bytes(content[len(MAGIC) : BEGIN], "little")
    if len(content) >= BEGIN and version not in VERSIONS:
        raise ValueError(
            f"{path} is of version {version} of GGUF, and only {VERSIONS[0]} and {VERSIONS[1]} are "
            "read; take a newer file of the model"
        )
    try:
        metadata, tensors = _read(_Cursor(content))
    except ValueError as e:
        raise ValueError(f"{path} is damaged ({e}); download it again") from None
    if (n := metadata.get(SPLIT, 0)) > 1:
        raise ValueError(
            f"{path} is one of the {n} parts of a model; join them with llama-gguf-split --merge, "
            "and give the whole file"
        )
    return Header(metadata, tensors, content)


def _read(cursor: _Cursor) -> tuple[dict[str, Any], dict[str, Placed]]:
    n_tensors = cursor.number("u8")
    n_values = cursor.number("u8")
    metadata: dict[str, Any] = {}
    for _ in range(n_values):
        _add(metadata, cursor.text(), cursor.value())
    offsets: dict[str, Placed] = {}
    for _ in range(n_tensors):
        name = cursor.text()
        reversed_shape = cursor.numbers("u8", cursor.number("u4")).tolist()
        kind = cursor.number("u4")
        _add(offsets, name, Placed(tuple(reversed(reversed_shape)), kind, cursor.number("u8")))
    unit = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(unit, int) or unit < 1:
        raise ValueError(f"general.alignment is {unit!r}")
    begin = -(-cursor.at // unit) * unit  # where the tensors begin
    return metadata, {name: t._replace(begin=begin + t.begin) for name, t in offsets.items()}


def _add(values: dict[str, Any], name: str, value: Any) -> None:
    if name in values:
        raise ValueError(f"{name} is there twice")
    values[name] = value
