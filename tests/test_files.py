"""Files are whole or not there, with the permissions of any other new file, and a failed write says what to do."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tinylm_lib.files import explained, put_in_place, whole_file


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
