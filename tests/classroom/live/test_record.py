"""What a page is given of a model, and what is refused before a page is written."""

import base64
import copy
import json
import math
import re

import numpy as np
import pytest
import torch
from support.models import scrambled, tiny
from support.views import Numbers

from tinylm_classroom.live.record import MOST_PARAMETERS, live_record
from tinylm_lib import ModelConfig, TransformerLM, preset
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.bpe import train_bpe
from tinylm_lib.text.tokenizers import ByteTokenizer, CharTokenizer, WordTokenizer

WORDS = WordTokenizer("a b c.")


def record_of(**changes: object) -> dict:
    return live_record(scrambled(tiny("modern", **changes)), WORDS)


def halves(record: dict) -> np.ndarray:
    """The weights, read by their definition."""
    return np.frombuffer(base64.b64decode(record["weights"]), dtype="<f2")


@pytest.mark.parametrize("tied", [True, False])
def test_weights_are_all_parameters_in_half_precision_one_after_the_other(tied):
    model = scrambled(tiny("modern", tie_embeddings=tied, qk_norm=True))
    weights, at = halves(live_record(model, WORDS)), 0
    names = [name.removesuffix(".weight") for name, _ in model.named_parameters()]
    block = "attn_norm attention.q_proj attention.k_proj attention.v_proj attention.q_norm attention.k_norm "
    block += (
        "attention.o_proj ffn_norm ffn.gate_proj ffn.up_proj ffn.down_proj"  # the order in which engine.js takes them
    )
    blocks = [f"blocks.{i}.{part}" for i in range(2) for part in block.split()]
    assert names == ["embed", *blocks, "final_norm", *([] if tied else ["lm_head"])]
    for parameter in model.parameters():
        expected = parameter.detach().numpy().ravel()
        np.testing.assert_allclose(weights[at : (at := at + expected.size)], expected, rtol=2**-11, atol=2**-25)
    assert at == len(weights)


def test_a_fingerprint_is_that_of_one_model_whatever_the_precision_and_the_digits_of_its_speeds():
    model = scrambled(tiny("modern"))
    known = live_record(model, WORDS)["fingerprint"]
    assert re.fullmatch("[0-9a-f]{12}", known)
    assert live_record(copy.deepcopy(model).half().double(), WORDS)["fingerprint"] == known
    others = [record_of(rope_base=500.0), record_of(norm_eps=1e-3), live_record(model, WordTokenizer("a b c!"))]
    others += [live_record(scrambled(tiny("modern"), seed=9), WORDS)]
    assert len({known, *(record["fingerprint"] for record in others)}) == 5


def test_the_record_of_the_shipped_model_is_plain_small_and_the_same_on_every_call():
    ready = load_pretrained("storyworld")
    record = live_record(ready.model, ready.tokenizer)
    text = json.dumps(record, allow_nan=False)
    assert json.loads(text) == record == live_record(ready.model, ready.tokenizer)
    assert len(text) < 1_760_000 and len(halves(record)) == 654_656
    assert record["tokenizer"] == ready.tokenizer.to_dict()
    assert record["config"] == {
        "vocab_size": 345, "max_seq_len": 128, "d_model": 128, "n_layers": 3, "n_heads": 4, "n_kv_heads": 4,
        "d_head": 32, "d_ff": 320, "norm_eps": 1e-5, "rope_layout": "halves", "ffn": "swiglu", "qk_norm": True,
        "tie_embeddings": False,
    }  # fmt: skip


def test_speeds_are_radians_per_position_with_the_stretch_applied():
    """With 16 positions first and D = 8: 1 radian turns 2.5 times, 0.1 radians 0.25 times, and so on."""
    assert record_of()["speeds"] == pytest.approx([1, 0.1, 0.01, 0.001])
    scaling = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 2.0, "original_max_seq_len": 16}
    assert record_of(rope_scaling=scaling)["speeds"] == pytest.approx([1, 0.1 / 4, 0.01 / 4, 0.001 / 4])
    scaling["high_freq_factor"] = 4.0  # the fastest pair is kept to (2.546 - 1) / (4 - 1)
    kept = (16 / (2 * math.pi) - 1) / 3
    assert record_of(rope_scaling=scaling)["speeds"][0] == pytest.approx(kept + (1 - kept) / 4)


@pytest.mark.parametrize("tokenizer", [
    WORDS, ByteTokenizer(), CharTokenizer("abc"), train_bpe("a bad bat", 258),
], ids=lambda each: each.kind)  # fmt: skip
def test_each_tokenizer_that_a_page_knows_is_taken(tokenizer):
    model = TransformerLM(tiny("modern", vocab_size=300))
    assert live_record(model, tokenizer)["tokenizer"] == tokenizer.to_dict()


def test_a_model_of_any_dtype_is_taken_and_left_as_it_is():
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        model = scrambled(tiny("modern")).to(dtype).train()
        weights = halves(live_record(model, WORDS))
        assert weights[:3].tolist() == model.embed.weight[0, :3].half().tolist()
        assert model.training and model.embed.weight.dtype == dtype and model.embed.weight.requires_grad


LACKING = {
    "block": "post_norm", "norm": "layer", "position": "learned", "ffn": "relu", "qkv_bias": True, "o_bias": True,
    "ffn_bias": True, "scale_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize("name", LACKING)
def test_an_architecture_that_the_engine_lacks_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf"^{name} {LACKING[name]!r} cannot run in a page; train a model with"):
        record_of(**{name: LACKING[name]})


def test_every_choice_of_a_config_is_read_refused_or_without_effect_on_logits():
    without = {"init", "init_std", "rope_base", "rope_scaling", "d_ff_multiple_of"}  # the two of rope are in the speeds
    without |= {f"{where}_dropout" for where in ("embedding", "attention", "ffn", "residual")}
    assert {*ModelConfig().to_dict()} == {*record_of()["config"], *LACKING, *without}


def test_a_model_of_more_than_five_million_parameters_is_refused():
    sizes = {"d_model": 256, "n_layers": 6, "d_ff": 704}  # 6 (4 C^2 + 3 C F + 2 C + 128) + C + 2 V C parameters
    largest, larger = (TransformerLM(preset("modern", vocab_size=V, **sizes)) for V in (349, 350))
    assert len(halves(live_record(largest, WORDS))) == 4_999_680 < MOST_PARAMETERS
    with pytest.raises(ValueError, match="up to 5,000,000 parameters, got 5,000,192; train a smaller model"):
        live_record(larger, WORDS)


def test_a_model_with_other_parameters_than_its_config_says_is_refused():
    model = scrambled(tiny("modern"))
    model.blocks[0].ffn.gate_proj = torch.nn.Linear(20, 28)  # its bias is new
    with pytest.raises(ValueError, match=r"the model has \d+ parameters, and its config \d+; build it with Tran"):
        live_record(model, WORDS)


@pytest.mark.parametrize(("value", "said"), [
    (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "inf"), (-65_505.0, "65505"), (1e9, r"1e\+09"),
])  # fmt: skip
def test_a_weight_that_half_precision_lacks_is_refused_with_its_place(value, said):
    model = scrambled(tiny("modern"))
    with torch.no_grad():
        model.blocks[1].ffn.up_proj.weight[3, 2] = value
    with pytest.raises(ValueError, match=rf"^blocks\.1\.ffn\.up_proj\.weight has a weight of size {said}, .* 65,504; "):
        live_record(model, WORDS)
    with torch.no_grad():
        model.blocks[1].ffn.up_proj.weight[3, 2] = -65_504.0
    assert halves(live_record(model, WORDS)).min() == -65_504


def test_what_is_no_model_no_tokenizer_or_of_another_model_is_refused():
    model = scrambled(tiny("modern"))
    with pytest.raises(TypeError, match="model must be a TransformerLM, got Linear; use"):
        live_record(torch.nn.Linear(2, 2), WORDS)
    with pytest.raises(ValueError, match="tokenizer of kind 'Numbers' cannot run in a page; choose one of words"):
        live_record(model, Numbers())
    with pytest.raises(ValueError, match="the tokenizer has 256 ids, and the model only 41; give the tokenizer"):
        live_record(model, ByteTokenizer())
