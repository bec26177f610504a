"""Train the shipped model on rewards for its own stories, and print what it learned and what that
cost: lesson 17.

    python tools/rewards.py                                   all of it
    python tools/rewards.py --runs start possible kl-0.1      some of the runs
    python tools/rewards.py --runs length --updates 20 --seeds 0

An update writes 8 stories to each of 4 beginnings, which are the first two sentences of stories.
What a run is rewarded for, its penalty on the distance from the start, and what else differs are in
RUNS. Afterwards every model continues the same beginnings, and reads the same held-out stories. The
table has a line for each model; `COLUMNS` says what its numbers are.
"""

import argparse
import copy
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from tinylm_lib import TransformerLM, storyworld
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.rewards import Rollouts, reinforce, rollouts
from tinylm_lib.storyworld import Reader, gaps, parse, words

N_BEGINNINGS = 4
N_EACH = 8
LR = 1e-3
UPDATES = 40
SEEDS = (0, 1, 2)
N_HELD_OUT = 200
HELD_OUT_SEED = 1_000_000
N_COMPARED = 8  # beginnings that every model continues
N_SAMPLES = 64  # and how often it does
TRIES = (1, 4, 16, 64)
POSSIBLE = 0.191  # of the start's stories, see its line
# Words that only one kind of the sentences has that tell something again.
KINDS = {
    "colour": ("looked", "seemed"),
    "name": ("thanked",),
    "object": ("easy", "could"),
    "owner": ("belonged", "now"),
    "place": ("Nobody", "lovely", "remembered", "missed"),
    "quotation": ("Often", "understood"),
    "trait": ("knew",),
}
COLUMNS = """
possible        fraction of the stories without an impossible word, line end included
kl-start        KL(model || start), nats per token of its own stories
least-kl        the least that this fraction costs: only the fraction differs, and the \
possible stories are the start's
kl-language     KL(language || model), nats per token, over all words of held-out stories
owner-right     fraction of the owners in held-out stories that are the model's most probable word
owner-nats      KL(language || model) for these words
own-right       fraction of the owners named in owner sentences of its own that are right, where \
all before was possible
owner-told      fraction of its own stories that have an owner sentence; the language's is 0.57
gifts           gifts in a story of its own; the language's mean is 1.10
kinds           number of equally likely kinds of recalled sentences, e to the entropy; the \
language's is 7.0
entropy         nats per token of its own stories
distinct        fraction of the stories that are different
words           words in a story after the beginning
n               held-out owners, and its own owner sentences, that the fractions are about
pass@k          fraction of beginnings with at least one possible story in k
hard@k          the same for a possible story with an owner sentence
"""


class Judge(NamedTuple):
    """What a text is worth: the tokenizer reads it, `reward` judges its words."""

    tokenizer: object
    reward: Callable[[str], float]

    def __call__(self, ids: list[int]) -> float:
        return self.reward(self.tokenizer.decode(ids[1:]))


def possible(text: str) -> float:
    """1 for a whole story of StoryWorld with its line end, 0 for anything else."""
    return float(text.endswith("\n") and storyworld.log_prob(text) > -math.inf)


def hard(text: str) -> float:
    """1 for a possible story that says who has a thing by now."""
    return possible(text) if {"belonged", "now"} & said(text) else 0.0


def length(text: str) -> float:
    """Broken: longer is better."""
    return len(words(text)) / 100


def no_error(text: str) -> float:
    """Broken: 1 if no word is impossible, and nobody asks whether the story has an end."""
    text = text.removesuffix("\n")
    return float(parse(text).error_at in (None, len(text)))


def owners(text: str) -> float:
    """Broken: every owner sentence counts, right or wrong."""
    return text.count(" belonged to ") + text.count(" was now with ")


def coin(text: str) -> float:
    """The control: 0 or 1, and it has nothing to do with what the text says."""
    return float(zlib.crc32(text.encode()) % 2)


class Setting(NamedTuple):
    """What a run is rewarded for, the weight of its KL penalty, its length, learning rate and
    beginnings an update.
    """

    reward: Callable[[str], float] = possible
    beta: float = 0.0
    updates: int = UPDATES
    lr: float = LR
    seeds: Sequence[int] = SEEDS
    n_beginnings: int = N_BEGINNINGS


RUNS = {
    "start": Setting(updates=0, seeds=(0,)),
    "possible": Setting(),
    "kl-0.1": Setting(beta=0.1),
    "hard": Setting(hard),
    "owners": Setting(owners, updates=12, seeds=(0,)),
    "kl-0.03": Setting(beta=0.03),
    "kl-0.3": Setting(beta=0.3),
    "no-error": Setting(no_error, updates=12, seeds=(0,)),
    "length": Setting(length, updates=12, seeds=(0,)),
    "owners-2e-3": Setting(owners, updates=16, lr=2e-3, seeds=(0,)),
    "coin": Setting(coin, updates=16, seeds=(0, 1)),
    "64-stories": Setting(updates=120, lr=5e-4, seeds=(0,), n_beginnings=8),
}


def said(text: str) -> set[str]:
    """The words of a text, without the blanks in front."""
    return {word.strip() for word in words(text)}


def beginning(generator: torch.Generator) -> str:
    """The first two sentences of a story."""
    text = storyworld.story(generator).text
    return text[: text.index(".", text.index(".") + 1) + 1]


def trained(setting: Setting, seed: int, updates: int) -> tuple[TransformerLM, TransformerLM]:
    """The model after its training, and the one before.

    Prints the curve, about ten points of it.
    """
    ready = load_pretrained("storyworld")
    model = ready.model
    start = copy.deepcopy(ready.model)
    tokenizer = ready.tokenizer
    stories = torch.Generator().manual_seed(seed)

    def prompts() -> Iterator[list[list[int]]]:
        for _ in range(updates):
            yield [tokenizer.encode("\n" + beginning(stories)) for _ in range(setting.n_beginnings)]

    (end,) = tokenizer.encode("\n")
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.lr, weight_decay=0.0)
    options = {
        "n_each": N_EACH,
        "max_new_tokens": room(model),
        "stop_ids": [end],
        "beta": setting.beta,
    }
    draws = torch.Generator().manual_seed(seed)
    judge = Judge(tokenizer, setting.reward)
    found = []
    every = max(1, updates // 12)
    for update in reinforce(model, start, prompts(), judge, optimizer, **options, generator=draws):
        found.append(update.rewards.mean().item())
        if update.step % every == 0:
            mean = sum(found[-every:]) / every
            values = (
                f"reward {mean:.2f} kl {update.kl:.3f} entropy {update.entropy:.2f} norm "
                f"{update.grad_norm:.3f}"
            )
            print(f"#   update {update.step}: {values}", flush=True)
    return model.eval(), start.eval()


def room(model: TransformerLM) -> int:
    """Tokens that fit behind a beginning and the line end before it; the longest story needs four
    fewer.
    """
    return model.config.max_seq_len - 20


def portrait(model: TransformerLM, start: TransformerLM, tokenizer, held_out) -> dict[str, str]:
    """Every number of COLUMNS of a model, as text."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    beginnings = [beginning(generator) for _ in range(N_COMPARED)]
    (end,) = tokenizer.encode("\n")
    batches = []
    kl = 0.0
    entropy = 0.0
    n_words = 0
    for text in beginnings:
        prompt = [tokenizer.encode("\n" + text)]
        some = rollouts(model, prompt, N_SAMPLES, room(model), stop_ids=[end], generator=generator)
        here, there = (next_log_probs(one, some) for one in (model, start))
        kl += ((here.exp() * (here - there)).sum(-1) * some.mask).sum().item()
        entropy -= ((here.exp() * here).sum(-1) * some.mask).sum().item()
        n_words += some.mask.sum().item()
        batches.append([tokenizer.decode(ids[1:]) for ids in some.texts()])
    texts = [*chain.from_iterable(batches)]
    known = gaps(model, tokenizer, held_out)
    own = [*chain.from_iterable(map(owners_right, texts))]
    counts = [sum(bool(set(marks) & said(text)) for text in texts) for marks in KINDS.values()]
    kinds = equally_likely(counts)
    gifts = sum(text.count(" gave ") + text.count(" handed ") for text in texts)
    total = len(texts)
    right = sum(map(possible, texts)) / len(texts)
    numbers = {
        "possible": right,
        "kl-start": kl / n_words,
        "least-kl": tilt(right) * total / n_words,
        "kl-language": known["all"].nats,
        "owner-right": known["owner"].right,
        "owner-nats": known["owner"].nats,
        "own-right": sum(own) / len(own) if own else math.nan,
        "owner-told": counts[list(KINDS).index("owner")] / total,
        "gifts": gifts / total,
        "kinds": kinds,
        "entropy": entropy / n_words,
        "distinct": len(set(texts)) / total,
        "words": n_words / total,
    }
    row = {name: f"{number:.4g}" for name, number in numbers.items()}
    row["n"] = f"{known['owner'].n_words},{len(own)}"
    for name, reward in (("pass", possible), ("hard", hard)):
        solved = [sum(map(reward, batch)) for batch in batches]
        for k in TRIES:
            mean = sum(at_least_one(int(c), N_SAMPLES, k) for c in solved) / len(solved)
            row[f"{name}@{k}"] = f"{mean:.3f}"
    return row


def equally_likely(counts: list[int]) -> float:
    """e to the entropy of these counts: so many kinds if all were equally likely."""
    fractions = [n / sum(counts) for n in counts if n]
    return math.exp(-sum(p * math.log(p) for p in fractions)) if fractions else 0.0


def tilt(fraction: float) -> float:
    """KL in nats per story between two mixtures of possible and impossible stories that differ in
    the fractions only.

    No model of this fraction is nearer to the start, of which POSSIBLE are: it only makes the
    possible ones likelier.
    """
    pairs = ((fraction, POSSIBLE), (1 - fraction, 1 - POSSIBLE))
    return sum(p * math.log(p / q) for p, q in pairs if p)


@torch.no_grad()
def next_log_probs(model: TransformerLM, texts: Rollouts) -> torch.Tensor:
    """Log-probabilities (B, N, V) for the tokens of the answers."""
    logits = model(texts.ids[:, :-1], padding=texts.padding)[:, -texts.mask.shape[1] :]
    return logits.log_softmax(-1)


def owners_right(text: str) -> Iterator[bool]:
    """For each owner sentence that begins where all before was possible: whether it names a right
    owner.
    """
    reader = Reader()
    told = ""
    for word in words(text):
        is_owner = told.endswith((" belonged to", " now with"))
        p = reader.read(word)
        if is_owner:
            yield p > 0
        if p == 0:
            return
        told += word


def at_least_one(n_right: int, n: int, k: int) -> float:
    """The probability that k of n texts, of which n_right are right, hold a right one.

    Source: Chen et al. 2021.
    """
    return 1 - math.comb(n - n_right, k) / math.comb(n, k)


def main() -> None:
    """Train every run, and print its line as soon as it is through."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--updates", type=int, help="instead of those in RUNS")
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of those in RUNS")
    flags = parser.parse_args()
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    held_out = [storyworld.story(generator) for _ in range(N_HELD_OUT)]
    tokenizer = load_pretrained("storyworld").tokenizer
    print(f"# python tools/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}")
    print(*(f"# {line}" for line in COLUMNS.strip().splitlines()), sep="\n")
    titled = False
    for name in flags.runs:
        setting = RUNS[name]
        for seed in flags.seeds or setting.seeds:
            begun = time.process_time()
            updates = setting.updates if flags.updates is None else flags.updates
            model, start = trained(setting, seed, updates)
            after = time.process_time()
            row = portrait(model, start, tokenizer, held_out)
            if not titled:
                print("run seed updates", *row, flush=True)
                titled = True
            print(name, seed, updates, *row.values(), flush=True)
            print(
                f"#   CPU seconds: {after - begun:.0f}, and {time.process_time() - after:.0f} to "
                "look",
                flush=True,
            )


if __name__ == "__main__":
    main()
