"""How large a model's vectors are in front of its final norm, next to how sure it is."""

from typing import Any

import torch
from torch import Tensor

from tinylm_lib import storyworld
from tinylm_lib.model import TransformerLM

from ..shapes.capture import capture


def sizes_and_surest(
    model: TransformerLM, tokenizer: Any, seed: int, n_stories: int = 40, n_tokens: int = 80
) -> tuple[Tensor, Tensor]:
    """Reads new stories of StoryWorld. Returns for each position (n_stories * n_tokens): the root
    mean square of its vector in front of the final norm, and the highest probability after it.

    n_tokens: the first of each story, which must have as many.
    """
    generator = torch.Generator().manual_seed(seed)
    texts = ["\n" + storyworld.story(generator).text for _ in range(n_stories)]
    ids = torch.tensor([tokenizer.encode(text)[:n_tokens] for text in texts])  # (B, T)
    caught = capture(model, ids)
    sizes = caught.inputs["final_norm"].square().mean(-1).sqrt()  # (B, T)
    return sizes.flatten(), caught.logits.softmax(-1).amax(-1).flatten()
