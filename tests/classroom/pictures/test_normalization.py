"""The pictures of lesson 04: every run a dot, what is not a number at the top, and the two norms as they are."""

import math

import pytest
import torch

from tinylm_classroom.display.theme import SERIES
from tinylm_classroom.pictures import normalization


@pytest.fixture
def shown(record):
    return record(normalization)


def test_a_chain_is_a_line_from_one_and_one_with_a_norm_has_its_colour(shown):
    normalization.sizes_on_the_way({"factor 0.5": [0.5**i for i in range(1, 25)], "with a norm": [1.0] * 24})
    figure, facts = shown[0]
    lines = figure.axes[0].lines
    assert lines[0].get_ydata()[:3].tolist() == [1.0, 0.5, 0.25] and lines[1].get_color() == SERIES[0]
    assert facts["table"]["factor 0.5"] == [0.5, 0.5**8, 0.5**16, 0.5**24]


def test_each_run_is_a_dot_and_nan_a_cross_at_the_top(shown):
    without = torch.full((10, 2), 2.5)
    without[1, 0] = float("nan")
    normalization.starts([i / 5 for i in range(1, 11)], without, without * 0 + 0.1, math.log(16))
    figure, facts = shown[0]
    dots = [line for line in figure.axes[0].lines if line.get_marker() in ("o", "X")]
    assert len(dots) == 40
    (cross,) = [
        float(line.get_ydata()[0]) for line in dots if line.get_marker() == "X" and line.get_color() == SERIES[1]
    ]
    assert cross > 3.0 and "NaN" in facts["table"]["without a norm"][1]


def test_the_second_side_divides_the_rate_by_the_square_of_the_factor(shown):
    rows = torch.tensor([[1.0, 1.1], [0.2, 0.3]])
    normalization.one_curve([0.1, 0.4], {0.5: rows, 2.0: rows})
    left, right = shown[0][0].axes
    points = [
        sorted({float(x) for line in ax.lines if line.get_marker() == "o" for x in line.get_xdata()})
        for ax in (left, right)
    ]
    assert points[0] == [0.1, 0.4] and points[1] == pytest.approx([0.025, 0.1, 0.4, 1.6])


def test_only_the_mean_is_taken_by_layernorm(shown):
    def divide(x):
        return x / x.square().mean(-1, keepdim=True).sqrt()

    normalization.spheres(divide)
    figure, facts = shown[0]
    assert facts["table"]["size, RMSNorm"] == pytest.approx([1.0] * 4) == facts["table"]["size, LayerNorm"]
    groups = [[line.get_xydata() for line in ax.lines if line.get_marker() in tuple("osD")] for ax in figure.axes]
    rms, layer = ([torch.tensor(group).mean(0) for group in side] for side in groups[1:])
    assert (rms[0] - rms[3]).norm() > 0.3 and (layer[0] - layer[3]).norm() < 1e-3
