"""What lesson 17 measures: a model that learns from verdicts on its own stories, with a baseline
and without one, what it avoids then, and what pairs of stories teach it.
"""

import copy
import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib import storyworld
from tinylm_lib.model import TransformerLM
from tinylm_lib.rewards import (
    Rollouts,
    Update,
    dpo_loss,
    kl_divergence,
    policy_loss,
    reinforce,
    rollouts,
)
from tinylm_lib.storyworld import gaps

from .instructions import Followed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SENTENCE = re.compile(r'\."?')
GIFT = (" gave", " handed")
OWNER = (" belonged", " now")
N_BEGINNINGS = 4  # of an update
N_EACH = 8  # stories to each of them
MOST_TOKENS = 97  # of a story after its beginning, and of its line end
LR = 1e-3
HELD_OUT = 1_000_000  # seeds from here on are for measurements alone
N_LOOKED = 12  # beginnings that a model continues for a measurement
N_SAMPLES = 64  # and how often
PAIR_LR = 5e-4
PAIR_BETA = 0.1
PAIRS_OF_A_STEP = 16
PAIR_LOOKS = (5, 20, 40, 80, 120)

# Whether a story has a gift, and whether it says whose a thing is.
Kind = tuple[bool, bool]
KINDS: tuple[Kind, ...] = ((False, False), (False, True), (True, False), (True, True))


class Counted(NamedTuple):
    """How many stories of a kind a model wrote, and how many of them are possible."""

    n: int
    possible: int


Kinds = dict[Kind, Counted]


def possible(text: str) -> bool:
    """Whether this is a whole story, line end included, without an impossible word."""
    return text.endswith("\n") and storyworld.log_prob(text) > -math.inf


def marked(text: str) -> str:
    """A story up to its first impossible word, which is in brackets."""
    text = text.rstrip("\n")
    at = storyworld.parse(text + "\n").error_at
    if at is None:
        return text
    if at >= len(text):
        return f"{text} [no end]"
    return f"{text[:at]} [{storyworld.words(text[at:] + ' ')[0].strip()}] ..."


def begun(text: str) -> str:
    """The first 400 characters of a story, up to the end of a word."""
    return textwrap.shorten(text, 400, placeholder=" ...")


class UpToMistake:
    """A tokenizer to read with: its texts end after their first impossible word, so that a slide
    has room for them.
    """

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer

    def decode(self, ids: list[int]) -> str:
        """The text of these ids, as far as it is worth reading."""
        text = str(self.tokenizer.decode(ids))
        story = text.lstrip("\n")
        at = storyworld.parse(story).error_at
        if at is None or at >= len(story):
            return text
        before = story[:at]
        wrong = storyworld.words(story[at:])[0]
        return text if before + wrong == story else f"{before}{wrong} ..."


def kind_of(text: str) -> Kind:
    """Which of the two difficult sentences a story has: a gift, and whose a thing is."""
    said = set(storyworld.words(text))
    return bool(said & {*GIFT}), bool(said & {*OWNER})


def counted(texts: Iterable[str]) -> Kinds:
    """How many stories of each kind there are, and how many of these are possible."""
    both = [(kind_of(text), possible(text)) for text in texts]
    n = Counter(kind for kind, _ in both)
    right = Counter(kind for kind, is_right in both if is_right)
    return {kind: Counted(n[kind], right[kind]) for kind in KINDS}


def part_possible(kinds: Kinds) -> float:
    """The fraction of possible stories."""
    return sum(each.possible for each in kinds.values()) / sum(each.n for each in kinds.values())


def part_with(kinds: Kinds, which: int) -> float:
    """The fraction of stories with a gift (0), or that say whose a thing is (1)."""
    some = sum(each.n for kind, each in kinds.items() if kind[which])
    return some / sum(each.n for each in kinds.values())


def mixed(often: Kinds, careful: Kinds) -> float:
    """The fraction of possible stories of a model that writes each kind as often as one model, and
    gets it right as often as another; kinds that this one never writes count as those of the first.
    """
    total = sum(each.n for each in often.values())
    found = 0.0
    for kind, each in often.items():
        of = careful[kind] if careful[kind].n else each
        found += each.n / total * (of.possible / of.n if of.n else 0.0)
    return found


def beginning(generator: torch.Generator, n_sentences: int = 2) -> str:
    """The first sentences of a new story."""
    text = storyworld.story(generator).text
    ends = [end.end() for end in SENTENCE.finditer(text)]
    return text[: ends[n_sentences - 1]]


def beginnings(
    tokenizer: Any, seed: int, n: int, n_sentences: int = 2
) -> Iterator[list[list[int]]]:
    """The prompts of n updates: a line end and the first sentences of four new stories each."""
    source = torch.Generator().manual_seed(seed)
    for _ in range(n):
        four = [beginning(source, n_sentences) for _ in range(N_BEGINNINGS)]
        yield [tokenizer.encode("\n" + text) for text in four]


def drawn(
    model: TransformerLM, tokenizer: Any, n_beginnings: int, seed: int, n_each: int = N_EACH
) -> Rollouts:
    """So many stories to each of so many new beginnings, as one batch."""
    source = torch.Generator().manual_seed(seed)
    prompts = [tokenizer.encode("\n" + beginning(source)) for _ in range(n_beginnings)]
    options: dict[str, Any] = {"stop_ids": tokenizer.encode("\n"), "generator": source}
    return rollouts(model, prompts, n_each, MOST_TOKENS, **options)


def six_stories(model: TransformerLM, tokenizer: Any) -> dict[str, Any]:
    """Three stories to each of two beginnings, with verdicts that are made up, and the sizes of
    their axes: what the loss of stories is called with.
    """
    texts = drawn(model, tokenizer, 2, seed=4, n_each=3)
    sizes = {"B": 6, "P": 2, "K": 3, "T": texts.ids.shape[1] - 1, "N": texts.mask.shape[1]}
    return {
        "ids": texts.ids,
        "padding": texts.padding,
        "verdicts": torch.tensor([[1.0, 0, 0], [1, 1, 0]]),
        "mask": texts.mask,
        "sizes": sizes | {"V": tokenizer.vocab_size},
    }


def answer_log_probs(model: TransformerLM, texts: Rollouts) -> Tensor:
    """The log-probabilities (B, N) of the tokens of the answers."""
    log_probs = next_log_probs(model, texts)  # (B, N, V)
    return log_probs.gather(-1, texts.ids[:, -texts.mask.shape[1] :, None]).squeeze(-1)


def next_log_probs(model: TransformerLM, texts: Rollouts) -> Tensor:
    """The log-probabilities (B, N, V) of everything that an answer could continue with."""
    logits = model(texts.ids[:, :-1], padding=texts.padding)[:, -texts.mask.shape[1] :]
    return logits.log_softmax(-1)


def text_log_probs(model: TransformerLM, texts: Rollouts) -> Tensor:
    """The log-probability (B,) of each whole answer."""
    return (answer_log_probs(model, texts) * texts.mask).sum(1)


class Judge(NamedTuple):
    """The verdict on a text of ids: 1 or 0, and what is added to it."""

    tokenizer: Any
    added: float = 0.0

    def __call__(self, ids: list[int]) -> float:
        return possible(self.tokenizer.decode(ids[1:])) + self.added


def verdicts(tokenizer: Any, texts: Rollouts) -> Tensor:
    """1 for each possible text, 0 for each other one, (B,)."""
    return torch.tensor([float(possible(text)) for text in decoded(tokenizer, texts)])


def learning(
    model: TransformerLM,
    start: TransformerLM,
    tokenizer: Any,
    seed: int,
    n_updates: int,
    *,
    added: float = 0.0,
    baseline: bool = True,
    beta: float = 0.0,
) -> Iterator[float]:
    """Learns from verdicts, and yields the mean verdict of each update: with the mean of each group
    as a baseline, or without any.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    prompts = beginnings(tokenizer, seed, n_updates)
    draws = torch.Generator().manual_seed(seed)
    judge = Judge(tokenizer, added)
    stop_ids = tokenizer.encode("\n")
    if baseline:
        options: dict[str, Any] = {"n_each": N_EACH, "max_new_tokens": MOST_TOKENS, "beta": beta}
        options |= {"stop_ids": stop_ids, "generator": draws}
        for update in reinforce(model, start, prompts, judge, optimizer, **options):
            yield update.rewards.mean().item() - added
        return
    for batch in prompts:
        texts = rollouts(model, batch, N_EACH, MOST_TOKENS, stop_ids=stop_ids, generator=draws)
        rewards = verdicts(tokenizer, texts) + added  # (B)
        optimizer.zero_grad()
        log_probs = answer_log_probs(model, texts)  # (B, N)
        policy_loss(log_probs, log_probs.detach(), rewards, texts.mask).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield rewards.mean().item() - added


def watched(
    start: TransformerLM, tokenizer: Any, seed: int, n_updates: int = 16
) -> tuple[TransformerLM, list[Update], Iterator[Update]]:
    """A copy of the start, the updates that it has made, and those that it is going to make: it
    learns from verdicts, with the mean of each group as a baseline.
    """
    model = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    prompts = beginnings(tokenizer, seed, n_updates)
    options: dict[str, Any] = {"n_each": N_EACH, "max_new_tokens": MOST_TOKENS}
    options |= {"stop_ids": tokenizer.encode("\n")}
    options |= {"generator": torch.Generator().manual_seed(seed)}
    made: list[Update] = []

    def kept() -> Iterator[Update]:
        for update in reinforce(model, start, prompts, Judge(tokenizer), optimizer, **options):
            made.append(update)
            yield update

    return model, made, kept()


def owner_sentences(text: str) -> float:
    """How often a text says whose a thing is."""
    return float(text.count(" belonged to ") + text.count(" was now with "))


def mystery(start: TransformerLM, tokenizer: Any, seed: int) -> list[Update]:
    """Twelve updates with a reward that somebody chose, after five sentences of each story."""
    model = copy.deepcopy(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2 * LR, weight_decay=0.0)
    prompts = beginnings(tokenizer, seed, 12, n_sentences=5)
    options: dict[str, Any] = {"n_each": N_EACH, "max_new_tokens": 64}
    options |= {"stop_ids": tokenizer.encode("\n")}
    options |= {"generator": torch.Generator().manual_seed(seed)}

    def reward(ids: list[int]) -> float:
        return owner_sentences(tokenizer.decode(ids))

    return list(reinforce(model, start, prompts, reward, optimizer, **options))


class Gamed(NamedTuple):
    """For each update of such a run the mean reward and the fraction of possible stories, and at
    the end the fraction of stories with more than two such sentences.
    """

    reward: list[float]
    possible: list[float]
    repeated: float


def gamed(tokenizer: Any, updates: Sequence[Update]) -> Gamed:
    """What became of the stories of these updates."""
    texts = [decoded(tokenizer, update.rollouts) for update in updates]
    rewards = [update.rewards.mean().item() for update in updates]
    fine = [sum(map(possible, some)) / len(some) for some in texts]
    last = texts[-1]
    return Gamed(rewards, fine, sum(owner_sentences(text) > 2 for text in last) / len(last))


def written(
    model: TransformerLM, tokenizer: Any, seed: int, n_beginnings: int, n_each: int = N_SAMPLES
) -> Iterator[Rollouts]:
    """How a model continues new beginnings, so many stories to each."""
    generator = torch.Generator().manual_seed(HELD_OUT + seed)
    line_end = tokenizer.encode("\n")
    for _ in range(n_beginnings):
        prompt = [tokenizer.encode("\n" + beginning(generator))]
        options: dict[str, Any] = {"stop_ids": line_end, "generator": generator}
        yield rollouts(model, prompt, n_each, MOST_TOKENS, **options)


def decoded(tokenizer: Any, texts: Rollouts) -> list[str]:
    """The texts, without the line end before them."""
    return [tokenizer.decode(ids[1:]) for ids in texts.texts()]


def held_out(n: int = 160) -> list[Any]:
    """Stories that all models read for a measurement."""
    sources = (torch.Generator().manual_seed(1000 + i) for i in range(n))
    return [storyworld.story(source) for source in sources]


def from_language(model: TransformerLM, tokenizer: Any) -> float:
    """How far a model is from the language, exactly, in nats per token."""
    return gaps(model, tokenizer, held_out())["all"].nats


def same_update(
    one_update: Callable[..., None],
    start: TransformerLM,
    tokenizer: Any,
    options: Mapping[str, Any],
) -> float:
    """How far the weights are apart after one update by a function and one by the library, as a
    fraction of the largest change of a weight.
    """
    (prompts,) = beginnings(tokenizer, 3, 1)
    models = [copy.deepcopy(start) for _ in range(2)]
    theirs, its = (torch.optim.AdamW(each.parameters(), lr=5e-4) for each in models)
    one_update(models[0], theirs, prompts, torch.Generator().manual_seed(3))
    source = torch.Generator().manual_seed(3)
    run = reinforce(models[1], start, [prompts], Judge(tokenizer), its, **options, generator=source)
    _ = list(run)
    moved = _largest_difference(models[1], start)
    return _largest_difference(*models) / moved


@torch.no_grad()
def _largest_difference(one: TransformerLM, other: TransformerLM) -> float:
    both = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in both)


class Portrait(NamedTuple):
    """A model after a run: its stories by kind, the exact distances from the start and the language
    in nats per story and per token, and of the owners in held-out stories the fraction right and
    the nats above the floor.
    """

    kinds: Kinds
    from_start: float
    from_language: float
    owners_right: float
    owner_nats: float
    n_owners: int


@torch.no_grad()
def portrait(
    model: TransformerLM, start: TransformerLM, tokenizer: Any, held_out: Sequence[Any]
) -> Portrait:
    """What a model writes after twelve new beginnings, and how far it is from others."""
    stories: list[str] = []
    far = 0.0
    for texts in written(model, tokenizer, 0, N_LOOKED):
        both = next_log_probs(model, texts), next_log_probs(start, texts)
        far += (kl_divergence(*both) * texts.mask).sum().item()
        stories += decoded(tokenizer, texts)
    known = gaps(model, tokenizer, held_out)
    owner = known["owner"]
    numbers = far / len(stories), known["all"].nats, owner.right, owner.nats, owner.n_words
    return Portrait(counted(stories), *numbers)


def in_pairs(tokenizer: Any, batches: Iterable[Rollouts]) -> list[tuple[str, str]]:
    """Pairs of a possible and an impossible story with the same beginning."""
    pairs: list[tuple[str, str]] = []
    for texts in batches:
        stories = decoded(tokenizer, texts)
        both = [[text for text in stories if possible(text) == wanted] for wanted in (True, False)]
        pairs += zip(*both, strict=False)
    return pairs


def as_batch(tokenizer: Any, pairs: Sequence[tuple[str, str]]) -> Rollouts:
    """The pairs as one batch, first all chosen and then all rejected stories; only what follows the
    two given sentences counts.
    """
    texts = [chosen for chosen, _ in pairs] + [rejected for _, rejected in pairs]
    rows = [torch.tensor(tokenizer.encode("\n" + text)) for text in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, T)
    given = []
    for text in texts:
        ends = [end.end() for end in SENTENCE.finditer(text)]
        given.append(len(tokenizer.encode("\n" + text[: ends[1]])))
    at = torch.arange(1, ids.shape[1])
    lengths = torch.tensor([len(row) for row in rows])
    mask = (at >= torch.tensor(given)[:, None]) & (at < lengths[:, None])  # (B, T - 1)
    return Rollouts(ids, torch.zeros(len(ids), dtype=torch.long), mask, torch.zeros(0))


Run = tuple[list[float], Portrait]  # the mean verdicts of its updates, and what became of the model


class Preferred(NamedTuple):
    """A model after some steps of DPO: the fraction of new pairs that it ranks right, by how many
    nats their chosen and rejected stories have changed, and its stories by kind.
    """

    step: int
    ranked: float
    n_pairs: int
    chosen: float
    rejected: float
    kinds: Kinds


@torch.no_grad()
def changes(model: TransformerLM, start: TransformerLM, texts: Rollouts) -> tuple[Tensor, Tensor]:
    """By how many nats the chosen and the rejected stories of pairs are more probable than at the
    start.
    """
    return (text_log_probs(model, texts) - text_log_probs(start, texts)).chunk(2)


def preferring(
    model: TransformerLM,
    start: TransformerLM,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    seed: int,
    n_steps: int,
    *,
    loss: Callable[..., Tensor] = dpo_loss,
    anchor: float = 0.0,
) -> Iterator[int]:
    """Learns from pairs, and yields the number of each step.

    anchor: weight of the next-token loss of the chosen stories, which is added.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=PAIR_LR, weight_decay=0.0)
    source = torch.Generator().manual_seed(seed)
    order: list[int] = []
    for step in range(1, n_steps + 1):
        if len(order) < PAIRS_OF_A_STEP:
            order = torch.randperm(len(pairs), generator=source).tolist()
        some = [pairs[order.pop()] for _ in range(min(PAIRS_OF_A_STEP, len(pairs)))]
        texts = as_batch(tokenizer, some)
        with torch.no_grad():
            reference = text_log_probs(start, texts)  # (B)
        now = text_log_probs(model, texts)  # (B)
        found = loss(*now.chunk(2), *reference.chunk(2), PAIR_BETA)
        chosen = texts.mask[: len(some)]
        found = found - anchor * now[: len(some)].sum() / chosen.sum()
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        yield step


def compared(
    model: TransformerLM,
    start: TransformerLM,
    tokenizer: Any,
    new_pairs: Sequence[tuple[str, str]],
    step: int,
) -> Preferred:
    """What a model makes of new pairs, and what it writes."""
    up, down = changes(model, start, as_batch(tokenizer, new_pairs))
    stories: list[str] = []
    for texts in written(model, tokenizer, 0, N_LOOKED):
        stories += decoded(tokenizer, texts)
    ranked = (up > down).float().mean().item()
    means = up.mean().item(), down.mean().item()
    return Preferred(step, ranked, len(new_pairs), *means, counted(stories))


class Recorded(NamedTuple):
    """What `tools/rewards.py` has measured: the start; for each setting (added, baseline, beta,
    updates) its runs, each the mean verdicts of its updates and its portrait; for DPO alone and
    with an anchor its runs, each a look after some steps; how instructions were followed; and
    the runs with the reward of a stranger.
    """

    start: Portrait
    runs: Mapping[tuple[float, bool, float, int], list[Run]]
    pairs: Mapping[float, list[list[Preferred]]]
    examples: Mapping[str, list[Followed]]
    gamed: list[Gamed]


@cache
def recorded_rewards() -> Recorded:
    """What `tools/rewards.py` has written, in the order of the seeds."""
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    runs: dict[tuple[float, bool, float, int], list[Run]] = {}
    for run in data["runs"]:
        setting = run["added"], run["baseline"], run["beta"], len(run["verdicts"])
        runs.setdefault(setting, []).append((run["verdicts"], _portrait(run)))
    pairs: dict[float, list[list[Preferred]]] = {}
    for run in data["pairs"]:
        looks = [Preferred(*look[:5], _kinds(look[5])) for look in run["looks"]]
        pairs.setdefault(run["anchor"], []).append(looks)
    examples: dict[str, list[Followed]] = {}
    for run in data["examples"]:
        examples.setdefault(run["loss_on"], []).append(Followed(*run["found"]))
    (start,) = data["start"]
    strange = [Gamed(run["reward"], run["possible"], run["repeated"]) for run in data["gamed"]]
    return Recorded(_portrait(start), runs, pairs, examples, strange)


def _portrait(run: Mapping[str, Any]) -> Portrait:
    return Portrait(_kinds(run["kinds"]), *run["numbers"])


def _kinds(rows: Sequence[Sequence[int]]) -> Kinds:
    return {kind: Counted(*row) for kind, row in zip(KINDS, rows, strict=True)}


class Compared(NamedTuple):
    """For each pair of rewards the runs with a baseline and without one, the fraction of possible
    stories after each of them, and the means.
    """

    runs: dict[str, tuple[list[Run], list[Run]]]
    fine: dict[str, list[list[float]]]
    means: dict[str, list[float]]


def without_baseline(recorded: Recorded) -> Compared:
    """The runs with rewards of 0 and 1, and with 1 or 10 added to both."""
    found = Compared({}, {}, {})
    for added, name in ((0.0, "0 and 1"), (1.0, "1 and 2"), (10.0, "10 and 11")):
        both = recorded.runs[0.0, True, 0.0, 16], recorded.runs[added, False, 0.0, 16]
        fine = [[part_possible(portrait.kinds) for _, portrait in each] for each in both]
        found.runs[name] = both
        found.fine[name] = fine
        found.means[name] = [sum(each) / len(each) for each in fine]
    return found


def with_penalty(recorded: Recorded) -> dict[float, list[Portrait]]:
    """The models after 40 updates, for each weight of the penalty."""
    found = {}
    for (added, baseline, beta, n_updates), runs in recorded.runs.items():
        if (added, baseline, n_updates) == (0.0, True, 40):
            found[beta] = [portrait for _, portrait in runs]
    return found
