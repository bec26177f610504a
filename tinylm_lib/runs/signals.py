"""Ctrl-C and SIGTERM, collected so that the update under way can finish."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..training.distributed import Alone


@contextmanager
def stop_on_signals(team: Alone) -> Iterator[list[int]]:
    """Collect Ctrl-C (SIGINT) and SIGTERM in a list, so that the update under way can finish.

    The second of a kind interrupts; of many processes none is: torchrun sends on what came from the
    keyboard already.
    """
    seen: list[int] = []

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        if team.size == 1:
            signal.signal(number, before[number])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
