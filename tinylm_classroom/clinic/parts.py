"""The parts of a run, each a function that can be exchanged: what a healthy one does."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from tinylm_lib.attention import causal_mask
from tinylm_lib.config import IGNORED
from tinylm_lib.model import TransformerLM

TEXTS_PER_BATCH = 8  # texts
WARMUP = 10  # updates
PEAK = 1e-2  # learning rate


def _initial_weights(model: TransformerLM) -> None:
    """Fill all weights of the model, in place, before training."""
    model.initialise()


def _mask(n_queries: int, n_keys: int) -> Tensor:
    """Which keys each query may see, bool (T, S), True = allowed; the queries are the last T of the
    S positions.
    """
    return causal_mask(n_queries, n_keys)


def _positions(start: int, n: int) -> Tensor:
    """The positions (n) of n tokens; the first has `start` tokens before it in the cache."""
    return torch.arange(start, start + n)


def _batch(texts: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw 8 of the texts (N, T + 1). Returns ids and targets, both (8, T)."""
    drawn = texts[torch.randint(len(texts), (TEXTS_PER_BATCH,), generator=generator)]
    return drawn[:, :-1], drawn[:, 1:]


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean loss () of the targets (B, T) that count, in nats; -100 does not count. logits (B,
    T, V).
    """
    counted = targets != IGNORED
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum"
    ) / counted.sum().clamp(min=1)


def _learning_rate(step: int) -> float:
    """The learning rate of update `step`, counted from 1: 10 updates of warm-up, then 0.01."""
    return PEAK * min(1.0, step / WARMUP)


def _trained(model: TransformerLM) -> list[nn.Parameter]:
    """The parameters that the optimizer is given, a list."""
    return list(model.parameters())


def _watch(block: nn.Module, forward: Callable[[], Tensor]) -> tuple[Tensor, float]:
    """Run `forward()`. Returns its logits, and the root mean square of the output of `block` on the
    way.

    Called at each update.
    """
    sizes: list[float] = []
    handle = block.register_forward_hook(
        lambda _, __, output: sizes.append(output.square().mean().sqrt().item())
    )
    try:
        return forward(), sizes[-1]
    finally:
        handle.remove()


def _saved(
    model: TransformerLM, optimizer: Optimizer, generator: Generator, step: int
) -> dict[str, Any]:
    """What a checkpoint holds: a dict of `model`, `optimizer`, `generator` and `step`; what is
    missing starts fresh.

    The first two are state dicts, then the generator's state and the number of the last update.
    """
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "step": step,
    }


def _shard(texts: Tensor, rank: int, n_processes: int) -> Tensor:
    """The texts (M, T + 1) that process `rank` reads, of all texts (N, T + 1)."""
    return texts[rank::n_processes]


def _average(gradients: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The gradient of each parameter that all processes use; gradients: a list of them for each
    process.
    """
    return [torch.stack(same).mean(0) for same in zip(*gradients, strict=True)]


def _window(ids: Tensor, limit: int) -> Tensor:
    """Which of the tokens (B, T) the model reads to predict the next one: (B, at most `limit`)."""
    return ids[:, -limit:]


def _last_logits(logits: Tensor, real: Tensor) -> Tensor:
    """The logits (B, V) after each text, from all logits (B, T, V); real (B, T) is False for
    padding.
    """
    last = (real * torch.arange(real.shape[1])).argmax(1)
    return logits[torch.arange(len(logits)), last]


BETA = 2.0  # how strongly learning from rewards is held at the model that it began with

HEALTHY: dict[str, Any] = {
    "initial_weights": _initial_weights,
    "mask": _mask,
    "positions": _positions,
    "batch": _batch,
    "loss": _loss,
    "learning_rate": _learning_rate,
    "trained": _trained,
    "watch": _watch,
    "saved": _saved,
    "shard": _shard,
    "average": _average,
    "window": _window,
    "last_logits": _last_logits,
    "beta": BETA,
}


def with_parts(**changed: Any) -> SimpleNamespace:
    """The healthy parts, some of them exchanged."""
    return SimpleNamespace(**{**HEALTHY, **changed})
