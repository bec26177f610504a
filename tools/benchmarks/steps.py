"""Training steps: time and loss against nanoGPT, memory, growth with the batch, fraction of the
machine's peak.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from tinylm_lib import TrainConfig, TransformerLM, preset, train
from tinylm_lib.cost import mfu, training_flops
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.training.optim import build_optimizer

from .measure import Bar, Row, Settings, alternate, bf16_bar, compare, small_and_large_rates
from .peers import gpt2_style, nanogpt_optimizer, nanogpt_step, nanogpt_twin

# characters of Tiny Shakespeare; sizes of nanoGPT's published CPU recipe
V = 65
B = 12
T = 64
LR = 1e-3
# what a CPU with bf16 should take
FAST = TrainConfig().precision if TrainConfig().precision != "fp32" else "bf16"
STEP_BARS = {"fp32": 0.95, FAST: 0.7}


# The architecture and the sizes of nanoGPT's CPU recipe, with biases.
EQUAL = gpt2_style(vocab_size=V, d_model=128, n_layers=4, n_heads=4, max_seq_len=T)


def equal_model() -> TransformerLM:
    """Our model of EQUAL."""
    torch.manual_seed(1)
    return TransformerLM(EQUAL)


def adamw(precision: str, **changes: Any) -> TrainConfig:
    """nanoGPT's optimizer and clipping as our TrainConfig, at a constant learning rate."""
    constant = {
        "optimizer": "adamw",
        "matrix_lr": LR,
        "embedding_lr": LR,
        "floor": 1.0,
        "warmup_steps": 0,
    }
    theirs = {"beta2": 0.99, "weight_decay": 0.1, "clip_norm": 1.0}
    sizes = {"batch_size": B, "seq_len": T, "total_steps": 100_000}
    return TrainConfig(**{**constant, **theirs, **sizes, "precision": precision, **changes})


def learnable_batches(n: int) -> list[tuple[Tensor, Tensor]]:
    """Batches of a text in which every token but a few follows from the one before."""
    generator = torch.Generator().manual_seed(1)
    ids = (torch.arange(50_000) * 7 + torch.randint(5, (50_000,), generator=generator)) % V
    windows = RandomWindows(ids, B, T, seed=1)
    return [next(windows) for _ in range(n)]


def step(s: Settings) -> Iterator[Row]:
    """One training step of the same architecture, weights and batches as nanoGPT's, and the two
    loss curves.
    """
    for precision, bar in STEP_BARS.items():
        seconds, curves = side_by_side(s, precision, rounds=s.rounds(30))
        what = f"training step, GPT-2 style, 4 layers, d 128, {precision}"
        note = f"B {B}, T {T}; nanoGPT in fp32"
        yield compare(
            what, seconds, "nanoGPT", Bar("≤", bar) if precision == "fp32" else bf16_bar(bar), note
        )
        if "nanoGPT" in curves:
            pairs = zip(curves["ours"], curves["nanoGPT"], strict=True)
            difference = max(abs(a - b) for a, b in pairs)
            note = (
                f"over {len(curves['ours'])} updates, loss {curves['ours'][0]:.2f} to "
                f"{curves['ours'][-1]:.2f}"
            )
            what = f"largest difference of the losses, {precision}"
            yield Row(what, difference, "nats", bar=Bar("≤", 0.01, "ours"), note=note)


def side_by_side(
    s: Settings, precision: str, rounds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Train both on the same batches, four steps in turn.

    Returns the seconds per step and the losses of every step.
    """
    ours = equal_model()
    batches = learnable_batches(4 * (rounds + 1))
    config = adamw(precision)
    steps = train(ours, build_optimizer(ours, config), iter(batches), config)
    curves: dict[str, list[float]] = {"ours": []}
    works = {"ours": lambda: curves["ours"].append(next(steps).loss.item())}
    if s.nanogpt:
        theirs = nanogpt_twin(s.nanogpt, ours)
        same = iter(batches)
        optimizer = nanogpt_optimizer(theirs, LR, 0.99)
        curves["nanoGPT"] = []
        works["nanoGPT"] = lambda: curves["nanoGPT"].append(
            nanogpt_step(theirs, optimizer, *next(same)).item()
        )
    return alternate(works, rounds, times=4), curves


def efficiency(s: Settings) -> Iterator[Row]:
    """The fraction of the measured matmul peak that the default training step reaches (MFU)."""
    for precision, dtype in (("fp32", torch.float32), (FAST, torch.bfloat16)):
        config = TrainConfig(precision=precision, total_steps=100_000)
        model = TransformerLM(preset("modern", max_seq_len=config.seq_len))
        batches = RandomWindows(torch.randint(256, (100_000,)), config.batch_size, config.seq_len)
        steps = train(model, build_optimizer(model, config), batches, config)
        seconds = median(
            alternate({"ours": lambda steps=steps: next(steps)}, s.rounds(10), times=3)["ours"]
        )
        flops = training_flops(model.config, config.batch_size, config.seq_len)
        small, large = small_and_large_rates(dtype, s.quick)
        note = f"B {config.batch_size}, T {config.seq_len}: {flops / seconds / 1e9:.0f} GFLOP/s, "
        note += (
            f"MFU {mfu(flops, seconds, large):.0%} of 2048^3, {mfu(flops, seconds, small):.0%} of "
            "small products"
        )
        yield Row(f"training step, modern and its defaults, {precision}", seconds, note=note)


def compiled(s: Settings) -> Iterator[Row]:
    """The default training step with `model.compile()`, compared with the same without; the first
    call compiles.
    """
    config = TrainConfig(precision="fp32", total_steps=100_000)
    works = {}
    first = 0.0
    for name in ("eager", "ours"):
        model = TransformerLM(preset("modern", max_seq_len=config.seq_len))
        batches = RandomWindows(torch.randint(256, (100_000,)), config.batch_size, config.seq_len)
        steps = train(model, build_optimizer(model, config), batches, config)
        if name == "ours":
            model.compile()
            start = time.perf_counter()
            next(steps)
            first = time.perf_counter() - start
        works[name] = lambda steps=steps: next(steps)
    seconds = alternate(works, s.rounds(10), times=3)
    note = f"B {config.batch_size}, T {config.seq_len}, fp32; the first step took {first:.0f} s"
    yield compare("training step, modern, compiled", seconds, "eager", note=note)


def batch_growth(s: Settings) -> Iterator[Row]:
    """The time of a training step as the batch grows: linear is a ratio of 1."""
    works = {}
    for batch_size in (16, 64):
        config = adamw("fp32", batch_size=batch_size)
        model = equal_model()
        batches = RandomWindows(torch.randint(V, (100_000,)), batch_size, T)
        steps = train(model, build_optimizer(model, config), batches, config)
        works[batch_size] = lambda steps=steps: next(steps)
    seconds = alternate(works, s.rounds(20))
    quarter = {"ours": [t / 4 for t in seconds[64]], "batch 16": seconds[16]}
    yield compare(
        "training step, time of batch 64 over 4", quarter, "batch 16", Bar("≤", 1.05), "linear is 1"
    )


def memory(s: Settings) -> Iterator[Row]:
    """Peak memory of three training steps, from before the model is built, each in a process of its
    own.
    """
    megabytes: dict[str, list[float]] = {"ours": [], **({"nanoGPT": []} if s.nanogpt else {})}
    for _ in range(1 if s.quick else 3):
        for name, values in megabytes.items():
            values.append(_peak_of_a_process(name, s.nanogpt or ""))
    what = "peak memory of a training step, fp32"
    note = "resident; weights, gradients, moments, activations"
    yield compare(what, megabytes, "nanoGPT", Bar("≤", 1.0), note, "MB")


def _peak_of_a_process(name: str, path: str) -> float:
    command = [sys.executable, "-m", "benchmarks.peak", name, path]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return float(
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    )


ROWS = {
    "step": step,
    "memory": memory,
    "mfu": efficiency,
    "compiled": compiled,
    "growth-batch": batch_growth,
}
