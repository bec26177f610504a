"""What the bits of a training run depend on beside its settings: a machine, described in plain values."""

import platform
import warnings
from typing import Any

import torch

from .layers import pick
from .training import PRECISIONS


def machine(device: torch.device, precision: str) -> dict[str, Any]:
    """The machine that trains on a device: two equal ones give the same bits. precision: a key of PRECISIONS."""
    with pick(PRECISIONS, precision, "precision")(device.type):
        lowered = torch.is_autocast_enabled(device.type)
    return {
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "precision": "bf16" if lowered else "fp32",
        "torch": str(torch.__version__),
    }


def warn_of_changes(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Warn, in one line, where a run goes on upon another machine than it began on."""
    changed = [f"{name} was {was.get(name, 'not noted')}, is {now[name]}" for name in now if was.get(name) != now[name]]
    if changed:
        warnings.warn(
            f"the machine has changed, so this run will not be bit-identical to an uninterrupted one: "
            f"{'; '.join(changed)}",
            stacklevel=2,
        )
