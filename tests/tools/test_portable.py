"""Other machines: the one with a simulated accelerator has a process of its own, because a device cannot be removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from portable.__main__ import settings

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif("TINYLM_ACCELERATOR" in os.environ, reason="this process has the accelerator already")
def test_the_library_does_on_an_accelerator_what_it_does_on_the_cpu() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/accelerator"]
    done = subprocess.run(command, cwd=ROOT, env=settings("accelerator"), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
