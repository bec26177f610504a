"""Everything that moves in one forward pass: what `film.js` computes in a page, computed by the
library.
"""

import torch
from torch import Tensor

from tinylm_lib.layers import evaluation_mode, softmax
from tinylm_lib.model import TransformerLM

from ..shapes.model_steps import values

# what of the last token alone is kept, by the name of the step that returns it
_OF_LAST = {"queries": "rotation.q", "scores": "scores", "weights": "weights", "mixed": "mixed"}


def film(model: TransformerLM, ids: Tensor) -> dict[str, Tensor]:
    """What the parts of a model return for ids (T), on the CPU; L is the number of layers.

    stream (2L + 1, T, C): after the embedding, then after the attention and the feed-forward of
    each block; lengths (2L + 1, T). normed (L, T, C): what attention reads, and normed_lengths
    (L, T). Of the last token queries and mixed (L, H, D), scores and weights (L, H, T). keys and
    values (L, G, T, D), gated (L, T, F), lens (2L + 1, V): the probabilities that final norm and
    head make of the last token at each depth; logits (V).
    """
    batch = ids[None].to(next(model.parameters()).device)
    inside = [values(model, batch, layer) for layer in range(len(model.blocks))]
    first = inside[0]
    places = [first["position"]]
    for block, found in zip(model.blocks, inside, strict=True):
        for sublayer, norm in (("attention", "attn_norm"), ("ffn", "ffn_norm")):
            places.append(found[f"{sublayer}_added" if block.final_norm else norm])
    stream = torch.stack(places)[:, 0]
    reads = [found["attn_norm"] for found in inside]
    if not model.blocks[0].final_norm:  # the norm comes after the addition
        reads = places[:-1:2]
    made = {"stream": stream, "normed": torch.stack(reads)[:, 0]}
    for name, step in _OF_LAST.items():
        made[name] = torch.stack([found[step][0, :, -1] for found in inside])
    made["keys"] = torch.stack([found["rotation.k"][0] for found in inside])
    made["values"] = torch.stack(
        [
            block.attention.split(found["v_proj"])[0]
            for block, found in zip(model.blocks, inside, strict=True)
        ]
    )
    made["gated"] = torch.stack([found["gated"][0] for found in inside])
    made["lengths"] = stream.norm(dim=-1)
    made["normed_lengths"] = made["normed"].norm(dim=-1)
    with evaluation_mode(model), torch.no_grad():
        read = model.unembed(model.final_norm(stream[:, -1]))
    made["lens"] = softmax(read.double(), dim=-1)
    made["logits"] = first["head"][0, -1]
    return {name: x.detach().float().cpu() for name, x in made.items()}
