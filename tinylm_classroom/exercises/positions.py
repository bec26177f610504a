"""Lesson 06: the position of a token, as waves that are added or as angles to rotate by."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts


def _angles(positions: Tensor, d: int, base: float, on: frozenset[str]) -> Tensor:
    """position * base^(-2i/d) for i = 0 .. d/2 - 1, in fp64: (T, d/2)."""
    i = torch.arange(d // 2, dtype=torch.float64) + ("frequencies from one" in on)
    exponents = chosen(on, 2 * i / d, {
        "half the exponent": lambda: i / d,
        "twice the exponent": lambda: 4 * i / d,
        "by d - 1": lambda: 2 * i / (d - 1),
        "odd exponents": lambda: (2 * i + 1) / d,
        "up to 1": lambda: i / max(d / 2 - 1, 1),
        "no exponent": lambda: 0 * i,
    })  # fmt: skip
    exponents = slipped(on, exponents, {"growing": torch.neg})
    speeds = chosen(on, base**-exponents, {
        "log10": lambda: torch.exp(-exponents * math.log10(base)),
        "times, not power": lambda: 1 / (base * exponents),
    })  # fmt: skip
    speeds = slipped(on, speeds, {"slowest first": lambda s: s.flip(0)})
    angles = (positions + ("positions from one" in on))[:, None] * speeds
    return slipped(on, angles, {"degrees": torch.deg2rad, "full turns": lambda a: a * 2 * math.pi})


def sinusoidal(n: int, d: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows [sin a_0, cos a_0, sin a_1, cos a_1, ...] with a_i = p * 10000^(-2i/d), and the
    mistakes that are `on`.

    Returns (n, d), a row for each position p = 0 .. n - 1.
    """
    base = chosen(on, 1e4, {
        "no base": lambda: math.e,
        "a zero less": lambda: 1e3,
        "a zero more": lambda: 1e5,
    })  # fmt: skip
    angles = _angles(torch.arange(n), d, base, on)
    sin = angles.sin()
    cos = angles.cos()
    if "own speed for each" in on:
        each = torch.arange(n)[:, None] * base ** (-torch.arange(d, dtype=torch.float64) / d)
        sin = each[:, 0::2].sin()
        cos = each[:, 1::2].cos()
    sin, cos = chosen(on, (sin, cos), {
        "only sin": lambda: (sin, sin),
        "only cos": lambda: (cos, cos),
        "cos first": lambda: (cos, sin),
    })  # fmt: skip
    rows = (
        torch.cat((sin, cos), -1) if "two blocks" in on else torch.stack((sin, cos), -1).flatten(-2)
    )
    if "first row zero" in on:
        rows[0] = 0
    return rows.float()


def rotate(x: Tensor, positions: Tensor, base: float, on: frozenset[str] = frozenset()) -> Tensor:
    """Rotates the pairs (0, 1), (2, 3), ... of x (..., T, D) by position * base^(-2i/D), and the
    mistakes that are `on`.

    positions (T,): integers. Returns (..., T, D) in the dtype of x.
    """
    D = x.shape[-1]
    positions = _places(x, positions, on)
    angles = _angles(positions, D, 10_000.0 if "fixed base" in on else base, on)
    if "angles rounded" in on:
        angles = angles.to(x.dtype).double()
    if "all rounded" in on:
        speeds = _angles(torch.ones(1), D, base, on).to(x.dtype)
        angles = (positions.to(x.dtype)[:, None] * speeds).double()
    cos = angles.cos()
    sin = -angles.sin() if "backwards" in on else angles.sin()
    if "sin and cos exchanged" in on:
        cos, sin = sin, cos
    if "half turned" in on:
        cos = cos.clone()
        sin = sin.clone()
        cos[:, D // 4 :] = 1
        sin[:, D // 4 :] = 0
    if on & {"mixed", "mixed the other way"}:
        return _mixed(x, cos, sin, on).to(x.dtype)
    a, b = x.chunk(2, -1) if "halves" in on else (x[..., 0::2], x[..., 1::2])
    first = a * cos - b * sin
    second = a * sin + b * cos
    first, second = chosen(on, (first, second), {
        "no minus": lambda: (a * cos + b * sin, second),
        "two minus": lambda: (first, a * sin - b * cos),
        "overwritten": lambda: (first, first * sin + b * cos),
        "only cos": lambda: (a * cos, b * cos),
        "no partner": lambda: (a * (cos + sin), b * (cos + sin)),
        "added": lambda: (a + sin, b + cos),
        "outputs exchanged": lambda: (second, first),
    })  # fmt: skip
    in_blocks = ("halves" in on) != ("in blocks" in on)
    out = (
        torch.cat((first, second), -1)
        if in_blocks
        else torch.stack((first, second), -1).flatten(-2)
    )
    return out if "stays wide" in on else out.to(x.dtype)


def _places(x: Tensor, positions: Tensor, on: frozenset[str]) -> Tensor:
    """The positions that the rows are thought to have."""
    T = x.shape[-2]
    return chosen(on, positions, {
        "never turned": lambda: torch.zeros(T),
        "by row": lambda: torch.arange(T),
        "consecutive": lambda: positions[0] + torch.arange(T),
        "from the first": lambda: positions - positions[0],
        "one position": lambda: positions[:1].expand(T),
        "without sign": positions.abs,
        "never negative": lambda: positions.clamp(min=0),
        "positions rounded": lambda: positions.to(x.dtype).double(),
    })  # fmt: skip


def _mixed(x: Tensor, cos: Tensor, sin: Tensor, on: frozenset[str]) -> Tensor:
    """Tables of one layout with the partners of the other."""
    a, b = x.chunk(2, -1)
    if "mixed" in on:
        return x * cos.repeat_interleave(2, -1) + torch.cat((-b, a), -1) * sin.repeat_interleave(
            2, -1
        )
    partner = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return x * torch.cat((cos, cos), -1) + partner * torch.cat((sin, sin), -1)


def _as_fp32(arguments: tuple, result: object) -> object:
    """The precision of a table is left open."""
    return result.float() if isinstance(result, Tensor) and result.is_floating_point() else result


def _table(holds: str, n: int, d: int) -> Probe:
    return Probe(holds, lambda g: (n, d), sees=_as_fp32)


SINUSOIDAL = Exercise(
    name="sinusoidal",
    lesson="06",
    reference=sinusoidal,
    probes=(
        _table("position 0 is 0, 1, 0, 1 and so on", 1, 6),
        _table("the first pair rotates by 1 radian per position", 3, 2),
        _table("with d = 4 the second pair is 100 times slower", 2, 4),
        _table("the sine and the cosine of one angle are neighbours", 4, 6),
        _table("with d = 8 each pair is 10 times slower than the one before", 5, 8),
        _table("pair i has the frequency 10000^(-2i/d)", 3, 12),
        _table("pair i has the frequency 10000^(-2i/d)", 7, 10),
        _table("pair i has the frequency 10000^(-2i/d)", 40, 64),
        _table("a table may have thousands of rows", 6001, 4),
    ),
    **texts("sinusoidal"),
    wider=True,
)


def _at(x: list[float], *positions: int) -> tuple[Tensor, Tensor, float]:
    return torch.tensor([x]), torch.tensor(positions), 10_000.0


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


ROTATE = Exercise(
    name="rotate",
    lesson="06",
    reference=rotate,
    probes=(
        Probe(
            "at position 1 the first pair rotates by 1 radian",
            lambda g: _at([1.0, 0.0, 0.0, 0.0], 1),
        ),
        Probe("a pair is two neighbours", lambda g: _at([0.0, 1.0, 1.0, 0.0], 1)),
        Probe("position 0 changes nothing", lambda g: _at([1.0, 2.0, 3.0, 4.0], 0)),
        Probe(
            "each row rotates to its own position",
            lambda g: (_x(g, 3, 6), torch.tensor([4, 0, 9]), 10_000.0),
        ),
        Probe(
            "pair i has the frequency base^(-2i/D)",
            lambda g: (_x(g, 2, 12), torch.tensor([7, 2]), 10_000.0),
        ),
        Probe("the base is an argument", lambda g: (_x(g, 3, 8), torch.tensor([5, 6, 8]), 50.0)),
        Probe(
            "any leading axes", lambda g: (_x(g, 3, 5, 4), torch.tensor([1, 0, 3, 2, 11]), 100.0)
        ),
        Probe(
            "any leading axes", lambda g: (_x(g, 2, 3, 4, 6), torch.tensor([2, 3, 5, 11]), 10_000.0)
        ),
        Probe(
            "any leading axes",
            lambda g: (_x(g, 2, 1, 3, 5, 8), torch.tensor([6, 7, 8, 9, 10]), 1e6),
        ),
        Probe(
            "positions may be large",
            lambda g: (_x(g, 3, 6), torch.tensor([99_999, 5, 70_000]), 10_000.0),
            tolerance=1e-2,
        ),
        Probe(
            "positions may be negative",
            lambda g: (_x(g, 2, 4, 6), torch.tensor([-3, 5, -40, 2]), 10_000.0),
        ),
        Probe(
            "any strides",
            lambda g: (_x(g, 2, 4, 3, 6).transpose(1, 2), torch.tensor([3, 1, 4, 15]), 10_000.0),
        ),
        Probe(
            "gradients reach x",
            lambda g: (_x(g, 2, 3, 4), torch.tensor([1, 8, 3]), 10_000.0),
            gradients=True,
        ),
        Probe(
            "fp64 stays fp64",
            lambda g: (_x(g, 3, 6).double(), torch.tensor([9, 1, 7]), 10_000.0),
            tolerance=1e-4,
        ),
        Probe(
            "bf16 in, bf16 out, and angles that are finer than bf16",
            lambda g: (_x(g, 3, 6).bfloat16(), torch.tensor([1001, 5, 773]), 10_000.0),
            tolerance=5e-2,
        ),
    ),
    **texts("rotate"),
)

EXERCISES = (SINUSOIDAL, ROTATE)
