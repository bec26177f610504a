"""Lesson 10: the whole model: how much it holds, and its last step."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ...config import ModelConfig
from ...presets import preset
from .base import Exercise, Fault, Probe

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
    faults={
        "no embedding": Fault("the embedding is left out", "One row per token: it is a parameter like any other."),
        "tied counts twice": Fault("a tied head is counted", "Tied means: the head is the embedding, the same memory."),
        "tied counts nothing": Fault(
            "a tied embedding is not counted at all", "One of the two is there: it counts once."
        ),
        "no head": Fault("the head is never counted", "Untied, it is a matrix of its own, as large as the embedding."),
        "tied the wrong way": Fault("the head is counted where it is tied", "Look at the condition on tie_embeddings."),
        "head bias": Fault("the head has a bias", "No head here has one: it is one matrix."),
        "no positions": Fault("learned positions are left out", "A table with one row per position is learned."),
        "a position per token": Fault(
            "there are as many positions as tokens", "The table has a row per position: max_seq_len of them."
        ),
        "positions in each block": Fault(
            "each block has its positions", "They are added once, before the first block."
        ),
        "sinusoids": Fault("sinusoidal positions are counted", "A formula gives them; nothing about them is learned."),
        "every position is a table": Fault(
            "every kind of positions is a table",
            "Rotary and sinusoidal positions are computed: only learned ones count.",
        ),
        "one layer": Fault("one block is counted", "The model has n_layers of them, each with its own parameters."),
        "no output projection": Fault(
            "attention has three matrices", "After queries, keys and values: what mixes the heads?"
        ),
        "heads multiply": Fault(
            "every head is as wide as the model",
            "The heads share the width: more heads are narrower, and the count stays.",
        ),
        "no groups": Fault(
            "n_kv_heads is not used", "With fewer key-value heads, two of the four matrices are narrower."
        ),
        "square maps": Fault(
            "all four matrices of attention are C by C",
            "That is right if keys and values have as many heads as queries: n_kv_heads says how many they have.",
        ),
        "one group": Fault("all heads share one key and one value", "n_kv_heads says how many there are."),
        "one head": Fault("one head is counted", "Each head has its part of the matrices."),
        "groups everywhere": Fault(
            "all four matrices shrink with n_kv_heads", "Queries keep all n_heads, and so does their way out."
        ),
        "keys or values": Fault("keys and values share a matrix", "There is one for the keys and one for the values."),
        "no attention bias": Fault(
            "the biases of attention are left out", "qkv_bias and o_bias say whether there are any."
        ),
        "no output bias": Fault("the output projection has no bias", "o_bias says whether it has."),
        "one flag": Fault(
            "one flag is used for all biases of attention", "qkv_bias is about three maps, o_bias about the fourth."
        ),
        "bias as wide as the queries": Fault(
            "all biases are as wide as the queries", "A bias has one number per output: keys and values have fewer."
        ),
        "no query norm": Fault(
            "the norms of queries and keys are left out", "With qk_norm each attention has two small norms more."
        ),
        "a query norm per head": Fault(
            "each head has its own norms", "One norm for all query heads, one for all key heads."
        ),
        "one query norm": Fault("queries and keys share a norm", "There is one for each."),
        "no gate": Fault("SwiGLU has two matrices", "Up, down, and the gate."),
        "always a gate": Fault("every feed-forward has a gate", "GELU's has none: one matrix up and one down."),
        "four times": Fault("d_ff is four times the width", "The config says how wide: d_ff."),
        "no ffn bias": Fault("the biases of the feed-forward are left out", "ffn_bias says whether there are any."),
        "no second bias": Fault(
            "the way down has no bias", "Both maps of the feed-forward have one: d_ff numbers, then d_model."
        ),
        "one inner bias": Fault(
            "SwiGLU has one inner bias", "Two of its matrices end in d_ff numbers, and each has a bias of its own."
        ),
        "two wide biases": Fault(
            "both biases are d_ff wide", "A bias has one number per output; the way down ends at d_model."
        ),
        "gelu means bias": Fault("biases follow from GELU", "ffn_bias alone says whether there are any."),
        "no norms": Fault("no norm is counted", "Gains are parameters, and so are offsets."),
        "no norms in blocks": Fault("the norms of the blocks are left out", "Each block has two."),
        "rule of thumb": Fault(
            "12 C squared per block are counted", "That is a rule of thumb: count what the config says."
        ),
        "one norm": Fault("a block has one norm", "There is one before attention and one before the feed-forward."),
        "no final norm": Fault("the last norm is left out", "There is one more after the blocks."),
        "final gain only": Fault("the last norm has no offset", "It is of the same kind as the others."),
        "no offset": Fault("LayerNorm has only gains", "It has an offset per feature as well."),
        "always an offset": Fault("RMSNorm has offsets", "It has only gains."),
    },
    hints=(
        "Write the parts down: embedding, positions, blocks, last norm, head. Which of them does the config switch off?",
        "A linear map from n to m has n times m weights, and m more with a bias.",
        "Queries are H heads wide, keys and values G heads; a head has d_head numbers.",
        "Compare with a small model that is built: sum the sizes of its `parameters()`, and print them by name.",
    ),
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
    faults={
        "not transposed": Fault(
            "the embedding is not transposed",
            "Its rows are tokens, (V, C): what must meet the C numbers of a vector is a row.",
        ),
        "reshaped": Fault(
            "the embedding is reshaped to (C, V)", "Reshaping keeps the order in memory and tears the rows apart."
        ),
        "shares": Fault(
            "softmax is applied", "Return the logits. Softmax is applied later, once, where probabilities are needed."
        ),
        "log shares": Fault("the logarithms of the probabilities are returned", "Logits are the scores themselves."),
        "divided": Fault(
            "the scores are divided by the root of C", "That belongs to attention; here it is the plain dot product."
        ),
        "multiplied": Fault("the scores are multiplied by the root of C", "Return the plain dot product."),
        "unit rows": Fault("the rows are brought to length 1", "A dot product counts the length of a row as well."),
        "unit vectors": Fault("x is brought to length 1", "A dot product counts its length as well."),
        "normalized first": Fault("x is normalized first", "The last norm comes before this function, not inside."),
        "centred": Fault("the mean of x is taken off", "The last norm comes before this function, not inside."),
        "maximum taken off": Fault(
            "the largest score is taken off", "That is a step of softmax; logits are the scores themselves."
        ),
        "capped": Fault("the scores are squeezed", "Logits have no limit here."),
        "cut": Fault(
            "no gradient reaches the embedding", "Tied, it learns from both of its uses: as input and as output."
        ),
        "half cut": Fault("no gradient reaches x", "Everything before the head learns through x."),
        "last position": Fault(
            "the last position alone is scored", "In training every position predicts its next token."
        ),
        "tokens first": Fault(
            "positions and tokens are exchanged", "The scores of a position belong to the last axis."
        ),
        "one row": Fault("the leading dimensions are merged", "What comes in as (B, T, C) goes out as (B, T, V)."),
        "summed batch": Fault("the texts of a batch are added", "Each text has its own scores."),
        "distance": Fault("distances are computed instead of dot products", "A score is the dot product with a row."),
        "best token": Fault("the best token is returned", "Return all V scores."),
    },
    hints=(
        "The score of a token is the dot product of the vector with that token's row.",
        "All of them at once are one matrix product. Which axis of the embedding must meet the last axis of x?",
    ),
)

EXERCISES = (TIED_LOGITS, COUNT_PARAMETERS)
