"""A check says what it found, whatever the learner's function does, and nothing of it escapes."""

import sys
import time
from collections import namedtuple
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tinylm_classroom.checks import calling, relations
from tinylm_classroom.checks.check import _card, check, hint
from tinylm_classroom.checks.verdict import diagnose, examine
from tinylm_classroom.checks.wording import told_apart
from tinylm_classroom.exercises import find_exercise, names
from tinylm_classroom.exercises.base import Diagnosis

pytestmark = pytest.mark.usefixtures("one_thread")


def test_numbers_that_differ_are_distinguished():
    assert told_apart(0.500012, 0.500013) == ("0.500012", "0.500013")
    assert told_apart(0.5, 2.0) == ("0.5", "2")


def test_an_exception_that_is_expected_is_said_in_words():
    looked_up = diagnose("embedding", lambda ids, weight: weight[ids])
    assert ", but an IndexError is right." in looked_up.message
    assert "Raised(" not in looked_up.message


def test_a_list_of_ids_is_one_result_and_is_shown_with_its_call():
    def late(ids, pair, new_id):
        merged = find_exercise("bpe_merge_step").reference(ids, pair, new_id)
        return [*merged, 1] if ids[0] == 3 else merged

    found = diagnose("bpe_merge_step", late)
    assert "`bpe_merge_step([3, 1, 2, 1, 2, 1, 2, 5], (1, 2), 7)` gives [3, 7, 7, 7, 5, 1]" in found.message


def test_a_tensor_without_axes_is_named_by_its_shape():
    assert "returns a tensor of shape (), but" in diagnose("linear", lambda x, weight: (x @ weight.mT).sum()).message


def never_ends(x, dim):
    while True:
        pass


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


class Nasty(torch.Tensor):
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
    "endless recursion": (lambda x, dim: BAD["endless recursion"][0](x, dim), "raises an error"),
    "a type": (torch.Tensor, "raises an error"),
    "detached": (lambda x, dim: x.detach().softmax(dim), "no gradient"),
    "chance": (lambda x, dim: (x + torch.rand(())).softmax(dim) * (1 + torch.rand(())), "random"),
    "no function": (torch.ones(3), "no function"),
    "None": (None, "no function"),
}


@pytest.mark.parametrize(("function", "mistake"), BAD.values(), ids=BAD)
def test_anything_that_it_does_is_reported(function, mistake):
    found = diagnose("softmax", function)
    assert not found.passed and found.mistake == mistake, found
    assert len(found.message) > 20


@pytest.mark.parametrize("function", [never_ends, catches_everything])
def test_what_does_not_end_is_stopped(function, monkeypatch):
    monkeypatch.setattr(calling, "SECONDS", 0.5)
    found = diagnose("softmax", function)
    assert found.mistake == "does not end" and "2 seconds" in found.message
    assert function is catches_everything or not calling.still_running()


def test_all_calls_share_one_limit(monkeypatch):
    monkeypatch.setattr(calling, "SECONDS", 0.5)
    probes = find_exercise("softmax").probes
    outcomes = calling.observe(lambda x, dim: time.sleep(0.2), probes)
    assert not outcomes[-1].ended and len(outcomes) < len(probes)


def test_a_slow_function_is_not_called_again(monkeypatch):
    monkeypatch.setattr(calling, "TOO_SLOW", 0.0)
    calls = []
    found = diagnose("softmax", lambda x, dim: calls.append(x) or x.softmax(dim) * (1.1 if x.ndim == 2 else 1.2))
    assert not found.passed and len(calls) == len(find_exercise("softmax").probes)


@pytest.mark.parametrize(("computed", "counts"), [(0.0, 10.0), (1.5, 2.0), (8.0, 8.0)])
def test_waiting_counts_and_a_busy_machine_hardly(computed, counts, monkeypatch):
    learner = calling._Learner([])
    monkeypatch.setattr(learner, "_computed", lambda: computed)
    learner.began -= 10
    assert learner.seconds() == pytest.approx(counts, abs=0.5)


def test_what_it_meddles_with_is_put_back(capsys):
    before = torch.get_rng_state()
    assert diagnose("softmax", meddles).passed
    assert torch.equal(torch.get_rng_state(), before) and torch.get_default_dtype() == torch.float32
    assert capsys.readouterr() == ("", "")


def test_a_stub_is_not_attempted_yet_and_a_right_one_is_told_what_holds(capsys):
    found = check("softmax", raises(NotImplementedError))
    assert found == Diagnosis(False, None, "softmax: not attempted yet")
    assert capsys.readouterr().out == "softmax: not attempted yet\n"
    assert check("softmax", lambda x, dim: x.softmax(dim).as_subclass(Nasty)).passed  # taken for what it holds
    assert "✓ every row sums to 1" in capsys.readouterr().out


def through_numpy(reference, convert):
    """The reference, which converts its first tensor for nothing."""

    def function(*arguments):
        for tensor in [a for a in arguments if isinstance(a, torch.Tensor)][:1]:
            convert(tensor)
        return reference(*arguments)

    return function


@pytest.mark.parametrize("convert", [torch.Tensor.numpy, np.exp])
def test_numpy_on_a_tensor_is_not_taken_for_another_mistake(convert):
    found = {name: diagnose(name, through_numpy(find_exercise(name).reference, convert)) for name in names()}
    failed = {name: d for name, d in found.items() if not d.passed}
    assert len(names()) == 44 and len(failed) > 15
    assert {d.mistake for d in failed.values()} == {"raises an error"}, failed
    assert all("torch's functions" in d.message for d in failed.values()), failed


@pytest.mark.parametrize(
    ("name", "fault", "error"),
    [
        ("softmax", "in place", RuntimeError("expected a tensor of 2 axes")),
        ("merge_heads", "viewed", RuntimeError("shape '[2, 3]' is invalid for input of size 8")),
        ("embedding", "one too many", IndexError("list index out of range")),
    ],
)
def test_an_error_of_the_same_class_is_not_the_same_mistake(name, fault, error):
    reference = find_exercise(name).reference

    def function(*arguments):
        try:
            reference(*deepcopy(arguments), on=frozenset({fault}))
        except type(error):
            raise error from None
        return reference(*arguments)

    found = diagnose(name, function)
    assert found.mistake == "raises an error" and str(error) in found.message, found


def test_an_inexact_match_is_not_the_title_and_the_sentence_comes_before_the_list():
    def almost(x, dim):
        return x.softmax(0) if x.ndim == 2 else 1.3 * x.softmax(dim)

    exercise = find_exercise("softmax")
    found = examine(exercise, almost)
    html = _card(exercise, found).html
    assert html.index(found.diagnosis.message[:20].split("`")[0]) < html.index("<details>")
    assert html.count("<details>") == 1


def test_what_comes_behind_the_first_failure_is_left_open():
    exercise = find_exercise("softmax")
    found = examine(exercise, lambda x, dim: x.softmax(dim) * (1.1 if x.ndim == 2 else 1))
    n_right = found.states.index(False)
    assert True in found.states[n_right:], "a later probe holds, which the card does not say"
    html = _card(exercise, found).html
    assert html.count("✓") == len({p.holds for p in exercise.probes[:n_right]}) and html.count("✗") == 1


def test_two_mistakes_at_once_are_both_named():
    found = diagnose("rms_norm", partial(find_exercise("rms_norm").reference, on=frozenset({"centred", "eps outside"})))
    assert found.mistake == "centred + eps outside"


def test_a_plain_value_is_a_copy():
    value = torch.ones(2)
    kept = calling.plain([value])
    value.zero_()
    assert torch.equal(kept[0], torch.ones(2))


def test_a_wrong_sign_is_named_and_lost_digits_are_not():
    right = torch.tensor([1.0, -2.0, 3.0])
    assert relations._scaled(-right, right)[0] == "wrong sign"
    assert relations._scaled(right * (1 + 1e-6), right) is None


def test_what_is_strange_keeps_its_name():
    assert calling.plain(calling.plain(NotATensor())).kind == "NotATensor"


def test_where_nbgrader_runs_it_what_is_not_right_raises(monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert check("softmax", torch.softmax).passed
    for function, said in ((lambda x, dim: x.softmax(0), "axis"), (raises(NotImplementedError()), "not attempted yet")):
        with pytest.raises(AssertionError, match=said):
            check("softmax", function)
    assert "not right yet" in capsys.readouterr().out, "the card is shown, too"


@pytest.mark.parametrize("function", [diagnose, check, lambda name, f: hint(name)])
def test_an_unknown_name_is_a_key_error(function):
    with pytest.raises(KeyError, match=r"there is no exercise 'softmx'; there are .*softmax"):
        function("softmx", torch.softmax)


def ratio(log_probs, advantages, mask):
    """What PPO does: the value does not depend on the log-probabilities, the gradient does."""
    each = -(log_probs - log_probs.detach()).exp() * advantages[:, None]
    return (each * mask).sum() / mask.sum()


def scaled(log_probs, advantages, mask):
    advantages = advantages / advantages.std()
    return -(log_probs * advantages[:, None] * mask).sum() / mask.sum()


def clamped(chosen, rejected, ref_chosen, ref_rejected, beta):
    margin = (chosen - ref_chosen - rejected + ref_rejected).clamp(-20, 20)
    return torch.nn.functional.softplus(-beta * margin).mean()


def test_only_what_is_never_used_is_called_unused():
    assert diagnose("policy_gradient_loss", ratio).mistake != "ignores log_probs"
    assert diagnose("dpo_loss", clamped).mistake not in ("ignores chosen", "ignores rejected")
    assert diagnose("silu", lambda x: torch.full_like(x, 0.37)).mistake == "ignores x"
    exercise = find_exercise("policy_gradient_loss")
    assert "ignores log_probs" not in dict(relations._ignored(exercise, calling.Learner(ratio, exercise.probes)))


def test_a_result_that_is_nan_is_said_first():
    found = diagnose("policy_gradient_loss", scaled)
    assert found.mistake == "the result is NaN" and "one number" in found.message, found


def test_faults_that_only_undo_each_other_elsewhere_are_not_named_together():
    def first_before_the_loop(scores, ids, n):
        for _ in range(max(n, 1)):
            ids = torch.cat((ids, scores(ids)[:, -1].argmax(-1, keepdim=True)), 1)
        return ids

    found = diagnose("continue_greedily", first_before_the_loop)
    assert not found.passed and "+" not in (found.mistake or "") and "one token is missing" not in found.message


def test_more_digits_are_right_where_the_text_names_no_dtype():
    assert diagnose("cross_entropy", lambda x, y: F.cross_entropy(x.double().flatten(0, 1), y.flatten())).passed
    assert diagnose("softmax", lambda x, dim: x.double().softmax(dim)).mistake is not None


def test_a_tuple_with_named_fields_is_a_tuple():
    pairs = namedtuple("Pairs", ["inputs", "targets"])
    assert diagnose("next_token_pairs", lambda ids: pairs(ids[:, :-1], ids[:, 1:])).passed
    found = diagnose("next_token_pairs", lambda ids: pairs(ids[:, 1:], ids[:, :-1]))
    assert found.mistake == "shifted back"
