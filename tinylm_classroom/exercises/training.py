"""Lesson 11: what is read, and what is to be predicted."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, texts

DRAWN = 100_000  # numbers that a used generator has given


def next_token_pairs(ids: Tensor, on: frozenset[str] = frozenset()) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each (B, T - 1), from ids (B, T), and the mistakes that are `on`."""
    inputs = ids[:, :-1]
    targets = ids[:, 1:]
    others = {
        "not shifted": lambda: (inputs, inputs),
        "both shifted": lambda: (targets, targets),
        "shifted back": lambda: (targets, inputs),
        "two ahead": lambda: (ids[:, :-2], ids[:, 2:]),
        "over the batch": lambda: (ids[:-1], ids[1:]),
        "across rows": lambda: tuple(
            ids.flatten()[i:][: inputs.numel()].view_as(inputs) for i in (0, 1)
        ),
        "wraps around": lambda: (ids, ids.roll(-1, 1)),
        "wraps around batch": lambda: (ids, ids.roll(-1)),
        "rolled and cut": lambda: (inputs, ids.roll(1, 1)[:, :-1]),
        "first token left out": lambda: (targets, ids.roll(-1, 1)[:, 1:]),
        "halves": lambda: ids.tensor_split(2, 1),
        "reversed": lambda: (ids.flip(1)[:, :-1], ids.flip(1)[:, 1:]),
        "every other": lambda: (ids[:, ::2], ids[:, 1::2]),
        "inputs whole": lambda: (ids, targets),
        "targets whole": lambda: (inputs, ids),
        "padded": lambda: (ids, F.pad(targets, (0, 1), value=-100)),
        "padded with 0": lambda: (ids, F.pad(targets, (0, 1))),
        "last token": lambda: (inputs, ids[:, -1]),
    }
    x, y = chosen(on, (inputs, targets), others)
    both = {"flat": lambda: (x.flatten(), y.flatten()), "floats": lambda: (x.float(), y.float())}
    return chosen(on, (x, y), both)


def _ids(g: Generator, *shape: int) -> Tensor:
    return torch.randint(100, shape, generator=g)


def _exact(holds: str, make: Callable[[Generator], tuple]) -> Probe:
    return Probe(holds, make, tolerance=0.0)


NEXT_TOKEN_PAIRS = Exercise(
    name="next_token_pairs",
    lesson="11",
    reference=next_token_pairs,
    probes=(
        _exact(
            "the target at each position is the next token",
            lambda g: (torch.tensor([[5, 6, 7, 8]]),),
        ),
        _exact("each row is a text of its own", lambda g: (torch.tensor([[5, 6, 7], [1, 2, 3]]),)),
        _exact("two tokens make one pair", lambda g: (torch.tensor([[4, 9]]),)),
        _exact("tokens may repeat", lambda g: (torch.tensor([[0, 0, 1, 1, 0, 0]]),)),
        _exact("both results have T - 1 positions", lambda g: (_ids(g, 3, 8),)),
        _exact("both results have T - 1 positions", lambda g: (_ids(g, 6, 5),)),
        _exact("there may be as many texts as tokens", lambda g: (_ids(g, 4, 4),)),
        _exact("ids may have any strides", lambda g: (_ids(g, 7, 3).T,)),
    ),
    **texts("next_token_pairs"),
)


def random_windows(
    tokens: Tensor,
    batch_size: int,
    seq_len: int,
    generator: Generator,
    on: frozenset[str] = frozenset(),
) -> tuple[Tensor, Tensor]:
    """Random windows x and the same one token later y, each (batch_size, seq_len), and the mistakes
    that are `on`.
    """
    if "tokens shuffled" in on:
        tokens = tokens[torch.randperm(len(tokens), generator=generator)]
    if "sizes exchanged" in on:
        batch_size, seq_len = seq_len, batch_size
    if "one too short" in on:
        seq_len = seq_len - 1
    if "each token drawn" in on:
        places = torch.randint(len(tokens) - 1, (batch_size, seq_len), generator=generator)
        return tokens[places], tokens[places + 1]
    if "runs on at the beginning" in on:
        places = torch.randint(len(tokens), (batch_size, 1), generator=generator) + torch.arange(
            seq_len
        )
        return tokens[places % len(tokens)], tokens[(places + 1) % len(tokens)]
    n = len(tokens) - seq_len
    starts = _starts(n, batch_size, seq_len, generator, on)
    x = _cut(tokens, starts, seq_len)
    y = _cut(tokens, starts + 1, seq_len)
    others = {
        "not shifted": lambda: (x, x),
        "two ahead": lambda: (x, _cut(tokens, starts + 2, seq_len)),
        "other windows": lambda: (
            x,
            _cut(tokens, 1 + torch.randint(n, (batch_size,), generator=generator), seq_len),
        ),
        "next window": lambda: (x, _cut(tokens, starts + seq_len, seq_len)),
        "next token only": lambda: (x, tokens[starts + seq_len]),
        "one longer": lambda: (_cut(tokens, starts, seq_len + 1), y),
        "wraps around": lambda: (x, x.roll(-1, 1)),
        "transposed": lambda: (x.T, y.T),
        "exchanged": lambda: (y, x),
    }
    return chosen(on, (x, y), others)


def _cut(tokens: Tensor, starts: Tensor, length: int) -> Tensor:
    """The windows that start there, up to the end of the text at most."""
    return torch.stack([tokens[i : i + length] for i in starts])


def _starts(
    n: int, batch_size: int, seq_len: int, generator: Generator, on: frozenset[str]
) -> Tensor:
    """Where the windows start: anywhere from 0 to n - 1."""
    if "always the same" in on:
        generator = generator.manual_seed(0)
    if "generator unused" in on:
        generator = torch.default_generator

    def drawn(end: int, size: int = batch_size) -> Tensor:
        return torch.randint(end, (size,), generator=generator)

    others = {
        "from the beginning": lambda: seq_len * torch.arange(batch_size),
        "always at 0": lambda: torch.zeros(batch_size, dtype=torch.long),
        "one start": lambda: drawn(n, 1).expand(batch_size),
        "one after the other": lambda: (drawn(n, 1) + torch.arange(batch_size)) % n,
        "whole blocks": lambda: seq_len * drawn((n + seq_len - 1) // seq_len),
        "without repetition": lambda: torch.randperm(n, generator=generator)[:batch_size],
        "rounded": lambda: (torch.rand(batch_size, generator=generator) * (n - 1)).round().long(),
        "a start missing": lambda: drawn(n - 1),
        "one too far": lambda: drawn(n + 1),
        "past the end": lambda: drawn(n + seq_len),
        "only the beginning": lambda: drawn(seq_len),
    }
    return chosen(on, None, others) if on & others.keys() else drawn(n)


def _text(n: int) -> Tensor:
    """Tokens that show their position: 100, 101, ..."""
    return torch.arange(100, 100 + n)


def _seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def _drawing(
    holds: str,
    n: int,
    batch_size: int,
    seq_len: int,
    facts: Callable,
    seed: int = 1,
    generator: Callable = _seeded,
) -> Probe:
    """A probe with chance: `facts` says of (x, y, arguments) what every right function has in
    common.
    """

    def sees(arguments: tuple, result: Any) -> Any:
        pair = isinstance(result, list | tuple) and len(result) == 2
        if not pair or not all(
            isinstance(part, Tensor) and part.ndim == 2 and part.numel() for part in result
        ):
            return result
        return facts(*result, arguments)

    return Probe(holds, lambda g: (_text(n), batch_size, seq_len, generator(seed)), sees=sees)


def _sizes(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    whole = not (x.is_floating_point() or y.is_floating_point())
    return {"shape of x": list(x.shape), "shape of y": list(y.shape), "integers": whole}


def _pieces(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    runs = bool(((x - x[:, :1]) == torch.arange(x.shape[1])).all())
    inside = bool((x >= 100).all() and (x < 100 + len(arguments[0])).all())
    return {"each row of x is a piece of the text": runs and inside}


def _later(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    if x.shape != y.shape:
        return {"shape of x": list(x.shape), "shape of y": list(y.shape)}
    apart = (y - x).unique().tolist()
    return {"y is so many tokens later than x": apart[0] if len(apart) == 1 else "it depends"}


def _scattered(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    starts = x[:, 0] - 100
    n = len(arguments[0])
    steps = starts.diff()
    return {
        "starts differ": starts.unique().numel() > 1,
        "starts lie in both halves of the text": bool(
            (starts < n / 2).any() and (starts > n / 2).any()
        ),
        "starts lie between multiples of seq_len": bool((starts % x.shape[1] != 0).any()),
        "starts have no fixed distance": steps.unique().numel() > 2,
    }


def _evenly(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    """Of three starts each is drawn in a third of 1,000 windows, up to 5 standard deviations."""
    counts = ((x[:, 0] - 100).clamp(0, 3)).bincount(minlength=3)
    return {"all starts are equally likely": bool(((counts / len(x) - 1 / 3).abs() < 0.075).all())}


def _generated(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    generator = arguments[3]
    seed = 1
    used = not torch.equal(generator.get_state(), _drawn_from(seed).get_state())
    first, second = torch.rand(2, generator=generator)
    early = torch.rand(DRAWN // 2, generator=_seeded(seed))
    again = (
        bool(((early[:-1] == first) & (early[1:] == second)).any())
        or generator.initial_seed() != seed
    )
    return {"the generator was drawn from": used, "it was not seeded again": not again}


def _drawn_from(seed: int) -> Generator:
    """A generator that has been used before: one that is seeded again begins where this one was
    long ago.
    """
    generator = _seeded(seed)
    torch.rand(DRAWN, generator=generator)
    return generator


def _only_window(g: Generator) -> tuple:
    return torch.tensor([5, 6, 7, 8]), 1, 3, Generator().manual_seed(1)


RANDOM_WINDOWS = Exercise(
    name="random_windows",
    lesson="11",
    reference=random_windows,
    probes=(
        _exact("y is x, one token later", _only_window),
        _drawing("x and y are (batch_size, seq_len)", 90, 6, 4, _sizes),
        _drawing("each row is a piece of the text", 60, 8, 5, _pieces),
        _drawing("y is the same piece, one token later", 60, 8, 5, _later),
        _exact(
            "if only one window fits, it is the one",
            lambda g: (_text(8), 1, 7, Generator().manual_seed(2)),
        ),
        *(
            _drawing("the last window ends where the text ends", 7, 2, 5, _later, seed)
            for seed in range(3, 8)
        ),
        *(
            _exact(
                "the last window ends where the text ends",
                lambda g, seed=seed: (_text(6), 1, 5, Generator().manual_seed(seed)),
            )
            for seed in range(8, 12)
        ),
        _drawing("windows start anywhere", 900, 40, 6, _scattered),
        _drawing("all starts are equally likely", 5, 1000, 2, _evenly),
        _drawing(
            "all randomness comes from the given generator",
            300,
            10,
            6,
            _generated,
            generator=_drawn_from,
        ),
        _drawing("there may be more windows than possible starts", 12, 200, 4, _sizes),
    ),
    **texts("random_windows"),
)

EXERCISES = (NEXT_TOKEN_PAIRS, RANDOM_WINDOWS)
