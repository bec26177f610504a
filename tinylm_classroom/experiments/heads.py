"""Which attention heads find the word that determines the next one, against StoryWorld's ground
truth, and what a head adds to the logit of the word that it looks at.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence

from tinylm_lib import storyworld
from tinylm_lib.attention import Attention, attend, causal_mask
from tinylm_lib.interventions import intervene
from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld.stories import Story

from ..shapes.capture import capture
from .rows import ids_of_words


def heads_that_find(
    model: TransformerLM, tokenizer: Any, stories: Sequence[Story]
) -> dict[str, Tensor]:
    """For each kind of look-back, the fraction of its words (L, H) for which a head looks most at a
    determining word.

    A head is measured where the word is predicted: at the word before it. Every mention of the same
    thing is a hit.
    tokenizer: a WordTokenizer that knows every word of StoryWorld.
    """
    config = model.config
    hits: dict[str, list[Tensor]] = {}
    for story in stories:
        ids = torch.tensor([tokenizer.encode("\n" + story.text)])  # (B, T)
        caught = capture(model, ids.to(next(model.parameters()).device))
        weights = torch.cat(
            [caught.attention(layer).weights for layer in range(config.n_layers)]
        )  # (L, H, T, S)
        found = weights.argmax(-1).cpu()  # (L, H, T)
        for i, (kind, looks) in enumerate(zip(story.kinds, story.lookback, strict=True)):
            if kind:  # key j + 1 is word j: the line end before the story comes first
                hits.setdefault(kind, []).append(
                    torch.isin(found[:, :, i] - 1, torch.tensor(looks))
                )
    return {kind: torch.stack(seen).double().mean(0) for kind, seen in hits.items()}


@torch.no_grad()
def mean_weights(attention: Attention, x: Tensor) -> Tensor:
    """Where the heads of a layer look: the mean of their weights over texts x (B, T, C).

    Returns (H, T, S).
    """
    at = torch.arange(x.shape[1])  # (T)
    q = attention.rotation(attention.split(attention.q_proj(x)), at)  # (B, H, T, D)
    k = attention.rotation(attention.split(attention.k_proj(x)), at)  # (B, H, S, D)
    scores = q @ k.mT / q.shape[-1] ** 0.5  # (B, H, T, S)
    return scores.masked_fill(~causal_mask(len(at)), -torch.inf).softmax(-1).mean(0)


class Determined(NamedTuple):
    """Stories, their ids (B, T + 1), and where a determined word comes next (B, T), by kind."""

    stories: list[Story]
    ids: Tensor
    before: dict[str, Tensor]


def determined(tokenizer: Any, kinds: Sequence[str], n: int, seed: int) -> Determined:
    """n new stories, with the words of these kinds that are determined by earlier ones.

    The line end before a story is at 0. After its end the ids are 0 and nothing is marked.
    """
    generator = Generator().manual_seed(seed)
    stories = [storyworld.story(generator) for _ in range(n)]
    read = [torch.tensor(tokenizer.encode("\n" + story.text)) for story in stories]
    before = {}
    for kind in kinds:
        marks = [torch.tensor([each == kind for each in story.kinds]) for story in stories]
        before[kind] = pad_sequence(marks, batch_first=True)
    return Determined(stories, pad_sequence(read, batch_first=True), before)


def fractions_right(
    model: TransformerLM, ids: Tensor, before: Mapping[str, Tensor]
) -> dict[str, float]:
    """For each kind, how often the most probable word of a model is the right one."""
    with torch.no_grad():
        hits = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]  # (B, T)
    return {kind: hits[mark].double().mean().item() for kind, mark in before.items()}


def largest_difference_of_ablations(
    model: TransformerLM, ids: Tensor, before: Mapping[str, Tensor]
) -> float:
    """The largest difference, over all heads and kinds, between the fractions of right words with 0
    in the place of a head's mixture and with its mean over all words.
    """
    caught = capture(model, ids[:20, :-1])
    largest = 0.0
    for layer in range(model.config.n_layers):
        mean = caught.inputs[f"blocks.{layer}.attention.o_proj"].mean((0, 1))  # (C)
        for head, part in enumerate(mean.chunk(model.config.n_heads)):
            rows = part.expand(ids.shape[1], -1)
            with intervene(model, silence=[(layer, head)]):
                zero = fractions_right(model, ids, before)
            with intervene(model, means={(layer, head): rows}):
                average = fractions_right(model, ids, before)
            largest = max(largest, *(abs(zero[kind] - average[kind]) for kind in before))
    return largest


def added_to_names(
    model: TransformerLM, tokenizer: Any, seeds: Sequence[int], n: int = 60
) -> dict[tuple[int, int], tuple[float, list[float]]]:
    """For each head (layer, head), just before the names of stories: how often it looks most at a
    name, and then by how much its part of the sum raises the logit of this name, directly, the mean
    of each set of stories.

    Directly: the part is taken out of the stream after the last block, so no later layer sees it.
    """
    names = ids_of_words(tokenizer, storyworld.CLASSES["name"])
    often: dict[tuple[int, int], list[float]] = defaultdict(list)
    means: dict[tuple[int, int], list[float]] = defaultdict(list)
    for seed in seeds:
        _, ids, before = determined(tokenizer, ["name"], n, seed)
        for head, added in _added(model, ids, before["name"], names).items():
            often[head].append(len(added) / before["name"].sum().item())
            means[head].append(added.mean().item())
    return {head: (min(often[head]), means[head]) for head in often}


@torch.no_grad()
def _added(
    model: TransformerLM, ids: Tensor, at: Tensor, names: Tensor
) -> dict[tuple[int, int], Tensor]:
    """What each head adds to the logit of the name that it looks at most, at those of the marked
    words (B, T) where it does.
    """
    caught = capture(model, ids[:, :-1])  # some hundred MB, which no second one adds to
    heads = product(range(model.config.n_layers), range(model.config.n_heads))
    return {head: _added_by(model, caught, ids, at, names, *head) for head in heads}


def _added_by(
    model: TransformerLM,
    caught: Any,
    ids: Tensor,
    at: Tensor,
    names: Tensor,
    layer: int,
    head: int,
) -> Tensor:
    """The same of one head, (N)."""
    looks = caught.attention(layer).weights[:, head]  # (B, T, S)
    seen = ids.gather(1, looks.argmax(-1))  # (B, T)
    at = at & torch.isin(seen, names)  # (B, T)
    n_heads = model.config.n_heads
    mixture = caught.inputs[f"blocks.{layer}.attention.o_proj"].chunk(n_heads, -1)[head]
    weight = model.blocks[layer].attention.o_proj.weight.chunk(n_heads, -1)[head]  # (C, D)
    stream = caught.inputs["final_norm"][at] - mixture[at] @ weight.T  # (N, C)
    added = caught.logits[at] - model.lm_head(model.final_norm(stream))  # (N, V)
    return added.gather(-1, seen[at][:, None])[:, 0]


def reshaped(
    x: Tensor, weights: Sequence[Tensor], n_heads: int, in_split: bool, in_merge: bool
) -> tuple[float, float]:
    """What a layer does that only reshapes in the split, or in the merge, without a transpose: how
    far a change of the last word moves earlier results, and a change of the first word the last
    result.

    x (B, T, C). weights: those of q, k and v, (C, C) each.
    """

    def run(x: Tensor) -> Tensor:
        cut = []
        for weight in weights:
            features = (x @ weight.T).unflatten(-1, (n_heads, -1))  # (B, T, H, D)
            moved = features.transpose(1, 2)  # (B, H, T, D)
            cut.append(features.reshape(moved.shape) if in_split else moved)
        found = attend(*cut, causal=True)  # (B, H, T, D)
        return (found if in_merge else found.transpose(1, 2)).reshape(x.shape)

    moves = []
    for changed, results in ((-1, slice(0, -1)), (0, slice(-1, None))):
        other = x.clone()
        other[:, changed] += 1
        moves.append((run(other) - run(x))[:, results].abs().max().item())
    return moves[0], moves[1]
