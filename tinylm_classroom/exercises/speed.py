"""Lesson 14: what a step costs."""

from typing import Any

from tinylm_lib.config import ModelConfig

from .base import Exercise, Probe, chosen, texts

GATED = {"swiglu": 3, "geglu": 3}  # matrices of a feed-forward; the others have two


def training_flops(
    config: ModelConfig, batch_size: int, seq_len: int, on: frozenset[str] = frozenset()
) -> float:
    """Matrix-product FLOPs of one forward and backward pass, and the mistakes that are `on`."""
    C = config.d_model
    V = config.vocab_size
    n_layers = config.n_layers
    tokens = chosen(
        on,
        batch_size * seq_len,
        {"one text": lambda: seq_len, "one position": lambda: batch_size},
    )
    weights = _block(config, on)
    scores = _scores(config, seq_len, on)
    if "one layer" in on:
        n_layers = 1
    products = (1 if "scores of one layer" in on else n_layers) * scores + n_layers * weights
    if not ("no head" in on or (config.tie_embeddings and "a tied head is free" in on)):
        products += C * V
    if "a head in each layer" in on:
        products += (n_layers - 1) * C * V
    if "embedding" in on:
        products += C * V
    if "norms" in on:
        products += (2 * n_layers + 1) * C
    each = 1 if "a multiply-add is one" in on else 2
    passes = {"forward alone": 1, "backward as forward": 2, "four passes": 4}
    n_passes = next((n for name, n in passes.items() if name in on), 3)
    result = each * n_passes * tokens * products
    result = result // tokens if "per token" in on else result
    return float(result) if "a float" in on else result


def _block(config: ModelConfig, on: frozenset[str]) -> int:
    """Weights of the matrices of one block, and so multiply-adds for one token."""
    C = config.d_model
    D = config.d_head
    F = config.d_ff
    H = config.n_heads
    G = config.n_kv_heads
    if "no groups" in on:
        G = H
    if "groups everywhere" in on:
        H = G
    attention = (1 if "no output projection" in on else 2) * C * H * D + 2 * C * G * D
    attention = chosen(on, attention, {"square maps": lambda: 4 * C * C, "no attention": lambda: 0})
    gated = {"swiglu": GATED["swiglu"]} if "GEGLU without a gate" in on else GATED
    n_matrices = 2 if "no gate" in on else gated.get(config.ffn, 2)
    if "always a gate" in on:
        n_matrices = 3
    inner = 4 * C if "four times" in on else F
    return attention + (0 if "no feed-forward" in on else n_matrices * C * inner)


def _scores(config: ModelConfig, seq_len: int, on: frozenset[str]) -> int:
    """Multiply-adds of one layer for one token, of scores and of mixing."""
    D = config.d_head
    H = config.n_kv_heads if "scores of the groups" in on else config.n_heads
    wide = chosen(
        on,
        H * D,
        {"scores as wide as the model": lambda: config.d_model, "scores of one head": lambda: D},
    )
    return chosen(on, 2 * wide * seq_len, {
        "no scores": lambda: 0,
        "scores, no mixing": lambda: wide * seq_len,
        "scores squared": lambda: 2 * wide * seq_len**2,
    })  # fmt: skip


SIZES: dict[str, Any] = {
    "vocab_size": 11, "d_model": 12, "n_layers": 5, "n_heads": 3, "d_ff": 20,
    "tie_embeddings": False,
}  # fmt: skip
GPT2 = {
    "vocab_size": 50_257,
    "d_model": 768,
    "n_layers": 12,
    "n_heads": 12,
    "d_ff": 3072,
    "ffn": "gelu",
}
GROUPED = {**SIZES, "d_model": 24, "n_heads": 6, "n_kv_heads": 2}


def _counted(holds: str, batch_size: int, seq_len: int, **fields: Any) -> Probe:
    """A probe; all digits count, and a float that is whole is told apart by one probe alone."""
    return Probe(
        holds,
        lambda g: (ModelConfig(**fields), batch_size, seq_len),
        sees=lambda _, n: int(n) if isinstance(n, float) and n.is_integer() else n,
        tolerance=0.0,
    )


TRAINING_FLOPS = Exercise(
    name="training_flops",
    lesson="14",
    order=0,
    reference=training_flops,
    probes=(
        _counted("one token, one layer", 1, 1, **{**SIZES, "n_layers": 1}),
        _counted("each layer counts, and the head once", 1, 1, **SIZES),
        _counted("each text of the batch counts", 7, 1, **SIZES),
        _counted("a longer text costs more at each position: the scores grow", 2, 9, **SIZES),
        _counted("GELU has two matrices", 2, 9, **SIZES, ffn="gelu"),
        _counted("GEGLU has three, like SwiGLU", 2, 9, **SIZES, ffn="geglu"),
        _counted("a tied head multiplies, too", 3, 5, **{**SIZES, "tie_embeddings": True}),
        _counted("grouped queries narrow the maps of keys and values alone", 3, 5, **GROUPED),
        _counted("all heads together may be wider than the model", 2, 7, **SIZES, d_head=6),
        _counted("a real size", 4, 1024, **GPT2),
        Probe(
            "the result is a whole number, an int",
            lambda g: (ModelConfig(**SIZES), 1, 1),
            sees=lambda _, n: "float" if isinstance(n, float) else "int",
        ),
    ),
    **texts("training_flops"),
)

EXERCISES = (TRAINING_FLOPS,)
