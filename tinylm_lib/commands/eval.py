"""eval: how well a model predicts a text."""

import argparse
from typing import Any

from ..runs.dataset import encode_corpus, validation_windows
from ..runs.job import RunConfig, same_dataset
from ..training import checkpoint
from ..training.evaluation import evaluate
from ..training.loop import choose_device


def add_eval(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("eval", help="measure a checkpoint")
    p.set_defaults(do=run_eval)
    p.add_argument("checkpoint", nargs="?", default=RunConfig.out, help=f"its folder (default {RunConfig.out})")
    p.add_argument("--corpus", help="another text, taken whole; default: the validation text of the training run")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a checkpoint."""
    device = choose_device(arguments.device)
    folder = checkpoint.latest(arguments.checkpoint)
    found = checkpoint.load(folder)
    if found.tokenizer is None or (arguments.corpus is None and "run" not in found.extra):
        raise ValueError(
            f"{folder} was saved without its tokenizer or corpus; give --corpus, or a folder made by train"
        )
    run = RunConfig.from_dict(found.extra.get("run", {}))
    if arguments.corpus is None:
        data = same_dataset(found, run)
        ids, what = data.validation, f"the last {run.validation_share:.0%} of {data.name}"
    else:
        ids, what = encode_corpus(arguments.corpus, found.tokenizer).ids, f"all of {arguments.corpus}"
    windows, n_bytes = validation_windows(ids, found.tokenizer, found.model.config.max_seq_len, run.lines)
    e = evaluate(found.model.to(device), windows(), n_bytes)
    print(f"{folder} (update {found.step}) on {what}, {e.n_tokens:,} tokens:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")
