"""Is a part the same as the library's? Each alone in a model: its logits, its gradients, and what
it writes.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib.cache import KVCache
from tinylm_lib.config import ModelConfig
from tinylm_lib.model import TransformerLM

from .parts import read_parts
from .student_modules import Fitting

ROUNDING = 1e-3
B = 2
T = 19
AT_ONCE = 7
SPREAD = 0.3  # of what is added to each weight, so that gains and biases are not all 1 and 0


class Parity(NamedTuple):
    """How far a model with one other part is from the library's.

    places: how often the model calls it. logits, cached, gradients: largest difference of the
    logits, of those computed one token at a time with a cache, and of the gradients, each relative
    to the largest of the library's. why: what keeps the model from calling it, or what it raised;
    then the differences are not numbers.
    """

    name: str
    places: int
    logits: float
    cached: float
    gradients: float
    why: str = ""

    @property
    def equal(self) -> bool:
        """Whether it is called and all differences are those of rounding."""
        return (
            self.places > 0
            and max(self.logits, self.cached, self.gradients) < ROUNDING
            and not self.why
        )


def kept_functions() -> dict[str, Callable[..., Any]]:
    """The parts that a student has kept and that are right today, by name; none where the workshop
    is off.
    """
    return {part.name: part.function for part in read_parts() if part.status == "done"}


def parity(
    config: ModelConfig, functions: Mapping[str, Callable[..., Any]], seed: int = 0
) -> list[Parity]:
    """Put each of some functions alone into a model of the config, and compare it with the
    library's model.

    functions: by the names of their exercises. seed: of the weights and of the text, both random.
    Returns a Parity for each, in their order.
    """
    torch.manual_seed(seed)
    model = TransformerLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(SPREAD * torch.randn_like(weight))
    ids = torch.randint(config.vocab_size, (B, T))
    expected = _outcome(model, ids)
    return [_alone(name, function, model, ids, expected) for name, function in functions.items()]


def _alone(
    name: str, function: Callable, model: TransformerLM, ids: Tensor, expected: tuple
) -> Parity:
    fitting = Fitting({name: function})
    mine = fitting.fit(copy.deepcopy(model))
    unknown = (fitting.used[name], *3 * (float("nan"),))
    if not fitting.used[name]:
        return Parity(name, *unknown, fitting.unused.get(name, "this model has no place for it"))
    try:
        found = _outcome(mine, ids)
    except Exception as error:  # it is a student's code: it may raise anything
        return Parity(name, *unknown, f"{type(error).__name__}: {error}")
    if any(a.shape != b.shape for a, b in zip(found, expected, strict=True)):
        return Parity(name, *unknown, "its results have other shapes")
    return Parity(name, fitting.used[name], *map(_apart, found, expected))


def _apart(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest number expected; infinite where something is
    not a number.
    """
    difference = (found - expected).abs().max() / expected.abs().max()
    return difference.item() if difference.isfinite() else float("inf")


def _outcome(model: TransformerLM, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (B, T, V) of ids (B, T), those with a cache, and all gradients of their mean square as
    one vector.
    """
    model.zero_grad(set_to_none=True)
    logits = model(ids)
    logits.square().mean().backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    cache = KVCache(model.config, *ids.shape)
    with torch.no_grad():
        pieces = [
            model(piece, cache) for piece in ids.split([AT_ONCE, *[1] * (T - AT_ONCE)], dim=1)
        ]
    return logits.detach(), torch.cat(pieces, dim=1), torch.cat([g.flatten() for g in gradients])
