"""The whole model: blocks, initial weights and the language model itself. Notebooks 09 and 10."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .attention import Attention
from .cache import KVCache
from .config import BLOCKS, INITS, ModelConfig
from .feedforward import feed_forward
from .inputs import check_ids, check_padding
from .layers import NORMS, Embedding, Linear, dropout, pick, truncated_normal_, values_at_hand
from .positions import POSITIONS, LearnedPosition, Positions


class PreNormBlock(nn.Module):
    """Each sublayer reads a normalised copy of the stream and adds to the stream itself.

    Source: Xiong et al. 2020, figure 1b.
    """

    final_norm = True

    def __init__(self, config: ModelConfig, rotation: nn.Module | None = None):
        super().__init__()
        norm = pick(NORMS, config.norm, "norm")
        self.attn_norm = norm(config.d_model, config.norm_eps)
        self.attention = Attention(config, rotation)
        self.ffn_norm = norm(config.d_model, config.norm_eps)
        self.ffn = feed_forward(config)
        self.dropout = dropout(config.residual_dropout)

    def forward(
        self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None
    ) -> Tensor:
        """x (B, T, C). positions, extend: as in Attention. Returns (B, T, C)."""
        x = x + self.dropout(self.attention(self.attn_norm(x), positions, extend))  # (B, T, C)
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # (B, T, C)


class PostNormBlock(PreNormBlock):
    """Each sublayer reads the stream itself, and the sum is normalised.

    Source: Vaswani et al. 2017, section 3.1.
    """

    final_norm = False

    def forward(
        self, x: Tensor, positions: Tensor | Positions, extend: Callable | None = None
    ) -> Tensor:
        """x (B, T, C). positions, extend: as in Attention. Returns (B, T, C)."""
        x = self.attn_norm(x + self.dropout(self.attention(x, positions, extend)))  # (B, T, C)
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # (B, T, C)


BLOCKS |= {"pre_norm": PreNormBlock, "post_norm": PostNormBlock}


class NormalInit:
    """N(0, init_std^2) for every matrix.

    Norms start at gain 1, biases at 0, here and in all other ways.
    """

    def __init__(self, config: ModelConfig):
        self.std = config.init_std
        self.n_residual = 2 * config.n_layers

    def linear(self, weight: Tensor) -> None:
        """Fill the weight (out, in) of a linear map."""
        nn.init.normal_(weight, std=self.std)

    def embedding(self, weight: Tensor) -> None:
        """Fill the token embedding (V, C)."""
        nn.init.normal_(weight, std=self.std)

    def position(self, weight: Tensor) -> None:
        """Fill the learned positions (max_seq_len, C)."""
        nn.init.normal_(weight, std=self.std)

    def residual(self, weight: Tensor) -> None:
        """Fill the weight (C, in) of a map that writes to the residual stream."""
        self.linear(weight)


class CS336Init(NormalInit):
    """Linear N(0, 2 / (in + out)), embedding N(0, 1), both cut off at three standard deviations."""

    def linear(self, weight: Tensor) -> None:
        """Fill the weight (out, in) of a linear map."""
        truncated_normal_(weight, std=math.sqrt(2 / sum(weight.shape)))

    def embedding(self, weight: Tensor) -> None:
        """Fill the token embedding (V, C)."""
        truncated_normal_(weight, std=1.0)


class XavierInit(NormalInit):
    """Linear U(-a, a) with a = sqrt(6 / (in + out)).

    Source: Glorot and Bengio 2010, equation 16.
    """

    def linear(self, weight: Tensor) -> None:
        """Fill the weight (out, in) of a linear map."""
        nn.init.xavier_uniform_(weight)


class KaimingInit(NormalInit):
    """Linear N(0, 2 / in). Source: He et al. 2015, "Delving Deep into Rectifiers", equation 10."""

    def linear(self, weight: Tensor) -> None:
        """Fill the weight (out, in) of a linear map."""
        nn.init.kaiming_normal_(weight, nonlinearity="relu")


class GPT2Init(NormalInit):
    """N(0, init_std^2), positions half of that, and maps into the stream smaller by 1 / sqrt(n).

    n: the number of such maps.
    Source: Radford et al. 2019, section 2.3; the released code for the positions (0.01).
    """

    def position(self, weight: Tensor) -> None:
        """Fill the learned positions (max_seq_len, C)."""
        nn.init.normal_(weight, std=self.std / 2)

    def residual(self, weight: Tensor) -> None:
        """Fill the weight (C, in) of a map that writes to the residual stream."""
        nn.init.normal_(weight, std=self.std / math.sqrt(self.n_residual))


class ZeroResidualInit(NormalInit):
    """Linear N(0, 1 / in), and 0 for maps into the stream: every block starts as the identity.

    Source: Zhang, Dauphin and Ma 2019, "Fixup Initialization", section 3 (the zero).
    """

    def linear(self, weight: Tensor) -> None:
        """Fill the weight (out, in) of a linear map."""
        nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def residual(self, weight: Tensor) -> None:
        """Fill the weight (C, in) of a map that writes to the residual stream."""
        nn.init.zeros_(weight)


INITS |= {
    "cs336": CS336Init,
    "normal": NormalInit,
    "xavier": XavierInit,
    "kaiming": KaimingInit,
    "gpt2": GPT2Init,
    "zero_residual": ZeroResidualInit,
}


class TransformerLM(nn.Module):
    """A decoder-only language model: token ids in, a row of logits per position out.

    recompute: set it to keep only each block's input for the backward pass, and compute the rest
    again there.
    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 3.
    """

    recompute = False

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        block = pick(BLOCKS, config.block, "block")
        added, rotated = pick(POSITIONS, config.position, "position")
        rotation = rotated.from_config(config)
        self.embed = Embedding(config.vocab_size, config.d_model)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.position = added.from_config(config)
        self.dropout = dropout(config.embedding_dropout)
        self.blocks: Any = nn.ModuleList(block(config, rotation) for _ in range(config.n_layers))
        norm = pick(NORMS, config.norm, "norm") if block.final_norm else nn.Identity
        self.final_norm = norm(config.d_model, config.norm_eps)
        self.lm_head = None if config.tie_embeddings else Linear(config.d_model, config.vocab_size)
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Fill all weights again as config.init says, from torch's global generator."""
        init = pick(INITS, self.config.init, "init")(self.config)
        if self.embed.weight.is_meta:  # torch would import its compiler to find no numbers to fill
            return
        residual = []
        for block in self.blocks:
            residual += [block.attention.o_proj.weight, block.ffn.down_proj.weight]
        for module in self.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
            if isinstance(module, Linear):
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
                if not any(module.weight is w for w in residual):
                    init.linear(module.weight)
        for weight in residual:
            init.residual(weight)
        init.embedding(self.embed.weight)
        if isinstance(self.position, LearnedPosition):
            init.position(self.position.weight)

    def forward(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        padding: Tensor | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """Logits for the token after each position. Never probabilities.

        ids (B, T), integers in 0..V-1. cache: holds the earlier positions; the new ones are added
        to it.
        padding (B,): how many ids of each sequence, from its first in the cache on, are padding. No
        token looks at them, positions are counted from the id after them, and their own logits mean
        nothing.
        last_only: logits after the last position alone, all that writing needs; the others would
        cost T times the head.
        Returns (B, T, V), or (B, 1, V) with last_only.
        Raises TypeError for ids that are not integers, ValueError for a wrong shape, ids and
        padding out of range (seen on CPU only) and a sequence longer than max_seq_len or the cache.
        """
        check_ids(ids, self.config.vocab_size, values=values_at_hand(ids))
        start = 0 if cache is None else cache.length
        T = ids.shape[1]
        if start + T > self.config.max_seq_len:
            raise ValueError(
                f"{start + T} positions exceed max_seq_len {self.config.max_seq_len}; "
                f"shorten the input or build the model with a larger max_seq_len"
            )
        at = torch.arange(start, start + T, device=ids.device)  # (T)
        mask = None
        if padding is not None:
            longest = T if cache is None else cache.max_len
            check_padding(padding, len(ids), longest, values=values_at_hand(padding))
            keys = torch.arange(start + T, device=ids.device)  # (S)
            mask = (keys >= padding[:, None])[:, None, None]  # (B, 1, 1, S)
            at = (at - padding[:, None]).clamp_min(0)  # (B, T)
        x = self.embed(ids) * self.embed_scale  # (B, T) -> (B, T, C)
        x = self.dropout(self.position(x, at))  # (B, T, C)
        positions = Positions(at, self.blocks[0].attention.rotation.rows(at), mask)
        for i, block in enumerate(self.blocks):
            extend = None if cache is None else partial(cache.extend, i)
            x = self._run(block, x, positions, extend)  # (B, T, C)
        if cache is not None:
            cache.length += T
        return self.unembed(self.final_norm(x[:, -1:] if last_only else x))

    def unembed(self, x: Tensor) -> Tensor:
        """What the model says of a normalised stream: x (..., C). Returns logits (..., V)."""
        head = self.embed if self.lm_head is None else self.lm_head
        return F.linear(x, head.weight)

    def _run(
        self, block: nn.Module, x: Tensor, positions: Positions, extend: Callable | None
    ) -> Tensor:
        if self.recompute and self.training and extend is None:
            return checkpoint(block, x, positions, None, use_reentrant=False)
        return block(x, positions, extend)
