"""Configs and tensors of Hugging Face checkpoints, into ours and back."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..config import ModelConfig, RopeScaling
from ..layers import pick
from .families import MODEL_TYPES, REQUIRED, STRETCH, Counterpart, Family, Field, Values

REST = "tinylm"  # the key in config.json for what Hugging Face has no place for
# Fields that go there: no logit depends on them, once the rows of rotated heads are in the order of
# the family.
REST_FIELDS = ("init", "d_ff_multiple_of", "rope_layout", "rope_base", "rope_scaling")


def family_of(values: Values) -> Family:
    """The family of a config.json.

    Raises ValueError for a model_type or an architecture that we cannot build.
    """
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise ValueError(
            f"model_type {kind!r} cannot be read; give a model of type {', '.join(MODEL_TYPES)}"
        )
    family = MODEL_TYPES[kind]
    named = values.get("architectures") or []
    if wrong := [name for name in _list(named) if name not in (family.architecture, family.base)]:
        raise ValueError(
            f"architecture {wrong[0]!r} is not a language model; give a {family.architecture}"
        )
    return family


def read_config(values: Values) -> ModelConfig:
    """The config of the model that a config.json describes.

    Raises ValueError naming the field, for one that is missing and for anything that our model
    cannot compute.
    """
    family = family_of(values)
    ours: dict[str, Any] = {}
    for field in family.fields:
        ours |= _read(field, values)
    if family.rotary:
        ours |= _read_rope(values, family)
    for name, needed in family.needs.items():
        if values.get(name, needed) != needed:
            raise ValueError(
                f"{name} is {values[name]!r}, and only {needed!r} can be computed here"
            )
    rest = values.get(REST, {})
    allowed = set(REST_FIELDS) - set(ours)
    if not isinstance(rest, dict) or not set(rest) <= allowed:
        raise ValueError(f"{REST} is {rest!r}, and it can hold only {', '.join(sorted(allowed))}")
    try:
        config = ModelConfig(**{"rope_layout": "halves", **family.has, **ours, **rest})
    except ValueError as e:
        theirs = {}
        for field in family.fields:
            theirs |= dict.fromkeys(field.ours, field.theirs)
        raise ValueError(f"{theirs.get(str(e).split()[0], 'it')} describes no model: {e}") from None
    if family.whole_heads and config.d_model % config.n_heads:
        raise ValueError(
            f"d_model {config.d_model} must be a multiple of n_heads {config.n_heads} (hidden_size "
            f"and num_attention_heads of a {family.architecture})"
        )
    _check_window(family.window(values), values)
    return config


def _list(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def _read(field: Field, values: Values) -> Values:
    value = values.get(field.theirs, field.default)
    if value is REQUIRED:
        raise ValueError(
            f"{field.theirs} is missing; take config.json from where the model was published"
        )
    if field.names is not None:
        if value not in list(field.names):
            raise ValueError(
                f"{field.theirs} is {value!r}, and only {', '.join(field.names)} can be computed "
                "here"
            )
        value = field.names[value]
    return dict.fromkeys(field.ours, value)


_ROPES = {"default": None, "llama3": STRETCH}


def _read_rope(values: Values, family: Family) -> Values:
    """rope_base and rope_scaling, from `rope_theta` and `rope_scaling` or, since transformers 5,
    `rope_parameters`.

    A config.json without the base has lost it, but for those of Llama 2, in which rope_scaling
    alone is named: another base would give a model that reads short texts almost as well.
    """
    rope: Values = {}
    alone = {
        name: values[name]
        for name in ("rope_theta", "original_max_position_embeddings")
        if name in values
    }
    for some in (alone, values.get("rope_scaling") or {}, values.get("rope_parameters") or {}):
        if not isinstance(some, dict):
            raise ValueError(f"rope_scaling must be an object or null, got {some!r}")
        for name, value in some.items():
            name = "rope_type" if name == "type" else name
            if value is not None and rope.setdefault(name, value) != value:
                raise ValueError(f"{name} is both {rope[name]!r} and {value!r}; leave one of them")
    kind = rope.get("rope_type", "default")
    if kind not in list(_ROPES):
        raise ValueError(f"rope_type {kind!r} cannot be computed here, only {', '.join(_ROPES)}")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(
            f"partial_rotary_factor is {rope['partial_rotary_factor']!r}; here all of a head is "
            "rotated"
        )
    scaling = None
    if _ROPES[kind] is not None:
        if missing := [name for name in STRETCH if name not in rope]:
            raise ValueError(f"rope_type {kind!r} needs {missing[0]}, and it is missing")
        scaling = RopeScaling(**{ours: rope[theirs] for theirs, ours in STRETCH.items()})
    if nested := [name for name, value in rope.items() if isinstance(value, dict)]:
        raise ValueError(
            f"rope_parameters has angles of its own for {nested[0]}; here all layers rotate alike"
        )
    old = family.first_base if "rope_scaling" in values else None
    base = rope.get("rope_theta", old)
    if base is None:
        raise ValueError(
            "rope_theta is missing, the base of the rotation, and rope_parameters does not have it "
            "either; take config.json from where the model was published (for Llama 1 and 2 it is "
            "10000.0)"
        )
    return {"rope_base": base, "rope_scaling": scaling}


def _check_window(window: Any, values: Values) -> None:
    others = [kind for kind in _list(values.get("layer_types") or []) if kind != "full_attention"]
    if others:
        raise ValueError(f"layer_types has {others[0]!r}, and here every layer has full_attention")
    if window is not None and not (
        isinstance(window, int) and window >= values["max_position_embeddings"]
    ):
        raise ValueError(
            f"sliding_window is {window!r}, and here every position sees all before it; "
            f"set it to null where texts stay shorter than that"
        )


def write_config(config: ModelConfig) -> Values:
    """What config.json says about a config, in the first family that has it.

    Raises ValueError where none has, naming the fields that differ from the nearest one.
    """
    refusals = []
    for kind, family in MODEL_TYPES.items():
        values = _written(kind, family, config)
        try:
            back = read_config(values)
        except ValueError as e:
            refusals.append((len(fields(config)), f"{kind}, and there {e}"))
            continue
        names = [f.name for f in fields(config) if getattr(back, f.name) != getattr(config, f.name)]
        if set(names) <= set(REST_FIELDS):
            rest = {name: value for name, value in config.to_dict().items() if name in names}
            return {**values, REST: rest} if rest else values
        wrong = [name for name in names if name not in REST_FIELDS]
        differences = ", ".join(
            f"{name} {getattr(back, name)!r} (not {getattr(config, name)!r})" for name in wrong
        )
        refusals.append((len(wrong), f"{kind} with {differences}"))
    raise ValueError(
        f"Hugging Face has no such model; the nearest is {min(refusals)[1]}. "
        f"Build the model that way, or keep it with checkpoint.save"
    )


def _written(kind: str, family: Family, config: ModelConfig) -> Values:
    values: Values = {"architectures": [family.architecture], "model_type": kind, **family.writes}
    values |= {"bos_token_id": None, "eos_token_id": None}
    for field in family.fields:
        value = getattr(config, field.ours[0])
        if field.names is not None:
            value = next(
                (theirs for theirs, ours in field.names.items() if ours == value),
                next(iter(field.names)),
            )
        values[field.theirs] = value
    if family.rotary:
        scaling = config.rope_scaling
        stretch = scaling and {theirs: getattr(scaling, ours) for theirs, ours in STRETCH.items()}
        values |= {
            "rope_theta": config.rope_base,
            "rope_scaling": stretch and {"rope_type": "llama3", **stretch},
        }
    return json.loads(json.dumps(values))


class HubTensor(NamedTuple):
    """One of their tensors: its name, the names and shapes of ours that it holds, and how it holds
    them.
    """

    name: str
    ours: list[str]
    shapes: list[tuple[int, ...]]
    how: Counterpart

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of theirs."""
        rows = (sum(shape[0] for shape in self.shapes), *self.shapes[0][1:])
        return tuple(reversed(rows)) if self.how.turned else rows


def hub_tensors(
    family: Family, shapes: Mapping[str, tuple[int, ...]], n_layers: int
) -> Iterator[HubTensor]:
    """Their tensors for a model of ours. shapes (...): of our tensors by name."""
    for pattern, how in family.modules.items():
        for i in range(n_layers if "{}" in pattern else 1):
            for kind in ("weight", "bias"):
                ours = [f"{name.format(i)}.{kind}" for name in how.ours]
                if ours[0] in shapes:
                    yield HubTensor(
                        f"{pattern.format(i)}.{kind}", ours, [shapes[name] for name in ours], how
                    )


# Which coordinate of ours is at each position of a head of theirs, whose pairs are (0, D/2), (1,
# D/2 + 1), ...
_ORDERS: dict[str, Callable[[int], Tensor]] = {
    "halves": torch.arange,
    "interleaved": lambda d: torch.arange(d).view(-1, 2).t().flatten(),
}


def to_theirs(theirs: HubTensor, tensors: list[Tensor], config: ModelConfig) -> Tensor:
    """Their tensor (...) made of ours."""
    if theirs.how.heads:
        order = pick(_ORDERS, config.rope_layout, "rope_layout")(config.d_head)
        tensors = [_reorder(t, order) for t in tensors]
    joined = torch.cat(tensors)
    return joined.t().contiguous() if theirs.how.turned else joined


def to_ours(theirs: HubTensor, tensor: Tensor, config: ModelConfig) -> dict[str, Tensor]:
    """Our tensors by name, each with memory of its own, made of theirs (...)."""
    rows = (tensor.t() if theirs.how.turned else tensor).split(
        [shape[0] for shape in theirs.shapes]
    )
    if theirs.how.heads:
        order = pick(_ORDERS, config.rope_layout, "rope_layout")(config.d_head).argsort()
        rows = [_reorder(t, order) for t in rows]
    return {
        name: t.clone(memory_format=torch.contiguous_format)
        for name, t in zip(theirs.ours, rows, strict=True)
    }


def _reorder(t: Tensor, order: Tensor) -> Tensor:
    return t.unflatten(0, (-1, len(order)))[:, order.to(t.device)].flatten(0, 1)
