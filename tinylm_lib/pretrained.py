"""Trained models: those that ship with the library, and those of Hugging Face, in and out. Notebook 05."""

import os
from pathlib import Path

from .hub import load_hf, load_hf_tokenizer, save_hf
from .hub.folder import CONFIG, HUB_ID
from .model import TransformerLM
from .text.base import Tokenizer
from .training.checkpoint import MANIFEST, Checkpoint, latest, load

__all__ = ["FINE_TUNING", "load_hf", "load_hf_tokenizer", "load_model", "load_pretrained", "open_model", "save_hf"]
# Fields of TrainConfig that suit the training of a trained model. Source: measured, see the README.
FINE_TUNING = {"matrix_lr": 1e-3, "embedding_lr": 1e-3}
WEIGHTS = Path(__file__).with_name("weights")


def load_model(source: str | Path) -> tuple[TransformerLM, Tokenizer]:
    """Open a model and its tokenizer, on the CPU and in evaluation mode; the weights keep the dtype of the file.

    source: the name of a shipped model ("storyworld"), a folder of `train` or of a checkpoint, a folder of Hugging
    Face with tokenizer.json, or an id of the hub. A name that ships comes first; ./storyworld is a folder.
    Raises FileNotFoundError for anything else and for a missing tokenizer.json, OSError where the hub cannot be
    reached, ValueError for damaged files and for a checkpoint without a tokenizer.
    """
    found = open_model(source)
    return found.model.eval(), found.tokenizer


def open_model(source: str | Path) -> Checkpoint:
    """As `load_model`, with what else a checkpoint holds; a model of Hugging Face is at step 0 and has no more."""
    is_folder = os.path.isdir(source)
    if str(source) in _shipped():
        found = load_pretrained(str(source))
    elif is_folder and not os.path.isfile(Path(source) / CONFIG):
        found = load(latest(source))
    elif is_folder or (not os.path.exists(source) and HUB_ID.fullmatch(str(source))):
        tokenizer = load_hf_tokenizer(source)
        found = Checkpoint(load_hf(source), 0, tokenizer, None, None, {}, {})
    else:
        raise FileNotFoundError(
            f"{str(source)!r} is not a model; give a folder with {MANIFEST} (of train) or {CONFIG} (of "
            f"Hugging Face), the name of a shipped model ({', '.join(_shipped())}), or an id of the hub, owner/name"
        )
    if found.tokenizer is None:
        raise ValueError(f"the checkpoint in {source} has no tokenizer; save it with checkpoint.save(..., tokenizer=)")
    return found


def load_pretrained(name: str) -> Checkpoint:
    """Open a shipped model, without a network: its `model` on the CPU, its `tokenizer`, and in `extra` how it was made.

    name: a folder of `weights`, such as "storyworld".
    Raises ValueError, listing what ships, for another name.
    """
    if name not in _shipped():
        raise ValueError(f"no model {name!r} ships with the library; choose one of {', '.join(_shipped())}")
    return load(WEIGHTS / name)


def _shipped() -> list[str]:
    return sorted(folder.name for folder in WEIGHTS.iterdir() if folder.is_dir())
