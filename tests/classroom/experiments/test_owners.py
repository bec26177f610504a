"""Stories about who has what: exact owners, and names counted by what has happened before them."""

import pytest

from tinylm_classroom.experiments import owners
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
PEOPLE = owners.cast(4, seed=1)


def test_in_every_second_story_the_other_person_comes_first_and_the_rest_is_drawn_again():
    assert [said["A"] for said in PEOPLE] == ["Mia", "Carlos", "Mia", "Carlos"]
    assert [said["She"] for said in PEOPLE] == ["She", "He", "She", "He"]
    assert len({said["thing1"] for said in PEOPLE}) > 1
    assert all(said["thing1"] != said["thing2"] and said["colour1"] != said["colour2"] for said in PEOPLE)


@pytest.mark.parametrize(("events", "thing", "role"), [
    (["A gives"], 1, "B"), (["A gives"], 2, "B"), (["B gives"], 1, "A"), (["A hands"], 1, "B"), (["B hands"], 2, "A"),
    (["trade"], 1, "B"), (["trade"], 2, "A"), (["A gives", "B gives"], 2, "A"),
])  # fmt: skip
def test_the_exact_owner_follows_the_things(events, thing, role):
    texts = owners.texts_of(events, PEOPLE, thing)
    assert [owners.exact_owner(text) for text in texts] == [said[role] for said in PEOPLE]


def test_an_impossible_story_and_an_open_end_are_refused():
    (text,) = owners.texts_of(["A gives B's thing"], PEOPLE[:1])
    with pytest.raises(ValueError, match="impossible here"):
        owners.exact_owner(text)
    with pytest.raises(ValueError, match="more than one word"):
        owners.exact_owner("One")


def test_probabilities_of_names_are_those_of_the_model_and_of_both_people_sum_to_nearly_1():
    texts = owners.texts_of(["trade"], PEOPLE)
    both = [owners.probs_of(SHIPPED.model, SHIPPED.tokenizer, [said[role] for said in PEOPLE], texts) for role in "AB"]
    assert both[0].shape == (4,) and (sum(both) - 1).abs().max() < 0.1


def test_the_receiver_is_named_after_each_gift_and_a_trade_alone_leaves_one_half():
    assert len({name for pair in owners.ten_pairs() for name in pair}) > 15
    lowest, after_trade = owners.of_receivers(SHIPPED.model, SHIPPED.tokenizer, PEOPLE)
    assert lowest > 0.9 and after_trade.shape == (2, 4) and 0.2 < after_trade.mean() < 0.7
    both = owners.who(SHIPPED.model, SHIPPED.tokenizer, PEOPLE, ["trade"], thing=2)
    assert both["B"] == pytest.approx(after_trade[1].mean().item(), abs=1e-5) and list(both) == ["A", "B"]


def test_named_owners_are_grouped_by_what_has_happened():
    found = owners.named_owners(SHIPPED.model.eval(), SHIPPED.tokenizer, 40, seed=3)
    assert list(found) == ["one gift", "only a trade", "two gifts"]
    assert all(len(probs) == len(right) > 0 for probs, right in found.values())
    assert found["one gift"][1].all() and found["one gift"][0].min() > 0.9
