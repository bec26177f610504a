"""Lesson 10: the whole model: how much it holds, and its last step."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ...config import ModelConfig
from ...presets import preset
from .base import Exercise, Probe, texts

VECTORS = {"rms": 1, "layer": 2}  # of C parameters each, in a norm
MATRICES = {"swiglu": 3, "gelu": 2}  # in a feed-forward
TABLES = {"learned": "learned", "sinusoidal": "computed"}  # of positions


def count_parameters(config: ModelConfig, on: frozenset[str] = frozenset()) -> int:
    """All parameters of the model that the config describes, and the mistakes that are `on`."""
    C, V = config.d_model, config.vocab_size
    norm = _norm(config, on)
    n_norms = 0 if "no norms" in on or "no norms in blocks" in on else 1 if "one norm" in on else 2
    block = _attention(config, on) + _ffn(config, on) + n_norms * norm
    total = block if "one layer" in on else config.n_layers * block
    if "no final norm" not in on and "no norms" not in on:
        total += C if "final gain only" in on else norm
    if "no embedding" not in on:
        total += V * C
    tied = config.tie_embeddings != ("tied the wrong way" in on)
    if "tied counts twice" in on or not (tied or "no head" in on):
        total += V * C + ("head bias" in on) * V
    if "tied counts nothing" in on and config.tie_embeddings:
        total -= V * C
    if "rule of thumb" in on:
        return V * C + config.n_layers * 12 * C**2
    table = (V if "a position per token" in on else config.max_seq_len) * C
    kind = TABLES.get(config.position)
    if kind == "learned":
        total += 0 if "no positions" in on else config.n_layers * table if "positions in each block" in on else table
    elif "every position is a table" in on or ("sinusoids" in on and kind == "computed"):
        total += table
    return total


def _norm(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of one norm over the stream."""
    offset = VECTORS[config.norm] == 2 and "no offset" not in on
    return (2 if offset or "always an offset" in on else 1) * config.d_model


def _attention(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of one attention: four matrices, their biases, the norms of queries and keys."""
    C, D, H, G = config.d_model, config.d_head, config.n_heads, config.n_kv_heads
    if "no groups" in on:
        G = H
    if "one group" in on:
        G = 1
    if "one head" in on:
        G = H = 1
    keys_values = C * G * D if "keys or values" in on else 2 * C * (H if "square maps" in on else G) * D
    n_full = 1 if "no output projection" in on else 2
    size = n_full * C * D * (G if "groups everywhere" in on else H) + keys_values
    if "heads multiply" in on:
        size *= H
    if "no attention bias" not in on:
        grouped = H if "bias as wide as the queries" in on else G
        size += config.qkv_bias * (H + 2 * grouped) * D
        size += (config.qkv_bias if "one flag" in on else config.o_bias) * ("no output bias" not in on) * C
    if config.qk_norm and "no query norm" not in on:
        size += (H + G) * D if "a query norm per head" in on else D if "one query norm" in on else 2 * D
    return size


def _ffn(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of one feed-forward."""
    C, inner = config.d_model, config.d_ff
    if "four times" in on:
        inner = 4 * C
    gated = MATRICES.get(config.ffn, 2) == 3
    n_matrices = 2 if "no gate" in on else 3 if gated or "always a gate" in on else 2
    n_inner = 2 if gated and "one inner bias" not in on else 1
    bias = n_inner * inner + ("no second bias" not in on) * C
    if "two wide biases" in on:
        bias = 2 * inner
    has_bias = not gated if "gelu means bias" in on else config.ffn_bias
    return n_matrices * C * inner + (has_bias and "no ffn bias" not in on) * bias


SMALL = {"vocab_size": 11, "d_model": 12, "n_layers": 5, "n_heads": 3, "max_seq_len": 7, "d_ff": 20}


def _counted(holds: str, name: str, size: str | None = None, **fields: Any) -> Probe:
    """A probe on a preset; whole numbers of any type are the same, and all digits count."""
    return Probe(
        holds,
        lambda g: (preset(name, size, **fields),),
        sees=lambda _, n: int(n) if isinstance(n, float) and n.is_integer() else n,
        tolerance=0.0,
    )


COUNT_PARAMETERS = Exercise(
    name="count_parameters",
    lesson="10",
    reference=count_parameters,
    probes=(
        _counted("a block of SwiGLU has seven matrices and two gains", "cs336", **{**SMALL, "n_layers": 1}),
        _counted("all blocks count, each with parameters of its own", "cs336", **SMALL),
        _counted("a tied head is the embedding, and adds nothing", "cs336", **SMALL, tie_embeddings=True),
        _counted("LayerNorm has gains and offsets, GELU two matrices, a table its rows", "gpt", **SMALL),
        _counted("the flags say which biases there are", "gpt", **SMALL, ffn_bias=False),
        _counted("with ffn_bias each matrix of SwiGLU has one, too", "cs336", **SMALL, ffn_bias=True),
        _counted("an untied head counts in every family", "gpt", **SMALL, tie_embeddings=False),
        _counted("sinusoids are computed, not learned", "tiny_transformer", **SMALL),
        _counted("GPT-2 has a bias in every linear map but the head", "gpt2", **SMALL),
        _counted("a norm of queries or keys is as wide as one head", "modern", **SMALL),
        _counted(
            "grouped queries shrink the keys and values alone",
            "llama",
            **{**SMALL, "d_model": 24, "n_heads": 6},
            n_kv_heads=2,
        ),
        _counted(
            "biases of keys and values shrink, too",
            "llama",
            **{**SMALL, "d_model": 24, "n_heads": 6},
            n_kv_heads=2,
            qkv_bias=True,
            tie_embeddings=True,
        ),
        # No larger ones: a learner may build the model and count, in time and memory.
        _counted(
            "a d_ff that nobody gave is in the config, too",
            "cs190c",
            **{**SMALL, "d_model": 50, "n_heads": 5, "d_ff": None},
        ),
        _counted("a GPT of 4 blocks has 5,846,528", "gpt", "example"),
        _counted("the tiny model with sinusoids has 132,096", "tiny_transformer", "tiny"),
        _counted("the small one has 723,072", "tiny_transformer", "small"),
    ),
    **texts("count_parameters"),
)


def tied_logits(x: Tensor, embedding_weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """One score per token: x (..., C) against each row of embedding_weight (V, C), and the mistakes that are `on`."""
    weight, C = embedding_weight, x.shape[-1]
    if "cut" in on:
        weight = weight.detach()
    if "unit rows" in on:
        weight = F.normalize(weight, dim=-1)
    x = _spoilt(x, on)
    if "not transposed" in on:
        return x @ weight
    other = weight.reshape(C, -1) if "reshaped" in on else weight.mT
    logits = x @ other
    if "divided" in on:
        logits = logits / C**0.5
    if "multiplied" in on:
        logits = logits * C**0.5
    if "summed batch" in on and x.ndim > 2:
        logits = logits.sum(0)
    if "tokens first" in on:
        logits = logits.movedim(-1, -2) if x.ndim > 1 else logits
    if "one row" in on and x.ndim > 1:
        logits = logits.reshape(-1, weight.shape[0])
    if "maximum taken off" in on:
        logits = logits - logits.amax(-1, keepdim=True)
    if "capped" in on:
        logits = 30 * (logits / 30).tanh()
    if "distance" in on:
        return -torch.cdist(x.reshape(-1, C), weight).reshape(*x.shape[:-1], -1)
    if "shares" in on:
        return logits.softmax(-1)
    if "log shares" in on:
        return logits.log_softmax(-1)
    return logits.argmax(-1) if "best token" in on else logits


def _spoilt(x: Tensor, on: frozenset[str]) -> Tensor:
    """What mistakes do to x before the product."""
    if "half cut" in on:
        x = x.detach()
    if "unit vectors" in on:
        x = F.normalize(x, dim=-1)
    if "centred" in on:
        x = x - x.mean(-1, keepdim=True)
    if "normalized first" in on:
        x = F.rms_norm(x, x.shape[-1:])
    return x[..., -1, :] if "last position" in on and x.ndim > 1 else x


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


TIED_LOGITS = Exercise(
    name="tied_logits",
    lesson="10",
    reference=tied_logits,
    probes=(
        Probe(
            "one dot product per token",
            lambda g: (torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0], [-1.0, 0.0]])),
        ),
        Probe("one vector gives V scores", lambda g: (_normal(g, 4), _normal(g, 6, 4))),
        Probe("every position has its scores", lambda g: (_normal(g, 5, 4), _normal(g, 7, 4))),
        Probe("any leading dimensions", lambda g: (_normal(g, 2, 3, 4), _normal(g, 7, 4))),
        Probe("any leading dimensions", lambda g: (_normal(g, 2, 3, 5, 4), _normal(g, 7, 4))),
        Probe("rows stay tokens, as many as features", lambda g: (_normal(g, 2, 3, 5), _normal(g, 5, 5))),
        Probe("fewer tokens than features", lambda g: (_normal(g, 2, 3, 8), _normal(g, 5, 8))),
        Probe("scores may be large", lambda g: (30 * _normal(g, 3, 4), 30 * _normal(g, 7, 4))),
        Probe("a vector of zeros has scores of zero", lambda g: (torch.zeros(2, 4), _normal(g, 7, 4))),
        Probe("any strides", lambda g: (_normal(g, 4, 3, 2).transpose(0, 2), _normal(g, 4, 7).mT)),
        Probe("gradients reach x and the embedding", lambda g: (_normal(g, 2, 3, 4), _normal(g, 7, 4)), gradients=True),
        Probe("fp64 stays fp64", lambda g: (_normal(g, 2, 3, 4).double(), _normal(g, 7, 4).double())),
    ),
    **texts("tied_logits"),
)

EXERCISES = (TIED_LOGITS, COUNT_PARAMETERS)
