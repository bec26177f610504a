"""Which attention heads find the word that determines the next one, against StoryWorld's ground
truth.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tinylm_lib.model import TransformerLM
from tinylm_lib.storyworld.stories import Story

from ..shapes.capture import capture


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
