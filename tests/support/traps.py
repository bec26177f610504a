"""A pickle that does something when it is opened, as an attacker's would, and a limit on the size of files."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def check_trap(path: Path) -> None:
    """The trap was not sprung, and would have been."""
    assert not path.exists(), "a pickle was executed"
    pickle.loads(pickle.dumps(Trap(path)))
    assert path.exists(), "the trap does not work, so this test shows nothing"


@contextmanager
def full_disk(n_bytes: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: what writes more fails as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
