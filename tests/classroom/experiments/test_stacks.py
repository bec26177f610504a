"""Stacks with and without plus signs: adding is the library's block, steps are undone, sums lose one term."""

import pytest
import torch

from tinylm_classroom.experiments import stacks
from tinylm_lib.model import PreNormBlock
from tinylm_lib.pretrained import load_pretrained

V = 31


@pytest.fixture(autouse=True)
def few_threads(one_thread):
    """The models are tiny."""


def test_adding_is_what_the_library_does_and_replacing_is_not():
    lm = stacks.untrained(V, 2, seed=3)
    ids = torch.randint(V, (2, 5))
    assert torch.allclose(stacks.reading(lm, stacks.add)(ids), lm(ids), atol=1e-5)
    assert not torch.allclose(stacks.reading(lm, stacks.replace)(ids), lm(ids), atol=0.1)
    assert [x.shape for x in stacks.vectors(lm, stacks.add, ids)] == 3 * [(2, 5, 64)]


def test_a_word_that_is_read_alone_does_not_know_its_text():
    lm = stacks.untrained(V, 2, seed=3)
    ids = torch.tensor([[4, 7, 9], [9, 4, 7]])
    logits = stacks.reading(lm, stacks.replace, alone=True)(ids)
    assert logits.shape == (2, 3, V)
    assert torch.allclose(logits[0], logits[1, [1, 2, 0]], atol=1e-5)
    whole = stacks.reading(lm, stacks.replace)(ids)
    assert not torch.allclose(whole[0], whole[1, [1, 2, 0]], atol=1e-3)


def test_a_repeated_token_has_no_entropy_and_two_have_that_of_a_coin():
    assert stacks.counting_only(torch.tensor([3, 3, 3])) == 0
    assert stacks.counting_only(torch.tensor([0, 2, 0, 2])) == pytest.approx(0.6931, abs=1e-4)


def test_a_model_learns_a_text_that_repeats():
    lm = stacks.untrained(V, 1, seed=0)
    losses = stacks.train(lm, lm, torch.arange(200) % 7, updates=40)
    assert len(losses) == 40 and losses[0] > 3 and stacks.last_ten(losses) < 0.5
    assert stacks.last_ten([9.0, *map(float, range(10))]) == 4.5


def test_a_step_is_measured_and_undone():
    lm = stacks.untrained(V, 1, seed=0)
    before = [p.detach().clone() for p in lm.parameters()]
    batch = torch.randint(V, (4, 9))
    tiny, long = (stacks.after_step(lm, lm, batch, step) for step in (1e-6, 0.05))
    assert tiny.cosine > 0.999 > 0.9 > long.cosine and -0.01 < tiny.change < 0
    assert all(torch.equal(p, old) for p, old in zip(lm.parameters(), before, strict=True))


def test_the_limit_is_between_the_steps_on_a_logarithmic_scale():
    cosines = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    assert stacks.limit_of([1e-4, 1e-3, 1e-1], cosines) == pytest.approx(1e-2)
    assert stacks.limit_of([1e-4, 1e-3], torch.tensor([[1.0, 0.25]])) == pytest.approx(10 ** (-4 + 2 / 3))


def test_the_gradient_of_every_block_is_found():
    lm = stacks.untrained(V, 3, seed=0)
    found = stacks.block_gradients(lm, stacks.add)
    squares = [sum(p.grad.square().sum() for p in block.parameters()) for block in lm.blocks]
    assert found == pytest.approx([square.sqrt().item() for square in squares], rel=1e-4)


def test_only_the_maps_into_the_stream_become_smaller():
    usual, small = (stacks.untrained(V, 2, seed=1) for _ in range(2))
    stacks.smaller(small, 0.5)
    for name, weight in small.named_parameters():
        factor = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1
        assert torch.equal(weight, factor * usual.get_parameter(name))


def test_a_sum_loses_one_term_and_without_its_plus_sign_all_before_it():
    x, parts = torch.tensor([2.0]), [lambda x: x * x, lambda x: x + 10, lambda x: x / 2]
    assert [stacks.changed_sum(x, parts, out).item() for out in (None, 0, 1, 2)] == [33, 21, 9, 22]
    assert [stacks.changed_sum(x, parts, out, True).item() for out in (0, 2)] == [27, 11]


def test_the_shipped_model_has_its_own_loss_with_all_parts_and_with_its_own_block():
    shipped = load_pretrained("storyworld")
    model, ids = shipped.model.eval(), stacks.new_stories(shipped.tokenizer, 200, n=4, length=30)
    assert ids.shape == (4, 30)
    with torch.no_grad():
        logits = model(ids)[:, :-1].flatten(0, 1)
    own = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).item()

    assert type(model.blocks[0]) is PreNormBlock and len(stacks.parts_of(model, 30)) == 6
    assert stacks.loss_after(model, ids, stacks.changed_sum) == pytest.approx(own, abs=1e-4)
    assert stacks.loss_with_block(model, ids, stacks.pre_norm) == pytest.approx(own, abs=1e-4)
    found = [stacks.without_each(model, ids, plus_alone) for plus_alone in (False, True)]
    assert len(found[0]) == 6 and min(found[1]) > own + 0.5 and found[0][0] > own + 1


def test_the_record_has_a_loss_for_each_twenty_updates_and_each_seed():
    runs, rates = stacks.recorded("runs"), stacks.recorded("rates")
    assert len(runs) == 15 and {len(run["losses"]) for run in runs} == {50}
    assert {(run["join"], run["blocks"]) for run in runs} == {
        ("replace", 2), ("replace", 4), ("replace", 8), ("add", 8), ("add", 24),
    }  # fmt: skip
    assert [run["rate"] for run in rates] == 2 * [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1]
    assert {len(run["losses"]) for run in rates} == {5}


def test_the_stream_of_post_norm_keeps_its_size_and_that_of_pre_norm_grows():
    assert stacks.growth(V, 3) > 3 and stacks.growth(V, 3, factor=0.0) == 1
    assert stacks.growth(V, 3, block="post_norm") == pytest.approx(1, abs=0.05)


def test_two_beginnings_are_told_apart_until_nothing_from_other_words_arrives():
    shipped = load_pretrained("storyworld")
    model = shipped.model.eval()
    assert min(stacks.told_apart(model, shipped.tokenizer, 200, n=3)) > 0.9
    no_attention = [(layer, "attention") for layer in range(3)]
    assert max(stacks.told_apart(model, shipped.tokenizer, 200, no_attention, n=3)) < 1e-6


def test_the_name_before_thanked_comes_in_through_the_second_attention():
    shipped = load_pretrained("storyworld")
    model = shipped.model.eval()
    assert min(stacks.names_apart(model, shipped.tokenizer, 300, n=3)) > 0.9
    assert max(stacks.names_apart(model, shipped.tokenizer, 300, [(1, "attention")], n=3)) < 0.2


def test_a_word_is_found_in_its_own_vector_and_not_in_a_vector_without_it():
    torch.manual_seed(0)
    lm = stacks.untrained(V, 1, seed=3)
    ids = torch.randint(V, (60, 32))
    assert stacks.own_word(lm, lambda x, made: x, ids) > 0.95
    assert stacks.own_word(lm, lambda x, made: x.roll(1, 1), ids) < 0.2
