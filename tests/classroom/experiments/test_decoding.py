"""Trees of texts, stories that are judged, and the record: against definitions and small cases by hand."""

import pytest
import torch

from tinylm_classroom.experiments import decoding
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.probabilities import next_token_probs

SHIPPED = load_pretrained("storyworld")
BOTH = (SHIPPED.model.eval(), SHIPPED.tokenizer)
STORY = storyworld.story(torch.Generator().manual_seed(12)).text
WRONG = STORY.replace("the lamp seemed gray", "the lamp seemed silver")


def test_a_tree_by_hand_multiplies_along_its_branches():
    levels = decoding.two_words({"a": 0.6, "b": 0.4}, {"a": {"x": 0.5, "y": 0.5}, "b": {"x": 1.0}})
    assert levels == [
        [("a", 0.0, 0.6), ("b", pytest.approx(0.6), 0.4)],
        [("ax", 0.0, 0.3), ("ay", 0.3, 0.3), ("bx", pytest.approx(0.6), 0.4)],
    ]


def test_the_tree_of_a_model_has_the_probabilities_of_its_texts_side_by_side():
    model, tokenizer = BOTH
    levels = decoding.all_texts(model, tokenizer, decoding.opening_of(STORY), 3)
    text, _, length = levels[2][-1]
    p = 1.0
    said = storyworld.words(text)
    for n in (3, 2, 1):
        ids = torch.tensor([tokenizer.encode("\n" + "".join(said[:-n]))])
        with torch.no_grad():
            probs = next_token_probs(model(ids)[:, -1])[0]
        p *= probs[tokenizer.ids[said[len(said) - n]]].item()
    assert length == pytest.approx(p, rel=1e-4) and length >= decoding.LEAST
    for level in levels:
        ends = [begin + length for _, begin, length in level]
        begins = [begin for _, begin, _ in level]
        assert all(later >= end - 1e-9 for end, later in zip(ends, begins[1:], strict=False)) and ends[-1] <= 1 + 1e-6


def test_a_rule_changes_the_tree():
    greedy = decoding.all_texts(*BOTH, decoding.opening_of(STORY), 3, temperature=0)
    assert [len(level) for level in greedy] == [1, 1, 1] and greedy[-1][0][2] == 1


def test_what_can_happen_where_it_goes_wrong_and_what_is_marked():
    assert decoding.can_happen(STORY) and decoding.can_happen(decoding.opening_of(STORY))
    assert not decoding.can_happen(WRONG) and decoding.n_impossible([STORY, WRONG, WRONG]) == 2
    assert decoding.first_thing(STORY) == "silver basket"
    assert decoding.marked(STORY) == STORY and "the lamp seemed [SILVER]." in decoding.marked(WRONG)
    assert decoding.excerpt(WRONG).endswith("… In the light the lamp seemed [SILVER].")
    assert decoding.excerpt(STORY).endswith("… possible") and decoding.excerpt(STORY).startswith("He carried")
    assert decoding.said_before([WRONG, STORY]) == (1.0, pytest.approx(1.0))  # silver and gray had both been said


def test_variety_counts_runs_of_four_words():
    assert decoding.variety(["One red kite fell"]) == 1
    words = storyworld.words("a b c d a b c d a")
    runs = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    assert decoding.variety(["a b c d a b c d a"]) == len(set(runs)) / len(runs) < 1
    assert decoding.in_eights([STORY] * 16).tolist() == [pytest.approx(decoding.variety([STORY] * 8))] * 2


def test_beginnings_have_the_events_that_they_say():
    for what, n_gifts in (("a trade", 0), ("a gift", 1)):
        texts = decoding.with_events(what, 20, seed=3)
        assert all(decoding.can_happen(text) and text.endswith(" Afterwards") for text in texts)
        assert {text.count(" gave ") + text.count(" handed ") for text in texts} == {n_gifts}
        assert {"traded" in text for text in texts} == {n_gifts == 0}
    assert decoding.is_trade(STORY) and not decoding.is_trade(decoding.with_events("a gift", 1, 3)[0])


def test_stories_are_finished_in_batches_of_one_length():
    beginnings = ["One", "One rainy day", "One"]
    texts = decoding.in_batches(*BOTH, beginnings, 3, temperature=0)
    assert texts[2].startswith("One rainy day") and len(texts) == 3
    assert texts[0] == texts[1] == decoding.finished(*BOTH, ["One"], 4, temperature=0)[0] and "\n" not in texts[0]


def test_allowed_stories_are_possible_and_gifts_are_of_either_thing():
    assert decoding.n_impossible(decoding.allowed_stories(*BOTH, 4, 3)) == 0
    assert all(0.3 < part < 0.7 for part in decoding.wrong_gifts(*BOTH, 2, 3))


def test_exact_rows_are_distributions_in_which_the_story_is_possible():
    logits, exact = decoding.judged(*BOTH, 1, 5)
    text = decoding.true_stories(1, 5)[0] + "\n"
    ids = torch.tensor(SHIPPED.tokenizer.encode(text))
    assert logits.shape == exact.shape == (len(ids), SHIPPED.tokenizer.vocab_size)
    assert exact.sum(-1).allclose(torch.ones(len(ids)))
    log_prob = exact.gather(1, ids[:, None]).log().sum().item()
    assert log_prob == pytest.approx(storyworld.log_prob(text), rel=1e-4)


def test_no_story_is_more_probable_than_the_highest():
    highest = decoding.highest_log_prob()
    true = [storyworld.log_prob(text) for text in decoding.true_stories(300, 1)]
    assert max(true) <= highest + 1e-9 and highest == pytest.approx(-65.3, abs=0.05)


def test_stories_from_words_of_two_seeds_come_one_after_the_other():
    alone = [decoding.from_words(*BOTH, 5, 4, [seed], temperature=0) for seed in (2, 3)]
    both = decoding.from_words(*BOTH, 5, 4, (2, 3), temperature=0)
    assert both == alone[0] + alone[1] and len(both) == 8
    for text, begun in zip(both, decoding.first_words(5, 4, 2), strict=False):
        assert text.startswith(begun)


def test_the_record_holds_five_temperatures_and_the_same_events():
    dial = decoding.recorded("all", "temperature")
    assert [run.value for run in dial] == [0.1, 0.3, 0.5, 0.7, 1.0, 2.0]
    assert {run.n for run in dial} == {384} and dial[0].part == dial[0].impossible / 384
    assert dial[0].part_error == pytest.approx((dial[0].part * (1 - dial[0].part) / 384) ** 0.5)
    for what in ("a gift", "a trade"):
        assert [(run.n, run.value) for run in decoding.recorded(what, "temperature")] == [
            (768, t) for t in (0.1, 0.3, 0.5, 0.7, 1.0)
        ]
    assert decoding.recorded("all", "constrained")[0].impossible == decoding.recorded("all", "true")[0].impossible == 0
