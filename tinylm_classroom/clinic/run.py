"""A run of a patient: a small model is trained, or the shipped one is loaded, and what happens is
recorded.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Generator, Tensor

from tinylm_lib import storyworld
from tinylm_lib.attention import Attention, attend
from tinylm_lib.cache import KVCache
from tinylm_lib.config import IGNORED, ModelConfig
from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import Positions
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.rewards import kl_penalty
from tinylm_lib.sampling import generate
from tinylm_lib.training.checkpoint import Checkpoint

T = 16  # tokens of a text in training
STORIES = 120  # to train on
LIMIT = 128  # tokens that the shipped model can read
N_NEW = 8  # tokens that are written for a reward
N_ANSWERS = 16  # texts that are written for it
REWARD_RATE = 3e-3
PROMPT = 12  # tokens that a rewarded text begins with


@dataclass(frozen=True)
class Plan:
    """What a run does.

    updates: of training, none with the shipped model. one_batch: the same texts at each update.
    texts: how many there are to train on. answers: only the second half of each text counts, and at
    update 300 nothing. resume: whether a second run continues from a checkpoint at half time.
    rewards: updates by reward. padded: whether it reads texts with padding.
    """

    updates: int = 0
    one_batch: bool = False
    texts: int = 700
    answers: bool = False
    resume: bool = False
    processes: int = 1
    rewards: int = 0
    padded: bool = False


@cache
def shipped() -> Checkpoint:
    """The shipped model and its tokenizer."""
    return load_pretrained("storyworld")


@cache
def tokens(seed: int, n_stories: int) -> Tensor:
    """The ids (N) of some stories."""
    return torch.tensor(shipped().tokenizer.encode("\n" + storyworld.corpus(n_stories, seed=seed)))


@cache
def letters() -> Tensor:
    """How many letters each token has, (V)."""
    decode = shipped().tokenizer.decode
    n_tokens = shipped().model.config.vocab_size
    return torch.tensor([float(len(decode([i]).strip())) for i in range(n_tokens)])


class OpenAttention(Attention):
    """The library's attention, but with a mask that is given."""

    def __init__(self, config: ModelConfig, rotation: Any, allowed: Any):
        super().__init__(config, rotation)
        self.allowed = allowed

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in the library."""
        allowed = self.allowed(q.shape[-2], k.shape[-2])  # (T, S)
        y = attend(q, k, v, allowed if mask is None else allowed & mask)  # (B, H, T, D)
        return y.transpose(-3, -2).flatten(-2)

    def weights(self, x: Tensor, positions: Positions) -> Tensor:
        """The attention weights (B, H, T, T) for x (B, T, C)."""
        q = self.q_norm(self.split(self.q_proj(x)))
        k = self.k_norm(self.split(self.k_proj(x)))
        q = self.rotation(q, positions)
        k = self.rotation(k, positions)
        scores = q @ k.mT / self.d_head**0.5
        return scores.masked_fill(~self.allowed(*scores.shape[-2:]), -torch.inf).softmax(-1)


def build_patient(parts: SimpleNamespace, seed: int, trains: bool) -> TransformerLM:
    """A small model with new weights, or the shipped one."""
    small = ModelConfig(
        vocab_size=345, max_seq_len=LIMIT, d_model=32, n_layers=1, n_heads=2, init="xavier"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TransformerLM(small if trains else shipped().model.config)
        for block in model.blocks:
            block.attention = OpenAttention(model.config, block.attention.rotation, parts.mask)
        if trains:
            parts.initial_weights(model)
        else:
            model.load_state_dict(shipped().model.state_dict())
    return model


def read(
    model: TransformerLM,
    ids: Tensor,
    parts: SimpleNamespace,
    cache: KVCache | None = None,
    real: Tensor | None = None,
) -> Tensor:
    """The logits (B, T, V) of ids (B, T); real (B, T) is False for padding."""
    at = parts.positions(0 if cache is None else cache.length, ids.shape[1])  # (T)
    if real is not None:
        at = (real.cumsum(1) - 1).clamp_min(0)  # (B, T)
    where = Positions(
        at,
        model.blocks[0].attention.rotation.rows(at),
        None if real is None else real[:, None, None],
    )
    x = model.embed(ids)
    for i, block in enumerate(model.blocks):
        x = block(x, where, None if cache is None else partial(cache.extend, i))
    if cache is not None:
        cache.length += ids.shape[1]
    return model.unembed(model.final_norm(x))


class Trainer:
    """One process: its model, optimizer, generator and texts, and the number of its last update."""

    def __init__(self, plan: Plan, parts: SimpleNamespace, seed: int, rank: int = 0):
        self.model = build_patient(parts, seed, trains=True)
        self.step = 0
        self.optimizer = torch.optim.AdamW(
            parts.trained(self.model), lr=1.0, weight_decay=0.0, fused=True
        )
        self.generator = Generator().manual_seed(seed + 1000 * rank)
        texts = tokens(0, STORIES)[: plan.texts * (T + 1)].view(-1, T + 1)  # (N, 17)
        self.texts = parts.shard(texts, rank, plan.processes)

    def snapshot(self) -> tuple:
        """Everything that determines how it goes on, copied."""
        return deepcopy(
            (
                self.model.state_dict(),
                self.optimizer.state_dict(),
                self.generator.get_state(),
                self.step,
            )
        )

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Continue from what a checkpoint holds."""
        if "model" in checkpoint:
            self.model.load_state_dict(checkpoint["model"])
        if "optimizer" in checkpoint:
            self.optimizer.load_state_dict(checkpoint["optimizer"])
        if "generator" in checkpoint:
            self.generator.set_state(checkpoint["generator"])
        self.step = checkpoint.get("step", 0)


@dataclass
class Updates:
    """What happened at each update."""

    losses: list[Tensor] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    batches: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    logits: list[float] = field(default_factory=list)
    hooks: list[int] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    gradients: list[dict[str, float]] = field(default_factory=list)


class PatientRun:
    """What has happened with these parts, and the models at its end.

    initial: the first model's weights before training. again: the record of the run that was
    resumed.
    """

    def __init__(self, plan: Plan, parts: SimpleNamespace, seed: int):
        self.plan = plan
        self.parts = parts
        self.seed = seed
        self.measured: dict[str, float] = {}
        self.record = Updates()
        self.again = Updates()
        self.resumed = None
        self.half = ()
        self.rewards: list[float] = []
        self.advantages: list[float] = []
        self.trainers: list[Trainer] = []
        if plan.updates:
            self.trainers = [Trainer(plan, parts, seed, rank) for rank in range(plan.processes)]
            self.model = self.trainers[0].model
            self.initial = deepcopy(self.model.state_dict())
            with torch.enable_grad():
                self._train()
        else:
            self.model = build_patient(parts, seed, trains=False)
            self.initial = self.model.state_dict()
            with torch.enable_grad():
                self._learn_from_rewards()

    def _train(self) -> None:
        halfway = self.plan.updates // 2 if self.plan.resume else self.plan.updates
        self._updates(self.trainers, self.record, halfway)
        if not self.plan.resume:
            return
        (first,) = self.trainers
        self.half = first.snapshot()
        checkpoint = deepcopy(
            self.parts.saved(first.model, first.optimizer, first.generator, first.step)
        )
        self._updates(self.trainers, self.record, self.plan.updates - halfway)
        self.resumed = Trainer(self.plan, self.parts, self.seed + 1)
        self.resumed.restore(checkpoint)
        self.loaded = self.resumed.snapshot()
        self._updates([self.resumed], self.again, self.plan.updates - halfway)

    def _updates(self, trainers: list[Trainer], record: Updates, n: int) -> None:
        for _ in range(n):
            for trainer in trainers:
                self._backward(trainer, record)
            if len(trainers) > 1:
                each = [[p.grad for p in trainer.model.parameters()] for trainer in trainers]
                mean = self.parts.average(each)
                for parameters in (trainer.model.parameters() for trainer in trainers):
                    for p, gradient in zip(parameters, mean, strict=True):
                        p.grad = gradient.clone()
            for trainer in trainers:
                rate = self.parts.learning_rate(trainer.step)
                for group in trainer.optimizer.param_groups:
                    group["lr"] = rate
                trainer.optimizer.step()
            record.rates.append(rate)

    def _backward(self, trainer: Trainer, record: Updates) -> None:
        model = trainer.model
        parts = self.parts
        block = trainer.model.blocks[0]
        trainer.step += 1
        if self.plan.one_batch:
            trainer.generator.manual_seed(self.seed)
        ids, targets = parts.batch(trainer.texts, trainer.generator)
        if self.plan.answers:
            targets = targets.clone()
            targets[:, : T if trainer.step == 300 else T // 2] = IGNORED
        kept: list[Tensor] = []
        own = block.register_forward_hook(lambda _, __, output: kept.append(output.detach()))
        logits, watched = parts.watch(block, partial(read, model, ids, parts))
        own.remove()
        loss = parts.loss(logits, targets)
        model.zero_grad()
        loss.backward()
        norms = {
            name: 0.0 if p.grad is None else p.grad.norm().item()
            for name, p in model.named_parameters()
        }
        record.losses.append(loss.detach())
        record.gradients.append(norms)
        record.counted.append(int((targets != IGNORED).sum()))
        record.batches.append((ids, targets))
        record.logits.append(logits.detach().abs().max().item())
        record.hooks.append(len(block._forward_hooks))
        record.sizes.append(kept[-1].square().mean().sqrt().item())
        record.watched.append(watched)

    def _learn_from_rewards(self) -> None:
        """Long words are rewarded: the mean number of letters of the tokens that were written."""
        if not self.plan.rewards:
            return
        generator = Generator().manual_seed(self.seed)
        # A prompt each: with one for all, chance decides which text it ends with.
        prompt = torch.stack([tokens(7 + i, 1)[:PROMPT] for i in range(N_ANSWERS)])  # (B, P)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=REWARD_RATE, fused=True)
        self.model.eval()
        for _ in range(self.plan.rewards):
            self.texts = generate(self.model, prompt, N_NEW, generator=generator)  # (B, P + N)
            new = self.texts[:, PROMPT:]  # (B, N)
            reward = letters()[new].mean(1)  # (B)
            advantage = (reward - reward.mean()) / reward.std().clamp(min=1e-3)
            log_probs = log_probs_of(self.model, self.texts)[:, PROMPT - 1 :]  # (B, N)
            with torch.no_grad():
                reference = log_probs_of(shipped().model, self.texts)[:, PROMPT - 1 :]
            held = kl_penalty(log_probs, reference, torch.ones_like(new, dtype=torch.bool))
            optimizer.zero_grad()
            (self.parts.beta * held - (advantage[:, None] * log_probs).mean()).backward()
            optimizer.step()
            self.rewards.append(reward.mean().item())
            self.advantages.append(advantage.mean().item())


def log_probs_of(model: TransformerLM, ids: Tensor) -> Tensor:
    """The log-probability of each token but the first, (B, T - 1), in nats."""
    return model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
