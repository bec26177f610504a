"""What is said of a mistake: the call, the numbers that differ, the error, and the fault with its
reason.
"""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ..exercises.base import Exercise
from .calling import Raised, same
from .relations import Comparison, Finding, dtype_name

ADVICE = {  # for errors that say what is wrong, but not why
    "index -100 is out": (
        "-100 marks a position without a target: replace it before you index, leave it out after"
    ),
    "torch.return_types.max": (
        "`max` with an axis gives the numbers and their indices; `amax` only the numbers"
    ),
    "unhashable type: 'list'": (
        "A list can change, so it cannot be the key of a dictionary; a tuple can"
    ),
    "Boolean value of Tensor": "For a tensor that may be missing ask `is not None`",
    "shape of the mask": (
        "A mask in brackets must have every axis; `masked_fill` and `where` broadcast it"
    ),
    "unexpected keyword argument": (
        "The check calls your function with its arguments in their order"
    ),
    "Can't call numpy() on Tensor": (
        "NumPy cannot follow gradients; torch's functions, such as `torch.exp`, keep them"
    ),
    "unsupported ScalarType BFloat16": "NumPy has no bfloat16; torch's functions take every dtype",
}
LAST_DIGITS = (
    "Only the last digits differ: either precision is lost on the way, as in fp16 or bf16 or where "
    "two large numbers are subtracted, or something small is added."
)
NEAREST = "but it does not explain everything"  # said of a fault that fits in part


def looks_like(exercise: Exercise, on: Sequence[str], pair: Comparison) -> Finding:
    """The faults that explain everything, with where one of them shows first."""
    faults = [exercise.faults[name] for name in on]
    looks = ", and like ".join(fault.looks for fault in faults)
    why = " ".join(fault.why for fault in faults)
    return " + ".join(on), f"It looks like {looks}. {evidence(exercise, pair)} {why}"


def nearest(exercise: Exercise, on: Sequence[str], pair: Comparison) -> Finding:
    """What fails first, and the faults that explain most of it but not everything."""
    looks = " and that ".join(exercise.faults[name].looks for name in on)
    why = " ".join(exercise.faults[name].why for name in on)
    said = f"The nearest mistake that we know is that {looks}, {NEAREST}. {why}"
    return " + ".join(on), f"{first_failure(exercise, pair)} {said}"


def first_failure(exercise: Exercise, pair: Comparison) -> str:
    """What is known of any mistake: the first property that does not hold."""
    return f"The first thing that does not hold: {pair.probe.holds}. {evidence(exercise, pair)}"


def raised(exercise: Exercise, pair: Comparison) -> str:
    """The call that raised an error, the learner's line, what the error says, and advice where we
    have some.
    """
    error = pair.mine.value
    line = f" in the line `{error.line}`" if error.line else ""
    text = (
        f"{call_text(exercise, pair)} raises {error.kind}{line}: "
        f"{error.message.strip()[:300].rstrip('.')}"
    )
    return ". ".join([text, *(advice for part, advice in ADVICE.items() if part in error.message)])


def call_text(exercise: Exercise, pair: Comparison) -> str:
    """The call of a probe, as it would be typed."""
    arguments = pair.mine.arguments or pair.right.arguments
    return f"`{exercise.name}({', '.join(map(in_short, arguments))})`"


def evidence(exercise: Exercise, pair: Comparison) -> str:
    """Where the learner's result first differs from the right one, in numbers."""
    mine = pair.mine.value
    right = pair.right.value
    if isinstance(mine, Raised):
        return raised(exercise, pair) + "."
    if pair.mine.changed != pair.right.changed:
        return f"{call_text(exercise, pair)} changes what it was given."
    if (
        isinstance(mine, Tensor)
        and isinstance(right, Tensor)
        and mine.shape == right.shape
        and mine.numel() > 6
    ):
        if mine.dtype != right.dtype:
            return f"The result is {dtype_name(mine)}, but {dtype_name(right)} is expected."
        apart = ~torch.isclose(mine.double(), right.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        if apart.any():
            at = apart.nonzero()[0].tolist()
            a = mine[tuple(at)].item()
            b = right[tuple(at)].item()
            return (
                f"For {call_text(exercise, pair)} the number at {at} is {in_short(a)} and should "
                f"be {in_short(b)}."
            )
        return f"For {call_text(exercise, pair)} a gradient differs."
    if same(mine, right, pair.probe.tolerance):
        return f"For {call_text(exercise, pair)} the numbers are right, but the gradients are not."
    if isinstance(mine, dict) and isinstance(right, dict) and mine.keys() == right.keys():
        apart = [key for key in right if not same(mine[key], right[key], pair.probe.tolerance)]
        told = (
            ('"{}" is {} and should be {}').format(key, *told_apart(mine[key], right[key]))
            for key in apart
        )
        return f"For {call_text(exercise, pair)}: {'; '.join(told)}."
    return "{} gives {}, but {} is right.".format(
        call_text(exercise, pair), *told_apart(mine, right)
    )


def told_apart(mine: Any, right: Any) -> tuple[str, str]:
    """Both in so many digits that they do not look the same."""
    digits = next(n for n in (4, 8, 17) if n == 17 or in_short(mine, n) != in_short(right, n))
    return in_short(mine, digits), in_short(right, digits)


def in_short(value: Any, digits: int = 4) -> str:
    """A value in a few characters: small tensors whole, large ones as their shape."""
    if isinstance(value, Tensor):
        if value.numel() <= 8:
            return in_short(value.tolist(), digits)
        kind = "" if value.dtype == torch.float32 else f" of {dtype_name(value)}"
        return f"tensor {tuple(value.shape)}{kind}"
    if isinstance(value, bool) or value is None or isinstance(value, int | str | bytes):
        return repr(value)
    if isinstance(value, float):
        return f"{value + 0.0:.{digits}g}"  # adding 0.0 makes -0.0 a 0
    if isinstance(value, Raised):
        return f"{'an' if value.kind.startswith(tuple('AEIOU')) else 'a'} {value.kind}"
    if isinstance(value, list | tuple):
        shown = [in_short(item, digits) for item in value[:12]] + (
            ["..."] if len(value) > 12 else []
        )
        return f"({', '.join(shown)})" if isinstance(value, tuple) else f"[{', '.join(shown)}]"
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{key}: {in_short(item, digits)}" for key, item in value.items()) + "}"
        )
    if is_dataclass(value) and not isinstance(value, type):
        chosen = [
            f"{f.name}={getattr(value, f.name)!r}"
            for f in fields(value)
            if getattr(value, f.name) != f.default
        ]
        return f"{type(value).__name__}({', '.join(chosen)})"
    return getattr(value, "__name__", type(value).__name__)
