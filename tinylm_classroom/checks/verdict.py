"""What is right or wrong: the learner's results are compared with those of a reference under every
known fault.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, combinations, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..display.cards import Card
from ..exercises import find_exercise
from ..exercises.base import Diagnosis, Exercise, Probe
from ..shapes.trace import explain_shapes
from .calling import SECONDS, SEED, Learner, Outcome, Raised, agrees, observe_one, same, within
from .relations import (
    Comparison,
    Finding,
    last_digits_alone,
    of_gradients,
    of_kind,
    of_nan,
    of_numbers,
    of_parts,
)
from .surroundings import of_notebook, replaced_in_torch
from .wording import LAST_DIGITS, call_text, first_failure, looks_like, nearest, raised

NOT_YET = "not attempted yet"


class Examined(NamedTuple):
    """A diagnosis, whether each probe is right as far as they were reached, and shapes that do not
    fit.
    """

    diagnosis: Diagnosis
    states: Sequence[bool] = ()
    shapes: Card | None = None


def diagnose(name: str, function: Callable[..., Any]) -> Diagnosis:
    """What is right or wrong with a learner's function, without showing anything.

    Nothing that the function does escapes: it may raise, exit, print, never end or change its
    inputs.
    Raises KeyError for an unknown name.
    """
    return examine(find_exercise(name), function).diagnosis


def yours(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A learner's function if it passes its check, otherwise the solution.

    Raises KeyError for an unknown name.
    """
    return function if diagnose(name, function).passed else find_exercise(name).reference


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
        f"{listed} {'is' if len(names) == 1 else 'are'} not PyTorch's own any more: this notebook "
        "gave the name to something else, so a check cannot compare numbers. Restart the kernel, "
        "and do not assign to torch."
    )


def no_function(exercise: Exercise, kind: str) -> Diagnosis:
    """What is said of something that cannot be called."""
    return Diagnosis(
        False,
        "no function",
        f"`{exercise.signature}` should be a function, but this is a {kind}.",
    )


def judge(exercise: Exercise, learner: Learner) -> Examined:
    """Say what is right, or look for the mistake: in the catalogue, then by its kind, then by what
    fails first.

    It decides by the outcomes alone and never calls the function, which may be in another process.
    """
    outcomes = learner.outcomes
    if (
        isinstance(outcomes[0].value, Raised)
        and outcomes[0].value.kind == NotImplementedError.__name__
    ):
        return Examined(Diagnosis(False, None, f"{exercise.name}: {NOT_YET}"))
    rights = _rights(exercise)
    if exercise.wider:
        outcomes = [
            replace(a, value=_narrowed(a.value, b.value))
            for a, b in zip(outcomes, rights, strict=False)
        ]
    pairs = [Comparison(*three) for three in zip(exercise.probes, outcomes, rights, strict=False)]
    states = [agrees(p.mine, p.right, p.probe) for p in pairs]
    if all(states) and len(states) == len(exercise.probes):
        return Examined(_passed(exercise), states)
    wrong = [pair for pair, right in zip(pairs, states, strict=True) if not right]
    return Examined(Diagnosis(False, *next(_findings(exercise, pairs, wrong, learner))), states)


def _rights(exercise: Exercise) -> list[Outcome]:
    """What is right for each probe."""
    return [_outcome(exercise.name, frozenset(), i) for i in range(len(exercise.probes))]


def _narrowed(value: Any, right: Any) -> Any:
    """A result with more digits than the right one, rounded to its dtype."""
    if isinstance(value, Tensor) and isinstance(right, Tensor):
        floating = value.is_floating_point() and right.is_floating_point()
        return value.to(right.dtype) if floating and value.itemsize > right.itemsize else value
    if type(value) in (list, tuple) and type(value) is type(right) and len(value) == len(right):
        return type(value)(_narrowed(a, b) for a, b in zip(value, right, strict=True))
    return value


def _shapes(probe: Probe, outcome: Outcome, function: Callable[..., Any]) -> Card | None:
    """Why shapes do not fit, where that is what the function raised; it runs once more for it."""
    error = outcome.error
    found = []
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
    """What one probe makes of the reference with these faults: one by one, because the first mostly
    decides.
    """
    exercise = find_exercise(name)
    return observe_one(partial(exercise.reference, on=on), exercise.probes[i])


def _findings(
    exercise: Exercise, pairs: list[Comparison], wrong: list[Comparison], learner: Learner
) -> Iterator[Finding]:
    """Everything that can be said of the mistake, the best first; there is always something."""
    if not wrong[0].mine.ended:
        text = (
            f"{call_text(exercise, wrong[0])} was stopped: it had not ended when all calls of your "
            f"function had taken {SECONDS:.0f} seconds. Look at the condition of your loop: does "
            "what it tests change in each round? If the notebook stays slow, restart the kernel."
        )
        yield "does not end", text
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
        yield "raises an error", raised(exercise, wrong[0])
    if isinstance(wrong[0].right.value, Raised):
        asked = f"should raise {wrong[0].right.value.kind}: {wrong[0].probe.holds}."
        if isinstance(wrong[0].mine.value, Raised):
            yield "another exception", f"{raised(exercise, wrong[0])}. It {asked}"
        yield "nothing refused", f"{call_text(exercise, wrong[0])} {asked}"
    plain = [i for i in _wrong(pairs, wholly=True) if pairs[i].probe.sees is None]
    if any(not same(learner.again(i).value, pairs[i].mine.value, wholly=False) for i in plain):
        yield (
            "random",
            (
                "Called twice with the same arguments, your function gives two results. Nothing "
                "here is random."
            ),
        )
    yield from of_nan(wrong)
    yield from of_parts(wrong)
    yield from of_numbers(exercise, pairs, learner)
    first = first_failure(exercise, wrong[0])
    if last_digits_alone(wrong):
        yield "last digits", f"{first} {LAST_DIGITS}"
    yield None, first


def _of_catalogue(
    exercise: Exercise, pairs: Sequence[Comparison], wholly: bool
) -> Iterator[Finding]:
    """The faults, then the pairs of faults, under which the reference does exactly what the
    learner's function does.
    """
    # an error hides what a second mistake does
    most = 1 if any(_breaks(pair) for pair in pairs) else 2
    wrong = _wrong(pairs, wholly)
    for on in _faults_together(exercise, most):
        theirs = zip(pairs, _under(exercise, on, pairs), strict=True)
        if all(_alike(p, t, wholly) for p, t in theirs) and _all_show(
            exercise, on, pairs, wrong, wholly
        ):
            shows = _wrong([*_under(exercise, on, pairs)], wholly)
            yield looks_like(exercise, on, pairs[next((i for i in wrong if i in shows), wrong[0])])


def _all_show(
    exercise: Exercise,
    on: Sequence[str],
    pairs: Sequence[Comparison],
    wrong: Sequence[int],
    wholly: bool,
) -> bool:
    """Whether each fault of a pair has a part in what is wrong: one that only undoes the other
    elsewhere has none.
    """
    return len(on) == 1 or all(
        {*wrong} & {*_wrong([*_under(exercise, [fault], pairs)], wholly)} for fault in on
    )


def _alike(mine: Comparison, theirs: Comparison, wholly: bool) -> bool:
    """Whether both did the same; if both raise what is not expected, for the same reason and not
    only in kind.
    """
    if _breaks(mine) and _breaks(theirs):
        a = mine.mine.value
        b = theirs.mine.value
        return a == b and a.message == b.message
    return agrees(mine.mine, theirs.mine, mine.probe, wholly)


def _breaks(pair: Comparison) -> bool:
    """Whether an error was raised that is not expected."""
    return isinstance(pair.mine.value, Raised) and not isinstance(pair.right.value, Raised)


def _under(
    exercise: Exercise, on: Iterable[str], pairs: Sequence[Comparison]
) -> Iterator[Comparison]:
    """The comparisons as if the learner's function were the reference with these faults, one by
    one.
    """
    return (p._replace(mine=_outcome(exercise.name, frozenset(on), i)) for i, p in enumerate(pairs))


def _faults_together(exercise: Exercise, most: int) -> Iterator[tuple[str, ...]]:
    """The faults one by one, then two at once, and so on up to `most` at once."""
    return chain.from_iterable(combinations(exercise.faults, n) for n in range(1, most + 1))


def _all_but_one(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """Faults that explain all results, or all but one, which is mostly that of an edge case, and
    three wrong ones.
    """
    wrong = _wrong(pairs)
    for on in _faults_together(exercise, 2):
        theirs = zip(pairs, _under(exercise, on, pairs), strict=True)
        unlike = (
            i for i, (p, t) in enumerate(theirs) if not agrees(p.mine, t.mine, p.probe, False)
        )
        apart = [*islice(unlike, 2)]  # after two, nothing more is computed
        if len(apart) <= 1 and len({*wrong} - {*apart}) >= 3:
            yield nearest(exercise, on, pairs[wrong[0]])


def _partly(exercise: Exercise, pairs: Sequence[Comparison]) -> Iterator[Finding]:
    """The fault that fits best of those that do not explain everything.

    First come faults that show everywhere where they would, and explain at least half of what is
    wrong; then those that do the same up to the first result that is wrong, and there: in two
    results, or in one of size.
    """
    wrong = _wrong(pairs)
    value = pairs[wrong[0]].mine.value
    enough = 1 if isinstance(value, Tensor) and value.numel() >= 4 else min(2, len(wrong))
    mostly = {}
    at_first = {}
    for fault in exercise.faults:
        theirs = [*_under(exercise, [fault], pairs)]
        shows = _wrong(theirs)
        alike = [_alike(p, t, False) for p, t in zip(pairs, theirs, strict=True)]
        if shows and 2 * len(shows) >= len(wrong) and all(alike[i] for i in shows):
            mostly[fault] = len(shows)
        if (
            not isinstance(value, Raised)
            and all(alike[: wrong[0] + 1])
            and sum(alike[i] for i in wrong) >= enough
        ):
            at_first[fault] = sum(alike)
    for fits in (mostly, at_first):
        if fits:
            yield nearest(exercise, [max(fits, key=fits.get)], pairs[wrong[0]])


def _wrong(pairs: Sequence[Comparison], wholly: bool = False) -> list[int]:
    """The numbers of the probes whose result is not the right one: in its value, or wholly."""
    return [i for i, p in enumerate(pairs) if not agrees(p.mine, p.right, p.probe, wholly)]
