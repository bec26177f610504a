"""Checks that name the mistake: the learner's function is compared with a reference under every known fault."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from itertools import combinations, islice, zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..display.cards import Card, card, fold, inline, message, paragraph, unmarked
from ..exercises import find_exercise
from ..exercises.base import Diagnosis, Exercise, Probe
from ..shapes.trace import explain_shapes
from .calling import (
    SECONDS,
    SEED,
    Learner,
    Outcome,
    Raised,
    agrees,
    observe_one,
    same,
    still_running,
    within,
)
from .relations import (
    Comparison,
    Finding,
    dtype_name,
    last_digits_alone,
    of_gradients,
    of_kind,
    of_nan,
    of_numbers,
    of_parts,
)
from .surroundings import never_ran, of_notebook, ready_made, replaced_in_torch

ADVICE = {  # for errors that say what is wrong, but not why
    "index -100 is out": "-100 marks a position without a target: replace it before you index, leave it out after",
    "torch.return_types.max": "`max` with an axis gives the numbers and their indices; `amax` only the numbers",
    "unhashable type: 'list'": "A list can change, so it cannot be the key of a dictionary; a tuple can",
    "Boolean value of Tensor": "For a tensor that may be missing ask `is not None`",
    "shape of the mask": "A mask in brackets must have every axis; `masked_fill` and `where` broadcast it",
    "unexpected keyword argument": "The check calls your function with its arguments in their order",
    "Can't call numpy() on Tensor": "NumPy cannot follow gradients; torch's functions, such as `torch.exp`, keep them",
    "unsupported ScalarType BFloat16": "NumPy has no bfloat16; torch's functions take every dtype",
}
MARKS = {True: ("✓", "#1f8f6a"), False: ("✗", "#d9541e"), None: ("·", "#8a94a0")}
GRADED = "NBGRADER_EXECUTION"  # set by nbgrader where it runs or validates a notebook
NOT_YET = "not attempted yet"
READY_MADE = "`{}` does this whole step, and an engineer would call it. Build the step once yourself to see inside."
LAST_DIGITS = (
    "Only the last digits differ: either precision is lost on the way, as in fp16 or bf16 or where two large numbers "
    "are subtracted, or something small is added."
)
NEAREST = "but it does not explain everything"  # said of a fault that fits in part


class Result(Diagnosis):
    """A diagnosis whose card has been shown: a notebook shows nothing more of it."""

    def _ipython_display_(self) -> None: ...


class Interrupted(KeyboardInterrupt):
    """The reader stopped a check. A notebook shows the message alone, without a traceback through our code."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class Examined(NamedTuple):
    """A diagnosis, whether each probe is right as far as they were reached, and shapes that do not fit."""

    diagnosis: Diagnosis
    states: Sequence[bool] = ()
    shapes: Card | None = None


def diagnose(name: str, function: Callable[..., Any]) -> Diagnosis:
    """What is right or wrong with a learner's function, without showing anything.

    Nothing that the function does escapes: it may raise, exit, print, never end or change its inputs.
    Raises KeyError for an unknown name.
    """
    return examine(find_exercise(name), function).diagnosis


def check(name: str, function: Callable[..., Any]) -> Result:
    """Shows a card that says what holds, or which mistake it looks like, and returns the same as a Diagnosis.

    Raises KeyError for an unknown name, and Interrupted, below a card, if the reader stops it. Where nbgrader runs the
    notebook, it raises AssertionError for a function that is not right, because a cell that raises gets no points.
    """
    exercise = find_exercise(name)
    try:
        found = examine(exercise, function)
    except KeyboardInterrupt:
        _stopped(exercise).show()
        raise Interrupted(f"you stopped the check of {name}") from None
    if said := never_ran(function):
        message(f"{exercise.name}: a cell did not run", [said], "open").show()
    _card(exercise, found, ready_made(exercise.name, function)).show()
    if GRADED in os.environ and not found.diagnosis.passed:
        raise AssertionError(_in_words(found.diagnosis.message))
    return Result(*found.diagnosis)


def hint(name: str) -> Card:
    """A card of folded hints, from a nudge to a plan; open one at a time.

    Raises KeyError for an unknown name.
    """
    return hints_card(name, find_exercise(name).hints)


def hints_card(title: str, hints: Sequence[str]) -> Card:
    """A card of hints, each folded by itself."""
    folds = [fold(f"Hint {i} of {len(hints)}", paragraph(text)) for i, text in enumerate(hints, 1)]
    text = f"{title}: {len(hints)} hints, folded; open one at a time"
    return card(f"{title}: hints", folds, text, "open")


def examine(exercise: Exercise, function: Callable[..., Any]) -> Examined:
    """Probe the function and look for the mistake; where shapes do not fit, say which."""
    if not callable(function):
        return Examined(no_function(exercise, type(function).__name__))
    if names := replaced_in_torch():
        return Examined(Diagnosis(False, "torch was changed", torch_was_changed(names)))
    _rights(exercise)  # torch starts up here
    learner = Learner(function, exercise.probes)
    found = judge(exercise, learner)
    first = next((i for i, right in enumerate(found.states) if not right), None)
    if first is not None:
        said = found.diagnosis.message + of_notebook(function)
        found = found._replace(diagnosis=found.diagnosis._replace(message=said))
    shapes = None
    if first is not None and not learner.is_slow:
        shapes = _shapes(exercise.probes[first], learner.outcomes[first], function)
    if not shapes:
        return found
    said = f"{found.diagnosis.message}\n{shapes.text}"
    return Examined(found.diagnosis._replace(message=said), found.states, shapes)


def torch_was_changed(names: Sequence[str]) -> str:
    """What is said where something else has the name of a function of torch."""
    listed = " and ".join(f"`{name}`" for name in names[:2])
    return (
        f"{listed} {'is' if len(names) == 1 else 'are'} not PyTorch's own any more: this notebook gave the name to "
        "something else, so a check cannot compare numbers. Restart the kernel, and do not assign to torch."
    )


def no_function(exercise: Exercise, kind: str) -> Diagnosis:
    """What is said of something that cannot be called."""
    return Diagnosis(False, "no function", f"`{exercise.signature}` should be a function, but this is a {kind}.")


def judge(exercise: Exercise, learner: Learner) -> Examined:
    """Say what is right, or look for the mistake: in the catalogue, then by its kind, then by what fails first.

    It decides by the outcomes alone and never calls the function, which may be in another process.
    """
    outcomes = learner.outcomes
    if isinstance(outcomes[0].value, Raised) and outcomes[0].value.kind == NotImplementedError.__name__:
        return Examined(Diagnosis(False, None, f"{exercise.name}: {NOT_YET}"))
    pairs = [Comparison(*three) for three in zip(exercise.probes, outcomes, _rights(exercise), strict=False)]
    states = [agrees(p.mine, p.right, p.probe) for p in pairs]
    if all(states) and len(states) == len(exercise.probes):
        return Examined(_passed(exercise), states)
    wrong = [pair for pair, right in zip(pairs, states, strict=True) if not right]
    return Examined(Diagnosis(False, *next(_findings(exercise, pairs, wrong, learner))), states)


def _rights(exercise: Exercise) -> list[Outcome]:
    """What is right for each probe."""
    return [_outcome(exercise.name, frozenset(), i) for i in range(len(exercise.probes))]


def _shapes(probe: Probe, outcome: Outcome, function: Callable[..., Any]) -> Card | None:
    """Why shapes do not fit, where that is what the function raised; it runs once more for it."""
    error, found = outcome.error, []
    if isinstance(error, Exception):
        arguments = probe.make(torch.Generator().manual_seed(SEED))
        within(SECONDS, [lambda: found.append(explain_shapes(function, arguments, error))])
    return found[0] if found else None


def is_open(diagnosis: Diagnosis) -> bool:
    """Whether there was nothing to check yet, only the stub."""
    return diagnosis.message.endswith(NOT_YET)


def _passed(exercise: Exercise) -> Diagnosis:
    holds = "; ".join(dict.fromkeys(probe.holds for probe in exercise.probes))
    return Diagnosis(True, None, f"{exercise.name}: right. {holds[:1].upper()}{holds[1:]}.")


@lru_cache(maxsize=1 << 15)
def _outcome(name: str, on: frozenset[str], i: int) -> Outcome:
    """What one probe makes of the reference with these faults: one by one, because the first mostly decides."""
    exercise = find_exercise(name)
    return observe_one(partial(exercise.reference, on=on), exercise.probes[i])


def _findings(
    exercise: Exercise, pairs: list[Comparison], wrong: list[Comparison], learner: Learner
) -> Iterator[Finding]:
    """Everything that can be said of the mistake, the best first; there is always something."""
    if not wrong[0].mine.ended:
        yield (
            "does not end",
            f"{_call(exercise, wrong[0])} was stopped: it had not ended when all calls of your function had taken "
            f"{SECONDS:.0f} seconds. Look at the condition of your loop: does what it tests change in each round? If "
            "the notebook stays slow, restart the kernel.",
        )
    whole = len(pairs) == len(exercise.probes)
    if whole:
        yield from _of_catalogue(exercise, pairs, wholly=True)
    kind = [*of_kind(exercise, wrong[:1])]
    if whole and kind:  # a name says more than "wrong shape"
        yield from _all_but_one(exercise, pairs)
    yield from kind
    if whole and _wrong(pairs):
        yield from _of_catalogue(exercise, pairs, wholly=False)
        yield from _partly(exercise, pairs)
    else:
        yield from of_gradients(exercise, wrong)
        yield from of_kind(exercise, wrong)
    if _breaks(wrong[0]):
        yield "raises an error", _raised(exercise, wrong[0])
    if isinstance(wrong[0].right.value, Raised):
        asked = f"should raise {wrong[0].right.value.kind}: {wrong[0].probe.holds}."
        if isinstance(wrong[0].mine.value, Raised):
            yield "another exception", f"{_raised(exercise, wrong[0])}. It {asked}"
        yield "nothing refused", f"{_call(exercise, wrong[0])} {asked}"
    plain = [i for i in _wrong(pairs, wholly=True) if pairs[i].probe.sees is None]
    if any(not same(learner.again(i).value, pairs[i].mine.value, wholly=False) for i in plain):
        yield "random", "Called twice with the same arguments, your function gives two results. Nothing here is random."
    yield from of_nan(wrong)
    yield from of_parts(wrong)
    yield from of_numbers(exercise, pairs, learner)
    first = _first(exercise, wrong[0])
    if last_digits_alone(wrong):
        yield "last digits", f"{first} {LAST_DIGITS}"
    yield None, first


def _of_catalogue(exercise: Exercise, pairs: Sequence[Comparison], wholly: bool) -> Iterator[Finding]:
    """The faults, then the pairs of faults, under which the reference does exactly what the learner's function does."""
    sizes = (1,) if any(_breaks(pair) for pair in pairs) else (1, 2)  # an error hides what a second mistake does
    for on in (names for n in sizes for names in combinations(exercise.faults, n)):
        if all(_alike(p, theirs, wholly) for p, theirs in zip(pairs, _under(exercise, on, pairs), strict=True)):
            yield _named(exercise, on, pairs, wholly)


def _alike(mine: Comparison, theirs: Comparison, wholly: bool) -> bool:
    """Whether both did the same; if both raise what is not expected, for the same reason and not only in kind."""
    if _breaks(mine) and _breaks(theirs):
        a, b = mine.mine.value, theirs.mine.value
        return a == b and a.message == b.message
    return agrees(mine.mine, theirs.mine, mine.probe, wholly)


def _breaks(pair: Comparison) -> bool:
    """Whether an error was raised that is not expected."""
    return isinstance(pair.mine.value, Raised) and not isinstance(pair.right.value, Raised)


def _under(exercise: Exercise, on: Iterable[str], pairs: Sequence[Comparison]) -> Iterator[Comparison]:
    """The comparisons as if the learner's function were the reference with these faults, one by one."""
    return (p._replace(mine=_outcome(exercise.name, frozenset(on), i)) for i, p in enumerate(pairs))


def _all_but_one(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """Faults that explain all results, or all but one, which is mostly that of an edge case, and three wrong ones."""
    wrong = _wrong(pairs)
    for on in (names for n in (1, 2) for names in combinations(exercise.faults, n)):
        theirs = zip(pairs, _under(exercise, on, pairs), strict=True)
        unlike = (i for i, (p, t) in enumerate(theirs) if not agrees(p.mine, t.mine, p.probe, False))
        apart = [*islice(unlike, 2)]  # after two, nothing more is computed
        if len(apart) <= 1 and len({*wrong} - {*apart}) >= 3:
            yield _nearest(exercise, on, pairs[wrong[0]])


def _partly(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """The fault that fits best of those that do not explain everything.

    First come faults that show everywhere where they would, and explain at least half of what is wrong; then those that
    do the same up to the first result that is wrong, and there: in two results, or in one of size.
    """
    wrong = _wrong(pairs)
    value = pairs[wrong[0]].mine.value
    enough = 1 if isinstance(value, Tensor) and value.numel() >= 4 else min(2, len(wrong))
    mostly, at_first = {}, {}
    for fault in exercise.faults:
        theirs = [*_under(exercise, [fault], pairs)]
        shows = _wrong(theirs)
        alike = [_alike(p, t, False) for p, t in zip(pairs, theirs, strict=True)]
        if shows and 2 * len(shows) >= len(wrong) and all(alike[i] for i in shows):
            mostly[fault] = len(shows)
        if not isinstance(value, Raised) and all(alike[: wrong[0] + 1]) and sum(alike[i] for i in wrong) >= enough:
            at_first[fault] = sum(alike)
    for fits in (mostly, at_first):
        if fits:
            yield _nearest(exercise, [max(fits, key=fits.get)], pairs[wrong[0]])


def _wrong(pairs: Sequence[Comparison], wholly: bool = False) -> list[int]:
    """The numbers of the probes whose result is not the right one: in its value, or wholly."""
    return [i for i, p in enumerate(pairs) if not agrees(p.mine, p.right, p.probe, wholly)]


def _named(exercise: Exercise, on: Sequence[str], pairs: Sequence[Comparison], wholly: bool) -> Finding:
    faults = [exercise.faults[name] for name in on]
    shows, wrong = _wrong([*_under(exercise, on, pairs)], wholly), _wrong(pairs, wholly)
    evidence = _evidence(exercise, pairs[next((i for i in wrong if i in shows), wrong[0])])
    looks = ", and as if ".join(fault.looks for fault in faults)
    why = " ".join(fault.why for fault in faults)
    return " + ".join(on), f"It looks as if {looks}. {evidence} {why}"


def _nearest(exercise: Exercise, on: Sequence[str], pair: Comparison) -> Finding:
    """What fails first, and the faults that explain most of it but not everything."""
    looks = " and that ".join(exercise.faults[name].looks for name in on)
    why = " ".join(exercise.faults[name].why for name in on)
    nearest = f"The nearest mistake that we know is that {looks}, {NEAREST}. {why}"
    return " + ".join(on), f"{_first(exercise, pair)} {nearest}"


def _first(exercise: Exercise, pair: Comparison) -> str:
    """What is known of any mistake: the first property that does not hold."""
    return f"The first thing that does not hold: {pair.probe.holds}. {_evidence(exercise, pair)}"


def _raised(exercise: Exercise, pair: Comparison) -> str:
    error = pair.mine.value
    line = f" in the line `{error.line}`" if error.line else ""
    text = f"{_call(exercise, pair)} raises {error.kind}{line}: {error.message.strip()[:300].rstrip('.')}"
    return ". ".join([text, *(advice for part, advice in ADVICE.items() if part in error.message)])


def _call(exercise: Exercise, pair: Comparison) -> str:
    """The call of a probe, as it would be typed."""
    return f"`{exercise.name}({', '.join(map(_short, pair.mine.arguments or pair.right.arguments))})`"


def _evidence(exercise: Exercise, pair: Comparison) -> str:
    """Where the learner's result first differs from the right one, in numbers."""
    mine, right = pair.mine.value, pair.right.value
    if isinstance(mine, Raised):
        return _raised(exercise, pair) + "."
    if pair.mine.changed != pair.right.changed:
        return f"{_call(exercise, pair)} changes what it was given."
    if isinstance(mine, Tensor) and isinstance(right, Tensor) and mine.shape == right.shape and mine.numel() > 6:
        if mine.dtype != right.dtype:
            return f"The result is {dtype_name(mine)}, but {dtype_name(right)} is expected."
        apart = ~torch.isclose(mine.double(), right.double(), rtol=1e-3, atol=1e-4, equal_nan=True)
        if apart.any():
            at = apart.nonzero()[0].tolist()
            a, b = mine[tuple(at)].item(), right[tuple(at)].item()
            return f"For {_call(exercise, pair)} the number at {at} is {_short(a)} and should be {_short(b)}."
        return f"For {_call(exercise, pair)} a gradient differs."
    if same(mine, right, pair.probe.tolerance):
        return f"For {_call(exercise, pair)} the numbers are right, but the gradients are not."
    if isinstance(mine, dict) and isinstance(right, dict) and mine.keys() == right.keys():
        apart = [key for key in right if not same(mine[key], right[key], pair.probe.tolerance)]
        told = ('"{}" is {} and should be {}'.format(key, *_told_apart(mine[key], right[key])) for key in apart)
        return f"For {_call(exercise, pair)}: {'; '.join(told)}."
    return "{} gives {}, but {} is right.".format(_call(exercise, pair), *_told_apart(mine, right))


def _told_apart(mine: Any, right: Any) -> tuple[str, str]:
    """Both in so many digits that they do not look the same."""
    digits = next(n for n in (4, 8, 17) if n == 17 or _short(mine, n) != _short(right, n))
    return _short(mine, digits), _short(right, digits)


def _short(value: Any, digits: int = 4) -> str:
    """A value in a few characters: small tensors whole, large ones as their shape."""
    if isinstance(value, Tensor):
        if value.numel() <= 8:
            return _short(value.tolist(), digits)
        kind = "" if value.dtype == torch.float32 else f" of {dtype_name(value)}"
        return f"tensor {tuple(value.shape)}{kind}"
    if isinstance(value, bool) or value is None or isinstance(value, int | str | bytes):
        return repr(value)
    if isinstance(value, float):
        return f"{value + 0.0:.{digits}g}"  # adding 0.0 makes -0.0 a 0
    if isinstance(value, Raised):
        return f"{'an' if value.kind.startswith(tuple('AEIOU')) else 'a'} {value.kind}"
    if isinstance(value, list | tuple):
        shown = [_short(item, digits) for item in value[:12]] + (["..."] if len(value) > 12 else [])
        return f"({', '.join(shown)})" if isinstance(value, tuple) else f"[{', '.join(shown)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(item, digits)}" for key, item in value.items()) + "}"
    if is_dataclass(value) and not isinstance(value, type):
        chosen = [f"{f.name}={getattr(value, f.name)!r}" for f in fields(value) if getattr(value, f.name) != f.default]
        return f"{type(value).__name__}({', '.join(chosen)})"
    return getattr(value, "__name__", type(value).__name__)


def _stopped(exercise: Exercise) -> Card:
    """What an interrupted check says."""
    advice = (
        f"`{exercise.name}` was running. A check gives all calls {SECONDS:.0f} seconds and then stops by itself, so a "
        "function that takes longer has a loop that does not end, or too many rounds. Look at its condition."
    )
    state = "Your function has ended, and the notebook is as it was before. Change the function and check again."
    if still_running():
        state = "Your function cannot be stopped and slows down everything: save the notebook and restart the kernel."
    return message(f"{exercise.name}: you stopped the check", [advice, state], "open")


def _card(exercise: Exercise, found: Examined, ready: str | None = None) -> Card:
    (passed, mistake, said), _, shapes = found
    if is_open(found.diagnosis):
        text = f"Write `{exercise.signature}`, run its cell, then run this one again."
        return card(said, [paragraph(text)], said, "open")
    rows: dict[str, bool | None] = {}
    for probe, state in zip_longest(exercise.probes, found.states):
        rows[probe.holds] = state if rows.get(probe.holds, True) else False
    if False in rows.values():  # what comes behind the first failure may only follow from it
        first = list(rows.values()).index(False)
        rows = {holds: state if i <= first else None for i, (holds, state) in enumerate(rows.items())}
    item = '<li style="margin:1px 0"><b style="color:{1};display:inline-block;width:1.5em">{0}</b>{2}</li>'
    items = "".join(item.format(*MARKS[state], inline(holds)) for holds, state in rows.items())
    listing = f'<ul style="list-style:none;padding:0;margin:8px 0">{items}</ul>'
    if passed:
        text = "\n".join([f"{exercise.name}: right", *(f"  ✓ {unmarked(holds)}" for holds in rows)])
        said = READY_MADE.format(ready) if ready else ""
        parts = [listing, paragraph(said)] if ready else [listing]
        return card(f"{exercise.name}: right", parts, "\n".join(filter(None, [text, unmarked(said)])), "good")
    title = f"{exercise.name}: {'not right yet' if mistake is None or NEAREST in said else mistake}"
    parts = [paragraph(said.partition("\n")[0]), shapes.html if shapes else "", fold("What was checked", listing)]
    return card(title, parts, f"{exercise.name}: not right yet\n{_in_words(said)}", "bad")


def _in_words(said: str) -> str:
    """A message as plain text: its first line is marked, what follows shows shapes."""
    first, *shapes = said.split("\n", 1)
    return "\n".join([unmarked(first), *shapes])
