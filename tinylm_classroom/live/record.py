"""A trained model and its tokenizer as plain values for a page, and what the engine of the page
cannot compute.
"""

import base64
import json
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor

from tinylm_lib.cost import count_parameters
from tinylm_lib.model import TransformerLM
from tinylm_lib.positions import frequencies, stretch
from tinylm_lib.quantization import refuse_quantized
from tinylm_lib.text.base import Tokenizer

MOST_PARAMETERS = 5_000_000
LARGEST_HALF = torch.finfo(torch.float16).max
# The fields of a config that the engine reads, and the values of others that it supposes.
_READ = (
    "vocab_size", "max_seq_len", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_ff",
    "norm_eps",
    "rope_layout", "ffn", "qk_norm", "tie_embeddings",
)  # fmt: skip
_SUPPOSED = {
    "block": ("pre_norm",), "norm": ("rms",), "position": ("rotary",), "ffn": ("swiglu", "geglu"),
    "qkv_bias": (False,), "o_bias": (False,), "ffn_bias": (False,), "scale_embeddings": (False,),
}  # fmt: skip
_TOKENIZERS = ("words", "bytes", "chars", "bpe")


def live_record(model: TransformerLM, tokenizer: Tokenizer) -> dict[str, Any]:
    """A model and its tokenizer as the page's `open` takes them, ready for JSON.

    `weights` is base64 of all parameters in half precision (little-endian), in the order of
    `state_dict`; `speeds` are the rotary frequencies in radians per position. `fingerprint` is a
    short text that no other model has.
    Raises TypeError for anything but a TransformerLM and a tokenizer of the library, ValueError for
    an architecture, a size, a weight or a tokenizer that the page cannot compute with.
    """
    _check(model, tokenizer)
    config = model.config
    speeds = frequencies(config.d_head, config.rope_base)
    if config.rope_scaling is not None:
        speeds = stretch(speeds, config.rope_scaling)
    halves = [_half(name, weight) for name, weight in model.state_dict().items()]
    record = {
        "config": {name: getattr(config, name) for name in _READ},
        "weights": base64.b64encode(b"".join(halves)).decode("ascii"),
        "tokenizer": tokenizer.to_dict(),
    }
    # Not of the speeds: the last digit of a power may be another one on another processor.
    known = json.dumps([record, config.rope_base, str(config.rope_scaling)], sort_keys=True)
    fingerprint = sha256(known.encode()).hexdigest()[:12]
    return {**record, "speeds": speeds.tolist(), "fingerprint": fingerprint}


def _check(model: Any, tokenizer: Any) -> None:
    """Refuse what the page lacks."""
    if not isinstance(model, TransformerLM):
        raise TypeError(
            f"model must be a TransformerLM, got {type(model).__name__}; use TransformerLM(config)"
        )
    refuse_quantized(model, "a page")
    for name, values in _SUPPOSED.items():
        if (value := getattr(model.config, name)) not in values:
            known = " or ".join(map(repr, values))
            raise ValueError(
                f"{name} {value!r} cannot run in a page; train a model with {name} {known}"
            )
    n = sum(weight.numel() for weight in model.parameters())
    if n > MOST_PARAMETERS:
        raise ValueError(
            f"a page takes up to {MOST_PARAMETERS:,} parameters, got {n:,}; train a smaller model"
        )
    if n != (expected := count_parameters(model.config).total):
        raise ValueError(
            f"the model has {n} parameters, and its config {expected}; build it with "
            "TransformerLM(config), and load the weights into it"
        )
    kind = getattr(tokenizer, "kind", type(tokenizer).__name__)
    n_ids = model.config.vocab_size
    if kind not in _TOKENIZERS:
        raise ValueError(
            f"a tokenizer of kind {kind!r} cannot run in a page; choose one of "
            f"{', '.join(_TOKENIZERS)}"
        )
    if tokenizer.vocab_size > n_ids:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size} ids, and the model only {n_ids}; give the "
            "tokenizer that the model was trained with"
        )


def _half(name: str, weight: Tensor) -> bytes:
    """A parameter (...) in half precision, little-endian."""
    largest = weight.detach().abs().max().item()
    if not largest <= LARGEST_HALF:  # also not for NaN
        raise ValueError(
            f"{name} has a weight of size {largest:g}, and half precision ends at "
            f"{LARGEST_HALF:,.0f}; take a checkpoint from before the training failed"
        )
    return weight.detach().cpu().half().numpy().astype("<f2").tobytes()
