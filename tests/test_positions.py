"""Positions: the published angles, what a rotation must keep, both layouts, and tables that stay exact."""

import copy
import math

import pytest
import torch
from support.models import SIZES, tiny
from torch import Tensor

from tinylm_lib import ModelConfig, TransformerLM
from tinylm_lib.config import RopeScaling
from tinylm_lib.positions import (
    LAYOUTS,
    LearnedPosition,
    Positions,
    Rotary,
    SinusoidalPosition,
    Unchanged,
    angles,
    frequencies,
    sinusoidal_table,
    stretch,
)

pytestmark = pytest.mark.usefixtures("one_thread")

FAR = torch.tensor([0, 1, 2, 7, 100, 1000, 3010])


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rotated_in_the_complex_plane(x: Tensor, positions: Tensor, base: float, layout: str) -> Tensor:
    """Oracle: pair i as a complex number times e^(i * position * base^(-2i/D)), in fp64. positions: (..., T)."""
    d = x.shape[-1]
    first, second = {
        "interleaved": (slice(0, None, 2), slice(1, None, 2)),
        "halves": (slice(0, d // 2), slice(d // 2, None)),
    }[layout]
    speeds = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    turned = torch.complex(x[..., first].double(), x[..., second].double())
    turned = turned * torch.exp(1j * positions[..., None] * speeds)
    out = torch.empty(x.shape, dtype=torch.float64)
    out[..., first], out[..., second] = turned.real, turned.imag
    return out


# The formulas


def test_frequencies() -> None:
    assert frequencies(8).tolist() == pytest.approx([1, 0.1, 0.01, 0.001], rel=1e-15)
    assert frequencies(4, base=500.0).tolist() == pytest.approx([1, 500**-0.5], rel=1e-15)
    assert frequencies(64).shape == (32,)
    for odd in (1, 7):
        with pytest.raises(ValueError, match=f"must be even, got {odd}"):
            frequencies(odd)


def test_angles_are_position_times_speed() -> None:
    speeds = torch.tensor([1.0, 0.25], dtype=torch.float64)
    assert angles(4, speeds).tolist() == [[0, 0], [1, 0.25], [2, 0.5], [3, 0.75]]


def test_sinusoidal_table_of_published_numbers() -> None:
    table = sinusoidal_table(200, 8)
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
    kept = stretch(2 * math.pi / wavelengths, scaling) * wavelengths / (2 * math.pi)
    between = (2 - 1) / (4 - 1)  # 8192 / 4096 turns, between low 1 and high 4
    assert kept.tolist() == pytest.approx([1, 1, 1, between + (1 - between) / 8, 1 / 8, 1 / 8, 1 / 8], rel=1e-12)


# The rotation


def test_rotation_of_published_vectors() -> None:
    rotary = Rotary(4, 16)
    assert rotary(torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([1])).tolist()[0] == pytest.approx(
        [0.5403023, 0.8414710, 0, 0], abs=1e-7
    )
    assert rotary(torch.tensor([[0, 1.0, 1.0, 0]]), torch.tensor([1])).tolist()[0] == pytest.approx(
        [-0.8414710, 0.5403023, 0.9999500, 0.0099998], abs=1e-7
    )
    assert rotary.cos.shape == rotary.sin.shape == (16, 4)


@pytest.mark.parametrize("shape", [(7,), (2, 7)])
def test_rows_looked_up_before_turn_as_positions_do(shape: tuple[int, ...]) -> None:
    x, rotary = normal(2, 3, 7, 12), Rotary(12, 4000)
    positions = torch.randint(4000, shape, generator=torch.Generator().manual_seed(1))
    rows = rotary.rows(positions)
    assert [tuple(r.shape) for r in rows] == [(*shape, 12)] * 2
    assert torch.equal(rotary(x, Positions(positions, rows)), rotary(x, positions))
    assert not torch.equal(rotary(x, Positions(positions, rotary.rows(positions - positions))), rotary(x, positions))


def test_a_model_looks_its_rows_up_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, look_up = [], Rotary.rows
    monkeypatch.setattr(Rotary, "rows", lambda self, positions: seen.append(positions) or look_up(self, positions))
    TransformerLM(tiny("llama"))(torch.zeros(2, 5, dtype=torch.long))
    assert [positions.tolist() for positions in seen] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 3, 5)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotation_is_that_of_complex_numbers(layout: str, leading: tuple[int, ...]) -> None:
    x, rotary = normal(*leading, len(FAR), 12), Rotary(12, 4000, base=500.0, layout=layout)
    expected = rotated_in_the_complex_plane(x, FAR, 500.0, layout)
    torch.testing.assert_close(rotary(x, FAR).double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotation_keeps_length_and_leaves_position_0_alone(layout: str) -> None:
    x, rotary = normal(3, len(FAR), 12), Rotary(12, 4000, layout=layout)
    y = rotary(x, FAR)
    assert torch.equal(y[:, 0], x[:, 0])
    assert ((y.norm(dim=-1) / x.norm(dim=-1)) - 1).abs().max() < 1e-6
    assert not torch.allclose(y[:, 1:], x[:, 1:], atol=0.1)
    torch.testing.assert_close(y.unflatten(-1, rotary.unfolded).norm(dim=rotary.pair),
                               x.unflatten(-1, rotary.unfolded).norm(dim=rotary.pair))  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("offset", [0, 3, 40])
def test_scores_depend_on_the_offset_only(layout: str, offset: int) -> None:
    q, k, rotary = normal(1, 64, seed=3), normal(1, 64, seed=4), Rotary(64, 4000, layout=layout)
    starts = torch.tensor([0, 10, 110, 3010 - offset])
    scores = [(rotary(q, torch.tensor([s + offset])) @ rotary(k, torch.tensor([s])).T).item() for s in starts]
    assert max(scores) - min(scores) < 1e-4
    other = (rotary(q, torch.tensor([offset + 1])) @ rotary(k, torch.tensor([0])).T).item()
    assert abs(other - scores[0]) > 0.05, "another offset must give another score"


def test_the_two_layouts_are_one_rotation_of_permuted_coordinates() -> None:
    order = torch.tensor([0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11])  # evens, odds
    x = normal(2, 3, len(FAR), 12)
    interleaved, halves = Rotary(12, 4000, layout="interleaved"), Rotary(12, 4000, layout="halves")
    assert torch.equal(interleaved(x, FAR)[..., order], halves(x[..., order], FAR))
    assert not torch.allclose(interleaved(x, FAR), halves(x, FAR), atol=0.1)
    assert torch.equal(Rotary(12, 4000)(x, FAR), interleaved(x, FAR)), "interleaved is the default"


@pytest.mark.parametrize(
    ("shape", "trap"),
    [((4, 4, 7, 12), "B == H"), ((3, 7, 7, 12), "T == H"), ((7, 7, 7, 12), "B == H == T"), ((7, 7, 12), "no heads")],
)
def test_positions_belong_to_the_batch_and_not_to_the_heads(shape: tuple[int, ...], trap: str) -> None:
    x, rotary = normal(*shape), Rotary(12, 64)
    positions = torch.randint(64, (shape[0], shape[-2]), generator=torch.Generator().manual_seed(1))
    one_by_one = torch.stack([rotary(x_b, p_b) for x_b, p_b in zip(x, positions, strict=True)])
    assert torch.equal(rotary(x, positions), one_by_one), trap
    same_for_all = positions[:1].expand(shape[0], -1)
    assert torch.equal(rotary(x, same_for_all), rotary(x, positions[0]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_rotation_keeps_the_dtype_and_computes_in_fp32(dtype: torch.dtype) -> None:
    x, rotary = normal(2, len(FAR), 12, dtype=dtype), Rotary(12, 4000)
    before = x.clone()
    y = rotary(x, FAR)
    assert y.dtype == dtype
    assert torch.equal(x, before)
    exact = rotated_in_the_complex_plane(x, FAR, 10_000.0, "interleaved")
    torch.testing.assert_close(y.double(), exact, rtol=0.51 * torch.finfo(dtype).eps, atol=2e-6)


def test_gradients_of_the_rotation() -> None:
    rotary = Rotary(6, 64)
    x = normal(2, 3, 6, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotary(x, torch.tensor([0, 5, 60])), x)


@pytest.mark.parametrize(
    ("x_shape", "positions_shape"),
    [((7, 10), (7,)), ((7, 12), (6,)), ((5, 7, 12), (3, 7)), ((5, 7, 12), (7, 5)), ((7, 12), (7, 1)), ((7, 12), ()),
     ((2, 5, 7, 12), (2, 5, 7)), ((12,), (1,)), ((12,), (1, 1))],
)  # fmt: skip
def test_rotation_refuses_shapes_that_do_not_fit(x_shape: tuple[int, ...], positions_shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="D = 12") as caught:
        Rotary(12, 64)(torch.ones(x_shape), torch.zeros(positions_shape, dtype=torch.long))
    assert str(x_shape) in str(caught.value)
    assert str(positions_shape) in str(caught.value)


@pytest.mark.parametrize("outside", [-1, 64])
def test_positions_outside_the_tables_are_refused(outside: int) -> None:
    with pytest.raises(IndexError):
        Rotary(12, 64)(torch.ones(2, 12), torch.tensor([0, outside]))


def test_what_cannot_be_rotated_is_refused() -> None:
    with pytest.raises(ValueError, match="even, got 7"):
        Rotary(7, 64)
    with pytest.raises(ValueError, match="rope_layout 'half' is unknown; choose one of interleaved, halves"):
        Rotary(8, 64, layout="half")


# The tables


TABLES = {"rotary": lambda: Rotary(12, 64, base=500.0), "sinusoidal": lambda: SinusoidalPosition(64, 12)}


@pytest.mark.parametrize("name", TABLES)
def test_tables_stay_fp32_and_exact_wherever_they_go(name: str) -> None:
    exact = {key: table.clone() for key, table in TABLES[name]().named_buffers()}
    assert len(exact) == {"rotary": 2, "sinusoidal": 1}[name]
    ways = {
        "bfloat16": lambda m: m.bfloat16(),
        "half": lambda m: m.half(),
        "double": lambda m: m.double(),
        "to dtype": lambda m: m.to(torch.bfloat16),
        "to device and dtype": lambda m: m.to("cpu", torch.bfloat16),
        "there and back": lambda m: m.bfloat16().float(),
        "meta and back": lambda m: m.to("meta").to_empty(device="cpu"),
        "emptied": lambda m: m.to_empty(device="cpu"),
        "deepcopy": copy.deepcopy,
    }
    for way, change in ways.items():
        torch.use_deterministic_algorithms(True)  # empty memory is filled with NaN
        try:
            tables = dict(change(TABLES[name]()).named_buffers())
        finally:
            torch.use_deterministic_algorithms(False)
        assert {t.dtype for t in tables.values()} == {torch.float32}, way
        assert all(torch.equal(tables[key], exact[key]) for key in exact), way


@pytest.mark.parametrize("name", TABLES)
def test_tables_live_where_the_module_does_and_not_in_the_state_dict(name: str) -> None:
    with torch.device("meta"):
        module = TABLES[name]()
    assert {t.device.type for t in module.buffers()} == {"meta"}
    assert {t.device.type for t in TABLES[name]().to("meta").bfloat16().buffers()} == {"meta"}
    assert module.state_dict() == {}
    assert list(module.parameters()) == []


def test_tables_are_built_in_double_precision() -> None:
    rotary = Rotary(12, 4000)
    for i in range(6):
        angle = 3999 * 10_000 ** (-2 * i / 12)
        assert rotary.cos[3999, 2 * i : 2 * i + 2].tolist() == pytest.approx([math.cos(angle)] * 2, abs=6e-8)
        assert rotary.sin[3999, 2 * i : 2 * i + 2].tolist() == pytest.approx(
            [-math.sin(angle), math.sin(angle)], abs=6e-8
        )


@pytest.mark.parametrize("changes", [{}, {"n_layers": 5}])
def test_all_layers_share_one_rotation(changes: dict[str, int]) -> None:
    model = TransformerLM(tiny("llama", **changes))
    assert len({id(block.attention.rotation) for block in model.blocks}) == 1
    assert sum(t.numel() for t in model.buffers()) == 2 * SIZES["max_seq_len"] * SIZES["d_head"]
    assert not [key for key in model.state_dict() if "rotation" in key or "cos" in key]


def test_a_model_in_bfloat16_keeps_exact_tables() -> None:
    for name in ("llama", "tiny_transformer"):
        model, exact = TransformerLM(tiny(name)).bfloat16(), TransformerLM(tiny(name))
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
        for (key, table), (_, wanted) in zip(model.named_buffers(), exact.named_buffers(), strict=True):
            assert torch.equal(table, wanted), key


def test_a_longer_model_takes_the_weights_of_a_shorter_one() -> None:
    short, long = TransformerLM(tiny("llama")), TransformerLM(tiny("llama", max_seq_len=100))
    assert long.load_state_dict(short.state_dict()).missing_keys == []


# What is added


def test_added_positions_belong_to_the_position_and_not_to_the_batch() -> None:
    x, positions = normal(4, 3, 12), torch.tensor([5, 0, 9])
    for module in (LearnedPosition(64, 12), SinusoidalPosition(64, 12)):
        table = module.weight if isinstance(module, LearnedPosition) else module.table
        torch.testing.assert_close(module(x, positions), x + table[positions], rtol=0, atol=0)
        assert module(x.bfloat16(), positions).dtype == (
            torch.float32 if isinstance(module, LearnedPosition) else torch.bfloat16
        )
    assert Unchanged()(x, Positions(positions, Unchanged().rows(positions))) is x


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
