"""Models in GGUF, the format of llama.cpp, opened with the tokenizer that their file holds."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..layers import pick
from ..model import TransformerLM
from ..quantization import QUANTIZED
from ..text.hugging_face import HubTokenizer, package
from .assemble import assemble, check_sizes, check_tensors, plan_of, skeleton
from .convert import HubTensor, read_config
from .families import MODEL_TYPES
from .gguf_config import ARCHITECTURE, HEAD, architecture_of, config_values
from .gguf_header import Header, Placed, read_header
from .gguf_tokenizer import tokenizer_of

EMBEDDING = "token_embd.weight"
FACTORS = "rope_freqs.weight"  # what Llama 3 divides the frequencies of pairs by
# Kinds of storage that are read. The package knows more; these are compared with transformers.
KINDS = (
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K",
)  # fmt: skip


class Packed(NamedTuple):
    """A tensor of a GGUF file: its shape, its bytes (..., bytes of a row) and how they store it.

    d_head: the size of a head whose rows lie for pairs of neighbours, None for other tensors.
    """

    shape: tuple[int, ...]
    data: np.ndarray
    kind: Any  # one of the package's GGMLQuantizationType
    d_head: int | None = None
    dtype: str = "F32"  # in which it is read

    def read(self) -> Tensor:
        """The tensor (...) as the package unpacks it, with heads in the order of halves."""
        with np.errstate(invalid="ignore", over="ignore"):
            unpacked = package("gguf", "gguf").dequantize(self.data, self.kind)
        if not np.isfinite(unpacked).all():
            raise ValueError("not all of its numbers are finite; download it again")
        t = torch.from_numpy(np.require(unpacked, requirements="W")).view(self.shape)
        if self.d_head is None:
            return t
        pairs = t.unflatten(0, (-1, self.d_head // 2, 2))  # neighbours, for each head
        return pairs.transpose(1, 2).flatten(0, 2)


def load_gguf(path: str | Path, quantize: str | None = None) -> tuple[TransformerLM, HubTokenizer]:
    """Open a GGUF file of Llama, Mistral, Qwen2, Qwen3 or GPT-2 with its tokenizer, on the CPU and
    in evaluation mode.

    The weights become fp32, however the file stores them. They are those of the folder of Hugging
    Face from which the file was made, up to their rounding.
    quantize: as in `load_hf`.
    Raises ValueError naming the key or the tensor for a damaged file and for what cannot be
    computed here, ModuleNotFoundError without the packages `gguf` and `tokenizers`.
    """
    if quantize is not None:
        pick(QUANTIZED, quantize, "quantize")
    path = Path(path)
    package("gguf", "gguf")
    header = read_header(path)
    try:
        architecture = architecture_of(header.metadata)
        tensors = _tensors(header)
        tokenizer = tokenizer_of(header.metadata)
        factors = tensors.pop(FACTORS).read() if FACTORS in tensors else None
        config = read_config(config_values(header.metadata, tensors, factors))
        if config.n_layers > len(tensors):
            raise ValueError(f"{config.n_layers} layers cannot be in {len(tensors)} tensors")
    except (ValueError, TypeError) as e:
        raise ValueError(f"{path}: {e}") from None
    check_sizes(config, tensors, path)
    model = skeleton(config)
    plan = _plan(model, header.metadata[ARCHITECTURE])
    check_tensors(plan, tensors, path, "its metadata")
    for entry in plan:
        if architecture.neighbours and entry.how.heads:
            tensors[entry.name] = tensors[entry.name]._replace(d_head=config.d_head)
    return assemble(model, plan, tensors, path, quantize), tokenizer


def load_gguf_tokenizer(path: str | Path) -> HubTokenizer:
    """The tokenizer of a GGUF file alone. Raises as `load_gguf`, for any architecture."""
    header = read_header(Path(path))
    try:
        return tokenizer_of(header.metadata)
    except ValueError as e:
        raise ValueError(f"{path}: {e}") from None


def _tensors(header: Header) -> dict[str, Packed]:
    """The tensors of a file by name; a head that is the embedding, stored again, is left out."""
    tensors = {name: _packed(name, placed, header) for name, placed in header.tensors.items()}
    if HEAD in tensors and EMBEDDING in tensors:
        head = tensors[HEAD]
        embedding = tensors[EMBEDDING]
        if head.kind == embedding.kind and np.array_equal(head.data, embedding.data):
            del tensors[HEAD]
    return tensors


def _packed(name: str, placed: Placed, header: Header) -> Packed:
    tables = package("gguf", "gguf")
    known = {kind.value: kind for kind in tables.GGMLQuantizationType}
    kind = known.get(placed.kind)
    if kind is None or kind.name not in KINDS:
        what = f"number {placed.kind}" if kind is None else kind.name
        raise ValueError(
            f"{name} is stored as {what}, and only {', '.join(KINDS)} are read; take another file "
            "of the model"
        )
    values, size = tables.GGML_QUANT_SIZES[kind]
    *rows, columns = placed.shape or (1,)
    if columns % values:
        raise ValueError(f"{name} has rows of {columns}, and {kind.name} stores {values} at a time")
    row = columns // values * size
    n_bytes = math.prod(rows) * row
    there = len(header.content) - placed.begin
    if n_bytes > there:
        raise ValueError(
            f"it is cut short: {name} has {n_bytes} bytes, and {max(there, 0)} are there; download "
            "it again"
        )
    data = np.frombuffer(header.content, np.uint8, n_bytes, placed.begin)
    return Packed(placed.shape, data.reshape(*rows, row), kind)


def _plan(model: TransformerLM, architecture: str) -> list[HubTensor]:
    """The tensors of a model by the names of GGUF, which stores no matrix turned."""
    tables = package("gguf", "gguf")
    ids = {name: i for i, name in tables.MODEL_ARCH_NAMES.items()}
    names = tables.get_tensor_name_map(ids[architecture], model.config.n_layers)
    return [
        entry._replace(
            name=names.get_name(entry.name, (".weight", ".bias")),
            how=entry.how._replace(turned=False),
        )
        for entry in plan_of(model, MODEL_TYPES[architecture])
    ]
