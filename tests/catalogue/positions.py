"""Lesson 06: right variants of its exercises, mistakes, and the library's own."""

import math

import torch

from catalogue import named
from tinylm_lib.positions import Rotary, sinusoidal_table


def table_by_columns(n, d):
    table = torch.zeros(n, d)
    position = torch.arange(0, n, dtype=torch.float).unsqueeze(1)
    speeds = torch.exp(torch.arange(0, d, 2).float() * (-math.log(10000.0) / d))
    table[:, 0::2] = torch.sin(position * speeds)
    table[:, 1::2] = torch.cos(position * speeds)
    return table


def table_by_loops(n, d):
    rows = []
    for p in range(n):
        row = []
        for i in range(d // 2):
            angle = p / 10_000 ** (2 * i / d)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor(rows)


def table_by_phase(n, d):
    column = torch.arange(d)
    angles = torch.arange(n)[:, None] / 10_000.0 ** (2 * (column // 2) / d)
    return torch.sin(angles + (column % 2) * math.pi / 2)


def table_by_complex(n, d):
    speeds = 1e4 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    turned = torch.polar(torch.ones(n, d // 2, dtype=torch.float64), torch.outer(torch.arange(n).double(), speeds))
    return torch.view_as_real(turned).flip(-1).reshape(n, d)


def table_by_where(n, d):
    column = torch.arange(d).double()
    angles = torch.arange(n).double()[:, None] * torch.pow(torch.tensor(1e4).double(), -(column - column % 2) / d)
    return torch.where(column % 2 == 0, angles.sin(), angles.cos()).to(torch.float32)


def turn_complex(x, positions, base):
    speeds = 1.0 / (base ** (torch.arange(0, x.shape[-1], 2)[: x.shape[-1] // 2].float() / x.shape[-1]))
    angles = torch.outer(positions, speeds)
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)).flatten(-2).type_as(x)


def turn_by_matrices(x, positions, base):
    d = x.shape[-1]
    i = torch.arange(d // 2)
    angles = positions.double()[:, None] * float(base) ** (-2 * i.double() / d)
    c, s = angles.cos(), angles.sin()
    matrix = torch.stack((torch.stack((c, -s), -1), torch.stack((s, c), -1)), -2)
    pairs = x.unflatten(-1, (-1, 2)).double()
    return torch.einsum("tiab,...tib->...tia", matrix, pairs).flatten(-2).to(x.dtype)


def turn_with_wide_tables(x, positions, base):
    theta = torch.pow(torch.tensor(float(base)), -torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = torch.repeat_interleave(positions.unsqueeze(-1) * theta, 2, dim=-1)
    partner = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).reshape(x.shape)
    return x * angles.cos().to(x.dtype) + partner * angles.sin().to(x.dtype)


def turn_into_an_empty_one(x, positions, base):
    out = torch.empty_like(x)
    speeds = torch.exp(-math.log(base) * torch.arange(0, x.shape[-1], 2, dtype=torch.float32) / x.shape[-1])
    cos, sin = torch.cos(positions[:, None] * speeds), torch.sin(positions[:, None] * speeds)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return out


def turn_pair_by_pair(x, positions, base):
    d, columns = x.shape[-1], []
    for i in range(0, d, 2):
        angle = positions * base ** (-i / d)
        a, b = x[..., i], x[..., i + 1]
        columns += [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()]
    return torch.stack(columns, -1).to(x.dtype)


def turn_as_the_library(x, positions, base):
    last = 1 + int(positions.abs().max())
    rotary = Rotary(x.shape[-1], last, base)
    turned = rotary(x, positions.abs())
    if (positions < 0).any():  # its tables begin at 0: backwards is a mirror, a turn and a mirror
        mirror = torch.tensor([1.0, -1.0]).repeat(x.shape[-1] // 2)
        return torch.where(positions[:, None] < 0, rotary(x * mirror, positions.abs()) * mirror, turned)
    return turned


def sinusoidal_cos_first(n, d):
    return torch.stack((waves(n, d).cos(), waves(n, d).sin()), -1).flatten(1)


def sinusoidal_cos_of_next(n, d):
    angles = torch.arange(n)[:, None] / 10_000 ** (torch.arange(d) / d)
    return torch.where(torch.arange(d) % 2 == 0, angles.sin(), angles.cos())


def turn(a, b, cos, sin):
    return a * cos - b * sin, a * sin + b * cos


def _rotated(x, positions, base, exponent=2.0, start=0, turn=turn):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-exponent * torch.arange(start, start + d // 2) / d)
    return torch.stack(turn(x[..., ::2], x[..., 1::2], angles.cos(), angles.sin()), -1)


def rotate_by_halves(x, positions, base):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * torch.arange(d // 2) / d)
    return torch.cat(turn(*x.chunk(2, -1), angles.cos(), angles.sin()), -1)


def waves(n, d):
    return torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)


def in_turn(angles):
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


RIGHT = {
    "sinusoidal": named(table_by_columns, table_by_loops, table_by_phase, table_by_complex, table_by_where),
    "rotate": named(turn_complex, turn_by_matrices, turn_with_wide_tables, turn_into_an_empty_one, turn_pair_by_pair),
}  # fmt: skip
WRONG = {
    "sinusoidal": named(
        sinusoidal_cos_first, sinusoidal_cos_of_next,
        all_sines=lambda n, d: (torch.arange(n)[:, None] / 10_000 ** (torch.arange(d) / d)).sin(),
        transposed=lambda n, d: sinusoidal_cos_first(n, d).roll(1, -1).T,
        halves=lambda n, d: torch.cat((waves(n, d).sin(), waves(n, d).cos()), -1),
        from_one=lambda n, d: in_turn(waves(n + 1, d)[1:]),
        single_exponent=lambda n, d: in_turn(torch.arange(n)[:, None] / 10_000 ** (torch.arange(d // 2) / d)),
        times=lambda n, d: in_turn(torch.arange(n)[:, None] * 10_000 ** (torch.arange(0, d, 2) / d)),
        degrees=lambda n, d: in_turn(torch.deg2rad(waves(n, d))),
        other_base=lambda n, d: in_turn(torch.arange(n)[:, None] / 1_000 ** (torch.arange(0, d, 2) / d)),
    ),
    "rotate": named(
        rotate_by_halves,
        rotate_no_minus=lambda x, positions, base:
            _rotated(x, positions, base, turn=lambda a, b, c, s: (a * c + b * s, a * s + b * c)).flatten(-2),
        rotate_swapped_functions=lambda x, positions, base:
            _rotated(x, positions, base, turn=lambda a, b, cos, sin: turn(a, b, sin, cos)).flatten(-2),
        backwards=lambda x, positions, base:
            _rotated(x, positions, base, turn=lambda a, b, cos, sin: turn(a, b, cos, -sin)).flatten(-2),
        slow=lambda x, positions, base: _rotated(x, positions, base, exponent=1.0).flatten(-2),
        from_one=lambda x, positions, base: _rotated(x, positions, base, start=1).flatten(-2),
        own_positions=lambda x, positions, base: _rotated(x, torch.arange(x.shape[-2]), base).flatten(-2),
        fixed_base=lambda x, positions, base: _rotated(x, positions, 10_000).flatten(-2),
        concatenated=lambda x, positions, base: _rotated(x, positions, base).movedim(-1, -2).flatten(-2),
        only_first_pair=lambda x, positions, base:
            torch.cat((_rotated(x, positions, base).flatten(-2)[..., :2], x[..., 2:]), -1),
        position_offset=lambda x, positions, base: _rotated(x, positions - positions[0], base).flatten(-2),
        added=lambda x, positions, base: x + _rotated(torch.ones_like(x), positions, base).flatten(-2),
    ),
}  # fmt: skip
LIBRARY = {"sinusoidal": sinusoidal_table, "rotate": turn_as_the_library}
