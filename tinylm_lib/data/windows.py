"""Windows of tokens, cut at random or one after the other. Notebook 11."""

import random
from collections.abc import Iterator
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..config import IGNORED
from ..inputs import check_number, check_size

TOKENS_PER_READ = 1 << 20  # where all are looked at, so that of a mapped file little is in memory


def split(tokens: Any, validation_share: float = 0.1) -> tuple[Any, Any]:
    """Cut off the end for validation, in one piece, so that no window straddles both.

    tokens (N,), or a text of N characters. Returns training (N - M,) and validation (M,), where M
    is N * validation_share rounded down.
    Raises ValueError for a validation_share outside 0..1.
    """
    check_number(
        "validation_share",
        validation_share,
        Real,
        lambda fraction: 0 <= fraction < 1,
        "from 0 to below 1",
    )
    cut = len(tokens) - int(len(tokens) * validation_share)
    return tokens[:cut], tokens[cut:]


def split_lines(
    tokens: Tensor, end_id: int, validation_share: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Cut off the last lines for validation, validation_share of all lines, rounded down.

    tokens (N,). end_id: the token that ends a line. Returns training (N - M,) and validation (M,).
    Raises ValueError where that is less than one line.
    """
    ends = positions(tokens, end_id)
    # the last one may lack its end
    n_lines = len(ends) + int(len(tokens) > 0 and tokens[-1].item() != end_id)
    n_validation = int(n_lines * validation_share)
    if n_validation == 0 < validation_share:
        raise ValueError(
            f"{n_lines} lines leave none for validation; give more lines, or choose --no-lines"
        )
    cut = int(ends[n_lines - n_validation - 1]) + 1 if n_validation else len(tokens)
    return tokens[:cut], tokens[cut:]


def positions(tokens: Tensor, token_id: int) -> Tensor:
    """Find a token in tokens (N,), reading a block at a time.

    Returns its positions (M,), torch.long.
    """
    blocks = tokens.split(TOKENS_PER_READ)
    return torch.cat(
        [
            (block == token_id).nonzero()[:, 0] + i * TOKENS_PER_READ
            for i, block in enumerate(blocks)
        ]
    )


def random_windows(
    tokens: Tensor,
    batch_size: int,
    seq_len: int,
    generator: torch.Generator | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cut random windows; each start that leaves room for seq_len inputs and the last target is
    equally likely.

    tokens (N,), integers. starts (M,): the only positions where a window may begin, default all;
    one below 0 counts from the end, and behind the last token the window continues with the first.
    Returns inputs x (B, T) and targets y (B, T), the same windows one token later; torch.long.
    Raises ValueError for fewer than seq_len + 1 tokens, for starts that all leave no room, and for
    a size below 1.
    """
    n_starts = check_windows(tokens, batch_size, seq_len)
    if starts is not None:
        starts = fitting_starts(starts, n_starts, len(tokens))
    return _draw(tokens, tokens, batch_size, seq_len, generator, n_starts, starts)


def _draw(
    tokens: Tensor, targets: Tensor, batch_size: int, seq_len: int, generator: Any, n_starts: int,
    starts: Tensor | None,
    rows: slice = slice(None),
) -> tuple[Tensor, Tensor]:  # fmt: skip
    chosen = torch.randint(
        n_starts if starts is None else len(starts), (batch_size, 1), generator=generator
    )  # (B, 1)
    chosen = chosen[rows]
    if starts is not None:
        chosen = starts[chosen]
    inputs = chosen + torch.arange(seq_len)  # (B, T)
    return tokens[inputs].long(), targets[inputs + 1].long()


def fitting_starts(starts: Tensor, n_starts: int, n_tokens: int) -> Tensor:
    """Drop the starts (M,) from which a window would run over the end: those not below n_starts.

    Returns (M',), torch.long. Raises ValueError for starts of which none is left or one is below
    -n_tokens, TypeError for fractions.
    """
    if starts.is_floating_point() or starts.dtype == torch.bool:
        raise TypeError(
            f"starts must be integers, got {starts.dtype}; a mask becomes starts with "
            ".nonzero()[:, 0]"
        )
    starts = starts.long()
    if starts.dim() != 1 or (starts < -n_tokens).any():
        raise ValueError(
            f"starts must have shape (M,) and be at least -{n_tokens}, got {tuple(starts.shape)}: "
            f"{starts}"
        )
    if not len(fitting := starts[starts < n_starts]):
        raise ValueError(
            f"none of {len(starts)} starts leaves room for a window (the last possible one is "
            f"{n_starts - 1}); give more text or a smaller seq_len"
        )
    return fitting


def check_windows(tokens: Tensor, batch_size: int, seq_len: int) -> int:
    """Return the number of valid starts of windows in tokens (N,).

    Raises TypeError for anything but a tensor of integers, ValueError for tokens that have no such
    start.
    """
    check_tokens(tokens)
    check_size("batch_size", batch_size)
    check_size("seq_len", seq_len)
    if len(tokens) < seq_len + 1:
        raise ValueError(
            f"the corpus has {len(tokens)} tokens, a window of seq_len {seq_len} needs "
            f"{seq_len + 1}; give more text or a smaller seq_len"
        )
    return len(tokens) - seq_len


def check_tokens(tokens: Tensor) -> None:
    """Raise TypeError unless tokens is a tensor of integers, ValueError unless it is (N,)."""
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dtype == torch.bool:
        got = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        raise TypeError(
            f"tokens must be a tensor of integers, got {got}; use "
            "torch.tensor(tokenizer.encode(text))"
        )
    if tokens.ndim != 1:
        raise ValueError(
            f"tokens must be (N,), one text after the other, got {tuple(tokens.shape)}; use "
            ".flatten()"
        )


class RandomWindows:
    """Endless batches of `random_windows`; batch i depends on the seed and i alone, so a run can
    resume anywhere.

    rank, n_ranks: yield only every n_ranks-th window of each batch, beginning with window number
    rank: together the ranks see the batches that one alone would see.
    targets (N,): what is to be predicted at each position, -100 where it does not count; default
    the tokens themselves.
    Raises ValueError for a batch_size that n_ranks does not divide, and for targets of another
    length.
    """

    def __init__(
        self,
        tokens: Tensor,
        batch_size: int,
        seq_len: int,
        seed: int = 0,
        device: Any = "cpu",
        starts: Tensor | None = None,
        rank: int = 0,
        n_ranks: int = 1,
        targets: Tensor | None = None,
    ):
        self.n_starts = check_windows(tokens, batch_size, seq_len)
        if batch_size % n_ranks:
            raise ValueError(
                f"batch_size {batch_size} cannot be shared by {n_ranks} processes; give a multiple"
            )
        check_number("seed", seed, Integral, lambda n: True, "an integer")
        self.starts = starts
        if starts is not None:
            self.starts = fitting_starts(starts, self.n_starts, len(tokens))
        self.tokens = tokens
        self.targets = tokens if targets is None else targets
        if self.targets.shape != tokens.shape:
            raise ValueError(
                f"each token needs a target, got {len(self.targets)} targets for {len(tokens)} "
                "tokens"
            )
        self.batch_size = batch_size
        self.seq_len = seq_len
        self.seed = seed
        self.device = torch.device(device)
        self.n_drawn = 0
        self.generator = torch.Generator()
        self.rows = slice(rank, None, n_ranks)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        # Hashed together first: torch keeps only 32 bits of a CPU generator's seed.
        self.generator.manual_seed(random.Random(f"{self.seed} {self.n_drawn}").getrandbits(32))
        self.n_drawn += 1
        x, y = _draw(
            self.tokens,
            self.targets,
            self.batch_size,
            self.seq_len,
            self.generator,
            self.n_starts,
            self.starts,
            self.rows,
        )
        # only a copy from pinned memory lets the processor continue meanwhile
        if self.device.type == "cuda":
            x = x.pin_memory()
            y = y.pin_memory()
        return x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)

    def state(self) -> dict[str, int]:
        """Return the position in the stream, as plain numbers."""
        return {"seed": self.seed, "n_drawn": self.n_drawn}

    def load_state(self, state: dict[str, int]) -> None:
        """Continue where `state` was taken."""
        self.seed = state["seed"]
        self.n_drawn = state["n_drawn"]


def every_window(
    tokens: Tensor, batch_size: int, seq_len: int, stride: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut windows that together hold every token but the first as a target, once; at most a batch
    is in memory.

    tokens (N,), integers. stride: each window begins so many tokens after the one before. What
    overlaps is input again and counts only in the first window that holds it as a target, so that
    every token after the first seq_len is predicted from at least seq_len - stride + 1 tokens
    before it. Default seq_len: windows do not overlap.
    Yields x (B, T) and y (B, T), torch.long; what is missing at the end is 0 in x and -100 in y.
    Raises ValueError for fewer than 2 tokens, for a size below 1, and for a stride that is not in
    1..seq_len.
    """
    check_tokens(tokens)
    check_size("batch_size", batch_size)
    check_size("seq_len", seq_len)
    stride = seq_len if stride is None else stride
    wanted = f"from 1 to seq_len {seq_len}: a larger one would skip tokens"
    check_number("stride", stride, Integral, lambda n: 1 <= n <= seq_len, wanted)
    if len(tokens) < 2:
        raise ValueError(f"there is nothing to predict in {len(tokens)} tokens; give at least 2")
    n_windows = 1 + -(-max(0, len(tokens) - 1 - seq_len) // stride)
    return (
        _overlapping(tokens, first, min(batch_size, n_windows - first), seq_len, stride)
        for first in range(0, n_windows, batch_size)
    )


def _overlapping(
    tokens: Tensor, first: int, n: int, seq_len: int, stride: int
) -> tuple[Tensor, Tensor]:
    """Cut n windows from number `first` on; x and y are (n, T)."""
    begin = first * stride
    length = (n - 1) * stride + seq_len
    covered = tokens[begin : begin + length + 1].long()
    missing = length + 1 - len(covered)
    x = torch.nn.functional.pad(covered[:-1], (0, missing)).unfold(0, seq_len, stride)
    y = (
        torch.nn.functional.pad(covered[1:], (0, missing), value=IGNORED)
        .unfold(0, seq_len, stride)
        .clone()
    )
    y[int(first == 0) :, : seq_len - stride] = IGNORED
    return x.contiguous(), y


def every_document(
    tokens: Tensor, separator_id: int, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut whole documents, each from the separator before it (its first input) to the one after it
    (its last target).

    tokens (N,); a separator before the first token is added where it is missing. What follows the
    last separator is left out, because its end is not known.
    Yields x (B, T) and y (B, T), torch.long, T the longest of the batch; shorter rows end in 0 in x
    and -100 in y.
    Raises ValueError for tokens in which no document ends, and for a batch_size below 1.
    """
    check_tokens(tokens)
    check_size("batch_size", batch_size)
    if len(tokens) and tokens[0] != separator_id:
        tokens = torch.cat((torch.tensor([separator_id], dtype=tokens.dtype), tokens))
    marks = positions(tokens, separator_id).tolist()
    if len(marks) < 2:
        raise ValueError(
            f"no document ends in {len(tokens)} tokens; give a text with at least one separator "
            "after it"
        )
    documents = [slice(start, end + 1) for start, end in pairwise(marks)]
    return (
        _pad(tokens, documents[i : i + batch_size]) for i in range(0, len(documents), batch_size)
    )


def _pad(tokens: Tensor, documents: list[slice]) -> tuple[Tensor, Tensor]:
    rows = [tokens[document].long() for document in documents]
    x = pad_sequence([row[:-1] for row in rows], batch_first=True)
    return x, pad_sequence([row[1:] for row in rows], batch_first=True, padding_value=IGNORED)
