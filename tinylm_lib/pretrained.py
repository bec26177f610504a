"""The trained models that ship with the library. Notebook 05."""

from pathlib import Path

from .checkpoint import Checkpoint, load

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
