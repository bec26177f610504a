"""Lesson 01: which neighbours occur most often, and one number that replaces them."""

from collections import Counter
from itertools import combinations, pairwise

import torch
from torch import Generator

from .base import Exercise, Probe, chosen, slipped, texts

Pair = tuple[int, int]


def most_common_pair(ids: list[int], on: frozenset[str] = frozenset()) -> tuple:
    """The pair of neighbours that occurs most often, of equally frequent ones the greater; mistakes
    that are `on`.
    """
    if "single ids" in on:
        return tuple(id for id, _ in Counter(ids).most_common(2))
    counts = Counter(_pairs(sorted(ids) if "sorted" in on else ids, on))
    if "presence" in on:
        counts = Counter(set(counts))
    wanted = min(counts.values()) if "rarest" in on else max(counts.values())
    tied = [pair for pair, count in counts.items() if count == wanted]
    pair = chosen(on, max(tied), {
        "first met": lambda: tied[0],
        "last met": lambda: tied[-1],
        "smaller": lambda: min(tied),
        "by the second": lambda: max(tied, key=lambda pair: pair[::-1]),
        "by the sum": lambda: max(tied, key=sum),
        "first id only": lambda: max(tied, key=lambda pair: pair[0]),
        "as text": lambda: max(tied, key=str),
    })  # fmt: skip
    pair = pair[::-1] if "reversed" in on else pair
    return chosen(on, pair, {
        "with its count": lambda: (pair, wanted),
        "count alone": lambda: wanted,
        "all of them": lambda: tuple(tied),
    })  # fmt: skip


def _pairs(ids: list[int], on: frozenset[str]) -> list[Pair]:
    """The pairs that are counted."""
    return slipped(on, list(pairwise(ids)), {
        "every second": lambda pairs: pairs[::2],
        "last left out": lambda pairs: pairs[:-1],
        "first left out": lambda pairs: pairs[1:],
        "circle": lambda pairs: [*pairs, (ids[-1], ids[0])],
        "not neighbours": lambda pairs: list(combinations(ids, 2)),
        "one apart": lambda pairs: list(zip(ids, ids[2:], strict=False)),
        "either order": lambda pairs: [tuple(sorted(pair)) for pair in pairs],
        "equal ids left out": lambda pairs: [(a, b) for a, b in pairs if a != b],
        "no overlaps": lambda pairs: [
            pair for pair, i in zip(pairs, _places(pairs), strict=True) if i % 2 == 0
        ],
    })  # fmt: skip


def _places(pairs: list[Pair]) -> list[int]:
    """The place of each pair in its run of equal pairs, which overlap: 0, 1, 2 for the three of 5 5
    5 5.
    """
    places: list[int] = []
    for i, pair in enumerate(pairs):
        places.append(places[-1] + 1 if i and pair == pairs[i - 1] else 0)
    return places


def bpe_merge_step(
    ids: list[int], pair: Pair, new_id: int, on: frozenset[str] = frozenset()
) -> list[int]:
    """ids with new_id for each occurrence of pair, from left to right, and the mistakes that are
    `on`.
    """
    if "nothing merged" in on:
        return list(ids)
    pair = pair[::-1] if "wrong order" in on else pair
    if "right to left" in on:
        return bpe_merge_step(ids[::-1], pair[::-1], new_id)[::-1]
    if "as text" in on:
        text = " ".join(map(str, ids)).replace(" ".join(map(str, pair)), str(new_id))
        return [int(word) for word in text.split()]
    if "used twice" in on:
        merged = ids[:1]
        for found in pairwise(ids):
            merged[-1:] = [new_id] if found == pair else [merged[-1], found[1]]
        return merged
    if "each by itself" in on:
        return [new_id if id in pair else id for id in ids]
    starts = _starts(ids, pair, on)
    if "nothing without the pair" in on and not starts:
        return []
    merged: list = []
    step = chosen(on, 2, {"one step": lambda: 1, "three steps": lambda: 3})
    i = 0
    while i < len(ids):
        if i in starts:
            merged += _new(ids, pair, new_id, on)
            i += step
        else:
            merged.append(ids[i])
            i += 1
    if "the rest lost" in on:
        merged = [id for id in merged if id == new_id]
    if "end lost" in on and len(ids) - 2 not in starts:
        merged.pop()
    if "end twice" in on and len(ids) - 2 in starts:
        merged.append(ids[-1])
    if "runs become one" in on:
        merged = [id for i, id in enumerate(merged) if not (i and id == merged[i - 1] == new_id)]
    if "in place" in on:
        ids[:] = merged
    return merged


def _new(ids: list[int], pair: Pair, new_id: int, on: frozenset[str]) -> list:
    """What takes the place of an occurrence."""
    others = {
        "both replaced": [new_id] * 2, "pair itself": [pair], "removed": [],
        "first id stays": [pair[0], new_id],
        "behind the pair": [*pair, new_id], "before the pair": [new_id, *pair],
        "own number": [max(ids) + 1], "sum": [sum(pair)],
    }  # fmt: skip
    return next((others[name] for name in others if name in on), [new_id])


def _starts(ids: list[int], pair: Pair, on: frozenset[str]) -> list[int]:
    """Where the pair is taken to begin, from left to right and, but for "one step", without
    overlaps.
    """
    starts: list[int] = []
    for i, (a, b) in enumerate(pairwise(ids)):
        is_free = "one step" in on or not (starts and starts[-1] == i - 1)
        is_pair = (a, b) == pair
        if "either order" in on:
            is_pair = (a, b) in (pair, pair[::-1])
        if "by identity" in on:
            is_pair = a is pair[0] and b is pair[1]
        if "first id only" in on:
            is_pair = a == pair[0]
        if "second id only" in on:
            is_pair = b == pair[1]
        if "every second" in on:
            is_pair = is_pair and i % 2 == 0
        if "equal ids left out" in on:
            is_pair = is_pair and a != b
        if "next not looked at" in on:
            is_free = is_free and not (starts and starts[-1] == i - 2)
        if is_pair and is_free:
            starts.append(i)
    if "start missed" in on:
        starts = [i for i in starts if i > 0]
    if "end missed" in on:
        starts = [i for i in starts if i < len(ids) - 2]
    if "overlaps left out" in on:
        starts = [i for i in starts if ids[i] != ids[i + 1] or ids[i + 2 : i + 3] != [ids[i]]]
    if "first alone" in on:
        return starts[:1]
    return starts[-1:] if "last alone" in on else starts


def _ids(g: Generator, n: int, below: int, start: int = 0) -> list[int]:
    """n random ids, start..start + below - 1."""
    return (start + torch.randint(below, (n,), generator=g)).tolist()


def _tied(*pairs: Pair) -> list[int]:
    """Each pair twice, a different id behind each."""
    ids: list[int] = []
    for i, pair in enumerate(pairs * 2):
        ids += [*pair, 500 + i]
    return ids


MOST_COMMON_PAIR = Exercise(
    name="most_common_pair",
    lesson="01",
    reference=most_common_pair,
    probes=(
        Probe("1 2 is the pair that occurs twice in 1 2 3 1 2", lambda g: ([1, 2, 3, 1, 2],)),
        Probe("a pair has an order: 7 4 is not 4 7", lambda g: ([7, 4, 9, 4, 7, 5, 7, 4],)),
        Probe(
            "all pairs of neighbours are counted, at even and at odd positions",
            lambda g: ([6, 8, 2, 6, 8, 9, 9, 5, 6, 8],),
        ),
        Probe("two ids are one pair", lambda g: ([0, 3],)),
        Probe("the last pair is counted", lambda g: ([1, 5, 6, 1, 4, 5, 6],)),
        Probe("of equally frequent pairs the greater one is returned", lambda g: ([2, 6, 4, 5],)),
        Probe(
            "of equally frequent pairs the first ids decide, then the second ids",
            lambda g: (_tied((3, 8), (1, 4), (5, 9), (2, 11), (7, 1), (7, 3), (6, 2)),),
        ),
        Probe(
            "ids are compared as numbers, not as text", lambda g: (_tied((9, 1), (10, 1), (9, 2)),)
        ),
        Probe("equal ids are a pair, too", lambda g: ([3, 3, 1, 2, 3, 3],)),
        Probe(
            "three equal ids in a row contain their pair twice",
            lambda g: ([5, 5, 5, 1, 7, 8, 2, 7, 8, 5, 5],),
        ),
        Probe(
            "only neighbours are counted, and the last id is not a neighbour of the first",
            lambda g: ([4, 1, 2, 5, 1, 3, 4, 6, 1, 7, 4],),
        ),
        Probe("the most frequent pair is found in a long list", lambda g: (_ids(g, 60, 4),)),
        Probe(
            "the most frequent pair is found in a long list",
            lambda g: (_ids(g, 200, 6, start=300),),
        ),
        Probe("ids may be large numbers", lambda g: (_ids(g, 90, 5, start=70_000),)),
    ),
    **texts("most_common_pair"),
)
BPE_MERGE_STEP = Exercise(
    name="bpe_merge_step",
    lesson="01",
    reference=bpe_merge_step,
    probes=(
        Probe("the new id 7 replaces the pair 1 2", lambda g: ([5, 1, 2, 3], (1, 2), 7)),
        Probe(
            "each occurrence is merged, at the start and at the end, too",
            lambda g: ([1, 2, 5, 1, 2, 3, 4, 1, 2], (1, 2), 7),
        ),
        Probe(
            "occurrences may be next to each other", lambda g: ([3, 1, 2, 1, 2, 1, 2, 5], (1, 2), 7)
        ),
        Probe(
            "only the two ids next to each other and in this order are merged",
            lambda g: ([1, 3, 2, 1, 1, 2, 2, 4, 1], (1, 2), 9),
        ),
        Probe("without the pair nothing changes", lambda g: ([4, 3, 2, 1], (1, 2), 9)),
        Probe(
            "overlapping occurrences are merged from left to right",
            lambda g: ([5, 5, 5, 3], (5, 5), 8),
        ),
        Probe("each id is used only once", lambda g: ([6, 6, 6, 6], (6, 6), 40)),
        Probe("two ids may become one", lambda g: ([0, 3], (0, 3), 7)),
        Probe("one id stays as it is", lambda g: ([1], (1, 2), 7)),
        Probe("long lists are merged correctly", lambda g: (_ids(g, 60, 3), (2, 0), 3)),
        Probe("long runs of equal ids are merged correctly", lambda g: (_ids(g, 80, 2), (1, 1), 2)),
        Probe(
            "ids are compared as numbers, not as text",
            lambda g: ([11, 2, 1, 22, 1, 2, 12, 1], (1, 2), 256),
        ),
        Probe(
            "ids may be large numbers",
            lambda g: (_ids(g, 60, 3, start=70_000), (70_001, 70_002), 300),
        ),
    ),
    **texts("bpe_merge_step"),
)
EXERCISES = (MOST_COMMON_PAIR, BPE_MERGE_STEP)
