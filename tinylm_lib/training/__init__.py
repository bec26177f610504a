"""Training: the loop, the optimizers, evaluation, many processes, checkpoints.

Notebooks 11, 14 and 15.
"""

from .checkpoint import Checkpoint
from .distributed import ALONE, Replicas, Shards, join
from .evaluation import Evaluation, evaluate, next_token_loss, token_log_probs
from .loop import Step, choose_device, train
from .optim import build_optimizer, orthogonalise, warmup_cosine, warmup_linear

__all__ = [
    "ALONE",
    "Checkpoint",
    "Evaluation",
    "Replicas",
    "Shards",
    "Step",
    "build_optimizer",
    "choose_device",
    "evaluate",
    "join",
    "next_token_loss",
    "orthogonalise",
    "token_log_probs",
    "train",
    "warmup_cosine",
    "warmup_linear",
]
