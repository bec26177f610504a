"""Lesson 14: the operations of a piece of work, the seconds of an update, and work whose time is
compared with a roof.
"""

import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tinylm_lib.cache import KVCache
from tinylm_lib.layers import Linear
from tinylm_lib.model import TransformerLM
from tinylm_lib.quantization import Int8Weight, quantize_model
from tinylm_lib.training.evaluation import evaluate

PARTS = ("data", "forward", "backward", "clip", "optimizer")
GROUPS = ("matrix products", "attention", "optimizer", "everything else")
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
MAPS = ("aten::linear", "aten::matmul")
KERNELS = {"table": SDPBackend.MATH, "tiles": SDPBackend.FLASH_ATTENTION}
ABOVE = 1.15  # roofs: what no large work may reach
ROUNDS = 6


class Operation(NamedTuple):
    """What PyTorch was called to do: its name, when it began and ended, in microseconds, and
    whether it is a product.
    """

    name: str
    start: float
    end: float
    is_product: bool


def operations(work: Callable[[], object], rounds: int = 5) -> list[Operation]:
    """The operations that Python calls, in order, in the fastest of a few rounds; those that they
    call themselves are part of them.
    """
    found = []
    for events in _recorded(work, rounds):
        called = [each for each in events if each.cpu_parent is None]
        begin = min(each.time_range.start for each in called)
        found.append(
            [
                Operation(
                    each.name,
                    each.time_range.start - begin,
                    each.time_range.end - begin,
                    each.name in (*MAPS, *PRODUCTS) or "attention" in each.name,
                )
                for each in sorted(called, key=lambda each: each.time_range.start)
            ]
        )
    return min(found, key=lambda called: called[-1].end)


def groups(work: Callable[[], object], rounds: int = 3) -> dict[str, float]:
    """Seconds of each of GROUPS in the fastest of a few rounds, by the profiler."""
    found = []
    for events in _recorded(work, rounds):
        seconds = dict.fromkeys(GROUPS, 0.0)
        for each in events:
            seconds[_group(each)] += each.self_cpu_time_total / 1e6  # it counts microseconds
        found.append(seconds)
    return min(found, key=lambda seconds: sum(seconds.values()))


def counted(work: Callable[..., object], *arguments: Any) -> int:
    """The FLOPs of all matrix products of a piece of work, as PyTorch counts them."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        work(*arguments)
    return counter.get_total_flops()


def by_both_kernels(qkv: Tensor) -> tuple[Tensor, Tensor]:
    """Causal attention of q, k and v (3, B, H, T, D) with the whole table and in tiles, (B, H, T,
    D) each.
    """
    return attention(qkv, "table"), attention(qkv, "tiles")


def attention(qkv: Tensor, way: str) -> Tensor:
    """Causal attention of q, k and v (3, B, H, T, D) with the whole "table" or in "tiles", (B, H,
    T, D).
    """
    with sdpa_kernel(KERNELS[way]):
        return scaled_dot_product_attention(*qkv, is_causal=True)


def intensity_in_bf16(tokens: int, width: int) -> float:
    """FLOPs per byte of a linear map from width to width features, with 2 bytes a number."""
    return 2 * tokens * width**2 / (2 * (2 * tokens * width + width**2))


def step_times(model: TransformerLM, batches: Iterator, optimizer: Any) -> dict[str, float]:
    """Seconds of each of PARTS of one update."""
    clock = [time.perf_counter()]
    x, y = next(batches)
    clock.append(time.perf_counter())
    loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
    clock.append(time.perf_counter())
    loss.backward()
    clock.append(time.perf_counter())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    clock.append(time.perf_counter())
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    clock.append(time.perf_counter())
    return dict(zip(PARTS, (end - start for start, end in pairwise(clock)), strict=True))


def middle_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each part."""
    return {part: sorted(each[part] for each in rounds)[len(rounds) // 2] for part in rounds[0]}


def next_token(model: TransformerLM, n_texts: int = 1, n_kept: int = 100) -> Callable[[], Tensor]:
    """A function that reads one more token of each text, after n_kept that are in a cache.

    Returns logits (B, 1, V).
    """
    ids = torch.arange(n_kept + 1).remainder(model.config.vocab_size).expand(n_texts, -1)
    cache = KVCache(model.config, n_texts, n_kept + 1)

    @torch.no_grad()
    def step() -> Tensor:
        cache.length = n_kept  # what was added is overwritten
        return model(ids[:, n_kept:], cache)

    with torch.no_grad():
        model(ids[:, :n_kept], cache)
    return step


def under_a_roof(
    roof: Callable[[], tuple[float, float]],
    work: Mapping[str, tuple[int, int, Callable[[], object]]],
    seconds: Callable[[Callable[[], object]], float],
    large: int = 50_000_000,
) -> tuple[float, float, dict[str, float]]:
    """Peak, bandwidth and the seconds of each work (FLOPs, bytes, function): the best of at least
    two rounds.

    While work that moves at least `large` bytes is above 1.15 roofs, other work disturbed the
    measurement of the roof, and all is measured again, in at most ROUNDS rounds.
    """
    peak = bandwidth = 0.0
    best = dict.fromkeys(work, float("inf"))
    for n_rounds in range(1, ROUNDS + 1):
        fastest, widest = roof()
        peak = max(peak, fastest)
        bandwidth = max(bandwidth, widest)
        for name, (_, _, run) in work.items():
            best[name] = min(best[name], seconds(run))
        roofs = [
            flops / best[name] / min(peak, bandwidth * flops / n_bytes)
            for name, (flops, n_bytes, _) in work.items()
            if n_bytes >= large
        ]
        if n_rounds > 1 and max(roofs, default=0) <= ABOVE:
            break
    return peak, bandwidth, best


class Stacked(nn.Module):
    """Attention with one map for q, k and v."""

    def __init__(self, old: Any):
        super().__init__()
        self.old = old
        self.rotation = old.rotation
        maps = [old.q_proj.weight, old.k_proj.weight, old.v_proj.weight]
        self.qkv = Linear(maps[0].shape[1], sum(map(len, maps)))
        self.qkv.weight.data = torch.cat(maps).detach()

    def forward(self, x: Tensor, at: Any, extend: Any = None) -> Tensor:
        """x (B, T, C). Returns (B, T, C)."""
        old = self.old
        q, k, v = (old.split(each) for each in self.qkv(x).chunk(3, dim=-1))
        q = old.rotation(old.q_norm(q), at)
        k = old.rotation(old.k_norm(k), at)
        return old.o_proj(old.mix(q, *extend(k, v)))


def stacked(model: TransformerLM) -> TransformerLM:
    """A copy for inference, in which one map makes q, k and v of each layer.

    Raises ValueError for weights in 8 bits.
    """
    if any(isinstance(each, Int8Weight) for each in model.modules()):
        raise ValueError(
            "the weights are in 8 bits and cannot be stacked any more; stack first, then quantize: "
            '["stacked", "8 bits"]'
        )
    model = deepcopy(model)
    for each in model.blocks:
        each.attention = Stacked(each.attention)
    return model.eval()


CHANGES = {"stacked": stacked, "8 bits": quantize_model}


def best_in_turns(
    price: Callable[..., float], tried: Sequence[tuple[Any, ...]], turns: int = 3
) -> list[float]:
    """The least price of each of these arguments, measured in turns: a machine that is slower for a
    while then disturbs all of them.
    """
    rounds = [[price(*arguments) for arguments in tried] for _ in range(turns)]
    return [min(prices) for prices in zip(*rounds, strict=True)]


@torch.no_grad()
def loss_with_errors(model: TransformerLM, batches: list, n_bits: int, one_sign: bool) -> float:
    """The loss if all matrices are rounded, or moved as far as by rounding, but always upwards."""
    changed = deepcopy(model)
    for weight in changed.parameters():
        if weight.ndim == 2:
            step = weight.abs().amax(1, keepdim=True) / (2 ** (n_bits - 1) - 1)
            error = (weight / step).round() * step - weight
            weight += error.abs() if one_sign else error
    return evaluate(changed, batches).nats_per_token


def _group(operation: Any) -> str:
    """The group of one recorded operation; what the optimizer calls belongs to the optimizer."""
    caller = operation
    while caller is not None:
        if caller.name.startswith("Optimizer."):
            return "optimizer"
        caller = caller.cpu_parent
    if operation.name in PRODUCTS:
        return "matrix products"
    return "attention" if "attention" in operation.name.lower() else "everything else"


def _recorded(work: Callable[[], object], rounds: int) -> Iterator[list[Any]]:
    for _ in range(3):  # the first ones are slower
        work()
    for _ in range(rounds):
        with _without_messages(), profile(activities=[ProfilerActivity.CPU]) as profiler:
            work()
        yield list(profiler.events())


@contextmanager
def _without_messages() -> Iterator[None]:
    """Some versions of the profiler write messages about themselves."""
    kept = os.dup(2)  # where the machine code of PyTorch writes its messages
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with redirect_stderr(io.StringIO()):  # where Python writes them
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
