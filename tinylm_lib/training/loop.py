"""The training loop, as a generator: it computes, the caller decides. Notebook 11."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..layers import pick
from .distributed import ALONE, Alone
from .evaluation import next_token_loss
from .optim import SCHEDULES


class Step(NamedTuple):
    """One update: number from 1, loss before it in nats per token, gradient norm before clipping, and the
    fraction of the peak learning rates that the schedule gave it."""

    step: int
    loss: Tensor
    grad_norm: Tensor
    lr_share: float


def multiplies_bf16(device_type: str) -> bool:
    """Whether a device has instructions for products in bf16.

    The environment variable TINYLM_BF16, on or off, overrides the answer, so that one machine can act as another.
    Raises ValueError for another value of the variable.
    """
    if answer := os.environ.get("TINYLM_BF16"):
        return pick({"on": True, "off": False}, answer, "TINYLM_BF16")
    if device_type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    cpu = torch.cpu.get_capabilities()
    return device_type == "cpu" and bool(cpu.get("avx512_bf16") or cpu.get("amx_bf16"))


def native_precision(device_type: str) -> AbstractContextManager:
    """Products in bf16 where the device has instructions for them, in fp32 elsewhere."""
    return pick(PRECISIONS, "bf16" if multiplies_bf16(device_type) else "fp32", "precision")(device_type)


# By the type of the device. In bf16 are products only; weights and sums stay in fp32.
PRECISIONS = {
    "fp32": nullcontext, "tf32": nullcontext, "bf16": lambda kind: torch.autocast(kind, torch.bfloat16),
    "auto": native_precision,
}  # fmt: skip


def rounds_to_tf32(precision: str, device_type: str) -> bool:
    """Whether fp32 products are rounded to TF32: on an NVIDIA GPU, where the precision of that name was chosen."""
    return device_type == "cuda" and {"tf32": True}.get(precision, False)


@contextmanager
def tf32_products(agreed: bool) -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32, 10 bits of fraction, where that was agreed to."""
    before = torch.get_float32_matmul_precision()
    try:
        if agreed:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" takes the first of cuda, mps and cpu that is there.

    Raises ValueError for a device that torch does not know or cannot reach.
    """
    there = [d for d, here in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())) if here]
    there.append("cpu")
    device = there[0] if name == "auto" else name
    if not re.fullmatch(rf"({'|'.join(there)})(:\d+)?", device):
        raise ValueError(f"device {name!r} is not here; choose auto or one of {', '.join(there)}")
    return torch.device(device)


def share_of_peak(recipe: TrainConfig, step: int) -> float:
    """The fraction of the peak learning rates that the schedule gives an update."""
    schedule = pick(SCHEDULES, recipe.schedule, "schedule")
    return schedule(step, 1.0, recipe.floor, recipe.warmup_steps, recipe.total_steps)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    recipe: TrainConfig,
    first_step: int = 1,
    team: Alone = ALONE,
) -> Iterator[Step]:
    """Update the model until total_steps, yielding a `Step` after each update. Nothing is logged, saved or checked.

    batches: yields ids and targets, each (B, T), on the model's device. first_step: where a resumed run continues.
    team: with whom this process trains; model is then what `team.wrap` returned, batches are this process's part.
    Every backward pass of an update weighs the same, however many of its targets count, and so does every process.
    The yielded loss and gradient norm stay on the device; reading them is what makes it wait.
    Source of the clipping: Pascanu et al. 2013, algorithm 1.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError("all parameters are frozen; set requires_grad_(True) on those to train, or call add_lora")
    device_type = parameters[0].device.type
    precision = pick(PRECISIONS, recipe.precision, "precision")
    limit = math.inf if recipe.clip_norm is None else recipe.clip_norm
    peaks = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    optimizer.zero_grad(set_to_none=True)
    for step in range(first_step, recipe.total_steps + 1):
        share = share_of_peak(recipe, step)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = share * peak
        model.train()
        losses = []
        with tf32_products(rounds_to_tf32(recipe.precision, device_type)):
            for micro in range(recipe.micro_steps):
                x, y = next(batches, (None, None))
                if x is None or y is None:
                    raise ValueError(
                        f"batches ran out at update {step} of {recipe.total_steps}; give an endless source"
                    )
                team.sync(model, on=micro + 1 == recipe.micro_steps)
                with precision(device_type):
                    loss = next_token_loss(model(x), y)
                (loss / recipe.micro_steps).backward()
                losses.append(loss.detach())
            grad_norm = team.clip(parameters, limit)
            with precision(device_type):  # the optimizer multiplies matrices, too
                optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield Step(step, team.mean(torch.stack(losses).mean()), grad_norm, share)
