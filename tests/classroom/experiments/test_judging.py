"""What lesson 17 measures: verdicts and kinds of stories, mixes, runs with and without a baseline, pairs, examples."""

import copy
import math

import pytest
import torch

from tinylm_classroom.experiments import instructions, judging
from tinylm_classroom.experiments.judging import Counted
from tinylm_lib import rewards, storyworld
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
START, TOKENIZER = SHIPPED.model.eval(), SHIPPED.tokenizer
STORY = (
    "One cold day, kind Mia came to Elmwood. She had a red hat. There she met Tom, a baker with a blue cup. "
    'Mia said to Tom, "Young owls fly often." Then Mia gave Tom the red hat. Afterwards they left Elmwood for Oakhill. '
    "By then the red hat belonged to {}. Everybody knew our baker Tom. Soon they missed Elmwood. The blue cup was easy "
    "to see. At last our baker Tom took the red hat home.\n"
)
OPTIONS = {"n_each": 2, "max_new_tokens": 97, "stop_ids": TOKENIZER.encode("\n")}

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_story_is_possible_only_whole_and_without_a_wrong_word():
    right, wrong = STORY.format("Tom"), STORY.format("Mia")
    assert judging.possible(right) and not judging.possible(wrong) and not judging.possible(right[:-1])
    assert judging.marked(right) == right.strip()
    assert judging.marked(wrong).endswith("the red hat belonged to [Mia] ...")
    assert judging.marked("One cold day, kind Mia came to Elmwood.\n").endswith("[no end]")
    judge = judging.Judge(TOKENIZER, added=10)
    assert [judge(TOKENIZER.encode("\n" + text)) for text in (right, wrong)] == [11, 10]


def test_the_kinds_of_stories_are_counted():
    plain = (
        STORY.format("Tom").replace("gave Tom the red hat", "sang").replace("By then the red hat belonged to Tom. ", "")
    )
    kinds = judging.counted([STORY.format("Tom"), STORY.format("Mia"), plain])
    assert kinds[True, True] == Counted(2, 1) and kinds[False, False] == Counted(1, 0)
    assert kinds[True, False] == kinds[False, True] == Counted(0, 0)
    assert judging.part_possible(kinds) == pytest.approx(1 / 3)
    assert judging.part_with(kinds, 0) == judging.part_with(kinds, 1) == pytest.approx(2 / 3)


def test_a_mix_is_of_one_model_and_the_care_of_another():
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    often = dict(zip(kinds, [Counted(30, 0), Counted(10, 0), Counted(0, 0), Counted(10, 5)], strict=True))
    careful = dict(zip(kinds, [Counted(10, 10), Counted(10, 5), Counted(8, 1), Counted(0, 0)], strict=True))
    assert judging.mixed(often, careful) == pytest.approx(0.6 * 1 + 0.2 * 0.5 + 0.2 * 0.5)
    assert judging.mixed(often, often) == judging.part_possible(often)


def test_a_beginning_has_so_many_sentences():
    for n in (2, 5):
        text = judging.beginning(torch.Generator().manual_seed(3), n)
        whole = storyworld.story(torch.Generator().manual_seed(3)).text
        assert whole.startswith(text) and text.count(".") == n


def test_with_a_baseline_the_run_is_that_of_the_library_and_without_one_it_is_another():
    def end(**options):
        model = copy.deepcopy(START)
        verdicts = list(judging.learning(model, START, TOKENIZER, 0, 1, **options))
        return verdicts, model.embed.weight.detach()

    model, made, run = judging.watched(START, TOKENIZER, 0, 1)
    assert len(list(run)) == len(made) == 1
    (verdicts, weight), (added, same), (same_texts, other) = end(), end(added=10.0), end(baseline=False)
    assert verdicts == pytest.approx(added, abs=1e-5) and verdicts == same_texts == [made[0].rewards.mean().item()]
    torch.testing.assert_close(weight, model.embed.weight.detach())
    torch.testing.assert_close(weight, same, atol=1e-4, rtol=0)
    assert (weight - other).abs().max() > 5e-4


def test_the_log_probabilities_are_those_of_the_draws():
    texts = judging.drawn(START, TOKENIZER, 2, seed=1, n_each=2)
    with torch.no_grad():
        found = judging.answer_log_probs(START, texts)
    torch.testing.assert_close(found[texts.mask], texts.log_probs[texts.mask], atol=1e-4, rtol=1e-4)


def test_a_pair_has_a_possible_and_an_impossible_story_and_only_the_answers_count():
    pairs = judging.in_pairs(TOKENIZER, judging.written(START, TOKENIZER, 5, 2, 16))
    assert pairs and all(judging.possible(good) and not judging.possible(bad) for good, bad in pairs)
    texts = judging.as_batch(TOKENIZER, pairs[:2])
    assert len(texts.ids) == 4
    for row, text in enumerate([pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]]):
        counted = texts.ids[row, 1:][texts.mask[row]].tolist()
        given = judging.SENTENCE.split(text, 2)[:2]
        assert TOKENIZER.decode(counted) == text[len(".".join(given)) + 1 :]


def test_at_the_start_a_pair_has_not_changed_and_a_step_raises_its_margin():
    pairs = judging.in_pairs(TOKENIZER, judging.written(START, TOKENIZER, 5, 1, 16))[:2]
    texts = judging.as_batch(TOKENIZER, pairs)
    assert all(part.abs().max() == 0 for part in judging.changes(START, START, texts))
    model = copy.deepcopy(START)
    assert list(judging.preferring(model, START, TOKENIZER, pairs, 0, 2)) == [1, 2]
    up, down = judging.changes(model, START, texts)
    assert (up - down).mean() > 0.1


def test_one_update_of_the_library_is_itself_and_one_without_a_step_is_not():
    def update(model, optimizer, prompts, source):
        judge = judging.Judge(TOKENIZER)
        _ = list(rewards.reinforce(model, START, [prompts], judge, optimizer, **OPTIONS, generator=source))

    assert judging.same_update(update, START, TOKENIZER, OPTIONS) == 0
    assert judging.same_update(lambda *_: None, START, TOKENIZER, OPTIONS) == 1


def test_an_instruction_names_what_the_story_is_about_and_only_the_answer_has_targets():
    text = STORY.format("Tom")
    assert instructions.about(text) == ["Mia", "Tom", "hat", "cup"]
    assert TOKENIZER.decode(instructions.instruction(TOKENIZER, text)) == "\n Mia Tom hat cup.\n"
    for answer_only in (True, False):
        ids, targets = instructions._examples(TOKENIZER, 3, torch.Generator().manual_seed(0), answer_only)
        n = len(instructions.instruction(TOKENIZER, TOKENIZER.decode(ids[0].tolist()).split("\n")[2]))
        told = targets[0] != -100
        assert bool(told[: n - 1].any()) is not answer_only
        torch.testing.assert_close(targets[0, told][:-1], ids[0, 1:][told[:-1]][: told.sum() - 1])


def test_the_sentences_of_the_mystery_are_counted_and_its_texts_judged():
    assert judging.owner_sentences("The hat belonged to Tom. The cup was now with Mia. It belonged to Tom.") == 3
    _, made, run = judging.watched(START, TOKENIZER, 0, 1)
    _ = list(run)
    found = judging.gamed(TOKENIZER, made)
    assert found.possible == pytest.approx(found.reward) and 0 <= found.repeated < 0.2
    assert judging.barred("A b. C d. E", 2) == "A b. C d. | E"
    assert all(" | " in text for run in judging.recorded_rewards().gamed for text in run.texts)


def test_a_coin_judges_without_reading():
    coin = judging.Coin(0.35, torch.Generator().manual_seed(0))
    assert 0.3 < sum(coin([]) for _ in range(1000)) / 1000 < 0.4
    found = list(judging.learning(copy.deepcopy(START), START, TOKENIZER, 0, 1, chance=1.0))
    assert found == [1.0] and len(judging.recorded_rewards().coin) == 3


def test_it_is_told_how_often_the_difficult_sentences_are():
    kinds = judging.counted([STORY.format("Tom")])
    assert judging.how_often([kinds, kinds])["Stories with a gift"] == "before 100%, after the runs 100%"


def test_the_record_is_compared_by_rewards_and_by_penalty():
    recorded = judging.recorded_rewards()
    found = judging.without_baseline(recorded)
    assert list(found.means) == ["0 and 1", "1 and 2", "10 and 11"]
    assert found.fine["10 and 11"][0] == found.fine["0 and 1"][0] != found.fine["0 and 1"][1]
    assert found.means["0 and 1"][0] == pytest.approx(sum(found.fine["0 and 1"][0]) / 5)
    assert {beta: len(runs) for beta, runs in judging.with_penalty(recorded).items()} == {0: 3, 0.03: 3, 0.1: 3, 0.3: 3}
    assert not math.isnan(recorded.start.owner_nats)
