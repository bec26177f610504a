"""The old door: notebooks and kept parts of earlier editions say
`from tinylm_lib.classroom import check`.
"""

import warnings
from importlib import import_module
from typing import Any

NEW_DOOR = "tinylm_classroom"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(import_module(NEW_DOOR), name)
    says = f"tinylm_lib.classroom is {NEW_DOOR} now: write `from {NEW_DOOR} import {name}`"
    warnings.warn(says, FutureWarning, stacklevel=2)
    return value
