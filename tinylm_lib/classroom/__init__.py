"""What a lesson uses: `from tinylm_lib.classroom import check, hint, keep, predict, show, trace`.

The names are looked up when they are asked for, so that the doctor runs where Jupyter is not installed.
"""

from importlib import import_module
from typing import Any

PLACES = {
    "Diagnosis": "exercise",
    "attention_view": "attention_stages",
    "build": "workshop",
    "check": "checks",
    "diagnose": "checks",
    "explain_shapes": "tracing",
    "hint": "checks",
    "keep": "workshop",
    "predict": "predictions",
    "progress": "workshop",
    "residual_view": "residual",
    "sampling_view": "sampling_steps",
    "show": "showing",
    "trace": "tracing",
    "trace_cells": "tracing",
    "trace_model": "model_tree",
    "using": "workshop",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"the classroom has no {name!r}; it has {', '.join(PLACES)}")
    return getattr(import_module(f".{PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *PLACES]
