"""What a run keeps when something goes wrong: values that are not finite, Ctrl-C anywhere, half-deleted folders."""

import json
import math
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from support.runs import without_times
from torch._dynamo.testing import CompileCounter

from tinylm_lib import model
from tinylm_lib.config import TrainConfig
from tinylm_lib.data.windows import every_window
from tinylm_lib.runs import log, run
from tinylm_lib.runs.job import Job, begin, find_run, go_on
from tinylm_lib.runs.settings import RunConfig
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


def test_the_log_says_how_fast_the_run_is_at_each_look(job: Job) -> None:
    run.work(job)
    entries = [entry for entry in log.read_log(Path(job.run.out) / log.LOG_NAME) if "seconds" in entry]
    assert [entry["update"] for entry in entries] == [1, 4, 8, 10, 12, 16]
    for entry in entries:
        assert {"tokens_per_second", "mfu"} <= set(entry) <= {"update", "seconds", "tokens_per_second", "mfu", "memory"}
        assert entry["tokens_per_second"] > 0
    seconds = [entry["seconds"] for entry in entries]
    assert seconds == sorted(seconds)


def test_the_log_can_be_plotted_by_two_lines(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    run.work(job)
    monkeypatch.chdir(job.run.out)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    log_lines = [json.loads(line) for line in Path("log.jsonl").read_text(encoding="utf-8").splitlines()]
    for key in ("loss", "validation_loss"):
        (curve,) = pyplot.plot(*zip(*[(e["update"], e[key]) for e in log_lines if key in e], strict=True), label=key)
        assert len(curve.get_xdata()) == {"loss": STEPS, "validation_loss": STEPS // EVERY}[key]
    pyplot.close("all")


def test_without_a_validation_text_a_run_trains_saves_and_says_so(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.windows = None
    run.work(job)
    said = capsys.readouterr().out
    assert "no text held out for validation" in said and "update 16, " in said
    assert "nats per token, " not in said and "lowest validation loss" not in said
    entries = log.read_log(Path(job.run.out) / log.LOG_NAME)
    assert not any("validation_loss" in entry for entry in entries)
    assert sorted(p.name for p in Path(job.run.out).glob("step_*")) == ["step_000012", "step_000016"]
    assert "validation_loss" not in load(latest(job.run.out)).extra


def test_every_window_is_shown_as_it_is_evaluated(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[dict] = []

    class Bar(run.tqdm):
        def __init__(self, *args: object, **options: object):
            super().__init__(*args, **options)
            bars.append({"n": self.total, "bar": self})

    monkeypatch.setattr(run, "tqdm", Bar)
    monkeypatch.setattr(job, "windows", lambda: every_window(torch.arange(100) % 7, 2, 5))
    run.measure(job, 1)
    (seen,) = bars
    assert seen["n"] == seen["bar"].n == 10 and seen["bar"].delay >= 1


def test_recompute_reaches_the_model_of_a_run(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    original = model.checkpoint
    monkeypatch.setattr(model, "checkpoint", lambda *a, **k: calls.append(a) or original(*a, **k))
    for recompute in (False, True):
        again = begin(job.run, replace(job.recipe, recompute=recompute, total_steps=2), "modern", SIZES)
        run.work(again)
        assert len(calls) == (2 if recompute else 0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_a_compiled_run_trains_one_graph_and_its_checkpoint_has_plain_names(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    compiled = begin(replace(job.run, compile=True, out=str(tmp_path / "fast")), job.recipe, "modern", SIZES)
    torch._dynamo.reset()
    run.work(compiled)
    torch._dynamo.reset()
    assert counter.frame_count == 1, "evaluation and samples are not compiled"
    run.work(job)
    plain, fast = (load(latest(out)) for out in (job.run.out, compiled.run.out))
    assert list(plain.model.state_dict()) == list(fast.model.state_dict())
    assert all(map(torch.equal, plain.model.parameters(), fast.model.parameters())), "this compiler changes no bit"
    found, settings = find_run({"out": job.run.out, "compile": True})
    assert settings.compile and go_on(found, settings).wrapped is not found.model


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch._inductor")
def test_a_run_compiled_by_the_real_compiler_learns_the_same(job: Job, tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = begin(replace(job.run, compile=True, out=str(tmp_path / "fast")), job.recipe, "modern", SIZES)
    run.work(compiled)
    torch._dynamo.reset()
    run.work(job)
    plain, fast = (log.read_log(Path(out) / log.LOG_NAME) for out in (job.run.out, compiled.run.out))
    losses = [[e["loss"] for e in entries if "loss" in e] for entries in (plain, fast)]
    assert losses[0][:4] == pytest.approx(losses[1][:4], rel=2e-2)  # bf16 where there are instructions


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
