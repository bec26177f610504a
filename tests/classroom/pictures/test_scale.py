"""The pictures of lesson 15: points are the runs that they were given, stars are lowest points."""

from typing import Any

import pytest
import torch

from tinylm_classroom.experiments import scale as experiment
from tinylm_classroom.pictures import scale

RUNS = experiment.recorded()
FIRST = experiment.of_budget(RUNS, 1e10)


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(scale)


def test_a_budget_is_an_area(shown):
    scale.spent(FIRST, 11_820)
    figure, facts = shown[0]
    box = figure.axes[0].patches[0]
    assert 6 * box.get_width() * box.get_height() * 1e6 == pytest.approx(1e10)
    losses = [run.loss for run in FIRST if run.size == 11_820]
    assert list(figure.axes[1].lines[1].get_ydata()) == losses and f"{losses[0]:.2f}" in facts["alt"]


def test_each_valley_has_its_star(shown):
    scale.valleys(RUNS, 0.66)
    figure, facts = shown[0]
    best = [experiment.best_of(experiment.of_budget(RUNS, budget)) for budget in experiment.budgets_of(RUNS)]
    stars = figure.axes[0].lines[9]
    assert list(stars.get_xdata()) == pytest.approx(best) and stars.get_marker() == "*"
    assert facts["table"]["best size"] == [f"{n:,.0f}" for n in best]


def test_two_recipes_are_two_valleys(shown):
    scale.recipes({"4 texts": FIRST, "16 texts": experiment.of_budget(experiment.recorded(16), 1e10)}, "A title")
    figure, facts = shown[0]
    assert len(figure.axes[0].lines) == 4 and set(facts["table"]["recipe"]) == {"4 texts", "16 texts"}


def test_each_kind_has_a_panel_with_every_run(shown):
    scale.skills(RUNS, dict.fromkeys(experiment.KINDS, 0.2), 0.8)
    figure, facts = shown[0]
    assert [ax.get_title(loc="left") for ax in figure.axes] == list(experiment.KINDS)
    assert all(len(ax.lines[0].get_xdata()) == len(RUNS) for ax in figure.axes)
    assert facts["table"]["trait"] == [run.nats[5] for run in RUNS]


def test_a_law_is_broken_where_it_was_not_fitted(shown):
    scale.beyond(RUNS, lambda n, d: 1.0 + n / 1e6, experiment.budgets_of(RUNS)[:3], 0.66, "A title")
    figure, facts = shown[0]
    curves = figure.axes[0].lines[:8:2]
    assert [line.get_linestyle() for line in curves] == ["-", "-", "-", "--"]
    assert facts["table"]["law"] == [1.0 + run.size / 1e6 for run in RUNS]


def test_the_chosen_ratio_is_a_dot_on_its_valley(shown):
    sizes = torch.logspace(6, 14, 4_000, dtype=torch.float64)

    def valley(budget: float) -> tuple[torch.Tensor, torch.Tensor, float]:
        best = (budget / 120) ** 0.5
        return sizes, 2 + (sizes / best).log() ** 2 / 50, best

    scale.formula(valley, 21, 20)
    figure, facts = shown[0]
    (dot,) = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert dot.get_xdata()[0] == pytest.approx((1e21 / 120) ** 0.5) and dot.get_ydata()[0] == pytest.approx(2, abs=1e-3)
    assert facts["caption"].startswith("2.89 billion parameters read 57.7 billion tokens: predicted loss 2.000.")
