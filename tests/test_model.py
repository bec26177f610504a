"""The whole model: torch's own blocks, causality, tying, initial weights, dropout, precision, compiling, refusals."""

import math
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.models import MODELS, NO_DROPOUT, SIZES, rounding, scrambled, some_ids, tiny
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from tinylm_lib import (
    KVCache,
    ModelConfig,
    TrainConfig,
    TransformerLM,
    checkpoint,
    generate,
    next_token_loss,
    preset,
    train,
)
from tinylm_lib.cost import count_parameters
from tinylm_lib.layers import NORMS, LayerNorm, Linear, RMSNorm
from tinylm_lib.model import BLOCKS, INITS
from tinylm_lib.presets import FAMILIES
from tinylm_lib.probabilities import next_token_probs, sample
from tinylm_lib.training.optim import build_optimizer

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def watched(*modules: nn.Module, stream: nn.Module | None = None) -> Iterator[list[Tensor]]:
    """What the modules return, in the order of their calls; stream: a block whose input is kept, too."""
    seen: list[Tensor] = []
    hooks = [m.register_forward_hook(lambda module, inputs, output: seen.append(output.detach())) for m in modules]
    if stream is not None:
        hooks.append(stream.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach())))
    yield seen
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("name", MODELS)
def test_the_last_logits_alone_are_the_last_of_all_and_the_head_reads_one_position(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = scrambled(tiny(name)), some_ids(3, 7)
    read = []
    unembed = TransformerLM.unembed
    monkeypatch.setattr(TransformerLM, "unembed", lambda self, x: (read.append(tuple(x.shape)), unembed(self, x))[1])
    for cache in (None, KVCache(model.config, 3, 7)):
        last = model(ids, cache, last_only=True)
        torch.testing.assert_close(last, model(ids)[:, -1:])
    assert [shape[1] for shape in read] == [1, 7, 1, 7]
    generate(model, ids, 3)
    assert {shape[1] for shape in read[4:]} == {1}, "a prompt's other logits are not asked for"


@pytest.mark.parametrize("name", MODELS)
def test_the_model_returns_logits_and_never_probabilities(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(3, 7)
    logits = model(ids)
    assert (logits.shape, logits.dtype) == ((3, 7, SIZES["vocab_size"]), torch.float32)
    assert logits.min() < -0.1 and (logits.logsumexp(-1).abs() > 0.01).all()
    assert torch.equal(model(ids), logits), "nothing is kept between two calls"
    assert torch.equal(model(ids.int()), logits)
    assert torch.equal(ids, some_ids(3, 7))
    assert TransformerLM(tiny(name, max_seq_len=1))(torch.tensor([[0], [40]])).shape == (2, 1, 41)
    model = model.double()
    exact = model(ids)
    torch.testing.assert_close(logits.double(), exact, rtol=0, atol=1e-4)
    alone = torch.cat([model(row[None]) for row in ids])
    torch.testing.assert_close(exact, alone, rtol=0, atol=1e-11, msg="sequences of a batch see each other")


@pytest.mark.parametrize("length", [7, 16, 37])
@pytest.mark.parametrize("name", MODELS)
def test_no_logit_depends_on_a_later_token(name: str, length: int) -> None:
    model, ids = scrambled(tiny(name)), some_ids(2, length)
    with torch.no_grad():
        logits = model(ids)
        for at in {1, length // 2, length - 1}:
            other = ids.clone()
            other[:, at] = (ids[:, at] + 1) % SIZES["vocab_size"]
            changed = model(other)
            assert torch.equal(changed[:, :at], logits[:, :at]), f"token {at} is seen before its time"
            assert (changed[:, at:] != logits[:, at:]).any(-1).all(), f"token {at} is not seen at all"


def torchs_layer(block: nn.Module, config: ModelConfig) -> nn.TransformerEncoderLayer:
    """torch's own block with the weights of ours; a missing bias is 0."""
    layer = nn.TransformerEncoderLayer(
        config.d_model, config.n_heads, config.d_ff, dropout=0.0, activation=config.ffn, batch_first=True,
        norm_first=config.block == "pre_norm", layer_norm_eps=config.norm_eps, dtype=torch.float64,
    )  # fmt: skip
    qkv = [block.attention.q_proj, block.attention.k_proj, block.attention.v_proj]
    weights = {
        "self_attn.in_proj_weight": torch.cat([p.weight for p in qkv]),
        "self_attn.in_proj_bias": torch.cat([torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in qkv]),
    }
    for theirs, part in (("self_attn.out_proj", block.attention.o_proj), ("linear1", block.ffn.up_proj),
                         ("linear2", block.ffn.down_proj), ("norm1", block.attn_norm),
                         ("norm2", block.ffn_norm)):  # fmt: skip
        weights[f"{theirs}.weight"] = part.weight
        weights[f"{theirs}.bias"] = torch.zeros(len(part.weight)) if part.bias is None else part.bias
    layer.load_state_dict(weights)
    return layer


@pytest.mark.parametrize("ffn", ["gelu", "relu"])
@pytest.mark.parametrize("block", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("name", ["gpt", "tiny_transformer"])
def test_blocks_are_those_of_torch(name: str, block: str, ffn: str) -> None:
    config = tiny(name, block=block, ffn=ffn, d_model=48, n_kv_heads=6)
    model, ids = scrambled(config).double(), some_ids(3, 29)
    with torch.no_grad():
        x = model.embed.weight[ids]
        if name == "gpt":
            x = x + model.position.weight[:29]
        else:  # Vaswani et al., section 3.5: sin at even, cos at odd coordinates
            turns = [[t / 10_000 ** (i / 48) for i in range(0, 48, 2)] for t in range(29)]
            table = [[f(turn) for turn in row for f in (math.sin, math.cos)] for row in turns]
            x = x * math.sqrt(48) + torch.tensor(table, dtype=torch.float64)
        for ours in model.blocks:
            x = torchs_layer(ours, config)(x, nn.Transformer.generate_square_subsequent_mask(29, dtype=torch.float64))
        if block == "pre_norm":
            x = nn.functional.layer_norm(x, (48,), model.final_norm.weight, model.final_norm.bias, config.norm_eps)
        error = (x @ model.embed.weight.T - model(ids)).abs().max().item()
    assert error <= (1e-9 if name == "gpt" else 1e-5)  # our sinusoidal table is fp32


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_matters(name: str) -> None:
    model, ids = scrambled(tiny(name, tie_embeddings=False)), some_ids(2, 37)
    next_token_loss(model(ids), ids.roll(-1, 1)).backward()
    for key, p in model.named_parameters():
        if key.endswith("k_proj.bias") and model.config.position != "rotary":
            continue  # moves all scores of a query equally: its true gradient is 0
        assert p.grad.abs().max() > 1e-6, key


@pytest.mark.parametrize(
    ("name", "n_layers", "seen"),
    [("no positions, geglu", 1, False), ("no positions, geglu", 2, True), ("llama", 1, True), ("gpt", 1, True),
     ("tiny_transformer", 1, True)],
)  # fmt: skip
def test_one_block_without_positions_sees_a_bag_of_words(name: str, n_layers: int, seen: bool) -> None:
    ids, model = some_ids(1, 9), scrambled(tiny(name, n_layers=n_layers)).double()
    shuffled = torch.cat((ids[:, [3, 1, 0, 7, 5, 2, 6, 4]], ids[:, 8:]), dim=1)
    moved = (model(ids) - model(shuffled))[:, -1].abs().max()
    assert moved > 0.01 if seen else moved < 1e-12


@pytest.mark.parametrize("block", BLOCKS)
def test_names_are_those_of_llama_checkpoints(block: str) -> None:
    parts = ["attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "attn_norm", "ffn_norm",
             "ffn.gate_proj", "ffn.up_proj", "ffn.down_proj"]  # fmt: skip
    expected = {f"blocks.{i}.{part}.weight" for i in range(2) for part in parts} | {"embed.weight", "lm_head.weight"}
    expected |= {"final_norm.weight"} if block == "pre_norm" else set()
    assert set(TransformerLM(tiny("llama", tie_embeddings=False, block=block)).state_dict()) == expected


def test_nothing_is_shared_between_blocks_but_the_rotation() -> None:
    model = TransformerLM(tiny("modern"))
    seen = Counter(id(m) for block in model.blocks for m in block.modules())
    assert {type(m).__name__ for m in model.modules() if seen[id(m)] > 1} == {"Rotary"}
    assert model.blocks[0].attn_norm is not model.blocks[0].ffn_norm


def test_a_tied_model_has_one_matrix_and_its_gradient_is_the_sum_of_both_uses() -> None:
    tied, untied = scrambled(tiny("gpt")).double(), TransformerLM(tiny("gpt", tie_embeddings=False)).double().eval()
    weights, ids = tied.state_dict(), some_ids(2, 9)
    assert tied.lm_head is None and not [key for key in weights if "head" in key]
    untied.load_state_dict({**weights, "lm_head.weight": weights["embed.weight"]})
    assert untied.lm_head.weight is not untied.embed.weight
    assert torch.equal(tied(ids), untied(ids))
    for model in (tied, untied):
        next_token_loss(model(ids), ids.roll(-1, 1)).backward()
    of_input, of_output = untied.embed.weight.grad, untied.lm_head.weight.grad
    torch.testing.assert_close(tied.embed.weight.grad, of_input + of_output, rtol=0, atol=1e-12)
    assert (of_input - of_output).abs().max() > 0.01


WIDE = {"vocab_size": 1000, "d_model": 256, "n_heads": 8, "n_kv_heads": 4, "d_head": 32, "d_ff": 512, "n_layers": 2,
        "max_seq_len": 500}  # fmt: skip
CUT = 0.986578  # standard deviation of N(0, 1) cut off at 3
# init: standard deviations of q_proj (256 -> 256), down_proj (512 -> 256), head (256 -> 1000), embedding and positions
STDS = {
    "normal": (0.02, 0.02, 0.02, 0.02, 0.02),
    "cs336": (CUT * (2 / 512) ** 0.5, CUT * (2 / 768) ** 0.5, CUT * (2 / 1256) ** 0.5, CUT, 0.02),
    "xavier": ((2 / 512) ** 0.5, (2 / 768) ** 0.5, (2 / 1256) ** 0.5, 0.02, 0.02),
    "kaiming": ((2 / 256) ** 0.5, (2 / 512) ** 0.5, (2 / 256) ** 0.5, 0.02, 0.02),
    "gpt2": (0.02, 0.02 / 2, 0.02, 0.02, 0.01),  # 2 blocks write to the stream 4 times
    "zero_residual": (1 / 16, 0.0, 1 / 16, 0.02, 0.02),
}


@pytest.mark.parametrize("init", INITS)
def test_initial_weights_have_the_documented_spread(init: str) -> None:
    torch.manual_seed(1)
    choices = {"init": init, "position": "learned", "qkv_bias": True, "o_bias": True, "ffn_bias": True, "norm": "layer"}
    model = TransformerLM(ModelConfig(**WIDE, **choices, tie_embeddings=False))
    block = model.blocks[1]
    weights = (block.attention.q_proj, block.ffn.down_proj, model.lm_head, model.embed, model.position)
    for module, std in zip(weights, STDS[init], strict=True):
        assert module.weight.std().item() == pytest.approx(std, rel=0.02), module
        assert abs(module.weight.mean().item()) <= 5 * std / math.sqrt(module.weight.numel())
    out = {"normal": 0.02, "gpt2": 0.01, "zero_residual": 0}.get(init, STDS[init][0])
    assert block.attention.o_proj.weight.std().item() == pytest.approx(out, rel=0.02)
    assert block.ffn.gate_proj.weight.std() > 0
    for key, p in model.named_parameters():
        if key.endswith("bias") or ("norm" in key and key.endswith("weight")):
            assert (p == key.endswith("weight")).all(), f"{key}: gains start at 1, biases at 0"


@pytest.mark.parametrize(
    ("init", "std", "largest"),
    [("xavier", 0.027951, 0.048413), ("kaiming", 0.0625, None), ("cs336", CUT * 0.027951, 3.001 * 0.027951)],
)
def test_initial_weights_of_published_sizes(init: str, std: float, largest: float | None) -> None:
    torch.manual_seed(1)
    config = ModelConfig(vocab_size=50, d_model=512, n_heads=8, d_ff=2048, n_layers=1, ffn="gelu", init=init)
    up = TransformerLM(config).blocks[0].ffn.up_proj.weight
    assert up.std().item() == pytest.approx(std, rel=0.01)
    assert largest is None or 0.97 * largest < up.abs().max().item() <= largest


@pytest.mark.parametrize("init", ["normal", "gpt2"])
def test_init_std_scales_the_normal_ways(init: str) -> None:
    torch.manual_seed(1)
    model = TransformerLM(ModelConfig(**WIDE, init=init, init_std=0.1))
    for module in (model.embed, model.blocks[0].attention.q_proj):
        assert module.weight.std().item() == pytest.approx(0.1, rel=0.02)


DEEP = {"n_layers": 12, "d_model": 64, "n_heads": 4, "vocab_size": 500}


@pytest.mark.parametrize(
    ("changes", "first", "last"), [({}, 0.028, 0.251), (DEEP, None, 0.107), ({**DEEP, "init": "gpt2"}, None, 0.029)]
)
def test_the_stream_grows_with_depth_unless_writes_to_it_start_smaller(
    changes: dict[str, Any], first: float | None, last: float
) -> None:
    torch.manual_seed(1)
    config = preset("gpt", **changes)
    model = TransformerLM(config).eval()
    with watched(model.blocks[-1], stream=model.blocks[0]) as seen, torch.no_grad():
        model(some_ids(4, 100, config.vocab_size))
    assert seen[1].std().item() == pytest.approx(last, rel=0.05)
    assert first is None or seen[0].std().item() == pytest.approx(first, abs=0.001)


def test_scaled_embeddings_are_not_drowned_by_sinusoidal_positions() -> None:
    torch.manual_seed(1)
    model = TransformerLM(preset("tiny_transformer", n_layers=1))
    token = model.embed.weight.norm(dim=1).mean().item()
    assert [token, token * model.embed_scale] == pytest.approx([0.4525, 10.24], rel=0.01)
    assert model.position.table.norm(dim=1).tolist() == pytest.approx([16] * 1024)


def test_a_block_that_starts_with_zero_residuals_is_the_identity() -> None:
    model, ids = TransformerLM(tiny("modern", n_layers=3)), some_ids(2, 9)
    with watched(*model.blocks, stream=model.blocks[0]) as seen:
        logits = model(ids)
    assert all(torch.equal(x, seen[0]) for x in seen[1:])
    next_token_loss(logits, ids.roll(-1, 1)).backward()
    assert all(p.grad.abs().max() > 0 for key, p in model.named_parameters() if "o_proj" in key or "down_proj" in key)


SMALL = {"vocab_size": 1000, "d_model": 64, "n_layers": 3, "n_heads": 4, "max_seq_len": 64, **NO_DROPOUT}


def initial_loss(model: TransformerLM, batch_size: int, length: int) -> float:
    ids, targets = (some_ids(batch_size, length, model.config.vocab_size, seed) for seed in (1, 2))
    with torch.no_grad():
        return next_token_loss(model(ids), targets).item()


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_initial_loss_is_that_of_knowing_nothing_plus_half_the_variance(name: str, tie: bool) -> None:
    torch.manual_seed(1)
    init = "normal" if name == "cs336" and tie else preset(name).init  # N(0, 1) is too large for an output head
    model = TransformerLM(preset(name, **SMALL, tie_embeddings=tie, init=init))
    with watched(model) as seen:
        loss = initial_loss(model, 16, 64)
    assert abs(loss - (math.log(1000) + seen[0].var().item() / 2)) < 0.1
    assert 6.9 < loss < 7.6


@pytest.mark.parametrize(("size", "loss"), [("tiny", 6.229), ("small", 6.927), ("medium", 8.570)])
def test_published_initial_losses(size: str, loss: float) -> None:
    torch.manual_seed(1)
    config = preset("tiny_transformer", size, **NO_DROPOUT)
    assert initial_loss(TransformerLM(config), 8, 128) == pytest.approx(loss, abs=0.05)


def test_a_tied_table_left_at_unit_spread_would_start_far_off() -> None:
    config = ModelConfig(**{**SMALL, "norm": "layer", "scale_embeddings": True, "init": "cs336"})
    assert initial_loss(TransformerLM(config), 4, 64) > 30, "the reason why cs336 does not tie"


@pytest.mark.parametrize("name", [*FAMILIES, "no positions, geglu"])
def test_initialise_fills_all_weights_again_and_follows_the_seed(name: str) -> None:
    config = tiny(name)
    with torch.device("meta"):
        empty = TransformerLM(config)
    torch.use_deterministic_algorithms(True)  # empty memory is filled with NaN
    try:
        models = [scrambled(config), TransformerLM(config), empty.to_empty(device="cpu")]
    finally:
        torch.use_deterministic_algorithms(False)
    for model in models:
        torch.manual_seed(5)
        model.initialise()
        torch.testing.assert_close(model.state_dict(), models[0].state_dict(), rtol=0, atol=0)
    assert models[2](some_ids(2, 5)).isfinite().all()
    models[1].initialise()
    assert not torch.equal(models[1].embed.weight, models[0].embed.weight), "the dice have moved on"


# The weights of each preset and of each way to fill them, in one number: it also depends on the order of the draws.
FINGERPRINTS = {
    ("modern", "zero_residual"): -15.051739,
    ("cs336", "cs336"): -29.191506,
    ("cs190c", "normal"): 0.270665,
    ("gpt", "normal"): 1.571925,
    ("tiny_transformer", "normal"): 0.640400,
    ("gpt2", "gpt2"): 0.278698,
    ("llama", "normal"): -1.535300,
    ("tiny_transformer", "cs336"): 8.093179,
    ("tiny_transformer", "xavier"): -7.163477,
    ("tiny_transformer", "kaiming"): 22.535698,
    ("tiny_transformer", "gpt2"): 0.295300,
    ("tiny_transformer", "zero_residual"): 10.362783,
}


@pytest.mark.skipif(torch.__version__ < "2.12", reason="trunc_normal_ of torch 2.11 draws other numbers")
@pytest.mark.parametrize(("name", "init"), FINGERPRINTS)
def test_initial_weights_are_those_that_published_runs_began_with(name: str, init: str) -> None:
    torch.manual_seed(7)
    model = TransformerLM(tiny(name, init=init))
    weights = torch.cat([p.detach().double().flatten() for p in model.parameters()])
    places = torch.arange(len(weights), dtype=torch.float64)
    assert (weights @ places.cos()).item() == pytest.approx(FINGERPRINTS[name, init], rel=1e-4)


class BareNorm(nn.Module):
    """A norm without weights, as a newcomer adds it."""

    vectors = 0

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__()
        self.d, self.eps = d, eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, (self.d,), eps=self.eps)


class ShiftNorm(BareNorm):
    """A norm whose weight has another name and begins at another number than those of the library."""

    vectors = 1

    def __init__(self, d: int, eps: float = 1e-5):
        super().__init__(d, eps)
        self.shift = nn.Parameter(torch.full((d,), 0.25))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.shift, 0.25)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shift


@pytest.mark.parametrize("norm", [BareNorm, ShiftNorm])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_new_norm_is_a_class_and_a_line_in_the_table(
    norm: type[BareNorm], block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(NORMS, "new", norm)
    config, ids = tiny("modern", norm="new", block=block), some_ids(2, 9)
    model = scrambled(config)
    assert count_parameters(config).total == sum(p.numel() for p in model.parameters())
    assert torch.equal(generate(model, ids, 4, temperature=0)[:, 9], model(ids)[:, -1].argmax(-1))
    back = checkpoint.load(checkpoint.save(tmp_path, model)).model
    assert back.config == config and torch.equal(back(ids), model(ids))
    recipe = TrainConfig(total_steps=1, precision="fp32", batch_size=2, seq_len=9)
    next(train(model, build_optimizer(model, recipe), iter([(ids, ids)]), recipe))
    model.initialise()
    assert all((p == 0.25).all() for name, p in model.named_parameters() if name.endswith("shift"))


DROPPED = {  # a dropout of 1 shows exactly where it acts: the model continues as if these modules gave 0
    "embedding_dropout": r"position", "attention_dropout": r"blocks\.\d\.attention\.v_proj",
    "ffn_dropout": r"blocks\.\d\.ffn\.down_proj", "residual_dropout": r"blocks\.\d\.(attention|ffn)",
}  # fmt: skip


@pytest.mark.parametrize("field", DROPPED)
def test_dropout_drops_in_training_alone_what_its_modules_say(field: str) -> None:
    model, silent, ids = scrambled(tiny("gpt", **{field: 1.0})), scrambled(tiny("gpt")), some_ids(2, 9)
    with torch.no_grad():
        calm, shaken = model(ids), model.train()(ids)
        assert torch.equal(calm, silent(ids))
        for name, module in silent.named_modules():
            if re.fullmatch(DROPPED[field], name):
                module.register_forward_hook(lambda module, inputs, output: torch.zeros_like(output))
        torch.testing.assert_close(shaken, silent(ids), rtol=0, atol=1e-5)
    assert (calm - shaken).abs().max() > 0.1


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_runs_forward_and_backward(name: str, autocast: bool) -> None:
    model, ids = scrambled(tiny(name), std=0.2), some_ids(2, 19)
    exact, kept = model(ids), torch.float32 if autocast else torch.bfloat16
    model = model.to(kept)
    with (
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
        watched(model.blocks[0].attention.q_proj, model.blocks[-1]) as seen,
    ):
        logits = model(ids)
        loss = next_token_loss(logits, ids.roll(-1, 1))
    assert seen[0].dtype == logits.dtype == torch.bfloat16, "products run in bf16"
    assert loss.dtype == torch.float32
    if model.config.block == "pre_norm":
        assert seen[1].dtype == kept, "under autocast the stream stays in fp32"
    torch.testing.assert_close(logits.float(), exact, rtol=0, atol=0.25)
    loss.backward()
    for key, p in model.named_parameters():
        assert (p.dtype, p.grad.dtype) == (kept, kept) and p.grad.isfinite().all(), key


PADDING = torch.tensor([0, 3, 18, 11])  # of 19 ids: none, some, all but one


def alone(model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """The logits of each row of ids (B, T) without its PADDING, computed by itself."""
    return [model(row[None, n:])[0] for row, n in zip(ids, PADDING, strict=True)]


@pytest.mark.parametrize("cuts", [[19], [1, 18], [7, 1, 11], [18, 1]])
@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_no_logit_whatever_is_in_it(name: str, cuts: list[int]) -> None:
    model, ids = scrambled(tiny(name)).double(), some_ids(4, 19)
    hidden = torch.arange(19) < PADDING[:, None]
    for filled in (ids, ids.masked_fill(hidden, 0), ids.masked_fill(hidden, 40)):
        with torch.no_grad():
            cache = None if len(cuts) == 1 else KVCache(model.config, 4, 19, dtype=torch.float64)
            actual = torch.cat([model(piece, cache, PADDING) for piece in filled.split(cuts, dim=1)], dim=1)
            assert actual.isfinite().all()
            for row, n, expected in zip(actual, PADDING, alone(model, ids), strict=True):
                torch.testing.assert_close(row[n:], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_padding_adds_only_rounding_in_fp32(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(4, 19)
    with torch.no_grad():
        for row, n, expected in zip(model(ids, padding=PADDING.int()), PADDING, alone(model, ids), strict=True):
            assert (row[n:] - expected).abs().max() <= rounding(expected, 13)  # products: 6 per block, and the head


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["modern", "tiny_transformer", "gpt"])
def test_padding_changes_no_gradient(name: str, recompute: bool) -> None:
    model, ids, found = scrambled(tiny(name)).double().train(), some_ids(4, 19), []
    for logits in (alone(model, ids), None):
        model.zero_grad()
        model.recompute = recompute and logits is None
        logits = logits or [row[n:] for row, n in zip(model(ids, padding=PADDING), PADDING, strict=True)]
        sum(row.logsumexp(-1).sum() for row in logits).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_without_padding_no_layer_gets_a_mask() -> None:
    """A mask would choose another kernel. The planted violation is padding of 0 everywhere."""
    model, ids, masks = scrambled(tiny("llama")), some_ids(2, 9), []
    model.blocks[1].register_forward_pre_hook(lambda module, inputs: masks.append(inputs[1].mask))
    model(ids)
    model(ids, padding=torch.tensor([0, 0]))
    assert masks[0] is None and masks[1].shape == (2, 1, 1, 9)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize(
    "padding",
    [
        [0, 1], 1, torch.tensor(1), torch.tensor([1]), torch.tensor([0, 1, 1]), torch.tensor([[0], [1]]),
        torch.tensor([0.0, 1.0]), torch.tensor([False, True]), torch.tensor([-1, 0]), torch.tensor([0, 5]),
    ],
    ids=str,
)  # fmt: skip
def test_padding_that_does_not_fit_is_refused(cached: bool, padding: Any) -> None:
    model, ids = scrambled(tiny("gpt")), some_ids(2, 5)
    cache = KVCache(model.config, 2, 5) if cached else None
    with pytest.raises(ValueError, match=r"padding must be a tensor of 2 integers in 0\.\.4, .*; got "):
        model(ids, cache, padding)
    assert cache is None or cache.length == 0


def loss_and_gradients(run: Any, model: TransformerLM, ids: Tensor) -> list[Tensor]:
    """Logits and all gradients of one training step; the same dice for each call."""
    torch.manual_seed(1)
    model.zero_grad()
    logits = run(ids)
    next_token_loss(logits, ids.roll(-1, 1)).backward()
    return [logits.detach(), *(p.grad for p in model.parameters())]


class Graphs(CompileCounter):
    """The eager backend: counts the graphs, and takes none that reads a number it computed: a GPU would wait.

    A float of Python that may change comes as a tensor of the CPU.
    """

    def __call__(self, graph: Any, inputs: Any) -> Any:
        read = [node.args[0] for node in graph.graph.nodes if node.target == "item"]
        assert all(node.op == "placeholder" for node in read), read
        return super().__call__(graph, inputs)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", [*FAMILIES, "post-norm, rms, interleaved"])
def test_the_whole_graph_compiles_and_equals_eager(name: str) -> None:
    model, ids = scrambled(tiny(name, **dict.fromkeys(NO_DROPOUT, 0.1))).train(), some_ids(2, 19)
    counter = Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    eager = loss_and_gradients(model, model, ids)
    torch.testing.assert_close(loss_and_gradients(compiled, model, ids), eager, rtol=0, atol=0)
    assert counter.frame_count == 1, "one graph"


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["modern", "tiny_transformer"])
def test_cached_decoding_compiles_once_per_kind_of_call_and_equals_eager(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(2, 37)
    counter = Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    caches = [KVCache(model.config, 2, 37) for _ in range(2)]
    with torch.no_grad():
        for piece in ids.split([7] + [1] * 30, dim=1):
            assert torch.equal(compiled(piece, caches[0]), model(piece, caches[1]))
    assert caches[0].length == 37
    assert counter.frame_count <= 3, "a step must not compile again"


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["modern", "gpt"])
def test_padding_compiles_whole_and_equals_eager(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(4, 19)
    counter = Graphs()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        assert torch.equal(compiled(ids, padding=PADDING), model(ids, padding=PADDING))
        caches = [KVCache(model.config, 4, 19) for _ in range(2)]
        for piece in ids.split([7] + [1] * 12, dim=1):
            found = [
                run(piece, cache, PADDING.clamp(max=6)) for run, cache in zip((compiled, model), caches, strict=True)
            ]
            assert torch.equal(*found)
    assert counter.frame_count <= 4, "a step must not compile again"


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["modern", "gpt"])
def test_one_graph_of_model_and_loss_serves_20_lengths(name: str) -> None:
    def loss(ids: Tensor) -> Tensor:
        return next_token_loss(model(ids), ids.roll(-1, 1))

    model, counter = scrambled(tiny(name)).train(), Graphs()
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=counter)
    for length in range(16, 36):  # shorter texts take a way of their own around a kernel for CPUs
        ids = some_ids(2, length)
        assert torch.equal(compiled(ids), loss(ids))
    assert counter.frame_count == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", ["modern", "gpt"])
def test_two_graphs_of_a_decoding_step_serve_20_lengths(name: str) -> None:
    def step(piece: Tensor, cache: KVCache) -> Tensor:
        return sample(next_token_probs(model(piece, cache, last_only=True)[:, 0], 0.8, top_k=5, top_p=0.9))

    model, counter = scrambled(tiny(name)), Graphs()
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    prompt, *pieces = some_ids(2, 36).split([16] + [1] * 20, dim=1)
    caches = [KVCache(model.config, 2, 36) for _ in range(2)]
    with torch.no_grad():
        for cache in caches:
            model(prompt, cache)
        for piece in pieces:
            drawn = []
            for run, cache in zip((compiled, step), caches, strict=True):
                torch.manual_seed(0)
                drawn.append(run(piece, cache))
            assert torch.equal(*drawn)
    assert counter.frame_count <= 2, "one for the first length, and one for all others"


@pytest.mark.usefixtures("fresh_compiler")
def test_one_graph_of_a_draw_serves_all_batch_sizes_and_draws_what_eager_draws() -> None:
    def draw(logits: Tensor) -> Tensor:
        return sample(next_token_probs(logits, 0.8, top_k=5, top_p=0.9))

    counter = Graphs()
    compiled = torch.compile(draw, fullgraph=True, dynamic=True, backend=counter)
    for batch_size in range(2, 22):
        logits, drawn = torch.arange(17.0).sin().repeat(batch_size, 1), []
        for run in (compiled, draw):
            torch.manual_seed(0)
            drawn.append(run(logits))
        assert torch.equal(*drawn)
    assert counter.frame_count == 1


@pytest.mark.usefixtures("fresh_compiler")
def test_compiling_in_place_keeps_the_names_of_weights() -> None:
    model, ids = scrambled(tiny("llama")), some_ids(2, 9)
    keys, logits = list(model.state_dict()), model(ids)
    model.compile(fullgraph=True, backend="eager")
    assert torch.equal(model(ids), logits)
    assert list(model.state_dict()) == keys
    TransformerLM(tiny("llama")).load_state_dict(model.state_dict())


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch._inductor")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_real_compiler_agrees_with_eager(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(2, 19)
    eager = loss_and_gradients(model, model, ids)
    compiled = loss_and_gradients(torch.compile(model, fullgraph=True, backend="inductor"), model, ids)
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)


@pytest.fixture
def two_threads(one_thread: None) -> None:
    """Takes the place of one_thread, which ends it too."""
    torch.set_num_threads(2)


def trained_bytes(name: str) -> bytes:
    """All weights after two updates; each of few ids occurs many times, so their gradients are sums."""
    assert torch.get_num_threads() == 2
    torch.manual_seed(1)
    model = TransformerLM(tiny(name, d_model=64, residual_dropout=0.1, attention_dropout=0.1, embedding_dropout=0.1))
    optimizer, ids = build_optimizer(model, TrainConfig()), some_ids(16, 37, vocab_size=5)
    for _ in range(2):
        optimizer.zero_grad()
        next_token_loss(model(ids), ids.roll(-1, 1)).backward()
        optimizer.step()
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", FAMILIES)
def test_two_trainings_on_two_threads_give_the_same_bytes(name: str) -> None:
    assert len({trained_bytes(name) for _ in range(3)}) == 1


NO_IDS = [torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.uint8, torch.int16, torch.uint16]


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        *((torch.zeros(2, 3).to(dtype), TypeError, ["integers", str(dtype), "ids.long()"]) for dtype in NO_IDS),
        (torch.tensor(3), ValueError, ["(B, T)", "got ()"]),
        *(
            (torch.zeros(shape).long(), ValueError, ["(B, T)", f"got {shape}", "ids[None]"])
            for shape in [(3,), (2, 3, 1)]
        ),
        *((torch.zeros(shape).long(), ValueError, [str(shape), "at least one"]) for shape in [(1, 0), (0, 3)]),
        (torch.tensor([[1, -1, 2]]), ValueError, ["-1", "0..40", "vocab_size"]),
        (torch.tensor([[1, -100, 2]]), ValueError, ["-100", "0..40"]),
        (torch.tensor([[1, 41, 2]]), ValueError, ["41", "0..40"]),
        (torch.zeros(2, 38, dtype=torch.long), ValueError, ["38", "max_seq_len 37"]),
        *(
            (ids, TypeError, [type(ids).__name__, "torch.tensor([[1, 2]])", "pad_left"])
            for ids in ([1, 2], [[1, 2]], np.array([[1, 2]]), None)
        ),
        ("text", TypeError, ["str", "torch.tensor([tokenizer.encode(text)])"]),
    ],
    ids=lambda x: f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else "",
)
@pytest.mark.parametrize("cached", [False, True])
def test_wrong_ids_are_refused_with_a_fix(cached: bool, ids: Tensor, error: type, words: list[str]) -> None:
    model = TransformerLM(tiny("gpt")).eval()
    cache = KVCache(model.config, 2, 60) if cached else None
    with pytest.raises(error) as caught:
        model(ids, cache)
    assert [word for word in words if word not in str(caught.value)] == []
    assert cache is None or cache.length == 0


@pytest.mark.parametrize(("norm", "kind", "other"), [("rms", RMSNorm, LayerNorm), ("layer", LayerNorm, RMSNorm)])
def test_norms_of_the_model_are_the_ones_chosen(norm: str, kind: type, other: type) -> None:
    modules = list(TransformerLM(tiny("llama", norm=norm, norm_eps=0.3)).modules())
    assert [m.eps for m in modules if isinstance(m, kind)] == [0.3] * 5, "two per block and one at the end"
    assert not any(isinstance(m, (other, nn.Linear)) for m in modules)
    assert sum(isinstance(m, Linear) for m in modules) == 2 * 7
