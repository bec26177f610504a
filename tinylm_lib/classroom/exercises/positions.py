"""Lesson 06: where a token stands, as waves that are added or as angles to turn by."""

import math

import torch
from torch import Generator, Tensor

from .base import Exercise, Fault, Probe


def _angles(positions: Tensor, d: int, base: float, on: frozenset[str]) -> Tensor:
    """position * base^(-2i/d) for i = 0 .. d/2 - 1, in fp64: (T, d/2)."""
    i = torch.arange(d // 2, dtype=torch.float64) + ("frequencies from one" in on)
    exponents = 2 * i / d
    if "half the exponent" in on:
        exponents = i / d
    if "twice the exponent" in on:
        exponents = 4 * i / d
    if "by d - 1" in on:
        exponents = 2 * i / (d - 1)
    if "odd exponents" in on:
        exponents = (2 * i + 1) / d
    if "up to 1" in on:
        exponents = i / max(d / 2 - 1, 1)
    if "no exponent" in on:
        exponents = 0 * i
    if "growing" in on:
        exponents = -exponents
    speeds = torch.exp(-exponents * math.log10(base)) if "log10" in on else base**-exponents
    if "times, not power" in on:
        speeds = 1 / (base * exponents)
    if "slowest first" in on:
        speeds = speeds.flip(0)
    if "positions from one" in on:
        positions = positions + 1
    angles = positions[:, None] * speeds
    return angles * math.pi / 180 if "degrees" in on else angles * 2 * math.pi if "full turns" in on else angles


def sinusoidal(n: int, d: int, on: frozenset[str] = frozenset()) -> Tensor:
    """The rows [sin a_0, cos a_0, sin a_1, cos a_1, ...] with a_i = p * 10000^(-2i/d), and the mistakes that are `on`.

    Returns (n, d), a row for each position p = 0 .. n - 1.
    """
    base = math.e if "no base" in on else 1000.0 if "a zero less" in on else 100_000.0 if "a zero more" in on else 1e4
    angles = _angles(torch.arange(n), d, base, on)
    sin, cos = angles.sin(), angles.cos()
    if "own speed for each" in on:
        each = torch.arange(n)[:, None] * base ** (-torch.arange(d, dtype=torch.float64) / d)
        sin, cos = each[:, 0::2].sin(), each[:, 1::2].cos()
    if "only sin" in on:
        cos = sin
    if "only cos" in on:
        sin = cos
    if "cos first" in on:
        sin, cos = cos, sin
    rows = torch.cat((sin, cos), -1) if "two blocks" in on else torch.stack((sin, cos), -1).flatten(-2)
    if "first row zero" in on:
        rows[0] = 0
    return rows.float()


def rotate(x: Tensor, positions: Tensor, base: float, on: frozenset[str] = frozenset()) -> Tensor:
    """Turns the pairs (0, 1), (2, 3), ... of x (..., T, D) by position * base^(-2i/D), and the mistakes that are `on`.

    positions (T,): integers. Returns (..., T, D) in the dtype of x.
    """
    D, positions = x.shape[-1], _places(x, positions, on)
    angles = _angles(positions, D, 10_000.0 if "fixed base" in on else base, on)
    if "angles rounded" in on:
        angles = angles.to(x.dtype).double()
    if "all rounded" in on:
        speeds = _angles(torch.ones(1), D, base, on).to(x.dtype)
        angles = (positions.to(x.dtype)[:, None] * speeds).double()
    cos, sin = angles.cos(), -angles.sin() if "backwards" in on else angles.sin()
    if "sin and cos exchanged" in on:
        cos, sin = sin, cos
    if "half turned" in on:
        cos, sin = cos.clone(), sin.clone()
        cos[:, D // 4 :], sin[:, D // 4 :] = 1, 0
    if on & {"mixed", "mixed the other way"}:
        return _mixed(x, cos, sin, on).to(x.dtype)
    a, b = x.chunk(2, -1) if "halves" in on else (x[..., 0::2], x[..., 1::2])
    first = a * cos - b * sin
    if "no minus" in on:
        first = a * cos + b * sin
    if "overwritten" in on:
        a = first
    second = a * sin + b * cos
    if "two minus" in on:
        second = a * sin - b * cos
    if "only cos" in on:
        first, second = a * cos, b * cos
    if "no partner" in on:
        first, second = a * (cos + sin), b * (cos + sin)
    if "added" in on:
        first, second = a + sin, b + cos
    if "outputs exchanged" in on:
        first, second = second, first
    in_blocks = ("halves" in on) != ("in blocks" in on)
    out = torch.cat((first, second), -1) if in_blocks else torch.stack((first, second), -1).flatten(-2)
    return out if "stays wide" in on else out.to(x.dtype)


def _places(x: Tensor, positions: Tensor, on: frozenset[str]) -> Tensor:
    """The positions that the rows are thought to have."""
    T = x.shape[-2]
    places = {
        "never turned": torch.zeros(T),
        "by row": torch.arange(T),
        "consecutive": positions[0] + torch.arange(T),
        "from the first": positions - positions[0],
        "one position": positions[:1].expand(T),
        "without sign": positions.abs(),
        "never negative": positions.clamp(min=0),
        "positions rounded": positions.to(x.dtype).double(),
    }
    return next((other for fault, other in places.items() if fault in on), positions)


def _mixed(x: Tensor, cos: Tensor, sin: Tensor, on: frozenset[str]) -> Tensor:
    """Tables of one layout with the partners of the other."""
    a, b = x.chunk(2, -1)
    if "mixed" in on:
        return x * cos.repeat_interleave(2, -1) + torch.cat((-b, a), -1) * sin.repeat_interleave(2, -1)
    partner = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    return x * torch.cat((cos, cos), -1) + partner * torch.cat((sin, sin), -1)


def _as_fp32(arguments: tuple, result: object) -> object:
    """The precision of a table is left open."""
    return result.float() if isinstance(result, Tensor) and result.is_floating_point() else result


def _table(holds: str, n: int, d: int) -> Probe:
    return Probe(holds, lambda g: (n, d), sees=_as_fp32)


SPEEDS = {
    "half the exponent": Fault(
        "the exponent is i/d instead of 2i/d",
        "Pair i = 0 .. d/2 - 1 has the exponent 2i/d: the speeds span nearly the whole base. Compare the last pair.",
    ),
    "twice the exponent": Fault(
        "the exponent is doubled",
        "If you count 0, 2, 4, ... the factor 2 is already in it. Compare the speed of the second pair.",
    ),
    "by d - 1": Fault("the exponent is divided by d - 1", "It is 2i/d."),
    "odd exponents": Fault(
        "the exponents are odd", "The first is 2 * 0 / d = 0: pair 0 turns by 1 radian per position."
    ),
    "log10": Fault("the logarithm is one of base 10", "If speeds come from an exponential, it takes the natural one."),
    "up to 1": Fault(
        "the last exponent is exactly 1",
        "Some published code does so: i / (d/2 - 1). The formula here divides 2i by d, so it stays below 1.",
    ),
    "no exponent": Fault(
        "all pairs turn at one speed", "Each pair has its own; is a division rounded down to whole numbers?"
    ),
    "growing": Fault(
        "the sign of the exponent is wrong", "Then speeds grow up to thousands of radians per step. They should fall."
    ),
    "frequencies from one": Fault(
        "the pairs are counted from 1", "The first pair has i = 0 and turns by 1 radian per position."
    ),
    "times, not power": Fault("the base is multiplied, not raised to a power", "The speed is a power of the base."),
    "slowest first": Fault("the slowest pair comes first", "Pair 0 turns by 1 radian per position, the last hardly."),
    "positions from one": Fault("positions are counted from 1", "At position 0 every angle is 0."),
    "degrees": Fault("the angles are taken for degrees", "sin and cos of torch take radians: nothing to convert."),
    "full turns": Fault("the angles are multiplied by 2 pi", "They are in radians already."),
}
SINUSOIDAL = Exercise(
    name="sinusoidal",
    lesson="06",
    reference=sinusoidal,
    probes=(
        _table("position 0 is 0, 1, 0, 1 and so on", 1, 6),
        _table("the first pair turns by 1 radian per position", 3, 2),
        _table("with d = 4 the second pair is 100 times slower", 2, 4),
        _table("sin and cos of one angle stand side by side", 4, 6),
        _table("with d = 8 each pair is 10 times slower than the one before", 5, 8),
        _table("pair i has the speed 10000^(-2i/d)", 3, 12),
        _table("pair i has the speed 10000^(-2i/d)", 7, 10),
        _table("pair i has the speed 10000^(-2i/d)", 40, 64),
        _table("n and d may be anything", 6001, 4),
    ),
    faults={
        "cos first": Fault(
            "sin and cos have changed places", "In each pair the sine comes first: position 0 is 0, 1, 0, 1."
        ),
        "two blocks": Fault(
            "all sines come before all cosines", "They alternate here: columns 0, 2, 4 are sines, 1, 3, 5 cosines."
        ),
        "only sin": Fault("there are only sines", "The odd columns are cosines."),
        "only cos": Fault("there are only cosines", "The even columns are sines."),
        "own speed for each": Fault(
            "every column has a speed of its own",
            "Two neighbours share one angle: that is what makes a step to the right a rotation. i counts pairs.",
        ),
        **SPEEDS,
        "no base": Fault("the base is missing", "10000 is raised to a power; a bare exponential is a power of e."),
        "a zero less": Fault("the base is 1,000", "It is 10,000."),
        "a zero more": Fault("the base is 100,000", "It is 10,000."),
        "first row zero": Fault("position 0 is all zeros", "The cosine of 0 is 1."),
    },
    hints=(
        "Make all angles first, a table of n positions by d/2 pairs: the product of a column and a row.",
        "The frequency of pair i is 10000^(-2i/d) for i = 0 .. d/2 - 1. Check it: the first is 1.",
        "Sines and cosines of that table must alternate: stack them as a new last axis, then make two axes one.",
    ),
)


def _at(x: list[float], *positions: int) -> tuple[Tensor, Tensor, float]:
    return torch.tensor([x]), torch.tensor(positions), 10_000.0


def _x(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


WHY_FINE = (
    "bf16 has no 1001: it becomes 1000, a whole radian off. Make angles in fp32, and go to bf16 behind cos and sin."
)
ROTATE = Exercise(
    name="rotate",
    lesson="06",
    reference=rotate,
    probes=(
        Probe("at position 1 the first pair turns by 1 radian", lambda g: _at([1.0, 0.0, 0.0, 0.0], 1)),
        Probe("a pair is two neighbours", lambda g: _at([0.0, 1.0, 1.0, 0.0], 1)),
        Probe("position 0 changes nothing", lambda g: _at([1.0, 2.0, 3.0, 4.0], 0)),
        Probe("each row turns by its own position", lambda g: (_x(g, 3, 6), torch.tensor([4, 0, 9]), 10_000.0)),
        Probe("pair i has the speed base^(-2i/D)", lambda g: (_x(g, 2, 12), torch.tensor([7, 2]), 10_000.0)),
        Probe("the base is the caller's", lambda g: (_x(g, 3, 8), torch.tensor([5, 6, 8]), 50.0)),
        Probe("any leading axes", lambda g: (_x(g, 3, 5, 4), torch.tensor([1, 0, 3, 2, 11]), 100.0)),
        Probe("any leading axes", lambda g: (_x(g, 2, 3, 4, 6), torch.tensor([2, 3, 5, 11]), 10_000.0)),
        Probe("any leading axes", lambda g: (_x(g, 2, 1, 3, 5, 8), torch.tensor([6, 7, 8, 9, 10]), 1e6)),
        Probe(
            "positions may be large",
            lambda g: (_x(g, 3, 6), torch.tensor([99_999, 5, 70_000]), 10_000.0),
            tolerance=1e-2,
        ),
        Probe("positions may be negative", lambda g: (_x(g, 2, 4, 6), torch.tensor([-3, 5, -40, 2]), 10_000.0)),
        Probe("any strides", lambda g: (_x(g, 2, 4, 3, 6).transpose(1, 2), torch.tensor([3, 1, 4, 15]), 10_000.0)),
        Probe("gradients reach x", lambda g: (_x(g, 2, 3, 4), torch.tensor([1, 8, 3]), 10_000.0), gradients=True),
        Probe("fp64 stays fp64", lambda g: (_x(g, 3, 6).double(), torch.tensor([9, 1, 7]), 10_000.0), tolerance=1e-4),
        Probe(
            "bf16 in, bf16 out, and angles that are finer than bf16",
            lambda g: (_x(g, 3, 6).bfloat16(), torch.tensor([1001, 5, 773]), 10_000.0),
            tolerance=5e-2,
        ),
    ),
    faults={
        "backwards": Fault(
            "the pairs turn the other way", "(1, 0) turns towards (0, 1): which of the two lines has the minus?"
        ),
        "sin and cos exchanged": Fault(
            "sin and cos have changed places", "At position 0, with cos = 1 and sin = 0, nothing changes."
        ),
        "no minus": Fault(
            "the minus is missing",
            "A rotation keeps the length of a pair; with a plus in both lines, (1, 1) grows. See the 2 x 2 matrix.",
        ),
        "two minus": Fault(
            "the second line has a minus too many", "That is a reflection: at position 0 it must change nothing."
        ),
        "halves": Fault(
            "a coordinate is paired with one half a vector away",
            "That is the other of two published layouts. Here neighbours form a pair: 0 and 1, 2 and 3.",
        ),
        "mixed": Fault(
            "the two layouts are mixed: angles for neighbours, partners half a vector away",
            "Then no pair is really rotated. The angle and the partner of a coordinate must belong to the same pair.",
        ),
        "mixed the other way": Fault(
            "the two layouts are mixed: partners side by side, angles for halves",
            "Then no pair is really rotated. The angle and the partner of a coordinate must belong to the same pair.",
        ),
        "in blocks": Fault(
            "the results are put behind each other instead of back in their places",
            "Coordinates 0 and 1 must come back as 0 and 1. `cat` makes two blocks: what makes them alternate?",
        ),
        "outputs exchanged": Fault("the two outputs of a pair have changed places", "At position 0 nothing changes."),
        "overwritten": Fault(
            "the second line already uses the new first coordinate", "Both lines need the old pair: keep it."
        ),
        "only cos": Fault("only the cosine part is there", "A rotation mixes the two coordinates of a pair."),
        "no partner": Fault(
            "each coordinate is combined with itself", "A rotation mixes the two coordinates of a pair: a takes from b."
        ),
        "added": Fault(
            "waves are added", "That is how `sinusoidal` is used. A rotation multiplies: it keeps the length."
        ),
        "half turned": Fault("only the first half of the pairs turns", "All pairs turn here."),
        **SPEEDS,
        "fixed base": Fault("the base is always 10,000", "It is an argument."),
        "never turned": Fault("nothing is turned", "x comes back as it was: every position was taken for 0."),
        "by row": Fault(
            "the rows are counted instead of looking at `positions`",
            "Row 0 need not be at position 0: it may be at 500.",
        ),
        "from the first": Fault(
            "positions are counted from the first one", "The numbers in `positions` are used as they are."
        ),
        "one position": Fault("all rows turn by the first position", "Each row has its own."),
        "without sign": Fault("the sign of a position is lost", "Negative positions turn the other way."),
        "never negative": Fault("negative positions are taken for 0", "They turn the other way."),
        "positions rounded": Fault("positions are rounded to the dtype of x", WHY_FINE),
        "angles rounded": Fault("angles are rounded to the dtype of x", WHY_FINE),
        "all rounded": Fault("angles are computed in the dtype of x", WHY_FINE),
        "consecutive": Fault(
            "only the first position is looked at", "Positions need not be consecutive: each row has its own."
        ),
        "stays wide": Fault(
            "the result has another dtype than x", "Angles are made in fp32 or better; go back to the dtype of x last."
        ),
    },
    hints=(
        "One pair first: turning (a, b) by an angle gives (a cos - b sin, a sin + b cos).",
        "The angles are a table (T, D/2), positions times frequencies. It broadcasts against x[..., 0::2] and x[..., 1::2].",
        "Put the two results back side by side: stack them as a new last axis, then make two axes one.",
    ),
)

EXERCISES = (SINUSOIDAL, ROTATE)
