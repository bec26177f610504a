"""Runs in each kernel that `lab` starts: an unknown name says how to go on after a restart."""

from types import TracebackType
from typing import Any


def explain(
    shell: Any,
    kind: type[NameError],
    error: NameError,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Print the traceback, and what to do where the name belongs to an earlier cell."""
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
    print(
        f"If {error.name} comes from an earlier cell, that cell has not run since the kernel "
        "started, or stopped with an\nerror: fix that first. Otherwise Run > Run All Above "
        "Selected Cell, then this cell again."
    )


if "get_ipython" in globals():
    globals()["get_ipython"]().set_custom_exc((NameError,), explain)
