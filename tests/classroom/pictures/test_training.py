"""The pictures of lesson 11: a word is darker for a higher loss, a band is what the model resembles, a dot is a run."""

import math
from typing import Any

import pytest
import torch

from tinylm_classroom.experiments.training import Watched, descend, recorded_training
from tinylm_classroom.pictures import training
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld.stories import Entropies

SHIPPED = load_pretrained("storyworld")
LEVELS = Entropies(5.0, 2.1, 0.7)
NAMES = list(training.COLORS)


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(training)


def watched(order: list[int], looks: list[int], end: int) -> Watched:
    """A run that resembles these predictors after these updates."""
    distances = {}
    for step, nearest in zip(looks, order, strict=True):
        distances[step] = {name: 0.2 + 0.5 * (i != nearest) for i, name in enumerate(NAMES)}
    return Watched([6.0 - i / end for i in range(end)], distances, {1: "One the .", end: "One day $5"}, {})


def test_a_story_is_shaded_once_for_each_model(shown):
    story = storyworld.story(torch.Generator().manual_seed(11))
    training.shaded(story, {"one": SHIPPED.model.eval(), "two": SHIPPED.model.eval()}, SHIPPED.tokenizer)
    figure, facts = shown[0]
    said = storyworld.words(story.text)
    first, last = (len(ax.patches) for ax in figure.axes)
    assert first < 40 < last == len(said) == len(facts["table"]["word"])
    losses = [float(loss) for loss in facts["table"]["one"]]
    colors = [patch.get_facecolor()[0] for patch in figure.axes[1].patches]
    assert losses[0] < 0.1 < 3 < losses[5] and colors[0] > colors[5]


def test_a_valley_has_a_line_for_each_way_and_its_end(shown):
    training.valley({"plain": descend(lambda w: torch.optim.SGD(w, 0.06)), "still": [[-8.0, 1.0]]})
    figure, facts = shown[0]
    assert facts["table"]["height at the end"][1] == pytest.approx((64 + 30) / 2)
    assert [len(line.get_xdata()) for line in figure.axes[0].lines][:2] == [41, 1]


def test_the_bands_follow_the_nearest_predictor_in_every_run(shown):
    first = watched([0, 1, 1, 2, 3], [1, 2, 4, 8, 16], 32)
    training.stages({1: first, 2: watched([0, 2], [1, 4], 32)}, LEVELS, 345)
    figure, facts = shown[0]
    top, strips, told = figure.axes
    assert [text.get_text().replace("\n", " ") for text in top.texts] == [*NAMES[:3], "the last three"]
    boxes = [(patch.get_x(), patch.get_width()) for patch in strips.patches]
    assert boxes == [pytest.approx((training.BEGIN, 4 - training.BEGIN)), (4, 28)]
    assert [text.get_text() for text in told.texts] == ["after 1", "One the .", "after 32", r"One day \$5"]
    assert facts["table"]["update"] == [1, 16] and facts["table"]["nothing"] == ["⟨0.20⟩", "⟨0.70⟩"]
    lines = [line.get_ydata()[0] for line in top.lines[1:]]
    assert lines == [pytest.approx(math.log(345)), *LEVELS]


def test_every_recorded_run_is_a_dot_of_its_rate(shown):
    rates = recorded_training()["rates"]
    training.rates(rates)
    figure, facts = shown[0]
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert len(dots) == 2 * len(rates[60]) and {len(dot.get_xdata()) for dot in dots} == {3}
    assert facts["table"]["after 60 updates"][4] == min(facts["table"]["after 60 updates"])


def test_skills_have_a_panel_each_and_a_line_for_each_run(shown):
    runs = recorded_training()["skills"]
    training.skills(runs)
    figure, facts = shown[0]
    assert [ax.get_title() for ax in figure.axes] == ["pronoun", "place", "trait", "owner", "quotation"]
    assert {len(ax.lines) for ax in figure.axes} == {len(runs)}
    assert facts["table"]["update"] == [100, 200, 300, 400]


def test_a_loss_beyond_the_axis_is_drawn_at_its_end(shown):
    run = {"first": 6.0, "last": 2.0, "new": 13.0, "writes": "One a $ b"}
    training.mistakes({"right": [run | {"new": 2.1}], "wrong": [run, run]}, LEVELS, 345)
    figure, facts = shown[0]
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [list(dot.get_xdata()) for dot in dots] == [[2.0], [2.1], [2.0, 2.0], [training.FAR] * 2]
    assert facts["table"]["loss on new stories"] == ["⟨2.1⟩", "⟨13⟩"]
