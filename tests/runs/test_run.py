"""What a run keeps when something goes wrong: values that are not finite, Ctrl-C anywhere, half-deleted folders."""

import math
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.runs import without_times

from tinylm_lib.config import TrainConfig
from tinylm_lib.runs import log, run
from tinylm_lib.runs.job import Job, RunConfig, begin, find_run, go_on
from tinylm_lib.training.checkpoint import MANIFEST, latest, load
from tinylm_lib.training.loop import Step, train

STEPS, EVERY = 16, 4
SIZES = {"d_model": 16, "n_layers": 1, "n_heads": 2}
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A small run, ready to begin."""
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat . " * 60, encoding="utf-8")
    out = str(tmp_path / "run")
    settings = RunConfig(corpus=str(text), out=out, eval_every=EVERY, prompt="the", sample_tokens=0)
    return begin(settings, TrainConfig(total_steps=STEPS, seq_len=16, batch_size=2), "modern", SIZES)


def spoil(monkeypatch: pytest.MonkeyPatch, job: Job, how: Callable[[Job, Step], Step], at: int | None = None) -> None:
    """Let something happen to the model or the step right after an update, or after each."""

    def spoiled(*args: object) -> Iterator[Step]:
        for step in train(*args):
            yield how(job, step) if at in (step.step, None) else step

    monkeypatch.setattr(run, "train", spoiled)


def bad_weights(job: Job, step: Step) -> Step:
    with torch.no_grad():
        job.model.embed.weight[0, 0] = math.nan
    return step


def bad_moments(job: Job, step: Step) -> Step:
    next(value for state in job.optimizer.state.values() for value in state.values())[:] = math.inf
    return step


FAULTS = {
    "weights": (bad_weights, "weights that are not finite|loss nan"),
    "moments": (bad_moments, "optimizer states that are not finite|weights that are not finite|loss nan"),
    "loss": (lambda job, step: step._replace(loss=torch.tensor(math.nan)), "loss nan and gradient norm [0-9.]+"),
    "norm": (lambda job, step: step._replace(grad_norm=torch.tensor(math.inf)), "loss [0-9.]+ and gradient norm inf"),
}


@pytest.mark.parametrize("at", [1, 4, 7, STEPS], ids=lambda at: f"update{at}")
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_finite_stops_the_run_at_the_next_look_and_is_never_saved(
    fault: str, at: int, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (how, says), out = FAULTS[fault], Path(job.run.out)
    spoil(monkeypatch, job, how, at)
    with pytest.raises(ValueError, match=says) as stop:
        run.work(job)
    assert fault not in ("loss", "norm") or f"update {at} has loss" in str(stop.value)
    last, said = (at - 1) // EVERY * EVERY, str(stop.value)
    assert (f"the last checkpoint in {out} is kept" if last else f"nothing was saved in {out} yet") in said
    for look_at in ("--matrix-lr", "--embedding-lr", "--warmup-steps", "--clip-norm", "--precision fp32", "text"):
        assert look_at in said
    assert "\n" not in said
    assert {int(p.name[5:]) for p in out.glob("step_*")} == {step for step in (last - EVERY, last) if step > 0}
    assert all(math.isfinite(value) for entry in log.read_log(out / log.LOG_NAME) for value in entry.values())
    if last:
        assert load(latest(out)).step == last
        monkeypatch.setattr(run, "train", train)
        run.work(go_on(*find_run({"out": str(out)})))
        assert load(latest(out)).step == STEPS


def test_a_stop_saves_nothing_that_is_not_finite(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(job: Job, step: Step) -> Step:
        signal.raise_signal(signal.SIGINT)
        return bad_weights(job, step)

    spoil(monkeypatch, job, stopped, at=3)
    with pytest.raises(ValueError, match="update 3 left weights that are not finite; nothing was saved"):
        run.work(job)
    assert not list(Path(job.run.out).glob("step_*"))


def test_weights_that_are_finite_and_give_no_loss_are_not_saved(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def huge(job: Job, step: Step) -> Step:
        with torch.no_grad():
            job.model.lm_head.weight.fill_(1e38).mul_(torch.randn(job.model.lm_head.weight.shape).sign())
        return step

    spoil(monkeypatch, job, huge, at=8)
    with pytest.raises(ValueError, match=r"after update 8 the validation loss is (nan|inf); the last checkpoint"):
        run.work(job)
    assert load(latest(job.run.out)).step == 4


def test_the_log_holds_every_update_and_every_validation(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(job: Job, step: Step) -> Step:
        seen.append((step.step, step.loss.item(), step.grad_norm.item(), step.lr_share))
        return step

    spoil(monkeypatch, job, watched)
    run.work(job)
    entries = log.read_log(Path(job.run.out) / log.LOG_NAME)
    assert [tuple(entry.values()) for entry in entries if "loss" in entry] == seen
    assert list(entries[0]) == ["update", "loss", "grad_norm", "lr_share"]
    validations = [entry for entry in entries if "validation_loss" in entry]
    assert [entry["update"] for entry in validations] == [4, 8, 12, 16]
    measured = run.evaluate(job.model, job.windows(), job.n_bytes).nats_per_token
    assert validations[-1]["validation_loss"] == measured


@pytest.mark.parametrize("moment", ["train", "log_entries", "measure", "save_checkpoint", "progress_text"])
@pytest.mark.parametrize("at", [3, 10, STEPS])
def test_ctrl_c_at_any_moment_saves_what_it_says_and_changes_no_bit(
    moment: str, at: int, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run.work(job)
    whole = Path(job.run.out).rename(tmp_path / "whole")
    job = begin(job.run, job.recipe, "modern", SIZES)
    state = {"step": 0, "sent": False}
    original = getattr(run, moment)

    def interrupt() -> None:
        if state["step"] >= at and not state["sent"]:
            state["sent"] = True
            signal.raise_signal(signal.SIGINT)

    def watched(job: Job, step: Step) -> Step:
        state["step"] = step.step
        if moment == "train":
            interrupt()
        return step

    def interrupted(*args: object) -> object:
        interrupt()
        return original(*args)

    with monkeypatch.context() as patch:
        if moment != "train":
            patch.setattr(run, moment, interrupted)
        spoil(patch, job, watched)
        run.work(job)
    assert state["sent"] or at == STEPS
    said = capsys.readouterr().out
    if "Stopped after" in said:
        step = int(said.split("Stopped after update ")[1].split(",")[0])
        assert load(latest(job.run.out)).step == step < STEPS
        run.work(go_on(*find_run({"out": job.run.out})))
    for path in (f"step_{STEPS:06d}/{MANIFEST}", log.LOG_NAME):
        assert without_times((Path(job.run.out) / path).read_bytes()) == without_times((whole / path).read_bytes())
