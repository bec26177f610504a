"""Speed and memory, measured on this machine and printed as a table: make bench. No test asserts any of it."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from tinylm_lib import KVCache, TrainConfig, TransformerLM, generate, preset, train
from tinylm_lib.cost import kv_cache_bytes, mfu, training_flops
from tinylm_lib.data import RandomWindows
from tinylm_lib.optim import build_optimizer


def timed(work: Callable[[], object], repeats: int = 7) -> list[float]:
    """Seconds of each repetition, after one to warm up."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def row(what: str, seconds: list[float], note: str = "") -> None:
    """Print the median and the spread."""
    ms = [1e3 * s for s in seconds]
    print(f"| {what:<58} | {median(ms):>9.2f} | {min(ms):>8.2f} to {max(ms):>8.2f} | {note:<34} |")


def matmul_peak() -> float:
    """Floating-point operations per second of a large fp32 product, the best of several."""
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / min(timed(lambda: a @ a))


def training_steps(precision: str, peak: float) -> None:
    """The default run's update, with its share of the matmul peak."""
    recipe = TrainConfig(precision=precision, total_steps=10_000)
    model = TransformerLM(preset("modern", max_seq_len=recipe.seq_len))
    batches = RandomWindows(torch.randint(256, (100_000,)), recipe.batch_size, recipe.seq_len)
    steps = train(model, build_optimizer(model, recipe), batches, recipe)
    seconds = timed(lambda: next(steps))
    flops = training_flops(model.config, recipe.batch_size, recipe.seq_len)
    name = f"training step, modern, B {recipe.batch_size}, T {recipe.seq_len}, {precision}"
    row(name, seconds, f"{mfu(flops, median(seconds), peak):.0%} of the fp32 matmul peak")


def decoding(batch_size: int) -> None:
    """256 new tokens with the cache."""
    model = TransformerLM(preset("modern", max_seq_len=512)).eval()
    prompt = torch.randint(256, (batch_size, 16))
    seconds = timed(lambda: generate(model, prompt, 256), repeats=3)
    row(f"256 new tokens, modern, batch {batch_size}", seconds, f"{256 * batch_size / median(seconds):,.0f} tokens/s")


def import_time() -> None:
    """What the library adds to `import torch`."""
    code = "import time, torch; s = time.perf_counter(); import tinylm_lib; print(time.perf_counter() - s)"
    seconds = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
    row("import tinylm_lib after import torch", seconds)


def main() -> None:
    """Print the table."""
    peak = matmul_peak()
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {platform.platform()}")
    print(f"fp32 matmul peak (1024 x 1024): {peak / 1e9:.0f} GFLOP/s\n")
    print(f"| {'what':<58} | {'median ms':>9} | {'spread ms':>20} | {'':<34} |")
    print(f"|{'-' * 60}|{'-' * 11}|{'-' * 22}|{'-' * 36}|")
    import_time()
    for precision in ("fp32", "bf16"):
        training_steps(precision, peak)
    for batch_size in (1, 16):
        decoding(batch_size)
    config = preset("modern")
    cache = KVCache(config, 16, 128)
    real = sum(t.numel() * t.element_size() for t in cache.keys + cache.values)
    print(f"\ncache of 16 x 128 positions: {real:,} bytes, by formula {kv_cache_bytes(config, 16, 128):,}")


if __name__ == "__main__":
    main()
