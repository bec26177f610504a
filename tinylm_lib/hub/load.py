"""Whole models of Hugging Face, in and out."""

import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..files import foreign
from ..layers import pick
from ..lora import refuse_lora
from ..model import TransformerLM
from ..quantization import QUANTIZED, refuse_quantized
from ..text.base import Tokenizer
from ..text.hugging_face import HubTokenizer, tokenizer_json
from .assemble import TIED, assemble, check_sizes, check_tensors, plan_of, skeleton
from .convert import family_of, read_config, to_theirs, write_config
from .families import Family
from .folder import (
    CONFIG,
    SIDE_FILES,
    TOKENIZER,
    TOKENIZER_CONFIG,
    Stored,
    damaged,
    eos_ids,
    find_folder,
    read_json,
    read_text,
    stored_tensors,
    write_folder,
)

KEPT_IDS = ("bos_token_id", "pad_token_id")
# otherwise transformers adds the family's own tokens
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}


def load_hf(path_or_id: str | Path, quantize: str | None = None) -> TransformerLM:
    """Open a GPT-2, Llama, Mistral, Qwen2 or Qwen3 of Hugging Face, on the CPU and in evaluation
    mode.

    path_or_id: a folder with config.json and safetensors, or an id of the hub, which is downloaded
    into its cache.
    quantize: "int8" keeps each matrix in 8 bits as soon as it is read, see `quantize_model`. The
    weights keep the dtype of the file; `.float()` converts. Memory stays near the size of the
    files; with int8 near the number of parameters in bytes, and the largest matrix three times in
    fp32.
    Raises FileNotFoundError or OSError where there is no model, ValueError naming the file and the
    field or tensor for a damaged one and for what our model cannot compute.
    """
    if quantize is not None:
        pick(QUANTIZED, quantize, "quantize")
    folder = find_folder(path_or_id)
    values = read_json(folder / CONFIG)
    try:
        family = family_of(values)
        config = read_config(values)
    except (ValueError, TypeError) as e:
        raise ValueError(f"{folder / CONFIG}: {e}") from None
    stored = _full_names(stored_tensors(folder), family)
    check_sizes(config, stored, folder / CONFIG)
    model = skeleton(config)
    plan = plan_of(model, family)
    check_tensors(plan, stored, folder, CONFIG)
    if config.tie_embeddings and TIED in stored:
        embedding = next(entry.name for entry in plan if entry.ours == ["embed.weight"])
        if not torch.equal(stored[TIED].read(), stored[embedding].read()):
            raise ValueError(
                f"{folder}: {TIED} is not the embedding, and tie_word_embeddings says it is; set "
                "it false"
            )
    return assemble(model, plan, stored, folder, quantize)


def save_hf(
    model: TransformerLM,
    folder: str | Path,
    max_shard_bytes: int = 5_000_000_000,
    tokenizer: Tokenizer | None = None,
) -> Path:
    """Write a model as a folder that `transformers` and `load_hf` open, with the same weights and
    the same logits.

    The rows of interleaved heads are put into the order of halves, and back by `load_hf`.
    max_shard_bytes: tensors of more bytes than this are spread over several files.
    tokenizer: of bytes, byte-level BPE or of Hugging Face; it is written next to the model as
    tokenizer.json, and its `ending` as eos_token_id. One of `load_hf_tokenizer` brings the special
    tokens, their ids in config.json and the chat template of the folder that it came from.
    Returns the folder.
    Raises ValueError, naming the fields, for a model or tokenizer that Hugging Face does not have,
    and for weights in 8 bits or with LoRA updates; FileExistsError for a folder that holds a model;
    OSError, naming the folder and what to do, where it cannot be written.
    """
    refuse_quantized(model, "save_hf")
    refuse_lora(model, "save_hf")
    if max_shard_bytes < 1:
        raise ValueError(f"max_shard_bytes must be at least 1, got {max_shard_bytes}")
    values = write_config(model.config)
    ours = model.state_dict()
    bare = skeleton(model.config)
    _check_same(bare, ours)
    plan = plan_of(bare, family_of(values))
    dtype = next(iter(ours.values())).dtype
    values["torch_dtype"] = str(dtype).removeprefix("torch.")
    shards: list[dict[str, Callable[[], Tensor]]] = [{}]
    room = max_shard_bytes
    for entry in plan:
        n_bytes = sum(ours[name].numel() for name in entry.ours) * dtype.itemsize
        if shards[-1] and n_bytes > room:
            shards = [*shards, {}]
            room = max_shard_bytes
        shards[-1][entry.name] = partial(
            to_theirs, entry, [ours[name] for name in entry.ours], model.config
        )
        room -= n_bytes
    ids, texts = ({}, {}) if tokenizer is None else _tokenizer_files(tokenizer)
    values |= ids
    write_folder(Path(folder), shards, {**texts, CONFIG: json.dumps(values, indent=2) + "\n"})
    return Path(folder)


def _tokenizer_files(tokenizer: Tokenizer) -> tuple[dict[str, Any], dict[str, str]]:
    """What a folder says of a tokenizer: the ids in config.json, and texts by file name."""
    marks = {"bos_token": tokenizer.beginning, "eos_token": tokenizer.ending}
    ids = {
        f"{mark}_id": list(ids) if len(ids) > 1 else ids[0] for mark, ids in marks.items() if ids
    }
    names = GENERIC | {mark: tokenizer.decode(ids[:1]) for mark, ids in marks.items() if ids}
    texts = {TOKENIZER: tokenizer_json(tokenizer), TOKENIZER_CONFIG: json.dumps(names) + "\n"}
    kept = tokenizer.kept if isinstance(tokenizer, HubTokenizer) else {}
    ids |= {name: value for name, value in kept.get("ids", {}).items() if name in KEPT_IDS}
    texts |= {name: text for name, text in kept.get("files", {}).items() if name in SIDE_FILES}
    return ids, texts


def load_hf_tokenizer(path_or_id: str | Path) -> HubTokenizer:
    """Open the tokenizer.json of a folder, or of an id of the hub. Its `ending` is the model's
    eos_token_id.

    What texts begin with is read from tokenizer.json alone; a warning says where add_bos_token of
    tokenizer_config.json differs. Special tokens and the chat template are kept, for `chat` and
    `save_hf`.
    Raises FileNotFoundError or OSError where there is none, ValueError for a damaged one,
    ModuleNotFoundError without the package `tokenizers`.
    """
    folder = find_folder(path_or_id, TOKENIZER)
    path = folder / TOKENIZER
    text = read_text(path)
    ending = eos_ids(folder)
    kept = {
        "files": {
            name: read_text(folder / name) for name in SIDE_FILES if (folder / name).is_file()
        }
    }
    if (folder / CONFIG).is_file():
        values = read_json(folder / CONFIG)
        kept["ids"] = {name: values[name] for name in KEPT_IDS if values.get(name) is not None}
    try:
        tokenizer = HubTokenizer(
            text, ending, {name: values for name, values in kept.items() if values}
        )
    except ValueError as e:
        if foreign(path):
            raise damaged(path, e) from None
        if '"kind"' in text:
            raise ValueError(
                f"{path} is a file of Tokenizer.save; open it with load_tokenizer"
            ) from None
        raise ValueError(f"{path} is damaged or of a newer kind: {e}") from None
    _check_beginning(tokenizer, folder)
    return tokenizer


def _check_beginning(tokenizer: HubTokenizer, folder: Path) -> None:
    """Warn where tokenizer_config.json and tokenizer.json differ on whether a text begins with a
    special token.
    """
    path = folder / TOKENIZER_CONFIG
    wanted = read_json(path).get("add_bos_token") if path.is_file() else None
    if isinstance(wanted, bool) and wanted != bool(tokenizer.beginning):
        warnings.warn(
            f"{path}: add_bos_token is {wanted}, and it is not read; {TOKENIZER} says that texts "
            f"begin with the ids {tokenizer.beginning}. To change that, set `beginning` of the "
            "tokenizer",
            stacklevel=3,
        )


def _full_names(stored: dict[str, Stored], family: Family) -> dict[str, Stored]:
    """The tensors by their full names, without the buffers of old files.

    A model without a head has no prefix.
    """
    bare = not any(name.startswith(family.prefix) for name in stored)
    full = {
        name if name == TIED or not bare else family.prefix + name: t for name, t in stored.items()
    }
    return {name: t for name, t in full.items() if not family.passed_over.fullmatch(name)}


def _check_same(bare: nn.Module, ours: dict[str, Tensor]) -> None:
    """Raise ValueError unless a model's weights (...) are those of its config, all of one dtype."""
    wanted = {name: tuple(t.shape) for name, t in bare.state_dict().items()}
    for name in sorted(wanted.keys() | ours.keys()):
        here = wanted.get(name, "none")
        there = tuple(ours[name].shape) if name in ours else "missing"
        if here != there:
            says = f"{name} is {there} in the model, but its config says {here}"
            raise ValueError(f"{says}; save a model that fits its config")
    if (
        len(dtypes := {t.dtype for t in ours.values()}) > 1
        or not next(iter(dtypes)).is_floating_point
    ):
        raise ValueError(
            f"the weights are of dtypes {', '.join(sorted(map(str, dtypes)))}; convert all to one"
        )
