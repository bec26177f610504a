"""How a wrong result relates to the right one: what can be said of a mistake that no catalogue
knows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..exercises.base import Exercise, Probe
from .calling import Learner, Outcome, Raised, Strange, is_number, moved, observe_one, same


class Comparison(NamedTuple):
    """What a probe made of the learner's function and of the reference."""

    probe: Probe
    mine: Outcome
    right: Outcome


Finding = tuple[str, str]  # the mistake's name, and the sentences that say it


def of_kind(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """Mistakes that can be made in any function: recognised by the type of the result, not by its
    numbers.
    """
    whole = [pair.mine for pair in pairs]
    for _, mine, right in _parts(pairs):
        value = mine.value
        wanted = right.value
        if isinstance(wanted, Raised):
            continue
        if value is None and wanted is not None:
            says = "Your function gives nothing back"
            says += (
                ": it prints its result instead"
                if mine.printed.strip()
                else ", so Python returns None"
            )
            yield "nothing returned", f"{says}. Look for the `return`."
        elif isinstance(value, Strange | str) or _kind(value) != _kind(wanted):
            if not isinstance(value, Raised):
                what = (
                    "Your function returns"
                    if any(mine is one for one in whole)
                    else "One of your results is"
                )
                yield "wrong type", f"{what} {_given(value)}, but {_wanted(wanted)} is expected."
        elif (
            isinstance(value, Tensor) and isinstance(wanted, Tensor) and value.shape != wanted.shape
        ):
            yield from _of_shape(value, wanted)
        elif mine.changed and not right.changed:
            names = " and ".join(f"`{exercise.parameters[i]}`" for i in mine.changed)
            text = (
                f"Your function writes into {names}, which belongs to the caller. Look for an "
                "assignment in place"
            )
            yield (
                "changes its input",
                f"{text}, such as `-=`, `x[...] =`, `append` or a method whose name ends in `_`.",
            )
        elif (
            isinstance(value, Tensor) and isinstance(wanted, Tensor) and value.dtype != wanted.dtype
        ):
            text = f"where the result should be {dtype_name(wanted)}, yours is {dtype_name(value)}"
            if same(value.double(), wanted.double(), 2e-2):
                yield (
                    "wrong dtype",
                    f"The numbers are right, but {text}: see where the dtype changes on the way.",
                )


def _parts(pairs: Sequence[Comparison]) -> Iterator[Comparison]:
    """The pairs; where several results are expected and as many are given, one pair for each."""
    for pair in pairs:
        values = pair.mine.value
        wanted = pair.right.value
        if (
            type(values) in (list, tuple)
            and type(wanted) in (list, tuple)
            and len(values) == len(wanted)
        ):
            for a, b in zip(values, wanted, strict=True):
                yield Comparison(
                    pair.probe, replace(pair.mine, value=a), replace(pair.right, value=b)
                )
        else:
            yield pair


def of_parts(pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """Several results: their number, or the one that is wrong while the others are right,
    everywhere.
    """
    pairs = [p for p in pairs if not p.probe.sees]
    results = chain.from_iterable((p.mine.value, p.right.value) for p in pairs)
    if not pairs or not all(isinstance(result, list | tuple) for result in results):
        return
    if isinstance(pairs[0].right.value, list) and isinstance(pairs[0].right.value[0], int | bytes):
        return  # one list, not several results
    given, asked = (len(out.value) for out in (pairs[0].mine, pairs[0].right))
    if given != asked:
        things = "thing" if given == 1 else "things"
        are = "is" if asked == 1 else "are"
        yield (
            "wrong number of results",
            f"Your function returns {given} {things}, but {asked} {are} expected.",
        )
    if (
        any(len(p.mine.value) != len(p.right.value) or len(p.right.value) != asked for p in pairs)
        or asked < 2
    ):
        return
    columns = [
        [same(p.mine.value[i], p.right.value[i], p.probe.tolerance, False) for p in pairs]
        for i in range(asked)
    ]
    wrong = [i for i, right in enumerate(columns, 1) if not all(right)]
    if len(wrong) == 1:
        text = (
            f"Of your {asked} results only number {wrong[0]} is wrong. The first check that fails: "
        )
        yield f"result {wrong[0]}", f"{text}{pairs[0].probe.holds}."


def of_gradients(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """The values are right, and what flows back through them is not."""
    for probe, mine, right in pairs:
        if (
            mine.gradients is None
            or right.gradients is None
            or not same(mine.value, right.value, probe.tolerance)
        ):
            continue
        tensors = [
            n for n, a in zip(exercise.parameters, right.arguments, strict=False) if _is_float(a)
        ]
        for name, a, b in zip(tensors, mine.gradients, right.gradients, strict=False):
            if b is not None and (a is None or not a.any()) and b.any():
                text = (
                    f"The result is right, but no gradient reaches `{name}`: nothing could be "
                    "learned through your function. Look for `.item()`, `.detach()`, `.data`, "
                    "`torch.tensor(...)` or numpy on the way."
                )
                yield "no gradient", text
            elif a is not None and a.isnan().any() and (b is None or not b.isnan().any()):
                text = (
                    f"The result is right, but the gradient of `{name}` is NaN for some inputs: "
                    "on the way back something overflows or is divided by 0, even where the "
                    "result itself hides it."
                )
                yield "gradient is NaN", text
            elif a is not None and b is not None and not same(a, b, 1e-3, False):
                yield "wrong gradient", f"The result is right, but the gradient of `{name}` is not."


def of_numbers(
    exercise: Exercise, pairs: Sequence[Comparison], learner: Learner
) -> Iterator[Finding]:
    """What turns the right numbers into these: a factor, an offset, an axis, an argument that is
    never used.
    """
    pairs = [p._replace(mine=_flat(p.mine), right=_flat(p.right)) for p in pairs]
    both = [
        (p.mine.value, p.right.value)
        for p in pairs
        if is_number(p.mine.value) and is_number(p.right.value)
    ]
    if len(both) >= 4:  # what all single numbers have in common
        mine, right = torch.tensor(both, dtype=torch.float64).T
        if right.isfinite().all():
            yield from filter(None, (test(mine, right) for test in (_scaled, _offset, _function)))
    wrong = [
        p for p in pairs
        if isinstance(p.mine.value, Tensor) and isinstance(p.right.value, Tensor)
        and p.mine.value.shape == p.right.value.shape and p.mine.value.dtype != torch.bool
        and not same(p.mine.value, p.right.value, p.probe.tolerance, False)
        and p.right.value.double().isfinite().all() and p.right.value.numel()
    ]  # fmt: skip
    if not wrong:
        return
    yield from _ignored(exercise, learner)
    # bf16 hides a relation
    exact = [p for p in wrong if p.mine.value.numel() > 1 and p.mine.value.dtype.itemsize > 2]
    for test in (_scaled, _offset, _function, _moved):
        found = [test(p.mine.value.double(), p.right.value.double()) for p in exact]
        if found and all(found):
            yield found[0]


def last_digits_alone(wrong: Sequence[Comparison]) -> bool:
    """Whether all wrong results are tensors that are right but for their last digits."""
    return all(
        isinstance(p.right.value, Tensor) and same(p.mine.value, p.right.value, 5e-3) for p in wrong
    )


def _flat(outcome: Outcome) -> Outcome:
    """Several tensors as one long one."""
    value = outcome.value
    if (
        not isinstance(value, list | tuple)
        or not value
        or not all(isinstance(part, Tensor) for part in value)
    ):
        return outcome
    return replace(outcome, value=torch.cat([part.flatten().double() for part in value]))


def of_nan(pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """The first wrong result holds NaN, and the right one does not: whatever else is said of it,
    this comes first.
    """
    mine, right = (_flat(each).value for each in (pairs[0].mine, pairs[0].right))
    if _has_nan(mine) and not _has_nan(right):
        text = (
            f"The first thing that does not hold: {pairs[0].probe.holds}. The result is NaN "
            "there. Look for 0 / 0, inf - inf, 0 * inf, the logarithm or root of a negative "
            "number, or a standard deviation of one number."
        )
        yield "the result is NaN", text


def _has_nan(value: Any) -> bool:
    return (
        bool(torch.as_tensor(value).isnan().any())
        if isinstance(value, int | float | Tensor)
        else False
    )


def _ignored(exercise: Exercise, learner: Learner) -> Iterator[Finding]:
    """Arguments that change the right result and never the learner's, which is finite, nor send it
    a gradient.
    """
    for place, name in enumerate(exercise.parameters):
        if not _gets_a_gradient(learner, place) and _never_changes(exercise, learner, place):
            yield (
                f"ignores {name}",
                f"Your result stays the same when `{name}` changes: your function never uses it.",
            )


def _gets_a_gradient(learner: Learner, place: int) -> bool:
    """Whether a gradient reaches an argument in any probe."""
    for outcome in learner.outcomes:
        if outcome.gradients is None or not any(
            map(_is_float, outcome.arguments[place : place + 1])
        ):
            continue
        at = sum(map(_is_float, outcome.arguments[:place]))
        gradient = outcome.gradients[at] if at < len(outcome.gradients) else None
        if gradient is not None and gradient.any():
            return True
    return False


def _never_changes(exercise: Exercise, learner: Learner, place: int) -> bool:
    """Whether the learner's result stays the same in all probes in which it is finite and the right
    one changes.

    All of them, because a function may be flat at one point and not at another.
    """
    n_tried = 0
    for i, (probe, outcome) in enumerate(zip(exercise.probes, learner.outcomes, strict=False)):
        other = (
            moved(probe, place)
            if place < len(outcome.arguments) and _is_finite(outcome.value)
            else None
        )
        if other is None or same(
            *(observe_one(exercise.reference, each).value for each in (probe, other))
        ):
            continue
        if not same(learner.moved(i, place).value, outcome.value, 0.0):
            return False
        n_tried += 1
    return n_tried > 0


def _is_finite(value: Any) -> bool:
    parts = value if isinstance(value, list | tuple) else [value]
    return all(
        isinstance(part, int | float | Tensor) and torch.as_tensor(part).isfinite().all()
        for part in parts
    )


def _scaled(mine: Tensor, right: Tensor) -> Finding | None:
    usable = right.abs() > 1e-6
    if not usable.any():
        return None
    factor = (mine[usable] / right[usable]).median()
    if not factor.isfinite() or not same(mine, factor * right, 1e-3) or factor == 0:
        return None
    if same(factor.abs().item(), 1.0, 1e-3):  # at 1, only the last digits differ
        return ("wrong sign", "Every number has the wrong sign.") if factor < 0 else None
    return "constant factor", f"Every number is {factor:.4g} times what it should be."


def _offset(mine: Tensor, right: Tensor) -> Finding | None:
    by = (mine - right).median()
    # digits lost
    if not by.isfinite() or not same(mine, right + by, 1e-3) or same(mine, right, 1e-3):
        return None
    return "constant offset", f"Every number is {abs(by):.4g} too {'large' if by > 0 else 'small'}."


def _function(mine: Tensor, right: Tensor) -> Finding | None:
    for name, f in {"logarithm": torch.log, "exponential": torch.exp, "square": torch.square,
                    "square root": torch.sqrt, "reciprocal": torch.reciprocal}.items():  # fmt: skip
        if same(mine, f(right), 1e-3):
            return f"the {name}", f"Your result is the {name} of the right one."
    return None


def _moved(mine: Tensor, right: Tensor) -> Finding | None:
    for axis in range(-1, -1 - right.ndim, -1):
        if right.shape[axis] < 2:
            continue
        if same(mine, right.flip(axis), 1e-3):
            return "reversed", f"Along axis {axis} your result is the right one, backwards."
        for by in (1, -1):
            a = mine.roll(-by, axis)
            b = right
            keep = slice(1, None) if by < 0 else slice(None, -1)
            if same(a.movedim(axis, 0)[keep], b.movedim(axis, 0)[keep], 1e-3):
                return "shifted by one", (
                    f"Along axis {axis} your result is the right one, shifted by one position."
                )
    return None


def _of_shape(value: Tensor, wanted: Tensor) -> Iterator[Finding]:
    is_ = tuple(value.shape)
    should = tuple(wanted.shape)
    text = f"Your result has the shape {is_}, but {should} is expected"
    if sorted(is_) == sorted(should):
        for a, b in sorted(
            combinations(range(-value.ndim, 0), 2), key=lambda axes: (axes[1] - axes[0], -axes[0])
        ):
            if value.transpose(a, b).shape == wanted.shape and same(
                value.transpose(a, b), wanted, None, False
            ):
                yield (
                    "axes swapped",
                    f"{text}: the numbers are right, and the axes {a} and {b} are swapped.",
                )
                return
        yield "wrong shape", f"{text}: the same sizes in another order."
    elif value.numel() == wanted.numel() and same(value.reshape(should), wanted, None, False):
        yield "wrong shape", f"{text}: the numbers are right, but check the axes."
    elif value.squeeze().shape == wanted.squeeze().shape:
        yield (
            "wrong shape",
            f"{text}: an axis of size 1 too {'many' if value.ndim > wanted.ndim else 'few'}.",
        )
    else:
        yield "wrong shape", f"{text}."


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _kind(value: Any) -> str:
    if is_number(value):
        return "number"
    if isinstance(value, list | tuple):
        return "sequence"
    return type(value).__name__


def _given(value: Any) -> str:
    if isinstance(value, Tensor):
        return _wanted(value)
    kind = value.kind if isinstance(value, Strange) else type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _wanted(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "a number" if is_number(value) else f"a {type(value).__name__}"


def dtype_name(value: Tensor) -> str:
    """The dtype as it is said: `float32`."""
    return str(value.dtype).removeprefix("torch.")
