"""Weights in 8 bits: a quarter of the bytes of fp32, for models that only read and write.

Notebook 14.
"""

import copy
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import Embedding, Linear, at_least_fp32, pick

LARGEST = 127
# Up to so many rows torch's own product is faster than F.linear with the weights in full. Source:
# measured on 2 cores, 768 to 3072 features: at 16 rows 0.3 to 0.7 of the time with AVX-512 and 0.4
# to 1.0 with AVX2, at 64 about as much.
MOST_ROWS = 16
# torch's product takes so many numbers of a row at once, or half or a quarter, and reads on behind
# the row
WIDTH = 32
MOST_NUMBERS = 2**31  # older versions of torch count the numbers of a matrix in 32 bits


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row of a matrix to whole multiples of its own step, the row's largest absolute
    value / 127.

    weight (out, in): any floating-point dtype. Returns values (out, in), int8 in -127..127, and
    scale (out,) in fp32, so that values * scale[:, None] differs from the weight by at most half a
    step. No scale is below the smallest normal number, 1.2e-38, so that a row of zeros has one,
    too.
    Raises TypeError for integers, ValueError for another number of axes, for NaN and infinity and
    for weights beyond fp32. Source: Jacob et al. 2018, section 2.1, with zero at 0.
    """
    if not weight.is_floating_point():
        raise TypeError(
            f"only floating-point weights can be quantized, got {weight.dtype}; use weight.float()"
        )
    if weight.ndim != 2 or weight.numel() == 0:
        raise ValueError(
            f"a weight to quantize must be (out, in), got {tuple(weight.shape)}; give one matrix"
        )
    exact = at_least_fp32(weight.detach())
    scale = (
        (exact.abs().amax(1) / LARGEST).float().clamp_min(torch.finfo(torch.float32).tiny)
    )  # (N, K) -> (N)
    if not scale.is_meta and not scale.isfinite().all():
        raise ValueError(
            "the weight holds NaN, infinity or numbers beyond fp32; take a checkpoint from before "
            "that"
        )
    steps = (exact / scale[:, None].to(exact.dtype)).round_().clamp_(-LARGEST, LARGEST)  # (N, K)
    return steps.to(torch.int8), scale


class Int8Weight(nn.Module):
    """The weight (out, in) of a `Linear` or an `Embedding` in 8 bits: F.linear and F.embedding work
    on it.

    values (out, in), int8, and scale (out,), which stays in fp32. `dtype` is that of the weight
    that it was made of: embeddings and products have it, `.to`, `.half()` and the like change it.
    On a CPU with vector instructions a product of few rows is torch's own, with x in bf16: it reads
    nothing but the 8 bits. All other products use the weight in full, made for the time of the
    product.
    passes_gradients: whether x may need a gradient, which `add_lora` sets: the weight itself never
    gets one.
    """

    passes_gradients = False
    values: Tensor
    scale: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        self.register_buffer("values", None)
        self.register_buffer("scale", None)
        self.hold(weight)
        self.training = False

    def hold(self, weight: Tensor) -> None:
        """Hold this weight (out, in) from now on, rounded.

        Raises TypeError or ValueError as `quantize_int8`.
        """
        self.values, self.scale = quantize_int8(weight)
        self.dtype = weight.dtype

    @property
    def shape(self) -> torch.Size:
        """(out, in)."""
        return self.values.shape

    @property
    def device(self) -> torch.device:
        """Where the weight is."""
        return self.values.device

    def numel(self) -> int:
        """How many numbers the weight has."""
        return self.values.numel()

    def dequantized(self) -> Tensor:
        """The weight in full, (out, in)."""
        return self._full(self.values, self.scale)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x (..., in).

        Returns (..., out). Raises ValueError where x needs a gradient and none may pass.
        """
        differentiable = x.requires_grad and torch.is_grad_enabled()
        if differentiable and not self.passes_gradients:
            raise ValueError(
                "weights in 8 bits have no gradients; use torch.no_grad(), or train the model in "
                "full"
            )
        if differentiable or not self._suits_torch(x):
            return F.linear(x, self.dequantized(), bias)
        brief = x.reshape(-1, x.shape[-1])  # (..., K) -> (M, K)
        # a copy is aligned, too
        brief = brief.to(torch.bfloat16, copy=True, memory_format=torch.contiguous_format)
        y = torch._weight_int8pack_mm(
            brief, self.values, brief.new_ones(len(self.scale))
        )  # (M, K) -> (M, N)
        y = (y * self.scale).to(self.dtype).view(*x.shape[:-1], -1)  # (M, N) -> (..., N)
        return y if bias is None else y + bias

    def embedding(self, ids: Tensor) -> Tensor:
        """ids (...). Returns (..., in)."""
        return self._full(
            F.embedding(ids, self.values), F.embedding(ids, self.scale[:, None]).squeeze(-1)
        )

    def _full(self, values: Tensor, scale: Tensor) -> Tensor:
        return (values * scale[..., None].to(torch.promote_types(self.dtype, torch.float32))).to(
            self.dtype
        )

    def _suits_torch(self, x: Tensor) -> bool:
        """Whether torch's own product takes x (..., in), and is faster."""
        if (
            torch.compiler.is_compiling()
            or x.device.type != "cpu"
            or torch.is_autocast_enabled("cpu")
        ):
            return False
        n_out, n_in = self.values.shape
        if x.dtype != self.dtype or self.dtype.itemsize > 4 or x.shape[-1] != n_in or n_in % WIDTH:
            return False
        aligned = self.values.data_ptr() % WIDTH == 0 and n_out * n_in < MOST_NUMBERS
        return aligned and 0 < x.numel() <= MOST_ROWS * n_in and has_int8_product()

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What torch calls for a function of a weight in 8 bits.

        Raises TypeError for all but those of FUNCTIONS.
        """
        options = kwargs or {}
        known = func in FUNCTIONS and len(args) > 1 and isinstance(args[1], cls)
        if not known or options.get("max_norm") is not None:  # which would change the weights
            name = getattr(func, "__name__", func)
            raise TypeError(
                f"{name} does not work on weights in 8 bits; give it weight.dequantized()"
            )
        return FUNCTIONS[func](*args, **options)

    def train(self, mode: bool = True) -> "Int8Weight":
        """Only evaluation mode is possible, except where gradients pass.

        Raises ValueError for training mode.
        """
        if mode and not self.passes_gradients:
            raise ValueError(
                "a model with weights in 8 bits cannot be trained; train the one it was made of"
            )
        return super().train(mode)

    def _apply(self, fn: Callable, recurse: bool = True) -> "Int8Weight":
        # What `to` and its relatives call. They cast floating-point tensors alone, and so the scale
        # comes as integers.
        values = fn(self.values)
        bits = fn(self.scale.view(torch.int32))
        if (values.dtype, bits.dtype) != (torch.int8, torch.int32):
            raise TypeError(
                f"weights in 8 bits stay int8 (got {values.dtype}); use .to(dtype), which casts "
                "the rest"
            )
        self.dtype = fn(torch.empty(0, dtype=self.dtype, device=self.device)).dtype
        self.values = values
        self.scale = bits.view(torch.float32)
        return self

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"{self.values.shape[0]}, {self.values.shape[1]}, {self.dtype}"


FUNCTIONS: dict[Callable, Callable] = {
    F.linear: lambda x, weight, bias=None: weight.linear(x, bias),
    F.embedding: lambda ids, weight, *_, **about_gradients: weight.embedding(ids),
}
QUANTIZED = {"int8": Int8Weight}


@cache
def has_int8_product() -> bool:
    """Whether torch has a product with int8 that is vectorised and right here.

    It is not a public part of torch.
    """
    vectorised = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    vectorised = vectorised or platform.machine() in ("arm64", "aarch64")
    if not vectorised or sys.platform == "win32" or not hasattr(torch, "_weight_int8pack_mm"):
        return False
    values = (
        (torch.arange(5 * WIDTH, dtype=torch.int32) * 37 % 255 - LARGEST)
        .to(torch.int8)
        .view(5, WIDTH)
    )
    x = (values[:3] % 7).to(torch.bfloat16)  # small whole numbers: their products are exact
    try:
        product = torch._weight_int8pack_mm(x, values, torch.ones(5, dtype=torch.bfloat16))
    except (RuntimeError, TypeError):
        return False
    return torch.equal(product, (x.float() @ values.float().T).to(torch.bfloat16))


def quantize_model(model: nn.Module, quantize: str = "int8") -> Any:
    """A copy whose matrices are in 8 bits, about a quarter of the bytes of fp32; the model itself
    stays as it is.

    quantize: a name of QUANTIZED. The weights of every `Linear` and `Embedding` become
    `Int8Weight`; gains, biases and learned positions keep their dtype, without gradients. Besides
    the two models only one matrix is held in full.
    Raises ValueError, naming it, for a weight that cannot be quantized, and for a model in training
    mode or one that is quantized already.
    """
    kind = pick(QUANTIZED, quantize, "quantize")
    if any(module.training for module in model.modules()):
        raise ValueError(
            "a model in training mode cannot be quantized; train it to the end, then use "
            "model.eval()"
        )
    refuse_quantized(model, "quantize_model")
    memo: dict[int, Any] = {}  # what deepcopy takes where it meets a matrix
    for name, module in model.named_modules():
        if isinstance(module, Linear | Embedding):
            try:
                memo[id(module.weight)] = kind(module.weight)
            except (ValueError, TypeError) as e:
                raise type(e)(f"{name}.weight: {e}") from None
    small = copy.deepcopy(model, memo).requires_grad_(False)
    for module in small.modules():
        if isinstance(module, Linear | Embedding):
            module.weight = module._parameters.pop("weight")  # it is a module now, not a parameter
    return small


def refuse_quantized(model: nn.Module, what: str) -> None:
    """Raise ValueError for a model with quantized weights. what: the function that needs them in
    full.
    """
    if any(isinstance(module, Int8Weight) for module in model.modules()):
        raise ValueError(
            f"{what} needs weights in full, and this model's are in 8 bits; give the one it was "
            "made of"
        )
