"""What a film keeps of one forward pass, for every architecture: the parts fit together as the model defines them."""

import pytest
import torch
from support.models import MODELS, rounding, scrambled, tiny

from tinylm_classroom.live.film import film

IDS = torch.tensor([5, 1, 4, 1, 9, 2, 6])


@pytest.mark.parametrize("name", MODELS)
def test_what_a_film_keeps_is_what_the_model_computes(name):
    model = scrambled(tiny(name))
    c, found = model.config, film(model, IDS)
    T, L, H, G, D = len(IDS), c.n_layers, c.n_heads, c.n_kv_heads, c.d_head
    shapes = {
        "stream": (2 * L + 1, T, c.d_model), "lengths": (2 * L + 1, T), "normed": (L, T, c.d_model),
        "normed_lengths": (L, T), "queries": (L, H, D), "scores": (L, H, T), "weights": (L, H, T), "mixed": (L, H, D),
        "keys": (L, G, T, D), "values": (L, G, T, D), "gated": (L, T, c.d_ff), "lens": (2 * L + 1, c.vocab_size),
        "logits": (c.vocab_size,),
    }  # fmt: skip
    assert {part: tuple(x.shape) for part, x in found.items()} == shapes

    def same(seen: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(seen, expected.detach(), atol=rounding(seen, 3), rtol=1e-5)

    same(found["logits"], model(IDS[None])[0, -1])
    same(found["lens"][-1], torch.softmax(found["logits"], dim=-1))
    keys, values = (found[part].repeat_interleave(H // G, dim=1) for part in ("keys", "values"))
    same(found["scores"], torch.einsum("lhd,lhtd->lht", found["queries"], keys) / D**0.5)
    same(found["weights"], torch.softmax(found["scores"], dim=-1))
    same(found["mixed"], torch.einsum("lht,lhtd->lhd", found["weights"], values))
    for layer, block in enumerate(model.blocks):
        reads, attended, after = (found["stream"][2 * layer + step] for step in range(3))
        same(found["normed"][layer], block.attn_norm(reads) if block.final_norm else reads)
        added = block.attention.o_proj(found["mixed"][layer].flatten())
        same(attended[-1], reads[-1] + added if block.final_norm else block.attn_norm(reads[-1] + added))
        added = block.ffn(block.ffn_norm(attended) if block.final_norm else attended)
        same(after, attended + added if block.final_norm else block.ffn_norm(attended + added))
