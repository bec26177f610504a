"""The pictures of lesson 14: boxes in time, work below a roof, an update, tiles, and what a change is worth."""

import pytest
import torch

from tinylm_classroom.experiments.speed import Operation
from tinylm_classroom.pictures import speed


@pytest.fixture
def shown(record):
    return record(speed)


def test_an_operation_that_ends_in_the_next_row_is_two_boxes(shown):
    speed.timeline(
        [Operation("aten::add", 0, 3, False), Operation("aten::mm", 3, 8, True), Operation("x", 15, 16, False)]
    )
    figure, facts = shown[0]
    boxes = [
        (box.get_x(), box.get_width(), round(box.get_y() + box.get_height() / 2)) for box in figure.axes[0].patches
    ]
    assert boxes[:3] == [(0, 3, 0), (3, 1, 0), (0, 4, 1)] and len(boxes) in (4, 5)
    assert facts["table"][""] == ["products and attention", "everything else", "gaps"]


def test_work_is_drawn_at_its_intensity_and_speed(shown):
    speed.roof(1e11, 1e10, {"1 at once": (2e9, 4e9, 0.5), "x + 1": (2e7, 1.6e8, 0.02)})
    figure, facts = shown[0]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert points == [(0.5, 4.0), (0.125, 1.0)]
    assert "80" in facts["table"]["of the roof"][0] and facts["table"]["FLOPs per byte"] == [0.5, 0.125]


def test_a_gpu_shows_all_settings_pale_and_one_strong(shown):
    speed.gpu(1, 4096, [(1, 4096), (256, 4096), (1024, 128)])
    speed.gpu(256, 4096, [(1, 4096)])
    figure, facts = shown[0]
    assert sum(line.get_marker() == "o" for line in figure.axes[0].lines) == 4
    assert facts["table"]["trillion FLOPs/s, at most"][0] == pytest.approx(2, rel=0.01)
    assert [text.get_text() for text in figure.axes[0].texts][-1] == "0.6% of the peak"
    assert [text.get_text() for text in shown[1][0].axes[0].texts][-1] == "100% of the peak"


def test_an_update_says_how_many_times_as_long_it_takes(shown):
    spent = {"data": 0.001, "forward": 0.02, "backward": 0.04, "clip": 0.001, "optimizer": 0.018}
    speed.update(spent, {"forward": 0.01, "backward": 0.02})
    figure, facts = shown[0]
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said == ["37% of the measured time", "forward", "backward", "optimizer"]
    assert facts["table"]["part"][-1] == "all"


def test_tiles_are_numbered_below_the_diagonal(shown):
    speed.tiles(torch.full((12, 12), 1 / 12), size=4)
    figure, facts = shown[0]
    said = [text.get_text() for text in figure.axes[0].texts]
    assert said == ["1", "skipped", "skipped", "2", "3", "skipped", "4", "5", "6"]
    assert facts["table"]["how many"] == [6, 3]


def test_a_change_that_makes_slower_is_left_of_the_line(shown):
    speed.changes({"8 bits": {"ours": 0.6, "large": 3.0}, "more": {"ours": 2.0, "large": 1.0}})
    figure, facts = shown[0]
    ends = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert ends == [0.6, 3.0, 2.0, 1.0] and [*facts["table"]] == ["change", "ours", "large"]
    assert next(t for t in figure.axes[0].texts if t.get_text() == "0.6 x").get_ha() == "right"
