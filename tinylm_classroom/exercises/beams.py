"""Lesson 12: the most probable texts, by keeping several at every step."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from .base import Exercise, Probe, chosen, slipped, texts

Beam = tuple[list[int], float]
NextToken = Callable[[list[int]], Tensor]


def beam_search(
    log_probs_fn: NextToken,
    start: list[int],
    n_beams: int,
    n_steps: int,
    on: frozenset[str] = frozenset(),
) -> list[Beam]:
    """The n_beams best of all continuations tried, (tokens with start, log_prob), and the mistakes
    that are `on`.
    """
    n_steps += ("one step more" in on) - ("one step less" in on)
    n_beams += "one beam too many" in on
    score = 1.0 if {"logarithms multiplied", "starts at 1"} & on else 0.0
    if "start counted" in on:
        score = sum(log_probs_fn(start[:i])[start[i]].item() for i in range(1, len(start)))
    beams: list[Beam] = [(list(start), score)]
    if "equal beams" in on:
        beams = beams * n_beams
    for step in range(n_steps):
        grown = _grown(log_probs_fn, beams, len(start), n_beams, on)
        if "logarithms added late" in on and step == 0:
            grown = [(tokens, 0.0) for tokens, _ in grown[:n_beams]]
        beams = _best(grown, beams, n_beams, on)
    if "all returned" in on:
        beams = grown
    beams = sorted(beams, key=lambda beam: beam[1], reverse="least probable" not in on)
    beams = beams if "all returned" in on else beams[:n_beams]
    return _given_back(beams, len(start), on)


def _grown(
    log_probs_fn: NextToken, beams: list[Beam], n_start: int, n_beams: int, on: frozenset[str]
) -> list[Beam]:
    """Every beam with every next token."""
    grown = []
    for tokens, score in beams[:1] if "only the best grows" in on else beams:
        seen = chosen(on, tokens, {
            "never reads on": lambda tokens=tokens: tokens[:n_start],
            "reads one token": lambda tokens=tokens: tokens[-1:],
            "start not read": lambda tokens=tokens: tokens[n_start:],
        })  # fmt: skip
        log_probs = log_probs_fn(list(seen)).tolist()
        last = None
        if "stops at token 0" in on:
            last = 0
        elif "stops at the last token" in on:
            last = len(log_probs) - 1
        if len(tokens) > n_start and tokens[-1] == last:
            grown.append((tokens, score))
            continue
        of_one = [
            ([*tokens, token], _total(score, log_prob, on))
            for token, log_prob in enumerate(log_probs)
        ]
        ranked = sorted(of_one, key=lambda beam: -beam[1])[:n_beams]
        if on & {"one list for all", "one list for the best"}:
            of_one = of_one if "one list for all" in on else ranked
            tokens += [longer[-1] for longer, _ in of_one]
            of_one = [(tokens, total) for _, total in of_one]
        if "one token each" in on and len(beams) > 1:
            of_one = ranked[:1]
        grown += ranked if "never ranked together" in on else of_one
    return grown


def _total(score: float, log_prob: float, on: frozenset[str]) -> float:
    return chosen(on, score + log_prob, {
        "last step only": lambda: log_prob,
        "decreases": lambda: score - log_prob,
        "logarithms multiplied": lambda: score * log_prob,
        "probabilities added": lambda: score + math.exp(log_prob),
    })  # fmt: skip


def _best(grown: list[Beam], beams: list[Beam], n_beams: int, on: frozenset[str]) -> list[Beam]:
    """The beams that continue."""
    if on & {"nothing dropped", "never ranked together"}:
        if len(grown) > 3000:  # with a function that never reads on, nothing else would end it
            raise RuntimeError("too many beams")
        return grown
    ranked = sorted(grown, key=lambda beam: beam[1], reverse="least probable" not in on)
    if "never ranked" in on:
        ranked = grown
    kept = ranked[: 1 if "one beam" in on else n_beams]
    if "wrong parents" in on:
        kept = [
            ([*beams[i % len(beams)][0], tokens[-1]], score)
            for i, (tokens, score) in enumerate(kept)
        ]
    if "always the best parent" in on:
        kept = [([*beams[0][0], tokens[-1]], score) for tokens, score in kept]
    if "index the wrong way round" in on:
        places = [next(i for i, beam in enumerate(grown) if beam is one) for one in kept]
        n = len(beams)
        V = len(grown) // len(beams)
        kept = [
            ([*beams[i % n][0], i // n % V], score)
            for i, (_, score) in zip(places, kept, strict=True)
        ]
    return kept


def _given_back(beams: list[Beam], n_start: int, on: frozenset[str]) -> Any:
    scores = {
        "probabilities": lambda tokens, score: math.exp(score),
        "in bits": lambda tokens, score: score / math.log(2),
        "positive": lambda tokens, score: -score,
        "per token": lambda tokens, score: score / max(1, len(tokens) - n_start),
        "per token of all": lambda tokens, score: score / len(tokens),
        "underflows": lambda tokens, score: torch.tensor(score).double().exp().log().item(),
    }
    for name in scores.keys() & on:
        beams = [(tokens, scores[name](tokens, score)) for tokens, score in beams]
    beams = slipped(on, beams, {"worst first": lambda beams: beams[::-1]})
    return chosen(on, beams, {
        "tokens alone": lambda: [tokens for tokens, _ in beams],
        "scores alone": lambda: [score for _, score in beams],
        "pairs turned round": lambda: [(score, tokens) for tokens, score in beams],
        "two lists": lambda: ([tokens for tokens, _ in beams], [score for _, score in beams]),
        "best tokens alone": lambda: beams[0][0],
        "last tokens": lambda: [(tokens[-1:], score) for tokens, score in beams],
        "the best alone": lambda: beams[0],
        "one in the list": lambda: beams[:1],
    })  # fmt: skip


def _limited(function: NextToken, n_beams: int, n_steps: int) -> NextToken:
    """The function, for a search of this size, which refuses many more different texts than the
    search needs.

    It takes tokens as a list, a tuple or a tensor, and the same text as often as one likes. A
    search may ask for each continuation before it drops some of them.
    """
    known: dict[tuple[int, ...], Tensor] = {}
    most = n_beams * (n_steps + 1) * len(function([0]))

    def log_probs_fn(tokens: list[int]) -> Tensor:
        text = _text(tokens)
        if text not in known:
            if len(known) == most:
                raise RuntimeError(
                    f"log_probs_fn was given more than {most} different texts, but {n_beams} beams "
                    f"and {n_steps} steps need only a part of them: after each step only n_beams "
                    "continue"
                )
            known[text] = function(list(text))
        return known[text].clone()

    return log_probs_fn


def _text(tokens: Any) -> tuple[int, ...]:
    """Tokens in a list, a tuple or a tensor as a tuple of int."""
    # most of the time, and much faster
    if isinstance(tokens, list | tuple) and {*map(type, tokens)} == {int}:
        return tuple(tokens)
    return tuple(torch.as_tensor(tokens).flatten().long().tolist())


def _by_table(tokens: list[int]) -> Tensor:
    """A tiny language: token 0 is the likeliest first, but what follows 1 is nearly certain."""
    first = [0.5, 0.4, 0.1]
    then = {0: [0.4, 0.35, 0.25], 1: [0.1, 0.85, 0.05], 2: [0.25, 0.3, 0.45]}
    return torch.tensor(first if len(tokens) <= 2 else then[tokens[-1]]).log()


def _nearly_equal(tokens: list[int]) -> Tensor:
    """A language for long texts, quick to compute: the last token alone counts, and hardly."""
    return torch.tensor([0.3, 0.26, 0.24, 0.2]).log().roll(tokens[-1] if tokens else 0)


def _made_up(g: Generator, V: int, sharpness: float = 2.0) -> NextToken:
    """A language in which the last 50 tokens count, the later the more."""
    table = sharpness * torch.randn(V, V, generator=g)

    def log_probs_fn(tokens: list[int]) -> Tensor:
        recent = tokens[-50:]
        weights = 0.7 ** torch.arange(len(recent) - 1, -1, -1.0)
        return (table[recent] * weights[:, None]).sum(0).log_softmax(-1)

    return log_probs_fn


def _as_pairs(arguments: tuple, result: Any) -> Any:
    """Beams as (list, float), with the start where it was left out; if they share one list, only
    that is said.
    """
    _, start, _, n_steps = arguments
    if not isinstance(result, list | tuple):
        return result
    pairs = []
    for beam in result:
        if (
            not isinstance(beam, list | tuple)
            or len(beam) != 2
            or not isinstance(beam[0], list | tuple | Tensor)
        ):
            return result
        tokens = torch.as_tensor(beam[0]).flatten().tolist()
        pairs.append((list(start) + tokens if len(tokens) == n_steps else tokens, beam[1]))
    longest = max((tokens for tokens, _ in pairs), key=len, default=[])
    if (
        len(pairs) > 1
        and len(longest) > len(start) + n_steps
        and all(tokens == longest for tokens, _ in pairs)
    ):
        return "the same list of tokens, which is too long, in each beam"
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
        _search(
            "a worse beginning may have the better end", lambda g: (_made_up(g, 5), [3, 0], 2, 3)
        ),
        _search("all beams compete", lambda g: (_made_up(g, 4), [1, 2], 3, 4)),
        _search("all beams compete", lambda g: (_made_up(g, 6), [5, 0, 4], 4, 3)),
        _search("all beams compete", lambda g: (_made_up(g, 7, 0.5), [6, 1], 3, 5)),
        _search("all beams compete", lambda g: (_made_up(g, 5, 1.0), [0, 0, 2, 1], 5, 4)),
        _search(
            "a continuation that was dropped does not come back",
            lambda g: (_made_up(g, 8, 4.0), [7, 3], 2, 3),
        ),
        _search(
            "a continuation that was dropped does not come back",
            lambda g: (_made_up(g, 8, 1.0), [2, 5], 2, 4),
        ),
        _search("log probabilities far below -100", lambda g: (_nearly_equal, [2, 1], 1, 800)),
    ),
    **texts("beam_search"),
)

EXERCISES = (BEAM_SEARCH,)
