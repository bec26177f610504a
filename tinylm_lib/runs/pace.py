"""How fast a run goes: what its log, its progress bar and its last lines say about time and memory."""

import time
from typing import Any

import torch

from ..cost import mfu, training_flops
from .job import Job
from .machine import peak_memory, product_rate


class Pace:
    """The time that updates take, without evaluations, samples and checkpoints. Source of MFU: `cost.mfu`."""

    def __init__(self, job: Job):
        config, recipe, team = job.model.config, job.recipe, job.team
        self.device, self.looks = team.device, list[tuple[int, float]]()
        self.tokens = recipe.micro_steps * recipe.batch_size * recipe.seq_len  # of one update, in all processes
        self.flops = recipe.micro_steps * training_flops(config, recipe.batch_size, recipe.seq_len)
        rate = torch.tensor(product_rate(team.device, recipe.precision), device=team.device)
        self.peak = team.sum(rate).item()
        if team.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(team.device)
        self.started = self.since = time.perf_counter()

    def look(self, update: int, n_updates: int) -> dict[str, Any]:
        """What the log says of the time since the last look, in which there were some updates."""
        now = time.perf_counter()
        self.looks.append((n_updates, now - self.since))
        self.since = now
        memory = peak_memory(self.device)
        return {
            "update": update,
            "seconds": round(self.elapsed, 3),
            **self.speed(*self.looks[-1]),
            **({} if memory is None else {"memory": memory}),
        }

    def speed(self, n_updates: int, seconds: float) -> dict[str, float]:
        """Tokens per second, and the fraction of the machine's peak that is in use, over some updates."""
        return {
            "tokens_per_second": round(n_updates * self.tokens / seconds, 1),
            "mfu": round(mfu(n_updates * self.flops, seconds, self.peak), 4),
        }

    def skip(self) -> None:
        """Leave out the time since the last look."""
        self.since = time.perf_counter()

    @property
    def elapsed(self) -> float:
        """Seconds since the start, everything included."""
        return time.perf_counter() - self.started

    def summary(self) -> str:
        """The whole run part in a line; its first update, which sets things up, counts only if it is the only one."""
        n, seconds = (sum(column) for column in zip(*(self.looks[1:] or self.looks), strict=True))
        speed = self.speed(n, seconds)
        return (
            f"{self.elapsed:.0f} s, {speed['tokens_per_second']:,.0f} tokens per second in training, "
            f"{speed['mfu']:.0%} of the {self.peak / 1e9:,.0f} GFLOP/s that matrix products reached at the start (MFU)."
        )
