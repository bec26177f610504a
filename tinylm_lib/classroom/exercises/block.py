"""Lesson 09: two parts that each read a normalized copy of the stream and add to the stream itself."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts

Part = Callable[[Tensor], Tensor]

TOGETHER = {  # one mistake that is made in both halves
    "post-norm": {"first sum normalized", "second sum normalized"},
    "no residuals": {"first residual missing", "second residual missing"},
    "no norms": {"norm1 missing", "norm2 missing"},
    "norms behind the parts": {"norm1 behind attention", "norm2 behind ffn"},
    "norms around the parts": {"norm1 around attention", "norm2 around ffn"},
    "parts halved": {"half of attention", "half of ffn"},
    "normalized stream": {"norm1 on the stream", "norm2 on the stream"},
    "one residual around both": {"first residual missing", "old x"},
}


def pre_norm_block(
    x: Tensor, norm1: Part, attention: Part, norm2: Part, ffn: Part, on: frozenset[str] = frozenset()
) -> Tensor:
    """x (..., T, C) plus attention of norm1 of it, then that plus ffn of norm2 of it, and the mistakes that are `on`."""
    on = on.union(*(parts for name, parts in TOGETHER.items() if name in on))
    norm1, attention, norm2, ffn = _exchanged(norm1, attention, norm2, ffn, on)
    if "ffn reads the first copy" in on:
        copy = norm1(x)
        h = x + attention(copy)
        return h + ffn(norm2(copy))
    if "stream cut" in on:
        h = x.detach() + attention(norm1(x))
    elif "in place" in on:
        x += attention(norm1(x))
        h = x
    elif "attention missing" in on:
        h = x
    else:
        h = _half(x, x, norm1, attention, [name in on for name in FIRST])
    if "ffn missing" in on:
        return h
    stays = x if "old x" in on else x + h if "x twice" in on else h
    reads = x if "ffn reads x" in on else h
    if "attention called again" in on:
        reads = _half(x, x, norm1, attention)
    if "ffn reads attention alone" in on:
        reads = h - x
    if "averaged" in on:
        return (stays / 2 + ffn(norm2(stays / 2))) / 2
    out = _half(stays, reads, norm2, ffn, [name in on for name in SECOND])
    if "norm2 at the end" in on:
        out = norm2(out)
    return out.float() if "fp32" in on else out


def _exchanged(norm1: Part, attention: Part, norm2: Part, ffn: Part, on: frozenset[str]) -> tuple[Part, ...]:
    """The four parts in the order in which a block uses them, or exchanged by a mistake that is `on`."""
    if "norm1 for both" in on:
        norm2 = norm1
    if "norm2 for both" in on:
        norm1 = norm2
    if "norms swapped" in on:
        norm1, norm2 = norm2, norm1
    if "ffn first" in on:
        attention, ffn = ffn, attention
    if "halves swapped" in on:
        norm1, attention, norm2, ffn = norm2, ffn, norm1, attention
    return norm1, attention, norm2, ffn


FIRST = (
    "first residual missing",
    "norm1 missing",
    "norm1 behind attention",
    "first sum normalized",
    "norm1 on the stream",
    "norm1 twice",
    "norm1 around attention",
    "half of attention",
    "first multiplied",
    "first subtracted",
)
SECOND = (
    "second residual missing",
    "norm2 missing",
    "norm2 behind ffn",
    "second sum normalized",
    "norm2 on the stream",
    "norm2 twice",
    "norm2 around ffn",
    "half of ffn",
    "second multiplied",
    "second subtracted",
)


def _half(stays: Tensor, reads: Tensor, norm: Part, part: Part, wrong: list[bool] | None = None) -> Tensor:
    """stays (..., T, C) plus part of norm of reads (..., T, C), or one of the mistakes in FIRST and SECOND."""
    mistakes: list[Callable[[], Tensor]] = [
        lambda: part(norm(reads)),
        lambda: stays + part(reads),
        lambda: stays + norm(part(reads)),
        lambda: norm(stays + part(reads)),
        lambda: (normed := norm(reads)) + part(normed),
        lambda: stays + part(norm(norm(reads))),
        lambda: stays + norm(part(norm(reads))),
        lambda: stays + part(norm(reads)) / 2,
        lambda: stays * part(norm(reads)),
        lambda: stays - part(norm(reads)),
    ]
    made = [mistake for mistake, is_on in zip(mistakes, wrong or [], strict=False) if is_on]
    return made[0]() if made else stays + part(norm(reads))


class Recorded:
    """A part that has a name and writes into a list, common to all parts, that it was called."""

    def __init__(self, name: str, formula: Part, calls: list[str]):
        self.__name__, self.formula, self.calls = name, formula, calls

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(self.__name__)
        return self.formula(x)


def _recorded(x: Tensor, **parts: Part) -> tuple:
    calls: list[str] = []
    return x, *(Recorded(name, part, calls) for name, part in parts.items())


def _numbers(norm1: str, attention: str, norm2: str, ffn: str) -> Callable[[Generator], tuple]:
    """The block of a single number, 2, with parts that can be followed in the head."""
    return lambda g: (torch.tensor([2.0]), *(_named(name) for name in (norm1, attention, norm2, ffn)))


def _named(name: str) -> Recorded:
    return Recorded(name, SIMPLE[name], [])


SIMPLE: dict[str, Part] = {
    "halve": lambda x: x / 2,
    "add_ten": lambda x: x + 10,
    "negate": lambda x: -x,
    "square": lambda x: x * x,
    "nothing": lambda x: 0 * x,
}


def _parts(g: Generator, c: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> dict[str, Part]:
    """Two norms with gains of their own, a causal mean with a map behind it, and a map with an activation."""
    gain1, gain2 = (0.5 + torch.rand(2, c, generator=g)).to(dtype)
    mix, up, down = (scale * torch.randn(3, c, c, generator=g)).to(dtype)

    def attention(x: Tensor) -> Tensor:
        count = torch.arange(1, 1 + x.shape[-2], dtype=x.dtype)[:, None]
        return (x.cumsum(-2) / count) @ mix + 0.3

    return {
        "norm1": lambda x: gain1 * x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt(),
        "attention": attention,
        "norm2": lambda x: gain2 * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 0.1).sqrt() + 0.2,
        "ffn": lambda x: torch.tanh(x @ up) @ down,
    }


def _block(g: Generator, *shape: int, dtype: torch.dtype = torch.float32) -> tuple:
    """x of this shape, and parts."""
    x = 2 * torch.randn(shape, generator=g) + 0.5
    return _recorded(x.to(dtype), **_parts(g, shape[-1], dtype=dtype))


def _calls(arguments: tuple, result: Any) -> list[str]:
    return arguments[1].calls


PRE_NORM_BLOCK = Exercise(
    name="pre_norm_block",
    lesson="09",
    reference=pre_norm_block,
    probes=(
        Probe("where both parts give 0, x passes through unchanged", _numbers("halve", "nothing", "negate", "nothing")),
        Probe("x plus attention of norm1 of x: 2 + (1 + 10)", _numbers("halve", "add_ten", "negate", "nothing")),
        Probe("then the sum plus ffn of norm2 of the sum: 13 + 169", _numbers("halve", "add_ten", "negate", "square")),
        Probe("ffn reads what attention has added to", _numbers("negate", "square", "halve", "add_ten")),
        Probe("each part is called once, in this order", lambda g: _block(g, 4, 3), sees=_calls),
        Probe("the stream itself is never normalized", lambda g: _block(g, 4, 5)),
        Probe("any leading dimensions", lambda g: _block(g, 2, 3, 5)),
        Probe("any leading dimensions", lambda g: _block(g, 2, 3, 4, 5)),
        Probe("any strides", lambda g: (_block(g, 5, 4, 3)[0].transpose(0, 2), *_block(g, 4, 5)[1:])),
        Probe(
            "gradients reach x along the stream and through both parts", lambda g: _block(g, 2, 4, 3), gradients=True
        ),
        Probe("fp64 in, fp64 out", lambda g: _block(g, 4, 3, dtype=torch.float64)),
        Probe(
            "bf16 in, bf16 out",
            lambda g: (torch.tensor([2.0, 3.0]).bfloat16(), *_numbers("halve", "add_ten", "negate", "square")(g)[1:]),
        ),
    ),
    **texts("pre_norm_block"),
)

EXERCISES = (PRE_NORM_BLOCK,)
