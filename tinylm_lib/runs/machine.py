"""What a run needs to know about its machine: what the bits depend on, its memory and speed, what
is missing.
"""

import math
import os
import platform
import sys
import warnings
from timeit import repeat
from typing import Any

import torch

from ..config import ModelConfig, TrainConfig
from ..cost import count_parameters
from ..layers import pick
from ..training.loop import PRECISIONS, rounds_to_tf32, tf32_products


def machine(device: torch.device, precision: str, n_processes: int = 1) -> dict[str, Any]:
    """The machine that trains on a device: two equal ones give the same bits.

    precision: a key of PRECISIONS.
    """
    with pick(PRECISIONS, precision, "precision")(device.type):
        lowered = torch.is_autocast_enabled(device.type)
    used = "bf16" if lowered else "fp32"
    if not lowered and rounds_to_tf32(precision, device.type):
        used = "tf32"
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "precision": used,
        "torch": str(torch.__version__),
        "processes": n_processes,
    }


def warn_of_changes(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn, in one line, if a run continues on another machine than it began on."""
    changed = [
        f"{name} was {was.get(name, 'not noted')}, is {now[name]}"
        for name in now
        if was.get(name) != now[name]
    ]
    if changed:
        warnings.warn(
            "the machine has changed, so this run will not be bit-identical to an uninterrupted "
            f"one: {'; '.join(changed)}",
            stacklevel=2,
        )


def main_memory() -> float:
    """Bytes of main memory; infinite where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def check_memory(config: ModelConfig, recipe: TrainConfig, device: torch.device) -> None:
    """Raise ValueError where the weights, a batch and a number for each position do not fit into
    main memory.

    On a CPU training adds gradients, the one moment that every optimizer keeps, and the logits of a
    batch. Weights and all these are fp32, ids have 8 bytes.
    """
    n_weights = count_parameters(config).total
    n_ids = recipe.batch_size * recipe.seq_len
    needed = 4 * (n_weights + config.max_seq_len) + 8 * n_ids
    if device.type == "cpu":
        needed += 4 * (2 * n_weights + n_ids * config.vocab_size)
    if needed > main_memory():
        raise ValueError(
            f"this takes at least {needed:,} bytes, and the machine has {main_memory():,}; lower "
            "d_model, n_layers, d_ff, vocab_size, max_seq_len, batch_size or seq_len"
        )


def product_rate(device: torch.device, precision: str) -> float:
    """Floating-point operations per second of the fastest of four square matrix products.
    precision: of PRECISIONS.

    Their sides double while they take less than 10 ms, because small products do not reach the
    peak of a fast device, and large ones take long on a slow one.
    """
    dtype = torch.bfloat16 if machine(device, precision)["precision"] == "bf16" else torch.float32
    seconds = 0.0
    side = 512
    with tf32_products(rounds_to_tf32(precision, device.type)):
        while seconds < 0.01 and side < 4096:
            side *= 2
            generator = torch.Generator().manual_seed(side)
            square = torch.randn(side, side, generator=generator).to(device, dtype)
            # item() waits
            seconds = min(repeat(lambda x=square: (x @ x)[0, 0].item(), number=1, repeat=4))
    return 2 * side**3 / seconds


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that the process had: on a GPU in tensors, elsewhere in all; None where the
    system does not say.

    On a GPU the count begins where PyTorch's statistics were reset.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ModuleNotFoundError:  # on Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
