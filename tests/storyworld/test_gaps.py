import math

import pytest
import torch
from torch import Tensor, nn

from tinylm_lib import storyworld
from tinylm_lib.storyworld.gaps import gaps
from tinylm_lib.storyworld.sentences import LOOK_BACKS
from tinylm_lib.storyworld.stories import Reader, Story
from tinylm_lib.text import ByteTokenizer, WordTokenizer, words


@pytest.fixture(scope="module")
def stories() -> list[Story]:
    generator = torch.Generator().manual_seed(5)
    return [storyworld.story(generator) for _ in range(60)]  # more than one batch


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer(storyworld.corpus(1000, seed=1))


class Known(nn.Module):
    """Knows StoryWorld exactly, but gives a part of every probability to all words alike."""

    def __init__(self, tokenizer: WordTokenizer, unsure: float = 0.0):
        super().__init__()
        self.tokenizer, self.unsure = tokenizer, unsure
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        V = self.tokenizer.vocab_size
        probs = torch.full((*ids.shape, V), self.unsure / V)
        for row, tokens in zip(probs, ids.tolist(), strict=True):
            reader = Reader()
            for t, token in enumerate(tokens):
                if t and reader.read(self.tokenizer.decode([token])) == 0:
                    break
                for word, p in reader.next_word_probs().items():
                    row[t, self.tokenizer.encode(word)[0]] += (1 - self.unsure) * p
        return probs.log()


@pytest.mark.parametrize("unsure", [0.0, 0.3, 1.0])
def test_the_gap_of_a_known_doubt(unsure: float, stories: list[Story], tokenizer: WordTokenizer) -> None:
    found = gaps(Known(tokenizer, unsure), tokenizer, stories)
    n_words = sum(len(words(s.text)) + 1 for s in stories)
    assert found["all"].n_words == n_words == sum(gap.n_words for kind, gap in found.items() if kind != "all")
    assert found["owner"].n_words == sum(s.kinds.count("owner") for s in stories)
    assert set(found) == {"all", "other", *LOOK_BACKS}
    sure_word = -math.log(1 - unsure + unsure / tokenizer.vocab_size)
    for kind in LOOK_BACKS:
        assert found[kind].nats == pytest.approx(sure_word, abs=1e-5)
        assert found[kind].right == 1 or unsure == 1
    if unsure == 1:  # up to the noise of these stories' own lengths and choices
        floor = -sum(s.log_prob for s in stories) / n_words
        assert found["all"].nats == pytest.approx(math.log(tokenizer.vocab_size) - floor, abs=0.02)
    else:
        assert 0.3 < found["other"].right < 0.9  # first mentions are open
        for kind in ("all", "other"):
            assert -1e-5 < found[kind].nats < sure_word + 1e-5  # less, where the doubt is partly right


def test_what_cannot_be_compared(stories: list[Story], tokenizer: WordTokenizer) -> None:
    with pytest.raises(ValueError, match="no stories to compare on; give at least one"):
        gaps(Known(tokenizer), tokenizer, [])
    with pytest.raises(ValueError, match="exact gaps need a WordTokenizer"):
        gaps(Known(tokenizer), ByteTokenizer(), stories[:1])
    with pytest.raises(ValueError, match="is not one of the"):
        gaps(Known(tokenizer), WordTokenizer(stories[0].text + "\n"), stories)
