"""What a choice does before and early in training: the bytes of the activations, the growth of the
stream, and norms whose gains are drawn at random.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tinylm_lib import ModelConfig, TransformerLM, preset

from ..shapes.capture import capture

_LAYERS = 12
_UPDATES = 51


def kept_bytes(config: ModelConfig, n_texts: int, length: int) -> int:
    """What the backward pass keeps of the forward pass, in bytes, counted on the meta device,
    without a fused attention kernel.
    """
    with torch.device("meta"):
        lm = TransformerLM(config)
        no_tokens = torch.zeros(n_texts, length, dtype=torch.long)
    own = {x.untyped_storage()._cdata for x in [*lm.parameters(), *lm.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage()._cdata] = x.untyped_storage()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        cross_entropy(lm(no_tokens).flatten(0, 1), no_tokens.flatten())
    return sum(storage.nbytes() for key, storage in kept.items() if key not in own)


def stream_sizes(init: str, seed: int) -> list[float]:
    """The standard deviation of the stream of an untrained model before its first layer and after
    each of 12.
    """
    torch.manual_seed(seed)
    sizes = {"vocab_size": 200, "d_model": 128, "n_heads": 4, "n_layers": _LAYERS}
    lm = TransformerLM(preset("gpt", **sizes, tie_embeddings=False, init=init))
    outputs = capture(lm, torch.randint(200, (2, 16))).outputs
    depths = ("position", *(f"blocks.{i}" for i in range(_LAYERS)))
    return [outputs[depth].std().item() for depth in depths]


class Overfitted(NamedTuple):
    """The loss of the first and of the last update, and the size of the embedding's gradient in the
    first.
    """

    first: float
    last: float
    gradient: float


def overfit(
    config: ModelConfig, batch: Tensor, *, spoiled: bool, seed: int, rate: float = 0.003
) -> Overfitted:
    """Overfits one batch (B, T + 1) in 51 updates.

    spoiled: all parameters are drawn from N(0, 0.02^2), also the gains of the norms.
    """
    torch.manual_seed(seed)
    lm = TransformerLM(config)
    if spoiled:
        for p in lm.parameters():
            nn.init.normal_(p, std=0.02)
    optimizer = torch.optim.AdamW(lm.parameters(), lr=rate)
    losses = []
    gradients = []
    for _ in range(_UPDATES):
        loss = cross_entropy(lm(batch[:, :-1]).mT, batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        gradients.append(lm.embed.weight.grad.norm().item())
        optimizer.step()
        losses.append(loss.item())
    return Overfitted(losses[0], losses[-1], gradients[0])


def repeats(scaled: bool, seed: int) -> tuple[float, float, float]:
    """How often an untrained tied model says the token again that it has just read, its loss on the
    next token, and its loss on the token itself; scaled: its embeddings times the root of C.
    """
    torch.manual_seed(seed)
    lm = TransformerLM(preset("tiny_transformer", n_layers=2, scale_embeddings=scaled)).eval()
    ids = torch.randint(lm.config.vocab_size, (2, 16))  # (B, T)
    with torch.no_grad():
        logits = lm(ids)  # (B, T, V)
    again = (logits.argmax(-1) == ids).double().mean().item()
    on_next = cross_entropy(logits[:, :-1].mT, ids[:, 1:]).item()
    return again, on_next, cross_entropy(logits.mT, ids).item()
