"""What the units of a feed-forward do: their activations, what happens where one of them writes
another word, and many small networks that are trained side by side.
"""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from tinylm_lib import ModelConfig, storyworld
from tinylm_lib.feedforward import feed_forward
from tinylm_lib.interventions import intervene
from tinylm_lib.layers import Linear
from tinylm_lib.model import TransformerLM

from ..shapes.capture import capture
from .rows import ids_of_words

N_UNITS = 6


def ids_of_stories(tokenizer: Any, n: int, seed: int, length: int = 80) -> Tensor:
    """The line end and the first tokens of n new stories (B, T)."""
    generator = Generator().manual_seed(seed)
    texts = ["\n" + storyworld.story(generator).text for _ in range(n)]
    return torch.tensor([tokenizer.encode(text)[:length] for text in texts])


def beginning(seed: int, n_sentences: int = 3) -> str:
    """The first sentences of a new story."""
    text = storyworld.story(Generator().manual_seed(seed)).text
    return " ".join(re.split(r"(?<=\.) ", text)[:n_sentences])


def activations(model: TransformerLM, ids: Tensor, layer: int = 2) -> Tensor:
    """The activation of each unit of a layer at each token of ids (B, T). Returns (B, T, F)."""
    ffn = model.blocks[layer].ffn
    return ffn.activation(capture(model, ids).outputs[f"blocks.{layer}.ffn.gate_proj"])


class Starts(NamedTuple):
    """The first weights of R networks with 2 inputs, 6 units and 1 output, all as parameters: w_up
    (R, 6, 2), b_up (R, 1, 6), w_down (R, 1, 6) and b_down (R, 1, 1).
    """

    w_up: Tensor
    b_up: Tensor
    w_down: Tensor
    b_down: Tensor


def starts(seeds: Sequence[int], bias: float | None = None) -> Starts:
    """A network for each seed, as two linear maps of the library begin. bias: of all units instead
    of 0.
    """
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        up = Linear(2, N_UNITS, bias=True)
        down = Linear(N_UNITS, 1, bias=True)
        if bias is not None:
            nn.init.constant_(up.bias, bias)
        found.append((up.weight, up.bias[None], down.weight, down.bias[None]))
    return Starts(
        *(torch.stack(each).detach().requires_grad_() for each in zip(*found, strict=True))
    )


class Written(NamedTuple):
    """For each word: its probability where a unit writes it, and the word that is said then."""

    words: list[str]
    probabilities: list[float]
    said: list[str]


@torch.no_grad()
def written(model: TransformerLM, tokenizer: Any, text: str, unit: int = 34) -> Written:
    """What a model says after a text, if a unit of its last layer writes a word, for all words of
    its vocabulary that follow a blank, one at a time. The unit's number is negative where it is
    large.

    It writes as in lesson 08: the row of the word without the mean row, with the length 1.
    """
    spelled = [tokenizer.decode([token]) for token in range(model.config.vocab_size)]
    is_word = [text[0] == " " and text[1:].isalpha() for text in spelled]
    tokens = torch.tensor(is_word).nonzero()[:, 0]  # (N)
    caught = capture(model, torch.tensor([tokenizer.encode("\n" + text)]))
    passed = caught.inputs["blocks.2.ffn.down_proj"][0, -1, unit]  # ()
    column = model.blocks[2].ffn.down_proj.weight[:, unit]  # (C)
    rows = model.lm_head.weight - model.lm_head.weight.mean(0)  # (V, C)
    columns = -F.normalize(rows[tokens], dim=-1)  # (N, C)
    streams = caught.outputs["blocks.2"][0, -1] + passed * (columns - column)  # (N, C)
    probs = model.lm_head(model.final_norm(streams)).softmax(-1)  # (N, V)
    own = probs.gather(-1, tokens[:, None])[:, 0]  # (N)
    words = [spelled[token].strip() for token in tokens.tolist()]
    said = [spelled[token].strip() for token in probs.argmax(-1).tolist()]
    return Written(words, own.tolist(), said)


@torch.no_grad()
def token_losses(model: TransformerLM, ids: Tensor) -> Tensor:
    """The loss of a model at each token of ids (B, T) but the first, in nats, (B, T - 1)."""
    return F.cross_entropy(model(ids[:, :-1]).mT, ids[:, 1:], reduction="none")


def with_rule(model: TransformerLM, rule: Callable[[Any, Tensor], Tensor]) -> TransformerLM:
    """A copy of a model whose feed-forwards compute rule(ffn, x), with the same weights."""
    changed = copy.deepcopy(model)
    for block in changed.blocks:
        block.ffn.register_forward_hook(lambda ffn, args, out: rule(ffn, args[0]))
    return changed


def largest_rises(rise: Tensor, ids: Tensor, tokenizer: Any, n: int = 3) -> dict[str, float]:
    """The words of ids (B, T) on which a loss rises most, with the mean rise, for words that occur
    at least 5 times. rise (B, T - 1).
    """
    following = ids[:, 1:]
    found = {}
    for token in following.unique().tolist():
        at = following == token
        if at.sum() >= 5:
            found[tokenizer.decode([token]).strip()] = rise[at].mean().item()
    return dict(sorted(found.items(), key=lambda pair: -pair[1])[:n])


class Reactions(NamedTuple):
    """The activation of a unit at pairs of words: the mean where both are these, the largest where
    only the second is, and the largest where it is another.
    """

    at_both: float
    at_second: float
    elsewhere: float


def reactions(model: TransformerLM, tokenizer: Any, unit: int, pair: str, seed: int) -> Reactions:
    """Where a unit of the last layer is active in 60 new stories. pair: two words, "In the"."""
    ids = ids_of_stories(tokenizer, 60, seed)  # (B, T)
    (first, second) = (tokenizer.encode(f" {word}")[0] for word in pair.split())
    active = activations(model, ids)[:, 1:, unit]  # (B, T - 1)
    is_second = ids[:, 1:] == second  # (B, T - 1)
    after_first = ids[:, :-1] == first  # (B, T - 1)
    return Reactions(
        active[is_second & after_first].mean().item(),
        active[is_second & ~after_first].max().item(),
        active[~is_second].max().item(),
    )


class Harm(NamedTuple):
    """What a changed model does at some words of stories and at the others: by how much its loss
    is higher, and how often its most probable word is one of the words there.
    """

    at_words: float
    elsewhere: float
    right: float


@torch.no_grad()
def harm(
    model: TransformerLM, changed: TransformerLM, tokenizer: Any, words: Sequence[str], seed: int
) -> Harm:
    """Compares a changed model with its original in 60 new stories."""
    ids = ids_of_stories(tokenizer, 60, seed)  # (B, T)
    wanted = ids_of_words(tokenizer, words)  # (N)
    at = torch.isin(ids[:, 1:], wanted)  # (B, T - 1)
    rise = token_losses(changed, ids) - token_losses(model, ids)  # (B, T - 1)
    said = changed(ids[:, :-1]).argmax(-1)[at]  # (M)
    right = torch.isin(said, wanted).double().mean().item()
    return Harm(rise[at].mean().item(), rise[~at].mean().item(), right)


def missed(model: TransformerLM, tokenizer: Any, found: Written) -> list[float]:
    """For each word that a unit writes and that is not said: the cosine between its row and that of
    the word that is said. The mean row is taken away.
    """
    rows = F.normalize(model.lm_head.weight - model.lm_head.weight.mean(0), dim=-1)  # (V, C)
    pairs = [pair for pair in zip(found.words, found.said, strict=True) if pair[0] != pair[1]]
    ends = [ids_of_words(tokenizer, pair) for pair in pairs]
    return [(rows[new] @ rows[other]).item() for new, other in ends]


class Entering(NamedTuple):
    """What enters a unit, before its activation function, at the last of two words: where both are
    these, what the sum of two facts would give there, and without the head that looks back.
    """

    both: float
    sum_of_facts: float
    without_head: float


def entering(model: TransformerLM, tokenizer: Any, text: str, unit: int = 34) -> Entering:
    """What enters a unit of the last layer at the end of a text that continues with In or By, then
    the or a. The head is head 1 of the same layer.
    """

    def last(end: str) -> float:
        ids = torch.tensor([tokenizer.encode(f"\n{text} {end}")])
        return capture(model, ids).outputs["blocks.2.ffn.gate_proj"][0, -1, unit].item()

    with intervene(model, silence=[(2, 1)]):
        without_head = last("In the")
    return Entering(last("In the"), last("In a") + last("By the") - last("By a"), without_head)


def zeros_of_two_dropouts(rate: float = 0.1) -> float:
    """The fraction of zeros where a feed-forward drops its result and the block drops it again."""
    config = ModelConfig(d_model=512, ffn="gelu", ffn_bias=True, ffn_dropout=rate)
    twice = nn.Dropout(rate)(feed_forward(config)(torch.randn(400, 512)))  # (400, 512)
    return (twice == 0).double().mean().item()
