"""Small models of several sizes, trained within a budget of compute, and what was recorded of them:
lesson 15.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, islice, permutations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib import TrainConfig, TransformerLM, evaluate, preset, storyworld, train
from tinylm_lib.cost import count_parameters
from tinylm_lib.data import RandomWindows, every_document
from tinylm_lib.storyworld import gaps
from tinylm_lib.text import line_end
from tinylm_lib.training import build_optimizer

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXTS = 4  # for each update
LENGTH = 128
SEEDS = (0, 1)  # of every size; one size has more
KINDS = ("pronoun", "name", "object", "place", "quotation", "trait")
HELD_OUT_SEED = 1_000_000


@dataclass(frozen=True)
class Run:
    """One recorded training: its budget 6 N D in FLOPs, the parameters N, the texts of an update,
    the loss on held-out stories, and for each kind of word the nats above the exact distribution
    and the fraction that is right.
    """

    budget: float
    size: int
    seed: int
    texts: int
    loss: float
    nats: tuple[float, ...]
    right: tuple[float, ...]


class Stories(NamedTuple):
    """What the models read, where its stories begin, new stories, and the loss of a perfect model
    on them, in nats per token.
    """

    ids: Tensor
    starts: Tensor
    held_out: list[storyworld.Story]
    new_ids: Tensor
    floor: float


def stories(tokenizer: Any, n: int, n_held_out: int = 300) -> Stories:
    """n stories to read, and other ones to measure on."""
    ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(n, seed=0)), dtype=torch.int32)
    starts = (ids == line_end(tokenizer)).nonzero()[:, 0]
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    held_out = [storyworld.story(generator) for _ in range(n_held_out)]
    new = "\n" + "".join(story.text + "\n" for story in held_out)
    new_ids = torch.tensor(tokenizer.encode(new))
    floor = -math.fsum(story.log_prob for story in held_out) / (len(new_ids) - 1)
    return Stories(ids, starts, held_out, new_ids, floor)


def small(tokenizer: Any, width: int, seed: int) -> TransformerLM:
    """An untrained model with two layers of this width."""
    sizes: dict[str, Any] = {"d_model": width, "n_layers": 2, "n_heads": max(2, width // 16)}
    sizes |= {"max_seq_len": LENGTH, "d_ff_multiple_of": 8}
    torch.manual_seed(seed)
    return TransformerLM(preset("modern", vocab_size=tokenizer.vocab_size, **sizes))


def size_of(tokenizer: Any, width: int) -> int:
    """The parameters of such a model."""
    return count_parameters(small(tokenizer, width, 0).config).total


def trained(
    model: TransformerLM, world: Stories, tokens: float, seed: int, texts: int = TEXTS
) -> int:
    """Trains the model on about so many tokens, in updates of so many texts, none of them at a rate
    of 0. Returns how many tokens it read.
    """
    updates = max(1, round(tokens / (texts * LENGTH)))
    recipe = TrainConfig(
        total_steps=updates + 1, batch_size=texts, seq_len=LENGTH, seed=seed, precision="fp32"
    )  # the schedule reaches 0 at an update that is not made
    batches = RandomWindows(world.ids, texts, LENGTH, seed, starts=world.starts)
    steps = train(model, build_optimizer(model, recipe), batches, recipe)
    for _ in islice(steps, updates):
        pass
    return updates * texts * LENGTH


def loss_of(model: TransformerLM, tokenizer: Any, world: Stories) -> float:
    """The loss on the held-out stories, in nats per token."""
    return evaluate(model, every_document(world.new_ids, line_end(tokenizer), 50)).nats_per_token


def recorded(texts: int = TEXTS) -> list[Run]:
    """What `tools/scaling.py` has measured with so many texts for each update, two seeds of each
    size.
    """
    return [run for run in _runs() if run.texts == texts and run.seed in SEEDS]


def all_seeds(budget: float, size: int) -> list[Run]:
    """The recorded runs of this budget and size, with all seeds."""
    return [run for run in _runs() if (run.budget, run.size, run.texts) == (budget, size, TEXTS)]


@cache
def _runs() -> tuple[Run, ...]:
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    return tuple(
        Run(**run | {"nats": tuple(run["nats"]), "right": tuple(run["right"])})
        for run in tomllib.loads(text)["runs"]
    )


def budgets_of(runs: Iterable[Run]) -> list[float]:
    """The budgets, in order."""
    return sorted({run.budget for run in runs})


def of_budget(runs: Iterable[Run], budget: float) -> list[Run]:
    """The runs of one budget."""
    return [run for run in runs if run.budget == budget]


def best_spent(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """The best size of each budget, and how many tokens a model of this size reads for it."""
    budgets = budgets_of(runs)
    sizes = [best_of(of_budget(runs, budget)) for budget in budgets]
    return sizes, [budget / 6 / n for budget, n in zip(budgets, sizes, strict=True)]


def subsets(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs without any one of the sizes, and those of each seed alone."""
    sizes = sorted({run.size for run in runs})
    found = {f"without {n:,}": [run for run in runs if run.size != n] for n in sizes}
    return found | {f"seed {seed}": [run for run in runs if run.seed == seed] for seed in SEEDS}


def known(run: Run, below: float = 0.1) -> list[str]:
    """The kinds of words that a model knows almost completely: to less than so many nats."""
    return [kind for kind, nats in zip(KINDS, run.nats, strict=True) if nats < below]


def nats_and_loss(
    model: TransformerLM, tokenizer: Any, world: Stories, n: int = 40
) -> tuple[dict[str, float], float]:
    """Of any model, for each kind of word the nats above the exact distribution, on n of the
    held-out stories, and the loss on all of them.
    """
    found = gaps(model, tokenizer, world.held_out[:n])
    return {kind: found[kind].nats for kind in KINDS}, loss_of(model, tokenizer, world)


def parabola(runs: Sequence[Run]) -> Tensor:
    """The constants (3) of the parabola in log N with the smallest squared error."""
    x = torch.tensor([run.size for run in runs], dtype=torch.float64).log()
    losses = torch.tensor([run.loss for run in runs], dtype=torch.float64)
    return torch.linalg.lstsq(torch.stack([x**0, x, x**2], dim=1), losses).solution


def best_of(runs: Sequence[Run]) -> float:
    """The size at the lowest point of the parabola."""
    _, slope, bend = parabola(runs).tolist()
    return math.exp(-slope / (2 * bend))


def curve(runs: Sequence[Run], sizes: Iterable[float]) -> list[float]:
    """The parabola's loss at each of these sizes."""
    constants = parabola(runs).tolist()
    return [sum(c * math.log(size) ** power for power, c in enumerate(constants)) for size in sizes]


def as_points(runs: Iterable[Run]) -> Tensor:
    """The runs as rows (R, 3): N in 10,000, D in 100,000, and the loss."""
    rows = [(run.size / 1e4, run.budget / 6 / run.size / 1e5, run.loss) for run in runs]
    return torch.tensor(rows, dtype=torch.float64)


def pairs_alike(runs: Sequence[Run], within: float) -> list[tuple[Run, Run]]:
    """The pairs of one size and one budget whose losses differ by at most so much."""
    return [
        (a, b)
        for a, b in combinations(runs, 2)
        if (a.size, a.budget) == (b.size, b.budget) and abs(a.loss - b.loss) <= within
    ]


def alike(runs: Sequence[Run], within: float) -> tuple[Run, Run]:
    """Of these pairs the one with the largest difference in one kind of word."""
    return max(pairs_alike(runs, within), key=lambda pair: other_skills(*pair))


def losses_of_equal_text(runs: Sequence[Run], within: float = 0.1) -> list[tuple[float, float]]:
    """The losses of all pairs of a smaller and a larger model that read about as much text."""
    return [
        (a.loss, b.loss)
        for a, b in permutations(runs, 2)
        if a.size < b.size and abs(a.budget / a.size * b.size / b.budget - 1) < within
    ]


def spread_of_seeds(runs: Sequence[Run]) -> float:
    """The standard deviation of the losses of runs that differ in their seed alone."""
    squares = [(a.loss - b.loss) ** 2 / 2 for a, b in pairs_alike(runs, math.inf)]
    return math.sqrt(sum(squares) / len(squares))


def other_skills(one: Run, two: Run) -> float:
    """The largest difference in the fraction right of one kind of word."""
    return max(abs(a - b) for a, b in zip(one.right, two.right, strict=True))


def rise(runs: Iterable[Run], budget: float, seed: int) -> float:
    """How far the loss of the largest size is above that of the best one, with one seed."""
    losses = {run.size: run.loss for run in of_budget(runs, budget) if run.seed == seed}
    return losses[max(losses)] - min(losses.values())
