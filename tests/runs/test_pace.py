"""The speed of a run: arithmetic on a clock that we hold, without what is not training."""

import json
from types import SimpleNamespace

import pytest
import torch

from tinylm_lib.config import TrainConfig
from tinylm_lib.cost import count_parameters
from tinylm_lib.presets import preset
from tinylm_lib.runs import pace
from tinylm_lib.runs.pace import Pace
from tinylm_lib.training.distributed import Alone

PEAK = 1e9


class Clock:
    """Seconds that pass when we say so."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


class Three(Alone):
    """One of three processes that are as fast as one another."""

    size = 3

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * x


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    monkeypatch.setattr(pace, "product_rate", lambda device, precision: PEAK)
    return clock


def started(team: Alone) -> tuple[Pace, float]:
    """The pace of a run, and the operations of one of its updates, counted as 6 per weight and token."""
    sizes = {"vocab_size": 50, "d_model": 32, "n_layers": 3, "n_heads": 2, "max_seq_len": 7}
    config = preset("modern", **sizes, tie_embeddings=True, qk_norm=False)
    recipe = TrainConfig(batch_size=6, seq_len=7, micro_steps=5)
    n_tokens, n = 5 * 6 * 7, count_parameters(config)
    weights = n.total - n.norms * config.n_layers - n.final_norm
    scores = 2 * config.n_layers * config.d_model * 7  # queries with keys, and with values
    job = SimpleNamespace(model=SimpleNamespace(config=config), recipe=recipe, team=team)
    return Pace(job), 6 * n_tokens * (weights + scores)


@pytest.mark.parametrize("team", [Alone(), Three()], ids=["alone", "three"])
def test_speed_counts_training_alone(team: Alone, clock: Clock) -> None:
    found, flops = started(team)
    clock.now += 8  # the first update, which sets things up
    assert found.look(1, 1)["tokens_per_second"] == round(210 / 8, 1)
    clock.now += 2
    second = found.look(10, 9)
    clock.now += 1000  # an evaluation
    found.skip()
    clock.now += 4
    third = found.look(20, 10)
    assert [second["update"], second["seconds"], third["update"], third["seconds"]] == [10, 10.0, 20, 1014.0]
    assert [second["tokens_per_second"], third["tokens_per_second"]] == [945.0, 525.0]
    assert third["mfu"] == pytest.approx(10 * flops / 4 / PEAK / team.size, abs=5e-5) and third["mfu"] > 0.01
    said = f"1014 s, 525 tokens per second in training, {third['mfu']:.0%} of the {team.size} GFLOP/s that matrix"
    assert found.summary().startswith(said), "the median of three looks"
    json.dumps(third)


def test_one_update_is_summed_up_too(clock: Clock) -> None:
    found, _ = started(Alone())
    clock.now += 2
    found.look(1, 1)
    assert found.summary().startswith("2 s, 105 tokens per second")


@pytest.mark.parametrize("memory", [None, 12345])
def test_memory_is_noted(memory: int | None, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "peak_memory", lambda device: memory)
    found, _ = started(Alone())
    clock.now += 1
    assert found.look(1, 1)["memory"] == memory


def test_on_a_gpu_memory_is_counted_from_the_start_of_the_run(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: done.append(f"reset {device}"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 77)
    monkeypatch.setattr(torch, "tensor", lambda value, device: torch.ones(()) * value)
    found, _ = started(Alone("cuda:0"))
    clock.now += 1
    assert found.look(1, 1)["memory"] == 77 and done == ["reset cuda:0"]
