"""Interventions against changed copies of the weights and an attention written out, and what is refused."""

import copy
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from support.models import normal, scrambled, some_ids, tiny
from torch import Tensor, nn

from tinylm_lib import KVCache, TransformerLM, add_lora, generate, intervene, mean_heads
from tinylm_lib.quantization import quantize_model

pytestmark = pytest.mark.usefixtures("one_thread")

CLOSE = 1e-10  # in fp64; logits are of a size of 10
NAMES = ["modern", "llama", "gpt2", "post-norm, rms, interleaved", "one key for all heads", "no positions, geglu"]
B, T, D, H = 3, 11, 8, 6
IDS = some_ids(B, T)
NO_KEY_LEFT = [(1, 3, 4, key) for key in range(5)]
LOOKS = [(0, 2, 7, 3), (0, 2, 7, 4), (0, 5, 7, 7), (1, None, 10, 0), (1, None, 6, 2), *NO_KEY_LEFT]


def model_of(name: str = "modern", **changes: Any) -> TransformerLM:
    return scrambled(tiny(name, **changes)).double()


def logits(model: nn.Module, ids: Tensor = IDS, **more: Any) -> Tensor:
    with torch.no_grad():
        return model(ids, **more)


def is_close(a: Tensor, b: Tensor) -> bool:
    return (a - b).abs().max().item() < CLOSE


def hooks(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@contextmanager
def untouched(model: TransformerLM) -> Iterator[None]:
    """Afterwards the model is what it was: its weights, its logits to the last bit, no hook."""
    before, weights = logits(model), {name: (p.clone(), p._version) for name, p in model.named_parameters()}
    yield
    assert hooks(model) == 0 and torch.equal(logits(model), before)
    for name, p in model.named_parameters():
        assert torch.equal(p, weights[name][0]) and p._version == weights[name][1], name


def copy_with(model: TransformerLM, change: Callable[[TransformerLM], None]) -> TransformerLM:
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    return other


def written_out(looks: list[tuple[Any, ...]]) -> Callable[..., Tensor]:
    """Attention of whole texts, one head and one query at a time, over the keys that are left."""

    def mix(q: Tensor, k: Tensor, v: Tensor, mask: None = None) -> Tensor:
        y = torch.zeros_like(q)
        for head in range(H):
            group = head // (H // k.shape[1])
            for t in range(q.shape[2]):
                forbidden = {key for one, query, key in looks if one in (None, head) and query == t}
                keys = [key for key in range(t + 1) if key not in forbidden]
                if keys:
                    scores = q[:, head, t, None] @ k[:, group, keys].transpose(1, 2) / math.sqrt(D)
                    y[:, head, t] = (scores.softmax(-1) @ v[:, group, keys])[:, 0]
        return y.transpose(1, 2).flatten(2)

    return mix


def forbidding(model: TransformerLM, looks: list[tuple[Any, ...]]) -> TransformerLM:
    """A copy whose layers compute attention as written out."""
    other = copy.deepcopy(model)
    for layer, block in enumerate(other.blocks):
        block.attention.mix = written_out([look for i, *look in looks if i == layer])
    return other


# Each kind of change


@pytest.mark.parametrize("name", NAMES)
def test_a_silent_head_is_one_whose_columns_of_o_proj_are_0(name: str) -> None:
    model = model_of(name)

    def silence(other: TransformerLM) -> None:
        other.blocks[0].attention.o_proj.weight[:, 2 * D : 3 * D] = 0
        other.blocks[1].attention.o_proj.weight[:, 5 * D :] = 0

    with untouched(model), intervene(model, silence=[(0, 2), (1, 5)]) as same:
        assert same is model and is_close(logits(model), logits(copy_with(model, silence)))


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_part_is_one_whose_last_map_is_0(name: str) -> None:
    model = model_of(name)

    def stop(other: TransformerLM) -> None:
        for last in (other.blocks[0].ffn.down_proj, other.blocks[1].attention.o_proj):
            for p in last.parameters():
                p.zero_()

    with untouched(model), intervene(model, stop=[(0, "ffn"), (1, "attention")]):
        assert is_close(logits(model), logits(copy_with(model, stop)))


@pytest.mark.parametrize("name", NAMES)
def test_what_a_unit_writes_is_a_row_of_the_head(name: str) -> None:
    model = model_of(name)

    def write(other: TransformerLM) -> None:
        head = other.embed if other.lm_head is None else other.lm_head
        for layer, unit, token in ((0, 3, 7), (0, 20, 40), (1, 27, 0)):
            other.blocks[layer].ffn.down_proj.weight[:, unit] = head.weight[token]

    with untouched(model), intervene(model, write=[(0, 3, 7), (0, 20, 40), (1, 27, 0)]):
        assert is_close(logits(model), logits(copy_with(model, write)))


def test_there_are_models_with_a_head_of_their_own_and_without() -> None:
    assert {model_of(name).lm_head is None for name in NAMES} == {True, False}


@pytest.mark.parametrize("name", NAMES)
def test_forbidden_looks_are_left_out_of_the_softmax(name: str) -> None:
    model = model_of(name)
    assert is_close(logits(forbidding(model, [])), logits(model))
    expected = logits(forbidding(model, LOOKS))
    with untouched(model), intervene(model, forbid=LOOKS):
        assert is_close(logits(model), expected) and expected.isfinite().all()
        assert is_close(logits(model, last_only=True), expected[:, -1:])
    assert not is_close(logits(model)[:, 7], expected[:, 7])


@pytest.mark.parametrize("name", NAMES)
def test_the_means_of_one_text_change_nothing_for_it(name: str) -> None:
    model = model_of(name)
    means = mean_heads(model, IDS[1:2])
    assert means.shape == (2, H, T, D)
    own = {(layer, head): means[layer, head] for layer in range(2) for head in range(H)}
    with untouched(model):
        before = logits(model)
        with intervene(model, means=own):
            after = logits(model)
    assert is_close(after[1], before[1])
    # Which heads mix what no longer depends on the text: between texts only the token itself differs.
    assert not is_close(after[0], before[0])


def test_means_replace_what_a_head_mixes_at_each_position() -> None:
    model, caught = model_of(), []
    own = model.blocks[1].attention.o_proj
    with own.register_forward_pre_hook(lambda _, args: caught.append(args[0].clone())):
        logits(model)
    means = mean_heads(model, IDS)
    assert is_close(means[1].transpose(0, 1).flatten(1), caught[0].mean(0))
    with (
        intervene(model, means={(1, 4): means[1, 4]}),
        own.register_forward_pre_hook(lambda _, args: caught.append(args[0].clone())),
    ):
        logits(model)
    expected = caught[0].clone()
    expected[..., 4 * D : 5 * D] = caught[0].mean(0)[:, 4 * D : 5 * D]
    assert torch.equal(caught[1], expected)


def test_means_are_taken_without_dropout_and_under_what_is_changed() -> None:
    model = model_of(attention_dropout=0.5).train()
    means = mean_heads(model, IDS)
    assert model.training and torch.equal(mean_heads(model, IDS), means) and hooks(model) == 0
    with intervene(model, silence=[(0, 1)]):
        assert (mean_heads(model, IDS)[0, 1] == 0).all()
    half = mean_heads(model.bfloat16(), IDS)
    assert half.dtype == torch.float32 and torch.allclose(half.double(), means, atol=0.1)


# Together


ALL = {
    "silence": [(0, 1)],
    "means": {(1, 2): normal(30, D, dtype=torch.float64, seed=5)},
    "forbid": LOOKS,
    "stop": [(1, "ffn")],
    "write": [(0, 9, 17), (0, 10, 17)],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_cache_gives_what_the_whole_text_gives(name: str) -> None:
    model = model_of(name)
    with untouched(model), intervene(model, **ALL):
        whole = logits(model)
        for sizes in ([1] * T, [4, 1, 6], [7, 4]):
            cache = KVCache(model.config, B, T, dtype=torch.float64)
            parts = [logits(model, ids, cache=cache) for ids in IDS.split(sizes, dim=1)]
            assert is_close(torch.cat(parts, 1), whole), sizes
        written = generate(model, IDS[:1, :3], 9, temperature=0)
        for n in range(3, 12):
            assert logits(model, written[:, :n])[0, -1].argmax() == written[0, n]


@pytest.mark.parametrize("nested", [False, True])
def test_padding_is_not_counted(nested: bool) -> None:
    model, padding = model_of(), torch.tensor([0, 4, 2])
    padded = torch.zeros(B, T + 4, dtype=torch.long)
    for row, n in enumerate(padding.tolist()):
        padded[row, n : n + T] = IDS[row]
    outer, inner = ({"forbid": LOOKS[:4]}, {**ALL, "forbid": LOOKS[4:]}) if nested else ({}, ALL)
    with intervene(model, **outer), intervene(model, **inner):
        whole, seen = logits(model), logits(model, padded, padding=padding)
        cache = KVCache(model.config, B, T + 4, dtype=torch.float64)
        steps = [logits(model, ids, cache=cache, padding=padding) for ids in padded.split([6, 1, 8], dim=1)]
    for row, n in enumerate(padding.tolist()):
        assert is_close(seen[row, n : n + T], whole[row])
        assert is_close(torch.cat(steps, 1)[row, n : n + T], whole[row])


def test_blocks_add_up_and_the_inner_one_counts() -> None:
    model = model_of()
    rows = ALL["means"][1, 2]
    with untouched(model):
        with intervene(model, **ALL):
            together = logits(model)
        with (
            intervene(model, silence=[(0, 1)], forbid=LOOKS[:3]),
            intervene(model, stop=[(1, "ffn")], forbid=LOOKS[3:]),
            intervene(model, means=ALL["means"], write=ALL["write"]),
        ):
            assert is_close(logits(model), together)
        with intervene(model, write=[(0, 9, 5), (0, 4, 4)]):
            outer = logits(model)
            with intervene(model, write=[(0, 9, 17)]):
                inner = logits(model)
            assert torch.equal(logits(model), outer)
        with intervene(model, write=[(0, 9, 17), (0, 4, 4)]):
            assert is_close(logits(model), inner)
        with intervene(model, silence=[(1, 2)]), intervene(model, means={(1, 2): rows}):
            mean = logits(model)
        with intervene(model, means={(1, 2): rows}):
            assert torch.equal(logits(model), mean)


def test_all_is_as_before_after_an_error() -> None:
    model = model_of()
    with untouched(model):
        with pytest.raises(ZeroDivisionError), intervene(model, **ALL):
            raise ZeroDivisionError
        short = {(0, 4): torch.zeros(10, D)}
        said = r"the means of head 4 have 10 rows, too few for position 10; take"
        with pytest.raises(ValueError, match=said), intervene(model, means=short):
            assert logits(model, IDS[:, :10]).isfinite().all()
            logits(model)
        with pytest.raises(ValueError, match="layer 2 in stop"), intervene(model, **{**ALL, "stop": [(2, "ffn")]}):
            pass


def test_gradients_flow_as_in_a_changed_copy() -> None:
    model = model_of()
    rows = ALL["means"][1, 2].clone().requires_grad_()
    with intervene(model, **{**ALL, "means": {(1, 2): rows}}):
        model(IDS).square().sum().backward()
    other = forbidding(model_of(), LOOKS)
    mixes = [block.attention.mix for block in other.blocks]
    own = rows.detach().clone().requires_grad_()

    def silenced(*args: Any) -> Tensor:
        heads = list(mixes[0](*args).split(D, -1))
        return torch.cat([*heads[:1], 0 * heads[1], *heads[2:]], -1)

    def replaced(*args: Any) -> Tensor:
        heads = list(mixes[1](*args).split(D, -1))
        return torch.cat([*heads[:2], own[:T].expand(B, T, D), *heads[3:]], -1)

    other.blocks[0].attention.mix, other.blocks[1].attention.mix = silenced, replaced
    down, head = other.blocks[0].ffn.down_proj, other.embed if other.lm_head is None else other.lm_head
    column = torch.arange(28) == 9
    column[10] = True
    down.forward = lambda h: h @ torch.where(column, head.weight[17, :, None], down.weight).T
    other.blocks[1].ffn.forward = torch.zeros_like
    other(IDS).square().sum().backward()
    assert rows.grad[:T].abs().min() > 0 and torch.allclose(rows.grad, own.grad)
    for (name, p), q in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        assert p.grad is None or torch.allclose(p.grad, q.grad, atol=1e-7), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_what_it_is(dtype: torch.dtype) -> None:
    model = model_of().to(dtype)
    with intervene(model, **ALL):
        seen = logits(model)
    with intervene(model.double(), **ALL):
        assert seen.dtype == dtype and torch.allclose(seen.double(), logits(model), atol=0.1 * seen.abs().max().item())


def test_maps_with_an_update_are_changed_too() -> None:
    model = model_of()
    add_lora(model, 2, ("o_proj", "down_proj"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("lora_b"):
                p.fill_(0.3)
    plain = model_of()
    with torch.no_grad():
        for block, other in zip(plain.blocks, model.blocks, strict=True):
            block.attention.o_proj.weight.copy_(other.attention.o_proj.weight)
            block.ffn.down_proj.weight.copy_(other.ffn.down_proj.weight)
    with intervene(model, **ALL), intervene(plain, **ALL):
        assert is_close(logits(model), logits(plain))


def test_attention_alone_takes_plain_positions() -> None:
    model = model_of("no positions, geglu")
    attention, x = model.blocks[1].attention, normal(B, T, 20, dtype=torch.float64)
    expected = forbidding(model, LOOKS).blocks[1].attention(x, torch.arange(T))
    with intervene(model, forbid=LOOKS):
        assert is_close(attention(x, positions=torch.arange(T)), expected)
        assert is_close(attention(x, torch.arange(T).expand(B, T)), expected)


# What is refused


ROWS = torch.zeros(5, D)
WRONG: dict[str, tuple[dict[str, Any], type, str]] = {
    "layer": ({"silence": [(2, 0)]}, ValueError, "layer 2 in silence is unknown; use one of 0..1"),
    "negative": ({"silence": [(-1, 0)]}, ValueError, "layer -1 in silence is unknown; use one of 0..1"),
    "head": ({"silence": [(0, 6)]}, ValueError, "head 6 in silence is unknown; use one of 0..5"),
    "no head": ({"silence": [(0, None)]}, ValueError, "head None in silence is unknown"),
    "bool": ({"silence": [(True, 0)]}, ValueError, "layer True in silence is unknown"),
    "float": ({"silence": [(0.0, 0)]}, ValueError, "layer 0.0 in silence is unknown"),
    "text": ({"stop": "ffn"}, TypeError, "stop takes a list of (layer, part), got 'f' in it; use [(layer, part)]"),
    "pair": ({"silence": (1, 2)}, TypeError, "silence takes a list of (layer, head), got 1 in it"),
    "number": ({"silence": 3}, TypeError, "silence takes a list of (layer, head), got 3 in it"),
    "short": ({"forbid": [(1, 2)]}, TypeError, "forbid takes a list of (layer, head, query, key), got (1, 2)"),
    "part": ({"stop": [(0, "mlp")]}, ValueError, "part 'mlp' in stop is unknown; use one of ('attention', 'ffn')"),
    "query": ({"forbid": [(0, 0, 37, 3)]}, ValueError, "query 37 in forbid is unknown; use one of 0..36"),
    "key": ({"forbid": [(0, None, 3, 4)]}, ValueError, "key 4 in forbid is after its query 3"),
    "forbidden head": ({"forbid": [(0, 6, 3, 1)]}, ValueError, "head 6 in forbid is unknown; use one of (0, 1, 2"),
    "unit": ({"write": [(0, 28, 3)]}, ValueError, "unit 28 in write is unknown; use one of 0..27"),
    "id": ({"write": [(0, 2, 41)]}, ValueError, "id 41 in write is unknown; use one of 0..40"),
    "unit twice": ({"write": [(0, 2, 4), (0, 2, 5)]}, ValueError, "unit (0, 2) (layer, unit) is replaced 2 times"),
    "silent mean": ({"silence": [(1, 3)], "means": {(1, 3): ROWS}}, ValueError, "head (1, 3) (layer, head) is rep"),
    "no dict": ({"means": [((1, 3), ROWS)]}, TypeError, "means takes a dict, got list; use {(layer, head): rows}"),
    "no tensor": ({"means": {(1, 3): [0.0]}}, TypeError, "means of (1, 3) must be a tensor, got list; use mean_heads"),
    "width": ({"means": {(1, 3): torch.zeros(5, 7)}}, ValueError, "means of (1, 3) must be (S, 8) of numbers with a"),
    "axes": ({"means": {(1, 3): torch.zeros(D)}}, ValueError, "got (8,) of torch.float32; use mean_heads"),
    "integers": ({"means": {(1, 3): ROWS.long()}}, ValueError, "got (5, 8) of torch.int64"),
    "mean of a head": ({"means": {(1, 6): ROWS}}, ValueError, "head 6 in means is unknown"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_the_model_does_not_have_is_named(what: str) -> None:
    changes, kind, said = WRONG[what]
    model = model_of()
    with pytest.raises(kind, match=re.escape(said)), intervene(model, **changes):
        pass
    assert hooks(model) == 0


def test_models_that_hooks_cannot_change_are_refused() -> None:
    for call in (lambda model: intervene(model).__enter__(), lambda model: mean_heads(model, IDS)):
        with pytest.raises(TypeError, match="takes a TransformerLM, got DataParallel; take the model out of a wra"):
            call(nn.DataParallel(model_of()))
        with pytest.raises(ValueError, match="needs weights in full, and this model's are in 8 bits"):
            call(quantize_model(scrambled(tiny("modern"))))
        again = model_of()
        again.recompute = True
        with pytest.raises(ValueError, match=r"set model\.recompute = False"):
            call(again)


@pytest.mark.slow  # it imports the compiler
def test_compiled_models_are_refused() -> None:
    model = model_of()
    model.blocks[1].compile(backend="eager")
    with pytest.raises(ValueError, match="needs hooks, which a compiled model ignores"), intervene(model):
        pass


def test_the_same_look_or_head_may_be_named_twice() -> None:
    model = model_of()
    with intervene(model, silence=[(0, 1)], forbid=LOOKS, stop=[(1, "ffn")]):
        once = logits(model)
    with intervene(model, silence=[(0, 1), [0, 1]], forbid=(look for look in LOOKS + LOOKS), stop=[(1, "ffn")] * 2):
        assert torch.equal(logits(model), once)


def test_a_copy_made_inside_keeps_the_changes_and_the_model_does_not() -> None:
    model, ids = scrambled(tiny("modern")), some_ids(2, 9)
    usual = model(ids)
    changes: dict[str, Any] = {
        "silence": [(1, 2)],
        "forbid": [(0, 1, 5, 3)],
        "stop": [(1, "ffn")],
        "write": [(0, 17, 5)],
    }
    with intervene(model, **changes):
        inside, changed = model(ids), copy.deepcopy(model)
    torch.testing.assert_close(changed(ids), inside, rtol=0, atol=0)
    torch.testing.assert_close(model(ids), usual, rtol=0, atol=0)
    assert not torch.allclose(inside, usual, atol=1e-2)
