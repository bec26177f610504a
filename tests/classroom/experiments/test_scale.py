"""Trainings within a budget, and what is computed from the record: against definitions and small cases by hand."""

import math
from dataclasses import replace

import pytest
import torch

from tinylm_classroom.experiments import scale
from tinylm_lib.cost import count_parameters
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
TOKENIZER = SHIPPED.tokenizer
WORLD = scale.stories(TOKENIZER, 60, n_held_out=20)
RUN = scale.Run(1e10, 10_000, 0, 4, 1.5, (0.0,) * 6, (0.5,) * 6)


def runs_of(losses: dict[int, float]) -> list[scale.Run]:
    return [replace(RUN, size=size, loss=loss) for size, loss in losses.items()]


def test_the_held_out_stories_have_their_floor():
    assert len(WORLD.held_out) == 20 and (WORLD.ids[WORLD.starts] == WORLD.ids[0]).all()
    bits = -sum(story.log_prob for story in WORLD.held_out)
    assert pytest.approx(bits / (len(WORLD.new_ids) - 1)) == WORLD.floor


def test_the_shipped_model_knows_pronouns_and_is_near_the_floor():
    nats, loss = scale.nats_and_loss(SHIPPED.model.eval(), TOKENIZER, WORLD, 5)
    assert list(nats) == list(scale.KINDS) and nats["pronoun"] < 0.05 and 0 < loss - WORLD.floor < 0.3


def test_a_training_reads_its_tokens_and_its_last_update_has_a_rate(monkeypatch):
    model = scale.small(TOKENIZER, 4, 0)
    assert scale.size_of(TOKENIZER, 4) == count_parameters(model.config).total == 3108
    rates = []
    real = scale.train

    def noted(*given):
        for step in real(*given):
            rates.append(step.lr_share)
            yield step

    monkeypatch.setattr(scale, "train", noted)
    before = scale.loss_of(model, TOKENIZER, WORLD)
    assert scale.trained(model, WORLD, 5_000, 0) == 10 * 4 * 128  # 9.8 updates of 512 tokens
    assert len(rates) == 10 and min(rates) == rates[-1] == pytest.approx(1 / 11)
    assert scale.loss_of(model, TOKENIZER, WORLD) < before


def test_the_best_size_is_the_lowest_point_of_a_parabola():
    sizes = (1_000, 3_000, 10_000, 40_000)
    some = runs_of({n: 2 + 0.3 * math.log(n / 5_000) ** 2 for n in sizes})
    assert scale.best_of(some) == pytest.approx(5_000, rel=1e-6)
    assert scale.curve(some, [5_000]) == pytest.approx([2])
    sizes, tokens = scale.best_spent(some)
    assert sizes == pytest.approx([5_000]) and tokens == pytest.approx([1e10 / 6 / 5_000])


def test_means_points_and_pairs():
    some = [*runs_of({1_000: 2.0, 10_000: 1.5}), replace(RUN, loss=1.7, seed=1, right=(0.9, *(0.5,) * 5))]
    assert scale.as_points(some)[0].tolist() == pytest.approx([0.1, 1e10 / 6 / 1_000 / 1e5, 2.0])
    pair = scale.alike(some, 0.25)
    assert {run.loss for run in pair} == {1.5, 1.7} and scale.other_skills(*pair) == pytest.approx(0.4)
    assert scale.pairs_alike(some, 0.1) == [] and scale.spread_of_seeds(some) == pytest.approx(0.2 / 2**0.5)
    assert scale.rise(runs_of({1_000: 2.0, 3_000: 1.5, 9_000: 1.75}), 1e10, 0) == pytest.approx(0.25)


def test_subsets_kinds_that_are_known_and_pairs_of_equal_text():
    some = [*runs_of({1_000: 2.0, 10_000: 1.5}), replace(RUN, budget=1e9, size=1_000, loss=1.9, seed=1)]
    assert {name: len(found) for name, found in scale.subsets(some).items()} == {
        "without 1,000": 1,
        "without 10,000": 2,
        "seed 0": 2,
        "seed 1": 1,
    }
    assert scale.known(replace(RUN, nats=(0.05, 1.0, 2.0, 0.0, 3.0, 0.1))) == ["pronoun", "place"]
    assert scale.losses_of_equal_text(some) == [(1.9, 1.5)]


def test_one_size_is_recorded_with_nine_seeds():
    assert [run.seed for run in scale.all_seeds(1.6e11, 47_392)] == list(range(9))


def test_the_record_holds_four_budgets_and_a_second_recipe():
    recorded = scale.recorded()
    assert scale.budgets_of(recorded) == [1e10, 4e10, 1.6e11, 6.4e11]
    assert {(run.seed, run.texts) for run in recorded} == {(0, 4), (1, 4)}
    assert scale.budgets_of(scale.recorded(16)) == [1e10, 4e10]
    assert all(WORLD.floor - 0.2 < run.loss < 3 and len(run.nats) == len(run.right) == 6 for run in recorded)


def test_a_recorded_run_is_repeated():
    torch.manual_seed(0)
    world = scale.stories(TOKENIZER, 20_000)
    model = scale.small(TOKENIZER, 32, 0)
    n = scale.size_of(TOKENIZER, 32)
    _ = scale.trained(model, world, 1e10 / 6 / n, 0)
    (run,) = [run for run in scale.of_budget(scale.recorded(), 1e10) if (run.size, run.seed) == (n, 0)]
    assert scale.loss_of(model, TOKENIZER, world) == pytest.approx(run.loss, abs=0.05)


def test_what_the_lesson_says_of_the_record():
    recorded, nine = scale.recorded(), scale.all_seeds(1.6e11, 47_392)
    for budget in (1e10, 4e10):
        four, sixteen = ({run.size: [] for run in scale.of_budget(recorded, budget)} for _ in range(2))
        for losses, texts in ((four, 4), (sixteen, 16)):
            for run in scale.of_budget(scale.recorded(texts), budget):
                losses[run.size].append(run.loss)
        extra = [sum(sixteen[n]) - sum(four[n]) for n in sorted(four)]
        assert min(extra) > 0 and max(extra) == extra[-1]
    assert [sum(kind in scale.known(run) for run in nine) for kind in ("pronoun", "place")] == [7, 5]
    assert min(run.nats[scale.KINDS.index("quotation")] for run in recorded) > 0.5
    places = [run.nats[scale.KINDS.index("place")] for run in [*recorded, *nine[2:]]]
    assert len(places) == 61 and sum(0.3 < nats < 3 for nats in places) == 4
    small, large = ([run.loss for run in scale.all_seeds(1.6e11, n)] for n in (11_820, 47_392))
    assert max(large) < min(small)
