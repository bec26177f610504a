"""Lesson 20: how much of a text is a copy."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import torch
from torch import Generator

from .base import Exercise, Probe, texts


def longest_copy(known: list[int], ids: list[int], on: frozenset[str] = frozenset()) -> int:
    """The largest number of tokens in a row of ids that are in a row in known, too, and the
    mistakes that are `on`.
    """
    known = list(known)
    ids = list(ids)
    if "exchanged" in on:
        return longest_copy(ids[: len(ids) // 2], known)
    if "tokens alone" in on:
        return _longest_run([token in set(known) for token in ids])
    if "all tokens" in on:
        return sum(token in set(known) for token in ids)
    if "pairs" in on:
        pairs = {*pairwise(known)}
        runs = _longest_run([pair in pairs for pair in pairwise(ids)])
        return runs + 1 if runs else int(bool({*known} & {*ids}))
    if "gaps" in on:
        return _in_order(known, ids)
    if "spelled" in on:
        spelled = "".join(map(str, known))
        return _most(ids, lambda piece: "".join(map(str, piece)) in spelled)
    if "open end" in on:
        spelled = " " + " ".join(map(str, known))
        return _most(ids, lambda piece: " " + " ".join(map(str, piece)) in spelled)
    if not on:
        return _longest_known(known, ids)
    longest = _longest(known, ids, on)
    longest = longest - 1 if "one less" in on and longest else longest
    return longest + ("one more" in on)


def _longest_known(known: list[int], ids: list[int]) -> int:
    """The right answer, fast enough for a long text."""
    spelled = f" {' '.join(map(str, known))} "
    longest = 0
    for start in range(len(ids)):
        while (end := start + longest + 1) <= len(ids):
            if f" {' '.join(map(str, ids[start:end]))} " not in spelled:
                break
            longest += 1
    return longest


def _longest(known: list[int], ids: list[int], on: frozenset[str]) -> int:
    """The length of the longest row that both have."""
    longest = 0
    at_known = range(1) if "beginning of known" in on else range(len(known))
    at_ids = range(1) if "beginning of ids" in on else range(len(ids))
    if "end of ids" in on:
        at_ids = range(max(0, len(ids) - 1))
    for i in at_ids:
        for j in [i] if "same position" in on and i < len(known) else at_known:
            n = 0
            while i + n < len(ids) and j + n < len(known) and ids[i + n] == known[j + n]:
                n += 1
            longest = (n or longest) if "last found" in on else max(longest, n)
            if "first found" in on and n:
                return n
            if "first place in known" in on and n:
                break
    return longest


def _most(ids: list[int], is_known: Callable[[list[int]], bool]) -> int:
    ends = range(len(ids) + 1)
    pieces = [ids[start:end] for start, end in combinations(ends, 2)]
    return max((len(piece) for piece in pieces if is_known(piece)), default=0)


def _longest_run(found: Sequence[bool]) -> int:
    longest = run = 0
    for each in found:
        run = run + 1 if each else 0
        longest = max(longest, run)
    return longest


def _in_order(known: list[int], ids: list[int]) -> int:
    """The longest common subsequence: other tokens may be between."""
    row = [0] * (len(known) + 1)
    for token in ids:
        before = row[:]
        for j, other in enumerate(known):
            row[j + 1] = before[j] + 1 if token == other else max(before[j + 1], row[j])
    return row[-1]


def _mixed(g: Generator, n_known: int, n_ids: int, n_copied: int, V: int = 40) -> tuple:
    """Drawn tokens, and in the middle of both a passage that is a copy."""
    known, ids, passage = (
        torch.randint(5, V, (n,), generator=g).tolist() for n in (n_known, n_ids, n_copied)
    )
    i = n_known // 3
    j = n_ids // 2
    return known[:i] + passage + known[i:], ids[:j] + passage + ids[j:]


LONGEST_COPY = Exercise(
    name="longest_copy",
    lesson="20",
    reference=longest_copy,
    probes=(
        Probe("a copy in the middle of both", lambda g: ([1, 2, 3, 4, 5], [9, 3, 4, 8])),
        Probe("nothing in common", lambda g: ([1, 2, 3], [7, 8])),
        Probe("no tokens", lambda g: ([1, 2, 3], [])),
        Probe("all of it is a copy", lambda g: ([9, 5, 6, 7, 9], [5, 6, 7])),
        Probe("known tokens in another order", lambda g: ([1, 2, 3, 4], [4, 3, 2, 1])),
        Probe(
            "a longer copy comes after a shorter one",
            lambda g: ([5, 6, 1, 7, 8, 9], [5, 2, 7, 8, 9, 5]),
        ),
        Probe(
            "a longer copy comes after a shorter one",
            lambda g: ([4, 5, 1, 4, 5, 6, 7], [4, 5, 6, 7, 0]),
        ),
        Probe(
            "known pairs do not make a known passage",
            lambda g: ([1, 2, 8, 2, 3, 8, 3, 4], [1, 2, 3, 4]),
        ),
        Probe(
            "other tokens between are not a copy", lambda g: ([1, 9, 2, 9, 3, 9, 4], [1, 2, 3, 4])
        ),
        Probe("12 and 1, 2 are different tokens", lambda g: ([12, 34, 5], [1, 2, 3, 4, 55])),
        Probe("12 and 1, 2 are different tokens", lambda g: ([120, 7], [12, 7])),
        Probe("long texts", lambda g: _mixed(g, 300, 60, 14)),
        Probe("long texts", lambda g: _mixed(g, 200, 40, 9, 400)),
    ),
    **texts("longest_copy"),
)

EXERCISES = (LONGEST_COPY,)
