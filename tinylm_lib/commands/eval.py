"""eval: how well a model predicts a text."""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..config import IGNORED
from ..data.corpora import load_corpus
from ..data.token_file import open_tokens
from ..data.windows import every_document, every_window
from ..files import whole_file
from ..pretrained import open_model
from ..runs.job import RunConfig, split_text
from ..text.base import Tokenizer, line_end
from ..training.checkpoint import Checkpoint
from ..training.evaluation import evaluate
from ..training.loop import choose_device

LONGEST = 1024  # tokens of a window where nothing says how long those of the training were
TOKENS_PER_BATCH = 4096
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


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
    length = f"tokens of a window; default: as in the training run, otherwise the model's longest, at most {LONGEST}"
    p.add_argument("--seq-len", type=int, help=length)
    stride = "a window begins so many tokens after the one before, each token counts once; default: seq_len"
    p.add_argument("--stride", type=int, help=stride)
    p.add_argument("--eval-tokens", type=int, metavar="N", help="only the first N tokens; default: all")
    p.add_argument("--surprise", metavar="FILE", help="write each token and its nats to FILE, one JSON object a line")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")


def run_eval(arguments: argparse.Namespace) -> None:
    """Measure a model of any source, in the dtype of its file."""
    device, found = choose_device(arguments.device), open_model(arguments.source)
    text = text_to_measure(arguments, found)
    windows, counted, what = cut(arguments, found, text)
    n_bytes = len(found.tokenizer.decode(text.ids[counted].tolist()).encode("utf-8"))
    with nullcontext() if arguments.surprise is None else whole_file(Path(arguments.surprise)) as file:
        ids = text.ids[: counted.stop].tolist()
        note = None if file is None else surprise_writer(file, found.tokenizer, ids, counted.start)
        e = evaluate(found.model.to(device), with_progress(windows, len(ids) - counted.start), n_bytes, note=note)
        if not math.isfinite(e.nats_per_token):
            raise ValueError(f"{arguments.source} predicts {e.nats_per_token} nats per token; its weights are damaged")
    dtype = str(next(found.model.parameters()).dtype).removeprefix("torch.")
    print(f"{arguments.source} (update {found.step}, {dtype}) on {text.what}, {e.n_tokens:,} tokens in {what}:")
    print(f"  {e.nats_per_token:.4f} nats per token, perplexity {e.perplexity:.3f}")
    print(f"  {e.bits_per_byte:.4f} bits per byte")


def text_to_measure(arguments: argparse.Namespace, found: Checkpoint) -> Measured:
    """The text that the flags name, or the validation text of the model's run.

    Raises ValueError where there is neither, and for a token file of another tokenizer.
    """
    if arguments.eval_tokens is not None and arguments.eval_tokens < 2:
        raise ValueError(f"eval_tokens must be at least 2, got {arguments.eval_tokens}; the first predicts the second")
    run = found.extra.get("run", {})
    lines = run.get("lines", False) if arguments.lines is None else arguments.lines
    if arguments.tokens is not None:
        file = open_tokens(arguments.tokens)
        if file.tokenizer.to_dict() != found.tokenizer.to_dict():
            raise ValueError(f"{arguments.tokens} was made by another tokenizer; make it with that of the model")
        return Measured(file.ids[: arguments.eval_tokens], f"all of {arguments.tokens}", lines)
    if arguments.corpus is not None:
        text, what = load_corpus(arguments.corpus), f"all of {arguments.corpus}"
        first = [] if lines else found.tokenizer.beginning
    elif run:
        config = RunConfig.from_dict(run)
        text, what = split_text(load_corpus(config.corpus), config)[1], f"the last {config.validation_share:.0%}"
        what, first = f"{what} of {config.corpus}", []
    else:
        raise ValueError(f"{arguments.source} has no text of its own; give --corpus FILE or --tokens FILE")
    ids = torch.tensor([*first, *found.tokenizer.encode(text)][: arguments.eval_tokens])
    return Measured(ids, what, lines)


def cut(
    arguments: argparse.Namespace, found: Checkpoint, text: Measured
) -> tuple[Iterator[tuple[Tensor, Tensor]], slice, str]:
    """Cut the windows of a text. Returns them, which of its ids (N,) their targets are, and what the windows are.

    Raises ValueError for sizes that the model does not have, and for those of windows where lines are scored.
    """
    limit = found.model.config.max_seq_len
    if text.lines:
        if arguments.seq_len is not None or arguments.stride is not None:
            raise ValueError("whole lines are scored here; leave out --seq-len and --stride, or choose --no-lines")
        end = line_end(found.tokenizer)
        if (longest := max(x.shape[1] for x, _ in every_document(text.ids, end, 32))) > limit:
            raise ValueError(f"a line has {longest} tokens, more than max_seq_len {limit}; choose --no-lines")
        last = (text.ids == end).nonzero()[-1].item()
        return every_document(text.ids, end, 32), slice(int(text.ids[0].item() == end), last + 1), "whole lines"
    default = found.extra.get("train", {}).get("seq_len", LONGEST)
    seq_len = min(default, limit) if arguments.seq_len is None else arguments.seq_len
    if seq_len > limit:
        raise ValueError(f"seq_len {seq_len} exceeds the model's max_seq_len {limit}; lower it")
    windows = every_window(text.ids, max(1, TOKENS_PER_BATCH // max(1, seq_len)), seq_len, arguments.stride)
    return windows, slice(1, len(text.ids)), f"windows of {seq_len}"


def with_progress(windows: Iterable[tuple[Tensor, Tensor]], n_targets: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pass on pairs of ids (B, T) and targets (B, T), and show how many targets are done where that takes long."""
    with tqdm(total=n_targets, unit="token", unit_scale=True, delay=2, leave=False) as bar:
        for x, y in windows:
            yield x, y
            bar.update(int((y != IGNORED).sum()))


def surprise_writer(file: Any, tokenizer: Tokenizer, ids: list[int], n_given: int) -> Callable[[Tensor], None]:
    """A function that writes the nats (N,) of the next tokens to a file, one JSON object a line.

    n_given: how many ids at the beginning are not predicted; their nats are null.
    """
    tokens = zip(ids, pieces(tokenizer, ids), strict=True)

    def write(nats: Iterable[float | None]) -> None:
        for n, (token, text) in zip(nats, tokens, strict=False):
            file.write(json.dumps({"token": token, "text": text, "nats": n}, ensure_ascii=False).encode() + b"\n")

    write([None] * n_given)
    return lambda nats: write(nats.tolist())


def pieces(tokenizer: Tokenizer, tokens: list[int]) -> Iterator[str]:
    """The text of each token; together they are the text. A character of several tokens is with the last of them."""
    before, held = [], []
    for i, token in enumerate(tokens, start=1):
        held.append(token)
        text = tokenizer.decode(before + held)[len(tokenizer.decode(before)) :]
        if text.endswith(UNFINISHED) and i < len(tokens):
            yield ""
        else:
            yield text
            before, held = held, []
