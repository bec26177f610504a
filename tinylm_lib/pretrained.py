"""Trained models: those that ship with the library, and those of Hugging Face, in and out. Notebook 05."""

from pathlib import Path

from .hub import load_hf, load_hf_tokenizer, save_hf
from .training.checkpoint import Checkpoint, load

__all__ = ["load_hf", "load_hf_tokenizer", "load_pretrained", "save_hf"]
WEIGHTS = Path(__file__).with_name("weights")


def load_pretrained(name: str) -> Checkpoint:
    """Open a shipped model, without a network: its `model` on the CPU, its `tokenizer`, and in `extra` how it was made.

    name: a folder of `weights`, such as "storyworld".
    Raises ValueError, listing what ships, for another name.
    """
    shipped = sorted(folder.name for folder in WEIGHTS.iterdir() if folder.is_dir())
    if name not in shipped:
        raise ValueError(f"no model {name!r} ships with the library; choose one of {', '.join(shipped)}")
    return load(WEIGHTS / name)
