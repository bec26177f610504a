"""How fast a run goes: what its log, progress bar and last lines say of time and memory."""

import time
from statistics import median
from typing import Any

import torch

from ..cost import mfu, training_flops
from .job import Job
from .machine import peak_memory, product_rate


class Pace:
    """The time that updates take, without evaluations, samples and checkpoints.

    Source of MFU: `cost.mfu`.
    """

    def __init__(self, job: Job):
        config = job.model.config
        recipe = job.recipe
        team = job.team
        self.device = team.device
        self.looks = list[dict[str, Any]]()
        # of one update, in all processes
        self.tokens = recipe.micro_steps * recipe.batch_size * recipe.seq_len
        self.flops = recipe.micro_steps * training_flops(config, recipe.batch_size, recipe.seq_len)
        rate = torch.tensor(product_rate(team.device, recipe.precision), device=team.device)
        self.peak = team.sum(rate).item()
        if team.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(team.device)
        self.started = self.since = time.perf_counter()

    def look(self, update: int, n_updates: int) -> dict[str, Any]:
        """What the log says of the time since the last look, in which there were some updates."""
        seconds = time.perf_counter() - self.since
        self.skip()
        self.looks.append({
            "update": update,
            "seconds": round(self.since - self.started, 3),
            "tokens_per_second": round(n_updates * self.tokens / seconds, 1),
            "mfu": round(mfu(n_updates * self.flops, seconds, self.peak), 4),
            "memory": peak_memory(self.device),
        })  # fmt: skip
        return self.looks[-1]

    def skip(self) -> None:
        """Leave out the time since the last look."""
        self.since = time.perf_counter()

    def summary(self) -> str:
        """The whole run in a line; medians, because the first updates set things up."""
        speed, used = (
            median(look[name] for look in self.looks) for name in ("tokens_per_second", "mfu")
        )
        return (
            f"{time.perf_counter() - self.started:.0f} s, {speed:,.0f} tokens per second in "
            f"training, {used:.0%} of the {self.peak / 1e9:,.0f} GFLOP/s that matrix products "
            "reached at the start (MFU)."
        )
