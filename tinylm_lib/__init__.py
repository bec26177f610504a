"""TinyLM: a modern decoder-only language model in a library small enough to read from end to end."""

import sys

if "".join(sys.argv[:1]).endswith(("-m", "tinylm", "tinylm.exe")):  # Ctrl-C while PyTorch loads is not an error
    sys.excepthook = lambda kind, *rest: kind is KeyboardInterrupt or sys.__excepthook__(kind, *rest)

from .cache import KVCache
from .config import ModelConfig, TrainConfig
from .model import TransformerLM
from .presets import preset
from .sampling import beam_search, generate, next_token_probs, stream
from .training.evaluation import evaluate, next_token_loss
from .training.loop import train

__all__ = [
    "KVCache",
    "ModelConfig",
    "TrainConfig",
    "TransformerLM",
    "beam_search",
    "evaluate",
    "generate",
    "next_token_loss",
    "next_token_probs",
    "preset",
    "stream",
    "train",
]
