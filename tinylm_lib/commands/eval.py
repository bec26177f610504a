"""eval: how well a model predicts a text."""

import argparse
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..data.dialogues import Dialogues, encode_dialogues
from ..pretrained import open_model
from ..quantization import QUANTIZED
from ..runs.dataset import (
    answer_windows,
    check_lengths,
    encode_corpus,
    first_dialogues,
    map_tokens,
    validation_windows,
)
from ..runs.job import same_dataset
from ..runs.settings import RunConfig
from ..training.checkpoint import Checkpoint
from ..training.evaluation import evaluate
from ..training.loop import choose_device

NOTHING_KEPT = (
    "{} keeps no text to measure it on; give --corpus FILE, --tokens FILE or --dialogues FILE"
)
LONGEST_WINDOW = 1024  # where nothing says how long those of the training were


def add_eval(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("eval", help="measure how well a model predicts a text")
    p.set_defaults(do=run_eval)
    what = (
        "a run, a checkpoint, a shipped model, a Hugging Face folder or hub id (default "
        f"{RunConfig.out})"
    )
    p.add_argument("source", nargs="?", default=RunConfig.out, help=what)
    where = p.add_mutually_exclusive_group()
    where.add_argument(
        "--corpus",
        help="another text, taken whole; default: the validation text of the training run",
    )
    where.add_argument(
        "--tokens",
        metavar="FILE",
        help="a token file, taken whole; its tokenizer must be the model's",
    )
    where.add_argument(
        "--dialogues",
        metavar="FILE",
        help="dialogues in JSON lines, taken whole; only the answers are measured",
    )
    lines = "each line is a text of its own; default: as in the training run"
    p.add_argument("--lines", action=argparse.BooleanOptionalAction, help=lines)
    length = (
        "tokens of a window; default: as in the training run, otherwise the model's, at most "
        f"{LONGEST_WINDOW}"
    )
    p.add_argument("--seq-len", type=int, help=length)
    stride = (
        "a window begins so many tokens after the one before, each token counts once; default: "
        "seq_len"
    )
    p.add_argument("--stride", type=int, help=stride)
    limit = "only the first N tokens; default: as in the training run, all of another text"
    p.add_argument("--eval-tokens", type=int, metavar="N", help=limit)
    p.add_argument("--quantize", choices=QUANTIZED, help="with weights in 8 bits")
    p.add_argument("--device", default="auto", help="auto takes an accelerator, or else the cpu")


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a model of any source, in the dtype of its file."""
    device = choose_device(arguments.device)
    loaded = open_model(arguments.source, arguments.quantize)
    run = stored_run(arguments, loaded)
    others = (arguments.corpus, arguments.tokens)
    own = run.dialogues if others == (None, None) else None
    if arguments.dialogues is not None or own is not None:
        dialogues, what = dialogues_to_measure(arguments, loaded, run)
        windows, n_bytes = answer_windows(dialogues, loaded.tokenizer)
        cut = "the answers of whole dialogues"
    else:
        ids, what, lines = text_to_measure(arguments, loaded, run)
        longest = window_length(arguments, loaded, lines)
        windows, n_bytes = validation_windows(
            ids, loaded.tokenizer, longest, lines, arguments.stride
        )
        cut = "whole lines" if lines else f"windows of {longest}"
    with tqdm(windows(), "evaluating", sum(1 for _ in windows()), leave=False, delay=2) as shown:
        e = evaluate(loaded.model.to(device), shown, n_bytes)
    dtype = arguments.quantize or str(next(loaded.model.parameters()).dtype).removeprefix("torch.")
    when = f"update {loaded.step}, " if loaded.step else ""  # a model of Hugging Face has none
    print(f"{arguments.source} ({when}{dtype}) on {what}, {e.n_tokens:,} tokens in {cut}:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")


def stored_run(arguments: argparse.Namespace, loaded: Checkpoint) -> RunConfig:
    """What the model's run read, where it had one, with the limit that the flags name."""
    stored = dict(loaded.extra.get("run", {"lines": False, "validation_share": 0.0}))
    if arguments.eval_tokens is not None:
        stored["eval_tokens"] = arguments.eval_tokens
    return RunConfig.from_dict(stored)


def dialogues_to_measure(
    arguments: argparse.Namespace, loaded: Checkpoint, run: RunConfig
) -> tuple[Dialogues, str]:
    """The dialogues that the flags name, or those that the model's run held out, and what they are.

    Raises ValueError for sizes of windows, and for a dialogue that the model cannot read.
    """
    if (arguments.seq_len, arguments.stride, arguments.lines) != (None, None, None):
        raise ValueError(
            "whole dialogues are scored here; leave out --seq-len, --stride and --lines"
        )
    first_line = 1
    if arguments.dialogues is not None:
        name = arguments.dialogues
        every, _ = encode_dialogues(name, loaded.tokenizer)
        dialogues = every
        if arguments.eval_tokens is not None:
            dialogues = first_dialogues(every, run.eval_tokens)
        what = f"{len(dialogues.starts):,} of {len(every.starts):,} dialogues of {name}"
    elif run.validation_share:
        data = same_dataset(loaded, run)
        name = data.name
        dialogues = data.dialogues.validation
        first_line += len(data.dialogues.training.starts)
        what = f"{len(dialogues.starts):,} dialogues at the end of {name}"
    else:
        raise ValueError(NOTHING_KEPT.format(arguments.source))
    check_lengths(dialogues, loaded.model.config.max_seq_len, first_line, name)
    return dialogues, what


def text_to_measure(
    arguments: argparse.Namespace, loaded: Checkpoint, run: RunConfig
) -> tuple[Tensor, str, bool]:
    """The text that the flags name, or the validation text of the model's run.

    Returns its ids (N,), what it is, and whether each of its lines is a text of its own.
    Raises ValueError where there is neither, and for a limit below two tokens.
    """
    lines = run.lines if arguments.lines is None else arguments.lines
    if arguments.tokens is not None:
        ids = map_tokens(arguments.tokens, loaded.tokenizer).ids
        what = arguments.tokens
    elif arguments.corpus is not None:
        ids = encode_corpus(arguments.corpus, loaded.tokenizer).ids
        what = arguments.corpus
        if not lines:
            ids = torch.cat((torch.tensor(loaded.tokenizer.beginning, dtype=ids.dtype), ids))
    elif run.validation_share:
        data = same_dataset(loaded, run)
        what = f"the last {run.validation_share:.0%} of {data.name}"
        cut = len(data.validation) == run.eval_tokens
        return (
            data.validation,
            f"the first {run.eval_tokens:,} tokens of {what}" if cut else what,
            lines,
        )
    else:
        raise ValueError(NOTHING_KEPT.format(arguments.source))
    cut = ids[: arguments.eval_tokens]
    return (
        cut,
        f"the first {len(cut):,} tokens of {what}" if len(cut) < len(ids) else f"all of {what}",
        lines,
    )


def window_length(arguments: argparse.Namespace, loaded: Checkpoint, lines: bool) -> int:
    """The tokens of a window, or the most that a line may have.

    Raises ValueError for sizes that the model does not have, and for sizes of windows where lines
    are scored.
    """
    limit = loaded.model.config.max_seq_len
    if lines:
        if (arguments.seq_len, arguments.stride) != (None, None):
            raise ValueError(
                "whole lines are scored here; leave out --seq-len and --stride, or choose "
                "--no-lines"
            )
        return limit
    trained = min(loaded.extra.get("train", {}).get("seq_len", LONGEST_WINDOW), limit)
    seq_len = trained if arguments.seq_len is None else arguments.seq_len
    if not 1 <= seq_len <= limit:
        raise ValueError(
            f"seq_len must be from 1 to the model's max_seq_len {limit}, got {seq_len}"
        )
    return seq_len
