"""What is read in a stream, and what an exchange and a push do, on a model that the tests know."""

import pytest
import torch

from tinylm_classroom.experiments import owners, reading
from tinylm_classroom.experiments.second import FILE, second_model
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
MODEL = SHIPPED.model.eval()
PEOPLE = owners.cast(4, seed=1)
IDS = owners.encoded(SHIPPED.tokenizer, owners.texts_of(["A gives"], PEOPLE))


def test_the_marked_positions_have_their_words():
    said = [SHIPPED.tokenizer.decode([i]).strip() for i in IDS[0].tolist()]
    at = [reading.FIRST, reading.GIVER, reading.RECEIVER, reading.FULL_STOP, reading.THING_ASKED, reading.LAST]
    assert [said[i] for i in at] == ["Then", "Mia", "Carlos", ".", PEOPLE[0]["thing1"], "to"]
    assert len(said) == reading.LAST + 1


def test_from_each_depth_the_model_continues_to_its_own_answer():
    stream = reading.streams(MODEL, IDS)
    assert stream.shape == (4, 4, len(IDS[0]), 128)
    with torch.no_grad():
        expected = MODEL(IDS)[:, -1].softmax(-1)
    for depth in range(4):
        torch.testing.assert_close(reading.read_on(MODEL, stream[depth], depth), expected, atol=1e-5, rtol=1e-4)


def test_a_linear_reader_finds_a_linear_label_and_no_other():
    generator = torch.Generator().manual_seed(0)
    x, new = torch.randn(300, 8, generator=generator), torch.randn(200, 8, generator=generator)
    both = [(v @ torch.arange(8.0) > 0).float() for v in (x, new)]
    assert ((reading.read_linearly(x, both[0], new) > 0.5) == both[1].bool()).float().mean() > 0.9
    xor = [((v[:, 0] > 0) != (v[:, 1] > 0)).float() for v in (x, new)]
    linear = ((reading.read_linearly(x, xor[0], new) > 0.5) == xor[1].bool()).float().mean()
    assert linear < 0.65 < reading.hidden_accuracy(x, xor[0], new, xor[1])


def test_a_label_is_written_as_strongly_as_the_other_one():
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    label, like = torch.tensor([0.0, 1.0]).repeat(20), torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(10)
    change = reading.with_label(x, label, like) - x
    strength = (x[like == 1].mean(0) - x[like == 0].mean(0)).norm()
    torch.testing.assert_close((change[1] - change[0]).norm(), strength)


def test_labels_of_lost_stories_are_an_exclusive_or():
    ends, labels = reading.lost_ends(MODEL, SHIPPED.tokenizer, PEOPLE)
    assert ends.shape == (4, 16, 128)
    different = labels["who came first"] != labels["whose thing"]
    assert torch.equal(labels["who has it"].bool(), different)


def test_random_directions_have_length_1_and_may_vary_as_vectors_do():
    flat = torch.randn(50, 128, generator=torch.Generator().manual_seed(0))
    flat[:, 3:] = 0
    assert reading.random_directions(5, 1)[:, 3:].norm(dim=-1).min() > 0.5
    like = reading.random_directions(5, 1, flat)
    torch.testing.assert_close(like.norm(dim=-1), torch.ones(5))
    assert like[:, 3:].abs().max() < 1e-6


def test_the_receiver_alone_moves_the_answer_in_both_wordings():
    assert min(reading.moved_by_receiver(MODEL, SHIPPED.tokenizer, PEOPLE)) > 0.9


def test_a_hidden_layer_finds_the_owner_only_where_both_labels_are():
    sets = [reading.lost_ends(MODEL, SHIPPED.tokenizer, owners.cast(n, seed)) for n, seed in ((40, 2), (20, 3))]
    (x, labels), (new, new_labels) = sets
    middle, size = x[2].mean(0), x[2].std()
    own, written = reading.hidden_layer((x[2] - middle) / size, labels, (new[2] - middle) / size, new_labels)
    assert own < 0.7 < 0.9 < written


def test_directions_are_those_of_the_probe_and_random_ones():
    vectors = torch.randn(30, 128, generator=torch.Generator().manual_seed(0))
    found = reading.kinds_of_directions(vectors[0], vectors, vectors[:20], seed=1, n=5)
    assert [len(ways) for ways in found.values()] == [1, 5, 5, 5]


def test_the_larger_change_of_two_ways_counts():
    ways = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    found = reading.largest_changes(lambda way: 0.5 + 0.1 * max(float(way[0]), -3 * float(way[0])), ways)
    assert found == pytest.approx([0.3, 0.0])


def test_coins_belong_to_things_and_gifts_to_their_receivers():
    many = owners.cast(60, seed=2)
    coins, few = reading.coins(3, many, many[:5])
    by_thing = {}
    for said, coin in zip(many + many, coins.tolist(), strict=True):
        assert by_thing.setdefault(said["thing1"], coin) == coin
    assert few.tolist() == coins[:5].repeat(2).tolist() and 0 < sum(by_thing.values()) < len(by_thing)
    x, y = reading.gift_streams(MODEL, SHIPPED.tokenizer, PEOPLE)
    assert x.shape[1] == 8 and y.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]


def test_the_second_model_is_small_and_another_one():
    second = second_model()
    assert FILE.stat().st_size < 1.2e6 and second.config == MODEL.config
    assert not torch.allclose(second.embed.weight, MODEL.embed.weight, atol=0.1)
    texts = owners.texts_of(["A gives"], PEOPLE)
    assert owners.probs_of(second, SHIPPED.tokenizer, [said["B"] for said in PEOPLE], texts).min() > 0.9
