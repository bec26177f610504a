"""The walk as a view: what it stores is what really flowed, and what it says is true of each token."""

import re

import pytest
import torch
from support.models import MODELS, scrambled, tiny
from support.views import ask

from tinylm_classroom.shapes.model_steps import model_steps, values
from tinylm_classroom.views.shape_flow import LEVELS, MOST_COLUMNS, shape_flow
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, forward_flops
from tinylm_lib.layers import softmax
from tinylm_lib.text.tokenizers import ByteTokenizer

TEXT = "her kite"


@pytest.fixture(scope="module")
def model():
    return scrambled(tiny("modern", vocab_size=256))


@pytest.fixture(scope="module")
def view(model):
    return shape_flow(model, ByteTokenizer(), TEXT, layer=1)


@pytest.fixture(scope="module")
def flows(model):
    ids = torch.tensor([ByteTokenizer().encode(TEXT)])
    return {name: x[0].float() for name, x in values(model, ids, layer=1).items()}


def step(view, name: str) -> dict:
    return next(step for step in view.data["steps"] if step["name"] == name)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_has_a_walk_that_fills_all_places_of_its_words(name):
    config = tiny(name)
    data = shape_flow(config).data
    assert data["parameters"] == count_parameters(config).total
    assert data["flops"] == forward_flops(config, 1, config.max_seq_len) and data["tokens"] == []
    for each in data["steps"]:
        assert set(re.findall(r"\{\w*\}", each["says"])) <= {"{t}", "{fact}"}, each
        assert ("{fact}" in each["says"]) == ("unread" in each) and "cells" not in each
        assert ("weight" in each) <= (each["parameters"] > 0)


@pytest.mark.parametrize("bias", [True, False])
def test_a_weight_says_how_many_biases_come_with_it(bias):
    config = tiny("llama", qkv_bias=bias)
    data = shape_flow(config).data
    (entry,) = [each for each in data["steps"] if each["name"] == "q_proj"]
    assert entry["biases"] == bias * config.n_heads * config.d_head


def test_a_picture_holds_the_first_numbers_of_each_token_by_their_largest(view, flows):
    flow, seen = flows["embed"][:, :MOST_COLUMNS], step(view, "embed")
    levels = [ord(letter) - ord("a") - LEVELS for letter in seen["cells"]]
    assert len(levels) == flow.numel() and (seen["heads"], seen["columns"]) == (1, flow.shape[1])
    expected = (LEVELS * flow / flow.abs().max()).round().flatten().tolist()
    assert levels == [int(x) for x in expected]
    assert seen["first"] == [" ".join(f"{x + 0.0:.2f}" for x in row) for row in flow[:, :3].tolist()]


def test_a_picture_of_heads_has_them_side_by_side_and_dots_where_none_may_look(view, flows):
    masked, T = step(view, "masked"), len(TEXT)
    assert (masked["heads"], masked["columns"]) == (4, T)
    rows = [masked["cells"][i * 4 * T : (i + 1) * 4 * T] for i in range(T)]
    assert all(row[h * T : (h + 1) * T].count(".") == T - 1 - i for i, row in enumerate(rows) for h in range(4))
    third = [ord(letter) - ord("a") - LEVELS for letter in step(view, "weights")["cells"][-2 * T : -T]]
    assert third == [round(LEVELS * x / flows["weights"][:4].max().item()) for x in flows["weights"][2, -1].tolist()]


def test_what_is_said_of_a_token_is_true(view, flows):
    best = softmax(flows["head"], dim=-1).max(-1)
    most = flows["weights"][0].max(-1)
    for place in range(len(TEXT)):
        assert step(view, "embed")["facts"][place] == f"row {ByteTokenizer().encode(TEXT)[place]}"
        said = f"Head 0 gives {100 * most.values[place]:.0f} % to {view.data['tokens'][most.indices[place]]}."
        assert step(view, "weights")["facts"][place] == said
        assert f", {100 * best.values[place]:.0f} %." in step(view, "head")["facts"][place]
        later = len(TEXT) - 1 - place
        assert str(later if later > 1 else ("nothing", "the one")[later]) in step(view, "masked")["facts"][place]


def test_the_words_and_the_table_tell_the_sums(view, model):
    total = count_parameters(model.config).total
    each = forward_flops(model.config, 1, len(TEXT)) / len(TEXT)
    assert repr(view) == (
        f"From ids to logits in {len(model_steps(model.config, 8))} steps: {total:,} parameters, "
        f"{each:,.0f} FLOPs per token in a text of 8."
    )
    assert view.html.count("<tr>") == 1 + sum(step["depth"] < 2 for step in view.data["steps"])
    assert "(B, T, C) = (1, 8, 20)" in re.sub("<[^>]+>", "", view.html)


def test_a_kernel_walks_another_text_or_says_what_is_wrong(model):
    view = shape_flow(model, ByteTokenizer(), TEXT)
    data = ask(view, text="a red", layer=1)
    assert data["tokens"] == ["a", "␣", "r", "e", "d"] and data["layer"] == 1 and data["error"] == ""
    assert ask(view, text="a", layer=0) == {**data, "error": "the view shows 2 to 12 tokens, not 1: take a longer one"}
    assert ask(view, typed=" a red ", layer=1)["text"] == "a red" and view.data["error"] == ""
    assert ask(view, typed=" ", layer=1)["error"] == "the text is empty: type a text"
    assert not shape_flow(model.config).live


@pytest.mark.parametrize(("arguments", "message"), [
    (("a" * 13,), "2 to 12 tokens, not 13: take a shorter"), (("ab", 2), "layer 2 is not one of the model's 2"),
    (("ab", -1), "layer -1 is not one"),
])  # fmt: skip
def test_what_cannot_be_walked_is_refused_with_a_fix(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        shape_flow(model, ByteTokenizer(), *arguments)


def test_a_text_needs_the_model_and_its_tokenizer_and_without_one_a_text_is_at_most_1024_tokens(model):
    for given in ((model.config, ByteTokenizer(), "ab"), (model, None, "ab")):
        with pytest.raises(ValueError, match="need the model and its tokenizer"):
            shape_flow(*given)
    with pytest.raises(TypeError, match="takes a TransformerLM or a ModelConfig, not str"):
        shape_flow("gpt2")
    assert shape_flow(preset("llama", "3-8b")).data["seq_len"] == 1024
