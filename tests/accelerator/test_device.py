"""The simulated accelerator refuses, waits and counts as a GPU does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerator import DEVICE, memory, reads
from torch import Tensor


def x() -> Tensor:
    """[[0, 1, 2], [3, 4, 5]] on the device."""
    return torch.arange(6.0, device=DEVICE).view(2, 3)


REFUSED: dict[str, Callable[[], Any]] = {
    "a product": lambda: x() @ torch.ones(3, 2),
    "a place to write": lambda: torch.add(x(), 1, out=torch.ones(2, 3)),
    "an index of a CPU tensor": lambda: torch.ones(3)[torch.arange(2, device=DEVICE)],
    "a list": lambda: torch.stack([x()[0, 0], torch.ones(())]),
    "a generator": lambda: x().normal_(generator=torch.Generator()),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_two_devices_do_not_mix(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"got tensors on simulated, and a \w+ on the CPU"):
        call()


def test_a_number_an_index_and_a_copy_may_come_from_the_cpu() -> None:
    y = x() * torch.tensor(2.0)
    y[torch.tensor([1])] = 7
    y[0].copy_(torch.ones(3))
    y[:, 2].normal_(generator=torch.Generator(DEVICE).manual_seed(5)).mul_(0)
    assert y.device == DEVICE and reads == []
    assert y.tolist() == [[1, 1, 0], [7, 7, 0]]


READ: dict[str, Callable[[], Any]] = {
    "a number": lambda: x()[0, 1].item(), "a condition": lambda: bool((x() > 1).any()),
    "a list": lambda: x().tolist(), "all numbers": lambda: x().cpu(), "a copy": lambda: torch.ones(2, 3).copy_(x()),
    "a boolean index": lambda: x()[x() > 1], "where": lambda: (x() > 1).nonzero(), "equal": lambda: x().equal(x()),
}  # fmt: skip


@pytest.mark.parametrize("call", READ.values(), ids=READ)
def test_what_makes_a_program_wait_is_noted_with_its_line(call: Callable[[], Any]) -> None:
    call()
    assert [read.line for read in reads] == [f"test_device.py:{call.__code__.co_firstlineno}"]


def test_what_stays_on_the_device_makes_nobody_wait() -> None:
    with torch.inference_mode():
        y = x().requires_grad_(False).softmax(-1).sort(dim=-1).values.half()
        y.narrow(0, 1, 1).add_(1)
    w = x().requires_grad_()
    (w.where(w > 2, 0.0)[:, torch.tensor([0, 2], device=DEVICE)] ** 2).sum().backward()
    assert y.device == w.grad.device == DEVICE and reads == []
    assert w.grad.tolist() == [[0, 0, 0], [6, 0, 10]]


def test_a_shape_is_never_another_one_than_that_of_the_numbers() -> None:
    assert torch.eye(2, 3, device=DEVICE).tolist() == torch.eye(2, 3).tolist() and torch.eye(2, device=DEVICE).ndim == 2
    with pytest.raises(NotImplementedError, match=r"unsqueeze_.* changes a shape in place: simulated cannot do that"):
        x().unsqueeze_(0)


def test_bytes_are_counted_once_and_until_they_are_freed() -> None:
    before = memory.forget_peak()
    y = torch.zeros(10, 10, device=DEVICE)
    views = [y, y.view(100), y[2:], y.detach(), y.add_(1)]
    assert memory.now - before == 400 == memory.peak - before
    z = y.double()
    assert memory.now - before == 1200
    del z
    assert memory.now - before == 400 and memory.peak - before == 1200
    del y, views
    assert memory.now == before
