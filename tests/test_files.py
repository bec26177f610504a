"""Files are whole or not there, with the permissions of any other new file, and a failed write says what to do."""

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinylm_lib
from tinylm_lib.files import explained, foreign, print_anything, put_in_place, whole_file, write_whole


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    with whole_file(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"other")
        raise ZeroDivisionError
    assert path.read_bytes() == b"half"
    assert list(path.parent.iterdir()) == [path]


@pytest.fixture
def umask() -> Iterator[int]:
    """Where files of the group are writable, as on many shared machines."""
    before = os.umask(0o002)
    yield 0o002
    os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="permissions are a matter of POSIX")
def test_others_may_read_what_the_umask_lets_them(umask: int, tmp_path: Path) -> None:
    with whole_file(tmp_path / "file") as file:
        file.write(b"x")
    partial = tmp_path / "partial"
    partial.mkdir()
    (partial / "one").touch(mode=0o600)
    put_in_place(partial, tmp_path / "folder")
    assert {oct(path.stat().st_mode) for path in (tmp_path / "file", tmp_path / "folder" / "one")} == {"0o100664"}
    assert os.umask(umask) == umask, "it was changed"


@pytest.mark.skipif(os.name != "posix", reason="only POSIX lets a program wait for the disk")
def test_what_gets_its_name_is_on_the_disk_and_so_is_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, replace, names = os.fsync, os.replace, []
    monkeypatch.setattr(os, "fsync", lambda descriptor: (names.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda old, new: (names.append("replace"), replace(old, new)))
    with whole_file(tmp_path / "file") as file:
        file.write(b"x")
    assert names == ["fsync", "replace", "fsync"]


def test_a_failed_write_says_where_why_and_what_to_do(tmp_path: Path) -> None:
    says = r"cannot write the notes .*x: No space left .*; free some space or choose another folder"
    with pytest.raises(OSError, match=says) as e, explained("the notes", tmp_path / "x"):
        raise OSError(errno.ENOSPC, "full")
    assert e.value.errno == errno.ENOSPC


@pytest.mark.skipif(os.name != "posix", reason="makes a pipe")
def test_what_is_not_a_regular_file_is_never_replaced(tmp_path: Path) -> None:
    """As /dev/null would be, where one has the right to."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(FileExistsError, match="is not a regular file; choose another name"), whole_file(path):
            pass
    assert (tmp_path / "pipe").is_fifo()
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_what_has_no_number_is_explained_in_its_own_words(tmp_path: Path) -> None:
    says = r"cannot write the notes .*: .* is not a regular file; choose another name"
    with pytest.raises(OSError, match=says), explained("the notes", tmp_path):
        write_whole(tmp_path, b"x")


# Files that are read by nobody else, in a folder that is deleted, and pipes.
FOR_A_MOMENT = {"hub/folder.py", "workshop/keep.py"}
FOR_A_MOMENT |= {f"course/grading/{name}.py" for name in ("child", "launch", "confine")}
OVERWRITES = re.compile(r"""\.write_(text|bytes)\(|open\([^)\n]*["'][wx]b?\+?["']""")


def test_nothing_else_in_the_product_writes_over_a_file() -> None:
    root = Path(tinylm_lib.__file__).parents[1]
    found = {
        path.relative_to(root).as_posix().partition("/")[2]
        for package in ("tinylm_lib", "tinylm_classroom")
        for path in (root / package).rglob("*.py")
        if OVERWRITES.search(path.read_text(encoding="utf-8"))
    }
    assert found == FOR_A_MOMENT | {"files.py"}
    for line in ('path.write_text("x")', 'open(path, "w", encoding="utf-8")', "open(path, 'wb')"):
        assert OVERWRITES.search(line)


@pytest.mark.parametrize(
    ("encoding", "shown"), [("cp1252", "caf\xe9 ?? ?"), ("ascii", "caf? ?? ?"), ("utf-8", "caf\xe9 中🚢 ?")]
)
@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_what_the_output_cannot_encode_becomes_a_question_mark(
    encoding: str, shown: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors=errors))
    print_anything()
    print("café 中🚢 \ud83d", end="", flush=True)
    assert raw.getvalue().decode(encoding) == shown


def test_an_output_that_never_fails_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the user has chosen, Python's own choice for errors, and the text of a notebook."""
    chosen = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", chosen)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    print_anything()
    assert chosen.errors == "backslashreplace"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "empty"), (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!doctype html>", "web page"), (b"\xef\xbb\xbf\r\n  <html>", "web page"), (b"PK\x03\x04", "zip"),
        (b"\x80\x02}q", "pickle"), ("{}".encode("utf-16"), "UTF-16"), (b'\xef\xbb\xbf{"a": 1}', ""), (b"\x08\0\0", ""),
    ],
)  # fmt: skip
def test_a_file_that_is_something_else_is_named(content: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert what in foreign(tmp_path / "file") and bool(foreign(tmp_path / "file")) == bool(what)
