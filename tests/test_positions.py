"""Positions: the published angles, what a rotation must keep, both layouts, and tables that stay exact."""

import copy
import math
import re
from collections.abc import Callable

import pytest
import torch
from support.models import SIZES, normal, tiny
from torch import Tensor

from tinylm_lib import ModelConfig, TransformerLM, positions
from tinylm_lib.config import RopeScaling
from tinylm_lib.positions import LAYOUTS, LearnedPosition, Positions, Rotary, SinusoidalPosition, Unchanged, frequencies

pytestmark = pytest.mark.usefixtures("one_thread")

FAR = torch.tensor([0, 1, 2, 7, 100, 1000, 3010])


def rotated_in_the_complex_plane(x: Tensor, at: Tensor, base: float, layout: str) -> Tensor:
    """Oracle: pair i as a complex number times e^(i * position * base^(-2i/D)), in fp64. at: (..., T)."""
    d = x.shape[-1]
    neighbours, far = (slice(0, None, 2), slice(1, None, 2)), (slice(0, d // 2), slice(d // 2, None))
    first, second = {"interleaved": neighbours, "halves": far}[layout]
    speeds = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    turned = torch.complex(x[..., first].double(), x[..., second].double()) * torch.exp(1j * at[..., None] * speeds)
    out = torch.empty(x.shape, dtype=torch.float64)
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


def test_frequencies_and_angles() -> None:
    assert frequencies(8).tolist() == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-15)
    assert frequencies(4, base=500.0).tolist() == pytest.approx([1, 500**-0.5], rel=1e-15)
    for odd in (1, 7):
        with pytest.raises(ValueError, match=f"must be even, got {odd}"):
            frequencies(odd)
    speeds = torch.tensor([1.0, 0.25], dtype=torch.float64)
    assert positions.angles(4, speeds).tolist() == [[0, 0], [1, 0.25], [2, 0.5], [3, 0.75]]


def test_sinusoidal_table_of_published_numbers() -> None:
    table = positions.sinusoidal_table(200, 8)
    assert (table.shape, table.dtype) == ((200, 8), torch.float32)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    row = [0.841471, 0.540302, 0.099833, 0.995004, 0.01, 0.99995, 0.001, 1.0]
    assert table[1].tolist() == pytest.approx(row, abs=1e-6)
    assert table.norm(dim=1).tolist() == pytest.approx([2] * 200)
    assert (table[:-3] * table[3:]).sum(1).tolist() == pytest.approx([1.964890] * 197, abs=1e-6)
    assert table[150, 5].item() == pytest.approx(math.cos(150 * 10_000 ** (-4 / 8)), abs=1e-7)


def test_stretch_of_llama_3_at_both_ends_and_between() -> None:
    scaling = RopeScaling(factor=8, low_freq_factor=1, high_freq_factor=4, original_max_seq_len=8192)
    wavelengths = torch.tensor([100.0, 2047.0, 2048.0, 4096.0, 8192.0, 8193.0, 1e6], dtype=torch.float64)
    kept = positions.stretch(2 * math.pi / wavelengths, scaling) * wavelengths / (2 * math.pi)
    between = (2 - 1) / (4 - 1)  # 8192 / 4096 turns, between low 1 and high 4
    assert kept.tolist() == pytest.approx([1, 1, 1, between + (1 - between) / 8, 1 / 8, 1 / 8, 1 / 8], rel=1e-12)


def test_rotation_of_published_vectors() -> None:
    rotary, x = Rotary(4, 16), torch.tensor([[1.0, 0, 0, 0], [0, 1, 1, 0]])
    expected = torch.tensor([[0.5403023, 0.8414710, 0, 0], [-0.8414710, 0.5403023, 0.9999500, 0.0099998]])
    torch.testing.assert_close(rotary(x, torch.tensor([1, 1])), expected, rtol=0, atol=1e-7)
    assert rotary.cos.shape == rotary.sin.shape == (16, 4)


@pytest.mark.parametrize("shape", [(7,), (2, 7)])
def test_rows_looked_up_before_turn_as_positions_do(shape: tuple[int, ...]) -> None:
    x, rotary = normal(2, 3, 7, 12), Rotary(12, 4000)
    at = torch.randint(4000, shape, generator=torch.Generator().manual_seed(1))
    rows = rotary.rows(at)
    assert [tuple(r.shape) for r in rows] == [(*shape, 12)] * 2
    assert torch.equal(rotary(x, Positions(at, rows)), rotary(x, at))
    assert torch.equal(rotary(x, Positions(at)), rotary(x, at))
    assert not torch.equal(rotary(x, Positions(at, rotary.rows(at - at))), rotary(x, at))


def test_a_model_looks_its_rows_up_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, look_up = [], Rotary.rows
    monkeypatch.setattr(Rotary, "rows", lambda self, positions: seen.append(positions) or look_up(self, positions))
    TransformerLM(tiny("llama"))(torch.zeros(2, 5, dtype=torch.long))
    assert [positions.tolist() for positions in seen] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 3, 5)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotation_is_that_of_complex_numbers(layout: str, leading: tuple[int, ...], dtype: torch.dtype) -> None:
    x, rotary = normal(*leading, len(FAR), 12, dtype=dtype), Rotary(12, 4000, base=500.0, layout=layout)
    exact, y = rotated_in_the_complex_plane(x, FAR, 500.0, layout), rotary(x, FAR)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), exact, rtol=0.51 * torch.finfo(dtype).eps, atol=2e-6)  # computed in fp32
    assert torch.equal(x, normal(*leading, len(FAR), 12, dtype=dtype))
    assert torch.equal(y[..., 0, :], x[..., 0, :]), "position 0 is not turned"


@pytest.mark.parametrize("shape", [(4, 4, 7, 12), (3, 7, 7, 12), (7, 7, 7, 12), (7, 7, 12)], ids=str)
def test_positions_belong_to_the_batch_and_not_to_the_heads(shape: tuple[int, ...]) -> None:
    x, rotary = normal(*shape), Rotary(12, 64)
    at = torch.randint(64, (shape[0], shape[-2]), generator=torch.Generator().manual_seed(1))
    assert torch.equal(rotary(x, at), torch.stack([rotary(x_b, p_b) for x_b, p_b in zip(x, at, strict=True)]))
    assert torch.equal(rotary(x, at[:1].expand(shape[0], -1)), rotary(x, at[0]))


@pytest.mark.parametrize(
    ("x_shape", "shape"),
    [((7, 10), (7,)), ((7, 13), (7,)), ((7, 12), (6,)), ((5, 7, 12), (3, 7)), ((5, 7, 12), (7, 5)),
     ((7, 12), (7, 1)), ((7, 12), ()),
     ((2, 5, 7, 12), (2, 5, 7)), ((12,), (1,)), ((12,), (1, 1))],
)  # fmt: skip
def test_rotation_refuses_shapes_that_do_not_fit(x_shape: tuple[int, ...], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=re.escape(f"got x {x_shape} and positions {shape}")):
        Rotary(12, 64)(torch.ones(x_shape), torch.zeros(shape, dtype=torch.long))


def test_what_cannot_be_rotated_is_refused() -> None:
    for outside in (-1, 64):
        with pytest.raises(IndexError):
            Rotary(12, 64)(torch.ones(2, 12), torch.tensor([0, outside]))
    with pytest.raises(ValueError, match="even, got 7"):
        Rotary(7, 64)
    with pytest.raises(ValueError, match="rope_layout 'half' is unknown; choose one of interleaved, halves"):
        Rotary(8, 64, layout="half")


TABLES = {"rotary": lambda: Rotary(12, 64, base=500.0), "sinusoidal": lambda: SinusoidalPosition(64, 12)}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.bfloat16(), lambda m: m.half(), lambda m: m.double(), lambda m: m.to(torch.bfloat16),
        lambda m: m.to("cpu", torch.bfloat16), lambda m: m.bfloat16().float(), lambda m: m.to_empty(device="cpu"),
        lambda m: m.to("meta").to_empty(device="cpu"), copy.deepcopy,
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", TABLES)
def test_tables_stay_fp32_and_exact_wherever_they_go(name: str, change: Callable) -> None:
    torch.use_deterministic_algorithms(True)  # empty memory is filled with NaN
    try:
        tables = dict(change(TABLES[name]()).named_buffers())
    finally:
        torch.use_deterministic_algorithms(False)
    assert {t.dtype for name, t in tables.items() if name != "partner"} == {torch.float32}
    torch.testing.assert_close(tables, dict(TABLES[name]().named_buffers()), rtol=0, atol=0)


@pytest.mark.parametrize("name", TABLES)
def test_tables_live_where_the_module_does_and_not_in_the_state_dict(name: str) -> None:
    with torch.device("meta"):
        module = TABLES[name]()
    assert {t.device.type for t in module.buffers()} == {"meta"}
    assert {t.device.type for t in TABLES[name]().to("meta").bfloat16().buffers()} == {"meta"}
    assert module.state_dict() == {}
    assert list(module.parameters()) == []


def test_tables_are_built_in_double_precision() -> None:
    rotary, angles = Rotary(12, 4000), [3999 * 10_000 ** (-2 * i / 12) for i in range(6)]
    assert rotary.cos[3999, 0::2].tolist() == pytest.approx([math.cos(a) for a in angles], abs=6e-8)
    assert rotary.sin[3999, 1::2].tolist() == pytest.approx([math.sin(a) for a in angles], abs=6e-8)
    pairs = rotary.cos.unflatten(1, (6, 2)), rotary.sin.unflatten(1, (6, 2))
    assert all(torch.equal(t[..., 0], sign * t[..., 1]) for t, sign in zip(pairs, (1, -1), strict=True))


def test_all_layers_share_one_rotation() -> None:
    model = TransformerLM(tiny("llama"))
    assert sum(t.numel() for t in model.buffers()) == (2 * SIZES["max_seq_len"] + 1) * SIZES["d_head"]
    TransformerLM(tiny("llama", max_seq_len=100)).load_state_dict(model.state_dict())


@pytest.mark.parametrize("at", [torch.tensor([5, 0, 9]), torch.arange(12).view(4, 3)], ids=["all", "per sequence"])
def test_added_positions_belong_to_the_position_and_not_to_the_batch(at: Tensor) -> None:
    x, learned, fixed = normal(4, 3, 12), LearnedPosition(64, 12), SinusoidalPosition(64, 12)
    for module, table in ((learned, learned.weight), (fixed, fixed.table)):
        torch.testing.assert_close(module(x, at), x + table[at], rtol=0, atol=0)
    assert [module(x.bfloat16(), at).dtype for module in (learned, fixed)] == [torch.float32, torch.bfloat16]
    assert Unchanged()(x, Positions(at, Unchanged().rows(at))) is x


def test_learned_positions_start_small_and_learn() -> None:
    module = LearnedPosition(300, 64)
    assert module.weight.std().item() == pytest.approx(0.986578 * 0.02, rel=0.02)
    module(normal(2, 3, 64), torch.tensor([5, 0, 9])).sum().backward()
    rows = module.weight.grad.abs().sum(1).nonzero().flatten()
    assert rows.tolist() == [0, 5, 9]
    assert (module.weight.grad[5] == 2).all(), "both sequences of the batch"


def test_positions_are_built_from_the_config() -> None:
    scaling = RopeScaling(factor=4, original_max_seq_len=16)
    config = ModelConfig(max_seq_len=50, d_model=20, n_heads=2, d_head=8, rope_base=77.0, rope_scaling=scaling,
                         rope_layout="interleaved")  # fmt: skip
    built = Rotary.from_config(config)
    assert built.cos.shape == (50, 8)
    assert (built.unfolded, built.pair) == LAYOUTS["interleaved"]
    assert torch.equal(built.cos, Rotary(8, 50, 77.0, scaling=scaling).cos)
    assert not torch.equal(built.cos, Rotary(8, 50, 77.0).cos)
    assert LearnedPosition.from_config(config).weight.shape == (50, 20)
    assert SinusoidalPosition.from_config(config).table.shape == (50, 20)
