"""Lesson 10: the whole model: how much it holds, and its last step."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from tinylm_lib.config import ModelConfig
from tinylm_lib.layers import NORMS
from tinylm_lib.presets import preset

from .base import Exercise, Probe, chosen, slipped, texts
from .speed import GATED

LEARNED = {"none": 0, "rotary": 0, "sinusoidal": 0, "learned": 1}  # tables of positions
TABLES = {**LEARNED, "none": 1, "sinusoidal": 1}  # as some count them


def count_parameters(config: ModelConfig, on: frozenset[str] = frozenset()) -> int:
    """All parameters of the model that the config describes, and the mistakes that are `on`."""
    C = config.d_model
    V = config.vocab_size
    L = config.n_layers
    if "rule of thumb" in on:
        return V * C + L * 12 * C**2
    vectors = NORMS[config.norm].vectors
    norm = C * chosen(on, vectors, {"no offset": lambda: 1, "always an offset": lambda: 2})
    n_norms = chosen(
        on, 2, {"no norms": lambda: 0, "no norms in blocks": lambda: 0, "one norm": lambda: 1}
    )
    block = _attention(config, on) + _ffn(config, on) + n_norms * norm
    last = {"no norms": lambda: 0, "no final norm": lambda: 0, "final gain only": lambda: C}
    untied = 0 if config.tie_embeddings else V * C
    embedding = chosen(
        on, V * C, {"no embedding": lambda: 0, "tied counts nothing": lambda: untied}
    )
    head = {
        "no head": lambda: 0,
        "tied counts twice": lambda: V * C,
        "tied the wrong way": lambda: V * C - untied,
        "head bias": lambda: untied and untied + V,
    }
    blocks = block if "one layer" in on else L * block
    return (
        embedding
        + _positions(config, on)
        + blocks
        + chosen(on, norm, last)
        + chosen(on, untied, head)
    )


def _positions(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of the positions."""
    is_learned = LEARNED[config.position]
    table = config.max_seq_len * config.d_model
    others = {
        "no positions": lambda: 0,
        "a position per token": lambda: is_learned * config.vocab_size * config.d_model,
        "positions in each block": lambda: is_learned * config.n_layers * table,
        "sinusoids": lambda: TABLES[config.position] * table,
        "every position is a table": lambda: table,
    }
    return chosen(on, is_learned * table, others)


def _attention(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of one attention: four matrices, their biases, norms of queries and keys."""
    C = config.d_model
    D = config.d_head
    H = config.n_heads
    G = config.n_kv_heads
    G = chosen(on, G, {"no groups": lambda: H, "one group": lambda: 1, "one head": lambda: 1})
    D = C // H if "d_head from the width" in on else D
    H = 1 if "one head" in on else H
    full = C * H * D  # of queries and the way out
    grouped = C * G * D  # of keys and values
    others = {
        "no output projection": lambda: full + 2 * grouped,
        "keys or values": lambda: 2 * full + grouped,
        "groups in biases only": lambda: 4 * full,
        "square maps": lambda: 4 * C * C,
        "two square maps": lambda: 2 * C * C + 2 * grouped,
        "groups everywhere": lambda: 4 * grouped,
        "heads multiply": lambda: H * (2 * full + 2 * grouped),
    }
    inner = {
        "no attention bias": lambda: 0,
        "no input bias": lambda: 0,
        "bias as wide as the queries": lambda: 3 * H * D,
        "bias as wide as the stream": lambda: C + 2 * G * D,
    }
    outer = {
        "no attention bias": lambda: 0,
        "no output bias": lambda: 0,
        "one flag": lambda: config.qkv_bias * C,
        "output bias as wide as the heads": lambda: config.o_bias * H * D,
    }
    norms = {
        "no query norm": lambda: 0,
        "a query norm per head": lambda: (H + G) * D,
        "one query norm": lambda: D,
        "query norms as wide as the stream": lambda: 2 * C,
    }
    size = chosen(on, 2 * full + 2 * grouped, others) + config.qkv_bias * chosen(
        on, (H + 2 * G) * D, inner
    )
    return size + chosen(on, config.o_bias * C, outer) + config.qk_norm * chosen(on, 2 * D, norms)


def _ffn(config: ModelConfig, on: frozenset[str]) -> int:
    """The parameters of one feed-forward."""
    C = config.d_model
    is_gated = config.ffn in GATED
    inner = 4 * C if "four times" in on else config.d_ff
    others = {
        "no gate": lambda: 2,
        "always a gate": lambda: 3,
        "gelu_tanh with a gate": lambda: {"gelu": 2}.get(config.ffn, 3),
    }
    n_matrices = chosen(on, 3 if is_gated else 2, others)
    n_inner = 1 + chosen(
        on, is_gated, {"one inner bias": lambda: 0, "always two inner biases": lambda: 1}
    )
    biases = {
        "no ffn bias": lambda: 0,
        "no second bias": lambda: n_inner * inner,
        "no inner bias": lambda: C,
        "two wide biases": lambda: (n_inner + 1) * inner,
        "narrow biases": lambda: (n_inner + 1) * C,
    }
    has_bias = not is_gated if "gelu means bias" in on else config.ffn_bias
    return n_matrices * C * inner + has_bias * chosen(on, n_inner * inner + C, biases)


def _counted(holds: str, name: str = "llama", size: str | None = None, **choices: object) -> Probe:
    """A probe on a config; whole numbers of any type are the same, and all digits count."""
    return Probe(
        holds,
        lambda g: (preset(name, size, **choices) if size else ModelConfig(**{**SMALL, **choices}),),
        sees=lambda _, n: int(n) if isinstance(n, float) and n.is_integer() else n,
        tolerance=0.0,
    )


# Each probe adds one choice to a config that came before, so that the first that fails says which.
# None is large: a learner may build the model and count, in time and memory.
SMALL = {"vocab_size": 11, "d_model": 12, "n_layers": 5, "n_heads": 3, "max_seq_len": 7, "d_ff": 20}
GROUPED = {"d_model": 24, "n_heads": 6, "n_kv_heads": 2}

COUNT_PARAMETERS = Exercise(
    name="count_parameters",
    lesson="10",
    reference=count_parameters,
    probes=(
        _counted("a block has seven matrices and two gains", n_layers=1),
        _counted("each block has its own parameters"),
        _counted("an untied head is one more matrix", tie_embeddings=False),
        _counted("LayerNorm has offsets as well as gains", norm="layer"),
        _counted("GELU has two matrices, in both of its forms", ffn="gelu"),
        _counted("GELU has two matrices, in both of its forms", ffn="gelu_tanh"),
        _counted("learned positions are a table", position="learned"),
        _counted("sinusoids are computed, not learned", position="sinusoidal"),
        _counted("qkv_bias gives queries, keys and values a bias each", qkv_bias=True),
        _counted("o_bias gives the output projection a bias", o_bias=True),
        _counted("ffn_bias gives every matrix of the feed-forward a bias", ffn_bias=True),
        _counted(
            "ffn_bias gives every matrix of the feed-forward a bias", ffn="gelu", ffn_bias=True
        ),
        _counted("n_kv_heads makes only keys and values narrower", **GROUPED),
        _counted(
            "n_kv_heads makes the biases of keys and values narrower, too", **GROUPED, qkv_bias=True
        ),
        _counted("qk_norm adds two norms, each as wide as one head", **GROUPED, qk_norm=True),
        _counted("n_heads times d_head may differ from d_model", d_head=6),
        _counted("a bias is as long as the outputs of its matrix", d_head=6, o_bias=True),
        _counted("a bias is as long as the outputs of its matrix", d_head=6, qkv_bias=True),
        _counted("d_ff is always in the config", d_ff=None),
        _counted("a GPT of 4 blocks has 5,846,528 parameters", "gpt", "example"),
        _counted("the tiny model with sinusoids has 132,096", "tiny_transformer", "tiny"),
        _counted("the small model with sinusoids has 723,072", "tiny_transformer", "small"),
    ),
    **texts("count_parameters"),
)


def tied_logits(x: Tensor, embedding_weight: Tensor, on: frozenset[str] = frozenset()) -> Tensor:
    """One score per token: x (..., C) against each row of embedding_weight (V, C), and the mistakes
    that are `on`.
    """
    C = x.shape[-1]
    weight = slipped(
        on,
        embedding_weight,
        {"cut": Tensor.detach, "unit rows": lambda w: F.normalize(w, dim=-1)},
    )
    before = {
        "half cut": Tensor.detach,
        "unit vectors": lambda x: F.normalize(x, dim=-1),
        "centred": lambda x: x - x.mean(-1, keepdim=True),
        "normalized first": lambda x: F.rms_norm(x, (C,)),
        "last position": lambda x: x[..., -1, :] if x.ndim > 1 else x,
    }
    x = slipped(on, x, before)
    if "not transposed" in on:
        return x @ weight
    behind = {
        "divided": lambda logits: logits / C**0.5,
        "multiplied": lambda logits: logits * C**0.5,
        "summed batch": lambda logits: logits.sum(0) if x.ndim > 2 else logits,
        "tokens first": lambda logits: logits.movedim(-1, -2) if x.ndim > 1 else logits,
        "one row": lambda logits: logits.reshape(-1, weight.shape[0]) if x.ndim > 1 else logits,
        "maximum taken off": lambda logits: logits - logits.amax(-1, keepdim=True),
        "capped": lambda logits: 30 * (logits / 30).tanh(),
        "distance": lambda logits: (
            -torch.cdist(x.reshape(-1, C), weight).reshape(*x.shape[:-1], -1)
        ),
        "shares": lambda logits: logits.softmax(-1),
        "log shares": lambda logits: logits.log_softmax(-1),
        "best token": lambda logits: logits.argmax(-1),
    }
    return slipped(on, x @ (weight.reshape(C, -1) if "reshaped" in on else weight.mT), behind)


def _normal(g: Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=g)


TIED_LOGITS = Exercise(
    name="tied_logits",
    lesson="10",
    reference=tied_logits,
    probes=(
        Probe(
            "each score is a dot product with a row",
            lambda g: (
                torch.tensor([[1.0, 2.0]]),
                torch.tensor([[3.0, 4.0], [5.0, 6.0], [-1.0, 0.0]]),
            ),
        ),
        Probe("one vector has V scores", lambda g: (_normal(g, 4), _normal(g, 6, 4))),
        Probe("each position has its own scores", lambda g: (_normal(g, 5, 4), _normal(g, 7, 4))),
        Probe(
            "any leading dimensions are possible", lambda g: (_normal(g, 2, 3, 4), _normal(g, 7, 4))
        ),
        Probe(
            "any leading dimensions are possible",
            lambda g: (_normal(g, 2, 3, 5, 4), _normal(g, 7, 4)),
        ),
        Probe(
            "there may be as many tokens as features",
            lambda g: (_normal(g, 2, 3, 5), _normal(g, 5, 5)),
        ),
        Probe(
            "there may be fewer tokens than features",
            lambda g: (_normal(g, 2, 3, 8), _normal(g, 5, 8)),
        ),
        Probe("scores may be large", lambda g: (30 * _normal(g, 3, 4), 30 * _normal(g, 7, 4))),
        Probe(
            "a vector of zeros has scores of zero", lambda g: (torch.zeros(2, 4), _normal(g, 7, 4))
        ),
        Probe(
            "the inputs may have any strides",
            lambda g: (_normal(g, 4, 3, 2).transpose(0, 2), _normal(g, 4, 7).mT),
        ),
        Probe(
            "gradients reach x and the embedding",
            lambda g: (_normal(g, 2, 3, 4), _normal(g, 7, 4)),
            gradients=True,
        ),
        Probe(
            "fp64 stays fp64", lambda g: (_normal(g, 2, 3, 4).double(), _normal(g, 7, 4).double())
        ),
    ),
    **texts("tied_logits"),
)

EXERCISES = (TIED_LOGITS, COUNT_PARAMETERS)
