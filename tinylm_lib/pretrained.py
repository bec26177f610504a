"""Trained models: those that ship with the library, those of Hugging Face, in and out, and GGUF.

Notebook 05.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from .hub import is_gguf, load_gguf, load_hf, load_hf_tokenizer, save_hf
from .hub.folder import CONFIG, HUB_ID, TOKENIZER, check_form
from .layers import pick
from .model import TransformerLM
from .quantization import QUANTIZED, quantize_model
from .text.base import Tokenizer
from .training.checkpoint import MANIFEST, OURS, Checkpoint, latest, load

__all__ = [
    "FINE_TUNING",
    "fine_tuning",
    "load_hf",
    "load_hf_tokenizer",
    "load_model",
    "load_pretrained",
    "open_model",
    "save_hf",
]
# Fields of TrainConfig that suit the training of a trained model. Source: ENGINEERS.md, measured.
FINE_TUNING: dict[str, Any] = {"matrix_lr": 1e-3, "embedding_lr": 1e-3}
LARGE = 10_000_000  # parameters: those of the models measured are below a million, or 135 million
LARGE_FINE_TUNING: dict[str, Any] = {"optimizer": "adamw", "matrix_lr": 1e-4, "embedding_lr": 1e-4}
WEIGHTS = Path(__file__).with_name("weights")


def fine_tuning(model: TransformerLM) -> dict[str, Any]:
    """Fields of TrainConfig that suit the training of this trained model, by its size."""
    n = sum(p.numel() for p in model.parameters())
    return LARGE_FINE_TUNING if n >= LARGE else FINE_TUNING


def load_model(source: str | Path, quantize: str | None = None) -> tuple[TransformerLM, Tokenizer]:
    """Open a model and its tokenizer, on the CPU and in evaluation mode; the weights keep the dtype
    of the file, and those of GGUF become fp32.

    source: the name of a shipped model ("storyworld"), a folder of `train` or of a checkpoint, a
    folder of Hugging Face with tokenizer.json, an id of the hub, or a GGUF file. A name that ships
    comes first; ./storyworld is a folder.
    quantize: "int8" for weights in 8 bits, see `quantize_model`.
    Raises FileNotFoundError for anything else and for a missing tokenizer.json, OSError where the
    hub cannot be reached, ValueError for damaged files, for a checkpoint without a tokenizer, and
    for what a file of Hugging Face or GGUF has and our model cannot compute.
    """
    loaded = open_model(source, quantize)
    return loaded.model.eval(), loaded.tokenizer


def open_model(source: str | Path, quantize: str | None = None) -> Checkpoint:
    """As `load_model`, with what else a checkpoint holds; a model of Hugging Face or GGUF is at
    step 0 and has no more.
    """
    if quantize is not None:
        pick(QUANTIZED, quantize, "quantize")
    is_folder = os.path.isdir(source)
    if str(source) in _shipped():
        loaded = load_pretrained(str(source), quantize)
    elif os.path.isfile(source) and (Path(source).suffix == ".gguf" or is_gguf(source)):
        model, of_file = load_gguf(source, quantize)
        loaded = Checkpoint(model, 0, of_file, None, None, {}, {})
    elif (
        is_folder
        and not os.path.isfile(Path(source) / CONFIG)
        and not _of_hugging_face(Path(source))
    ):
        loaded = _quantized(load(latest(source)), quantize)
    elif is_folder or (not os.path.exists(source) and HUB_ID.fullmatch(str(source))):
        if is_folder:
            check_form(Path(source))
        tokenizer = load_hf_tokenizer(source)
        loaded = Checkpoint(load_hf(source, quantize), 0, tokenizer, None, None, {}, {})
    else:
        raise FileNotFoundError(
            f"{str(source)!r} is not a model; train one, or give a folder with {MANIFEST} (of "
            f"train) or {CONFIG} (of Hugging Face), a GGUF file, the name of a shipped model "
            f"({', '.join(_shipped())}), or an id of the hub, owner/name"
        )
    if loaded.tokenizer is None:
        raise ValueError(
            f"the checkpoint in {source} has no tokenizer; save it with checkpoint.save(..., "
            "tokenizer=)"
        )
    return loaded


def load_pretrained(name: str, quantize: str | None = None) -> Checkpoint:
    """Open a shipped model, without a network: its `model` on the CPU, its `tokenizer`, and in
    `extra` how it was made.

    name: a folder of `weights`, such as "storyworld". quantize: as in `load_model`; then it is in
    evaluation mode.
    Raises ValueError, listing what ships, for another name.
    """
    if name not in _shipped():
        raise ValueError(
            f"no model {name!r} ships with the library; choose one of {', '.join(_shipped())}"
        )
    return _quantized(load(WEIGHTS / name), quantize)


def _of_hugging_face(folder: Path) -> bool:
    """Whether a folder without config.json holds other files of a model that is not a checkpoint of
    ours.
    """
    there = [
        *folder.glob("*.gguf"),
        *folder.glob("*.bin"),
        *folder.glob("*.pth"),
        *folder.glob("*.safetensors"),
    ]
    foreign = [path for path in there if not OURS.fullmatch(path.name)]
    return bool(foreign or (folder / TOKENIZER).is_file()) and not (folder / MANIFEST).is_file()


def _quantized(loaded: Checkpoint, quantize: str | None) -> Checkpoint:
    return (
        loaded
        if quantize is None
        else replace(loaded, model=quantize_model(loaded.model.eval(), quantize))
    )


def _shipped() -> list[str]:
    return sorted(folder.name for folder in WEIGHTS.iterdir() if folder.is_dir())
