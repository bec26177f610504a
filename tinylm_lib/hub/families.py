"""What Hugging Face calls the fields and tensors of each family of models that is one of ours."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

REQUIRED = object()
Values = dict[str, Any]  # what a config.json holds


class Field(NamedTuple):
    """A field of config.json, the fields of ours that it sets, its value where it is missing, and
    how values are named.

    names: our values by their names for them; no other can be read.
    """

    theirs: str
    ours: tuple[str, ...]
    default: Any = REQUIRED
    names: dict[str, str] | None = None


class Counterpart(NamedTuple):
    """What one module of theirs is in our model: one module, or several whose weights lie one below
    the other.

    turned: stored as (in, out). heads: its rows are rotated, so that their order depends on
    rope_layout.
    """

    ours: tuple[str, ...]
    turned: bool = False
    heads: bool = False


@dataclass(frozen=True)
class Family:
    """One model_type: the names in its config and of its tensors, and what all models have."""

    architecture: str
    base: str  # the class without a head, whose tensors lack the prefix
    prefix: str
    fields: tuple[Field, ...]
    has: Mapping[str, Any]  # fields of our config that are the same in all its models
    # values of their fields without a switch of ours; the same where they are missing
    needs: Mapping[str, Any]
    writes: Mapping[str, Any]  # values of their fields that say that something of theirs is off
    window: Callable[[Values], Any]
    modules: Mapping[str, Counterpart]  # by the names of theirs
    passed_over: re.Pattern  # tensors that old files carry and nobody needs
    rotary: bool = True
    whole_heads: bool = False  # d_model must be a multiple of n_heads
    first_base: float | None = None  # rope_theta of the files from before that field

    def __post_init__(self) -> None:
        if both := sorted(_names_of(self.fields) & set(self.has)):
            raise ValueError(
                f"{self.architecture} has {both[0]} in `has`, so no field can set it; leave one of "
                "them out"
            )


def _no_window(values: Values) -> None:
    return None


def _window(values: Values) -> Any:
    return values.get("sliding_window", 4096)


def _window_where_used(values: Values) -> Any:
    used = values.get("use_sliding_window") and values.get("layer_types") is None
    return (
        _window(values)
        if used and values.get("max_window_layers", 28) < values["num_hidden_layers"]
        else None
    )


def _llama_modules(prefix: str = "model.") -> dict[str, Counterpart]:
    layer = f"{prefix}layers.{{}}."
    block = "blocks.{}."
    attention = {
        f"{x}_proj": Counterpart((f"{block}attention.{x}_proj",), heads=x in "qk") for x in "qkvo"
    }
    attention |= {
        f"{x}_norm": Counterpart((f"{block}attention.{x}_norm",), heads=True) for x in "qk"
    }
    return {
        f"{prefix}embed_tokens": Counterpart(("embed",)),
        f"{layer}input_layernorm": Counterpart((f"{block}attn_norm",)),
        **{f"{layer}self_attn.{name}": module for name, module in attention.items()},
        f"{layer}post_attention_layernorm": Counterpart((f"{block}ffn_norm",)),
        **{
            f"{layer}mlp.{x}_proj": Counterpart((f"{block}ffn.{x}_proj",))
            for x in ("gate", "up", "down")
        },
        f"{prefix}norm": Counterpart(("final_norm",)),
        "lm_head": Counterpart(("lm_head",)),
    }


_GPT2_MODULES = {
    "transformer.wte": Counterpart(("embed",)),
    "transformer.wpe": Counterpart(("position",)),
    "transformer.h.{}.ln_1": Counterpart(("blocks.{}.attn_norm",)),
    "transformer.h.{}.attn.c_attn": Counterpart(
        tuple(f"blocks.{{}}.attention.{x}_proj" for x in "qkv"), turned=True
    ),
    "transformer.h.{}.attn.c_proj": Counterpart(("blocks.{}.attention.o_proj",), turned=True),
    "transformer.h.{}.ln_2": Counterpart(("blocks.{}.ffn_norm",)),
    "transformer.h.{}.mlp.c_fc": Counterpart(("blocks.{}.ffn.up_proj",), turned=True),
    "transformer.h.{}.mlp.c_proj": Counterpart(("blocks.{}.ffn.down_proj",), turned=True),
    "transformer.ln_f": Counterpart(("final_norm",)),
    "lm_head": Counterpart(("lm_head",)),
}
_LLAMA_FIELDS = (
    Field("vocab_size", ("vocab_size",)),
    Field("max_position_embeddings", ("max_seq_len",)),
    Field("hidden_size", ("d_model",)),
    Field("num_hidden_layers", ("n_layers",)),
    Field("num_attention_heads", ("n_heads",)),
    Field("intermediate_size", ("d_ff",)),
    Field("hidden_act", ("ffn",), "silu", {"silu": "swiglu", "swish": "swiglu", "gelu": "geglu"}),
    Field("rms_norm_eps", ("norm_eps",)),
    Field("tie_word_embeddings", ("tie_embeddings",), False),
    Field("attention_dropout", ("attention_dropout",), 0.0),
    Field("initializer_range", ("init_std",), 0.02),
)
_HEADS = (Field("num_key_value_heads", ("n_kv_heads",)), Field("head_dim", ("d_head",), None))
_PLAIN = {"qkv_bias": False, "o_bias": False, "ffn_bias": False, "qk_norm": False}
_OFF = dict.fromkeys(("embedding_dropout", "ffn_dropout", "residual_dropout"), 0.0)
_LLAMA_HAS = {
    "block": "pre_norm",
    "norm": "rms",
    "position": "rotary",
    "scale_embeddings": False,
    "init": "normal",
}
_ALL_NEED = {"quantization_config": None, "partial_rotary_factor": 1.0, "is_encoder_decoder": False}


def _names_of(fields: Iterable[Field]) -> set[str]:
    return set(chain.from_iterable(field.ours for field in fields))


def _like_llama(architecture: str, base: str, *more: Field, **changes: Any) -> Family:
    """A family with Llama's blocks; `more` fields, and in `has` what differs from a plain Llama.

    Fields of Llama do not set what `has` fixes.
    """
    own = {"has": {}, "needs": {}, "writes": {}, "window": _no_window, **changes}
    needs = {**_ALL_NEED, **own.pop("needs")}
    chosen = _names_of(more)
    has = {
        **_LLAMA_HAS,
        **_OFF,
        **{k: v for k, v in _PLAIN.items() if k not in chosen},
        **own.pop("has"),
    }
    inherited = [field for field in _LLAMA_FIELDS if not set(field.ours) & set(has)]
    return Family(
        architecture, base, "model.", (*inherited, *more), has, needs, modules=_llama_modules(),
        passed_over=re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"), **own,
    )  # fmt: skip


# By model_type. One that is saved takes the first family that has it.
MODEL_TYPES = {
    "llama": _like_llama(
        "LlamaForCausalLM", "LlamaModel", Field("num_key_value_heads", ("n_kv_heads",), None),
        _HEADS[1],
        Field("attention_bias", ("qkv_bias", "o_bias"), False),
        Field("mlp_bias", ("ffn_bias",), False),
        whole_heads=True,
        first_base=10_000.0,
    ),
    "mistral": _like_llama(
        "MistralForCausalLM", "MistralModel", *_HEADS, window=_window,
        writes={"sliding_window": None}
    ),
    "qwen2": _like_llama(
        "Qwen2ForCausalLM", "Qwen2Model", *_HEADS, has={"qkv_bias": True},
        window=_window_where_used,
        writes={"use_sliding_window": False},
    ),
    "qwen3": _like_llama(
        "Qwen3ForCausalLM", "Qwen3Model", _HEADS[0], Field("head_dim", ("d_head",)),
        Field("attention_bias", ("qkv_bias", "o_bias"), False), has={"qk_norm": True},
        window=_window_where_used,
        writes={"use_sliding_window": False},
    ),
    "gpt2": Family(
        architecture="GPT2LMHeadModel",
        base="GPT2Model",
        prefix="transformer.",
        fields=(
            Field("vocab_size", ("vocab_size",)),
            Field("n_positions", ("max_seq_len",)),
            Field("n_embd", ("d_model",)),
            Field("n_layer", ("n_layers",)),
            Field("n_head", ("n_heads",)),
            Field("n_inner", ("d_ff",), None),
            Field("activation_function", ("ffn",), "gelu_new", {
                "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu",
                "relu": "relu",
            }),
            Field("layer_norm_epsilon", ("norm_eps",), 1e-5),
            Field("tie_word_embeddings", ("tie_embeddings",), True),
            Field("embd_pdrop", ("embedding_dropout",), 0.1),
            Field("attn_pdrop", ("attention_dropout",), 0.1),
            Field("resid_pdrop", ("residual_dropout",), 0.1),
            Field("initializer_range", ("init_std",), 0.02),
        ),
        has={
            "block": "pre_norm", "norm": "layer", "position": "learned", "qkv_bias": True,
            "o_bias": True,
            "ffn_bias": True, "qk_norm": False, "scale_embeddings": False, "ffn_dropout": 0.0,
            "init": "gpt2",
            "d_ff_multiple_of": 1,
        },
        needs={
            **_ALL_NEED, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        writes={},
        window=_no_window,
        modules=_GPT2_MODULES,
        passed_over=re.compile(r"transformer\.h\.\d+\.attn\.(masked_)?bias"),
        rotary=False,
    ),
}  # fmt: skip

# Llama 3's stretch of the rotary frequencies: our names by theirs.
STRETCH = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_seq_len",
}
