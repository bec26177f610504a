"""Lesson 12: the most probable texts, by keeping several at every step."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, texts

Beam = tuple[list[int], float]
NextToken = Callable[[list[int]], Tensor]


def beam_search(
    log_probs_fn: NextToken, start: list[int], n_beams: int, n_steps: int, on: frozenset[str] = frozenset()
) -> list[Beam]:
    """The n_beams best of all continuations tried, (tokens with start, log_prob), and the mistakes that are `on`."""
    if "one step less" in on or "one step more" in on:
        n_steps += 1 if "one step more" in on else -1
    beams: list[Beam] = [(list(start), 1.0 if {"logarithms multiplied", "starts at 1"} & on else 0.0)]
    if "one beam too many" in on:
        n_beams += 1
    if "equal beams" in on:
        beams = beams * n_beams
    for step in range(n_steps):
        grown = _grown(log_probs_fn, beams, len(start), on)
        if "logarithms added late" in on and step == 0:
            grown = [(tokens, 0.0) for tokens, _ in grown[:n_beams]]
        beams = _best(grown, beams, n_beams, on)
    beams = sorted(beams, key=lambda beam: beam[1], reverse="least probable" not in on)[:n_beams]
    return _given_back(beams, len(start), on)


def _grown(log_probs_fn: NextToken, beams: list[Beam], n_start: int, on: frozenset[str]) -> list[Beam]:
    """Every beam with every next token."""
    grown = []
    for tokens, score in beams[:1] if "only the best grows" in on else beams:
        seen = tokens[:n_start] if "never reads on" in on else tokens[-1:] if "reads one token" in on else tokens
        seen = tokens[n_start:] if "start not read" in on else seen
        log_probs = log_probs_fn(list(seen))
        for token, log_prob in enumerate(log_probs.tolist()):
            grown.append(([*tokens, token], _total(score, log_prob, on)))
            if "one list for all" in on:
                tokens.append(token)
                grown[-1] = (tokens, grown[-1][1])
        if "one token each" in on and len(beams) > 1:
            grown = grown[: -len(log_probs)] + sorted(grown[-len(log_probs) :], key=lambda beam: -beam[1])[:1]
    return grown


def _total(score: float, log_prob: float, on: frozenset[str]) -> float:
    if "last step only" in on:
        return log_prob
    if "decreases" in on:
        return score - log_prob
    if "logarithms multiplied" in on:
        return score * log_prob
    return score + (torch.tensor(log_prob).exp().item() if "probabilities added" in on else log_prob)


def _best(grown: list[Beam], beams: list[Beam], n_beams: int, on: frozenset[str]) -> list[Beam]:
    """What goes on."""
    if "nothing dropped" in on:
        return grown
    ranked = sorted(grown, key=lambda beam: beam[1], reverse="least probable" not in on)
    if "never ranked" in on:
        ranked = grown
    kept = ranked[: 1 if "one beam" in on else n_beams]
    if "wrong parents" in on:
        kept = [([*beams[i % len(beams)][0], tokens[-1]], score) for i, (tokens, score) in enumerate(kept)]
    if "always the best parent" in on:
        kept = [([*beams[0][0], tokens[-1]], score) for tokens, score in kept]
    if "index the wrong way round" in on:
        places = [next(i for i, beam in enumerate(grown) if beam is one) for one in kept]
        n, V = len(beams), len(grown) // len(beams)
        kept = [([*beams[i % n][0], i // n % V], score) for i, (_, score) in zip(places, kept, strict=True)]
    return kept


def _given_back(beams: list[Beam], n_start: int, on: frozenset[str]) -> Any:
    if "worst first" in on:
        beams = beams[::-1]
    if "probabilities" in on:
        beams = [(tokens, torch.tensor(score).exp().item()) for tokens, score in beams]
    if "in bits" in on:
        beams = [(tokens, score / math.log(2)) for tokens, score in beams]
    parts = {
        "tokens alone": lambda: [tokens for tokens, _ in beams],
        "scores alone": lambda: [score for _, score in beams],
        "pairs turned round": lambda: [(score, tokens) for tokens, score in beams],
        "two lists": lambda: ([tokens for tokens, _ in beams], [score for _, score in beams]),
        "best tokens alone": lambda: beams[0][0],
        "last tokens": lambda: [(tokens[-1:], score) for tokens, score in beams],
    }
    for name, part in parts.items():
        if name in on:
            return part()
    if "positive" in on:
        beams = [(tokens, -score) for tokens, score in beams]
    if "per token" in on:
        beams = [(tokens, score / max(1, len(tokens) - n_start)) for tokens, score in beams]
    if "per token of all" in on:
        beams = [(tokens, score / len(tokens)) for tokens, score in beams]
    if "underflows" in on:
        beams = [(tokens, torch.tensor(score).double().exp().log().item()) for tokens, score in beams]
    if "the best alone" in on:
        return beams[0]
    return beams[:1] if "one in the list" in on else beams


def _limited(function: NextToken, n_beams: int, n_steps: int) -> NextToken:
    """The function, for a search of this size, which refuses twice as many different texts as the search needs.

    It takes tokens as a list, a tuple or a tensor, and the same text as often as one likes.
    """
    most = 2 * (1 + n_beams * (n_steps - 1))
    known: dict[tuple[int, ...], Tensor] = {}

    def log_probs_fn(tokens: list[int]) -> Tensor:
        text = _text(tokens)
        if text not in known:
            if len(known) == most:
                raise RuntimeError(
                    f"log_probs_fn was given {most + 1} different texts, which is more than twice what {n_beams} beams "
                    f"and {n_steps} steps need: after each step only n_beams continue"
                )
            known[text] = function(list(text))
        return known[text].clone()

    return log_probs_fn


def _text(tokens: Any) -> tuple[int, ...]:
    """Tokens in a list, a tuple or a tensor as a tuple of int."""
    if isinstance(tokens, list | tuple) and {*map(type, tokens)} == {int}:  # most of the time, and much faster
        return tuple(tokens)
    return tuple(torch.as_tensor(tokens).flatten().long().tolist())


def _by_table(tokens: list[int]) -> Tensor:
    """A tiny language: token 0 is the likeliest first, but what follows 1 is nearly certain."""
    first, then = [0.5, 0.4, 0.1], {0: [0.4, 0.35, 0.25], 1: [0.1, 0.85, 0.05], 2: [0.25, 0.3, 0.45]}
    return torch.tensor(first if len(tokens) <= 2 else then[tokens[-1]]).log()


def _nearly_equal(tokens: list[int]) -> Tensor:
    """A language for long texts, quick to compute: the last token alone counts, and it hardly does."""
    return torch.tensor([0.3, 0.26, 0.24, 0.2]).log().roll(tokens[-1] if tokens else 0)


def _made_up(g: Generator, V: int, sharpness: float = 2.0) -> NextToken:
    """A language in which every token read so far counts, the later the more."""
    table = sharpness * torch.randn(V, V, generator=g)

    def log_probs_fn(tokens: list[int]) -> Tensor:
        weights = 0.7 ** torch.arange(len(tokens) - 1, -1, -1.0)
        return (table[tokens] * weights[:, None]).sum(0).log_softmax(-1)

    return log_probs_fn


def _as_pairs(arguments: tuple, result: Any) -> Any:
    """Beams as (list, float), with the start where it was left out."""
    _, start, _, n_steps = arguments
    if not isinstance(result, list | tuple):
        return result
    pairs = []
    for beam in result:
        if not isinstance(beam, list | tuple) or len(beam) != 2 or not isinstance(beam[0], list | tuple | Tensor):
            return result
        tokens = torch.as_tensor(beam[0]).flatten().tolist()
        pairs.append((list(start) + tokens if len(tokens) == n_steps else tokens, beam[1]))
    return pairs


def _search(holds: str, make: Callable[[Generator], tuple]) -> Probe:
    def limited(g: Generator) -> tuple:
        function, start, n_beams, n_steps = make(g)
        return _limited(function, n_beams, n_steps), start, n_beams, n_steps

    return Probe(holds, limited, sees=_as_pairs)


BEAM_SEARCH = Exercise(
    name="beam_search",
    lesson="12",
    order=2,
    reference=beam_search,
    probes=(
        _search("one step leaves the best tokens", lambda g: (_by_table, [2, 1], 2, 1)),
        _search("one beam is greedy", lambda g: (_by_table, [2, 1], 1, 2)),
        _search("a worse beginning may have the better end", lambda g: (_by_table, [2, 1], 2, 2)),
        _search("a worse beginning may have the better end", lambda g: (_made_up(g, 5), [3, 0], 2, 3)),
        _search("all beams compete", lambda g: (_made_up(g, 4), [1, 2], 3, 4)),
        _search("all beams compete", lambda g: (_made_up(g, 6), [5, 0, 4], 4, 3)),
        _search("all beams compete", lambda g: (_made_up(g, 7, 0.5), [6, 1], 3, 5)),
        _search("all beams compete", lambda g: (_made_up(g, 5, 1.0), [0, 0, 2, 1], 5, 4)),
        _search("what a beam dropped is gone", lambda g: (_made_up(g, 8, 4.0), [7, 3], 2, 3)),
        _search("what a beam dropped is gone", lambda g: (_made_up(g, 8, 1.0), [2, 5], 2, 4)),
        _search("log probabilities far below -100", lambda g: (_nearly_equal, [2, 1], 1, 800)),
    ),
    **texts("beam_search"),
)

EXERCISES = (BEAM_SEARCH,)
