"""Lesson 14: what a step costs, and how fast a machine can do it at best."""

from typing import Any

from ...config import ModelConfig
from .base import Exercise, Fault, Probe

GATED = {"swiglu": 3, "geglu": 3}  # matrices of a feed-forward; the others have two


def attainable(flops: float, n_bytes: float, peak: float, bandwidth: float, on: frozenset[str] = frozenset()) -> float:
    """The most FLOPs per second that work of so many FLOPs and bytes can reach, and the mistakes that are `on`."""
    if "bits" in on:
        n_bytes = n_bytes * 8
    if "numbers instead of bytes" in on:
        n_bytes = n_bytes / 4
    intensity = n_bytes / flops if "upside down" in on else flops / n_bytes
    if "whole numbers" in on:
        intensity = flops // n_bytes
    slope = bandwidth * intensity
    if "bandwidth unused" in on:
        slope = intensity
    if "intensity unused" in on:
        slope = bandwidth
    if "one after the other" in on:
        return flops / (flops / peak + n_bytes / bandwidth)
    others = {
        "the larger": max(peak, slope),
        "no roof": slope,
        "only the roof": peak,
        "the mean": (peak + slope) / 2,
        "peak times intensity": min(peak * intensity, bandwidth),
        "all or nothing": peak if slope >= peak else 0.0,
    }
    best = next((value for name, value in others.items() if name in on), min(peak, slope))
    if "seconds" in on:
        return flops / best
    if "share" in on:
        return best / peak
    if "giga" in on:
        return best / 1e9
    return best


ATTAINABLE = Exercise(
    name="attainable",
    lesson="14",
    order=0,
    reference=attainable,
    probes=(
        Probe("few FLOPs per byte: the memory decides", lambda g: (6.0, 12.0, 100.0, 10.0)),
        Probe("many FLOPs per byte: the processor decides", lambda g: (600.0, 12.0, 100.0, 10.0)),
        Probe("where both meet, both give the peak", lambda g: (120.0, 12.0, 100.0, 10.0)),
        Probe("just below the meeting point", lambda g: (119.0, 12.0, 100.0, 10.0)),
        Probe("twice the work at the same intensity changes nothing", lambda g: (12.0, 24.0, 100.0, 10.0)),
        Probe("another machine, another meeting point", lambda g: (50.0, 20.0, 30.0, 40.0)),
        Probe("a slow memory", lambda g: (90.0, 20.0, 30.0, 0.5)),
        Probe("numbers of real machines", lambda g: (2e9, 1.2e7, 1.2e11, 1e10)),
        Probe("whole numbers are numbers, too", lambda g: (7, 28, 1000, 12)),
    ),
    faults={
        "upside down": Fault("bytes are divided by FLOPs", "Intensity is FLOPs per byte."),
        "the larger": Fault("the larger of the two limits counts", "The slower of the two holds up the other."),
        "no roof": Fault("the peak is never looked at", "However high the intensity is, the processor has a limit."),
        "only the roof": Fault("the memory is never looked at", "Numbers must arrive before they can be multiplied."),
        "the mean": Fault("the two limits are averaged", "Only the slower one sets the pace."),
        "one after the other": Fault(
            "moving and computing wait for each other",
            "In this model they go on at the same time: take the slower one.",
        ),
        "all or nothing": Fault("below the meeting point nothing is done", "There the memory sets the pace."),
        "bandwidth unused": Fault("intensity is compared with the peak", "FLOPs per byte: how many bytes in a second?"),
        "intensity unused": Fault(
            "bandwidth is compared with the peak",
            "Bytes per second are not FLOPs per second: multiply by the intensity.",
        ),
        "peak times intensity": Fault(
            "the peak is multiplied", "The intensity multiplies the bandwidth, not the peak."
        ),
        "whole numbers": Fault(
            "the intensity is cut to a whole number", "Divide with `/`, because `//` drops the remainder."
        ),
        "seconds": Fault("the seconds are returned", "Return the speed, in FLOPs per second."),
        "share": Fault("the fraction of the peak is returned", "Return the speed itself, in FLOPs per second."),
        "giga": Fault("the result is in units of a billion", "FLOPs per second, as the arguments are."),
        "bits": Fault("bytes are counted as bits", "The arguments are bytes already."),
        "numbers instead of bytes": Fault("bytes are divided by 4", "n_bytes holds bytes already, not numbers."),
    },
    hints=(
        "Suppose the processor were infinitely fast. How many FLOPs per second would the memory allow?",
        "Bytes per second, times FLOPs per byte. And the processor has a limit of its own.",
    ),
)


def training_flops(config: ModelConfig, batch_size: int, seq_len: int, on: frozenset[str] = frozenset()) -> float:
    """Matrix-product FLOPs of one forward and backward pass, and the mistakes that are `on`."""
    C, V, n_layers = config.d_model, config.vocab_size, config.n_layers
    tokens = batch_size * seq_len
    if "one text" in on:
        tokens = seq_len
    if "one position" in on:
        tokens = batch_size
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
    C, D, F, H, G = config.d_model, config.d_head, config.d_ff, config.n_heads, config.n_kv_heads
    if "no groups" in on:
        G = H
    if "groups everywhere" in on:
        H = G
    attention = (1 if "no output projection" in on else 2) * C * H * D + 2 * C * G * D
    if "square maps" in on:
        attention = 4 * C * C
    if "no attention" in on:
        attention = 0
    gated = {"swiglu": GATED["swiglu"]} if "GEGLU without a gate" in on else GATED
    n_matrices = 2 if "no gate" in on else gated.get(config.ffn, 2)
    if "always a gate" in on:
        n_matrices = 3
    inner = 4 * C if "four times" in on else F
    return attention + (0 if "no feed-forward" in on else n_matrices * C * inner)


def _scores(config: ModelConfig, seq_len: int, on: frozenset[str]) -> int:
    """Multiply-adds of one layer for one token, of scores and of mixing."""
    D, H = config.d_head, config.n_kv_heads if "scores of the groups" in on else config.n_heads
    wide = config.d_model if "scores as wide as the model" in on else H * D
    if "scores of one head" in on:
        wide = D
    if "no scores" in on:
        return 0
    if "scores, no mixing" in on:
        return wide * seq_len
    if "scores squared" in on:
        return 2 * wide * seq_len**2
    return 2 * wide * seq_len


SIZES: dict[str, Any] = {
    "vocab_size": 11, "d_model": 12, "n_layers": 5, "n_heads": 3, "d_ff": 20, "tie_embeddings": False,
}  # fmt: skip
GPT2 = {"vocab_size": 50_257, "d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 3072, "ffn": "gelu"}
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
        _counted("heads may be wider together than the model", 2, 7, **SIZES, d_head=6),
        _counted("a real size", 4, 1024, **GPT2),
        Probe(
            "the result is a whole number, an int",
            lambda g: (ModelConfig(**SIZES), 1, 1),
            sees=lambda _, n: "float" if isinstance(n, float) else "int",
        ),
    ),
    faults={
        "a multiply-add is one": Fault("a multiply-add counts 1", "A multiplication and an addition: two operations."),
        "forward alone": Fault("only the forward pass is counted", "Backward has two products for each one."),
        "backward as forward": Fault(
            "backward takes as many FLOPs as forward", "It needs a product for the inputs and one for the weights."
        ),
        "four passes": Fault("there is one pass too many", "One forward, and two products for each one backward."),
        "per token": Fault("the FLOPs of one token are returned", "Count the whole batch."),
        "one text": Fault("one text is counted", "There are batch_size of them."),
        "one position": Fault("one position of each text is counted", "All positions are computed."),
        "no scores": Fault("scores and mixing are left out", "They have no weights, but they are products."),
        "scores, no mixing": Fault(
            "one of the two products of attention is missing",
            "Queries with keys, then weights with values. Or did you leave out the masked half? It counts.",
        ),
        "scores squared": Fault(
            "the scores grow with the cube of the text", "Each query meets seq_len keys; there are seq_len queries."
        ),
        "scores of one layer": Fault("the scores are counted once", "Each layer has its own."),
        "scores of one head": Fault("the scores of one head are counted", "Each of the n_heads has its own."),
        "scores of the groups": Fault(
            "scores are counted for each key-value head", "Every query head has scores of its own, shared keys or not."
        ),
        "scores as wide as the model": Fault(
            "heads are taken to be as wide as the model together", "They are n_heads times d_head wide."
        ),
        "one layer": Fault("one block is counted", "There are n_layers of them."),
        "no head": Fault("the head is left out", "Each position gets a score for each token of the vocabulary."),
        "a tied head is free": Fault(
            "a tied head counts nothing", "It has no weights of its own, but its product is computed all the same."
        ),
        "a head in each layer": Fault("each layer has a head", "There is one, at the end."),
        "embedding": Fault("the embedding is counted as a product", "It looks up rows: nothing is multiplied."),
        "norms": Fault("the gains of the norms are counted", "Only matrix products count here."),
        "no groups": Fault("n_kv_heads is not used", "With fewer key-value heads two of the maps are narrower."),
        "groups everywhere": Fault(
            "all maps shrink with n_kv_heads", "Queries and the output projection keep all n_heads."
        ),
        "square maps": Fault(
            "all four maps of attention are C by C", "They are C by n_heads or n_kv_heads times d_head."
        ),
        "no output projection": Fault("attention has three maps", "Which one mixes the heads at the end?"),
        "no attention": Fault(
            "the maps of attention are left out", "There are four: queries, keys, values and the output projection."
        ),
        "no feed-forward": Fault("the feed-forward is left out", "Two matrices, or three with a gate."),
        "no gate": Fault("SwiGLU has two matrices", "Up, down, and the gate."),
        "GEGLU without a gate": Fault("GEGLU has two matrices", "It has a gate, as SwiGLU has: three."),
        "a float": Fault(
            "the result is a float", "A count is whole: factors without a point, and `//` instead of `/`."
        ),
        "always a gate": Fault("every feed-forward has a gate", "GELU's has none."),
        "four times": Fault("d_ff is four times the width", "The config says how wide it is: d_ff."),
    },
    hints=(
        "A linear map multiplies each of its weights once for each token. Which matrices does a token meet?",
        "Two products have no weights: queries with keys, and weights with values. Each query meets seq_len keys.",
        "Count multiply-adds for one token first. Then: how many operations each, how many tokens, how many products "
        "backward?",
    ),
)

EXERCISES = (ATTAINABLE, TRAINING_FLOPS)
