"""eval: how well a model predicts a text."""

import argparse
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..config import IGNORED
from ..files import whole_file
from ..pretrained import open_model
from ..runs.dataset import encode_corpus, map_tokens, validation_windows
from ..runs.job import RunConfig, same_dataset
from ..text.base import Tokenizer, line_end
from ..training.checkpoint import Checkpoint
from ..training.evaluation import evaluate
from ..training.loop import choose_device
from ..writing import LONGEST_WAIT, UNFINISHED

LONGEST_WINDOW = 1024  # where nothing says how long those of the training were


class Measured(NamedTuple):
    """A text to measure: its ids (N,), what it is, and whether each of its lines is a text of its own."""

    ids: Tensor
    what: str
    lines: bool


def add_eval(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("eval", help="measure how well a model predicts a text")
    p.set_defaults(do=run_eval)
    what = f"a run, a checkpoint, a shipped model, a Hugging Face folder or hub id (default {RunConfig.out})"
    p.add_argument("source", nargs="?", default=RunConfig.out, help=what)
    where = p.add_mutually_exclusive_group()
    where.add_argument("--corpus", help="another text, taken whole; default: the validation text of the training run")
    where.add_argument("--tokens", metavar="FILE", help="a token file, taken whole; its tokenizer must be the model's")
    lines = "each line is a text of its own; default: as in the training run"
    p.add_argument("--lines", action=argparse.BooleanOptionalAction, help=lines)
    length = f"tokens of a window; default: as in the training run, otherwise the model's, at most {LONGEST_WINDOW}"
    p.add_argument("--seq-len", type=int, help=length)
    stride = "a window begins so many tokens after the one before, each token counts once; default: seq_len"
    p.add_argument("--stride", type=int, help=stride)
    p.add_argument("--eval-tokens", type=int, metavar="N", help="only the first N tokens; default: all")
    p.add_argument("--surprise", metavar="FILE", help="write each token and its nats to FILE, one JSON object a line")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a model of any source, in the dtype of its file."""
    if arguments.surprise is not None and os.path.exists(arguments.surprise):
        raise ValueError(f"{arguments.surprise} exists; delete it, or choose another name for --surprise")
    device, found = choose_device(arguments.device), open_model(arguments.source)
    text = text_to_measure(arguments, found)
    longest = window_length(arguments, found, text.lines)
    windows, n_bytes = validation_windows(text.ids, found.tokenizer, longest, text.lines, arguments.stride)
    with nullcontext() if arguments.surprise is None else whole_file(Path(arguments.surprise)) as file:
        note = None if file is None else surprise_writer(file, found.tokenizer, text)
        e = evaluate(found.model.to(device), with_progress(windows(), len(text.ids)), n_bytes, note=note)
        if not math.isfinite(e.nats_per_token):
            raise ValueError(f"{arguments.source} predicts {e.nats_per_token} nats per token; its weights are damaged")
    dtype = str(next(found.model.parameters()).dtype).removeprefix("torch.")
    cut = "whole lines" if text.lines else f"windows of {longest}"
    print(f"{arguments.source} (update {found.step}, {dtype}) on {text.what}, {e.n_tokens:,} tokens in {cut}:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")


def text_to_measure(arguments: argparse.Namespace, found: Checkpoint) -> Measured:
    """The text that the flags name, or the validation text of the model's run.

    Raises ValueError where there is neither, and for less than two tokens.
    """
    run, limit = RunConfig.from_dict(found.extra.get("run", {})), arguments.eval_tokens
    if limit is not None and limit < 2:
        raise ValueError(f"eval_tokens must be at least 2, got {limit}; the first one predicts the second")
    lines = (run.lines and "run" in found.extra) if arguments.lines is None else arguments.lines
    if arguments.tokens is not None:
        ids, what = map_tokens(arguments.tokens, found.tokenizer).ids, f"all of {arguments.tokens}"
    elif arguments.corpus is not None:
        ids, what = encode_corpus(arguments.corpus, found.tokenizer).ids, f"all of {arguments.corpus}"
        if not lines:
            ids = torch.cat((torch.tensor(found.tokenizer.beginning, dtype=ids.dtype), ids))
    elif "run" not in found.extra:
        raise ValueError(f"{arguments.source} keeps no text to measure it on; give --corpus FILE or --tokens FILE")
    elif not run.validation_share:
        raise ValueError(f"the run of {arguments.source} kept no text for validation; give --corpus or --tokens")
    else:
        data = same_dataset(found, run)
        ids, what = data.validation, f"the last {run.validation_share:.0%} of {data.name}"
    return Measured(ids[:limit], what, lines)


def window_length(arguments: argparse.Namespace, found: Checkpoint, lines: bool) -> int:
    """The tokens of a window, or the most that a line may have.

    Raises ValueError for sizes that the model does not have, and for sizes of windows where lines are scored.
    """
    limit = found.model.config.max_seq_len
    if lines:
        if (arguments.seq_len, arguments.stride) != (None, None):
            raise ValueError("whole lines are scored here; leave out --seq-len and --stride, or choose --no-lines")
        return limit
    if arguments.seq_len is None:
        return min(found.extra.get("train", {}).get("seq_len", LONGEST_WINDOW), limit)
    if not 1 <= arguments.seq_len <= limit:
        raise ValueError(f"seq_len must be from 1 to the model's max_seq_len {limit}, got {arguments.seq_len}")
    return arguments.seq_len


def with_progress(windows: Iterable[tuple[Tensor, Tensor]], n_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pass on pairs of ids (B, T) and targets (B, T), and show how many targets are done where that takes long."""
    with tqdm(total=n_tokens, unit="token", unit_scale=True, delay=2, leave=False) as bar:
        for x, y in windows:
            yield x, y
            bar.update(int((y != IGNORED).sum()))


def surprise_writer(file: Any, tokenizer: Tokenizer, text: Measured) -> Callable[[Tensor], None]:
    """A function that writes the nats (N,) of the next tokens to a file, one JSON object a line.

    The first token of windows is not predicted: its nats are null. What follows the last line end is left out.
    """
    ids = text.ids.tolist()
    tokens = zip(ids, pieces(tokenizer, ids), strict=True)

    def write(nats: list[float | None]) -> None:
        for n, (token, piece) in zip(nats, tokens, strict=False):
            line = json.dumps({"token": token, "text": piece, "nats": n}, ensure_ascii=False)
            file.write(line.encode("utf-8") + b"\n")

    write([None] * int(not text.lines or ids[0] == line_end(tokenizer)))
    return lambda nats: write(nats.tolist())


def pieces(tokenizer: Tokenizer, tokens: list[int]) -> Iterator[str]:
    """The text of each token; together they are the text. A character of several tokens is with the last of them."""
    before, held = list[int](), list[int]()
    for i, token in enumerate(tokens, start=1):
        held.append(token)
        text = tokenizer.decode(before + held)[len(tokenizer.decode(before)) :]
        if text.endswith(UNFINISHED) and i < len(tokens) and len(held) < LONGEST_WAIT:
            yield ""
        else:
            yield text
            before, held = held, []
