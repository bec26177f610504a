"""What units do, by brute force: activations from their definition, and columns that are really exchanged."""

import copy

import pytest
import torch
from torch import nn

from tinylm_classroom.experiments import units
from tinylm_lib import storyworld
from tinylm_lib.layers import Linear
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
MODEL, TOKENIZER = SHIPPED.model.eval(), SHIPPED.tokenizer
TEXT = units.beginning(4)


def probabilities(model, text):
    with torch.no_grad():
        return model(torch.tensor([TOKENIZER.encode("\n" + text)]))[0, -1].softmax(-1)


def test_beginnings_are_whole_sentences_and_stories_have_one_length():
    whole = storyworld.story(torch.Generator().manual_seed(4)).text
    assert whole.startswith(TEXT) and TEXT.count(".") == 3 and TEXT.endswith(".")
    ids = units.ids_of_stories(TOKENIZER, 3, seed=4, length=50)
    assert ids.shape == (3, 50)
    assert TOKENIZER.decode(ids[0].tolist()) == "\n" + whole[: len(TOKENIZER.decode(ids[0, 1:].tolist()))]


def test_activations_are_the_activation_function_of_the_gate():
    ids = units.ids_of_stories(TOKENIZER, 2, seed=1)
    into = {}
    handle = MODEL.blocks[1].ffn.register_forward_pre_hook(lambda module, args: into.update(x=args[0]))
    with torch.no_grad():
        MODEL(ids)
    handle.remove()
    found = units.activations(MODEL, ids, layer=1)
    gate = into["x"] @ MODEL.blocks[1].ffn.gate_proj.weight.T
    torch.testing.assert_close(found, nn.functional.silu(gate), atol=1e-4, rtol=1e-4)


def test_each_start_is_that_of_two_linear_maps_of_the_library():
    found = units.starts([7, 8])
    torch.manual_seed(8)
    up, down = Linear(2, 6, bias=True), Linear(6, 1, bias=True)
    x = torch.randn(4, 2)
    expected = down(torch.relu(up(x)))
    got = torch.relu(x @ found.w_up.mT + found.b_up) @ found.w_down.mT + found.b_down
    torch.testing.assert_close(got[1], expected)
    assert all(each.requires_grad and each.is_leaf for each in found)
    assert units.starts([7], bias=-3.0).b_up.eq(-3).all()


def test_a_written_word_is_said_as_if_the_column_were_exchanged():
    found = units.written(MODEL, TOKENIZER, f"{TEXT} In the")
    assert len(found.words) == len(found.said) == len(found.probabilities) > 300
    for word in ("kite", "cold"):
        changed = copy.deepcopy(MODEL)
        rows = MODEL.lm_head.weight.detach()
        row = rows[TOKENIZER.encode(f" {word}")[0]] - rows.mean(0)
        changed.blocks[2].ffn.down_proj.weight.data[:, 34] = -row / row.norm()
        probs = probabilities(changed, f"{TEXT} In the")
        at = found.words.index(word)
        assert found.probabilities[at] == pytest.approx(probs[TOKENIZER.encode(f" {word}")[0]].item(), abs=1e-3)
        assert found.said[at] == TOKENIZER.decode([probs.argmax().item()]).strip()
    cosines = units.missed(MODEL, TOKENIZER, found)
    assert len(cosines) == sum(a != b for a, b in zip(found.words, found.said, strict=True))
    assert min(cosines) > 0.8 and max(cosines) < 1


def test_reactions_and_harm_are_counted_at_the_words_of_their_own():
    at = units.reactions(MODEL, TOKENIZER, 34, "In the", seed=4)
    assert at.at_both > 6 > at.elsewhere and at.at_second < 1
    same = units.harm(MODEL, MODEL, TOKENIZER, ("end", "light"), seed=4)
    assert same.at_words == same.elsewhere == 0 and same.right > 0.9
    changed = copy.deepcopy(MODEL)
    changed.blocks[2].ffn.down_proj.weight.data[:, 34] = 0
    found = units.harm(MODEL, changed, TOKENIZER, ("end", "light"), seed=4)
    assert found.at_words > 1 > 0.01 > abs(found.elsewhere) and found.right < 0.6


def test_a_rule_replaces_all_feed_forwards_and_rises_are_means_over_a_word():
    ids = units.ids_of_stories(TOKENIZER, 4, seed=2)
    same = units.with_rule(MODEL, lambda ffn, x: ffn.down_proj(ffn.activation(ffn.gate_proj(x)) * ffn.up_proj(x)))
    losses = units.token_losses(MODEL, ids)
    torch.testing.assert_close(units.token_losses(same, ids), losses, atol=1e-4, rtol=1e-4)
    nothing = units.token_losses(units.with_rule(MODEL, lambda ffn, x: 0 * x), ids)
    assert nothing.mean() > losses.mean() + 0.3 and not MODEL.blocks[0].ffn._forward_hooks
    a = TOKENIZER.encode(" a")[0]
    rise = torch.where(ids[:, 1:] == a, 2.0, 1.0)
    assert next(iter(units.largest_rises(rise, ids, TOKENIZER, 1).items())) == ("a", 2.0)
