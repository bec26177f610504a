"""A watched run: curves, samples, buttons and failures, with updates made up and with real ones."""

import asyncio
import json
import math
import re
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch
from support.views import ask, stored, table_rows

from tinylm_classroom.display.figures import DARK_NOTEBOOK
from tinylm_classroom.views import run, training
from tinylm_classroom.views.base import View
from tinylm_classroom.views.run import FINISHED
from tinylm_classroom.views.training import Run, training_view
from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.storyworld.stories import Entropies
from tinylm_lib.text.tokenizers import ByteTokenizer
from tinylm_lib.training.loop import Step
from tinylm_lib.training.optim import build_optimizer

pytestmark = pytest.mark.usefixtures("one_thread")
LEVELS = Entropies(3.0, 2.0, 1.0)
RENEWED = Mock()


def made_up(losses: list[float]) -> Iterator[Step]:
    """Updates with these losses, gradient norms twice as large and a falling learning rate."""
    for i, loss in enumerate(losses, start=1):
        yield Step(i, torch.tensor(loss), torch.tensor(2 * loss), 1 - i / len(losses))


def new_model() -> TransformerLM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TransformerLM(preset("modern", vocab_size=256, d_model=16, n_layers=1, n_heads=2, max_seq_len=32))


@pytest.fixture
def shown(monkeypatch) -> list[View]:
    """The views that were displayed; RENEWED counts how often a picture was replaced."""
    views = []
    RENEWED.reset_mock()
    monkeypatch.setattr(run, "display", views.append)
    monkeypatch.setattr(View, "renew_picture", RENEWED)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    return views


def watch(steps: Iterator[Step], total_steps: int, **options: object) -> None:
    asyncio.run(training_view(steps, new_model(), ByteTokenizer(), total_steps=total_steps, sample_tokens=4, **options))


def test_the_curves_are_those_of_the_run(shown):
    losses = [5 * 0.9**i for i in range(40)]
    watch(made_up(losses), 40, levels=LEVELS)
    (view,) = shown
    data = view.data
    assert data["steps"] == list(range(1, 41)) and data["state"] == "finished" and not view.live
    assert data["loss"] == pytest.approx(losses, rel=1e-4)
    assert data["norm"] == pytest.approx([2 * x for x in losses], rel=1e-4)
    assert data["share"] == pytest.approx([1 - i / 40 for i in range(1, 41)], abs=1e-4)
    assert data["levels"][0] == ["nothing", float(f"{math.log(256):.5g}")]
    assert [value for _, value in data["levels"][1:]] == [3.0, 2.0, 1.0]


def test_with_a_constant_rate_there_is_only_the_chart_of_the_loss(shown, monkeypatch):
    figures = []
    draw = training._draw
    monkeypatch.setattr(training, "_draw", lambda run: figures.append(draw(run)) or figures[-1])
    watch((step._replace(lr_share=1.0) for step in made_up([4.0, 3.0, 2.0])), 3, levels=LEVELS)
    watch(made_up([4.0, 3.0, 2.0]), 3, levels=LEVELS)
    titles = [[ax.get_title() + ax.get_title("left") for ax in figure.axes] for figure in figures]
    assert [len(each) for each in titles] == [2, 4] and titles[1][1] == "learning rate, fraction"
    assert "fraction of its peak" not in shown[0].html and "fraction of its peak" in shown[1].html


def test_the_smooth_line_is_a_mean_of_what_lies_around_and_does_not_lag(shown):
    losses = [float(x) for x in torch.rand(160, generator=torch.Generator().manual_seed(1))]
    watch(made_up(losses), 160)
    for step, around in {1: (1, 2), 2: (1, 3), 50: (45, 55), 160: (144, 160)}.items():
        near = losses[around[0] - 1 : around[1]]
        assert shown[0].data["smooth"][step - 1] == pytest.approx(sum(near) / len(near), rel=1e-4)

    losses = [6 / (1 + i / 10) for i in range(300)]
    watch(made_up(losses), 300)
    smooth = shown[1].data["smooth"]
    assert all(abs(a - b) < 0.02 * b for a, b in zip(smooth[:270], losses, strict=False) if b < 5)


def test_a_loss_that_is_expected_is_marked_and_held_against_its_range(shown):
    losses = [5.5 * 0.99**i for i in range(100)]
    watch(made_up(losses), 100, expected={50: (3.2, 3.5), 100: (2.0, 2.4)})
    assert "⟨3.36⟩ (expected 3.2 to 3.5)" in shown[0].html and "⟨2.14⟩ (expected 2 to 2.4)" in shown[0].html
    with pytest.raises(ValueError, match=r"training led to 2\.139, expected 1 to 2\. If you changed the model"):
        watch(made_up(losses), 100, expected={100: (1.0, 2.0)})
    assert shown[1].data["state"] == "finished"


@pytest.mark.parametrize(("total", "width"), [(300, 1), (301, 2), (1550, 6)])
def test_a_long_run_keeps_at_most_300_points_which_are_means(total, width):
    run = Run(total, {})
    for step in made_up([float(i) for i in range(total)]):
        run.note(step)
    data = run.data()
    assert len(data["steps"]) == math.ceil(total / width) <= 300
    assert data["steps"][0] == width and data["steps"][-1] == total
    assert data["loss"][1] == width + (width - 1) / 2


def test_a_sample_is_written_before_the_run_and_at_each_quartering_of_it(shown):
    watch(made_up([1.0] * 128), 128)
    assert [step for step, _ in shown[0].data["samples"]] == [0, 2, 8, 32, 128]


def test_watching_changes_nothing_and_two_runs_are_equal_to_the_byte(shown):
    tokens = torch.tensor(ByteTokenizer().encode("the red kite flies. " * 40))
    recipe = TrainConfig(total_steps=24, batch_size=4, seq_len=8, warmup_steps=2, precision="fp32")

    def trained(is_watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = new_model()
        steps = train(model, build_optimizer(model, recipe), RandomWindows(tokens, 4, 8), recipe)
        if is_watched:
            asyncio.run(training_view(steps, model, ByteTokenizer(), total_steps=24, levels=LEVELS))
        else:
            list(steps)
        return [p.detach().clone() for p in model.parameters()]

    plain, *watched = trained(False), trained(True), trained(True)
    for weights in watched:
        assert all(torch.equal(a, b) for a, b in zip(plain, weights, strict=True))
    first, second = shown
    assert (first.html, first.text, first.data) == (second.html, second.text, second.data)
    assert first.data["smooth"][-1] < first.data["smooth"][0]


def test_words_table_and_size(shown):
    losses = [5.5 * 0.99**i for i in range(300)]
    watch(made_up(losses), 300, levels=LEVELS)
    (view,) = shown
    words = "After 300 of 300 updates the smoothed loss is lower than knowing all there is to know."
    assert repr(view) == f"A training run. {words}"
    rows = table_rows(view.html)
    assert [row[0] for row in rows[1:9]] == ["1", "44", "86", "129", "172", "215", "257", "300"]
    assert [row[:2] for row in rows[9:]] == [
        ["knowing nothing", "5.5"], ["knowing how frequent tokens are", "3.0"], ["knowing the token before", "2.0"],
        ["knowing all there is to know", "1.0"],
    ]  # fmt: skip
    assert len(json.dumps(stored(view), allow_nan=False)) <= 60_000
    assert not re.search(r"<(style|script|svg)\b|https?:", view.html.replace(DARK_NOTEBOOK, ""))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_and_the_curves_stay(shown, bad):
    with pytest.raises(ValueError, match=r"update 4 has loss (nan|inf) .*: lower matrix_lr"):
        watch(made_up([4.0, 3.0, 2.0, bad, 1.0]), 5)
    (view,) = shown
    assert view.data["loss"] == [4.0, 3.0, 2.0] and view.data["state"] == "failed"
    assert view.data["error"].startswith("update 4 has loss") and "update 4 has loss" in view.html


def test_a_run_that_fails_before_its_first_update_is_shown_too(shown):
    with pytest.raises(ValueError, match="update 1 has loss nan"):
        watch(made_up([math.nan]), 5)
    assert "No update of 5 was made." in shown[0].html


def test_the_buttons_pause_resume_and_stop(shown, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "lesson.ipynb")
    stood_still = []

    def clicked() -> Iterator[Step]:
        for step in made_up([2.0] * 9):
            if step.step == 3:
                ask(shown[0], do="pause")
                asyncio.get_running_loop().call_later(0.2, resume)
            if step.step == 6:
                ask(shown[0], do="stop")
            yield step

    def resume() -> None:
        stood_still.append((shown[0].data["state"], shown[0].data["step"]))
        ask(shown[0], do="resume")

    watch(clicked(), 9)
    (view,) = shown
    assert stood_still == [("paused", 3)]
    assert view.data["state"] == "stopped" and view.data["steps"] == [1, 2, 3, 4, 5, 6]
    assert view.data["samples"][-1][0] == 6 and RENEWED.call_count == 1 and not view.live
    assert "After 6 of 9 updates" in view.html


def test_a_click_after_the_end_changes_nothing_and_nonsense_is_refused():
    run = Run(3, {})
    run.state = FINISHED
    assert run.hear({"do": "pause"}) == {"state": "finished", "step": 0}
    with pytest.raises(ValueError, match="pause, resume or stop"):
        run.hear({"do": "dance"})


def test_what_is_interrupted_from_outside_is_shown_as_far_as_it_came(shown):
    def interrupted() -> Iterator[Step]:
        yield from made_up([2.0, 1.5])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(interrupted(), 9)
    assert shown[0].data["state"] == "stopped" and shown[0].data["loss"] == [2.0, 1.5]


def test_a_sample_with_control_characters_can_be_drawn(shown, monkeypatch):
    monkeypatch.setattr(training, "generate", lambda model, ids, n, **_: torch.tensor([[*b"a\0\x05\x7fb\tc\x1fd"]]))
    watch(made_up([2.0]), 1)
    assert shown[0].data["samples"][0] == [0, "a\ufffd\ufffd\ufffdb\tc\ufffdd"]


@pytest.mark.parametrize("n_updates", [0, 2])
def test_an_expected_update_that_did_not_come_is_named(shown, n_updates):
    with pytest.raises(ValueError, match=f"expected names update 3, but {n_updates} updates came.* make model"):
        watch(made_up([4.0, 3.0][:n_updates]), 3, expected={3: (1.0, 2.0)})
    assert shown[0].data["loss"] == [4.0, 3.0][:n_updates]


@pytest.mark.parametrize(("options", "message"), [
    ({"total_steps": 0}, "total_steps must be at least 1, got 0"),
    ({"total_steps": 3, "prompt": ""}, "prompt is empty"),
])  # fmt: skip
def test_what_cannot_be_shown_is_refused_before_the_first_update(shown, options, message):
    with pytest.raises(ValueError, match=message):
        watch(iter(()), **options)
    assert shown == []
