"""Dialogues from which a model learns to answer: only the tokens of answers count."""

import hashlib
import json
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..config import IGNORED
from ..text.base import Tokenizer
from ..text.chat import Turn
from ..text.reading import is_file, read_blocks

EXAMPLE = (
    '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}'
)


class Dialogues(NamedTuple):
    """Dialogues one after the other: ids (N,), the same ids as targets (N,) with -100 outside
    answers, and where each dialogue begins, starts (K,).
    """

    ids: Tensor
    targets: Tensor
    starts: Tensor

    def part(self, first: int, end: int) -> "Dialogues":
        """The dialogues first..end-1."""
        bounds = [*self.starts.tolist(), len(self.ids)]
        span = slice(bounds[first], bounds[end])
        return Dialogues(self.ids[span], self.targets[span], self.starts[first:end] - span.start)

    def lengths(self) -> list[int]:
        """The number of tokens of each dialogue."""
        ends = torch.tensor([len(self.ids)])
        return self.starts.diff(append=ends).tolist()


def read_dialogues(path: str | Path) -> tuple[list[list[Turn]], str]:
    """Read a file whose lines are dialogues in JSON, each with at least one answer.

    Returns the dialogues, and the sha256 of the text.
    Raises FileNotFoundError for a missing file, ValueError, naming the line, what is wrong and what
    to do, for a line that is not such a dialogue.
    """
    if not is_file(path):
        raise FileNotFoundError(f"{path} is not a file; give one whose lines are such as {EXAMPLE}")
    text = "".join(read_blocks(Path(path)))
    if not text.strip():
        raise ValueError(f"{path} is empty; give a file whose lines are such as {EXAMPLE}")
    dialogues = []
    for n, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            dialogues.append(_dialogue(line))
        except ValueError as e:
            raise ValueError(f"{path}, line {n}: {e}") from None
    return dialogues, hashlib.sha256(text.encode("utf-8")).hexdigest()


def _dialogue(line: str) -> list[Turn]:
    """The turns in a line. Raises ValueError, with what to do, for anything else."""
    if not line.strip():
        raise ValueError("it is empty; delete it")
    try:
        values = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as e:
        raise ValueError(f"it is not JSON ({e}); write it as {EXAMPLE}") from None
    messages = values.get("messages") if isinstance(values, dict) else None
    if not isinstance(messages, list):
        raise ValueError(f"it has no list of messages; write it as {EXAMPLE}")
    turns = [_turn(message, i) for i, message in enumerate(messages, 1)]
    if not any(role == "assistant" for role, _ in turns):
        raise ValueError(
            "no message is of the assistant, so there is no answer to learn; add one, or delete "
            "the line"
        )
    return turns


def _turn(message: Any, i: int) -> Turn:
    parts = (message.get("role"), message.get("content")) if isinstance(message, dict) else ()
    if not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"message {i} must have a role and a content that are texts, got "
            f"{json.dumps(message)[:60]}; write it as in {EXAMPLE}"
        )
    role, text = parts
    return role, text


def encode_dialogue(tokenizer: Tokenizer, dialogue: list[Turn]) -> tuple[list[int], list[bool]]:
    """Return the ids of a dialogue, and which of them the model writes: those of answers and of the
    marks that end them.

    An answer begins at the first token that differs from those of the text before it, which is all
    that the model sees when it answers.
    Raises TypeError or ValueError as `Tokenizer.chat`.
    """
    pieces = tokenizer.pieces(dialogue)
    texts = list(accumulate(piece.text for piece in pieces))
    ids = tokenizer.encode(texts[-1])
    counts = [False] * len(ids)
    for before, text, piece in zip(["", *texts], texts, pieces, strict=False):
        if piece.is_answer:
            first = _n_shared(ids, tokenizer.encode(before))
            end = _n_shared(ids, tokenizer.encode(text))
            counts[first:end] = [True] * (end - first)
    return ids, counts


def _n_shared(ids: list[int], others: list[int]) -> int:
    """How many ids two lists share at their beginnings."""
    differing = (i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b)
    return next(differing, min(len(ids), len(others)))


def encode_dialogues(path: str | Path, tokenizer: Tokenizer) -> tuple[Dialogues, str]:
    """Read and encode a file of dialogues. Returns them, and the sha256 of the text.

    Raises as `read_dialogues`, and ValueError, naming the line, for a dialogue that the tokenizer
    cannot write.
    """
    dialogues, sha256 = read_dialogues(path)
    ids = list[int]()
    targets = list[int]()
    starts = list[int]()
    tokenizer.turn_end()  # without a template no line is to blame
    for n, dialogue in enumerate(dialogues, 1):
        try:
            own, counts = encode_dialogue(tokenizer, dialogue)
        except ValueError as e:
            raise ValueError(f"{path}, line {n}: {e}") from None
        starts.append(len(ids))
        ids += own
        targets += [i if counted else IGNORED for i, counted in zip(own, counts, strict=True)]
    tensors = torch.tensor(ids, dtype=torch.int32), torch.tensor(targets, dtype=torch.int32)
    return Dialogues(*tensors, torch.tensor(starts)), sha256


def every_dialogue(dialogues: Dialogues, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut whole dialogues, each a row of its own.

    Yields x (B, T) and y (B, T), torch.long, T the longest of the batch less 1; shorter rows end in
    0 in x and -100 in y, and y is -100 outside answers.
    """
    lengths = dialogues.lengths()
    xs = dialogues.ids.long().split(lengths)
    ys = dialogues.targets.long().split(lengths)
    return (
        (
            pad_sequence([x[:-1] for x in xs[i : i + batch_size]], batch_first=True),
            pad_sequence(
                [y[1:] for y in ys[i : i + batch_size]], batch_first=True, padding_value=IGNORED
            ),
        )
        for i in range(0, len(xs), batch_size)
    )
