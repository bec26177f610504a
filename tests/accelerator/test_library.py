"""The library on an accelerator: the values of the CPU, and nothing is read that it does not need."""

import copy
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerator import DEVICE, memory, reads
from support.models import MODELS, N_PRODUCTS, NO_DROPOUT, assert_same_on, flat, rounding, scrambled, some_ids, tiny
from support.shell import Shell
from support.toys import toy_config, toy_ids, toy_model
from torch import Tensor, nn

from tinylm_lib import (
    CharTokenizer,
    TrainConfig,
    TransformerLM,
    beam_search,
    build_optimizer,
    choose_device,
    evaluate,
    generate,
    intervene,
    load_hf,
    mean_heads,
    next_token_loss,
    quantization,
    save_hf,
    stream,
    stream_text,
    token_log_probs,
    train,
)
from tinylm_lib.config import RULES
from tinylm_lib.cost import count_parameters, kv_cache_bytes, training_bytes
from tinylm_lib.data.windows import RandomWindows, every_window
from tinylm_lib.layers import values_at_hand
from tinylm_lib.lora import add_lora, load_lora, lora_state, merge_lora, save_lora, unmerge_lora
from tinylm_lib.positions import Tables
from tinylm_lib.presets import FAMILIES
from tinylm_lib.quantization import quantize_model
from tinylm_lib.rewards import dpo_loss, reinforce
from tinylm_lib.training import checkpoint

TOKENS = some_ids(1, 900)[0]
STOP = [3, 5]


def on_device(model: TransformerLM) -> TransformerLM:
    """A copy of a model on the accelerator."""
    return copy.deepcopy(model).to(DEVICE)


assert_same = partial(assert_same_on, DEVICE)


def lines() -> list[str]:
    """The files whose lines asked for a number, in the order of asking."""
    return [read.line.partition(":")[0] for read in reads]


def test_the_device_is_found_and_is_not_taken_for_the_cpu() -> None:
    ids = some_ids(2, 5).to(DEVICE)
    assert choose_device() == choose_device(DEVICE.type) == torch.device(DEVICE.type) != choose_device("cpu")
    assert not values_at_hand(ids) and values_at_hand(ids.cpu())


def test_what_costs_a_read_is_checked_where_nothing_waits_for_it() -> None:
    model, wrong = on_device(scrambled(tiny("llama"))), torch.tensor([[1, 41]], device=DEVICE)
    ids, none = some_ids(1, 2).to(DEVICE), torch.full((1, 2), -100, device=DEVICE)
    with pytest.raises(IndexError, match="index out of range in self"):  # the embedding's own words
        model(wrong)
    model(ids, padding=torch.tensor([7], device=DEVICE))
    assert next_token_loss(model(ids), none).isnan()
    assert reads[:-1] == [], "the last is of this test"
    with pytest.raises(ValueError, match="token id 41 is outside"):
        generate(model, wrong, 1)
    with pytest.raises(ValueError, match=r"padding must be a tensor of 1 integers in 0\.\.1"):
        generate(model, ids, 1, padding=torch.tensor([7], device=DEVICE))


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_loss_and_gradients_are_those_of_the_cpu(name: str, padded: bool) -> None:
    model, ids = scrambled(tiny(name)), some_ids(3, 19)
    other, padding = on_device(model), torch.tensor([0, 4, 2]) if padded else None
    logits = model(ids, padding=padding)
    next_token_loss(logits, ids.roll(-1, 1)).backward()
    ids, padding = ids.to(DEVICE), padding.to(DEVICE) if padded else None
    found = other(ids, padding=padding)
    loss = next_token_loss(found, ids.roll(-1, 1))
    loss.backward()
    log_probs = token_log_probs(other, ids, padding)
    assert reads == []
    assert_same(found, logits)
    assert_same(log_probs, token_log_probs(model, ids.cpu(), padding.cpu() if padded else None))
    assert_same(flat(p.grad for p in other.parameters()), flat(p.grad for p in model.parameters()), 2 * N_PRODUCTS)


def trained(model: TransformerLM, recompute: bool = False, **changes: Any) -> list[Any]:
    """Three updates on the device of the model."""
    recipe = TrainConfig(total_steps=3, batch_size=4, seq_len=15, precision="fp32", **changes)
    batches = RandomWindows(TOKENS, 4, 15, 1, model.embed.weight.device)
    model.recompute = recompute
    torch.manual_seed(0)
    return list(train(model, build_optimizer(model, recipe), batches, recipe))


RECIPES = {
    **{f"optimizer {name}": {"optimizer": name} for name in RULES}, "accumulation": {"micro_steps": 3},
    "recompute": {"recompute": True, "residual_dropout": 0.2}, "no clipping": {"clip_norm": None},
}  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_updates_are_those_of_the_cpu_and_nothing_is_read_before_the_log(recipe: dict[str, Any]) -> None:
    options = dict(recipe)
    model = scrambled(tiny("gpt", residual_dropout=options.pop("residual_dropout", 0.0)))
    other = on_device(model)
    expected = trained(model, **options)
    found = trained(other, **options)
    assert reads == []
    n_products = 3 * 2 * N_PRODUCTS  # three updates, forward and backward
    for field in ("loss", "grad_norm"):
        assert_same(*(torch.stack([getattr(step, field) for step in run]) for run in (found, expected)), n_products)
    assert_same(flat(other.parameters()), flat(model.parameters()), n_products)


def test_recomputed_activations_take_fewer_bytes() -> None:
    model = on_device(scrambled(tiny("modern", n_layers=6)))
    peaks = []
    for recompute in (False, True):
        before = memory.forget_peak()
        trained(model, recompute)
        peaks.append(memory.peak - before)
    assert peaks[1] < 0.8 * peaks[0]


def test_an_evaluation_reads_a_number_a_batch() -> None:
    model = scrambled(tiny("llama"))
    expected = evaluate(model, every_window(TOKENS, 5, 30), 900)
    found = evaluate(on_device(model), every_window(TOKENS, 5, 30), 900)
    assert found == pytest.approx(expected, rel=rounding(torch.ones(1), N_PRODUCTS))
    assert lines() == ["evaluation.py"] * 6


PADDING = torch.tensor([0, 2])
WAYS = {
    "sampling": {}, "greedy": {"temperature": 0}, "top-k": {"top_k": 5}, "top-p": {"temperature": 1.3, "top_p": 0.9},
    "min-p": {"min_p": 0.05}, "stop ids": {"stop_ids": STOP}, "padding": {"padding": PADDING, "stop_ids": STOP},
    "fewer ids": {"vocab_size": 11}, "beyond the context": {"max_seq_len": 9},
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_text_is_that_of_the_cpu_and_its_20_tokens_take_at_most_8_reads(way: dict[str, Any], seed: int) -> None:
    options = dict(way)
    model, ids = toy_model(max_seq_len=options.pop("max_seq_len", 25)), toy_ids(2, 4, seed)
    torch.manual_seed(seed)
    expected = generate(model, ids, 20, **options)
    options = {name: value.to(DEVICE) if isinstance(value, Tensor) else value for name, value in options.items()}
    torch.manual_seed(seed)
    reads.clear()
    found = generate(on_device(model), ids.to(DEVICE), 20, **options)
    assert found.device == DEVICE and len(reads) <= 8
    assert found.tolist() == expected.tolist()


def test_a_stream_reads_a_number_a_token() -> None:
    model, ids = toy_model(max_seq_len=40), toy_ids(1, 4)
    expected = [int(new) for new in stream(model, ids, 20, stop_ids=[16], temperature=0)]
    tokens = [int(new) for new in stream(on_device(model), ids.to(DEVICE), 20, stop_ids=[16], temperature=0)]
    assert tokens == expected
    assert len(tokens) == 20 and lines().count(Path(__file__).name) == 20
    assert len(reads) - 20 <= 6, "two of the prompt, and two a look, of which 20 tokens take two"


def test_text_comes_as_on_the_cpu_and_reads_a_number_a_token() -> None:
    model, tokenizer = toy_model(max_seq_len=40), CharTokenizer.from_text("abcdefghijklmnopq")
    torch.manual_seed(0)
    expected = [*stream_text(model, tokenizer, "ab", 20)]
    torch.manual_seed(0)
    assert [*stream_text(on_device(model), tokenizer, "ab", 20)] == expected
    assert lines().count("writing.py") == 20 == len(expected) and len(reads) - 20 <= 6


def test_beams_are_those_of_the_cpu() -> None:
    model, ids = toy_model("gpt"), toy_ids(1, 3)[0]
    expected = beam_search(model, ids, 6, 3, stop_ids=STOP)
    found = beam_search(on_device(model), ids.to(DEVICE), 6, 3, stop_ids=STOP)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    assert [p for _, p in found] == pytest.approx([p for _, p in expected], rel=1e-9)
    assert len(reads) <= 3 + 2 * 6, "the prompt and its range, then whether all is finite and the beams"


def test_weights_in_8_bits_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantization, "has_int8_product", lambda: False)  # it rounds to bf16, on CPUs alone
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    expected = quantize_model(model)
    before = memory.now
    moved = on_device(expected)
    matrices = [module for module in moved.modules() if isinstance(module, quantization.Int8Weight)]
    small = sum(matrix.numel() + 4 * matrix.shape[0] for matrix in matrices)
    others = sum(x.numel() * x.element_size() for x in [*moved.parameters(), *tables(moved)])
    assert memory.now - before == small + others
    for other in (moved, quantize_model(on_device(model))):
        assert_same(other(ids.to(DEVICE)), expected(ids))


def test_changed_parts_are_those_of_the_cpu() -> None:
    results = []
    model = scrambled(tiny("llama"))
    for one in (model, on_device(model)):
        ids = some_ids(2, 9).to(one.embed.weight.device)
        means = mean_heads(one, ids)
        changes = {"silence": [(0, 1)], "means": {(1, 2): means[1, 2]}, "forbid": [(0, 0, 5, 2)], "write": [(0, 3, 7)]}
        with intervene(one, **changes, stop=[(1, "ffn")]):
            results.append((one(ids), means))
    for found, expected in zip(*reversed(results), strict=True):
        assert_same(found, expected)


def tables(model: nn.Module) -> list[Tensor]:
    """The buffers of positions, which no checkpoint holds."""
    return [table for module in model.modules() if isinstance(module, Tables) for table in module.buffers()]


def test_low_rank_updates_are_those_of_the_cpu_and_go_through_a_file(tmp_path: Path) -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    other = on_device(model)
    for one in (model, other):
        torch.manual_seed(0)
        add_lora(one, 3)
        trained(one)
        one.eval()
    assert reads == []
    assert_same(flat(lora_state(other).values()), flat(lora_state(model).values()), 6 * N_PRODUCTS)
    again = scrambled(tiny("llama"))
    load_lora(again, save_lora(other, tmp_path / "lora"))
    load_lora(other, save_lora(model, tmp_path / "lora"))
    expected = model(ids)
    assert (again(ids) - expected).abs().max() <= rounding(expected, 12 * N_PRODUCTS)
    assert_same(other(ids.to(DEVICE)), expected)
    merge_lora(other)
    assert_same(other(ids.to(DEVICE)), expected)
    unmerge_lora(other)
    assert_same(other(ids.to(DEVICE)), expected)


def test_low_rank_updates_of_weights_in_8_bits_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantization, "has_int8_product", lambda: False)
    model = quantize_model(scrambled(tiny("llama")))
    other = on_device(model)
    for one in (model, other):
        torch.manual_seed(0)
        add_lora(one, 3)
        trained(one)
    assert reads == []
    assert_same(flat(lora_state(other).values()), flat(lora_state(model).values()), 6 * N_PRODUCTS)


def learned(model: TransformerLM, n_updates: int) -> list[Any]:
    """Updates from rewards of the texts of a batch, on the device of the model: the fewer different ids the better."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    options = {"n_each": 4, "max_new_tokens": 5, "stop_ids": STOP, "beta": 0.1, "n_updates": n_updates}
    reference = copy.deepcopy(model)
    return list(reinforce(model, reference, [[[1, 2], [4]]], lambda ids: -len(set(ids)), optimizer, **options))


def test_rewards_teach_what_they_teach_on_the_cpu() -> None:
    expected = learned(toy_model(), 3)
    found = learned(on_device(toy_model()), 3)
    n_reads = len(reads)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.rewards, other.rewards)
        assert one.rollouts.ids.tolist() == other.rollouts.ids.tolist()
        for field in ("kl", "entropy", "loss", "grad_norm"):
            assert_same(getattr(one, field), getattr(other, field), 6 * N_PRODUCTS)
    reads.clear()
    learned(on_device(toy_model()), 1)
    assert len(reads) == n_reads, "what is read is read to write and to reward, not to update"


def test_preferences_teach_what_they_teach_on_the_cpu() -> None:
    def log_probs(model: TransformerLM, ids: Tensor) -> Tensor:
        return model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).sum((1, 2))

    gradients, model = [], scrambled(tiny("llama"))
    for one in (model, on_device(model)):
        chosen, rejected = (log_probs(one, some_ids(2, 9, seed=n).to(one.embed.weight.device)) for n in (1, 2))
        dpo_loss(chosen, rejected, 0.9 * chosen.detach(), 1.2 * rejected.detach()).backward()
        gradients.append(flat(p.grad for p in one.parameters()))
    assert reads == []
    assert_same(*reversed(gradients), 2 * N_PRODUCTS)


def test_a_run_goes_on_from_a_checkpoint_of_the_other_device(tmp_path: Path) -> None:
    recipe = TrainConfig(total_steps=4, batch_size=4, seq_len=15, precision="fp32")
    weights = {}
    for first, second in (("cpu", "cpu"), ("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE)):
        place = tmp_path / f"{first} {second}".replace(":", "")
        for device, start, end in ((first, 1, 2), (second, 3, 4)):
            model = scrambled(tiny("modern")).to(device)
            optimizer, batches = build_optimizer(model, recipe), RandomWindows(TOKENS, 4, 15, 1, device)
            if start > 1:
                checkpoint.load(place).restore(model, optimizer, batches)
            list(itertools.islice(train(model, optimizer, batches, recipe, start), end + 1 - start))
            checkpoint.save(place, model, optimizer, batches, end)
        weights[first, second] = checkpoint.load(place).model.state_dict()
        assert all(p.device.type == torch.device(second).type for p in model.parameters())
    expected = flat(weights["cpu", "cpu"].values())
    for found in weights.values():
        assert (flat(found.values()) - expected).abs().max() <= rounding(expected, 8 * N_PRODUCTS)


def test_a_folder_of_hugging_face_comes_and_goes(tmp_path: Path) -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    here, there = (save_hf(m, tmp_path / name) for name, m in (("cpu", model), ("device", on_device(model))))
    for path in here.iterdir():
        assert path.read_bytes() == (there / path.name).read_bytes()
    assert_same(load_hf(there).to(DEVICE)(ids.to(DEVICE)), model(ids))


def test_commands_take_the_device_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("the cat saw a dog and the dog saw a cat\n" * 30)
    small = "--no-lines --precision fp32 --d-model 16 --n-layers 1 --n-heads 2 --seq-len 8 --total-steps 3"
    shell, texts = Shell(capsys), []
    for device in ("cpu", "auto"):
        shell(f"train --corpus text --prompt the {small} --out {device} --device {device}")
        before = memory.forget_peak()
        texts.append(shell(f"sample --from {device} --max-new-tokens 20 --seed 1 --device {device}"))
        texts.append(shell(f"eval {device} --device {device}").partition(":")[2])
        assert (memory.peak > before) == (device == "auto")
    assert texts[:2] == texts[2:]


@pytest.mark.parametrize("name", FAMILIES)
def test_bytes_are_those_of_the_costs(name: str) -> None:
    sizes = {"d_model": 64, "n_heads": 4, "d_ff": 160, "n_layers": 4, "max_seq_len": 81}
    config = toy_config(name, **sizes, **NO_DROPOUT)
    before = memory.now
    model = TransformerLM(config).to(DEVICE)
    n_tables = sum(table.numel() * table.element_size() for table in tables(model))
    held = memory.forget_peak()
    assert held - before == 4 * count_parameters(config).total + n_tables

    generate(model, toy_ids(3, 1).to(DEVICE), 80, temperature=0)
    cached = kv_cache_bytes(config, 3, 81)
    assert cached <= memory.peak - held < cached * (1 + 1 / 8), "decoding does not copy the keys of one of four layers"
    assert memory.now == held, "and nothing is left behind"

    recipe = TrainConfig(total_steps=3, batch_size=1, seq_len=1, precision="fp32", optimizer="adamw")
    batches = RandomWindows(TOKENS % config.vocab_size, 1, 1, 1, DEVICE)
    memory.forget_peak()
    list(train(model, build_optimizer(model, recipe), batches, recipe))
    others = memory.peak - before - n_tables - training_bytes(config)
    # Of each tensor how often it moved, and its norm twice; a tied embedding gets two gradients, which are added up.
    twice = 2 * 4 * count_parameters(config).embedding if config.tie_embeddings else 0
    assert twice <= others <= twice + 16 * len(list(model.parameters()))
