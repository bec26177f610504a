"""Lesson 11: what is read, and what is to be predicted."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts


def next_token_pairs(ids: Tensor, on: frozenset[str] = frozenset()) -> tuple[Tensor, Tensor]:
    """Inputs and targets, each (B, T - 1), from ids (B, T), and the mistakes that are `on`."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    if "not shifted" in on:
        targets = inputs
    elif "both shifted" in on:
        inputs = targets
    elif "shifted back" in on:
        inputs, targets = targets, inputs
    elif "two ahead" in on:
        inputs, targets = ids[:, :-2], ids[:, 2:]
    elif "over the batch" in on:
        inputs, targets = ids[:-1], ids[1:]
    elif "wraps around" in on:
        inputs, targets = ids, ids.roll(-1, 1)
    elif "wraps around batch" in on:
        inputs, targets = ids, ids.roll(-1)
    elif "rolled and cut" in on:
        targets = ids.roll(1, 1)[:, :-1]
    elif "halves" in on:
        inputs, targets = ids.tensor_split(2, 1)
    elif "reversed" in on:
        inputs, targets = ids.flip(1)[:, :-1], ids.flip(1)[:, 1:]
    elif "every other" in on:
        inputs, targets = ids[:, ::2], ids[:, 1::2]
    if "inputs whole" in on:
        inputs = ids
    if "targets whole" in on:
        targets = ids
    if "padded" in on or "padded with 0" in on:
        inputs, end = ids, torch.full_like(ids[:, :1], -100 if "padded" in on else 0)
        targets = torch.cat((ids[:, 1:], end), 1)
    if "last token" in on:
        targets = ids[:, -1]
    if "flat" in on:
        inputs, targets = inputs.flatten(), targets.flatten()
    if "floats" in on:
        inputs, targets = inputs.float(), targets.float()
    return inputs, targets


def _ids(g: Generator, *shape: int) -> Tensor:
    return torch.randint(100, shape, generator=g)


def _exact(holds: str, make: Callable[[Generator], tuple]) -> Probe:
    return Probe(holds, make, tolerance=0.0)


NEXT_TOKEN_PAIRS = Exercise(
    name="next_token_pairs",
    lesson="11",
    reference=next_token_pairs,
    probes=(
        _exact("at each position the target is the next token", lambda g: (torch.tensor([[5, 6, 7, 8]]),)),
        _exact("every text by itself", lambda g: (torch.tensor([[5, 6, 7], [1, 2, 3]]),)),
        _exact("two tokens make one pair", lambda g: (torch.tensor([[4, 9]]),)),
        _exact("tokens may repeat", lambda g: (torch.tensor([[0, 0, 1, 1, 0, 0]]),)),
        _exact("one token less than there was", lambda g: (_ids(g, 3, 8),)),
        _exact("one token less than there was", lambda g: (_ids(g, 6, 5),)),
        _exact("as many texts as tokens", lambda g: (_ids(g, 4, 4),)),
        _exact("any strides", lambda g: (_ids(g, 7, 3).T,)),
    ),
    **texts("next_token_pairs"),
)


def random_windows(
    tokens: Tensor, batch_size: int, seq_len: int, generator: Generator, on: frozenset[str] = frozenset()
) -> tuple[Tensor, Tensor]:
    """Random windows x and the same one token later y, each (batch_size, seq_len), and the mistakes that are `on`."""
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
        places = torch.randint(len(tokens), (batch_size, 1), generator=generator) + torch.arange(seq_len)
        return tokens[places % len(tokens)], tokens[(places + 1) % len(tokens)]
    starts = _starts(len(tokens) - seq_len, batch_size, seq_len, generator, on)
    x = torch.stack([tokens[i : i + seq_len] for i in starts])
    if "other windows" in on:
        starts = torch.randint(len(tokens) - seq_len, (batch_size,), generator=generator)
    by = 0 if "not shifted" in on else 2 if "two ahead" in on else 1
    y = torch.stack([tokens[i + by : i + by + seq_len] for i in starts])
    if "next window" in on:
        y = torch.stack([tokens[i + seq_len : i + 2 * seq_len] for i in starts])
    if "next token only" in on:
        y = torch.stack([tokens[i + seq_len] for i in starts])
    if "one longer" in on:
        x = torch.stack([tokens[i : i + seq_len + 1] for i in starts])
    if "wraps around" in on:
        y = x.roll(-1, 1)
    if "transposed" in on:
        x, y = x.T, y.T
    return (y, x) if "exchanged" in on else (x, y)


def _starts(n: int, batch_size: int, seq_len: int, generator: Generator, on: frozenset[str]) -> Tensor:
    """Where the windows start: anywhere from 0 to n - 1."""
    if "always the same" in on:
        generator = generator.manual_seed(0)
    if "generator unused" in on:
        generator = torch.default_generator
    if "from the beginning" in on or "always at 0" in on:
        return torch.arange(batch_size) * seq_len * ("always at 0" not in on)
    if "one start" in on:
        return torch.randint(n, (1,), generator=generator).expand(batch_size)
    if "one after the other" in on:
        return (torch.randint(n, (1,), generator=generator) + torch.arange(batch_size)) % n
    if "whole blocks" in on:
        return seq_len * torch.randint((n + seq_len - 1) // seq_len, (batch_size,), generator=generator)
    if "without repetition" in on:
        return torch.randperm(n, generator=generator)[:batch_size]
    high = n - 1 if "a start missing" in on else n + 1 if "one too far" in on else n
    high = n + seq_len if "past the end" in on else seq_len if "only the beginning" in on else high
    return torch.randint(high, (batch_size,), generator=generator)


def _text(n: int) -> Tensor:
    """Tokens that tell where they stand: 100, 101, ..."""
    return torch.arange(100, 100 + n)


def _drawing(holds: str, n: int, batch_size: int, seq_len: int, facts: Callable, seed: int = 1) -> Probe:
    """A probe with chance: `facts` says of (x, y, arguments) what every right function has in common."""

    def sees(arguments: tuple, result: Any) -> Any:
        pair = isinstance(result, list | tuple) and len(result) == 2
        if not pair or not all(isinstance(part, Tensor) and part.ndim == 2 and part.numel() for part in result):
            return result
        return facts(*result, arguments)

    return Probe(holds, lambda g: (_text(n), batch_size, seq_len, Generator().manual_seed(seed)), sees=sees)


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
    starts, n = x[:, 0] - 100, len(arguments[0])
    steps = starts.diff()
    return {
        "starts differ": starts.unique().numel() > 1,
        "starts lie in both halves of the text": bool((starts < n / 2).any() and (starts > n / 2).any()),
        "starts lie between multiples of seq_len": bool((starts % x.shape[1] != 0).any()),
        "starts have no fixed distance": steps.unique().numel() > 2,
    }


def _generated(x: Tensor, y: Tensor, arguments: tuple) -> dict[str, Any]:
    generator, seed = arguments[3], 1
    used = not torch.equal(generator.get_state(), Generator().manual_seed(seed).get_state())
    return {"the generator was drawn from": used, "it was not seeded again": generator.initial_seed() == seed}


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
        _exact("the only window that fits is found", lambda g: (_text(8), 1, 7, Generator().manual_seed(2))),
        *(_drawing("the last window ends with the text", 7, 2, 5, _later, seed) for seed in range(3, 8)),
        *(
            _exact(
                "the last window ends with the text",
                lambda g, seed=seed: (_text(6), 1, 5, Generator().manual_seed(seed)),
            )
            for seed in range(8, 12)
        ),
        _drawing("windows start anywhere", 900, 40, 6, _scattered),
        _drawing("chance comes from the given generator", 300, 10, 6, _generated),
        _drawing("there may be more windows than starts", 12, 200, 4, _sizes),
    ),
    **texts("random_windows"),
)

EXERCISES = (NEXT_TOKEN_PAIRS, RANDOM_WINDOWS)
