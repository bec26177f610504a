"""The optimizer and the learning-rate schedule. Notebook 11."""

import math

import torch
from torch import nn

from .config import TrainConfig


def warmup_cosine(step: int, peak: float, floor: float, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of update `step`, counted from 1: linear up to peak, half a cosine down to floor, then floor.

    Source: Loshchilov and Hutter 2016, equation 5, with a linear warm-up in front.
    """
    if step < warmup_steps:
        return peak * step / warmup_steps
    if step >= total_steps:
        return floor
    done = (step - warmup_steps) / (total_steps - warmup_steps)
    return floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2


def build_optimizer(model: nn.Module, train_config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW with weight decay on matrices only: gains, biases and other vectors are left alone.

    Source: Loshchilov and Hutter 2017, algorithm 2.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": train_config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=train_config.peak_lr,
        betas=(train_config.beta1, train_config.beta2),
        eps=train_config.adam_eps,
        fused=True,
    )
