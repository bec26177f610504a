"""The checks: every fault caught and named, no right variant rejected, nothing of a learner's code escapes."""

import importlib
import pkgutil
import sys
import threading
import time

import catalogue
import pytest
import torch
from other_blas import other_blas

from tinylm_lib.classroom import exercises
from tinylm_lib.classroom.checks import probing
from tinylm_lib.classroom.checks.check import _told_apart, check, diagnose, hint
from tinylm_lib.classroom.checks.probing import observe_one, same
from tinylm_lib.classroom.exercises.base import Diagnosis

FILES = [importlib.import_module(f"catalogue.{m.name}") for m in pkgutil.iter_modules(catalogue.__path__)]
RIGHT, WRONG, LIBRARY, SAME = (
    {key: value for file in FILES for key, value in getattr(file, table, {}).items()}
    for table in ("RIGHT", "WRONG", "LIBRARY", "SAME")
)
FAULTS = [(name, fault) for name in exercises.names() for fault in exercises.find_exercise(name).faults]


def each(table: dict) -> list:
    """Exercise and function, one by one."""
    return [pytest.param(name, f, id=f"{name}-{key}") for name, fs in table.items() for key, f in fs.items()]


def faulty(name: str, *faults: str):
    reference = exercises.find_exercise(name).reference
    return lambda *arguments: reference(*arguments, on=frozenset(faults))


@pytest.fixture(autouse=True)
def few_threads(one_thread):
    """The probes are tiny."""


@pytest.mark.parametrize("name", exercises.names())
def test_an_exercise_is_whole(name):
    exercise = exercises.find_exercise(name)
    assert len(exercise.faults) >= 6 and len(RIGHT[name]) >= 3 and 2 <= len(exercise.hints) <= 5
    assert exercise.lesson in {f"{i:02}" for i in range(1, 16)}
    assert all(len(text) > 10 for fault in exercise.faults.values() for text in fault)
    assert diagnose(name, faulty(name)).passed
    outcomes = [observe_one(exercise.reference, probe) for probe in exercise.probes]
    raised = [outcome.value for outcome in outcomes if outcome.error]
    assert {value.kind for value in raised} <= {"IndexError"}, raised  # what embedding refuses


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_fault_of_the_catalogue_is_caught_and_named(name, fault, record):
    found = diagnose(name, faulty(name, fault))
    named = found.mistake in {fault, *SAME.get((name, fault), ())}
    record(name, "faults", caught=not found.passed, named=named)
    assert not found.passed and named, found


@pytest.mark.parametrize(("name", "variant"), each(RIGHT))
def test_a_right_variant_passes(name, variant, record):
    found = diagnose(name, variant)
    record(name, "variants", passed=found.passed)
    assert found.passed, found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_right_variant_passes_on_every_processor(seed):
    """The reference rounds as this one does, the variant as another one."""
    assert all(diagnose(name, faulty(name)).passed for name in RIGHT)  # from here on the reference's results are kept
    with other_blas(seed):
        found = {(name, key): diagnose(name, f) for name, fs in RIGHT.items() for key, f in fs.items()}
    assert {which: d.message for which, d in found.items() if not d.passed} == {}


@pytest.mark.parametrize(("name", "mistake"), each(WRONG))
def test_a_mistake_outside_the_catalogue_is_told(name, mistake, record):
    found = diagnose(name, mistake)
    record(name, "unknown", caught=not found.passed, named=found.mistake is not None)
    assert found.passed or len(found.message) > 30  # what is missed is counted, the bar is below


@pytest.mark.parametrize("name", LIBRARY)
def test_the_reference_is_the_library_s(name):
    exercise = exercises.find_exercise(name)
    for probe in exercise.probes:
        mine, theirs = (observe_one(f, probe).value for f in (exercise.reference, LIBRARY[name]))
        assert same(mine, theirs, probe.tolerance), probe.holds


def test_numbers_that_differ_are_told_apart():
    assert _told_apart(0.500012, 0.500013) == ("0.500012", "0.500013")
    assert _told_apart(0.5, 2.0) == ("0.5", "2")


def never_ends(x, dim):
    while True:
        x = x + 1


def catches_everything(x, dim):
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            continue


def meddles(x, dim):
    torch.manual_seed(99)
    torch.set_default_dtype(torch.float64)
    print("noise")
    print("noise", file=sys.stderr)
    return x.softmax(dim)


def raises(error):
    def function(x, dim):
        raise error

    return function


def recurses(x, dim):
    return recurses(x, dim)


class Nasty(torch.Tensor):
    """A result that objects to everything."""

    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


class NotATensor:
    def __getattr__(self, name):
        raise RuntimeError(name)


BAD = {
    "nothing returned": (lambda x, dim: print(x.softmax(dim)), "nothing returned"),
    "a list": (lambda x, dim: x.softmax(dim).tolist(), "wrong type"),
    "an array": (lambda x, dim: x.detach().softmax(dim).numpy(), "wrong type"),
    "a text": (lambda x, dim: str(x), "wrong type"),
    "an object that objects": (lambda x, dim: NotATensor(), "wrong type"),
    "too few arguments": (lambda x: x, "raises an error"),
    "an exit": (raises(SystemExit(3)), "raises an error"),
    "an interrupt": (raises(KeyboardInterrupt), "raises an error"),
    "endless recursion": (recurses, "raises an error"),
    "a type": (torch.Tensor, "raises an error"),
    "detached": (lambda x, dim: x.detach().softmax(dim), "no gradient"),
    "chance": (lambda x, dim: (x + torch.rand(())).softmax(dim) * (1 + torch.rand(())), "random"),
    "no function": (torch.ones(3), "no function"),
    "None": (None, "no function"),
}


@pytest.mark.parametrize(("function", "mistake"), BAD.values(), ids=BAD)
def test_whatever_it_does_it_is_told(function, mistake):
    found = diagnose("softmax", function)
    assert not found.passed and found.mistake == mistake, found
    assert len(found.message) > 20


def test_a_result_of_a_strange_class_is_taken_for_what_it_holds():
    assert diagnose("softmax", lambda x, dim: x.softmax(dim).as_subclass(Nasty)).passed


@pytest.mark.parametrize("function", [never_ends, catches_everything])
def test_what_does_not_end_is_stopped(function, monkeypatch):
    monkeypatch.setattr(probing, "SECONDS", 0.5)
    found = diagnose("softmax", function)
    assert found.mistake == "does not end" and "5 seconds" in found.message
    assert function is catches_everything or threading.active_count() < 5


def test_what_it_meddles_with_is_put_back(capsys):
    before = torch.get_rng_state()
    found = diagnose("softmax", meddles)
    assert found.passed, found
    assert torch.equal(torch.get_rng_state(), before) and torch.get_default_dtype() == torch.float32
    assert capsys.readouterr() == ("", "")


def test_a_stub_is_not_attempted_yet_and_a_right_one_is_told_what_holds(capsys):
    found = check("softmax", raises(NotImplementedError))
    assert found == Diagnosis(False, None, "softmax: not attempted yet")
    assert capsys.readouterr().out == "softmax: not attempted yet\n"
    assert check("softmax", torch.softmax).passed
    assert "✓ every row sums to 1" in capsys.readouterr().out


def test_two_mistakes_at_once_are_both_named():
    found = diagnose("rms_norm", faulty("rms_norm", "centred", "eps outside"))
    assert found.mistake == "centred + eps outside"


@pytest.mark.parametrize("function", [diagnose, check, lambda name, f: hint(name)])
def test_an_unknown_name_is_a_key_error(function):
    with pytest.raises(KeyError, match=r"there is no exercise 'softmx'; there are .*softmax"):
        function("softmx", torch.softmax)


@pytest.mark.parametrize("name", exercises.names())
def test_hints_unfold_one_by_one_and_hold_no_code_of_the_answer(name):
    card, hints = hint(name), exercises.find_exercise(name).hints
    assert card.html.count("<details>") == len(hints) and "return " not in " ".join(hints)
