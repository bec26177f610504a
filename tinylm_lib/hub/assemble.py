"""A model assembled from the tensors of its files, of which one at a time is in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ..config import ModelConfig
from ..model import TransformerLM
from ..positions import Tables
from ..quantization import Int8Weight, quantize_model
from .convert import HubTensor, hub_tensors, to_ours
from .families import Family
from .folder import CONFIG

# safetensors' names and torch's
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
TIED = "lm_head.weight"


class Stored(Protocol):
    """A tensor in a file: its shape and the dtype in which it is read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Known without reading."""

    @property
    def dtype(self) -> str:
        """One of DTYPES, or another name, which is refused."""

    def read(self) -> Tensor:
        """The tensor (...)."""


def skeleton(config: ModelConfig) -> TransformerLM:
    """A model without memory for its weights."""
    with torch.device("meta"):
        return TransformerLM(config)


def plan_of(model: TransformerLM, family: Family) -> list[HubTensor]:
    """Their tensors for a model of ours."""
    shapes = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    return list(hub_tensors(family, shapes, model.config.n_layers))


def check_sizes(config: ModelConfig, stored: Mapping[str, Stored], place: Path) -> None:
    """Raise ValueError before a model is built that is larger than the files."""
    n = sum(torch.Size(t.shape).numel() for t in stored.values())
    for name in ("vocab_size", "d_model", "n_layers", "n_heads", "d_head", "d_ff"):
        if getattr(config, name) > n:
            raise ValueError(
                f"{place}: {name} {getattr(config, name)} exceeds the {n} numbers in the files"
            )


def check_tensors(
    plan: list[HubTensor], stored: Mapping[str, Stored], place: Path, description: str
) -> None:
    """Raise ValueError naming the first tensor that is missing, left over, or of another shape or
    dtype.

    description: what says how the model is built, such as config.json.
    """
    wanted = {entry.name: entry.shape for entry in plan}
    for name in sorted(wanted.keys() | (stored.keys() - {TIED})):
        here = wanted.get(name, "none")
        there = stored[name].shape if name in stored else "missing"
        if here != there:
            tied = f". If its head is the embedding, set tie_word_embeddings to true in {CONFIG}"
            fix = tied if name == TIED and there == "missing" else ""
            raise ValueError(
                f"{place}: {name} is {there} in the files, and the model of {description} has "
                f"{here}{fix}"
            )
    dtypes = {stored[name].dtype: name for name in wanted}
    if other := [dtype for dtype in dtypes if dtype not in DTYPES]:
        raise ValueError(
            f"{place}: {dtypes[other[0]]} is of dtype {other[0]}; only {', '.join(DTYPES)} are read"
        )
    if len(dtypes) > 1:
        raise ValueError(f"{place}: dtypes are mixed ({dtypes}); convert all tensors to one")


def assemble(
    model: TransformerLM,
    plan: list[HubTensor],
    stored: Mapping[str, Stored],
    place: Path,
    quantize: str | None,
) -> TransformerLM:
    """Fill a skeleton with checked tensors, on the CPU and in evaluation mode.

    quantize: "int8" keeps each matrix in 8 bits as soon as it is read.
    """
    config = model.config
    if quantize is not None:
        model = quantize_model(model.eval(), quantize)
    small = {
        name: module for name, module in model.named_modules() if isinstance(module, Int8Weight)
    }
    state: dict[str, Tensor] = {}
    for entry in plan:
        try:
            for name, weight in to_ours(entry, stored[entry.name].read(), config).items():
                small[name].hold(weight) if name in small else state.update({name: weight})
        except ValueError as e:
            raise ValueError(f"{place}: {entry.name}: {e}") from None
    model.load_state_dict({**model.state_dict(), **state}, assign=True)
    for module in model.modules():
        if isinstance(module, Tables):
            module.build("cpu")
    return model.eval()
