"""Lesson 09: two parts, each of which reads a normalized copy of the stream and adds to it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts

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
    x: Tensor,
    norm1: Part,
    attention: Part,
    norm2: Part,
    ffn: Part,
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """x (..., T, C) plus attention of norm1 of it, then that plus ffn of norm2 of it, and the
    mistakes that are `on`.
    """
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
        h = _half(x, x, norm1, attention, FIRST, on)
    if "ffn missing" in on:
        return h
    stays = chosen(on, h, {"old x": lambda: x, "x twice": lambda: x + h})
    reads = x if "ffn reads x" in on else h
    if "attention called again" in on:
        reads = _half(x, x, norm1, attention, FIRST)
    if "ffn reads attention alone" in on:
        reads = h - x
    if "averaged" in on:
        return (stays / 2 + ffn(norm2(stays / 2))) / 2
    out = _half(stays, reads, norm2, ffn, SECOND, on)
    if "norm2 at the end" in on:
        out = norm2(out)
    return out.float() if "fp32" in on else out


def _exchanged(
    norm1: Part, attention: Part, norm2: Part, ffn: Part, on: frozenset[str]
) -> tuple[Part, ...]:
    """The four parts in the order in which a block uses them, or exchanged by a mistake that is
    `on`.
    """
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


FIRST = ("first", "norm1", "attention")  # the words for a half in the names of mistakes
SECOND = ("second", "norm2", "ffn")


def _half(
    stays: Tensor,
    reads: Tensor,
    norm: Part,
    part: Part,
    words: tuple[str, ...],
    on: frozenset[str] = frozenset(),
) -> Tensor:
    """stays (..., T, C) plus part of norm of reads (..., T, C), or a mistake of this half that is
    `on`.
    """
    nth, its_norm, its_part = words
    others = {
        f"{nth} residual missing": lambda: part(norm(reads)),
        f"{its_norm} missing": lambda: stays + part(reads),
        f"{its_norm} behind {its_part}": lambda: stays + norm(part(reads)),
        f"{nth} sum normalized": lambda: norm(stays + part(reads)),
        f"{its_norm} on the stream": lambda: (normed := norm(reads)) + part(normed),
        f"{its_norm} twice": lambda: stays + part(norm(norm(reads))),
        f"{its_norm} around {its_part}": lambda: stays + norm(part(norm(reads))),
        f"half of {its_part}": lambda: stays + part(norm(reads)) / 2,
        f"{nth} multiplied": lambda: stays * part(norm(reads)),
        f"{nth} subtracted": lambda: stays - part(norm(reads)),
    }
    made = chosen(on, None, others)
    return stays + part(norm(reads)) if made is None else made


class Recorded:
    """A part that has a name and writes into a list, common to all parts, that it was called."""

    def __init__(self, name: str, formula: Part, calls: list[str]):
        self.__name__ = name
        self.formula = formula
        self.calls = calls

    def __call__(self, x: Tensor) -> Tensor:
        self.calls.append(self.__name__)
        return self.formula(x)


def _recorded(x: Tensor, **parts: Part) -> tuple:
    calls: list[str] = []
    return x, *(Recorded(name, part, calls) for name, part in parts.items())


def _numbers(norm1: str, attention: str, norm2: str, ffn: str) -> Callable[[Generator], tuple]:
    """The block of a single number, 2, with parts that can be followed in the head."""
    return lambda g: (
        torch.tensor([2.0]),
        *(_named(name) for name in (norm1, attention, norm2, ffn)),
    )


def _named(name: str) -> Recorded:
    return Recorded(name, SIMPLE[name], [])


SIMPLE: dict[str, Part] = {
    "halve": lambda x: x / 2,
    "add_ten": lambda x: x + 10,
    "negate": lambda x: -x,
    "square": lambda x: x * x,
    "nothing": lambda x: 0 * x,
}


def _parts(
    g: Generator, c: int, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> dict[str, Part]:
    """Two norms with gains of their own, a causal mean with a map behind it, and a map with an
    activation.
    """
    gain1, gain2 = (0.5 + torch.rand(2, c, generator=g)).to(dtype)
    mix, up, down = (scale * torch.randn(3, c, c, generator=g)).to(dtype)

    def attention(x: Tensor) -> Tensor:
        count = torch.arange(1, 1 + x.shape[-2], dtype=x.dtype)[:, None]
        return (x.cumsum(-2) / count) @ mix + 0.3

    return {
        "norm1": lambda x: gain1 * x / (x.square().mean(-1, keepdim=True) + 0.1).sqrt(),
        "attention": attention,
        "norm2": lambda x: (
            gain2 * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 0.1).sqrt() + 0.2
        ),
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
        Probe(
            "x stays as it is where both parts return 0",
            _numbers("halve", "nothing", "negate", "nothing"),
        ),
        Probe(
            "the first sum is x plus attention of norm1 of x: 2 + (1 + 10)",
            _numbers("halve", "add_ten", "negate", "nothing"),
        ),
        Probe(
            "the second is this sum plus ffn of norm2 of it: 13 + 169",
            _numbers("halve", "add_ten", "negate", "square"),
        ),
        Probe(
            "ffn reads the stream after attention has added to it",
            _numbers("negate", "square", "halve", "add_ten"),
        ),
        Probe("each part is called once, in this order", lambda g: _block(g, 4, 3), sees=_calls),
        Probe("the stream itself is never normalized", lambda g: _block(g, 4, 5)),
        Probe("any leading dimensions are possible", lambda g: _block(g, 2, 3, 5)),
        Probe("any leading dimensions are possible", lambda g: _block(g, 2, 3, 4, 5)),
        Probe(
            "x may have any strides",
            lambda g: (_block(g, 5, 4, 3)[0].transpose(0, 2), *_block(g, 4, 5)[1:]),
        ),
        Probe(
            "gradients reach x along the stream and through both parts",
            lambda g: _block(g, 2, 4, 3),
            gradients=True,
        ),
        Probe("fp64 stays fp64", lambda g: _block(g, 4, 3, dtype=torch.float64)),
        Probe(
            "bf16 stays bf16",
            lambda g: (
                torch.tensor([2.0, 3.0]).bfloat16(),
                *_numbers("halve", "add_ten", "negate", "square")(g)[1:],
            ),
        ),
    ),
    order=1,
    **texts("pre_norm_block"),
)

EXERCISES = (PRE_NORM_BLOCK,)
