"""How good predictions are: the exact ones of StoryWorld next to those of a model, beginnings that
nobody has counted, and a table that learns with softmax applied once or twice.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tinylm_lib import storyworld
from tinylm_lib.model import TransformerLM

N_RULE = 32  # tokens of the rule that `learn_rule` learns
TINY = 1e-30  # instead of a probability of 0, so that its logarithm is a number


class Gaps(NamedTuple):
    """For each token of some stories, (N) each and in nats: the entropy of the exact probabilities,
    the KL divergence from the model to them, and the model's loss of the token that came.
    """

    entropy: Tensor
    divergence: Tensor
    loss: Tensor


def exact_after(beginning: str, tokenizer: Any) -> Tensor:
    """The exact probability (V) of each token after the beginning of a story."""
    reader = storyworld.Reader()
    for word in storyworld.words(beginning):
        reader.read(word)
    return _row(reader, tokenizer)


def gaps(model: TransformerLM, tokenizer: Any, seeds: Iterable[int]) -> Gaps:
    """Reads one story for each seed, with its line end, word by word with the exact reader."""
    found = []
    for seed in seeds:
        text = storyworld.story(torch.Generator().manual_seed(seed)).text + "\n"
        ids = torch.tensor([tokenizer.encode("\n" + text)])  # (B, T + 1)
        with torch.no_grad():
            log_p = model(ids[:, :-1])[0].log_softmax(-1)  # (T, V)
        reader = storyworld.Reader()
        rows = []
        for word in storyworld.words(text):
            rows.append(_row(reader, tokenizer))
            reader.read(word)
        q = torch.stack(rows)  # (T, V)
        log_q = q.clamp(min=TINY).log()  # (T, V)
        entropy = -(q * log_q).sum(-1)  # (T)
        divergence = (q * (log_q - log_p)).sum(-1)  # (T)
        loss = -log_p.gather(-1, ids[0, 1:, None])[:, 0]  # (T)
        found.append(torch.stack((entropy, divergence, loss)))
    return Gaps(*torch.cat(found, dim=1))


def levels_of_guessing(tokenizer: Any) -> dict[str, float]:
    """The loss of three who know little about 2,000 stories, in nats per token; each name begins
    with the number.
    """
    found = storyworld.entropies(tokenizer, n_stories=2000)
    levels = {
        "knowing nothing": math.log(tokenizer.vocab_size),
        "how common each token is": found.unigram,
        "one token back": found.bigram,
    }
    return {f"{level:.1f}, {name}": level for name, level in levels.items()}


def never_read(read: Tensor, new: Tensor, n: int) -> float:
    """Of all runs of n tokens in the new ids, the fraction that is nowhere in the ids read."""
    runs = [[tuple(run) for run in ids.unfold(0, n, 1).tolist()] for ids in (read, new)]
    known = set(runs[0])
    return sum(run not in known for run in runs[1]) / len(runs[1])


def learn_rule(
    twice: bool, seeds: Sequence[int], at: Sequence[int], deviation: float = 3.0, rate: float = 1.0
) -> Tensor:
    """Trains a table of scores, one for each seed, on a fixed rule: after token t comes 5t + 3,
    counted modulo 32. Returns the fraction of right answers after so many updates, (at, seeds).

    twice: softmax is applied before the loss, which applies it again. deviation: of the random
    scores at the start. rate: of plain steps against the gradient of each row's own loss.
    """
    drawn = [torch.randn(N_RULE, N_RULE, generator=_seeded(seed)) for seed in seeds]
    table = (deviation * torch.stack(drawn)).requires_grad_()  # (S, V, V)
    answers = ((5 * torch.arange(N_RULE) + 3) % N_RULE).expand(len(seeds), -1)  # (S, V)
    optimizer = torch.optim.SGD([table], lr=rate)
    found = {}
    for update in range(max(at) + 1):
        if update in at:
            found[update] = (table.argmax(-1) == answers).float().mean(-1)  # (S)
        out = table.softmax(-1) if twice else table  # (S, V, V)
        optimizer.zero_grad()
        F.cross_entropy(out.flatten(0, 1), answers.flatten(), reduction="sum").backward()
        optimizer.step()
    return torch.stack([found[update] for update in at])


def _row(reader: storyworld.Reader, tokenizer: Any) -> Tensor:
    row = torch.zeros(tokenizer.vocab_size)
    for word, p in reader.next_word_probs().items():
        row[tokenizer.ids[word]] = p
    return row


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
