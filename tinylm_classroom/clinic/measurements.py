"""What can be measured in a run, as one number each, by the words that a message uses for it."""

import math
from collections.abc import Callable, Iterator
from functools import cache
from statistics import mean
from types import SimpleNamespace

import torch
from torch import Generator, Tensor

from tinylm_lib import storyworld
from tinylm_lib.cache import KVCache
from tinylm_lib.config import IGNORED
from tinylm_lib.layers import evaluation_mode
from tinylm_lib.sampling import generate

from ..display.numbers import marked
from .parts import HEALTHY
from .run import (
    LIMIT,
    N_NEW,
    PROMPT,
    STORIES,
    PatientRun,
    Plan,
    T,
    letters,
    log_probs_of,
    read,
    shipped,
    tokens,
)

V = 345
N_BY_HEART = 60  # updates that learn one batch by heart
AT_END = 10  # updates whose mean counts as the loss at the end
N_BEFORE = 10  # tokens before the one that a part is tried with
N_WRITTEN = 24  # tokens
N_JUDGED = 96  # texts that tell how much was gained by rewards
BEYOND = 40  # positions beyond the limit that a long text is measured at
_ROUNDING = 1e-4  # nothing that a sign asks for is smaller


_loss_of = HEALTHY["loss"]


def number(value: float) -> str:
    """A number as messages and tables have it: whole ones whole, others with two digits after the
    point.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite"
    if value == int(value):
        return str(int(value))
    return f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1g}"


def shown(value: float) -> str:
    """A measured number: a whole one but for rounding is whole, others are marked, since another
    machine may differ.
    """
    if not math.isfinite(value):
        return number(value)
    return str(round(value)) if abs(value - round(value)) < _ROUNDING else marked(number(value))


def take(run: PatientRun, name: str) -> float:
    """One number of a run; it is measured once.

    Raises KeyError for an unknown name.
    """
    if name not in run.measured:
        run.measured[name] = float(MEASUREMENTS[name](run))
    return run.measured[name]


@cache
def floor() -> float:
    """The mean loss of StoryWorld's exact reader in some new stories, in nats: no model can stay
    below it.
    """
    stories = [storyworld.story(Generator().manual_seed(seed)).text for seed in range(100, 110)]
    n_words = sum(len(storyworld.words(story)) for story in stories)
    return -sum(map(storyworld.log_prob, stories)) / n_words


def new_tokens(run: PatientRun) -> Tensor:
    """The ids (N) of some stories that no run was trained on, others for each seed."""
    return tokens(100 + run.seed, 6)


def new_texts(run: PatientRun) -> Tensor:
    """Texts (N, T + 1) that no run was trained on."""
    return new_tokens(run)[: 30 * (T + 1)].view(-1, T + 1)


@torch.no_grad()
def _loss_on(run: PatientRun, texts: Tensor) -> float:
    return _loss_of(read(run.model, texts[:, :-1], run.parts), texts[:, 1:]).item()


def losses(run: PatientRun) -> list[float]:
    """The loss at each update."""
    return [each.item() for each in run.record.losses]


def _finite(values: list[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def total_norms(run: PatientRun) -> list[float]:
    """The norm of all gradients together, at each update."""
    return [
        math.sqrt(sum(norm * norm for norm in norms.values())) for norms in run.record.gradients
    ]


def matrices(run: PatientRun) -> Iterator[tuple[str, float, bool]]:
    """(name, largest gradient norm, whether it has changed) of each matrix."""
    for name, weight in run.model.state_dict().items():
        if weight.ndim == 2:
            seen = max(_finite([norms[name] for norms in run.record.gradients]), default=0.0)
            yield name, seen, not torch.equal(weight, run.initial[name])


def _first_nan(run: PatientRun) -> float:
    return next((i for i, each in enumerate(losses(run), 1) if math.isnan(each)), 0)


def _certain(parts: SimpleNamespace) -> float:
    """The loss of predictions that are certain and right."""
    targets = torch.arange(8).view(2, 4)
    return parts.loss(100.0 * torch.nn.functional.one_hot(targets, V).float(), targets).item()


def _equal(parts: SimpleNamespace) -> float:
    """The loss of equal logits where half of the targets count, divided by ln V."""
    targets = torch.arange(8).view(2, 4)
    targets[:, ::2] = IGNORED
    return parts.loss(torch.zeros(2, 4, V), targets).item() / math.log(V)


def _nothing_counts(parts: SimpleNamespace) -> float:
    """Whether the loss of a batch where no target counts is NaN."""
    return math.isnan(parts.loss(torch.zeros(2, 4, V), torch.full((2, 4), IGNORED)).item())


def _one_batch(run: PatientRun) -> float:
    """The loss of another run with these parts, which learns one batch by heart."""
    return losses(PatientRun(Plan(N_BY_HEART, one_batch=True), run.parts, run.seed))[-1]


def _hidden_nan(parts: SimpleNamespace) -> float:
    """Whether the loss of logits that are NaN looks like a number."""
    logits = torch.full((2, 4, V), math.nan)
    return math.isfinite(parts.loss(logits, torch.arange(8).view(2, 4)).item())


def _difference(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def _moments(snapshot: tuple) -> Tensor:
    state = snapshot[1]["state"]
    return (
        torch.cat([state[i]["exp_avg"].flatten() for i in sorted(state)])
        if state
        else torch.zeros(1)
    )


def _weights(snapshot: tuple) -> Tensor:
    return torch.cat([weight.flatten() for weight in snapshot[0].values()])


def _relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).norm() / b.norm()).item()


def _differing(run: PatientRun, of: Callable) -> float:
    """How many entries of the resumed run's record are not those of the run that was not
    interrupted.
    """
    again = of(run.again)
    after = of(run.record)[len(run.record.losses) // 2 :]
    return sum(
        not torch.equal(torch.as_tensor(a), torch.as_tensor(b))
        for a, b in zip(again, after, strict=True)
    )


def _unread(run: PatientRun) -> float:
    """How many texts no process reads."""
    parts = run.parts
    texts = torch.arange(run.plan.texts)[:, None].repeat(1, T + 1)
    shards = [
        parts.shard(texts, rank, run.plan.processes)[:, 0].tolist()
        for rank in range(run.plan.processes)
    ]
    return len({*range(run.plan.texts)}.difference(*shards))


def _apart(run: PatientRun) -> float:
    return (
        _relative(*(_weights(trainer.snapshot()) for trainer in run.trainers))
        if len(run.trainers) == 2
        else 0.0
    )


def _all_texts(run: PatientRun) -> float:
    return _loss_on(run, tokens(0, STORIES)[: run.plan.texts * (T + 1)].view(-1, T + 1))


@torch.no_grad()
def through_cache(run: PatientRun) -> tuple[Tensor, Tensor, Tensor]:
    """The logits (40, V) of a text, read at once and one token at a time, and its ids (41)."""
    ids = new_tokens(run)[None, :41]  # (1, 41)
    memory = KVCache(run.model.config, 1, 40)
    with evaluation_mode(run.model):
        whole = read(run.model, ids[:, :-1], run.parts)[0]  # (40, V)
        steps = [read(run.model, ids[:, i : i + 1], run.parts, memory)[0, -1] for i in range(40)]
    return whole, torch.stack(steps), ids[0]


@torch.no_grad()
def written(run: PatientRun) -> list[str]:
    """Two of the texts that were rewarded; otherwise a new text that it continues by the most
    likely tokens.
    """
    decode = shipped().tokenizer.decode
    if run.rewards:
        return [decode(text.tolist()).strip() for text in run.texts[:2]]
    ids = new_tokens(run)[None, :12]
    memory = KVCache(run.model.config, 1, 12 + N_WRITTEN)
    with evaluation_mode(run.model):
        new = ids
        for _ in range(N_WRITTEN):
            new = read(run.model, new, run.parts, memory)[:, -1:].argmax(-1)  # (1, 1)
            ids = torch.cat((ids, new), dim=1)
    return [decode(ids[0].tolist()).strip()]


def _at_once(run: PatientRun) -> float:
    whole, _, ids = through_cache(run)
    return _loss_of(whole[None], ids[None, 1:]).item()


def _in_steps(run: PatientRun) -> float:
    _, steps, ids = through_cache(run)
    return _loss_of(steps[None], ids[None, 1:]).item()


def _from_cache(run: PatientRun) -> float:
    whole, steps, _ = through_cache(run)
    return _difference(whole, steps)


@torch.no_grad()
def long_losses(run: PatientRun) -> dict[int, float]:
    """The loss at some positions of a long text, each predicted from its window."""
    ids = new_tokens(run)[None]
    found = {}
    for at in range(48, LIMIT + BEYOND, 4):
        logits = read(run.model, run.parts.window(ids[:, :at], LIMIT), run.parts)[:, -1:]
        found[at] = _loss_of(logits, ids[:, at : at + 1]).item()
    return found


def _mean_before(run: PatientRun) -> float:
    found = [value for at, value in long_losses(run).items() if at <= LIMIT]
    return mean(found)


def _mean_after(run: PatientRun) -> float:
    found = [value for at, value in long_losses(run).items() if at > LIMIT]
    return mean(found)


def _window(parts: SimpleNamespace) -> Tensor:
    """What the window keeps of 200 tokens that are numbered from 1."""
    return parts.window(torch.arange(1, 201)[None], LIMIT)[0]


def _padded(run: PatientRun, left: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits of two texts in one batch as the run reads them, each alone, and after the last real
    token of both.
    """
    ids = new_tokens(run)
    texts = [ids[:12], ids[:20]]
    padded = torch.zeros(2, 20, dtype=torch.long)
    real = torch.zeros(2, 20, dtype=torch.bool)
    for i, text in enumerate(texts):
        own = slice(20 - len(text), 20) if left else slice(0, len(text))
        padded[i, own] = text
        real[i, own] = True
    with evaluation_mode(run.model):
        alone = torch.stack(
            [read(run.model, text[None], run.parts)[0, -1] for text in texts]
        )  # (2, V)
        logits = read(run.model, padded, run.parts, real=real)  # (2, 20, V)
    return run.parts.last_logits(logits, real), alone, HEALTHY["last_logits"](logits, real), logits


def _padding(run: PatientRun, left: bool) -> float:
    found, alone, _, _ = _padded(run, left)
    return _difference(found, alone)


def _at_last_real(run: PatientRun) -> float:
    _, alone, last, _ = _padded(run, left=False)
    return _difference(last, alone)


def _at_the_wrong_place(run: PatientRun) -> float:
    found, _, last, _ = _padded(run, left=False)
    return _difference(found, last)


@torch.no_grad()
def _likelihood(run: PatientRun) -> float:
    return log_probs_of(shipped().model, run.texts)[:, PROMPT - 1 :].mean().item()


@torch.no_grad()
def _gain(run: PatientRun) -> float:
    """How much more reward the texts after new prompts get than those of the first model."""
    prompt = torch.stack([tokens(300 + i, 1)[:PROMPT] for i in range(N_JUDGED)])  # (B, P)
    found = []
    for model in (shipped().model, run.model):
        with evaluation_mode(model):
            ids = generate(model, prompt, N_NEW, generator=Generator().manual_seed(5))
        found.append(letters()[ids[:, PROMPT:]].mean().item())
    return found[1] - found[0]


@torch.no_grad()
def attention_weights(run: PatientRun) -> Tensor:
    """The weights (H, T, T) of the first block, for one text."""
    ids = new_texts(run)[:1, :-1]
    caught = []
    attention = run.model.blocks[0].attention
    hook = attention.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[:2]))
    try:
        read(run.model, ids, run.parts)
    finally:
        hook.remove()
    return attention.weights(*caught[0])[0]


def _copies(run: PatientRun, shift: int) -> float:
    """In what part of the targets that count the target is the input `shift` positions further."""
    ids, targets = run.record.batches[0]
    n = ids.shape[1] - shift
    counted = targets[:, :n] != IGNORED
    return (targets[:, :n] == ids[:, shift:])[counted].float().mean().item()


def _leaked(run: PatientRun) -> float:
    trained = set()
    for trainer in run.trainers:
        trained.update(map(tuple, trainer.texts.tolist()))
    return sum(tuple(text) in trained for text in new_texts(run).tolist())


def _largest_step_back(run: PatientRun) -> float:
    found = _finite(losses(run))
    return max(found) - found[0]


def _per_batch(run: PatientRun) -> float:
    first, *_, final = (ids.numel() for ids, _ in run.record.batches)
    return final / first


# The measurements by the question of the tree that they answer.
ANSWERS: dict[str, dict[str, Callable[[PatientRun], float]]] = {
    "What does it do?": {
        "updates of training": lambda run: len(run.record.losses),
        "updates with a reward": lambda run: len(run.rewards),
        "texts with padding that it reads": lambda run: 2 * run.plan.padded,
        "times it is resumed": lambda run: run.plan.resume,
        "processes": lambda run: run.plan.processes,
    },
    "Does it begin at ln V?": {
        "loss at the start": lambda run: losses(run)[0],
        "loss of equal logits, divided by ln V": lambda run: _equal(run.parts),
        "loss of certain, right predictions": lambda run: _certain(run.parts),
    },
    "Does it learn one batch?": {
        "loss after learning one batch": _one_batch,
        "loss at the end": lambda run: mean(losses(run)[-AT_END:]),
        "lowest loss": lambda run: min(_finite(losses(run))),
        "largest loss minus the first": _largest_step_back,
        "gradient norm at the start": lambda run: total_norms(run)[0],
        "largest gradient norm": lambda run: max(_finite(total_norms(run))),
        "largest learning rate": lambda run: max(run.record.rates),
        "largest logit": lambda run: max(_finite(run.record.logits)),
    },
    "Is new text above the floor?": {
        "loss on new texts": lambda run: _loss_on(run, new_texts(run)),
        "floor of new texts": lambda run: floor(),
        "keys that the first of 8 queries sees": lambda run: run.parts.mask(8, 8)[0].sum().item(),
        "keys that the last of 8 queries sees": lambda run: run.parts.mask(8, 8)[-1].sum().item(),
        "largest attention weight on the next token": lambda run: (
            attention_weights(run).diagonal(1, -2, -1).max().item()
        ),
        "targets that are their own input": lambda run: _copies(run, 0),
        "targets that are the next input": lambda run: _copies(run, 1),
        "new texts that are in the training texts": _leaked,
    },
    "Does all of it take part?": {
        "matrices that change": lambda run: sum(changed for *_, changed in matrices(run)),
        "matrices without a gradient": lambda run: sum(norm == 0 for _, norm, _ in matrices(run)),
        "matrices that never change although they have a gradient": lambda run: sum(
            norm > 0 and not changed for _, norm, changed in matrices(run)
        ),
        "fewest targets that count in an update": lambda run: min(run.record.counted),
        "texts that no process reads": _unread,
        "loss on all its texts": _all_texts,
        "difference between the weights of the processes": _apart,
    },
    "Does it write as it reads?": {
        "largest difference of logits, cache against full": _from_cache,
        "loss of a text that it reads at once": _at_once,
        "loss of a text that it reads token by token": _in_steps,
        f"position of a token after {N_BEFORE} others": lambda run: run.parts.positions(
            N_BEFORE, 1
        ).item(),
        f"keys that a token after {N_BEFORE} others sees": lambda run: (
            run.parts.mask(1, N_BEFORE + 1).sum().item()
        ),
        "modules that drop something when it writes": lambda run: sum(
            module.training
            for module in run.model.modules()
            if isinstance(module, torch.nn.Dropout)
        ),
        f"loss up to {LIMIT} tokens": _mean_before,
        f"loss beyond {LIMIT} tokens": _mean_after,
        "tokens that it reads of 200": lambda run: len(_window(run.parts)),
        "number of the newest token that it reads of 200": lambda run: _window(run.parts)[
            -1
        ].item(),
        "error with padding on the left": lambda run: _padding(run, left=True),
        "error with padding on the right": lambda run: _padding(run, left=False),
        "error at the last real token, with padding on the right": _at_last_real,
        "difference between what it reads and the last real token": _at_the_wrong_place,
    },
    "Does it stay well?": {
        "first update with NaN": _first_nan,
        "updates with NaN": lambda run: sum(map(math.isnan, losses(run))),
        "updates that break it": lambda run: run.plan.resume + bool(_first_nan(run)),
        "losses of no targets that are NaN": lambda run: _nothing_counts(run.parts),
        "losses of NaN that look like numbers": lambda run: _hidden_nan(run.parts),
        "hooks on the block at the end": lambda run: run.record.hooks[-1],
        "losses that keep their graph": lambda run: sum(
            each.requires_grad for each in run.record.losses
        ),
        "tokens in the last batch, divided by the first": _per_batch,
        "size of the activations at the end": lambda run: run.record.sizes[-1],
        "error of the watched size": lambda run: max(
            abs(a - b) for a, b in zip(run.record.sizes, run.record.watched, strict=True)
        ),
        "largest difference of the loss after resuming": lambda run: max(
            abs(again - after).item()
            for again, after in zip(
                run.again.losses, run.record.losses[len(run.record.losses) // 2 :], strict=True
            )
        ),
        "difference of the weights after loading": lambda run: _relative(
            _weights(run.loaded), _weights(run.half)
        ),
        "difference of the optimizer's means after loading": lambda run: _relative(
            _moments(run.loaded), _moments(run.half)
        ),
        "batches that differ after resuming": lambda run: _differing(
            run, lambda record: [ids for ids, _ in record.batches]
        ),
        "learning rates that differ after resuming": lambda run: _differing(
            run, lambda record: record.rates
        ),
        "gain of reward": lambda run: mean(run.rewards[-3:]) - run.rewards[0],
        "gain of reward in new texts": _gain,
        "mean advantage": lambda run: max(map(abs, run.advantages)),
        "log-probability of its texts for the model at the beginning": _likelihood,
    },
}
MEASUREMENTS: dict[str, Callable[[PatientRun], float]] = {}
for _group in ANSWERS.values():
    MEASUREMENTS |= _group
