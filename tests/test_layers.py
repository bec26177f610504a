"""Layers against torch's own and against published numbers: values, gradients, extremes, precision, initial weights."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from support.models import normal, scramble
from torch import Tensor, nn

from tinylm_lib import layers
from tinylm_lib.layers import (
    NORMS,
    Embedding,
    LayerNorm,
    Linear,
    RMSNorm,
    evaluation_mode,
    gelu,
    gelu_tanh,
    pick,
    silu,
    softmax,
)

pytestmark = pytest.mark.usefixtures("one_thread")

LEADING = [(), (3,), (2, 3), (2, 3, 5)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LOW = [torch.bfloat16, torch.float16]
CUT = 0.986578  # standard deviation of N(0, 1) cut off at 3


def test_pick_lists_what_there_is() -> None:
    assert pick(NORMS, "rms", "norm") is RMSNorm
    with pytest.raises(ValueError, match="norm 'rsm' is unknown; choose one of rms, layer"):
        pick(NORMS, "rsm", "norm")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("leading", LEADING)
def test_linear_is_x_times_the_transposed_weight(leading: tuple[int, ...], bias: bool) -> None:
    layer, x = Linear(5, 7, bias=bias), normal(*leading, 5)
    assert dict(layer.named_parameters()).keys() == ({"weight", "bias"} if bias else {"weight"})
    if bias:
        assert torch.equal(layer.bias, torch.zeros(7)), "a bias starts at 0"
        nn.init.normal_(layer.bias)
    expected = torch.stack([(row * x).sum(-1) for row in layer.weight], dim=-1) + (layer.bias if bias else 0)
    torch.testing.assert_close(layer(x), expected)
    assert layer.weight.is_contiguous()


@pytest.mark.parametrize(
    ("make", "nominal"),
    [
        (lambda: Linear(64, 128).weight, 0.102062),
        (lambda: Linear(512, 512).weight, 0.044194),
        (lambda: Linear(512, 1365).weight, 0.032642),
        (lambda: Linear(512, 1344).weight, 0.032827),
        (lambda: Embedding(1000, 64).weight, 1.0),
        *(((lambda std=std: layers.truncated_normal_(torch.empty(200, 500), std)), std) for std in (1e-3, 0.02, 50.0)),
    ],
)
def test_weights_start_with_the_normal_cut_off_at_three_standard_deviations(make: Callable, nominal: float) -> None:
    torch.manual_seed(3)
    weight = make()
    n = weight.numel()
    assert weight.std().item() == pytest.approx(CUT * nominal, rel=4 / math.sqrt(2 * n))
    assert abs(weight.mean().item()) < 4 * nominal / math.sqrt(n)
    assert 2.9 * nominal < weight.abs().max().item() <= 3.0001 * nominal


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 3, 2)])
def test_embedding_picks_rows_and_adds_up_their_gradients(shape: tuple[int, ...]) -> None:
    table, ids = Embedding(11, 5), torch.randint(3, 11, shape, generator=torch.Generator().manual_seed(1))
    ids = ids.where(ids > 5, 3)  # some rows repeat
    out = table(ids)
    torch.testing.assert_close(out, F.one_hot(ids, 11).float() @ table.weight, rtol=0, atol=0)
    out.sum().backward()
    times = torch.bincount(ids.flatten(), minlength=11)
    assert torch.equal(table.weight.grad, times[:, None].expand(11, 5).float())


@pytest.mark.parametrize("wrong", [-1, -100, 11])
def test_embedding_refuses_an_id_outside_the_table(wrong: int) -> None:
    with pytest.raises(IndexError):
        Embedding(11, 5)(torch.tensor([0, wrong]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_layers_are_made_where_and_as_one_asks(device: str, dtype: torch.dtype) -> None:
    at = {"device": device, "dtype": dtype}
    for layer in (Linear(3, 4, bias=True, **at), Embedding(3, 4, **at), RMSNorm(4, **at), LayerNorm(4, **at)):
        for p in layer.parameters():
            assert (p.dtype, p.device.type, p.requires_grad) == (dtype, device, True)


def test_layers_tell_their_sizes() -> None:
    shown = str(nn.ModuleList([Linear(3, 4), Embedding(5, 6), RMSNorm(7), LayerNorm(8, eps=0.1)]))
    for part in ("Linear(3, 4, bias=False)", "Embedding(5, 6)", "RMSNorm(7, eps=1e-05)", "LayerNorm(8, eps=0.1)"):
        assert part in shown


def test_softmax_of_published_numbers() -> None:
    x = torch.tensor([2.0, 1.0, 0.1], dtype=torch.float64)
    once = softmax(x, 0)
    assert once.tolist() == pytest.approx([0.6590011388859679, 0.24243297070471392, 0.09856589040931818], abs=1e-15)
    assert softmax(once, 0).tolist() == pytest.approx([0.44838, 0.29562, 0.25601], abs=1e-5)


def test_softmax_of_large_scores() -> None:
    shares = [0.0900306, 0.2447285, 0.6652409]
    for x in ([100, 101, 102], [-2, -1, 0], [1e4, 1e4 + 1, 1e4 + 2], [-1e4 - 2, -1e4 - 1, -1e4]):
        assert softmax(torch.tensor(x, dtype=torch.float32), 0).tolist() == pytest.approx(shares, abs=1e-6)
    assert softmax(torch.tensor([20.0, 3.0, 1005.0]), 0).tolist() == [0, 0, 1]
    assert softmax(torch.tensor([0.0, 103.0]), 0)[0] > 0
    assert softmax(torch.tensor([0.0, 104.5]), 0)[0] == 0, "fp32 has no smaller number"
    assert softmax(torch.tensor([-math.inf, 0.0, 0.0]), 0).tolist() == [0, 0.5, 0.5]
    assert softmax(torch.tensor([-math.inf, -math.inf]), 0).isnan().all(), "no answer"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [((7,), 0), ((3, 3), 0), ((3, 3), 1), ((3, 3), -1), ((2, 3, 5), 1)])
def test_softmax_is_torchs_along_the_dimension_asked_for(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    x = 4 * normal(*shape, dtype=dtype)
    y = softmax(x, dim)
    torch.testing.assert_close(y, torch.softmax(x, dim))
    assert y.dtype == dtype
    assert torch.equal(x, 4 * normal(*shape, dtype=dtype)), "the scores of the caller must not change"


def test_softmax_of_ties_has_right_gradients() -> None:
    x = torch.tensor([[1.0, 1.0, -2.0], [0.5, 3.0, 3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: softmax(x, 1), x)


ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {
    "silu": (silu, F.silu),
    "gelu": (gelu, F.gelu),
    "gelu_tanh": (gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
}


@pytest.mark.parametrize(
    ("f", "points"),
    [
        (silu, {-2: -0.2384, -1: -0.2689, 0: 0, 0.5: 0.3112, 1: 0.7311, 2: 1.7616, -1.2785: -0.278465}),
        (gelu, {-1: -0.1587, 0: 0, 1: 0.8413, 2: 1.9545, -0.7518: -0.169971}),
        (gelu_tanh, {0: 0, 1: 0.841192}),
    ],
)
def test_activations_at_published_points(f: Callable, points: dict[float, float]) -> None:
    x = torch.tensor(list(points), dtype=torch.float64, requires_grad=True)
    assert f(x).tolist() == pytest.approx(list(points.values()), abs=6e-5)
    f(x).sum().backward()
    assert x.grad[x == 0] == 0.5


def test_minima_and_the_distance_of_the_approximation() -> None:
    x = torch.linspace(-6, 6, 120_001, dtype=torch.float64)
    for f, low, at in ((silu, -0.278465, -1.2785), (gelu, -0.169971, -0.7518)):
        assert f(x).min().item() == pytest.approx(low, abs=1e-6)
        assert x[f(x).argmin()].item() == pytest.approx(at, abs=1e-4)
    assert (gelu(x) - gelu_tanh(x)).abs().max().item() == pytest.approx(4.732e-4, abs=1e-7)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_torchs(name: str, dtype: torch.dtype) -> None:
    ours, theirs = ACTIVATIONS[name]
    x = torch.linspace(-12, 12, 4800).view(3, 1, -1).to(dtype)
    y = ours(x)
    assert (y.dtype, y.shape) == (dtype, x.shape)
    atol = {torch.float64: 1e-12, torch.float32: 2e-6}.get(dtype, 4 * torch.finfo(dtype).eps)
    torch.testing.assert_close(y.double(), theirs(x.double()), rtol=torch.finfo(dtype).eps, atol=atol)
    assert torch.autograd.gradcheck(ours, torch.linspace(-4, 4, 17, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_slopes_stay_finite(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([-1e4, -1e3, -100, -88.8, -12, -1, 0, 1, 12, 88.8, 100, 1e3, 1e4], dtype=dtype, requires_grad=True)
    y = ACTIVATIONS[name][0](x)
    y.sum().backward()
    assert y.isfinite().all() and x.grad.isfinite().all()
    assert y[[0, -1]].tolist() == pytest.approx([0, x[-1].item()], abs=1e-30)
    assert x.grad[[0, -1]].tolist() == pytest.approx([0, 1], abs=1e-6)


WITH_GAIN = [RMSNorm, LayerNorm]


def torchs(layer: nn.Module, x: Tensor) -> Tensor:
    """The same norm by torch, in fp64: of a norm without weights, too."""
    function = F.rms_norm if isinstance(layer, RMSNorm) else F.layer_norm
    return function(x.double(), x.shape[-1:], *[p.double() for p in layer.parameters()], eps=layer.eps)


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("kind", WITH_GAIN)
def test_norms_are_torchs(kind: type, leading: tuple[int, ...], eps: float) -> None:
    layer, x = scramble(kind(24, eps), 0.5, 5), 2 + 3 * normal(*leading, 24)
    torch.testing.assert_close(layer(x).double(), torchs(layer, x), rtol=1e-6, atol=2e-6)
    assert torch.equal(x, 2 + 3 * normal(*leading, 24))


def test_norms_of_published_numbers() -> None:
    x = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert (x / RMSNorm(2, eps=0.0)(x)).tolist() == pytest.approx([3.535534] * 2, abs=1e-6)
    centred = normal(7, 24, dtype=torch.float64)
    centred -= centred.mean(-1, keepdim=True)
    torch.testing.assert_close(LayerNorm(24)(centred), RMSNorm(24)(centred), rtol=0, atol=1e-14)
    assert LayerNorm(24)(centred + 5).mean(-1).abs().max() < 1e-14
    assert RMSNorm(24)(centred + 5).mean(-1).min() > 0.9, "RMSNorm keeps the mean"


@pytest.mark.parametrize("gain_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", WITH_GAIN)
def test_norms_compute_in_fp32_and_return_the_dtype_of_x(
    kind: type, dtype: torch.dtype, gain_dtype: torch.dtype
) -> None:
    layer, x = scramble(kind(24, dtype=gain_dtype), 0.5, 5), (2 + 3 * normal(5, 24)).to(dtype)
    y = layer(x)
    assert y.dtype == dtype
    exact = torchs(layer, x)
    if dtype in LOW:  # one rounding at the very end, and nothing else
        apart = (y.view(torch.int16).int() - exact.to(dtype).view(torch.int16).int()).abs()
        assert apart.max() <= 1
        assert (apart > 0).float().mean() < 0.02, "at most where fp32 and fp64 fall on two sides of a tie"
    else:
        torch.testing.assert_close(y.double(), exact, rtol=1e-6, atol=1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("kind", WITH_GAIN)
def test_gradients_of_norms(kind: type) -> None:
    layer, x = scramble(kind(5, dtype=torch.float64), 0.5, 5), normal(3, 5, dtype=torch.float64).requires_grad_()
    parameters = dict(layer.named_parameters())
    assert torch.autograd.gradcheck(
        lambda x, *values: torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), x),
        (x, *parameters.values()),
    )
    layer(torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)).sum().backward()
    assert all(p.grad.isfinite().all() for p in parameters.values()), "a row of zeros is not a special case"


def test_norms_start_as_pure_norms() -> None:
    started = {kind: {name: p.tolist() for name, p in kind(2).named_parameters()} for kind in WITH_GAIN}
    assert started == {RMSNorm: {"weight": [1, 1]}, LayerNorm: {"weight": [1, 1], "bias": [0, 0]}}


@pytest.mark.parametrize("dtype", DTYPES)
def test_at_least_fp32_keeps_what_is_as_precise(dtype: torch.dtype) -> None:
    x = torch.ones(2, dtype=dtype)
    y = layers.at_least_fp32(x)
    assert (y.dtype, y is x) == (torch.promote_types(dtype, torch.float32), dtype not in LOW)


def test_no_dropout_is_no_layer() -> None:
    assert layers.dropout(0.0) is layers.unchanged
    x, layer = torch.ones(1000), layers.dropout(0.25)
    assert (layer(x) == 0).float().mean().item() == pytest.approx(0.25, abs=0.06)
    assert layer.eval()(x) is x


def test_evaluation_mode_has_no_gradients_and_gives_the_modes_back() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()).eval())
    before = [part.training for part in model.modules()]
    with evaluation_mode(model):
        assert not torch.is_grad_enabled() and not any(part.training for part in model.modules())
    after = [part.training for part in model.modules()]
    assert torch.is_grad_enabled() and after == before == [True, True, False, False]
