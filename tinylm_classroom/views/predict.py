"""A question before the run: its key is computed by code, and each wrong answer gets a word of its
own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..display.cards import card, fold, inline, paragraph, unmarked
from .base import View


def predict(
    question: str,
    *,
    key: Callable[[], Any],
    because: str,
    choices: Mapping[str, str] | None = None,
    number: str | None = None,
    within: float | None = None,
    shape: str | None = None,
    ranking: Sequence[str] | None = None,
    feedback: Mapping[Any, str] | None = None,
) -> View:
    """A question that is answered before the next cell runs, in the notebook or in an exported
    page.

    key: computes the right answer; it is called here, so that no key is typed by hand.
    because: one sentence, why it is right. Text between backticks is code, here and everywhere.
    One of these says how the question is answered:
    choices: {option: what to say to anyone who chooses it}, the right option with "".
    number: its unit; `within` says how far from the key, in that unit, is still right.
    shape: the axes, such as "(T, S)"; the key is a tuple of sizes.
    ranking: the items, in another order than the right one; the key is a list of them.
    feedback: {wrong answer: what to say to it}, for all kinds but choices, which have it already.
    Raises: ValueError, which says what to do, for a key that does not fit and for feedback on the
    right answer.
    """
    kinds = {"choices": choices, "number": number, "shape": shape, "ranking": ranking}
    given = [kind for kind, form in kinds.items() if form is not None]
    if len(given) != 1:
        raise ValueError(
            f"a prediction has exactly one of {', '.join(kinds)}, not {', '.join(given) or 'none'}"
        )
    if not question.strip() or not because.strip():
        raise ValueError(
            "a prediction needs a question and because=, a sentence that says why the key is right"
        )
    if not callable(key):
        raise ValueError(f"the key is computed by code: key=lambda: ..., not the value {key!r}")
    if (within is None) == (number is not None):
        raise ValueError(
            "within= belongs to a number, and a number needs it: how far from the key is still "
            "right?"
        )
    if choices is not None and feedback is not None:
        raise ValueError(
            "choices hold their feedback: choices={'Tom': 'Tom is a person.', 'kite': ''}"
        )
    (kind,) = given
    asked = ASK[kind](kinds[kind], key(), feedback or {}, within)
    return _view({"kind": kind, "question": question, "because": because, **asked})


def _choices(
    options: Mapping[str, str], key: Any, feedback: Mapping, within: None
) -> dict[str, Any]:
    if key not in options:
        raise ValueError(
            f"the key is {key!r}, which is not one of the choices {', '.join(map(repr, options))}"
        )
    silent = [option for option, text in options.items() if not text.strip()]
    if silent != [key]:
        raise ValueError(
            f"the key is {key!r}: leave its text empty, because= speaks for it, and give each "
            f"other choice one; empty now: {', '.join(map(repr, silent)) or 'none'}"
        )
    told = [[option, text] for option, text in options.items() if option != key]
    return {"options": list(options), "key": key, "answer": key, "feedback": told}


def _number(unit: str, key: Any, feedback: Mapping[float, str], within: float) -> dict[str, Any]:
    value = float(key)
    if not unit.strip() or not math.isfinite(value) or within < 0:
        raise ValueError(
            f"a number needs a unit, a finite key and within >= 0, not {unit!r}, {value} and "
            f"{within}"
        )
    _refuse([wrong for wrong in feedback if abs(wrong - value) <= within], value)
    if within == 0 and value != round(value):
        raise ValueError(f"nobody guesses {value} exactly: give within= a tolerance")
    decimals = max(0, math.ceil(-math.log10(within))) if within else 0
    told = [[float(wrong), text] for wrong, text in feedback.items()]
    shown = f"{value:,.{decimals}f} {unit}"
    return {
        "unit": unit,
        "within": within,
        "key": float(f"{value:.8g}"),
        "answer": shown,
        "feedback": told,
    }


def _shape(
    letters: str, key: Any, feedback: Mapping[tuple[int, ...], str], within: None
) -> dict[str, Any]:
    sizes = tuple(key)
    axes = [letter for letter in letters.strip("()").replace(" ", "").split(",") if letter]
    if len(axes) != len(sizes):
        raise ValueError(
            f"the key {sizes} has {len(sizes)} axes, but shape={letters!r} names {len(axes)}"
        )
    _refuse([wrong for wrong in feedback if tuple(wrong) == sizes], sizes)
    told = [[list(wrong), text] for wrong, text in feedback.items()]
    return {"letters": letters, "key": list(sizes), "answer": str(sizes), "feedback": told}


def _ranking(
    items: Sequence[str], key: Any, feedback: Mapping[tuple[str, ...], str], within: None
) -> dict[str, Any]:
    order = list(key)
    for named in (order, *feedback):
        if sorted(named) != sorted(items) or len(set(items)) != len(items):
            raise ValueError(
                f"a ranking orders {', '.join(items)}, each once, not {', '.join(map(str, named))}"
            )
    if order == list(items):
        raise ValueError("the items are already in the right order: give ranking= another one")
    _refuse([wrong for wrong in feedback if list(wrong) == order], order)
    told = [[list(wrong), text] for wrong, text in feedback.items()]
    return {"items": list(items), "key": order, "answer": ", ".join(order), "feedback": told}


ASK = {"choices": _choices, "number": _number, "shape": _shape, "ranking": _ranking}


def _refuse(scolded: list[Any], key: Any) -> None:
    if scolded:
        raise ValueError(
            f"feedback= says what is wrong with {scolded[0]}, but the key is {key}: remove that "
            "feedback"
        )


def _view(data: dict[str, Any]) -> View:
    told = [paragraph(f"Not {_named(wrong)}: {text}") for wrong, text in data["feedback"]]
    answer = paragraph(f"The answer: {data['answer']}. {data['because']}")
    open_to_all = data.get("options") or data.get("items") or []
    listed = "".join(f"<li>{inline(option)}</li>" for option in open_to_all)
    asked = {
        "number": f"a number, in {data.get('unit')}",
        "shape": f"a shape {data.get('letters')}",
    }.get(data["kind"])
    parts = [
        paragraph(data["question"]),
        f'<ul style="margin:6px 0">{listed}</ul>' if listed else paragraph(f"Answer with {asked}."),
        fold("Think first, then open", "".join([answer, *told])),
    ]
    text = (
        "Predict first: "
        f"{unmarked(data['question'])}\n({unmarked(' | '.join(open_to_all)) or asked})"
    )
    return View("predict", data, html=card("Predict first", parts, text, "open").html, text=text)


def _named(wrong: Any) -> str:
    if isinstance(wrong, list):
        return ", ".join(map(str, wrong)) if isinstance(wrong[0], str) else str(tuple(wrong))
    return f"{wrong:g}" if isinstance(wrong, float) else wrong
