"""What a run reads: the tokens of a text, cut into a part to train on and a part for validation."""

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..config import IGNORED
from ..data.corpora import load_corpus
from ..data.dialogues import Dialogues, encode_dialogues, every_dialogue
from ..data.token_file import Tokens, open_tokens
from ..data.windows import every_document, every_window, positions, split, split_lines
from ..text.base import Tokenizer, line_end
from ..text.tokenizers import TOKENIZERS

LINES_PER_BATCH = 32
TOKENS_PER_BATCH = 4096  # of an evaluation


class Parts(NamedTuple):
    """Dialogues to train on, and those for validation."""

    training: Dialogues
    validation: Dialogues

    def longest(self) -> int:
        """The tokens of the shortest window that holds all targets of any dialogue."""
        return max(*self.training.lengths(), *self.validation.lengths(), 2) - 1


class Dataset(NamedTuple):
    """Token ids to train on (N,) and for validation (M,), their tokenizer, and where they came
    from.

    name: a corpus, or the path of a file. sha256: of the text, or of what the token file holds.
    starts (K,): the positions where a window may begin, None for all.
    dialogues: what these ids are, where only answers count.
    """

    training: Tensor
    validation: Tensor
    starts: Tensor | None
    tokenizer: Tokenizer
    name: str
    sha256: str
    dialogues: Parts | None = None


def encode_corpus(
    name: str,
    tokenizer: Tokenizer | None = None,
    kind: str = "bytes",
    vocab_size: int | None = None,
) -> Tokens:
    """Encode a corpus with a tokenizer; default: a new one of a kind of TOKENIZERS, made from the
    corpus.

    vocab_size: how many tokens a new one learns, if its kind learns.
    """
    text = load_corpus(name)
    tokenizer = tokenizer or TOKENIZERS[kind].from_text(text, vocab_size)
    try:
        ids = torch.tensor(tokenizer.encode(text), dtype=torch.int32)
    except ValueError as e:
        raise ValueError(f"the tokenizer cannot encode {name}: {e}") from None
    return Tokens(ids, tokenizer, hashlib.sha256(text.encode("utf-8")).hexdigest())


def map_tokens(path: str, tokenizer: Tokenizer | None = None) -> Tokens:
    """Map a token file, whose tokenizer must be the one given, if any.

    Raises ValueError for a file that was made with another.
    """
    mapped = open_tokens(path)
    if tokenizer is not None and _coding(tokenizer) != _coding(mapped.tokenizer):
        raise ValueError(
            f"{path} was made with another tokenizer than the model's; make it again with the "
            "command tokens and --tokenizer FOLDER, the folder of the model"
        )
    return mapped


def _coding(tokenizer: Tokenizer) -> dict[str, Any]:
    """All of a tokenizer on which its ids depend."""
    return {name: value for name, value in tokenizer.to_dict().items() if name != "kept"}


def cut_dataset(
    tokens: Tokens, name: str, lines: bool, validation_share: float, eval_tokens: int
) -> Dataset:
    """Cut off the end for validation, of which the first eval_tokens are used.

    lines: each line is a text of its own. The cut is then at the end of one, and windows begin with
    the end of the line before; the first line has the last one before it.
    Raises ValueError for too few lines.
    """
    ids, tokenizer, sha256 = tokens
    starts = None
    if lines:
        end = line_end(tokenizer)
        training, validation = split_lines(ids, end, validation_share)
        starts = positions(training, end)
        if len(starts) and starts[-1] == len(training) - 1:
            starts = torch.cat((torch.tensor([-1]), starts))
    else:
        training, validation = split(ids, validation_share)
    return Dataset(training, validation[:eval_tokens], starts, tokenizer, name, sha256)


def cut_dialogues(
    path: str, tokenizer: Tokenizer, validation_share: float, eval_tokens: int
) -> Dataset:
    """Encode the dialogues of a file, and cut off the last ones for validation.

    Of these, the first that have together at most eval_tokens are used, and at least one. A window
    may begin at any dialogue: behind the last one follows the first.
    Raises ValueError for lines that cannot be used, and for too few.
    """
    dialogues, sha256 = encode_dialogues(path, tokenizer)
    n = len(dialogues.starts)
    cut = n - int(n * validation_share)
    if cut == n and validation_share:
        enough = math.ceil(100 / n) / 100
        fix = f"give more, a --validation-share of {enough}, or 0" if n > 1 else "give more, or 0"
        raise ValueError(
            f"--validation-share {validation_share} of {n} dialogues is none for validation; {fix}"
        )
    training = dialogues.part(0, cut)
    validation = first_dialogues(dialogues.part(cut, n), eval_tokens)
    starts = training.starts - len(training.ids)
    parts = Parts(training, validation)
    return Dataset(training.ids, validation.ids, starts, tokenizer, path, sha256, parts)


def first_dialogues(dialogues: Dialogues, n_tokens: int) -> Dialogues:
    """The first dialogues that have together at most so many tokens, and at least one of them."""
    ends = torch.tensor(dialogues.lengths()).cumsum(0)
    n = max(int((ends <= n_tokens).sum()), min(1, len(ends)))
    return dialogues.part(0, n)


def check_lengths(dialogues: Dialogues, longest: int, first_line: int, name: str) -> None:
    """Raise ValueError, naming its line, for a dialogue of which a window of `longest` tokens does
    not hold all targets.
    """
    for line, n in enumerate(dialogues.lengths(), first_line):
        if n - 1 > longest:
            raise ValueError(
                f"{name}, line {line}: the dialogue has {n} tokens, and the windows {longest}; "
                "shorten it, delete the line, or raise --seq-len where the model's max_seq_len "
                "allows it"
            )


def answer_windows(
    dialogues: Dialogues, tokenizer: Tokenizer
) -> tuple[Callable[[], Iterator], int]:
    """Return a function that cuts whole dialogues (B, T) again, and how many bytes their answers
    are.
    """
    rows = max(1, TOKENS_PER_BATCH // max(dialogues.lengths()))
    answers = dialogues.targets[dialogues.targets != IGNORED]
    return lambda: every_dialogue(dialogues, rows), tokenizer.count_bytes(answers.tolist())


def validation_windows(
    ids: Tensor, tokenizer: Tokenizer, longest: int, lines: bool, stride: int | None = None
) -> tuple[Callable[[], Iterator], int]:
    """Return a function that cuts the windows (B, T) of ids (M,) again, and how many bytes their
    targets are.

    longest: tokens of a window, or the most that a line may have where lines are scored. stride: as
    of `every_window`.
    Raises ValueError for too few ids, and for a line that is longer.
    """
    if len(ids) < 2:
        raise ValueError(
            f"the text to measure has {len(ids)} tokens, and at least 2 are needed, the second to "
            "be predicted; give more text (of a training run: or a larger validation_share)"
        )

    def windows() -> Iterator:
        if lines:
            return every_document(ids, line_end(tokenizer), LINES_PER_BATCH)
        return every_window(ids, max(1, TOKENS_PER_BATCH // longest), longest, stride)

    if (n_tokens := max(x.shape[1] for x, _ in windows())) > longest:
        raise ValueError(
            f"a line has {n_tokens} tokens, more than max_seq_len {longest}; raise it, or choose "
            "--no-lines"
        )
    return windows, sum(tokenizer.count_bytes(y[y != IGNORED].tolist()) for _, y in windows())
