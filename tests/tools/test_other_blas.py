"""Products that round as on another machine: how far, which not, the same again, backwards, and in child processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from other_blas import other_blas
from torch import Tensor

pytestmark = pytest.mark.skipif("TINYLM_JITTER" in os.environ, reason="this process rounds otherwise already")
FOLDER = Path(__file__).parents[2] / "tools" / "portable"


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


A, B = numbers(5, 40), numbers(40, 7, seed=1)
PRODUCTS = {
    "mm": (lambda a, b: a @ b, A, B), "bmm": (lambda a, b: a @ b, numbers(3, 5, 40), numbers(3, 40, 7, seed=1)),
    "mv": (lambda a, b: a @ b, A, B[:, 0]), "dot": (lambda a, b: a @ b, A[0], B[:, 0]),
    "linear": (lambda a, b: F.linear(a, b.mT), A, B), "out": (lambda a, b: torch.mm(a, b, out=a.new_empty(5, 7)), A, B),
    "einsum": (lambda a, b: torch.einsum("tc,cf->tf", a, b), A, B),
}  # fmt: skip


@pytest.mark.parametrize(("product", "a", "b"), PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_product_moves_by_a_few_units_in_its_last_places(product, a: Tensor, b: Tensor, dtype: torch.dtype) -> None:
    a, b = a.to(dtype), b.to(dtype)
    plain, size = product(a, b), product(a.abs(), b.abs()).double()
    found = []
    for seed in (1, 2):
        with other_blas(seed):
            found += [product(a, b), product(a, b)]
    assert torch.equal(found[0], found[1]) and torch.equal(found[2], found[3])
    assert plain.numel() == 1 or not torch.equal(found[0], found[2]), "two seeds are two machines"
    moved = (found[0].double() - plain.double()).abs()
    assert moved.any() or plain.numel() == 1
    assert (moved <= 3 * torch.finfo(dtype).eps * size).all()
    assert found[0].dtype == dtype
    assert torch.equal(product(a, b), plain), "torch's own kernels are back"
    with other_blas(1):
        assert not torch.equal(A[:1] @ B, (A @ B)[:1]), "as in a real BLAS, the kernel depends on the shapes"


def test_what_is_added_to_a_product_counts_and_is_not_changed() -> None:
    c = numbers(5, 7, seed=2)
    before = c.clone()
    with other_blas(1):
        y = torch.addmm(c, A, B, beta=2.0, alpha=-3.0)
        z = torch.baddbmm(c[None], A[None], B[None], beta=0.0)
    torch.testing.assert_close(y, 2 * c - 3 * A @ B, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(z[0], A @ B, rtol=1e-4, atol=1e-4)
    assert torch.equal(c, before) and not torch.equal(y, torch.addmm(c, A, B, beta=2.0, alpha=-3.0))


EXACT = {
    "whole numbers": (torch.arange(6.0).view(2, 3), torch.arange(6.0).view(3, 2)),
    "quarters": (torch.tensor([[0.25, 1.5]]), torch.tensor([[0.75], [-2.0]])),
    "one term": (torch.eye(3), numbers(3, 4)),
    "a row of one": (numbers(4, 1), numbers(1, 5, seed=1)),
    "zeros": (torch.zeros(2, 3), numbers(3, 2)),
    "nothing": (torch.zeros(2, 0), torch.zeros(0, 3)),
    "infinity": (torch.tensor([[torch.inf, 1.0]]), torch.tensor([[2.0], [0.3]])),
    "indices": (torch.tensor([[1, 2]]), torch.tensor([[3], [4]])),
}


@pytest.mark.parametrize(("a", "b"), EXACT.values(), ids=EXACT)
def test_what_every_machine_computes_exactly_stays_but_not_large_whole_numbers(a: Tensor, b: Tensor) -> None:
    large = torch.full((2, 3), 9001.0)
    with other_blas(1):
        found, other = a @ b, large @ large.mT
    assert torch.equal(found, a @ b)
    assert not torch.equal(other, torch.full((2, 2), 3 * 9001.0**2))


def gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(*leaves, is_causal=True)
    return out.detach(), *torch.autograd.grad((out * numbers(*out.shape, seed=9)).sum(), leaves)


def test_attention_moves_forwards_and_backwards() -> None:
    q, k, v = (numbers(1, 2, 6, 8, seed=i) for i in range(3))
    plain = gradients(q, k, v)
    with other_blas(1):
        moved, again = gradients(q, k, v), gradients(q, k, v)
    for a, b, c in zip(plain, moved, again, strict=True):
        assert torch.equal(b, c) and not torch.equal(a, b)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert torch.equal(moved[0][:, :, 0], v[:, :, 0]), "the first position copies its own value, on every machine"
    assert torch.equal(F.scaled_dot_product_attention(q, k, v, is_causal=True), plain[0])


SAYS = "import torch; torch.manual_seed(0); print((torch.randn(3, 40) @ torch.randn(40, 2)).tolist())"


def said_by_a_child(seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "TINYLM_JITTER": seed}
    done = subprocess.run([sys.executable, "-c", SAYS], env=environment, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def test_child_processes_are_recognised_by_the_environment() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        a, b = torch.randn(3, 40), torch.randn(40, 2)
    with other_blas(7):
        expected = str((a @ b).tolist())
    assert said_by_a_child("7").strip() == expected
    assert said_by_a_child("").strip() != expected
    assert "invalid literal for int() with base 10: 'many'" in said_by_a_child("many")
