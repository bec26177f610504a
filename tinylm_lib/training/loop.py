"""The training loop, as a generator: it computes, the caller decides. Notebook 11."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..config import IGNORED, PRECISIONS, SCHEDULES, TrainConfig
from ..layers import pick, values_at_hand
from .distributed import ALONE, Alone
from .evaluation import next_token_loss


class Step(NamedTuple):
    """One update: number from 1, loss before it in nats per token, gradient norm before clipping,
    and the fraction of the peak learning rates that the schedule gave it.
    """

    step: int
    loss: Tensor
    grad_norm: Tensor
    lr_share: float


def multiplies_bf16(device_type: str) -> bool:
    """Whether a device has instructions for products in bf16.

    The environment variable TINYLM_BF16, on or off, overrides the answer, so that one machine can
    act as another.
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
    return pick(PRECISIONS, "bf16" if multiplies_bf16(device_type) else "fp32", "precision")(
        device_type
    )


# By the type of the device. In bf16 are products only; weights and sums stay in fp32.
PRECISIONS |= {
    "auto": native_precision,
    "fp32": nullcontext,
    "tf32": nullcontext,
    "bf16": lambda kind: torch.autocast(kind, torch.bfloat16),
}


def rounds_to_tf32(precision: str, device_type: str) -> bool:
    """Whether fp32 products are rounded to TF32: on an NVIDIA GPU, where the precision of that name
    was chosen.
    """
    return device_type == "cuda" and {"tf32": True}.get(precision, False)


@contextmanager
def tf32_products(agreed: bool) -> Iterator[None]:
    """Let a GPU round the factors of fp32 products to TF32, 10 bits of fraction, where that was
    agreed to.
    """
    before = torch.get_float32_matmul_precision()
    try:
        if agreed:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" takes the accelerator of this machine, such as cuda or mps,
    and the CPU where there is none.

    Raises ValueError for a device that torch does not know or cannot reach.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    there = ["cpu"] if accelerator is None else [accelerator.type, "cpu"]
    device = there[0] if name == "auto" else name
    if not re.fullmatch(rf"({'|'.join(there)})(:\d+)?", device):
        raise ValueError(f"device {name!r} is not here; choose auto or one of {', '.join(there)}")
    return torch.device(device)


def fraction_of_peak(recipe: TrainConfig, step: int) -> float:
    """The fraction of the peak learning rates that the schedule gives an update."""
    schedule = pick(SCHEDULES, recipe.schedule, "schedule")
    return schedule(step, 1.0, recipe.floor, recipe.warmup_steps, recipe.total_steps)


def _count(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """How many targets count in pairs of ids (B, T) and targets (B, T). Returns ()."""
    for pair in pairs:
        if (
            not isinstance(pair, tuple | list)
            or len(pair) != 2
            or not all(isinstance(t, Tensor) for t in pair)
        ):
            got = (
                f"{type(pair).__name__} of {len(pair)}"
                if isinstance(pair, tuple | list)
                else type(pair).__name__
            )
            raise TypeError(
                f"batches must yield pairs of tensors, ids and targets, each (B, T), got a {got}"
            )
    counted = torch.stack([(y != IGNORED).sum() for _, y in pairs]).sum()
    if values_at_hand(counted) and counted == 0:
        raise ValueError(
            f"no target of an update counts: all are {IGNORED}, and a mean over nothing is NaN"
        )
    return counted


def _check_run(
    recipe: TrainConfig, batches: Iterator[tuple[Tensor, Tensor]], parameters: list[Tensor]
) -> None:
    """Raise TypeError for another recipe or source of batches, ValueError where nothing is left to
    train.
    """
    if not isinstance(recipe, TrainConfig):
        raise TypeError(
            f"recipe must be a TrainConfig, got {type(recipe).__name__}; use "
            "TrainConfig(total_steps=100)"
        )
    if not isinstance(batches, Iterator):
        fix = "use RandomWindows, or (batch for _ in itertools.count() for batch in batches)"
        raise TypeError(f"batches must be an endless iterator, got {type(batches).__name__}; {fix}")
    if not parameters:
        raise ValueError(
            "all parameters are frozen; set requires_grad_(True) on those to train, or call "
            "add_lora"
        )


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    recipe: TrainConfig,
    first_step: int = 1,
    team: Alone = ALONE,
) -> Iterator[Step]:
    """Update the model until total_steps, yielding a `Step` after each update. Nothing happens
    until it is iterated; nothing is logged, saved or checked.

    batches: yields ids and targets, each (B, T), on the model's device. first_step: where a resumed
    run continues.
    team: with whom this process trains; model is then what `team.wrap` returned, batches are this
    process's part.
    Every target that counts weighs the same, in whatever backward pass and process of an update it
    is: the update is that of one large batch. So all batches of an update are read before its first
    backward pass. The yielded loss and gradient norm stay on the device; reading them is what makes
    it wait.
    Raises TypeError for batches that are not an iterator of pairs of tensors, ValueError where they
    run out and, on CPU, where no target of an update counts.
    Source of the clipping: Pascanu et al. 2013, algorithm 1.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    _check_run(recipe, batches, parameters)
    device_type = parameters[0].device.type
    precision = pick(PRECISIONS, recipe.precision, "precision")
    limit = math.inf if recipe.clip_norm is None else recipe.clip_norm
    peaks = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
    optimizer.zero_grad(set_to_none=True)
    for step in range(first_step, recipe.total_steps + 1):
        fraction = fraction_of_peak(recipe, step)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = fraction * peak
        model.train()
        pairs = list(islice(batches, recipe.micro_steps))
        if len(pairs) < recipe.micro_steps:
            raise ValueError(
                f"batches ran out at update {step} of {recipe.total_steps}; give an endless source"
            )
        counted = team.sum(_count(pairs))
        losses = []
        with tf32_products(rounds_to_tf32(recipe.precision, device_type)):
            for micro, (x, y) in enumerate(pairs, start=1):
                team.sync(model, on=micro == recipe.micro_steps)
                with precision(device_type):
                    loss = next_token_loss(model(x), y, counted)
                # the mean of the processes' gradients is then their sum
                (loss * team.size).backward()
                losses.append(loss.detach())
            grad_norm = team.clip(parameters, limit)
            with precision(device_type):  # the optimizer multiplies matrices, too
                optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield Step(step, team.sum(torch.stack(losses).sum()), grad_norm, fraction)
