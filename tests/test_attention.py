"""Attention against the formula written out, every mask and shape, NaN and rows that see nothing, and whole layers."""

import math
import re
from typing import Any

import pytest
import torch
from support.models import normal, rounding, scramble, tiny
from torch import Tensor, nn

from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_lib.config import ModelConfig
from tinylm_lib.layers import RMSNorm
from tinylm_lib.positions import Rotary

pytestmark = pytest.mark.usefixtures("one_thread")


def qkv(leading: tuple[int, ...], T: int, S: int, d_k: int = 8, d_v: int = 8, G: int | None = None, **more: Any):
    """q, k and v; with G key-value heads instead of leading[-1] where given."""
    others = leading if G is None else (*leading[:-1], G)
    shapes = (*leading, T, d_k), (*others, S, d_k), (*others, S, d_v)
    return tuple(normal(*shape, seed=seed, **more) for seed, shape in enumerate(shapes, start=1))


def written_out(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None, causal: bool = False) -> Tensor:
    """Oracle in fp64, one query at a time: exp of the allowed scores, divided by their sum; 0 where none is allowed."""
    q, k, v = q.double(), k.double(), v.double()
    T, S = q.shape[-2], k.shape[-2]
    if q.ndim > 2:
        heads = [h // (q.shape[-3] // k.shape[-3]) for h in range(q.shape[-3])]
        k, v = k[..., heads, :, :], v[..., heads, :, :]
    allowed = torch.ones(T, S, dtype=torch.bool) if allowed is None else allowed
    allowed = allowed.expand(*q.shape[:-2], T, S)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
    for t in range(T):
        scores = (q[..., t, None, :] * k).sum(-1) / math.sqrt(q.shape[-1])
        seen = allowed[..., t, :] & (torch.arange(S) <= t + S - T if causal else True)
        e = scores.exp() * seen
        share = e / e.sum(-1, keepdim=True).clamp(min=1e-300)
        out[..., t, :] = (share[..., None] * v).sum(-2)
    return out


def test_causal_mask_by_hand() -> None:
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal_mask(1, 5).tolist() == [[True] * 5]
    assert (causal_mask(2, device="meta").device.type, causal_mask(2).dtype) == ("meta", torch.bool)
    with pytest.raises(ValueError, match="n_keys 2 must be at least n_queries 3"):
        causal_mask(3, 2)


# leading dimensions, key-value heads, T, S, d_k, d_v
SHAPES = [
    ((), None, 5, 5, 8, 8), ((), None, 5, 23, 8, 3), ((3,), None, 7, 7, 4, 6), ((6,), 2, 7, 11, 4, 4),
    ((2, 3), None, 5, 9, 8, 8), ((2, 6), 3, 5, 9, 8, 5), ((2, 6), 1, 20, 20, 8, 8), ((2, 6), 3, 1, 40, 16, 16),
    ((2, 6), 2, 18, 18, 8, 12), ((2, 3, 4), None, 5, 9, 8, 8), ((2, 3, 4), 2, 21, 33, 8, 7),
    ((2, 3, 4), 1, 19, 19, 8, 8), ((3,), None, 2, 2, 4, 4), ((2, 6), 3, 2, 9, 8, 8),
]  # fmt: skip
KINDS = ["all", "causal", "mask", "mask and causal", "mask per sequence"]


def mask_of(kind: str, leading: tuple[int, ...], T: int, S: int) -> Tensor | None:
    if "mask" not in kind:
        return None
    shape = (*leading[:-1], *[1] * len(leading[-1:]), T, S) if "per" in kind else (T, S)
    mask = normal(*shape, seed=9) > 0
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("leading", "G", "T", "S", "d_k", "d_v"), SHAPES)
def test_attend_is_the_formula(
    leading: tuple[int, ...], G: int | None, T: int, S: int, d_k: int, d_v: int, kind: str, dtype: torch.dtype
) -> None:
    given = *qkv(leading, T, S, d_k, d_v, G, dtype=dtype), mask_of(kind, leading, T, S), "causal" in kind
    y = attend(*given)
    assert (y.shape, y.dtype) == ((*leading, T, d_v), dtype)
    tolerance = {torch.float32: 3e-6, torch.float64: 1e-12, torch.bfloat16: 0.03, torch.float16: 0.004}[dtype]
    torch.testing.assert_close(y.double(), written_out(*given), rtol=0, atol=tolerance)
    again = *qkv(leading, T, S, d_k, d_v, G, dtype=dtype), mask_of(kind, leading, T, S)
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(given[:4], again, strict=True)), (
        "the inputs were changed"
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("G", "T", "S"), [(6, 5, 5), (2, 5, 9), (3, 17, 17)])
def test_gradients_reach_every_input_as_the_formula_says(G: int, T: int, S: int, kind: str) -> None:
    inputs = [x.requires_grad_() for x in qkv((2, 6), T, S, 4, 6, G, dtype=torch.float64)]
    mask, causal = mask_of(kind, (2, 6), T, S), "causal" in kind
    upstream = normal(2, 6, T, 6, dtype=torch.float64, seed=8)
    ours = torch.autograd.grad(attend(*inputs, mask, causal), inputs, upstream)
    theirs = torch.autograd.grad(written_out(*inputs, mask, causal), inputs, upstream)
    for name, a, b in zip("qkv", ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("T", [1, 19])
def test_on_the_cpu_bf16_is_attended_in_fp32_also_under_autocast(T: int) -> None:
    low = [x.requires_grad_() for x in qkv((2, 6), T, 19, G=3, dtype=torch.bfloat16)]
    copies = [x.detach().float().requires_grad_() for x in low]
    with torch.autocast("cpu", torch.bfloat16):
        y = attend(*low, causal=True)
    exact, upstream = attend(*copies, causal=True), normal(2, 6, T, 8, dtype=torch.bfloat16, seed=8)
    assert torch.equal(y, exact.bfloat16())
    ours, theirs = torch.autograd.grad(y, low, upstream), torch.autograd.grad(exact, copies, upstream.float())
    assert all(torch.equal(a, b.bfloat16()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("S", [5, 15, 16, 40])
def test_large_scores_neither_overflow_nor_flatten(S: int) -> None:
    q, k, v = qkv((2, 3), S, S)
    y = attend(300 * q, 300 * k, v)
    best = (q @ k.transpose(-1, -2)).argmax(-1)
    torch.testing.assert_close(y, v.take_along_dim(best[..., None], dim=-2), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("S", [1, 7, 15, 16, 33])
@pytest.mark.parametrize(("leading", "G"), [((), None), ((3,), None), ((2, 6), 3), ((2, 2, 4), 2)])
def test_a_row_that_may_see_nothing_is_0_with_finite_gradients(
    leading: tuple[int, ...], G: int | None, S: int, dtype: torch.dtype
) -> None:
    q, k, v = (x.requires_grad_() for x in qkv(leading, 5, S, G=G, dtype=dtype))
    mask = torch.ones(5, S, dtype=torch.bool)
    mask[2] = False
    y = attend(q, k, v, mask)
    assert (y[..., 2, :] == 0).all()
    assert (y[..., [0, 1, 3, 4], :] != 0).any(-1).all()
    y.pow(2).sum().backward()
    assert (q.grad[..., 2, :] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert (attend(q, k, v, torch.zeros(1, 1, dtype=torch.bool)) == 0).all()
    if S > 5:  # with causal, query 0 may see the first S - 4 keys alone, and the mask forbids those
        y = attend(q, k, v, (torch.arange(S) > S - 5)[None], causal=True)
        assert (y[..., 0, :] == 0).all() and (y[..., 1:, :] != 0).any(-1).all()


@pytest.mark.parametrize(("leading", "G"), [((), None), ((3,), None), ((2, 6), 3)])
@pytest.mark.parametrize("kind", ["all", "causal", "mask", "mask and causal", "one query"])
def test_a_nan_query_stays_nan_and_alone_whatever_the_number_of_keys(
    kind: str, leading: tuple[int, ...], G: int | None
) -> None:
    for S in range(1, 41):
        T = 1 if kind == "one query" else S
        q, k, v = qkv(leading, T, S, G=G)
        q[..., T // 2, 3] = math.nan
        y = attend(q, k, v, mask_of(kind, leading, T, S), "causal" in kind)
        is_nan = y.isnan().all(-1)
        assert is_nan[..., T // 2].all(), S
        assert y.isnan().any(-1).sum() == is_nan[..., T // 2].numel(), S


@pytest.mark.parametrize("S", [3, 15, 16, 40])
def test_a_nan_in_a_masked_value_spreads_and_an_extreme_one_does_not(S: int) -> None:
    q, k, v = qkv((2, 3), S, S)
    v[..., -1, 0] = math.nan
    for y in (attend(q, k, v, causal=True), attend(q, k, v, causal_mask(S))):
        assert y[..., 0].isnan().all(), "0 * NaN is NaN"
        assert not y[..., 1:].isnan().any()
    v[..., -1, 0] = 1e30
    assert attend(q, k, v, causal=True)[..., :-1, 0].abs().max() < 10


NO_MASK = [torch.float32, torch.long, torch.int32, torch.uint8, torch.bfloat16]
UNFIT = [(5,), (9,), (), (9, 5), (5, 8), (4, 9), (2, 3, 9, 5), (7, 5, 9), (4, 3, 5, 9)]


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        *((torch.ones(5, 9).to(d), TypeError, f"bool with True = allowed, got {d}") for d in NO_MASK),
        *((torch.ones(shape) > 0, ValueError, rf"mask .* got {re.escape(str(shape))}") for shape in UNFIT),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_that_is_not_bool_or_does_not_fit_is_refused(mask: Tensor, error: type, says: str, causal: bool) -> None:
    with pytest.raises(error, match=says):
        attend(*qkv((2, 3), 5, 9), mask, causal)


@pytest.mark.parametrize("shape", [(5, 9), (1, 9), (5, 1), (1, 1), (3, 5, 9), (2, 1, 5, 9), (2, 3, 1, 9), (1, 1, 1, 9)])
def test_a_mask_that_can_be_stretched_is_stretched(shape: tuple[int, ...]) -> None:
    q, k, v = qkv((2, 3), 5, 9)
    mask = normal(*shape) > -1
    mask[..., 0] = True
    torch.testing.assert_close(attend(q, k, v, mask).double(), written_out(q, k, v, mask), rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((5, 8), (9, 7), (9, 8)), ((5, 8), (9, 8), (8, 8)), ((3, 5, 8), (9, 8), (9, 8)), ((8,), (8,), (8,)),
        ((2, 3, 5, 8), (2, 3, 9, 8), (2, 1, 9, 8)),
        *(((2, 3, 5, 8), (*leading, 9, 8), (*leading, 9, 8)) for leading in ((2, 2), (2, 6), (4, 3))),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit_are_refused(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        attend(torch.ones(q), torch.ones(k), torch.ones(v))
    assert [str(shape) for shape in (q, k, v) if str(shape) not in str(caught.value)] == []


def test_more_queries_than_keys_cannot_be_causal() -> None:
    given = torch.ones(5, 8), torch.ones(3, 8), torch.ones(3, 8)
    with pytest.raises(ValueError, match="n_keys 3 must be at least n_queries 5"):
        attend(*given, causal=True)
    assert attend(*given).shape == (5, 8)


@pytest.mark.parametrize("S", [10, 400])
def test_dropout_sets_a_fraction_of_the_weights_to_0_and_scales_the_others(S: int) -> None:
    q, k, v = qkv((2, 3), 400, S, d_v=S)
    v = torch.eye(S).expand(2, 3, S, S)  # the output is the weights themselves
    calm = attend(q, k, v)
    torch.manual_seed(1)
    shaken = attend(q, k, v, dropout=0.25)
    kept = shaken > 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(shaken[kept], calm[kept] / 0.75)


def layer_written_out(layer: Attention, config: ModelConfig, x: Tensor, at: Tensor) -> Tensor:
    """Oracle: one head of one sequence at a time, heads cut out of the projections by their columns."""
    D, G, H = config.d_head, config.n_kv_heads, config.n_heads
    rotary = Rotary.from_config(config) if config.position == "rotary" else None

    def project(linear: nn.Module, x: Tensor) -> Tensor:
        return x @ linear.weight.T + (0 if linear.bias is None else linear.bias)

    def prepare(z: Tensor, norm: nn.Module, positions: Tensor) -> Tensor:
        if isinstance(norm, RMSNorm):
            z = z / (z.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * norm.weight
        return z if rotary is None else rotary(z, positions)

    out = []
    for sequence, where in zip(x, at.expand(len(x), -1), strict=True):
        q, k, v = (project(linear, sequence) for linear in (layer.q_proj, layer.k_proj, layer.v_proj))
        heads = []
        for h in range(H):
            mine, theirs = slice(h * D, (h + 1) * D), slice(h * G // H * D, (h * G // H + 1) * D)
            q_h, k_h = prepare(q[:, mine], layer.q_norm, where), prepare(k[:, theirs], layer.k_norm, where)
            heads.append(written_out(q_h, k_h, v[:, theirs], causal=True).float())
        out.append(project(layer.o_proj, torch.cat(heads, dim=-1)))
    return torch.stack(out)


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("T", [1, 6, 19])
@pytest.mark.parametrize(
    "changes",
    [
        {}, {"n_kv_heads": 6}, {"n_kv_heads": 1}, {"n_heads": 1, "n_kv_heads": 1}, {"qkv_bias": True}, {"o_bias": True},
        {"qk_norm": True, "norm_eps": 0.3}, {"rope_layout": "interleaved"}, {"position": "none", "d_head": 7},
        {"attention_dropout": 0.9},
    ],
    ids=str,
)  # fmt: skip
def test_a_layer_is_its_heads_written_out(changes: dict[str, Any], T: int, per_sequence: bool) -> None:
    config = tiny("llama", **changes)
    layer, x, at = (
        scramble(Attention(config).eval(), 0.5, 0),
        normal(6, T, config.d_model),
        torch.arange(T) * 2 % 37,
    )  # B == H
    at = (at + torch.arange(6)[:, None] * at) % 37 if per_sequence else at
    expected = layer_written_out(layer, config, x, at)
    torch.testing.assert_close(layer(x, at), expected, rtol=0, atol=rounding(expected, 4))
