"""Stacks of blocks whose parts replace the vector that they read, or add to it: how alike positions
become, how far a gradient holds, and what trained stacks know.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tinylm_lib import ModelConfig, TransformerLM, storyworld
from tinylm_lib.interventions import intervene

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Join = Callable[[Tensor, Tensor], Tensor]
Read = Callable[[Tensor], Tensor]
Part = Callable[[Tensor], Tensor]

N_STORIES = 100
LENGTH = 16  # tokens that are read
BATCH = 8
WIDTH = 64


class Turned(NamedTuple):
    """What one step changes: the cosine between the gradients before and after it, and the loss."""

    cosine: float
    change: float


def replace(x: Tensor, made: Tensor) -> Tensor:
    """The result of a part takes the place of the vector."""
    return made


def add(x: Tensor, made: Tensor) -> Tensor:
    """The result of a part is added to the vector."""
    return x + made


def vectors(lm: TransformerLM, join: Join, ids: Tensor) -> list[Tensor]:
    """The vectors (B, T, C) of a text: the embeddings, and what leaves each block."""
    x = lm.embed(ids)  # (B, T) -> (B, T, C)
    positions = torch.arange(ids.shape[1])  # (T)
    found = [x]
    for block in lm.blocks:
        x = join(x, block.attention(block.attn_norm(x), positions))  # (B, T, C)
        x = join(x, block.ffn(block.ffn_norm(x)))  # (B, T, C)
        found.append(x)
    return found


def reading(lm: TransformerLM, join: Join, alone: bool = False) -> Read:
    """How this model reads: ids (B, T) in, logits (B, T, V) out.

    alone: each word is read as a text of its own, so that attention has nothing to average.
    """

    def read(ids: Tensor) -> Tensor:
        texts = ids.reshape(-1, 1) if alone else ids
        last = vectors(lm, join, texts)[-1]
        return lm.unembed(lm.final_norm(last)).view(*ids.shape, -1)

    return read


def untrained(vocab_size: int, n_blocks: int, seed: int, **choices: Any) -> TransformerLM:
    """A model of 64 features with new weights, those of lesson 02."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocab_size, "d_model": WIDTH, "n_layers": n_blocks}
    settings = {"tie_embeddings": False, "init": "cs336", **sizes, **choices}
    return TransformerLM(ModelConfig(**settings))


def smaller(lm: TransformerLM, factor: float) -> TransformerLM:
    """The model, after the maps that write into its stream have been multiplied by this factor."""
    with torch.no_grad():
        for block in lm.blocks:
            block.attention.o_proj.weight.mul_(factor)
            block.ffn.down_proj.weight.mul_(factor)
    return lm


def growth(vocab_size: int, seed: int, factor: float = 1.0, block: str = "pre_norm") -> float:
    """How many times as large the stream of 24 untrained blocks is at its end as at its start.

    factor: of the maps that write into the stream.
    """
    lm = smaller(untrained(vocab_size, 24, seed, block=block), factor)
    ids = torch.randint(vocab_size, (4, 32))  # (B, T)
    with torch.no_grad():
        start = lm.embed(ids)  # (B, T, C)
        x = start
        for each in lm.blocks:
            x = each(x, torch.arange(32))  # (B, T, C)
    return (x.std() / start.std()).item()


def stories(tokenizer: Any) -> Tensor:
    """The ids (N) of the first hundred stories, each after a line end."""
    seeds = range(N_STORIES)
    texts = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in seeds]
    return torch.tensor(tokenizer.encode("\n" + "\n".join(texts)))


def counting_only(tokens: Tensor) -> float:
    """The loss of a reader who knows how frequent each word is, and nothing else, in nats."""
    frequency = tokens.bincount() / len(tokens)  # (V)
    return -torch.xlogy(frequency, frequency).sum().item()


def train(
    lm: TransformerLM, read: Read, tokens: Tensor, rate: float = 0.01, updates: int = 30
) -> list[float]:
    """Trains a model with AdamW on windows of these tokens (N). Returns the loss of each update."""
    optimizer = torch.optim.AdamW(lm.parameters(), lr=rate, fused=True)
    losses = []
    for _ in range(updates):
        starts = torch.randint(len(tokens) - LENGTH, (BATCH,)).tolist()
        batch = torch.stack([tokens[start : start + LENGTH + 1] for start in starts])  # (B, T + 1)
        loss = _loss(read, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def last_ten(losses: list[float]) -> float:
    """The mean loss of the last ten updates."""
    return sum(losses[-10:]) / 10


def block_gradients(lm: TransformerLM, join: Join) -> list[float]:
    """The norm of the gradient of each block's weights, for one batch of random tokens."""
    batch = torch.randint(lm.config.vocab_size, (4, 33))  # (B, T + 1)
    _loss(reading(lm, join), batch).backward()
    return [_gradient(block).norm().item() for block in lm.blocks]


def after_step(lm: TransformerLM, read: Read, batch: Tensor, step: float) -> Turned:
    """Moves every weight by this step against its gradient, looks again, and moves it back.

    batch (B, T + 1): the tokens for which the loss is computed.
    """
    weights = [(p, p.detach().clone()) for p in lm.parameters()]
    gradients = []
    losses = []
    for _ in range(2):
        lm.zero_grad()
        loss = _loss(read, batch)
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([_gradient(block) for block in lm.blocks]))
        with torch.no_grad():
            for p in lm.parameters():
                p -= step * p.grad.sign()
    with torch.no_grad():
        for p, before in weights:
            p.copy_(before)
    cosine = torch.cosine_similarity(*gradients, dim=0).item()
    return Turned(cosine, losses[1] - losses[0])


def parts_of(lm: TransformerLM, length: int) -> list[Part]:
    """What adds to the stream of a text of this length, in order: each reads the stream (B, T, C),
    through its norm, and returns what it adds.
    """
    positions = torch.arange(length)  # (T)
    found: list[Part] = []
    for block in lm.blocks:
        found.append(partial(_attend, block, positions))
        found.append(partial(_feed, block))
    return found


def _attend(block: Any, positions: Tensor, x: Tensor) -> Tensor:
    return block.attention(block.attn_norm(x), positions)


def _feed(block: Any, x: Tensor) -> Tensor:
    return block.ffn(block.ffn_norm(x))


@torch.no_grad()
def loss_after(
    lm: TransformerLM,
    ids: Tensor,
    stream: Callable[[Tensor, list[Part], int | None], Tensor],
    out: int | None = None,
) -> float:
    """The loss of a model whose stream ends as this function says, given its start, its parts, and
    which of them is left out.

    ids (B, T).
    """
    x = stream(lm.embed(ids), parts_of(lm, ids.shape[1]), out)  # (B, T, C)
    logits = lm.unembed(lm.final_norm(x))  # (B, T, V)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()


def loss_with_block(lm: TransformerLM, ids: Tensor, block: Callable[..., Tensor]) -> float:
    """The loss of a model each of whose blocks is this function of the stream (B, T, C), norm1,
    attention, norm2 and ffn. ids (B, T).
    """
    with torch.no_grad():
        logits = reading_with_block(lm, block)(ids)  # (B, T, V)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item()


def reading_with_block(lm: TransformerLM, block: Callable[..., Tensor]) -> Read:
    """How this model reads where each of its blocks is this function."""

    def read(ids: Tensor) -> Tensor:
        x = lm.embed(ids)  # (B, T, C)
        positions = torch.arange(ids.shape[1])  # (T)
        for each in lm.blocks:
            attention = partial(each.attention, positions=positions)
            x = block(x, each.attn_norm, attention, each.ffn_norm, each.ffn)  # (B, T, C)
        return lm.unembed(lm.final_norm(x))

    return read


def changed_sum(
    x: Tensor, parts: list[Part], out: int | None = None, plus_alone: bool = False
) -> Tensor:
    """The end of the stream x (B, T, C) without part number `out`, or without its plus sign alone:
    then its result replaces the stream.
    """
    for i, part in enumerate(parts):
        if i != out:
            x = x + part(x)
        elif plus_alone:
            x = part(x)
    return x


def without_each(lm: TransformerLM, ids: Tensor, plus_alone: bool = False) -> list[float]:
    """The loss of a model without each of its parts, or without the plus sign of each."""
    stream = partial(changed_sum, plus_alone=plus_alone)
    return [loss_after(lm, ids, stream, out) for out in range(2 * len(lm.blocks))]


def pre_norm(x: Tensor, norm1: Part, attention: Part, norm2: Part, ffn: Part) -> Tensor:
    """The block of the library as a function of the stream and its four parts."""
    h = x + attention(norm1(x))
    return h + ffn(norm2(h))


def new_stories(tokenizer: Any, first: int, n: int = 20, length: int = 80) -> Tensor:
    """The first tokens of stories with these seeds, ids (n, length)."""
    found = []
    for seed in range(first, first + n):
        text = storyworld.story(torch.Generator().manual_seed(seed)).text
        found.append(tokenizer.encode("\n" + text)[:length])
    return torch.tensor(found)


def told_apart(
    lm: TransformerLM, tokenizer: Any, first: int, stop: Sequence[tuple[int, str]] = (), n: int = 20
) -> list[float]:
    """How differently a model continues "In the" and "By the" after the first two sentences of n
    stories: half of the sum of the differences of the probabilities, from 0 to 1, for each.

    stop: (layer, "attention" or "ffn"): parts that add 0.
    """
    pairs = []
    for seed in range(first, first + n):
        text = storyworld.story(torch.Generator().manual_seed(seed)).text
        start = "\n" + ".".join(text.split(".")[:2]) + "."
        pairs.append((start + " In the", start + " By the"))
    return _apart(lm, tokenizer, pairs, stop)


def names_apart(
    lm: TransformerLM, tokenizer: Any, first: int, stop: Sequence[tuple[int, str]] = (), n: int = 20
) -> list[float]:
    """How differently a model continues "Tara thanked" and "Victor thanked" in n stories in which
    one of them thanks the other, as in `told_apart`.
    """
    pairs: list[tuple[str, str]] = []
    seed = first
    while len(pairs) < n:
        text = "\n" + storyworld.story(torch.Generator().manual_seed(seed)).text
        if thanks := re.search(r"([A-Z][a-z]+) thanked ([A-Z][a-z]+)", text):
            one, other = (f"{text[: thanks.start()]}{name} thanked" for name in thanks.groups())
            pairs.append((one, other))
        seed += 1
    return _apart(lm, tokenizer, pairs, stop)


@torch.no_grad()
def own_word(lm: TransformerLM, join: Join, ids: Tensor) -> float:
    """How often a linear map finds the word of a position in its vector after the last block.

    ids (B, T). The map is fitted to the first three quarters and tried on the others.
    """
    x = vectors(lm, join, ids)[-1].flatten(0, 1)  # (N, C)
    words = ids.flatten()  # (N)
    n = len(x) * 3 // 4
    x = x / x.norm(dim=-1, keepdim=True)
    x = F.pad((x - x[:n].mean(0)) / x[:n].std(0), (0, 1), value=1.0)  # (N, C + 1)
    target = F.one_hot(words[:n], lm.config.vocab_size).float()
    ridge = torch.eye(x.shape[1])  # (C + 1, C + 1)
    fitted = torch.linalg.solve(x[:n].T @ x[:n] + ridge, x[:n].T @ target)  # (C + 1, V)
    return ((x[n:] @ fitted).argmax(-1) == words[n:]).float().mean().item()


def limit_of(steps: Sequence[float], cosines: Tensor) -> float:
    """The step at which the mean cosine (seeds, steps) falls below one half, on a logarithmic scale
    between the two steps around it.
    """
    mean = cosines.mean(0).tolist()
    at = next(i for i, value in enumerate(mean) if value < 0.5)
    before, after = (math.log(step) for step in steps[at - 1 : at + 1])
    share = (mean[at - 1] - 0.5) / (mean[at - 1] - mean[at])
    return math.exp(before + share * (after - before))


@cache
def recorded(what: str) -> list[dict[str, Any]]:
    """What `tools/stacks.py` has measured, as one dict for each run.

    what: "runs", losses of whole training runs, each the mean of 20 updates; or "rates", the loss
    of 8 blocks that read each word alone, after 60 updates at some learning rate.
    """
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))[what]


@torch.no_grad()
def _apart(
    lm: TransformerLM,
    tokenizer: Any,
    pairs: Sequence[tuple[str, str]],
    stop: Sequence[tuple[int, str]],
) -> list[float]:
    """Half of the sum of the differences of the next word's probabilities, for each two texts."""
    found = []
    for pair in pairs:
        ids = torch.tensor([tokenizer.encode(text) for text in pair])
        with intervene(lm, stop=stop):
            one, other = lm(ids)[:, -1].softmax(-1)  # (V) each
        found.append(0.5 * (one - other).abs().sum().item())
    return found


def _loss(read: Read, batch: Tensor) -> Tensor:
    return F.cross_entropy(read(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def _gradient(module: torch.nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters()])
