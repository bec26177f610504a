"""The walk through a model: its steps are those of the real run, and their sums are those of the closed formulas."""

import pytest
import torch
from support.models import MODELS, scrambled, some_ids, tiny

from tinylm_classroom.shapes.model_steps import model_steps, sized, sizes_of, values
from tinylm_lib import preset
from tinylm_lib.cost import count_parameters, forward_flops
from tinylm_lib.layers import softmax
from tinylm_lib.presets import SIZES

CONFIGS = {f"{family} {size}": preset(family, size) for family in SIZES for size in SIZES[family]}
CONFIGS |= {name: tiny(name) for name in MODELS}
T = 9


@pytest.mark.parametrize("name", MODELS)
def test_every_step_returns_what_it_says_in_shapes_and_weights(name):
    config = tiny(name)
    model = scrambled(config)
    steps, sizes, found = model_steps(config, T), sizes_of(config, T), values(model, some_ids(1, T), layer=1)
    assert [(step.name, step.shape(sizes)) for step in steps] == [(s.name, tuple(found[s.name].shape)) for s in steps]
    assert len({step.name for step in steps}) == len(steps)
    for step in steps:
        if step.weight:
            named = [p for path, p in model.named_parameters() if path.split(".")[-2] in (step.name, "lm_" + step.name)]
            assert sized(step.weight, sizes) in [tuple(p.shape) for p in named], step.name


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_parameters_and_flops_of_the_steps_sum_to_the_closed_formulas_and_to_the_whole(config):
    steps = model_steps(config, T)
    top = [step for step in steps if step.depth == 0]
    assert sum(step.parameters * step.times for step in top) == count_parameters(config).total
    assert sum(step.flops * step.times for step in top) == forward_flops(config, 1, T)
    for at, step in enumerate(steps[:-1]):
        if steps[at + 1].depth > step.depth:
            after = [i for i in range(at + 1, len(steps)) if steps[i].depth <= step.depth]
            inside = [each for each in steps[at + 1 : after[0]] if each.depth == step.depth + 1]
            assert sum(each.parameters for each in inside) == step.parameters
            assert sum(each.flops for each in inside) == step.flops


def test_a_step_is_there_exactly_where_the_model_has_it():
    def names(family: str, **changes) -> list[str]:
        return [step.name for step in model_steps(tiny(family, **changes), T)]

    assert {"q_norm", "rotation.q", "gate_proj", "gated"} <= {*names("modern")}
    assert not {"position", "scaled"} & {*names("modern")}
    assert {"position", "scaled"} <= {*names("tiny_transformer")}
    assert not {"rotation.q", "q_norm", "gate_proj", "gated"} & {*names("gpt2")}
    assert "position" not in names("gpt2", position="none")
    pre, post = (names("modern", block=block) for block in ("pre_norm", "post_norm"))
    assert pre.index("attn_norm") < pre.index("attention") and "final_norm" in pre
    assert post.index("attention_added") < post.index("attn_norm") < post.index("ffn") and "final_norm" not in post


@pytest.mark.parametrize("name", ["modern", "gpt2", "post-norm, layer"])
def test_the_values_follow_from_one_another(name):
    model, ids = scrambled(tiny(name)), some_ids(1, T)
    found = values(model, ids, layer=0)
    torch.testing.assert_close(softmax(found["masked"], dim=-1), found["weights"])
    torch.testing.assert_close(found["mixed"].transpose(1, 2).flatten(2), found["merged"])
    torch.testing.assert_close(model.blocks[0].ffn.down_proj(found["gated"]), found["ffn"])
    torch.testing.assert_close(found["head"], model(ids).detach())
    start = model.embed(ids).detach() * model.embed_scale
    start = model.position(start, torch.arange(T)).detach()
    torch.testing.assert_close(found["attention_added"], start + found["attention"])
