"""Models that read with other positions than those of their training: other starts, longer texts,
fewer keys in view, and pairs that do not rotate.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tinylm_lib import storyworld
from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import Positions
from tinylm_lib.presets import preset

from ..shapes.capture import capture


def random_model(tokenizer: Any, position: str, n_layers: int, seed: int) -> TransformerLM:
    """A small model with random weights and the vocabulary of the tokenizer."""
    torch.manual_seed(seed)
    sizes = {"n_layers": n_layers, "max_seq_len": 64, "init": "xavier", "init_std": 0.5}
    config = preset("modern", vocab_size=tokenizer.vocab_size, position=position, **sizes)
    return TransformerLM(config).eval()


@torch.no_grad()
def difference(model: TransformerLM, ids: Tensor, other: Tensor) -> float:
    """The largest difference between the logits for the next token after two texts (1, T)."""
    return (model(ids) - model(other))[0, -1].abs().max().item()


def last_looks(
    model: TransformerLM, tokenizer: Any, *texts: Tensor
) -> tuple[list[list[str]], list[list[float]]]:
    """The words of each text (1, T), and the attention weights of its last word in layer 0."""
    words = [
        [tokenizer.decode([i]).strip() or "line end" for i in text[0].tolist()] for text in texts
    ]
    looks = [capture(model, text).attention(0).weights[0, 0, -1].tolist() for text in texts]
    return words, looks


def mean_map(model: TransformerLM, length: int = 32) -> Tensor:
    """The mean attention weights (T, S) of layer 0 over 64 texts of random tokens."""
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(model.config.vocab_size, (64, length), generator=generator)
    return capture(model, texts).attention(0).weights.mean((0, 1))


def with_config(model: TransformerLM, **changes: Any) -> TransformerLM:
    """A model with the same weights and another config, such as a longer table of positions."""
    other = TransformerLM(replace(model.config, **changes)).eval()
    other.load_state_dict(model.state_dict())
    return other


def story_texts(tokenizer: Any, seed: int, n_tokens: int = 513) -> Tensor:
    """Texts of so many tokens from new stories: (24, n_tokens), each from a line end on."""
    ids = torch.tensor(tokenizer.encode("\n" + storyworld.corpus(140, seed=seed)))
    line_ends = (ids == ids[0]).nonzero()[:120:5, 0]
    return torch.stack([ids[start : start + n_tokens] for start in line_ends.tolist()])


@torch.no_grad()
def losses_at(
    model: TransformerLM, texts: Tensor, start: int = 0, mask: Tensor | None = None
) -> Tensor:
    """The loss of each next token of texts (B, T + 1), read at the positions from `start` on.

    mask: bool (T, T), True = allowed; no later key is allowed in any case.
    Returns (B, T), in nats.
    """
    logits = _logits(model, texts[:, :-1], start, mask)  # (B, T, V)
    return cross_entropy(logits.mT, texts[:, 1:], reduction="none")  # (B, T)


def loss(model: TransformerLM, texts: Tensor, start: int = 0, mask: Tensor | None = None) -> float:
    """The mean of `losses_at`, in nats per token."""
    return losses_at(model, texts, start, mask).mean().item()


def added(model: TransformerLM, texts: Tensor, pairs: Iterable[int]) -> tuple[float, float]:
    """How many nats per token are added if these pairs are stopped, and if they are removed."""
    pairs = list(pairs)
    with_all = loss(model, texts)
    stopped = change_pairs(model, stopped=pairs)
    removed = change_pairs(model, removed=pairs)
    return loss(stopped, texts) - with_all, loss(removed, texts) - with_all


@torch.no_grad()
def right_at(
    model: TransformerLM, back: int, length: int = 64, mask: Tensor | None = None
) -> Tensor:
    """For each position from `back` on, how often the model names the token `back` positions
    earlier, in 256 texts of random tokens. mask: as in `losses_at`. Returns (length - back).
    """
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(model.config.vocab_size, (256, length), generator=generator)
    guesses = _logits(model, texts, 0, mask).argmax(-1)  # (B, T)
    return (guesses[:, back:] == texts[:, :-back]).float().mean(0)


def _logits(model: TransformerLM, ids: Tensor, start: int, mask: Tensor | None) -> Tensor:
    """The logits (B, T, V) of ids (B, T) at the positions from `start` on."""
    at = torch.arange(start, start + ids.shape[1])
    x = model.position(model.embed(ids) * model.embed_scale, at)  # (B, T) -> (B, T, C)
    for block in model.blocks:
        x = block(x, Positions(at, mask=mask))  # (B, T, C)
    return model.unembed(model.final_norm(x))


def change_pairs(
    model: TransformerLM, stopped: Iterable[int] = (), removed: Iterable[int] = ()
) -> TransformerLM:
    """A copy whose heads do not rotate the pairs `stopped`, and whose scores lack the pairs
    `removed`, in all layers: for a model with rotary positions and norms of queries.
    """
    changed = deepcopy(model)
    with torch.no_grad():
        for block in changed.blocks:
            rotation = block.attention.rotation
            for pair in stopped:
                both = _numbers(rotation, pair)
                rotation.cos[:, both] = 1.0
                rotation.sin[:, both] = 0.0
            for pair in removed:
                block.attention.q_norm.weight[_numbers(rotation, pair)] = 0.0  # its gains
    return changed


def _numbers(rotation: Any, pair: int) -> list[int]:
    """Which two numbers of a vector are this pair, in the layout of the rotation."""
    numbers = torch.arange(rotation.d_head).unflatten(-1, rotation.unfolded)
    return numbers.movedim(rotation.pair, -1)[pair].tolist()
