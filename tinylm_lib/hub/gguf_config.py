"""The metadata of a GGUF file, as what a config.json of Hugging Face says."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..config import RopeScaling
from ..positions import frequencies, stretch
from .families import STRETCH, Values
from .gguf_tokenizer import KEY

ARCHITECTURE = "general.architecture"
KIND = "general.type"
HEAD = "output.weight"
OTHER_FORM = "take a version of the model in safetensors"

_LIKE_LLAMA = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_LIKE_GPT2 = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
KEY_HEADS = "attention.head_count_kv"
D_HEAD = ("attention.key_length", "attention.value_length", "rope.dimension_count")
REAL = ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "rope.freq_base")
# Further keys, and the only value of each with which it changes nothing that our model computes.
_NEEDS = {
    "rope.scaling.type": "none",
    "rope.scale_linear": 1.0,
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "pooling_type": 0,
    "tensor_data_layout": "Meta AI original pth",
}


class Architecture(NamedTuple):
    """A general.architecture, whose family has the same name: its fields in config.json by their
    keys.

    heads: whether the heads have a size, and those of keys a number, of their own. neighbours:
    whether the rows of q and k are stored for the pairs (0, 1), (2, 3), ...; otherwise as in
    Hugging Face. Source: llama.cpp, its conversion and the kind of rotation of each architecture.
    """

    fields: Mapping[str, str]
    heads: bool = True
    neighbours: bool = False


ARCHITECTURES = {
    "llama": Architecture(_LIKE_LLAMA, neighbours=True),
    "qwen2": Architecture(_LIKE_LLAMA),
    "qwen3": Architecture(_LIKE_LLAMA),
    "gpt2": Architecture(_LIKE_GPT2, heads=False),
}


def architecture_of(metadata: dict[str, Any]) -> Architecture:
    """The architecture of a file. Raises ValueError for one that is not ours."""
    if metadata.get(KIND, "model") != "model":
        raise ValueError(f"{KIND} is {metadata[KIND]!r}; give the file of a whole model")
    name = metadata.get(ARCHITECTURE)
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise ValueError(
            f"{ARCHITECTURE} {name!r} cannot be read; give a model of {', '.join(ARCHITECTURES)}"
        )
    return ARCHITECTURES[name]


def config_values(
    metadata: dict[str, Any], names: Collection[str], factors: Tensor | None
) -> Values:
    """The fields of the config.json of a file's model.

    names: of the tensors in the file. factors (D/2): what the frequencies are divided by, or None.
    Raises ValueError naming the key that is missing or not understood.
    """
    architecture = architecture_of(metadata)
    prefix = f"{metadata[ARCHITECTURE]}."
    own = {k.removeprefix(prefix): _plain(v) for k, v in metadata.items() if k.startswith(prefix)}
    for key, needed in _NEEDS.items():
        if (value := own.pop(key, needed)) != needed:
            raise ValueError(
                f"{prefix}{key} is {value!r}, and only {needed!r} can be computed here; choose "
                "another model"
            )
    if missing := [key for key in architecture.fields if key not in own]:
        raise ValueError(f"{prefix}{missing[0]} is missing; take another file of the model")
    for key in own.keys() & {*architecture.fields, *D_HEAD, KEY_HEADS}:
        kind = (int, float) if key in REAL else int
        if not isinstance(own[key], kind) or own[key] <= 0:
            raise ValueError(f"{prefix}{key} must be one positive number, got {own[key]!r}")
    values = {theirs: own.pop(key) for key, theirs in architecture.fields.items()}
    values |= {
        "model_type": metadata[ARCHITECTURE],
        "vocab_size": own.pop("vocab_size", len(metadata.get(f"{KEY}tokens", ()))),
        "tie_word_embeddings": HEAD not in names,
    }
    if architecture.heads:
        values |= _heads(values, own, prefix)
        values |= {
            "attention_bias": "blk.0.attn_q.bias" in names,
            "mlp_bias": "blk.0.ffn_up.bias" in names,
        }
    if own:
        key, value = next(iter(own.items()))
        raise ValueError(
            f"{prefix}{key} is {value!r}, and what it changes is not known here; {OTHER_FORM}"
        )
    if factors is not None:
        values["rope_scaling"] = _stretched(factors, values)
    return values


def _plain(value: Any) -> Any:
    """A value of the metadata; for a number in fp32 the shortest that is rounded to it, 1e-05."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, float) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return value


def _heads(values: Values, own: dict[str, Any], prefix: str) -> Values:
    sizes = {key: own.pop(key) for key in D_HEAD if key in own}
    n_heads = values["num_attention_heads"]
    sizes = sizes or {"embedding_length": values["hidden_size"] // n_heads}
    if len(set(sizes.values())) > 1:
        says = " and ".join(f"{prefix}{key} {size}" for key, size in sizes.items())
        raise ValueError(f"heads have one size here, and all of a head is rotated; got {says}")
    return {
        "num_key_value_heads": own.pop(KEY_HEADS, n_heads),
        "head_dim": next(iter(sizes.values())),
    }


def _stretched(factors: Tensor, values: Values) -> Values:
    """The rope_scaling of factors (D/2), which are Llama 3's.

    A file does not hold what they were computed from; all published models of Llama 3 have the
    same but for the largest factor.
    """
    scaling = RopeScaling(factor=max(1.0, factors.max().item()))
    speeds = frequencies(values["head_dim"], values["rope_theta"])
    expected = (speeds / stretch(speeds, scaling)).to(factors.dtype)
    if factors.shape != expected.shape or (factors - expected).abs().max() > 1e-3 * scaling.factor:
        raise ValueError(
            f"rope_freqs.weight stretches frequencies in another way than Llama 3; {OTHER_FORM}"
        )
    theirs = {theirs: getattr(scaling, ours) for theirs, ours in STRETCH.items()}
    return {"rope_type": "llama3", **theirs}
