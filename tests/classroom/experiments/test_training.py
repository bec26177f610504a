"""What lesson 11 measures: distances from predictors by hand, bands, the constant rate, mistakes, and the record."""

import math

import pytest
import torch

from tinylm_classroom.experiments import training
from tinylm_classroom.experiments.training import Predictors, Watched
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

TOKENIZER = load_pretrained("storyworld").tokenizer
IDS = torch.tensor(TOKENIZER.encode("\n" + storyworld.corpus(30, seed=0)))
STORIES = [storyworld.story(torch.Generator().manual_seed(seed)) for seed in (1, 2)]

pytestmark = pytest.mark.usefixtures("one_thread")


class Fixed(torch.nn.Module):
    """A model that predicts the same distribution everywhere."""

    def __init__(self, probs: torch.Tensor):
        super().__init__()
        self.logits = probs.clamp(min=1e-30).log()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*ids.shape, -1)


def test_a_model_has_no_distance_from_the_predictor_that_it_is():
    predictors = Predictors(TOKENIZER, IDS, STORIES)
    V = TOKENIZER.vocab_size
    uniform = predictors.distances(Fixed(torch.full((V,), 1 / V)))
    assert uniform["nothing"] == pytest.approx(0, abs=1e-5) and training.nearest(uniform) == "nothing"
    counts = torch.bincount(IDS[1:], minlength=V) / (len(IDS) - 1)
    frequent = predictors.distances(Fixed(counts))
    assert frequent["frequencies"] == pytest.approx(0, abs=1e-5)
    assert frequent["nothing"] == pytest.approx((counts - 1 / V).abs().sum().item() / 2, abs=1e-5)
    assert uniform["frequencies"] == pytest.approx(frequent["nothing"], abs=1e-5)


def test_the_last_tokens_are_counted_where_they_occur_and_fewer_where_not():
    predictors = Predictors(TOKENIZER, IDS, STORIES)
    read, V = IDS.tolist(), TOKENIZER.vocab_size
    before = [row[:i] for row in predictors.ids.tolist() for i in range(1, len(row))]
    before = [each for each, counted in zip(before, predictors.counted.flatten().tolist(), strict=True) if counted]
    backed_off = 0
    for name, most in (("the token before", 1), ("the last three tokens", 3)):
        for at in (*range(12), *range(60, 90)):
            for n in range(min(most, len(before[at])), -1, -1):
                last = before[at][len(before[at]) - n :]
                follow = [read[i + n] for i in range(len(read) - n) if read[i : i + n] == last] if n else read[1:]
                if follow:
                    break
            backed_off += n < most
            wanted = torch.bincount(torch.tensor(follow), minlength=V) / len(follow)
            torch.testing.assert_close(predictors.probs[name][at], wanted)
    assert backed_off > 2


def test_a_model_that_reads_whole_stories_is_nearest_to_the_last_three_tokens():
    found = Predictors(TOKENIZER, IDS, STORIES).distances(load_pretrained("storyworld").model.eval())
    assert training.nearest(found) == "the last three tokens" and found["the token before"] < found["frequencies"]


def test_determined_words_have_the_lower_loss_and_a_uniform_model_has_one_loss():
    low, high = training.losses_by_kind(load_pretrained("storyworld").model.eval(), TOKENIZER, range(5))
    assert low < 0.3 < 0.6 < high
    V = TOKENIZER.vocab_size
    assert training.losses_by_kind(Fixed(torch.full((V,), 1 / V)), TOKENIZER, [1]) == pytest.approx([math.log(V)] * 2)


def test_bands_join_the_looks_with_the_same_nearest_predictor():
    far = {"a": 0.5, "b": 0.6}
    near = {"a": 0.5, "b": 0.4}
    run = Watched([0.0] * 9, {1: far, 2: far, 4: near, 8: far}, {}, {})
    assert training.bands(run) == [("a", 1, 4), ("b", 4, 8), ("a", 8, 9)]


def test_a_run_is_watched_after_the_updates_that_are_noted():
    predictors = Predictors(TOKENIZER, IDS, STORIES)
    model = training.new_model(TOKENIZER, 1)
    steps = training.constant_rate(model, training.windows(IDS, 4), 12, 0.01)
    run = predictors.follow(model, steps)
    assert len(run.losses) == 12 and list(run.distances) == list(range(1, 13)) and list(run.samples) == [2, 12]
    assert run.distances[12] == predictors.distances(model) and run.samples[12].startswith("One")
    assert run.alike[12] == predictors.alike(model)


def test_vectors_are_alike_where_the_blocks_add_the_same_to_small_embeddings():
    predictors = Predictors(TOKENIZER, IDS, STORIES)
    model = training.new_model(TOKENIZER, 1)
    fresh = predictors.alike(model)
    torch.nn.init.zeros_(model.embed.weight)
    model.embed.weight.data[:, 0] = 1
    assert abs(fresh) < 0.2 and predictors.alike(model) == pytest.approx(1, abs=1e-3)


def test_the_rate_stays_what_it_is():
    model = training.new_model(TOKENIZER, 1)
    steps = list(training.constant_rate(model, training.windows(IDS, 4), 3, 0.01))
    assert [step.lr_share for step in steps] == [1.0] * 3 and steps[0].loss > steps[2].loss


def test_skills_are_noted_after_their_updates():
    model = training.new_model(TOKENIZER, 1)
    steps = training.constant_rate(model, training.windows(IDS, 2), 20, 0.01)
    right: dict[int, dict[str, float]] = {}
    seen = list(training.skills_on_the_way(steps, model, TOKENIZER, STORIES * 20, right))
    assert [step.step for step in seen] == list(range(1, 21)) and list(right) == [20]
    assert set(right[20]) == set(training.SKILLS)


def test_a_skill_arrives_when_it_first_passes_the_fraction():
    right = {10: {"a": 0.1}, 20: {"a": 0.4}, 30: {"a": 0.2}}
    assert training.arrival(right, "a") == 20 and training.arrival(right, "a", 0.5) == 31


def test_the_valley_is_steeper_across_and_a_step_too_large_leaves_it():
    assert training.height(torch.tensor([2.0, 1.0])) == 17
    ends = [training.descend(lambda w, rate=rate: torch.optim.SGD(w, rate))[-1] for rate in (0.06, 0.07)]
    assert abs(ends[0][1]) < 0.01 < 50 < abs(ends[1][1])


@pytest.mark.parametrize("how", training.MISTAKES)
def test_each_mistake_is_made_and_measured_on_right_targets(how, monkeypatch):
    monkeypatch.setattr(training, "UPDATES", 3)
    run = training.broken_run(how, TOKENIZER, IDS, IDS)
    right = training.broken_run("nothing wrong", TOKENIZER, IDS, IDS)
    assert run["writes"].startswith("One") and math.isfinite(run["new"])
    assert run == right if how == "nothing wrong" else run["last"] != right["last"]


def test_without_the_mask_the_future_changes_the_past():
    model = training.new_model(TOKENIZER, 1)
    for block in model.blocks:
        block.attention.__class__ = training.Unmasked
        torch.nn.init.normal_(block.attention.o_proj.weight)
    ids = IDS[None, :8]
    other = ids.clone()
    other[0, -1] = 5
    assert not torch.allclose(model(ids)[0, 0], model(other)[0, 0])


def test_the_record_has_three_runs_of_everything():
    found = training.recorded_training()
    assert {n: {rate: len(each) for rate, each in rates.items()} for n, rates in found["rates"].items()} == {
        60: dict.fromkeys(training.RATES, 3),
        300: dict.fromkeys(training.RATES, 3),
    }
    assert len(found["skills"]) == 3 and {tuple(run) for run in found["skills"]} == {training.SKILL_LOOKS}
    assert {how: len(runs) for how, runs in found["mistakes"].items()} == dict.fromkeys(training.MISTAKES, 3)
