"""What a lesson uses: `from tinylm_lib.classroom import check, hint, keep, predict, show, trace`.

The names are looked up when they are asked for, so that the doctor runs where Jupyter is not installed.
"""

from importlib import import_module
from typing import Any

PLACES = {
    "Diagnosis": "exercise",
    "attention_view": "attention_stages",
    "build": "workshop",
    "cache_view": "cache_steps",
    "check": "checks",
    "diagnose": "checks",
    "explain_shapes": "tracing",
    "hint": "checks",
    "keep": "workshop",
    "memory_view": "memory",
    "predict": "predictions",
    "progress": "workshop",
    "residual_view": "residual",
    "rope_view": "rope",
    "sampling_view": "sampling_steps",
    "shape_flow": "flow",
    "show": "showing",
    "softmax_view": "softmax_steps",
    "token_view": "token_cuts",
    "trace": "tracing",
    "trace_cells": "tracing",
    "trace_model": "model_tree",
    "training_view": "training_watch",
    "using": "workshop",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"the classroom has no {name!r}; it has {', '.join(PLACES)}")
    return getattr(import_module(f".{PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *PLACES]
