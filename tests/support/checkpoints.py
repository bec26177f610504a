"""A run worth saving, and its contents as plain values."""

import itertools
from typing import Any

import torch
from support.toys import toy_config, toy_ids
from torch import Tensor

from tinylm_lib import TrainConfig, TransformerLM, train
from tinylm_lib.data.windows import RandomWindows
from tinylm_lib.text.tokenizers import CharTokenizer
from tinylm_lib.training.checkpoint import Checkpoint
from tinylm_lib.training.optim import build_optimizer

CONFIG = TrainConfig(total_steps=4, warmup_steps=1, batch_size=2, seq_len=6)


def trained(seed: int = 0, n_steps: int = 2, name: str = "gpt", **changes: Any) -> dict[str, Any]:
    """A toy model after a few updates, with all that a checkpoint can hold: the keyword arguments of `save`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = TransformerLM(toy_config(name, n_layers=1, **changes))
        batches = RandomWindows(toy_ids(1, 200)[0], 2, 6, seed)
        optimizer = build_optimizer(model, CONFIG)
        list(itertools.islice(train(model, optimizer, batches, CONFIG), n_steps))
    return {
        "model": model, "optimizer": optimizer, "batches": batches, "step": n_steps,
        "tokenizer": CharTokenizer("abcdefghijklmnop\u2028"), "extra": {"train": CONFIG.to_dict(), "note": "größer"},
    }  # fmt: skip


def contents(found: Checkpoint) -> dict[str, Any]:
    """Everything a checkpoint holds, as plain values that can be compared."""

    def plain(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            return str(tree.dtype), tree.tolist()
        if isinstance(tree, dict):
            return {k: plain(v) for k, v in tree.items()}
        return [plain(v) for v in tree] if isinstance(tree, list | tuple) else tree

    tokenizer = None if found.tokenizer is None else found.tokenizer.to_dict()
    own = {"model": found.model.state_dict(), "config": found.model.config.to_dict(), "tokenizer": tokenizer}
    return plain(vars(found) | own)
