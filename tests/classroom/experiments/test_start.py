"""Threads, givers and impossible stories: with models whose answers are known, and with the shipped one."""

import pytest
import torch
from torch import nn

from tinylm_classroom.experiments.givers import exchanged_givers, first_impossible
from tinylm_classroom.experiments.threads import KINDS, find_threads, losses, share_of_threads
from tinylm_lib import storyworld
from tinylm_lib.pretrained import load_pretrained

SHIPPED = load_pretrained("storyworld")
TOKENIZER = SHIPPED.tokenizer
STORY = storyworld.story(torch.Generator().manual_seed(3))


class Repeats(nn.Module):
    """Expects the word that came `back` words ago, and all others alike."""

    def __init__(self, back: int):
        super().__init__()
        self.back = back

    def forward(self, ids):
        scores = torch.zeros(*ids.shape, TOKENIZER.vocab_size)
        earlier = ids.roll(self.back - 1, dims=1)
        earlier[:, : self.back - 1] = 0
        return scores.scatter(-1, earlier[..., None], 20.0)


def test_a_model_that_repeats_has_threads_of_one_length_where_words_repeat():
    text = "One Mia had Mia."
    (thread,) = find_threads(Repeats(2), TOKENIZER, text)
    assert (thread.source, thread.target, thread.kind) == (1, 3, "people") and thread.lost == pytest.approx(1, abs=1e-3)
    assert find_threads(Repeats(3), TOKENIZER, text) == []


def test_every_word_of_a_kind_is_exchanged_for_words_that_the_story_does_not_have():
    found = losses(SHIPPED.model.eval(), TOKENIZER, STORY.text)
    said = storyworld.words(STORY.text)
    assert {kind for kind, _ in found.values()} <= set(KINDS) and len(found) > 20
    for position, (_, lost) in found.items():
        assert lost.shape == (len(said),) and lost[:position].abs().max() < 1e-4  # causal


def test_threads_of_the_shipped_model_end_at_what_is_remembered():
    share, others = share_of_threads(SHIPPED.model.eval(), TOKENIZER, 2, seed=11)
    assert share > 0.9 and others <= {"day"}
    assert share_of_threads(Repeats(500), TOKENIZER, 1, seed=11) == (0, set())


def test_exchanged_givers_differ_only_for_a_model_that_reads_the_giver():
    pairs = exchanged_givers(SHIPPED.model.eval(), TOKENIZER, 6, seed=4)
    assert len(pairs) == 6 and max(abs(one - other) for one, other in pairs) < 0.05

    class Reads(nn.Module):
        """Its word after "handed the" is the colour that followed the giver's first name, as StoryWorld has it."""

        def forward(self, ids):
            scores = torch.zeros(*ids.shape, TOKENIZER.vocab_size)
            for row, text in enumerate(ids.tolist()):
                reader = storyworld.Reader()
                for word in storyworld.words(TOKENIZER.decode(text).strip("\n")):
                    reader.read(word)
                for word, p in reader.next_word_probs().items():
                    scores[row, -1, TOKENIZER.ids[word]] = 20 * p
            return scores

    assert all(one > 0.99 and other < 0.01 for one, other in exchanged_givers(Reads(), TOKENIZER, 6, seed=4))


def test_the_first_impossible_word_of_each_story():
    beginning = "One foggy afternoon, careful Carlos"
    found = first_impossible(SHIPPED.model.eval(), TOKENIZER, beginning, 8, seed=0)
    assert len(found) == 8 and all(at is None or 5 <= at < n_words for n_words, at in found)
    assert found == first_impossible(SHIPPED.model.eval(), TOKENIZER, beginning, 8, seed=0)
    wrong = first_impossible(SHIPPED.model.eval(), TOKENIZER, "One foggy foggy", 2, seed=0)
    assert [at for _, at in wrong] == [2, 2]
