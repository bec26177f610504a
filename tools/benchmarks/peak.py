"""The peak memory of a few training steps of one side, in megabytes: python -m benchmarks.peak
ours|nanoGPT PATH.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from tinylm_lib import train
from tinylm_lib.training.optim import build_optimizer

from .peers import load_nanogpt, nanogpt_model, nanogpt_optimizer, nanogpt_step
from .steps import EQUAL, LR, adamw, equal_model, learnable_batches

STATUS = Path("/proc/self/status")
FORGET = Path("/proc/self/clear_refs")


def megabytes(field: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most since the process began or the peak was
    forgotten.
    """
    return int(re.search(rf"{field}:\s+(\d+) kB", STATUS.read_text())[1]) / 1024


def ours() -> None:
    """Three of our steps."""
    model = equal_model()
    config = adamw("fp32")
    steps = train(model, build_optimizer(model, config), iter(learnable_batches(3)), config)
    for _ in range(3):
        next(steps)


def theirs(path: str) -> None:
    """Three steps of nanoGPT."""
    model = nanogpt_model(path, EQUAL)
    optimizer = nanogpt_optimizer(model, LR, 0.99)
    for x, y in learnable_batches(3):
        nanogpt_step(model, optimizer, x, y)


def peak(work: Callable[[], None]) -> float:
    """Megabytes that become resident while `work` runs."""
    a = torch.randn(64, 64, requires_grad=True)
    (a @ a).sum().backward()  # threads and libraries are there before
    before = megabytes("VmRSS")
    FORGET.write_text("5")  # the peak so far
    work()
    return megabytes("VmHWM") - before


if __name__ == "__main__":
    if not STATUS.is_file():
        raise SystemExit(
            "the peak of a process is read from /proc/self/status, which only Linux has"
        )
    name, path = sys.argv[1:]
    if name == "nanoGPT":
        load_nanogpt(path)
    print(peak(ours if name == "ours" else lambda: theirs(path)))
