"""Predictions: the key is computed, the feedback fits it, and the answer stays folded where nothing can be asked."""

import math
import re

import pytest
import torch

from tinylm_classroom.display.cards import FINGER_HIGH
from tinylm_classroom.views.base import MIME
from tinylm_classroom.views.predict import predict

CHOICES = {"Tom": "Tom is a person.", "kite": "", "ball <3": "A ball does not `fly`."}
QUESTIONS = {
    "choices": {"choices": CHOICES, "key": lambda: "kite"},
    "number": {"number": "nats", "within": 0.05, "key": lambda: math.log(256), "feedback": {2.4: "Base 10."}},
    "shape": {"shape": "(T, S)", "key": lambda: torch.zeros(4, 15).shape, "feedback": {(15, 4): "That is `k @ q.T`."}},
    "ranking": {"ranking": ["a", "b", "c"], "key": lambda: ["c", "a", "b"], "feedback": {("a", "b", "c"): "Abc."}},
}  # fmt: skip


def ask(**changed):
    return predict(**{"question": "Which word scores highest?", "because": "It flies.", **changed})


@pytest.mark.parametrize(("kind", "key", "answer", "feedback"), [
    ("choices", "kite", "kite", [["Tom", "Tom is a person."], ["ball <3", "A ball does not `fly`."]]),
    ("number", 5.5451774, "5.55 nats", [[2.4, "Base 10."]]),
    ("shape", [4, 15], "(4, 15)", [[[15, 4], "That is `k @ q.T`."]]),
    ("ranking", ["c", "a", "b"], "c, a, b", [[["a", "b", "c"], "Abc."]]),
])  # fmt: skip
def test_the_view_holds_the_computed_key_and_a_word_for_each_wrong_answer(kind, key, answer, feedback):
    shown = ask(**QUESTIONS[kind])._repr_mimebundle_()[0][MIME]
    assert shown["module"] == "predict"
    assert {name: shown["data"][name] for name in ("kind", "key", "answer", "feedback")} == {
        "kind": kind, "key": key, "answer": answer, "feedback": feedback
    }  # fmt: skip


@pytest.mark.parametrize("kind", QUESTIONS)
def test_without_scripts_the_answer_is_folded_and_the_text_keeps_it(kind):
    view = ask(**QUESTIONS[kind])
    before, folded = view.html.split("<details>")
    assert "Which word scores highest?" in before and "It flies." not in before
    assert folded.startswith(f'<summary style="{FINGER_HIGH}">Think first, then open</summary>')
    assert f"The answer: {view.data['answer']}. It flies." in folded
    assert folded.count("Not ") == len(view.data["feedback"])
    assert repr(view).startswith("Predict first: Which word scores highest?") and "It flies." not in repr(view)
    if kind == "choices":
        assert view.data["options"] == list(CHOICES) and repr(view).endswith("(Tom | kite | ball <3)")
        assert re.findall(r"<li>(.*?)</li>", view.html) == ["Tom", "kite", "ball &lt;3"]


@pytest.mark.parametrize(("key", "within", "shown"), [
    (math.log(256), 0.05, "5.55 nats"), (12345.6, 100, "12,346 nats"), (3, 0, "3 nats"), (0.00123, 2e-4, "0.0012 nats"),
])  # fmt: skip
def test_a_number_is_shown_as_finely_as_it_is_judged(key, within, shown):
    assert ask(number="nats", within=within, key=lambda: key).data["answer"] == shown


WRONG = {
    "no kind": ({"key": lambda: 1}, "exactly one of choices, number, shape, ranking, not none"),
    "two kinds": ({**QUESTIONS["shape"], "ranking": ["a", "b"]}, "not shape, ranking"),
    "a typed key": ({**QUESTIONS["choices"], "key": "kite"}, "computed by code: key=lambda: ..., not the value 'kite'"),
    "no reason": ({**QUESTIONS["choices"], "because": " "}, "needs a question and because="),
    "no question": ({**QUESTIONS["choices"], "question": ""}, "needs a question"),
    "a key and no choice": ({"choices": CHOICES, "key": lambda: "dog"}, "'dog', which is not one of the choices"),
    "another right choice": ({"choices": CHOICES, "key": lambda: "Tom"}, "the key is 'Tom': leave its text empty"),
    "a choice without a word": ({"choices": {**CHOICES, "red": ""}, "key": lambda: "kite"}, "empty now: 'kite', 'red'"),
    "feedback twice": ({**QUESTIONS["choices"], "feedback": {"Tom": "No."}}, "choices hold their feedback"),
    "no tolerance": ({"number": "nats", "key": lambda: 1}, "a number needs it"),
    "tolerance of a shape": ({**QUESTIONS["shape"], "within": 1}, "within= belongs to a number"),
    "no unit": ({**QUESTIONS["number"], "number": " "}, "a number needs a unit"),
    "not a number": ({**QUESTIONS["number"], "key": lambda: math.nan}, "a finite key"),
    "an exact fraction": ({**QUESTIONS["number"], "within": 0}, "give within= a tolerance"),
    "scolding a number": ({**QUESTIONS["number"], "feedback": {5.55: "No."}}, "wrong with 5.55, but the key is 5.54"),
    "scolding the last right number": (
        {"number": "nats", "within": 0.5, "key": lambda: 1.0, "feedback": {1.5: "No."}}, "wrong with 1.5"
    ),
    "scolding a shape": ({**QUESTIONS["shape"], "feedback": {(4, 15): "No."}}, "remove that feedback"),
    "scolding an order": ({**QUESTIONS["ranking"], "feedback": {("c", "a", "b"): "No."}}, "remove that feedback"),
    "other axes": ({**QUESTIONS["shape"], "shape": "(B, T, S)"}, r"has 2 axes, but shape='\(B, T, S\)' names 3"),
    "other items": ({**QUESTIONS["ranking"], "key": lambda: ["a", "b"]}, "orders a, b, c, each once, not a, b"),
    "feedback on others": ({**QUESTIONS["ranking"], "feedback": {("a", "b"): "No."}}, "each once, not a, b"),
    "already in order": ({"ranking": ["a", "b"], "key": lambda: ["a", "b"]}, "are already in the right order"),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), WRONG.values(), ids=WRONG)
def test_a_question_that_does_not_fit_its_key_is_refused_with_a_fix(changed, message):
    with pytest.raises(ValueError, match=message):
        ask(**changed)
