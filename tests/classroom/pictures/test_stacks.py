"""The pictures of lesson 09: what is on the stream, a line or dot for each seed, and each part in its row."""

from typing import Any

import pytest
import torch

from tinylm_classroom.pictures import stacks


@pytest.fixture
def shown(record: Any) -> list[Any]:
    return record(stacks)


def test_plus_signs_are_where_results_are_added_and_nothing_else_is_on_the_stream(shown):
    stacks.joins("replaced", "added")
    stacks.joins("pre-norm", "post-norm")
    (first, facts), (second, places) = shown
    written = [[text.get_text() for text in figure.axes[0].texts] for figure in (first, second)]
    assert [texts.count("+") for texts in written] == [2, 4] and [t.count("norm") for t in written] == [4, 4]
    assert facts["table"]["replaced"] == ["norm", "attention", "-", "norm", "feed-forward", "-"]
    assert (
        facts["table"]["added"]
        == places["table"]["pre-norm"]
        == ["norm", "attention", "+", "norm", "feed-forward", "+"]
    )
    assert places["table"]["post-norm"] == ["attention", "+", "norm", "feed-forward", "+", "norm"]


def test_every_recorded_run_is_a_line_over_its_updates(shown):
    one = {"join": "replace", "blocks": 8, "losses": [5.0 + 0.1 * i for i in range(50)]}
    two = {"join": "add", "blocks": 8, "losses": [5.0 - 0.07 * i for i in range(50)]}
    stacks.runs([one, two, {**two, "losses": one["losses"]}], 5.0)
    figure, facts = shown[0]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 50]
    assert len(lines) == 3 and lines[0].get_xdata()[0] == 10 and lines[0].get_xdata()[-1] == 990
    assert facts["table"]["model"] == ["8 blocks, replaced", "8 blocks, added"]
    assert facts["table"]["after 1000"] == ["9.90 to 9.90", "1.57 to 9.90"]
    assert facts["table"]["after 60 updates"] == ["5.20 to 5.20", "4.86 to 5.20"]


def test_each_seed_has_its_line(shown):
    each = torch.arange(27.0).view(3, 9) / 30
    stacks.alike({"texts, replaced": each, "texts, added": each, "words alone, replaced": each})
    many = torch.ones(3, 24) * torch.tensor([[1.0], [10.0], [100.0]])
    stacks.gradients({"SwiGLU, replaced": many, "GELU, replaced": many, "SwiGLU, added": many})
    (alike, facts), (gradients, sizes) = shown
    assert len(alike.axes[0].lines) == 9 and len(gradients.axes[0].lines) == 9
    assert facts["table"]["texts, added"][0] == "0.30" and sizes["table"]["GELU, replaced"][0] == "⟨37⟩"


def test_a_dot_is_a_model_at_its_step_or_a_run_at_its_rate(shown):
    near, far = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.1]])
    cosines = {(join, ffn): each for ffn in ("SwiGLU", "GELU") for join, each in (("replaced", near), ("added", far))}
    rates = [
        {"join": join, "rate": rate, "losses": [4.0, 3.0]}
        for join in ("replace", "add") for rate in (0.001, 0.01)
    ]  # fmt: skip
    stacks.holds([1e-4, 1e-3, 1e-2], cosines, rates, 5.0)
    figure, facts = shown[0]
    left, right = ([line.get_ydata() for line in ax.lines if line.get_marker() == "o"] for ax in figure.axes)
    assert [list(y) for y in left[:2]] == 2 * [[1.0, 0.0, 0.0]] and len(left) == 8
    assert len(right) == 4 and list(right[0]) == [4.0, 3.0]
    assert facts["table"]["cosine, SwiGLU, added"] == ["⟨1.0⟩", "⟨1.0⟩", "⟨0.050⟩"]
    assert facts["caption"].count("⟨11⟩ times") == 2  # 10 to the power of 0.5 + 0.5 / 0.95 is 10.6


def test_a_part_has_a_bar_and_a_dot_for_each_set(shown):
    without = torch.tensor([[2.0, 1.0], [2.2, 1.0]])
    stacks.parts(["0, attention", "0, feed-forward"], [0.5, 1.6], 0.8, without, without + 3)
    figure, facts = shown[0]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.5, 1.6]
    dots = [line for line in figure.axes[1].lines if line.get_marker() == "o"]
    assert len(dots) == 4 and list(dots[1].get_xdata()) == [pytest.approx(2.2), 1.0]
    assert facts["table"]["loss without it"] == ["2.10", "1.00"]
    assert facts["table"]["loss without its plus sign"] == ["5.10", "4.00"]
