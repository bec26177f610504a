"""What the rows of an embedding know: which words are near each other, and of which kind."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tinylm_lib.storyworld import sentences

KINDS = ("girl", "boy", "colour", "thing", "place", "trait")


def word_kinds(tokenizer: Any, names: Sequence[str] = KINDS) -> dict[str, Tensor]:
    """The ids of StoryWorld's words of these kinds, {"girls": (n,), ...}."""
    words = {**sentences.CLASSES, "girl": sentences.GIRLS.split(), "boy": sentences.BOYS.split()}
    return {f"{name}s": ids_of_words(tokenizer, words[name]) for name in names}


def ids_of_words(tokenizer: Any, words: Sequence[str]) -> Tensor:
    """The id of each word inside a text, (n,)."""
    return torch.tensor([tokenizer.encode(f" {word}")[0] for word in words])


def nearest_words(table: Tensor, tokenizer: Any, word: str, n: int = 5) -> list[str]:
    """The words whose rows of table (V, C) point most nearly in the direction of that of a word."""
    own = tokenizer.encode(f" {word}")[0]
    near = _cosines(table)[own].topk(n).indices
    return [tokenizer.decode([i]).strip() for i in near.tolist()]


def nearest_is_same(table: Tensor, kinds: Mapping[str, Tensor]) -> float:
    """The fraction of the words whose nearest word among all of these is of the same kind."""
    ids, labels = labelled(kinds)
    nearest = _cosines(table[ids]).argmax(-1)  # (N)
    return (labels[nearest] == labels).double().mean().item()


def labelled(kinds: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The ids of all words (N,), and the number of the kind of each (N,)."""
    labels = [torch.full((len(ids),), at) for at, ids in enumerate(kinds.values())]
    return torch.cat([*kinds.values()]), torch.cat(labels)


def shuffled(kinds: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """The same words in kinds of the same sizes, but drawn at random."""
    ids, _ = labelled(kinds)
    drawn = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    parts = drawn.split([len(members) for members in kinds.values()])
    return dict(zip(kinds, parts, strict=True))


def _cosines(rows: Tensor) -> Tensor:
    """rows (N, C). The cosine of each row with each other one (N, N); less than any with itself."""
    directions = torch.nn.functional.normalize(rows, dim=-1)  # (N, C)
    return (directions @ directions.T).fill_diagonal_(-2)  # (N, C) @ (C, N) -> (N, N)
