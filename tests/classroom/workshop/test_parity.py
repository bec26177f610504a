"""Parity: every right part is equal to the library's, and each kind of wrong one is found and told apart."""

import math

import pytest
import torch
from support.toys import toy_config

from tinylm_classroom.exercises import find_exercise
from tinylm_classroom.workshop import parity as rooms
from tinylm_classroom.workshop.parity import kept_functions, parity
from tinylm_classroom.workshop.parts import PartState
from tinylm_classroom.workshop.student_modules import CALLABLE, callable_parts
from tinylm_lib.model import TransformerLM

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = toy_config("modern", max_seq_len=24)


def only(name: str, function):
    (found,) = parity(CONFIG, {name: function})
    return found


def test_the_course_s_own_solutions_are_equal_wherever_they_are_called() -> None:
    found = parity(CONFIG, {name: find_exercise(name).reference for name in sorted(CALLABLE)})
    called = callable_parts(TransformerLM(CONFIG))
    assert {part.name for part in found if part.equal} == {part.name for part in found if part.places} == called
    assert all(part.why and math.isnan(part.logits) for part in found if not part.places)


WRONG = {
    "no gain": ("rms_norm", lambda x, gain, eps: x / (x.square().mean(-1, keepdim=True) + eps).sqrt()),
    "over the rows": ("softmax", lambda x, dim: x.softmax(-2)),
    "raises": ("softmax", lambda x, dim: x.no_such_thing()),
    "another shape": ("silu", lambda x: (x * x.sigmoid()).unsqueeze(0)),
    "not a number": ("silu", lambda x: x * float("nan")),
    "no gradient": ("linear", lambda x, weight: x @ weight.detach().T),
    "only with a cache": ("cached_attention", lambda q, k, v, old_k, old_v: (q, k, v)),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_part_is_found(case: str) -> None:
    assert not only(*WRONG[case]).equal


def test_what_differs_says_which_mistake_it_is() -> None:
    frozen, cached = only(*WRONG["no gradient"]), only(*WRONG["only with a cache"])
    assert frozen.logits < rooms.ROUNDING < frozen.gradients
    assert cached.logits < rooms.ROUNDING < cached.cached
    assert "AttributeError" in only(*WRONG["raises"]).why and only(*WRONG["not a number"]).logits == math.inf


def test_the_library_and_the_given_model_stay_as_they_are() -> None:
    torch.manual_seed(1)
    before = TransformerLM(CONFIG)(torch.zeros(1, 3, dtype=torch.long))
    only(*WRONG["over the rows"])
    torch.manual_seed(1)
    torch.testing.assert_close(TransformerLM(CONFIG)(torch.zeros(1, 3, dtype=torch.long)), before, rtol=0, atol=0)


def test_kept_functions_are_those_that_are_right_today(monkeypatch) -> None:
    states = [
        PartState("softmax", "done", "", torch.softmax),
        PartState("silu", "broken", "no"),
        PartState("swiglu", "open"),
    ]
    monkeypatch.setattr(rooms, "read_parts", lambda: states)
    assert kept_functions() == {"softmax": torch.softmax}
