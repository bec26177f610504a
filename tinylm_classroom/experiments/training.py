"""What lesson 11 measures: which simple predictor a model resembles, how far short runs come at
different learning rates, which skills arrive when, and what mistakes in a training loop look like.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib import TrainConfig, next_token_loss, preset, storyworld, train
from tinylm_lib.attention import Attention, attend
from tinylm_lib.data import random_windows
from tinylm_lib.model import TransformerLM
from tinylm_lib.sampling import generate
from tinylm_lib.storyworld.stories import Story
from tinylm_lib.training import build_optimizer
from tinylm_lib.training.loop import Step

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SEQ_LEN = 32
BETAS = (0.9, 0.95)
UPDATES = 60  # of a run with a mistake
# after these updates it is noted which predictor the model resembles
LOOKS = (*range(1, 21), 24, 28, 32, 36, 40, 50, 60, 80, 100, 130, 160, 200)
SAMPLES = (2, 12, 50, 200)  # after these it writes
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
SKILLS = ("pronoun", "place", "trait", "owner", "quotation")
SKILL_LOOKS = (*range(20, 301, 20), 350, 400)
MISTAKES = (
    "nothing wrong",
    "not shifted",
    "shifted twice",
    "another text's targets",
    "no causal mask",
    "softmax in the model",
    "gradients never cleared",
    "rate 1.0",
)


def losses_by_kind(
    model: TransformerLM, tokenizer: Any, seeds: Iterable[int]
) -> tuple[float, float]:
    """The mean loss of the words that an earlier word determines, and that of all others, in one
    story for each seed.
    """
    found: dict[bool, list[float]] = {True: [], False: []}
    for seed in seeds:
        story = storyworld.story(torch.Generator().manual_seed(seed))
        ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (1, T + 1)
        with torch.no_grad():
            log_probs = model(ids[:, :-1]).log_softmax(-1)  # (1, T, V)
        losses = -log_probs.gather(-1, ids[:, 1:, None])[0, :, 0]  # (T)
        for loss, kind in zip(losses.tolist(), story.kinds, strict=True):
            found[bool(kind)].append(loss)
    low, high = (sum(each) / len(each) for each in found.values())
    return low, high


class Watched(NamedTuple):
    """A run that was watched: its losses, after some updates how far the model was from each
    predictor, 0 to 1, what it wrote, and how alike its last vectors were.
    """

    losses: list[float]
    distances: dict[int, dict[str, float]]
    samples: dict[int, str]
    alike: dict[int, float]


class Predictors:
    """Four predictors of StoryWorld's stories, from one that knows nothing to one that knows the
    last three tokens, and how far a model is from each of them.

    read: the ids (N) from which they count. stories: on whose words they are compared.
    """

    def __init__(self, tokenizer: Any, read: Tensor, stories: Sequence[Story]):
        V = tokenizer.vocab_size
        rows = [torch.tensor(tokenizer.encode("\n" + story.text + "\n")) for story in stories]
        self.tokenizer = tokenizer
        self.ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (B, T + 1)
        lengths = torch.tensor([len(row) - 1 for row in rows])
        self.counted = torch.arange(self.ids.shape[1] - 1) < lengths[:, None]  # (B, T)
        every = torch.bincount(read[1:], minlength=V) / (len(read) - 1)  # (V)
        after = [every.expand(int(self.counted.sum()), V)]  # (N, V) for each number of tokens
        for n in (1, 2, 3):
            after.append(self._after(n, read, after[-1]))
        self.probs = {
            "nothing": torch.full_like(after[1], 1 / V),
            "frequencies": after[0],
            "the token before": after[1],
            "the last three tokens": after[3],
        }

    def _after(self, n: int, read: Tensor, fewer: Tensor) -> Tensor:
        """The probabilities (N, V) of the token after the last n, counted in `read`; those of
        `fewer` where these n tokens do not occur in it.
        """
        V = self.tokenizer.vocab_size
        powers = (V + 1) ** torch.arange(n)  # n tokens as one number
        before = torch.nn.functional.pad(self.ids[:, :-1], (n - 1, 0), value=V)
        asked = (before.unfold(1, n, 1) * powers).sum(-1)[self.counted]  # (N)
        contexts, row = asked.unique(return_inverse=True)
        found = (read[:-1].unfold(0, n, 1) * powers).sum(-1)
        at = torch.searchsorted(contexts, found).clamp(max=len(contexts) - 1)
        known = contexts[at] == found
        counts = torch.zeros(len(contexts), V)
        where = at[known], read[n:][known]
        counts = counts.index_put_(where, torch.tensor(1.0), accumulate=True)[row]  # (N, V)
        n_found = counts.sum(1, keepdim=True)
        return torch.where(n_found > 0, counts / n_found.clamp(min=1), fewer)

    def distances(self, model: TransformerLM) -> dict[str, float]:
        """The fraction of the model's probability that would have to move to other tokens to make
        it each of the predictors, a mean over all words (the total variation distance).
        """
        with torch.no_grad():
            q = model(self.ids[:, :-1]).softmax(-1)[self.counted]  # (N, V)
        return {name: ((p - q).abs().sum(-1) / 2).mean().item() for name, p in self.probs.items()}

    def alike(self, model: TransformerLM) -> float:
        """The mean cosine of two vectors that the head reads, at any two positions."""
        read = []
        hook = model.final_norm.register_forward_hook(lambda _, __, out: read.append(out))
        with torch.no_grad():
            model(self.ids[:, :-1])
        hook.remove()
        x = torch.nn.functional.normalize(read[0][self.counted], dim=-1)  # (N, C)
        n = len(x)
        return ((x.sum(0).square().sum() - n) / (n * (n - 1))).item()

    def follow(self, model: TransformerLM, steps: Iterable[Step]) -> Watched:
        """Runs the updates, and notes after some of them where the model is and what it writes."""
        run = Watched([], {}, {}, {})
        for step in steps:
            run.losses.append(float(step.loss))
            if step.step in LOOKS:
                run.distances[step.step] = self.distances(model)
                run.alike[step.step] = self.alike(model)
            if step.step in SAMPLES:
                run.samples[step.step] = written(model, self.tokenizer)
        return run


def nearest(distances: Mapping[str, float]) -> str:
    """The predictor that the model resembles most."""
    return min(distances, key=distances.__getitem__)


def bands(run: Watched) -> list[tuple[str, float, float]]:
    """Which predictor the model resembles, from which update to which."""
    found: list[tuple[str, float, float]] = []
    for step, distances in run.distances.items():
        name = nearest(distances)
        if not found or found[-1][0] != name:
            found.append((name, step, step))
    ends = [start for _, start, _ in found[1:]] + [len(run.losses)]
    return [(name, start, end) for (name, start, _), end in zip(found, ends, strict=True)]


def written(
    model: TransformerLM, tokenizer: Any, prompt: str = "\nOne", n: int = 20, heat: float = 0.8
) -> str:
    """How the model continues a text, in one line, always with the same draws."""
    ids = torch.tensor([tokenizer.encode(prompt)])  # (1, T)
    generator = torch.Generator().manual_seed(1)
    new = generate(model, ids, n, temperature=heat, generator=generator)  # (1, T + n)
    text = tokenizer.decode(new[0].tolist()).removeprefix("\n")
    return " ".join(text.replace("\n", " \N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} ").split())


def new_model(tokenizer: Any, seed: int, d_model: int = 48) -> TransformerLM:
    """A small model with random weights."""
    torch.manual_seed(seed)
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, d_model=d_model))


def windows(ids: Tensor, n: int, seed: int = 5) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of n random windows."""
    source = torch.Generator().manual_seed(seed)
    while True:
        yield random_windows(ids, n, SEQ_LEN, source)


def constant_rate(
    model: TransformerLM, batches: Iterator[tuple[Tensor, Tensor]], updates: int, rate: float
) -> Iterator[Step]:
    """The library's loop as the lesson writes it: AdamW with one rate, no decay, no clipping."""
    recipe = TrainConfig(
        total_steps=updates, schedule="linear", floor=1.0, clip_norm=None, precision="fp32",
        optimizer="adamw", matrix_lr=rate, embedding_lr=rate,
    )  # fmt: skip
    return train(model, build_optimizer(model, recipe), batches, recipe)


def skills_on_the_way(
    steps: Iterable[Step],
    model: TransformerLM,
    tokenizer: Any,
    stories: Sequence[Story],
    right: dict[int, dict[str, float]],
) -> Iterator[Step]:
    """Passes every update on, and notes in `right` after some of them which fraction of the words
    of each kind the model has right.
    """
    for step in steps:
        if step.step in SKILL_LOOKS:
            found = storyworld.gaps(model, tokenizer, stories)
            right[step.step] = {kind: found[kind].right for kind in SKILLS}
        yield step


def arrival(right: Mapping[int, Mapping[str, float]], skill: str, least: float = 0.3) -> int:
    """The first noted update after which at least this fraction of the words is right; one after
    the last where it never is.
    """
    return next((step for step, each in right.items() if each[skill] >= least), max(right) + 1)


def height(at: Tensor) -> Tensor:
    """How high a point (2, ...) lies above the bottom of a valley that is 30 times steeper across
    than along.
    """
    return (at[0] ** 2 + 30 * at[1] ** 2) / 2


def descend(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], updates: int = 40
) -> list[list[float]]:
    """All points of the way down from (-8, 1.5) with an optimizer made for the two weights."""
    at = torch.tensor([-8.0, 1.5], requires_grad=True)
    optimizer = make([at])
    points = [at.tolist()]
    for _ in range(updates):
        optimizer.zero_grad()
        height(at).backward()
        optimizer.step()
        points.append(at.tolist())
    return points


class Unmasked(Attention):
    """Attention in which each position sees all others, also later ones."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> Tensor:
        """Attends without a mask."""
        return attend(q, k, v).transpose(-3, -2).flatten(-2)  # (B, H, T, D) -> (B, T, H*D)


def broken_run(how: str, tokenizer: Any, ids: Tensor, new: Tensor, seed: int = 1) -> dict[str, Any]:
    """Trains a small model for 60 updates with one of `MISTAKES`.

    Returns the first training loss, the mean of the last ten, the loss on new text (N) with the
    right targets, and how the model continues "One".
    """
    model = new_model(tokenizer, seed)
    if how == "no causal mask":
        for block in model.blocks:
            block.attention = Unmasked(model.config)
    rate = 1.0 if how == "rate 1.0" else 0.01
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=BETAS, weight_decay=0)
    losses = []
    for _, (x, y) in zip(range(UPDATES), windows(ids, 16, seed), strict=False):
        logits = model(x)  # (B, T, V)
        if how == "softmax in the model":
            logits = logits.softmax(-1)
        loss = next_token_loss(*_aimed(how, logits, x, y))
        loss.backward()
        optimizer.step()
        if how != "gradients never cleared":
            optimizer.zero_grad()
        losses.append(loss.item())
    rows = new.unfold(0, SEQ_LEN + 1, SEQ_LEN + 1)[:200]  # (N, T + 1)
    with torch.no_grad():
        on_new = next_token_loss(model(rows[:, :-1]), rows[:, 1:]).item()
    says = written(model, tokenizer, n=9, heat=0)
    return {"first": losses[0], "last": sum(losses[-10:]) / 10, "new": on_new, "writes": says}


def _aimed(how: str, logits: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The predictions that are compared, and with what."""
    if how == "not shifted":
        return logits, x
    if how == "shifted twice":
        return logits[:, :-1], y[:, 1:]
    if how == "another text's targets":
        return logits, y.roll(1, 0)
    return logits, y


@cache
def recorded_training() -> dict[str, Any]:
    """What `tools/training.py` has measured: "rates" {updates: {rate: losses}}, "skills" one
    {update: {skill: fraction right}} for each run, "mistakes" {mistake: runs}; in each the runs
    are in the order of their seeds.
    """
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    rates: dict[int, dict[float, list[float]]] = {60: {}, 300: {}}
    for run in data["rates"]:
        for updates, losses in rates.items():
            losses.setdefault(run["rate"], []).append(run[f"after_{updates}"])
    skills = []
    for run in data["skills"]:
        columns = zip(*(run[kind] for kind in SKILLS), strict=True)
        rows = [dict(zip(SKILLS, right, strict=True)) for right in columns]
        skills.append(dict(zip(SKILL_LOOKS, rows, strict=True)))
    mistakes: dict[str, list[dict[str, Any]]] = {how: [] for how in MISTAKES}
    for run in data["mistakes"]:
        mistakes[run["how"]].append(run)
    return {"rates": rates, "skills": skills, "mistakes": mistakes}
