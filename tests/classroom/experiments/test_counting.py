"""Readers who count: by hand on three lines, by brute force on random ones, and as recorded."""

from collections import Counter

import pytest
import torch

from tinylm_classroom.experiments.counting import counting_losses, recorded_counting

END = 0


def brute_force(read, new, most):
    """The same readers, word by word, from dictionaries."""
    V = max(*read, *new) + 1

    def contexts(ids):
        line = []
        for word in ids:
            yield line[:], word
            line = [] if word == END else [*line, word]

    counts = [Counter() for _ in range(most + 1)]
    for line, word in contexts(read):
        padded = [END] * most + line
        for k in range(most + 1):
            counts[k][tuple(padded[len(padded) - k :]), word] += 1
    losses = [[] for _ in range(most + 1)]
    for line, word in contexts(new):
        padded = [END] * most + line
        p = 1 / V
        for k in range(most + 1):
            before = tuple(padded[len(padded) - k :])
            seen = {w: n for (context, w), n in counts[k].items() if context == before}
            total = sum(seen.values())
            if total:
                p = (seen.get(word, 0) + len(seen) * p) / (total + len(seen))
            losses[k].append(-torch.tensor(p, dtype=torch.float64).log())
    return torch.tensor(losses)


def test_a_reader_who_looks_back_no_word_knows_how_common_each_is():
    read = torch.tensor([1, 1, 2, END])
    found = counting_losses(read, torch.tensor([1, END]), END, most=0)
    # 1 came 2 of 4 times, 3 kinds of words were seen, and there are 3 words
    assert found.exp().tolist() == [pytest.approx([7 / (2 + 1), 7 / (1 + 1)])]


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_dictionaries_find(seed):
    g = torch.Generator().manual_seed(seed)
    read, new = (torch.cat((torch.randint(5, (n,), generator=g), torch.tensor([END]))) for n in (80, 30))
    assert torch.allclose(counting_losses(read, new, END, most=3), brute_force(read.tolist(), new.tolist(), 3))


def test_the_record_holds_seven_runs_whose_best_is_a_few_words_back():
    runs = recorded_counting()
    assert {n: len(each) for n, each in runs.items()} == {2000: 3, 20_000: 3, 100_000: 1}
    assert [min(range(8), key=each[0].__getitem__) for each in runs.values()] == [3, 4, 4]
