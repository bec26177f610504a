"""Low-rank updates of frozen maps: closed forms, what trains, merging and back, files, and what is refused."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.models import SIZES, normal, rounding, scrambled, some_ids, tiny
from torch import Tensor, nn

from tinylm_lib import TrainConfig, TransformerLM, build_optimizer, generate, load_hf, save_hf, train
from tinylm_lib.layers import Linear
from tinylm_lib.lora import (
    LoRA,
    add_lora,
    load_lora,
    lora_layers,
    lora_state,
    merge_lora,
    remove_lora,
    save_lora,
    unmerge_lora,
)  # fmt: skip
from tinylm_lib.quantization import quantize_model
from tinylm_lib.training import checkpoint

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
N_PRODUCTS = 15  # one behind the other, with the two of an update


def updated(name: str = "llama", rank: int = 3, alpha: float | None = 5.0, seed: int = 7, **more: Any) -> TransformerLM:
    """A model whose updates are as large as its weights."""
    model = scrambled(tiny(name, **more))
    add_lora(model, rank, [n for n in ALL if n != "gate_proj" or "gate_proj" in str(model)], alpha)
    with torch.no_grad():
        for i, p in enumerate(lora_state(model).values()):
            p.copy_(normal(*p.shape, seed=seed + i) / math.sqrt(p.shape[1]))
    return model


def logits(model: nn.Module, dtype: torch.dtype = torch.float32) -> Tensor:
    with torch.no_grad():
        return model(some_ids(3, 11)).to(dtype)


def bits(model: nn.Module) -> dict[str, Tensor]:
    return {name.replace(".linear.", "."): t.clone() for name, t in model.state_dict().items() if "lora_" not in name}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_map_by_hand() -> None:
    linear = Linear(2, 3, bias=True)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]))
        linear.bias.copy_(torch.tensor([0.5, 0.0, -0.5]))
    lora = LoRA(linear, rank=1, alpha=4)
    with torch.no_grad():
        lora.lora_a.copy_(torch.tensor([[1.0, 2.0]]))
        lora.lora_b.copy_(torch.tensor([[1.0], [0.0], [-1.0]]))
    x = torch.tensor([3.0, 1.0])
    # W x + b = (3.5, 1, 4.5), A x = 5, and 4 / 1 * B A x = (20, 0, -20)
    assert lora(x).tolist() == [23.5, 1.0, -15.5]
    assert lora.update.tolist() == [[4.0, 8.0], [0.0, 0.0], [-4.0, -8.0]]
    assert lora.weight.tolist() == [[5.0, 8.0], [0.0, 1.0], [-2.0, -9.0]]
    lora.eval().merge()
    assert lora(x).tolist() == [23.5, 1.0, -15.5] and lora.bias is linear.bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gpt2", "modern", "post-norm, layer"])
def test_nothing_changes_at_first_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    model = scrambled(tiny(name)).to(dtype)
    before = logits(model)
    names = add_lora(model, 2, ["q_proj", "down_proj"])
    assert torch.equal(logits(model), before) and len(names) == 2 * SIZES["n_layers"]
    wide = torch.promote_types(dtype, torch.float32)
    assert {p.dtype for p in lora_state(model).values()} == {wide}


def test_the_first_numbers_have_the_variance_that_is_said() -> None:
    torch.manual_seed(1)
    lora = LoRA(Linear(400, 300), 100)
    assert lora.lora_a.shape == (100, 400) and not lora.lora_b.any()
    assert abs(lora.lora_a.std() * math.sqrt(400) - 1) < 4 / math.sqrt(2 * 40_000)
    assert abs(lora.lora_a.mean()) < 4 / 400 / math.sqrt(100) + 1e-9


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_rank_and_number_of_parameters_are_those_of_the_formula(rank: int) -> None:
    model = scrambled(tiny("llama"))
    add_lora(model, rank, ["q_proj", "v_proj"])
    C, H, G, D, L = (SIZES[k] for k in ("d_model", "n_heads", "n_kv_heads", "d_head", "n_layers"))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == L * rank * (C + H * D + C + G * D) == sum(t.numel() for t in lora_state(model).values())
    model = updated(rank=rank)
    for lora in lora_layers(model).values():
        assert torch.linalg.matrix_rank(lora.update.detach()) == rank


@pytest.mark.parametrize("name", ["llama", "gpt2", "one key for all heads"])
def test_a_model_with_updates_is_the_model_of_the_summed_weights(name: str) -> None:
    model = updated(name)
    summed = TransformerLM(model.config).double().eval()
    state = {k: v.double() for k, v in bits(model).items()}
    for where, lora in lora_layers(model).items():
        a, b = lora.lora_a.detach().double(), lora.lora_b.detach().double()
        state[f"{where}.weight"] += 5.0 / 3 * torch.einsum("or,ri->oi", b, a)
    summed.load_state_dict(state)
    expected = logits(summed, torch.float64)
    plain = logits(scrambled(model.config), torch.float64)
    assert (expected - plain).abs().max() > 0.5, "the updates matter"
    assert (logits(model, torch.float64) - expected).abs().max() <= rounding(expected.float(), N_PRODUCTS)
    merge_lora(model)
    assert (logits(model, torch.float64) - expected).abs().max() <= rounding(expected.float(), N_PRODUCTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_merging_and_back_leaves_every_bit(dtype: torch.dtype) -> None:
    model = updated().to(dtype)
    for lora in lora_layers(model).values():  # as a model in bf16 has them after add_lora
        lora.lora_a.data, lora.lora_b.data = (p.data.float() for p in (lora.lora_a, lora.lora_b))
    before, said, state = bits(model), logits(model), lora_state(model)
    for _ in range(3):
        merge_lora(model)
        merged = bits(model)
        for name, lora in lora_layers(model).items():  # one rounding, of the exact sum
            exact = before[f"{name}.weight"].double() + lora.scale * (state[f"{name}.lora_b"].double()
                                                                      @ state[f"{name}.lora_a"].double())  # fmt: skip
            step = torch.finfo(dtype).eps * exact.abs() + 1e-6 * exact.abs().max()
            assert ((merged[f"{name}.weight"].double() - exact).abs() <= step).all()
        assert not same(merged, before)
        unmerge_lora(model)
        assert same(bits(model), before) and torch.equal(logits(model), said)


def test_subtracting_the_update_again_would_not_leave_every_bit() -> None:
    """Why the weight is kept: rounding loses what a sum cannot hold."""
    model = updated()
    lora = lora_layers(model)["blocks.0.attention.q_proj"]
    weight, update = lora.linear.weight.detach(), lora.update.detach()
    assert not torch.equal((weight + update) - update, weight)


def test_only_the_updates_get_gradients_and_only_they_move() -> None:
    model = scrambled(tiny("llama"))
    names = add_lora(model, 2, ["k_proj", "up_proj"])
    assert names == [f"blocks.{i}.{n}" for i in range(2) for n in ("attention.k_proj", "ffn.up_proj")]
    before, recipe = copy.deepcopy(model.state_dict()), TrainConfig(total_steps=3, batch_size=2, matrix_lr=0.01)
    ids = some_ids(2, 9)
    batches = iter([(ids[:, :-1], ids[:, 1:])] * 3)
    losses = [step.loss.item() for step in train(model, build_optimizer(model, recipe), batches, recipe)]
    assert losses[0] > losses[-1]
    moved = {name for name, t in model.state_dict().items() if not torch.equal(t, before[name])}
    assert moved == {f"{name}.{part}" for name in names for part in ("lora_a", "lora_b")} == set(lora_state(model))
    assert {name for name, p in model.named_parameters() if p.requires_grad} == moved


def test_the_first_gradient_of_a_is_zero_and_that_of_b_is_not() -> None:
    model = scrambled(tiny("llama"))
    add_lora(model, 2)
    model(some_ids(2, 9)).square().mean().backward()
    for lora in lora_layers(model).values():
        assert not lora.lora_a.grad.any() and lora.lora_b.grad.abs().max() > 0
        assert lora.linear.weight.grad is None


@pytest.mark.parametrize("merged", [False, True])
def test_writing_is_that_of_the_summed_weights(merged: bool) -> None:
    model = updated()
    plain = copy.deepcopy(model)
    merge_lora(plain)
    remove_lora(plain)
    assert not lora_layers(plain) and all(p.requires_grad for p in plain.parameters())
    if merged:
        merge_lora(model)
    prompt = some_ids(2, 4)
    assert torch.equal(generate(model, prompt, 12, temperature=0), generate(plain, prompt, 12, temperature=0))


def test_removing_without_merging_gives_the_model_from_before() -> None:
    model = scrambled(tiny("llama"))
    before = copy.deepcopy(model)
    add_lora(model, 2, ALL)
    with torch.no_grad():
        for p in lora_state(model).values():
            p.fill_(1.0)
    remove_lora(model)
    assert same(model.state_dict(), before.state_dict()) and torch.equal(logits(model), logits(before))
    assert type(model.blocks[0].attention.q_proj) is Linear


def test_a_merged_model_goes_to_disk_as_any_other(tmp_path: Path) -> None:
    model = updated("llama")
    expected = logits(model)
    for write in (lambda: save_hf(model, tmp_path / "hf"), lambda: checkpoint.save(tmp_path / "own", model)):
        with pytest.raises(ValueError, match=r"needs plain weights, .* use merge_lora\(model\) and remove_lora"):
            write()
    merge_lora(model)
    with pytest.raises(ValueError, match="needs plain weights"):
        save_hf(model, tmp_path / "hf")
    remove_lora(model)
    save_hf(model, tmp_path / "hf")
    checkpoint.save(tmp_path / "own", model)
    for found in (load_hf(tmp_path / "hf"), checkpoint.load(tmp_path / "own").model.eval()):
        assert (logits(found) - expected).abs().max() <= rounding(expected, N_PRODUCTS)


def test_a_file_holds_the_updates_alone_and_gives_the_same_logits(tmp_path: Path) -> None:
    model = updated()
    path = save_lora(model, tmp_path / "new" / "update.safetensors")
    stored = load_file(path)
    assert set(stored) == {f"{name}.{part}" for name in lora_layers(model) for part in ("lora_a", "lora_b")}
    other = scrambled(model.config)
    assert load_lora(other, path) == list(lora_layers(model))
    assert torch.equal(logits(other), logits(model)) and lora_layers(other)["blocks.1.ffn.up_proj"].alpha == 5.0
    again = scrambled(model.config)
    add_lora(again, 3, ALL, alpha=5.0)
    load_lora(again, path)  # into updates that are there
    assert torch.equal(logits(again), logits(model))
    assert [p.name for p in path.parent.iterdir()] == ["update.safetensors"]


def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    path = save_lora(updated(), tmp_path / "update")
    model = scrambled(tiny("llama"))
    add_lora(model, 2, ALL, alpha=5.0)
    before = copy.deepcopy(model.state_dict())
    name = "blocks.0.attention.k_proj.lora_a is (3, 20) in the file and (2, 20) in the model; use the same add_lora"
    with pytest.raises(ValueError, match=re.escape(name)):
        load_lora(model, path)
    remove_lora(model)
    add_lora(model, 3, ALL[:2], alpha=5.0)
    with pytest.raises(ValueError, match=r"is \(3, 48\) in the file and missing in the model"):
        load_lora(model, path)
    remove_lora(model)
    add_lora(model, 3, ALL)
    with pytest.raises(ValueError, match="has alpha 3, and the file 5"):
        load_lora(model, path)
    merge_lora(model)
    with pytest.raises(ValueError, match=r"is merged; use unmerge_lora\(model\) first"):
        load_lora(model, path)
    unmerge_lora(model)
    remove_lora(model)
    assert same(model.state_dict(), {n.replace(".linear.", "."): t for n, t in before.items() if "lora_" not in n})
    larger = scrambled(tiny("llama", d_model=24))
    with pytest.raises(ValueError, match=r"is \(3, 20\) in the file and \(3, 24\) in the model"):
        load_lora(larger, path)
    assert not lora_layers(larger) and all(p.requires_grad for p in larger.parameters())
    with pytest.raises(ValueError, match="gate_proj"):
        load_lora(scrambled(tiny("gpt2")), path)


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    model = scrambled(tiny("llama"))
    with pytest.raises(FileNotFoundError, match="give one that save_lora wrote"):
        load_lora(model, tmp_path / "nothing")
    (tmp_path / "text").write_text("no tensors")
    save_file({"a": torch.ones(2)}, tmp_path / "foreign")
    for name in ("text", "foreign"):
        with pytest.raises(ValueError, match="is not a file of save_lora, or it is damaged"):
            load_lora(model, tmp_path / name)
    assert not lora_layers(model)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rank 0": ({"rank": 0}, r"rank must be 1 to 20 for a matrix \(48, 20\), got 0"),
    "a negative rank": ({"rank": -1}, "got -1"),
    "a rank that adds nothing": ({"rank": 21}, "rank must be 1 to 20"),
    "half a rank": ({"rank": 2.0}, "got 2.0"),
    "alpha 0": ({"alpha": 0}, "alpha must be above 0, got 0"),
    "alpha that is none": ({"alpha": math.nan}, "got nan"),
    "alpha beyond all": ({"alpha": math.inf}, "got inf"),
    "an unknown name": ({"names": ["q_proj", "query"]}, "q_proj, k_proj, v_proj, .*the maps inside .* got 'query'"),
    "the head": ({"names": ["lm_head"]}, "got 'lm_head'"),
    "one text": ({"names": "q_proj"}, "names must be a list of q_proj, .* got 'q_proj'"),
    "no name": ({"names": []}, r"got \[\]"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_wrong_arguments_are_refused_before_anything_is_changed(what: str) -> None:
    changes, said = REFUSED[what]
    model = scrambled(tiny("llama"))
    with pytest.raises(ValueError, match=said):
        add_lora(model, **{"rank": 2, **changes})
    assert not lora_layers(model) and all(p.requires_grad for p in model.parameters())


def test_twice_and_never_are_refused() -> None:
    model = scrambled(tiny("llama"))
    for needs in (merge_lora, unmerge_lora, remove_lora, lora_state):
        with pytest.raises(ValueError, match="has no LoRA updates; use add_lora"):
            needs(model)
    add_lora(model, 2)
    with pytest.raises(ValueError, match="has LoRA updates already"):
        add_lora(model, 2, ["o_proj"])
    with pytest.raises(ValueError, match="nothing to take out"):
        unmerge_lora(model)
    merge_lora(model)
    with pytest.raises(ValueError, match="would count twice"):
        merge_lora(model)
    with pytest.raises(ValueError, match=r"cannot be trained; use unmerge_lora\(model\) first"):
        model.train()
    unmerge_lora(model)
    model.train()
    with pytest.raises(ValueError, match=r"in training mode; .* use model.eval\(\)"):
        merge_lora(model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_over_weights_in_8_bits_the_updates_train_and_nothing_else(dtype: torch.dtype) -> None:
    small = quantize_model(scrambled(tiny("llama")).to(dtype))
    kept = {name: t.clone() for name, t in small.state_dict().items()}
    expected = logits(small)
    add_lora(small, 2, ["q_proj"])
    torch.testing.assert_close(logits(small), expected)
    full = scrambled(tiny("llama")).to(dtype)  # the same with the rounded weights in full
    with torch.no_grad():
        for name, module in full.named_modules():
            if isinstance(module, Linear) or name == "embed":
                at = name.replace("q_proj", "q_proj.linear")
                module.weight.copy_(small.get_submodule(at).weight.dequantized())
    torch.manual_seed(2)
    add_lora(full, 2, ["q_proj"])
    for mine, theirs in zip(lora_layers(small).values(), lora_layers(full).values(), strict=True):
        with torch.no_grad():
            mine.lora_a.copy_(theirs.lora_a)
    for model in (small, full):
        model.train()
        model(some_ids(2, 9)).float().square().mean().backward()
    for mine, theirs in zip(lora_layers(small).values(), lora_layers(full).values(), strict=True):
        assert mine.lora_b.grad.abs().max() > 0
        torch.testing.assert_close(mine.lora_b.grad, theirs.lora_b.grad)
    recipe = TrainConfig(total_steps=2, batch_size=2, matrix_lr=0.01)
    ids = some_ids(2, 9)
    list(train(small, build_optimizer(small, recipe), iter([(ids[:, :-1], ids[:, 1:])] * 2), recipe))
    now = {name.replace(".linear.", "."): t for name, t in small.state_dict().items() if "lora_" not in name}
    assert same(now, kept), "the weights in 8 bits stay"
    with pytest.raises(ValueError, match="weights in 8 bits cannot take an update"):
        merge_lora(small.eval())
    remove_lora(small)
    with pytest.raises(ValueError, match="cannot be trained"):
        small.train()
    assert not any(p.requires_grad for p in small.parameters())


def test_a_compiled_model_says_the_same() -> None:
    model = updated()
    expected = logits(model)
    model.compile(backend="eager", fullgraph=True)
    assert (logits(model) - expected).abs().max() <= rounding(expected, N_PRODUCTS)
    merge_lora(model)
    assert (logits(model) - expected).abs().max() <= rounding(expected, N_PRODUCTS)


def test_a_model_that_moves_to_another_dtype_while_merged_comes_back() -> None:
    model = updated()
    before = {name: t.to(torch.bfloat16) for name, t in bits(model).items()}
    merge_lora(model)
    model.to(torch.bfloat16)
    unmerge_lora(model)
    assert same(bits(model), before)


def test_it_shows_what_it_is() -> None:
    model = updated()
    assert "LoRA(\n" in repr(model) and "rank=3, alpha=5" in repr(model.blocks[0].attention.q_proj)
    merge_lora(model)
    assert "rank=3, alpha=5, merged" in repr(model.blocks[0].attention.q_proj)
