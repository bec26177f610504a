"""Checks that name the mistake: the learner's function is compared with a reference under every known fault."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cards import Card, card, fold, inline, paragraph
from .exercise import Diagnosis, Exercise, Fault
from .exercises import find
from .probing import SECONDS, SEED, Outcome, Raised, TimeIsUpError, agrees, observe, observe_one, same, within
from .relations import Finding, Pair, of_gradients, of_kind, of_numbers, of_parts
from .tracing import explain_shapes

ADVICE = {  # for errors that say what is wrong, but not why
    "index -100 is out": "-100 marks a place without a target: replace it before you index, leave it out after",
    "torch.return_types.max": "`max` with an axis gives numbers and their places; `amax` the numbers alone",
    "unhashable type: 'list'": "A list can change, so it cannot be the key of a dictionary; a tuple can",
    "unexpected keyword argument": "The check calls your function with its arguments in their order",
}
MARKS = {True: ("✓", "#1f8f6a"), False: ("✗", "#d9541e"), None: ("·", "#8a94a0")}
NOT_YET = "not attempted yet"
SECOND = "There may be a second mistake: mend this one and check again."


class Result(Diagnosis):
    """A diagnosis whose card has been shown: a notebook shows nothing more of it."""

    def _ipython_display_(self) -> None: ...


class Examined(NamedTuple):
    """A diagnosis, the state of each probe (True right, False wrong, None not reached), and shapes that do not fit."""

    diagnosis: Diagnosis
    states: list[bool | None]
    shapes: Card | None = None


def diagnose(name: str, function: Callable[..., Any]) -> Diagnosis:
    """What is right or wrong with a learner's function, without showing anything.

    Nothing that the function does escapes: it may raise, exit, print, never end or change its inputs.
    Raises KeyError for a name that is no exercise.
    """
    return examine(find(name), function).diagnosis


def check(name: str, function: Callable[..., Any]) -> Result:
    """Shows a card that says what holds, or which mistake it looks like, and returns the same as a Diagnosis.

    Raises KeyError for a name that is no exercise.
    """
    exercise = find(name)
    found = examine(exercise, function)
    _card(exercise, found).show()
    return Result(*found.diagnosis)


def hint(name: str) -> Card:
    """A card of folded hints, from a nudge to a plan; open one at a time.

    Raises KeyError for a name that is no exercise.
    """
    hints = find(name).hints
    folds = [fold(f"Hint {i} of {len(hints)}", paragraph(text)) for i, text in enumerate(hints, 1)]
    text = f"{name}: {len(hints)} hints, folded; open one at a time"
    return card(f"{name}: hints", folds, text, "open")


def examine(exercise: Exercise, function: Callable[..., Any]) -> Examined:
    """Probe the function and look for the mistake: in the catalogue, then by its kind, then by what fails first."""
    if not callable(function):
        text = f"`{exercise.signature}` should be a function, and this is a {type(function).__name__}."
        return Examined(Diagnosis(False, "no function", text), [None] * len(exercise.probes))
    rights = _outcomes(exercise.name, frozenset())  # first: torch starts up on its own time
    outcomes = observe(function, exercise.probes)
    if isinstance(outcomes[0].error, NotImplementedError):
        return Examined(Diagnosis(False, None, f"{exercise.name}: {NOT_YET}"), [None] * len(exercise.probes))
    pairs = [Pair(*three) for three in zip(exercise.probes, outcomes, rights, strict=False)]
    states = [agrees(p.mine, p.right, p.probe) for p in pairs]
    if all(states) and len(states) == len(exercise.probes):
        return Examined(_passed(exercise), states)
    wrong = [pair for pair, right in zip(pairs, states, strict=True) if not right]
    mistake, message = next(_findings(exercise, pairs, wrong, function))
    shapes = _shapes(wrong[0], function)
    message += f"\n{shapes.text}" if shapes else ""
    states += [None] * (len(exercise.probes) - len(states))
    return Examined(Diagnosis(False, mistake, message), states, shapes)


def _shapes(pair: Pair, function: Callable[..., Any]) -> Card | None:
    """Why shapes do not fit, where that is what the function raised; it runs once more for it."""
    error, found = pair.mine.error, []
    if isinstance(error, Exception) and not isinstance(error, TimeIsUpError):
        arguments = pair.probe.make(torch.Generator().manual_seed(SEED))
        within(SECONDS, lambda: found.append(explain_shapes(function, arguments, error)), lambda: len(found))
    return found[0] if found else None


def _passed(exercise: Exercise) -> Diagnosis:
    holds = "; ".join(dict.fromkeys(probe.holds for probe in exercise.probes))
    return Diagnosis(True, None, f"{exercise.name}: right. {holds[:1].upper()}{holds[1:]}.")


def _outcomes(name: str, on: frozenset[str]) -> tuple[Outcome, ...]:
    """What the probes make of the reference with these faults."""
    return tuple(_outcome(name, on, i) for i in range(len(find(name).probes)))


@lru_cache(maxsize=1 << 15)
def _outcome(name: str, on: frozenset[str], i: int) -> Outcome:
    """What one probe makes of it."""
    exercise = find(name)
    return observe_one(_faulty(exercise, on), exercise.probes[i])


def _faulty(exercise: Exercise, on: frozenset[str]) -> Callable[..., Any]:
    return lambda *arguments: exercise.reference(*arguments, on=on)


def _findings(exercise: Exercise, pairs: list[Pair], wrong: list[Pair], function: Callable) -> Iterator[Finding]:
    """All that can be said of the mistake, the best first; there is always something."""
    if isinstance(wrong[0].mine.error, TimeIsUpError):
        yield (
            "does not end",
            f"{_call(exercise, wrong[0])} did not end within 5 seconds and was stopped. Look at the condition of "
            "your loop: does what it tests change in each round? If the notebook stays slow, restart the kernel.",
        )
    whole = len(pairs) == len(exercise.probes)
    if whole:
        yield from _of_catalogue(exercise, pairs, wholly=True)
    yield from of_kind(exercise, wrong[:1])
    if whole and not all(agrees(p.mine, p.right, p.probe, wholly=False) for p in pairs):
        yield from _of_catalogue(exercise, pairs, wholly=False)
        yield from _mostly(exercise, pairs)
        yield from _at_first(exercise, pairs)
    else:
        yield from of_gradients(exercise, wrong)
        yield from of_kind(exercise, wrong)
    if isinstance(wrong[0].mine.value, Raised) and not isinstance(wrong[0].right.value, Raised):
        yield "raises an error", _raised(exercise, wrong[0])
    if isinstance(wrong[0].right.value, Raised):
        asked = f"should raise {wrong[0].right.value.kind}: {wrong[0].probe.holds}."
        if isinstance(wrong[0].mine.value, Raised):
            yield "another exception", f"{_raised(exercise, wrong[0])}. It {asked}"
        yield "nothing refused", f"{_call(exercise, wrong[0])} {asked}"
    plain = [p for p in wrong if p.probe.sees is None]
    if any(not same(observe(function, (p.probe,), seed=1)[0].value, p.mine.value, wholly=False) for p in plain):
        yield "random", "Called twice with the same arguments, your function gives two results. Nothing here is random."
    yield from of_parts(wrong)
    yield from of_numbers(exercise, pairs, function)
    yield None, f"The first thing that does not hold: {wrong[0].probe.holds}. {_evidence(exercise, wrong[0])}"


def _of_catalogue(exercise: Exercise, pairs: Sequence[Pair], wholly: bool) -> Iterator[Finding]:
    """The faults, then the pairs of faults, under which the reference does exactly what the learner's function does."""
    sets = [frozenset(names) for n in (1, 2) for names in combinations(exercise.faults, n)]
    for on in sets:
        if all(
            agrees(p.mine, theirs, p.probe, wholly)
            for p, theirs in zip(pairs, _lazily(exercise, on, len(pairs)), strict=False)
        ):
            yield _named(exercise, on, pairs, wholly)


def _lazily(exercise: Exercise, on: frozenset[str], n: int) -> Iterator[Outcome]:
    """The outcomes of a faulty reference one by one, because the first mostly decides."""
    yield from (_outcome(exercise.name, on, i) for i in range(n))


def _mostly(exercise: Exercise, pairs: Sequence[Pair]) -> Iterator[Finding]:
    """A fault that shows everywhere where it would, and explains at least half of what is wrong."""
    wrong = {i for i, p in enumerate(pairs) if not agrees(p.mine, p.right, p.probe, False)}
    best: tuple[int, frozenset[str]] | None = None
    for fault in exercise.faults:
        on = frozenset([fault])
        theirs = _outcomes(exercise.name, on)
        shows = {i for i, p in enumerate(pairs) if not agrees(theirs[i], p.right, p.probe, False)}
        is_match = shows and all(agrees(pairs[i].mine, theirs[i], pairs[i].probe, False) for i in shows)
        if is_match and 2 * len(shows) >= len(wrong) and (best is None or len(shows) > best[0]):
            best = len(shows), on
    if best:
        name, text = _named(exercise, best[1], pairs, False)
        yield name, f"{text} {SECOND}"


def _at_first(exercise: Exercise, pairs: Sequence[Pair]) -> Iterator[Finding]:
    """A fault that does the same up to the first result that is wrong, and there: in two results, or in one of size."""
    n_wrong = sum(not agrees(p.mine, p.right, p.probe, False) for p in pairs)
    end = next(i for i, p in enumerate(pairs) if not agrees(p.mine, p.right, p.probe, False)) + 1
    value = pairs[end - 1].mine.value
    if isinstance(value, Raised):
        return
    enough = 1 if isinstance(value, Tensor) and value.numel() >= 4 else min(2, n_wrong)
    fits: dict[str, int] = {}
    for fault in exercise.faults:
        same_ones = [
            agrees(p.mine, theirs, p.probe, False)
            for p, theirs in zip(pairs, _outcomes(exercise.name, frozenset([fault])), strict=False)
        ]
        explained = sum(
            s and not agrees(p.mine, p.right, p.probe, False) for s, p in zip(same_ones, pairs, strict=True)
        )
        if all(same_ones[:end]) and explained >= enough:
            fits[fault] = sum(same_ones)
    if fits:
        name, text = _named(exercise, frozenset([max(fits, key=fits.get)]), pairs, False)
        yield name, f"{text} {SECOND}"


def _named(exercise: Exercise, on: frozenset[str], pairs: Sequence[Pair], wholly: bool) -> Finding:
    names = [name for name in exercise.faults if name in on]
    faults: list[Fault] = [exercise.faults[name] for name in names]
    theirs = _lazily(exercise, on, len(pairs))
    shows = [not agrees(out, p.right, p.probe, wholly) for p, out in zip(pairs, theirs, strict=False)]
    wrongs = [i for i, p in enumerate(pairs) if not agrees(p.mine, p.right, p.probe, wholly)]
    wrong = pairs[next((i for i in wrongs if shows[i]), wrongs[0])]
    looks = ", and as if ".join(fault.looks for fault in faults)
    why = " ".join(fault.why for fault in faults)
    return " + ".join(names), f"It looks as if {looks}. {_evidence(exercise, wrong)} {why}"


def _raised(exercise: Exercise, pair: Pair) -> str:
    error = pair.mine.value
    line = f" in the line `{error.line}`" if error.line else ""
    text = f"{_call(exercise, pair)} raises {error.kind}{line}: {error.message.strip()[:300]}"
    return ". ".join([text, *(advice for part, advice in ADVICE.items() if part in error.message)])


def _call(exercise: Exercise, pair: Pair) -> str:
    """The call of a probe, as it would be typed."""
    return f"`{exercise.name}({', '.join(map(_short, pair.mine.arguments or pair.right.arguments))})`"


def _evidence(exercise: Exercise, pair: Pair) -> str:
    """Where the learner's result first differs from the right one, in numbers."""
    mine, right = pair.mine.value, pair.right.value
    if isinstance(mine, Raised):
        return _raised(exercise, pair) + "."
    if pair.mine.changed != pair.right.changed:
        return f"{_call(exercise, pair)} changes what it was given."
    if isinstance(mine, Tensor) and isinstance(right, Tensor) and mine.shape == right.shape and mine.numel() > 6:
        if mine.dtype != right.dtype:
            return f"The result is {mine.dtype}, where {right.dtype} is asked for.".replace("torch.", "")
        apart = ~torch.isclose(mine.double(), right.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        if apart.any():
            at = apart.nonzero()[0].tolist()
            a, b = mine[tuple(at)].item(), right[tuple(at)].item()
            return f"For {_call(exercise, pair)} the number at {at} is {_short(a)} and should be {_short(b)}."
        return f"For {_call(exercise, pair)} a gradient differs."
    if same(mine, right, pair.probe.tolerance):
        return f"For {_call(exercise, pair)} the numbers are right, and what flows back is not."
    if isinstance(mine, dict) and isinstance(right, dict) and mine.keys() == right.keys():
        apart = [key for key in right if not same(mine[key], right[key], pair.probe.tolerance)]
        mine, right = ({key: values[key] for key in apart} for values in (mine, right))
    digits = next(n for n in (4, 8, 17) if n == 17 or _short(mine, n) != _short(right, n))
    return f"{_call(exercise, pair)} gives {_short(mine, digits)}; right is {_short(right, digits)}."


def _short(value: Any, digits: int = 4) -> str:
    """A value in a few characters: small tensors whole, large ones as their shape."""
    if isinstance(value, Tensor):
        if value.numel() <= 8:
            return _short(value.tolist(), digits)
        kind = "" if value.dtype == torch.float32 else f" of {str(value.dtype).removeprefix('torch.')}"
        return f"tensor {tuple(value.shape)}{kind}"
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return repr(value)
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    if isinstance(value, list | tuple):
        shown = [_short(item, digits) for item in value[:12]] + (["..."] if len(value) > 12 else [])
        return f"({', '.join(shown)})" if isinstance(value, tuple) else f"[{', '.join(shown)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(item, digits)}" for key, item in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        chosen = [f"{f.name}={getattr(value, f.name)!r}" for f in fields(value) if getattr(value, f.name) != f.default]
        return f"{type(value).__name__}({', '.join(chosen)})"
    return getattr(value, "__name__", type(value).__name__)


def _card(exercise: Exercise, found: Examined) -> Card:
    (passed, mistake, message), _, shapes = found
    if message.endswith(NOT_YET):
        text = f"Write `{exercise.signature}`, run its cell, then run this one again."
        return card(message, [paragraph(text)], message, "open")
    rows: dict[str, bool | None] = {}
    for probe, state in zip(exercise.probes, found.states, strict=True):
        rows[probe.holds] = state if rows.get(probe.holds, True) else False
    if False in rows.values():  # what comes behind the first failure may only follow from it
        first = list(rows.values()).index(False)
        rows = {holds: state if i <= first else None for i, (holds, state) in enumerate(rows.items())}
    items = "".join(
        f'<li style="margin:1px 0"><b style="color:{MARKS[state][1]};display:inline-block;width:1.5em">'
        f"{MARKS[state][0]}</b>{inline(holds)}</li>"
        for holds, state in rows.items()
    )
    listing = f'<ul style="list-style:none;padding:0;margin:8px 0">{items}</ul>'
    if passed:
        text = "\n".join([f"{exercise.name}: right", *(f"  ✓ {holds}" for holds in rows)])
        return card(f"{exercise.name}: right", [listing], text, "good")
    title = f"{exercise.name}: {mistake or 'not right yet'}"
    parts = [listing, paragraph(message.partition("\n")[0]), shapes.html if shapes else ""]
    return card(title, parts, f"{exercise.name}: not right yet\n{message}", "bad")
