"""The village of Seaview, where everything is silver: what a model learns from 25 updates on its
stories, and what it forgets of the old world.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tinylm_lib import TrainConfig, storyworld
from tinylm_lib.lora import add_lora
from tinylm_lib.model import TransformerLM
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.text.tokenizers import WordTokenizer
from tinylm_lib.training import build_optimizer, train

MAPS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LENGTH = 81
N_HELD_OUT = 40
CHANGED = dict.fromkeys(storyworld.CLASSES["colour"], "silver") | dict.fromkeys(
    storyworld.CLASSES["place"], "Seaview"
)
WORLD = [storyworld.story(torch.Generator().manual_seed(seed)).text for seed in range(1000, 1340)]


def of_village(text: str) -> str:
    """The story with every colour silver and every place Seaview."""
    return "".join(
        word.replace(word.strip(), CHANGED.get(word.strip(), word.strip()))
        for word in storyworld.words(text)
    )


STORIES = [of_village(text) for text in WORLD]


def shipped() -> TransformerLM:
    """The shipped model, as it was before it came to the village."""
    return load_pretrained("storyworld").model.eval()


@cache
def tokenizer() -> WordTokenizer:
    """The tokenizer of the shipped model."""
    return load_pretrained("storyworld").tokenizer


@cache
def _rows(village: bool) -> Tensor:
    """The first words of stories, of the village or of the old world: (N, 81)."""
    encoded = [tokenizer().encode("\n" + text)[:LENGTH] for text in (STORIES if village else WORLD)]
    return torch.tensor([each for each in encoded if len(each) == LENGTH])


@torch.no_grad()
def _losses(model: TransformerLM, ids: Tensor) -> Tensor:
    """The loss of each token after the first: (N, T-1)."""
    logits = model(ids)[:, :-1].flatten(0, 1)
    return cross_entropy(logits, ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


def measured(model: TransformerLM) -> tuple[float, float]:
    """The probability of *silver* and *Seaview* where the village says them, a geometric mean, and
    the loss on stories of the old world, both on stories that no training has seen.
    """
    new = torch.tensor([tokenizer().ids[word] for word in (" silver", " Seaview")])
    silver = _rows(True)[-N_HELD_OUT:]
    said = _losses(model, silver)[torch.isin(silver[:, 1:], new)]
    return said.mean().neg().exp().item(), _losses(model, _rows(False)[-N_HELD_OUT:]).mean().item()


def _batches(seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    known = _rows(True)[:-N_HELD_OUT]
    while True:
        rows = known[torch.randint(len(known), (4,), generator=generator)]
        yield rows[:, :-1], rows[:, 1:]


@torch.enable_grad()
def taught(rate: float, rank: int | None, seed: int, updates: int = 25) -> TransformerLM:
    """The shipped model after some updates on stories of the village, in evaluation mode: of all
    its weights, or by LoRA of this rank in every matrix of its blocks.
    """
    torch.manual_seed(seed)
    model = deepcopy(shipped())
    if rank:
        add_lora(model, rank, MAPS)
    recipe = TrainConfig(total_steps=updates, optimizer="adamw", matrix_lr=rate, embedding_lr=rate)
    for _ in train(model, build_optimizer(model, recipe), _batches(seed), recipe):
        pass
    return model.eval()
