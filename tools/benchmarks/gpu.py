"""What needs a CUDA device: training at 124M and T 1024, decoding at 1B, nanoGPT's GPU recipe on
Shakespeare.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tinylm_lib import TrainConfig, TransformerLM, evaluate, generate, preset, train
from tinylm_lib.cost import training_flops
from tinylm_lib.data.windows import RandomWindows, every_window
from tinylm_lib.training.optim import build_optimizer

from .measure import REMEDIES, Bar, Row, Settings, alternate, compare, matmul_rate
from .peers import gpt2_style, nanogpt_model, nanogpt_optimizer
from .recipe import characters

DEVICE = "cuda"
# as in nanoGPT's own benchmark
BATCH = 12
T = 1024
# 124M, the vocabulary padded as in nanoGPT
LARGE: dict[str, Any] = {"vocab_size": 50_304, "max_seq_len": T}
BILLION: dict[str, Any] = {"max_seq_len": 2048}
# Ours against nanoGPT's config/train_shakespeare_char.py: what differs from preset("modern") and
# TrainConfig.
GPU_MODEL: dict[str, Any] = {
    "vocab_size": 65,
    "d_model": 384,
    "n_layers": 6,
    "n_heads": 6,
    "residual_dropout": 0.2,
}
GPU_RECIPE: dict[str, Any] = {
    "batch_size": 64,
    "seq_len": 256,
    "total_steps": 1000,
    "precision": "bf16",
}
PUBLISHED = 1.4697  # nanoGPT's best, in 5,000 steps
NANO_STEPS = 5_000


def wait() -> None:
    """Let the device finish what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def our_steps(batches: Iterator[tuple[Tensor, Tensor]]) -> Callable[[], object]:
    """Our training step at 124M: bf16, compiled, fused AdamW."""
    config = TrainConfig(
        precision="bf16", optimizer="adamw", batch_size=BATCH, seq_len=T, total_steps=100_000
    )
    model = TransformerLM(gpt2_style(**LARGE)).to(DEVICE)
    model.compile()
    steps = train(model, build_optimizer(model, config), batches, config)
    return lambda: next(steps)


def nanogpt_update(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor
) -> None:
    """One update of nanoGPT's train.py in bf16."""
    with torch.autocast(DEVICE, torch.bfloat16):
        loss = model(x, y)[1]
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def nanogpt_steps(path: str, batches: Iterator[tuple[Tensor, Tensor]]) -> Callable[[], object]:
    """nanoGPT's training step at the same sizes: bf16, compiled, its fused AdamW."""
    model = nanogpt_model(path, gpt2_style(**LARGE)).to(DEVICE)
    optimizer = nanogpt_optimizer(model, 6e-4, 0.95, DEVICE)
    model.compile()
    return lambda: nanogpt_update(model, optimizer, *next(batches))


def training(s: Settings) -> Iterator[Row]:
    """GPU: tokens per second and MFU of a 124M GPT-2 at T 1024 in bf16, compiled, compared with
    nanoGPT.
    """
    torch.set_float32_matmul_precision("high")  # nanoGPT allows TF32 too
    windows = RandomWindows(
        torch.randint(LARGE["vocab_size"], (1_000_000,)), BATCH, T, device=DEVICE
    )
    batches = itertools.cycle([next(windows) for _ in range(8)])
    works = {"ours": our_steps(batches)}
    if s.nanogpt:
        works["nanoGPT"] = nanogpt_steps(s.nanogpt, batches)
    for work in works.values():  # compilation
        work()
    waiting = {name: lambda work=work: (work(), wait()) for name, work in works.items()}
    seconds = alternate(waiting, s.rounds(20), times=5)
    peak = matmul_rate(8192, 8192, 8192, torch.bfloat16, DEVICE, rounds=3)
    flops = training_flops(gpt2_style(**LARGE), BATCH, T)
    rates = {name: [BATCH * T / t for t in values] for name, values in seconds.items()}
    note = f"B {BATCH}, bf16, compiled"
    yield compare(
        "GPU: training, 124M, T 1024, tokens/s", rates, "nanoGPT", Bar("≥", 1.0), note, ""
    )
    share = {
        "ours": [100 * flops / t / peak for t in seconds["ours"]],
        "matmul peak": [100.0] * len(seconds["ours"]),
    }
    note = f"peak {peak / 1e12:.0f} TFLOP/s, bf16 8192^3, measured"
    yield compare("GPU: MFU of that step", share, "matmul peak", Bar("≥", 50, "ours"), note, "%")


def decoding(s: Settings) -> Iterator[Row]:
    """GPU: decoding at 1B, Llama-shaped, bf16, batch 1, compared with the time to read the weights
    once.
    """
    model = TransformerLM(preset("llama", "3.2-1b", **BILLION)).to(DEVICE, torch.bfloat16).eval()
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    block = torch.empty(size // 2, dtype=torch.bfloat16, device=DEVICE)
    prompt = torch.randint(model.config.vocab_size, (1, 16), device=DEVICE)
    n = 64
    works = {
        "long": lambda: (generate(model, prompt, n + 1), wait()),
        "short": lambda: (generate(model, prompt, 1), wait()),
        "read": lambda: (block.sum(), wait()),
    }
    seconds = alternate(works, s.rounds(8), warm_up=2)
    per_token = [(a - b) / n for a, b in zip(seconds["long"], seconds["short"], strict=True)]
    note = f"{size / min(seconds['read']) / 1e9:.0f} GB/s; 60 % of the limit is a ratio of 1.67"
    values = {"ours": per_token, "one read": seconds["read"]}
    yield compare(
        "GPU: decode, Llama 1B, bf16, batch 1, per token",
        values,
        "one read",
        Bar("≤", 1 / 0.6),
        note,
    )


def our_recipe(s: Settings, seed: int) -> tuple[float, float]:
    """Seconds, compilation and validation included, and validation loss of our run on the GPU."""
    train_ids, validation = characters(s.shakespeare)
    start = time.perf_counter()
    torch.manual_seed(seed)
    config = TrainConfig(**GPU_RECIPE, seed=seed)
    model = TransformerLM(preset("modern", **GPU_MODEL, max_seq_len=config.seq_len)).to(DEVICE)
    model.compile()
    batches = RandomWindows(train_ids, config.batch_size, config.seq_len, seed, DEVICE)
    for _ in train(model, build_optimizer(model, config), batches, config):
        pass
    loss = evaluate(model, every_window(validation, 64, config.seq_len)).nats_per_token
    return time.perf_counter() - start, loss


def nanogpt_seconds(s: Settings) -> float:
    """Seconds of nanoGPT's 5,000 steps, from 100 after the compilation; its loss is the published
    one.
    """
    config = gpt2_style(vocab_size=65, d_model=384, n_layers=6, n_heads=6, max_seq_len=256)
    model = nanogpt_model(s.nanogpt, config, bias=False, dropout=0.2).to(DEVICE)
    optimizer = nanogpt_optimizer(model, 1e-3, 0.99, DEVICE)
    model.compile()
    batches = RandomWindows(characters(s.shakespeare)[0], 64, 256, device=DEVICE)
    work = {"nanoGPT": lambda: (nanogpt_update(model, optimizer, *next(batches)), wait())}
    return NANO_STEPS * alternate(work, 1, times=100)["nanoGPT"][0]


def shakespeare(s: Settings) -> Iterator[Row]:
    """GPU: loss and time of our Shakespeare recipe compared with nanoGPT's, published best
    1.4697.
    """
    if not s.shakespeare:
        yield Row(
            "GPU: Shakespeare recipe", math.nan, note=f"not run: {REMEDIES['Tiny Shakespeare']}"
        )
        return
    runs = [our_recipe(s, seed) for seed in range(1, s.seeds + 1)]
    values = {"ours": [loss for _, loss in runs], "published": [PUBLISHED] * len(runs)}
    yield compare("GPU: Shakespeare recipe, loss", values, "published", Bar("≤", 1.0), unit="nats")
    values = {"ours": [seconds for seconds, _ in runs]}
    if s.nanogpt:
        values["nanoGPT"] = [nanogpt_seconds(s)] * len(runs)
    note = "nanoGPT: 5,000 steps at the rate of 100"
    yield compare("GPU: Shakespeare recipe, time", values, "nanoGPT", Bar("≤", 1.0), note)


ROWS = {"gpu-train": training, "gpu-decode": decoding, "gpu-recipe": shakespeare}
