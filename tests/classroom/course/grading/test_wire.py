"""What goes from the process that runs a student's code to the one that judges: values, exactly, and nothing else."""

import json
from functools import partial

import pytest
import torch

from tinylm_classroom.checks.calling import SEED, Call, Raised, Strange, calls_of, outcome_of, plain, same
from tinylm_classroom.course.grading.wire import SENT_DTYPES, decode, decode_call, encode, encode_call
from tinylm_classroom.exercises import EXERCISES

pytestmark = pytest.mark.usefixtures("one_thread")
VALUES = [
    None, True, 3, -(10**30), 2.5, float("inf"), "text\n\u202e", b"\x00\xff",
    [1, (2.0, "a")], {"a": [None]}, (), Strange("Thing"),
    Raised("ValueError", "why", "x = 1"), torch.arange(6.0).view(2, 3).mT, torch.tensor(3), torch.empty(0, 4),
    torch.arange(8).view(2, 4)[:1, 3], torch.ones(2, dtype=torch.complex64).conj(),
    *(torch.ones(2, 3).to(dtype) for dtype in SENT_DTYPES.values()),
]  # fmt: skip


def over_the_wire(data):
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_arrives_as_it_was(value):
    there = decode(over_the_wire(encode(value)))
    assert type(there) is type(value)
    if isinstance(value, torch.Tensor):
        assert there.dtype == value.dtype and torch.equal(there, value)
    else:
        assert there == value


def test_nan_and_minus_zero_arrive():
    there = decode(over_the_wire(encode(torch.tensor([float("nan"), -0.0]))))
    assert there[0].isnan() and there[1].signbit()


class Object:
    def __eq__(self, other):
        return True

    def __reduce__(self):
        raise AssertionError("pickled")

    __hash__ = None


class Sneaky(torch.Tensor):
    def __eq__(self, other):
        return True

    __hash__ = None


class Number(float):
    def __eq__(self, other):
        return True

    __hash__ = None


ODD = {
    "object": Object(), "number": Number(1), "long": 10**5000, "meta": torch.ones(2).to("meta"),
    "sparse": torch.ones(2).to_sparse(),
}  # fmt: skip


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_whatever_is_not_plain_is_strange(value):
    assert type(decode(over_the_wire(encode(value)))) is Strange


def test_a_subclass_of_tensor_is_the_numbers_that_it_holds():
    there = decode(over_the_wire(encode(plain(torch.ones(2).as_subclass(Sneaky)))))
    assert type(there) is torch.Tensor and not same(there, torch.zeros(2))


BROKEN = [
    {}, {"text": 1}, {"what": []}, {"text": "a", "list": []}, {"list": {"a": 1}}, [], "bare", {"raised": ["a"]},
    {"raised": ["a", "b", 3]}, {"tensor": ["float32", [2], "AAAA"]}, {"tensor": ["float32", [-1], ""]},
    {"tensor": ["os.system", [1], "AAAA"]}, {"tensor": ["int8", [3], "????"]}, {"tensor": ["int8", 3, "AAAA"]},
    {"dict": [["a"]]}, {"tensor": ["float32", [0, 2**62], ""]},
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=str)
def test_anything_that_is_not_a_value_is_refused(data):
    with pytest.raises((ValueError, TypeError)):
        decode(data)


def assert_the_same_on_both_sides(exercise, function):
    calls, others = (calls_of(function, exercise.probes) for _ in "ab")
    for call, again, probe in zip(calls, others, exercise.probes, strict=True):
        here = outcome_of(call, probe)
        fresh = probe.make(torch.Generator().manual_seed(SEED))
        there = outcome_of(decode_call(over_the_wire(encode_call(again)), fresh), probe)
        assert same(here.value, there.value, 0.0), probe.holds
        assert here.changed == there.changed and (here.gradients is None) == (there.gradients is None)
        assert same(here.gradients or [], there.gradients or [], 0.0)


@pytest.mark.parametrize("name", EXERCISES)
def test_every_probe_of_every_exercise_sees_the_same_on_both_sides(name):
    assert_the_same_on_both_sides(EXERCISES[name], EXERCISES[name].reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXERCISES)
def test_it_sees_the_same_of_every_mistake(name):
    for fault in EXERCISES[name].faults:
        assert_the_same_on_both_sides(EXERCISES[name], partial(EXERCISES[name].reference, on=frozenset({fault})))


def test_what_a_function_does_to_its_arguments_is_seen_on_the_other_side():
    def shifts(q, k, v, mask=None):
        q += 1
        return q

    probe = EXERCISES["attention"].probes[0]
    fresh = probe.make(torch.Generator().manual_seed(SEED))
    (call,) = calls_of(shifts, (probe,))
    assert outcome_of(decode_call(over_the_wire(encode_call(call)), fresh), probe).changed == [0]


def test_a_call_that_did_not_end_arrives():
    there = decode_call(over_the_wire(encode_call(Call(Raised("TimeIsUpError", "", ""), ended=False))), ())
    assert not there.ended and there.result.kind == "TimeIsUpError"
