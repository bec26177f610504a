"""These tests need a device in their process, which other tests must not see: `make portable` and test_portable.py."""

import os
from collections.abc import Iterator

import pytest

if "TINYLM_ACCELERATOR" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def fresh(one_thread: None) -> Iterator[None]:
    """No read is noted yet."""
    from accelerator import reads

    reads.clear()
    yield
