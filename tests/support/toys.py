"""Toy models and small instruments that several tests share."""

import copy
import itertools
import math
from collections import Counter
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from support.models import scramble
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tinylm_lib import ModelConfig, TransformerLM, preset

SIZES = {"vocab_size": 17, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "max_seq_len": 12}


def toy_config(name: str = "modern", **changes: Any) -> ModelConfig:
    """A preset at toy size, dropout as the preset has it."""
    return preset(name, **{**SIZES, **changes})


def toy_model(name: str = "modern", seed: int = 0, std: float = 0.4, **changes: Any) -> TransformerLM:
    """A preset at toy size in fp64, where every weight and bias is N(0, std^2) and every gain 1 plus that.

    In fp64 the cached and the uncached path agree to 1e-12, so a comparison of tokens does not hang on rounding.
    """
    return scramble(TransformerLM(toy_config(name, **changes)).double(), std, seed)


def toy_ids(B: int, T: int, seed: int = 0, vocab_size: int = SIZES["vocab_size"]) -> Tensor:
    return torch.randint(vocab_size, (B, T), generator=torch.Generator().manual_seed(seed))


def evaluation_copy(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).eval().requires_grad_(False)


def examples(n: int) -> settings:
    """Hypothesis settings that give the same n examples in every run, however slow the machine is."""
    return settings(
        max_examples=n, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
    )


def chi_square_bound(degrees: int, z: float = 5.0) -> float:
    """What a chi-square statistic exceeds with the probability that a normal one exceeds z (z = 5: 3e-7).

    Source: Wilson and Hilferty 1931.
    """
    return degrees * (1 - 2 / (9 * degrees) + z * math.sqrt(2 / (9 * degrees))) ** 3


def chi_square(counts: Tensor, shares: Tensor) -> float:
    """How far counts are from these fractions of their sum."""
    expected = shares.double() * counts.sum()
    assert expected.min() >= 5, "too few draws for a chi-square test"
    return ((counts - expected) ** 2 / expected).sum().item()


class DeviceReads(TorchDispatchMode):
    """Counts, on any device, the operations that would make a GPU wait: reading a value or a data-dependent size."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "repeat_interleave", "multinomial")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        bool_index = name == "index" and any(i is not None and i.dtype == torch.bool for i in args[1])
        if bool_index or any(name == w or name.startswith(w + "_") for w in self.WAITING):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return self.counts.total()


class Modes:
    """Forward hooks that note how each forward pass ran: input shape, training mode, gradients on or off."""

    def __init__(self, model: nn.Module):
        self.shapes: list[tuple[int, ...]] = []
        self.training: list[bool] = []
        self.gradients: list[bool] = []
        self.handle = model.register_forward_hook(self._note)

    def _note(self, model: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self.shapes.append(tuple(inputs[0].shape))
        self.training.append(any(module.training for module in model.modules()))
        self.gradients.append(torch.is_grad_enabled())


def random_modes(model: nn.Module) -> list[bool]:
    """Put the submodules into a mixture of training and evaluation mode, and return it."""
    for i, module in enumerate(model.modules()):
        module.training = i % 3 != 1
    return modes(model)


def modes(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def raising_from(exception: BaseException, countdown: int, function: Any) -> Any:
    """`function`, but call number `countdown` (from 0) and all later ones raise."""
    calls = itertools.count()

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) >= countdown:
            raise exception
        return function(*args, **kwargs)

    return wrapped
