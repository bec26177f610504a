"""What the hooks catch is what the model computed, and the model is left as it was."""

import pytest
import torch
from support.models import scrambled, some_ids, tiny

from tinylm_classroom.shapes.capture import capture

FAMILIES = ["modern", "cs336", "gpt", "tiny_transformer", "gpt2", "llama"]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_stages_end_in_what_the_layer_made(name: str) -> None:
    model, ids = scrambled(tiny(name)), some_ids(2, 9)
    caught = capture(model, ids)
    torch.testing.assert_close(caught.logits, model.eval()(ids))
    for layer in range(model.config.n_layers):
        stages = caught.attention(layer)
        assert stages.weights.shape == (2, model.config.n_heads, 9, 9)
        torch.testing.assert_close(stages.weights.sum(-1), torch.ones(stages.weights.shape[:-1]))
        assert (stages.weights.triu(1) == 0).all()
        assert stages.weights.var() > 0.01, "scores too small to tell anything"


def test_wrong_values_are_noticed() -> None:
    caught = capture(scrambled(tiny("llama")), some_ids(2, 9))
    name = "blocks.0.attention.rotation.q"
    caught.outputs[name] = caught.outputs[name].flip(2)
    with pytest.raises(AssertionError):
        caught.attention(0)


def test_hooks_modes_and_gradients_are_left_as_they_were() -> None:
    model = scrambled(tiny("gpt")).train()
    model.blocks[1].eval()
    modes = [m.training for m in model.modules()]
    capture(model, some_ids(2, 9))
    with pytest.raises(ValueError):
        capture(model, torch.full((1, 3), -1))
    assert [m.training for m in model.modules()] == modes
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())
