"""Lets the matrix products and the attention of PyTorch on a CPU round as those of another machine
do.

Another BLAS adds up a product in another order, so its last digits differ. Here each result moves
by a random number of up to two eps(dtype) times |A| @ |B|, in half precision to a neighbour,
forwards and backwards. The number depends on a seed, the shapes and the result alone, so the same
product gives the same bits again. What every BLAS computes exactly stays as it is: sums of one
term, and sums of whole numbers (or sixty-fourths) that the dtype can hold.

The environment variable TINYLM_JITTER holds the seed. With this folder on PYTHONPATH, torch itself
calls `start` in every process that imports it, child processes and notebook kernels included (its
entry points "torch.backends").
Source of the bound: Higham 2002, *Accuracy and Stability of Numerical Algorithms*, section 3.5.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

EPS = 2.0  # so many eps(dtype) at most
# binary digits in which sums are kept; half precision sums in fp32
DIGITS = {torch.float64: 53, torch.float32: 24}
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}

# a (..., M, K), b (..., K, N) and what is added to a @ b
Factors = tuple[Tensor, Tensor, Tensor | None]


def _plus(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Factors:
    if alpha != 1:
        a = alpha * a
    if beta == 0:
        return a, b, None
    return a, b, c if beta == 1 else beta * c


def _vectors(a: Tensor, b: Tensor) -> Factors:
    return a[None], b[:, None], None


def _matrix_and_vector(
    c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Factors:
    a, b, c = _plus(c, a, b[:, None], beta=beta, alpha=alpha)
    return a, b, None if c is None else c[..., None]


PRODUCTS = {
    "mm": lambda a, b: (a, b, None),
    "bmm": lambda a, b: (a, b, None),
    "addmm": _plus,
    "baddbmm": _plus,
    "addmv": _matrix_and_vector,
    "dot": _vectors,
    "vdot": _vectors,
}
VARIANTS = (
    *("mm", "mm.out", "bmm", "bmm.out"),
    *("addmm", "addmm.out", "addmm_", "baddbmm", "baddbmm.out", "baddbmm_"),
    *("addmv", "addmv.out", "addmv_", "dot", "vdot"),
)
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


@lru_cache(maxsize=256)
def _places(n: int, dtype: torch.dtype) -> Tensor:
    return torch.arange(n, dtype=dtype) * 0x1E3779B9


def noise(like: Tensor, seed: int, *sizes: int) -> Tensor:
    """Random numbers from -1 to 1, in the shape of `like` (...), made of its bits, places, the seed
    and the sizes.
    """
    integer, shift = (torch.int64, 32) if like.element_size() == 8 else (torch.int32, 16)
    bits = like.contiguous().view(BITS[like.element_size()]).to(integer)
    x = bits + _places(like.numel(), integer).view(like.shape)
    x ^= hash((seed, *like.shape, *sizes)) & 0x7FFFFFFF
    for factor in (0x7FEB352D, 0x46CA68B5):  # a 32-bit mixer, in signed numbers
        x ^= x >> shift
        x *= factor
    x ^= x >> shift
    return x.to(torch.promote_types(like.dtype, torch.float32)).mul_(
        0.5 ** (31 if shift == 16 else 63)
    )


def moved(result: Tensor, factors: Factors, product: Any, seed: int) -> Tensor:
    """The result (...) of a product as another machine would round it."""
    a, b, c = factors
    sums = torch.promote_types(result.dtype, torch.float32)
    size = product(a.to(sums).abs(), b.to(sums).abs())
    if c is None:
        single = (a.count_nonzero(-1) <= 1)[..., :, None] | (b.count_nonzero(-2) <= 1)[..., None, :]
        size.masked_fill_(single, 0)
    else:
        size = size + c.to(sums).abs()
    size = size.view(result.shape)
    if None not in (fractions := [0 if x is None else _fraction(x) for x in factors]):
        size.masked_fill_(size < 2.0 ** (DIGITS[sums] - 2 * max(fractions)), 0)  # exact
    size.masked_fill_(~size.isfinite(), 0)
    # half precision: sums are kept in fp32, then a third go to a neighbour
    if result.dtype != sums:
        size = result.to(sums).abs().masked_fill_(size == 0, 0) / (2 * EPS)
    unit = EPS * torch.finfo(result.dtype).eps
    return torch.addcmul(result.to(sums), noise(result, seed, *a.shape), size, value=unit)


def _fraction(x: Tensor) -> int | None:
    """How many binary digits behind the point the numbers of x (...) have, if few."""
    if not x.numel() or (x[(0,) * (x.ndim - 1)][:16] * 64).frac().any():  # most products end here
        return None if x.numel() else 0
    return next((n for n in (0, 3, 6) if not (x * 2**n).frac().any()), None)


def _relative(x: Tensor, seed: int, number: int) -> Tensor:
    """x (...) with each number moved by a few eps of its own size, unless all are whole."""
    if _fraction(x) is not None or not x.isfinite().all():
        return x
    unit = torch.finfo(x.dtype).eps * (EPS if x.element_size() > 2 else 0.5)
    return x + x * noise(x, seed, number).mul_(unit).to(x.dtype)


class OtherBlas:
    """The changed operators of this process, until `end`."""

    def __init__(self, seed: int):
        self.seed = seed
        self.library = torch.library.Library("aten", "IMPL")
        self.kernels = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that kernels are overridden
            for name in VARIANTS:
                self._override(name, self._product(name.partition(".")[0].rstrip("_")))
            self._override(ATTENTION, self._attention)
            self._override(f"{ATTENTION}_backward", self._attention_backward)

    def _override(self, name: str, function: Any) -> None:
        kernel = self.kernels[name] = torch.library.get_kernel(f"aten::{name}", "CPU")

        def changed(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            return function(
                lambda *a, **k: kernel.call_boxed(keyset, *a, **k), keyset, *args, **kwargs
            )

        self.library.impl(name, changed, "CPU", with_keyset=True, allow_override=True)

    def _product(self, name: str) -> Any:
        def product(
            kernel: Any, keyset: Any, *args: Tensor, out: Tensor | None = None, **scalars: float
        ) -> Tensor:
            to = {} if out is None else {"out": out}
            if not args[0].is_floating_point() or not args[-1].numel() or not args[-2].numel():
                return kernel(*args, **scalars, **to)
            # the first may be written into
            factors = PRODUCTS[name](args[0].clone(), *args[1:], **scalars)
            result = kernel(*args, **scalars, **to)
            plain = self.kernels["bmm" if factors[0].ndim == 3 else "mm"]
            return result.copy_(
                moved(result, factors, lambda a, b: plain.call_boxed(keyset, a, b), self.seed)
            )

        return product

    def _attention(
        self, kernel: Any, keyset: Any, q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        out, _ = kernel(q, k, v, *args, **kwargs)
        moved_out, log_sum = kernel(*self._all_moved(q, k, v), *args, **kwargs)
        allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
        if (args[1:2] or [kwargs.get("is_causal", False)])[0]:
            allowed = allowed.tril()
        if (mask := kwargs.get("attn_mask")) is not None:
            allowed = allowed & (mask if mask.dtype == torch.bool else mask > -torch.inf)
        single = allowed.sum(-1, keepdim=True) <= 1  # a copy of one value, on every machine
        return out.copy_(torch.where(single, out, moved_out)), log_sum

    def _attention_backward(
        self,
        kernel: Any,
        keyset: Any,
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return kernel(*self._all_moved(grad, q, k, v), *args, **kwargs)

    def _all_moved(self, *tensors: Tensor) -> list[Tensor]:
        return [_relative(x, self.seed, i) for i, x in enumerate(tensors)]

    def end(self) -> None:
        """Put torch's own kernels back."""
        self.library._destroy()


@contextmanager
def other_blas(seed: int) -> Iterator[None]:
    """Within the block products round as those of another machine, one for each seed."""
    changed = OtherBlas(seed)
    try:
        yield
    finally:
        changed.end()


started: list[OtherBlas] = []  # torch forgets kernels whose library is gone


def start() -> None:
    """Round differently from here on if TINYLM_JITTER holds a seed.

    Raises ValueError if it is not a whole number.
    """
    if seed := os.environ.get("TINYLM_JITTER"):
        started.append(OtherBlas(int(seed)))
