"""Functions of a student inside the library's model: the same numbers, the same weights, and the library untouched."""

import copy
from functools import partial

import pytest
import torch
from support.models import MODELS, SIZES, scrambled, some_ids, tiny
from torch import Tensor

from tinylm_classroom.exercises import find_exercise
from tinylm_classroom.workshop.student_modules import ADAPTERS, CALLABLE, Fitting, callable_parts
from tinylm_lib import KVCache, TransformerLM, generate
from tinylm_lib.config import RopeScaling
from tinylm_lib.pretrained import load_pretrained

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = sorted(CALLABLE)
T = 19


def fitted(model: TransformerLM, *names: str) -> tuple[TransformerLM, Fitting, set[str]]:
    """A copy of a model with references of exercises in it, how they were fitted, and the set of those called."""
    calls: set[str] = set()

    def call(name: str, *args):
        calls.add(name)
        return find_exercise(name).reference(*args)

    fitting = Fitting({name: partial(call, name) for name in names})
    return fitting.fit(copy.deepcopy(model)), fitting, calls


def cached(model: TransformerLM, ids: Tensor) -> Tensor:
    """Logits of ids (B, T), a few at once and then one by one."""
    cache = KVCache(model.config, len(ids), ids.shape[1])
    return torch.cat([model(piece, cache) for piece in ids.split([7, 5, *[1] * (T - 12)], dim=1)], dim=1)


def assert_same_logits(mine: TransformerLM, model: TransformerLM, ids: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(mine(ids), model(ids), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(cached(mine, ids), cached(model, ids), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_all_right_functions_together_give_the_library_s_logits_with_its_weights(name: str) -> None:
    model = scrambled(tiny(name))
    mine, fitting, calls = fitted(scrambled(tiny(name), seed=5), *ALL)
    assert list(mine.state_dict()) == list(model.state_dict())
    mine.load_state_dict(model.state_dict())
    assert_same_logits(mine, model, some_ids(2, T))
    assert fitting.used.keys() == calls  # what is said to be used is called, and nothing else
    assert len(calls) >= 8
    assert set(fitting.unused).isdisjoint(calls)


@pytest.mark.parametrize("part", ALL)
def test_each_part_alone_is_called_wherever_it_fits(part: str) -> None:
    fits = []
    for name in MODELS:
        model = scrambled(tiny(name))
        mine, fitting, calls = fitted(model, part)
        assert_same_logits(mine, model, some_ids(2, T))
        assert calls == fitting.used.keys() == {part} & callable_parts(model)
        fits += [name] * bool(calls)
    if part == "multi_head_attention":  # as taught in lesson 07, before norms, groups and positions are joined
        model = scrambled(tiny("gpt", d_head=None, d_model=24, n_kv_heads=6, qkv_bias=False, o_bias=False))
        mine, _, calls = fitted(model, part)
        torch.testing.assert_close(mine(some_ids(2, T)), model(some_ids(2, T)), rtol=1e-4, atol=1e-4)
        fits += ["gpt"] * bool(calls)
    assert fits


@pytest.mark.parametrize("name", ["modern", "tiny_transformer", "cs336"])
def test_gradients_are_the_library_s(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(2, T)
    mine, _, _ = fitted(model, *ALL)
    for each in (model, mine):
        each(ids).square().mean().backward()
    for (key, p), q in zip(model.named_parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


def test_no_class_and_no_table_of_the_library_changes() -> None:
    config, ids = tiny("modern"), some_ids(2, T)
    before = {kind: (kind.forward, dict(vars(kind))) for kind in ADAPTERS}
    torch.manual_seed(3)
    logits = TransformerLM(config)(ids)
    wrong = {name: lambda x, *_: torch.full_like(x, torch.nan) for name in ("rms_norm", "swiglu")}
    assert Fitting(wrong).fit(TransformerLM(config))(ids).isnan().all()
    assert {kind: (kind.forward, dict(vars(kind))) for kind in ADAPTERS} == before
    torch.manual_seed(3)
    assert torch.equal(TransformerLM(config)(ids), logits)


def test_the_shipped_model_writes_the_same_words() -> None:
    model = load_pretrained("storyworld").model.eval()
    mine, _, calls = fitted(model, *ALL)
    ids = some_ids(2, 12, vocab_size=model.config.vocab_size)
    with torch.no_grad():
        torch.testing.assert_close(mine(ids), model(ids), rtol=1e-4, atol=1e-3)
    assert torch.equal(generate(mine, ids, 12, temperature=0), generate(model, ids, 12, temperature=0))
    assert {"linear", "rms_norm", "rotate", "attention", "cached_attention", "swiglu", "pre_norm_block"} <= calls


@pytest.mark.parametrize(("part", "name"), [("softmax", "llama"), ("attention", "gpt"), ("rotate", "modern")])
def test_padding_which_no_part_knows_is_refused(part: str, name: str) -> None:
    model, ids, padding = scrambled(tiny(name)), some_ids(2, 9), torch.tensor([0, 3])
    mine, _, _ = fitted(model, part)
    with pytest.raises(ValueError, match="your parts do not handle padding; give prompts of one length"):
        generate(mine, ids, 3, padding=padding)
    assert torch.equal(generate(fitted(model, "linear")[0], ids, 3, temperature=0, padding=padding),
                       generate(model, ids, 3, temperature=0, padding=padding))  # fmt: skip


UNBIASED = {"qkv_bias": False, "o_bias": False}


@pytest.mark.parametrize(
    ("part", "name", "changes", "why"),
    [
        ("rotate", "llama", {"rope_scaling": RopeScaling()}, "stretched"),
        ("attention", "gpt", {"attention_dropout": 0.1}, "drops attention weights"),
        ("softmax", "gpt", {"attention_dropout": 0.1}, "drops attention weights"),
        ("multi_head_attention", "modern", {}, "positions"),
        ("multi_head_attention", "cs336", {"position": "none", "qk_norm": True}, "norms of q and k"),
        ("multi_head_attention", "gpt", {"qkv_bias": True}, "biases"),
        ("multi_head_attention", "gpt", {"n_kv_heads": 6}, "narrower heads"),  # 6 heads of 8 in a width of 20
        ("multi_head_attention", "gpt", {"d_head": None, "d_model": 24, "n_kv_heads": 3, **UNBIASED}, "grouped"),
        ("swiglu", "gpt", {"ffn": "geglu"}, "another"),
        ("swiglu", "modern", {"ffn_bias": True}, "another"),
        ("silu", "gpt2", {}, "another"),
    ],
)
def test_a_part_that_does_not_fit_is_left_out_and_it_says_why(part: str, name: str, changes: dict, why: str) -> None:
    model, ids = scrambled(tiny(name, **changes)), some_ids(2, T)
    mine, fitting, calls = fitted(model, part)
    assert fitting.used == {} and why in fitting.unused[part]
    assert part not in callable_parts(model)
    with torch.no_grad():
        assert torch.equal(mine(ids), model(ids)) and not calls


def test_a_larger_part_brings_its_own_smaller_one_and_a_module_that_layers_share_stays_one() -> None:
    mine, fitting, _ = fitted(scrambled(tiny("modern")), "attention", "softmax", "swiglu", "silu", "linear", "rotate")
    assert mine.blocks[0].attention.rotation is mine.blocks[1].attention.rotation
    assert set(fitting.unused) == {"softmax", "silu"} and fitting.used["rotate"] == 1
    assert fitting.used["linear"] == 4 * SIZES["n_layers"]  # not the weights that swiglu or the model multiply by


def test_a_copy_and_another_device_keep_the_functions() -> None:
    mine, _, calls = fitted(scrambled(tiny("tiny_transformer")), *ALL)
    copy.deepcopy(mine)(some_ids(1, 4))
    assert "sinusoidal" in calls and "layer_norm" in calls
    assert mine.to("meta").position.table.device.type == "meta"


def test_every_module_of_the_library_with_parameters_has_a_place() -> None:
    kinds = {type(m) for name in MODELS for m in scrambled(tiny(name)).modules() if [*m.parameters(recurse=False)]}
    assert {kind.__name__ for kind in kinds - ADAPTERS.keys()} == {"LearnedPosition"}  # no exercise asks for it
    assert all(issubclass(yours, kind) for kind, (yours, _) in ADAPTERS.items())
