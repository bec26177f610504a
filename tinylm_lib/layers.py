"""The smallest parts: linear maps, embeddings, softmax, activations and norms."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import NORMS


def pick(table: Mapping[str, Any], name: str, what: str) -> Any:
    """Look `name` up in a table of classes.

    Raises ValueError listing the known names.
    """
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what} {name!r} is unknown; choose one of {', '.join(table)}")
    return table[name]


def truncated_normal_(weight: Tensor, std: float) -> Tensor:
    """Fill weight (...) with N(0, std^2) cut off at three standard deviations, in place.

    The cut lowers the standard deviation to 0.98658 std.
    """
    return nn.init.trunc_normal_(weight, std=std, a=-3 * std, b=3 * std)


class Linear(nn.Module):
    """y = x W^T + b, one dot product per output feature. Notebook 02.

    The weight is stored as (out, in).
    Initial weights: N(0, 2 / (in + out)) cut off at three standard deviations; the bias is 0.
    Source: Glorot and Bengio 2010, equation 12 (the variance).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        weight = torch.empty(out_features, in_features, device=device, dtype=dtype)
        self.weight = nn.Parameter(weight)
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype))
        truncated_normal_(self.weight, std=math.sqrt(2 / (in_features + out_features)))

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features). Returns (..., out_features)."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}, bias={self.bias is not None}"


class Embedding(nn.Module):
    """One learned row per token id. Notebook 02.

    Initial weights: N(0, 1) cut off at three standard deviations.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        weight = torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = nn.Parameter(weight)
        truncated_normal_(self.weight, std=1.0)

    def forward(self, ids: Tensor) -> Tensor:
        """ids (...), integers in 0..V-1. Returns (..., C).

        Raises IndexError for an id out of range, on CPU; a negative id is out of range.
        """
        return F.embedding(ids, self.weight)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


def softmax(x: Tensor, dim: int) -> Tensor:
    """Turn scores into probabilities that sum to 1 along `dim`. Notebook 03.

    x (...): any finite scores. The maximum is subtracted first: this changes no probability, and
    exp cannot overflow. A slice that is -inf throughout has no answer and gives NaN. Returns the
    shape and dtype of x.
    """
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), elementwise. Source: Hendrycks and Gimpel 2016, section 2. Notebook 08."""
    return F.silu(x)


def gelu(x: Tensor) -> Tensor:
    """x * Phi(x), elementwise, Phi the normal distribution function.

    Source: Hendrycks and Gimpel 2016. Notebook 08.
    """
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2, elementwise.

    GPT-2's `gelu`, at most 4.8e-4 off. Source: Hendrycks and Gimpel 2016. Notebook 08.
    """
    return F.gelu(x, approximate="tanh")


def at_least_fp32(x: Tensor) -> Tensor:
    """x (...) in fp32, or unchanged where it is already as precise."""
    return x if x.dtype.itemsize >= 4 else x.float()


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x (...) in this dtype: `Tensor.to`, without its price where there is nothing to do."""
    return x if x.dtype == dtype else x.to(dtype)


def unchanged(x: Tensor) -> Tensor:
    """x (...) itself: what a part that is switched off does."""
    return x


def values_at_hand(x: Tensor) -> bool:
    """Whether x (...) can be read without waiting: on the CPU, and not while compiling."""
    return isinstance(x, Tensor) and x.device.type == "cpu" and not torch.compiler.is_compiling()


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension, then multiply by a learned gain.

    Notebook 04. Computed in fp32; the gain is applied before the cast back to the input's dtype.
    Source: Zhang and Sennrich 2019, equation 4.
    """

    vectors = 1  # of d parameters each

    def __init__(self, d: int, eps: float = 1e-5, device: Any = None, dtype: Any = None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set the gain to 1, where it begins."""
        nn.init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d). Returns (..., d) in the dtype of x."""
        z = at_least_fp32(x)
        gain = self.weight
        return cast(F.rms_norm(z, gain.shape, cast(gain, z.dtype), self.eps), x.dtype)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


class LayerNorm(nn.Module):
    """(x - mean(x)) / sqrt(var(x) + eps) * gain + bias over the last dimension. Notebook 04.

    Computed in fp32, with the biased variance, and cast back to the input's dtype at the end.
    Source: Ba, Kiros and Hinton 2016, equation 4.
    """

    vectors = 2

    def __init__(self, d: int, eps: float = 1e-5, device: Any = None, dtype: Any = None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(d, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Set the gain to 1 and the bias to 0, where they begin."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d). Returns (..., d) in the dtype of x."""
        z = at_least_fp32(x)
        gain = self.weight.to(z.dtype)
        bias = self.bias.to(z.dtype)
        return F.layer_norm(z, gain.shape, gain, bias, self.eps).to(x.dtype)

    extra_repr = RMSNorm.extra_repr


NORMS |= {"rms": RMSNorm, "layer": LayerNorm}


def dropout(fraction: float) -> Callable[[Tensor], Tensor]:
    """A layer that drops this fraction of its input in training, or nothing at 0."""
    return nn.Dropout(fraction) if fraction else unchanged


@contextmanager
def evaluation_mode(model: nn.Module, modules: Sequence[nn.Module] = ()) -> Iterator[None]:
    """Run with dropout off and without gradients; afterwards every submodule is in its old mode.

    modules: `list(model.modules())`, collected once by a caller that enters this mode often.
    """
    training = [module for module in modules or model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
