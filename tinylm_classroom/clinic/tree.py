"""The tree of questions: at which of them a patient stops, and which branch it takes there."""

import math
from typing import NamedTuple

from .measurements import V, floor
from .patient import Patient
from .records import Sign


class Question(NamedTuple):
    """A question of the tree: what is measured if the answer is yes, and, after a no, a second one
    with two answers, each with where to look.

    first: what is measured if the first answer is right, and not the second.
    """

    text: str
    healthy: tuple[Sign, ...]
    then: str
    leaves: tuple[tuple[str, str], tuple[str, str]]
    first: Sign


TREE = (
    Question(
        "Does it begin\nat ln V?",
        (Sign("loss at the start", math.log(V) - 0.1, math.log(V) + 0.1),),
        "Equal logits:\nln V?",
        (("no", "the loss"), ("yes", "initial weights")),
        Sign("loss of equal logits, divided by ln V", high=0.9),
    ),
    Question(
        "Does it learn\none batch?",
        (Sign("loss after learning one batch", high=0.5),),
        "Are all\ngradients 0?",
        (("no", "loss, rate"), ("yes", "initial weights")),
        Sign("gradient norm at the start", low=1e-6),
    ),
    Question(
        "Is new text\nabove the floor?",
        (Sign("loss on new texts", floor() - 0.05),),
        "Query 1:\none key?",
        (("no", "the mask"), ("yes", "targets, leaks")),
        Sign("keys that the first of 8 queries sees", low=2),
    ),
    Question(
        "Does all of it\ntake part?",
        (
            Sign("matrices that never change although they have a gradient", high=0),
            Sign("matrices without a gradient", high=0),
            Sign("texts that no process reads", high=0),
        ),
        "What is\nleft out?",
        (("a matrix", "optimizer, detach"), ("texts", "shards")),
        Sign("matrices that change", high=7),
    ),
    Question(
        "Does it write\nas it reads?",
        (
            Sign("largest difference of logits, cache against full", high=0.01),
            Sign("error with padding on the right", high=0.01),
            Sign("number of the newest token that it reads of 200", low=200),
        ),
        "Where does\nit begin?",
        (("token 2", "positions, cache"), ("later", "window, padding")),
        Sign("largest difference of logits, cache against full", low=0.01),
    ),
    Question(
        "Does it\nstay well?",
        (
            Sign("updates with NaN", high=0),
            Sign("hooks on the block at the end", high=0),
            Sign("largest difference of the loss after resuming", high=0.001),
            Sign("log-probability of its texts for the model at the beginning", low=-6),
        ),
        "How does\nit break?",
        (("at once", "0 / 0, checkpoint"), ("slowly", "what grows")),
        Sign("updates that break it", low=1),
    ),
)


OF_TRAINING = 4  # questions: a model that nobody trains begins after them


def walk(who: Patient) -> tuple[int, int]:
    """The question at which a patient stops, and which of the two leaves it comes to; (6, 0) if it
    stops nowhere. What cannot be measured in its run is skipped.
    """
    first = 0 if who.number("updates of training") else OF_TRAINING
    for row, question in list(enumerate(TREE))[first:]:
        for sign in question.healthy:
            if who.has(sign.measure) and outside(sign, who.number(sign.measure)):
                return row, 0 if question.first.holds(who._run) else 1
    return len(TREE), 0


def outside(sign: Sign, value: float) -> bool:
    """Whether a number answers no; NaN answers nothing."""
    return value < sign.low or value > sign.high
