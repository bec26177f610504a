"""Lesson 01: a new text cut into tokens by the merges that were learned."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator

from .base import Exercise, Probe, texts
from .tokens import most_common_pair

Merge = tuple[bytes, bytes]


def bpe_encode(
    tokens: list[bytes], merges: Sequence[Merge], on: frozenset[str] = frozenset()
) -> list[bytes]:
    """The tokens after each merge in turn has joined all its occurrences, and the mistakes that are
    `on`.
    """
    given = tokens
    result = list(tokens)
    if "nothing merged" in on:
        return result
    if "longest match" in on:
        return _longest_match(b"".join(tokens), {a + b for a, b in merges})
    if "one walk" in on or "one pass" in on:
        return _in_one_pass(tokens, merges, grows="one walk" in on)
    if found := [name for name in CHOICES if name in on]:
        return _one_by_one(result, merges, found[0])
    for pair in _in_turn(list(merges), on):
        if "stops early" in on and pair not in pairwise(result):
            break
        result = _joined(result, pair, on)
        if "one merge" in on and pair in pairwise(given):
            break
    if "last merge alone" in on and merges:
        result = _joined(list(given), merges[-1], on)
    if "in place" in on:
        given[:] = result
    if "nothing else" in on:
        result = [token for token in result if len(token) > 1]
    return b"".join(result) if "glued" in on else result


CHOICES = {
    "most frequent": lambda pairs, ranks: max(
        pairs, key=lambda pair: (pairs.count(pair), -ranks[pair])
    ),
    "leftmost": lambda pairs, ranks: pairs[0],
    "latest": lambda pairs, ranks: max(pairs, key=ranks.get),
}


def _one_by_one(tokens: list[bytes], merges: Sequence[Merge], choice: str) -> list[bytes]:
    """The tokens if at each step one of the known pairs is chosen in another way than by its place
    in the merges.
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    while known := [pair for pair in pairwise(tokens) if pair in ranks]:
        tokens = _joined(tokens, CHOICES[choice](known, ranks), frozenset())
    return tokens


def _in_one_pass(tokens: list[bytes], merges: Sequence[Merge], grows: bool) -> list[bytes]:
    """The tokens if every known pair is joined on one way through them; grows: also with what was
    joined before.
    """
    joined: list[bytes] = []
    for token in tokens:
        if joined and (joined[-1], token) in merges and (grows or len(joined[-1]) == 1):
            joined[-1] += token
        else:
            joined.append(token)
    return joined


def _longest_match(text: bytes, made: set[bytes]) -> list[bytes]:
    """The text cut from the left, each time into the longest token that fits."""
    tokens = []
    while text:
        tokens.append(next(text[:n] for n in range(len(text), 0, -1) if n == 1 or text[:n] in made))
        text = text[len(tokens[-1]) :]
    return tokens


def _in_turn(merges: list[Merge], on: frozenset[str]) -> list[Merge]:
    """The merges in the order in which they are applied."""
    if "backwards" in on:
        return merges[::-1]
    if "longest first" in on:
        return sorted(merges, key=lambda pair: -len(pair[0] + pair[1]))
    if "sorted" in on:
        return sorted(merges)
    return merges[:-1] if "last left out" in on else merges


def _joined(tokens: list[bytes], pair: Merge, on: frozenset[str]) -> list[bytes]:
    """The tokens with the occurrences of a pair joined."""
    if "right to left" in on:
        swapped = _joined(
            [token[::-1] for token in tokens[::-1]], (pair[1][::-1], pair[0][::-1]), frozenset()
        )
        return [token[::-1] for token in swapped[::-1]]
    starts = _begins(tokens, pair, on)
    joined = []
    i = 0
    while i < len(tokens):
        found = i in starts
        joined.append(b"".join(tokens[i : i + 1 + found]))
        i += 1 + found
    return joined


def _begins(tokens: list[bytes], pair: Merge, on: frozenset[str]) -> list[int]:
    """Where the pair begins, from left to right and without overlaps."""
    wanted = (pair, pair[::-1]) if "either order" in on else (pair,)
    begins: list[int] = []
    for i, found in enumerate(pairwise(tokens)):
        if found in wanted and not (begins and begins[-1] == i - 1):
            begins.append(i)
    return begins[:1] if "first alone" in on else begins


def _bytes(text: str) -> list[bytes]:
    """The single bytes of a text of plain letters."""
    return [letter.encode() for letter in text]


def _learnt(g: Generator, n_merges: int) -> tuple[list[bytes], list[Merge]]:
    """A random text, and the merges that another text like it would teach."""
    text, other = (
        _bytes("".join("abcd"[i] for i in torch.randint(4, (n,), generator=g))) for n in (50, 90)
    )
    merges: list[Merge] = []
    for _ in range(n_merges):
        merges.append(most_common_pair(other))
        other = _joined(other, merges[-1], frozenset())
    return text, merges


BPE_ENCODE = Exercise(
    name="bpe_encode",
    lesson="01",
    reference=bpe_encode,
    probes=(
        Probe("a merge joins its two tokens", lambda g: (_bytes("hat"), [(b"h", b"a")])),
        Probe(
            "a later merge joins what an earlier one has made",
            lambda g: (_bytes("hat"), [(b"h", b"a"), (b"ha", b"t")]),
        ),
        Probe(
            "each merge joins all its occurrences",
            lambda g: (_bytes("that hat"), [(b"h", b"a"), (b"ha", b"t")]),
        ),
        Probe(
            "the merges are applied in the order in which they were learned",
            lambda g: (_bytes("abc"), [(b"b", b"c"), (b"a", b"b")]),
        ),
        Probe(
            "the merges are applied in the order in which they were learned",
            lambda g: (_bytes("abcxb"), [(b"a", b"b"), (b"b", b"c"), (b"x", b"b")]),
        ),
        Probe(
            "the merges are applied in the order in which they were learned",
            lambda g: (_bytes("abcd"), [(b"c", b"d"), (b"b", b"cd"), (b"b", b"c")]),
        ),
        Probe(
            "a merge that does not occur changes nothing",
            lambda g: (_bytes("cab"), [(b"x", b"y"), (b"a", b"b")]),
        ),
        Probe("without merges the tokens stay as they are", lambda g: (_bytes("cab"), [])),
        Probe("one token stays as it is", lambda g: (_bytes("a"), [(b"a", b"b")])),
        Probe("a pair has an order: a b is not b a", lambda g: (_bytes("baab"), [(b"a", b"b")])),
        Probe(
            "overlapping pairs are joined from left to right",
            lambda g: (_bytes("aaabaaaa"), [(b"a", b"a"), (b"aa", b"b")]),
        ),
        Probe("long texts are encoded correctly", lambda g: _learnt(g, 6)),
        Probe("long texts are encoded correctly with many merges", lambda g: _learnt(g, 25)),
    ),
    **texts("bpe_encode"),
    order=1,
)
EXERCISES = (BPE_ENCODE,)
