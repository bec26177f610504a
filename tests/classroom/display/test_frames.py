"""The frames of a control: which settings are stored, what each one shows, and that only a build stores any."""

import base64
import io
import json
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell
from ipywidgets import Text
from matplotlib import pyplot as plt
from PIL import Image

from tinylm_classroom.course.lesson import execute
from tinylm_classroom.display import figures, frames
from tinylm_classroom.display.control import control

LEVELS = 24  # of 255: what a palette and an unseen difference may change in a picture, in few pixels


def bars(height: float = 3.0, name: str = "left") -> None:
    fig, ax = plt.subplots(figsize=(5, 3))
    ax.bar(["left", "right"], [height, 2] if name == "left" else [2, height])
    ax.set(title=f"{name} {height:g}", xlabel="x", ylabel="y", ylim=(0, 10))
    caption = f"The {name} bar is {height:g} high."
    figures.display(fig, alt="Two bars.", caption=caption, table={"height": [height]})


def noise(width: int = 1) -> None:
    pixels = np.random.default_rng(width).random((100, 100, 3))
    fig, ax = plt.subplots(figsize=(4, 3))
    ax.imshow(pixels, interpolation="nearest")
    ax.set(title=str(width), xlabel="x", ylabel="y")
    figures.display(fig, alt="Noise.", caption="See.", table={"width": [width]})


def table(base: int = 3, unit: str = "cm") -> None:
    print(f"<{2 * base}> {unit}")


@pytest.fixture(autouse=True)
def shell():
    """What captures a figure that is displayed."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture
def build(monkeypatch):
    monkeypatch.setenv(frames.SWITCH, execute.SETTINGS[frames.SWITCH])


def bundle(shown) -> dict:
    return shown._repr_mimebundle_()[0]


def data(shown) -> dict:
    """What a page gets of a control, with its first frame."""
    return frames.with_first(bundle(shown)[frames.MIME], bundle(shown)["text/html"])


def choice(size: int, at: int = 0, slides: bool = True) -> frames.Choice:
    return frames.Choice("n", range(size), [str(n) for n in range(size)], at, slides)


def pixels(found: dict, setting: str) -> np.ndarray:
    """The picture that a page composes for a setting."""
    tag = re.search(r"<img [^>]*>", found[setting])[0]
    source = re.search(r'src="data:image/\w+;base64,([^"]*)"', tag)[1]
    drawn = Image.open(io.BytesIO(base64.b64decode(source)))
    if over := re.search(r'data-over="([\d,]*)"', tag):
        ground = Image.fromarray(pixels(found, over[1]).astype(np.uint8))
        ground.paste(drawn, mask=drawn.getchannel("A"))
        drawn = ground
    return np.asarray(drawn.convert("RGB")).astype(int)


def test_without_the_setting_of_the_build_there_are_no_frames_and_the_function_runs_once(monkeypatch):
    monkeypatch.delenv(frames.SWITCH, raising=False)
    calls = []
    shown = control(lambda n=2: calls.append(n), n=(1, 9))
    assert frames.MIME not in bundle(shown) and calls == [2]


def test_with_and_without_frames_a_notebook_compares_the_same(monkeypatch):
    monkeypatch.delenv(frames.SWITCH, raising=False)
    plain = bundle(control(bars, height=(0.0, 9.0, 1.0), name=["left", "right"]))
    monkeypatch.setenv(frames.SWITCH, "on")
    built = bundle(control(bars, height=(0.0, 9.0, 1.0), name=["left", "right"]))
    assert all(plain[kind] == built[kind] for kind in ("text/html", "text/plain"))


def test_each_frame_is_what_the_control_shows_with_these_values(build):
    shown = control(table, base=(1, 4), unit=["mm", "cm"])
    found = data(shown)
    assert found["first"] == "2,1" and found["frames"]["2,1"] == shown.shown.value
    assert [(one["name"], one["labels"], one["slides"]) for one in found["choices"]] == [
        ("base", ["1", "2", "3", "4"], True),
        ("unit", ["mm", "cm"], False),
    ]
    base, unit = shown.kwargs_widgets
    for setting, html in found["frames"].items():
        i, j = map(int, setting.split(","))
        base.value, unit.value = base.min + i, unit.options[j]
        assert html == shown.shown.value
    assert len(found["frames"]) == 8


def test_a_picture_that_is_composed_is_the_picture_that_the_control_draws(build):
    shown = control(bars, height=(0.0, 9.0, 1.0), name=["left", "right"])
    found = data(shown)
    stored = found["frames"]
    assert len(stored) == 20 and sum("data-over" in html for html in stored.values()) > 15
    for setting in ("0,0", "7,1", "9,0"):
        i, j = map(int, setting.split(","))
        shown.kwargs_widgets[0].value, shown.kwargs_widgets[1].value = float(i), ["left", "right"][j]
        live = frames._pixels(frames.PICTURE.findall(shown.shown.value)[0]).astype(int)
        assert (np.abs(pixels(stored, setting) - live).max(-1) > LEVELS).mean() < 0.001
        assert frames.PICTURE.sub("", shown.shown.value) == re.sub(
            r'src="data:image/\w+;base64,[^"]*"( data-over="[\d,]*")?', "", stored[setting]
        )
    assert not np.array_equal(pixels(stored, "0,0"), pixels(stored, "9,0"))


def test_two_builds_store_the_same_frames(build):
    one, other = (bundle(control(bars, height=(0.0, 9.0, 1.0)))[frames.MIME] for _ in range(2))
    assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_frames_that_would_be_too_large_are_fewer(build):
    found = bundle(control(noise, width=(1, 20)))[frames.MIME]
    assert 2 <= len(found["frames"]) + 1 < 20
    assert len(json.dumps(found["frames"])) <= frames.MOST_BYTES
    assert all(len(one["labels"]) == len(found["frames"]) + 1 for one in found["choices"])


def test_a_lesson_may_ask_for_fewer(build):
    assert len(data(control(table, base=(1, 40), unit=["cm"], frames=6))["frames"]) == 6


def test_an_error_at_one_setting_is_its_frame(build):
    shown = control(lambda n=2: print(1 / n), n=(0, 2))
    stored = data(shown)["frames"]
    assert "ZeroDivisionError: division by zero" in stored["0"] and "0.5" in stored["2"] and shown.result is None


def test_frames_leave_random_numbers_alone_and_begin_with_those_of_the_first_run(build, monkeypatch):
    def throw(n: int = 1) -> None:
        print(n - n, random.random(), np.random.random(), torch.rand(1).item())
        for _ in range(n):  # so that each frame leaves another state
            (random.random(), np.random.random(), torch.rand(1))

    def seed() -> None:
        for start in (random.seed, np.random.seed, torch.manual_seed):
            start(3)

    seed()
    stored = data(control(throw, n=(1, 5)))["frames"]
    after = (random.random(), np.random.random(), torch.rand(1).item())
    assert len(set(stored.values())) == 1
    monkeypatch.delenv(frames.SWITCH)
    seed()
    control(throw, n=(1, 5))
    assert after == (random.random(), np.random.random(), torch.rand(1).item())


def test_what_is_typed_has_one_value_and_a_switch_two(build):
    found = data(control(lambda text="a", loud=True: print(text, loud), text=Text("a"), loud=True))
    assert [one["labels"] for one in found["choices"]] == [["a"], ["False", "True"]]
    assert "a False" in found["frames"]["0,0"]


def test_a_first_value_between_two_steps_is_kept(build):
    (only,) = data(control(lambda n=0.25: print(n), n=(0.0, 1.0, 0.1)))["choices"]
    assert only["labels"][only["at"]] == "0.25" and "0.3" in only["labels"]


SIZES = st.lists(st.tuples(st.integers(1, 90), st.booleans(), st.floats(0, 1)), min_size=1, max_size=3)


@given(SIZES, st.integers(4, 20))
@settings(deadline=None)
def test_all_combinations_are_stored_if_they_are_few_and_otherwise_one_changes_at_a_time(sizes, most):
    choices = [choice(size, int(at * (size - 1)), slides) for size, slides, at in sizes]
    kept, found = frames.plan(choices, most)
    first = tuple(one.at for one in kept)
    assert first in found and len(found) == len(set(found)) <= most
    assert [one.values[one.at] for one in kept] == [one.values[one.at] for one in choices]
    if np.prod([size for size, _, _ in sizes]) <= most:
        assert len(found) == np.prod([size for size, _, _ in sizes]) and kept == choices
        return
    assert all(sum(place != at for place, at in zip(setting, first, strict=True)) <= 1 for setting in found)
    assert len(found) == 1 + sum(len(one.values) - 1 for one in kept)
    for before, after in zip(choices, kept, strict=True):
        assert list(after.values) == sorted(set(after.values)) and set(after.values) <= set(before.values)
        if len(after.values) > 2:
            assert {before.values[0], before.values[-1]} <= set(after.values)


def test_a_long_slider_is_thinned_evenly_and_a_list_is_kept_whole():
    (slider, menu), _ = frames.plan([choice(200, 3), choice(5, slides=False)], 20)
    assert len(menu.values) == 5 and len(slider.values) == 16
    gaps = np.diff([value for value in slider.values if value != 3])
    assert gaps.max() - gaps.min() <= 1
