"""Lesson 01: which neighbours occur most often, and one number that replaces them."""

from collections import Counter
from itertools import combinations, pairwise

import torch
from torch import Generator

from .base import Exercise, Fault, Probe

Pair = tuple[int, int]

TIES = {
    "first met": lambda tied: tied[0],
    "last met": lambda tied: tied[-1],
    "smaller": min,
    "by the second": lambda tied: max(tied, key=lambda pair: pair[::-1]),
    "by the sum": lambda tied: max(tied, key=sum),
    "first id only": lambda tied: max(tied, key=lambda pair: pair[0]),
    "as text": lambda tied: max(tied, key=str),
}


def most_common_pair(ids: list[int], on: frozenset[str] = frozenset()) -> tuple:
    """The pair of neighbours that occurs most often, of equally frequent ones the greater; mistakes that are `on`."""
    if "sorted" in on:
        ids = sorted(ids)
    if "single ids" in on:
        return tuple(id for id, _ in Counter(ids).most_common(2))
    counts = Counter(_pairs(ids, on))
    if "presence" in on:
        counts = Counter(set(counts))
    wanted = min(counts.values()) if "rarest" in on else max(counts.values())
    tied = [pair for pair, count in counts.items() if count == wanted]
    pair = max(tied)
    for name, choose in TIES.items():
        if name in on:
            pair = choose(tied)
    if "reversed" in on:
        pair = pair[::-1]
    if "with its count" in on:
        return pair, wanted
    if "count alone" in on:
        return wanted
    if "all of them" in on:
        return tuple(tied)
    return pair


def _pairs(ids: list[int], on: frozenset[str]) -> list[Pair]:
    """The pairs that are counted."""
    pairs = list(pairwise(ids))
    if "every second" in on:
        pairs = pairs[::2]
    if "last left out" in on:
        pairs = pairs[:-1]
    if "first left out" in on:
        pairs = pairs[1:]
    if "circle" in on:
        pairs.append((ids[-1], ids[0]))
    if "not neighbours" in on:
        pairs = list(combinations(ids, 2))
    if "one apart" in on:
        pairs = list(zip(ids, ids[2:], strict=False))
    if "either order" in on:
        pairs = [tuple(sorted(pair)) for pair in pairs]
    if "equal ids left out" in on:
        pairs = [(a, b) for a, b in pairs if a != b]
    if "no overlaps" in on:
        pairs = [pair for pair, i in zip(pairs, _places(pairs), strict=True) if i % 2 == 0]
    return pairs


def _places(pairs: list[Pair]) -> list[int]:
    """The place of each pair in its run of equal pairs, which overlap: 0, 1, 2 for the three of 5 5 5 5."""
    places: list[int] = []
    for i, pair in enumerate(pairs):
        places.append(places[-1] + 1 if i and pair == pairs[i - 1] else 0)
    return places


def bpe_merge_step(ids: list[int], pair: Pair, new_id: int, on: frozenset[str] = frozenset()) -> list[int]:
    """ids with new_id for each occurrence of pair, from left to right, and the mistakes that are `on`."""
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
    i = 0
    while i < len(ids):
        if i in starts:
            merged += _new(ids, pair, new_id, on)
            i += 1 if "one step" in on else 3 if "three steps" in on else 2
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
        "both replaced": [new_id] * 2, "pair itself": [pair], "removed": [], "first id stays": [pair[0], new_id],
        "behind the pair": [*pair, new_id], "before the pair": [new_id, *pair],
        "own number": [max(ids) + 1], "sum": [sum(pair)],
    }  # fmt: skip
    return next((others[name] for name in others if name in on), [new_id])


def _starts(ids: list[int], pair: Pair, on: frozenset[str]) -> list[int]:
    """Where the pair is taken to begin, from left to right and, but for "one step", without overlaps."""
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
    return starts[:1] if "first alone" in on else starts[-1:] if "last alone" in on else starts


def _ids(g: Generator, n: int, below: int, start: int = 0) -> list[int]:
    """n random ids, start..start + below - 1."""
    return (start + torch.randint(below, (n,), generator=g)).tolist()


def _tied(*pairs: Pair) -> list[int]:
    """Each pair twice, a different id behind each."""
    return [id for i, pair in enumerate(pairs * 2) for id in (*pair, 500 + i)]


MOST_COMMON_PAIR = Exercise(
    name="most_common_pair",
    lesson="01",
    reference=most_common_pair,
    probes=(
        Probe("1 2 is the pair that occurs twice in 1 2 3 1 2", lambda g: ([1, 2, 3, 1, 2],)),
        Probe("a pair has an order: 7 4 is not 4 7", lambda g: ([7, 4, 9, 4, 7, 5, 7, 4],)),
        Probe("all neighbours count, at even positions and at odd ones", lambda g: ([6, 8, 2, 6, 8, 9, 9, 5, 6, 8],)),
        Probe("two ids are a pair", lambda g: ([0, 3],)),
        Probe("the last pair counts", lambda g: ([1, 5, 6, 1, 4, 5, 6],)),
        Probe("of equally frequent pairs the greater", lambda g: ([2, 6, 4, 5],)),
        Probe(
            "of equally frequent pairs the greater: by the first id, then by the second",
            lambda g: (_tied((3, 8), (1, 4), (5, 9), (2, 11), (7, 1), (7, 3), (6, 2)),),
        ),
        Probe("ids are compared as numbers, not as text", lambda g: (_tied((9, 1), (10, 1), (9, 2)),)),
        Probe("equal ids are a pair, too", lambda g: ([3, 3, 1, 2, 3, 3],)),
        Probe("equal ids are a pair, too: in three in a row it occurs twice", lambda g: ([5, 5, 5, 1, 7, 8, 2, 7, 8, 5, 5],)),
        Probe("only neighbours count, and the end is not a neighbour of the start", lambda g: ([4, 1, 2, 5, 1, 3, 4, 6, 1, 7, 4],)),
        Probe("long lists", lambda g: (_ids(g, 60, 4),)),
        Probe("long lists", lambda g: (_ids(g, 200, 6, start=300),)),
        Probe("ids of any size", lambda g: (_ids(g, 90, 5, start=70_000),)),
    ),
    faults={
        "rarest": Fault("the rarest pair is returned", "BPE grows by what occurs most often."),
        "presence": Fault("it is only noted whether a pair occurs, not how often", "The count decides; the greater pair wins only among equals."),
        "single ids": Fault("ids are counted one by one", "Two frequent ids need not be next to each other: count pairs of neighbours."),
        "first met": Fault("of equally frequent pairs the first is taken", "The greater one is expected. (`max` and `most_common` keep the first that they meet.)"),
        "last met": Fault("of equally frequent pairs the last is taken", "The greater one is expected, wherever it occurs."),
        "smaller": Fault("of equally frequent pairs the smaller is taken", "The greater one is expected."),
        "by the second": Fault("ties are decided by the second id", "Pairs compare like words: first by the first id, then by the second."),
        "by the sum": Fault("ties are decided by the sum of the two ids", "Pairs compare like words: first by the first id, then by the second."),
        "first id only": Fault("ties are decided by the first id alone", "Where the first ids are equal, the second ones decide."),
        "as text": Fault("ids are compared as text", "As text, 9 comes after 10. Compare the numbers."),
        "every second": Fault("every second pair is left out", "Neighbours overlap: 1 2 3 contains the pairs 1 2 and 2 3. Which step does your loop take?"),
        "last left out": Fault("the last pair is not counted", "n ids have n - 1 pairs of neighbours. Where does your loop end?"),
        "first left out": Fault("the first pair is not counted", "n ids have n - 1 pairs of neighbours. Where does your loop begin?"),
        "circle": Fault("the last id and the first are counted as a pair", "A text has two ends. (`ids[-1]` is the last id: does your loop begin one too early?)"),
        "not neighbours": Fault("ids that are not neighbours are counted as pairs", "Only ids that are next to each other can be merged."),
        "one apart": Fault("ids are paired across the one between them", "Neighbours are one position apart."),
        "either order": Fault("a pair and its reverse are counted together", "1 2 and 2 1 are different pairs: merged, they are different texts."),
        "sorted": Fault("the ids are sorted first", "Sorting destroys the text: what is counted is which ids are next to each other."),
        "equal ids left out": Fault("pairs of two equal ids are left out", "5 5 is a pair like any other."),
        "no overlaps": Fault("of overlapping pairs only every other is counted", "5 5 5 contains two pairs of neighbours. Overlaps matter when pairs are merged, not when they are counted."),
        "reversed": Fault("the two ids are returned in reversed order", "The id that comes first in the text comes first in the pair."),
        "with its count": Fault("the count is returned together with the pair", "The pair alone is expected: two ids."),
        "count alone": Fault("the count of the pair is returned", "The pair itself is expected."),
        "all of them": Fault("all of the most frequent pairs are returned", "One is expected: the greater."),
    },
    hints=(
        "Walk through the list and look at each id together with the one after it. How many such pairs do n ids have?",
        "Count in a dictionary from pair to number, or with `collections.Counter`; a tuple can be a key.",
        "A tie: Python compares tuples by their first item, then by their second. So does `max` with a key that is a tuple (count, pair).",
    ),
)  # fmt: skip
BPE_MERGE_STEP = Exercise(
    name="bpe_merge_step",
    lesson="01",
    reference=bpe_merge_step,
    probes=(
        Probe("the new id 7 replaces the pair 1 2", lambda g: ([5, 1, 2, 3], (1, 2), 7)),
        Probe("each occurrence is merged, at the start and at the end, too", lambda g: ([1, 2, 5, 1, 2, 3, 4, 1, 2], (1, 2), 7)),
        Probe("occurrences may be next to each other", lambda g: ([3, 1, 2, 1, 2, 1, 2, 5], (1, 2), 7)),
        Probe("both ids must be there, next to each other, in this order", lambda g: ([1, 3, 2, 1, 1, 2, 2, 4, 1], (1, 2), 9)),
        Probe("without the pair nothing changes", lambda g: ([4, 3, 2, 1], (1, 2), 9)),
        Probe("overlaps: from left to right", lambda g: ([5, 5, 5, 3], (5, 5), 8)),
        Probe("an id is used once", lambda g: ([6, 6, 6, 6], (6, 6), 40)),
        Probe("two ids may become one", lambda g: ([0, 3], (0, 3), 7)),
        Probe("one id stays as it is", lambda g: ([1], (1, 2), 7)),
        Probe("long lists", lambda g: (_ids(g, 60, 3), (2, 0), 3)),
        Probe("long lists of equal ids", lambda g: (_ids(g, 80, 2), (1, 1), 2)),
        Probe("ids are compared as numbers, not as text", lambda g: ([11, 2, 1, 22, 1, 2, 12, 1], (1, 2), 256)),
        Probe("ids of any size", lambda g: (_ids(g, 60, 3, start=70_000), (70_001, 70_002), 300)),
    ),
    faults={
        "nothing merged": Fault("nothing is ever merged", "Is your condition ever true? A list never equals a tuple, even with the same ids in it: compare like with like."),
        "first alone": Fault("only the first occurrence is merged", "Continue after it: all occurrences are merged in one step."),
        "last alone": Fault("only the last occurrence is merged", "All occurrences are merged in one step."),
        "right to left": Fault("overlaps are merged from the right", "5 5 5 becomes NEW 5: the pair that comes first is merged."),
        "one step": Fault("after a merge you move on by one id instead of two", "Then the second id of the pair is used twice. How many ids has a merge consumed?"),
        "three steps": Fault("after a merge you move on by three ids instead of two", "Then the id after the pair is lost. How many ids has a merge consumed?"),
        "next not looked at": Fault("the id after a merged pair is copied without a look", "It may begin the next occurrence."),
        "every second": Fault("only pairs at even positions are merged", "A pair can begin anywhere: move on by one id where nothing was merged."),
        "end lost": Fault("the last id is lost", "It cannot begin a pair, but it belongs to the result all the same. Where does your loop end?"),
        "end twice": Fault("the last id is there once too often", "It has been merged already: copy it only where it was not."),
        "end missed": Fault("a pair at the very end is not merged", "Where does your loop end? The last pair begins at the last id but one."),
        "start missed": Fault("a pair at the very start is not merged", "Where does your loop begin?"),
        "either order": Fault("the reversed pair is merged, too", "1 2 and 2 1 are different pairs."),
        "wrong order": Fault("the reversed pair is merged instead", "Which id of the pair comes first?"),
        "first id only": Fault("only the first id of the pair is looked at", "The id after it must be the second one of the pair."),
        "second id only": Fault("only the second id of the pair is looked at", "The id before it must be the first one of the pair."),
        "each by itself": Fault("each id that is in the pair is replaced by itself", "Only the two next to each other are merged, and both become one."),
        "both replaced": Fault("new_id is written twice for one pair", "Two ids become one: the list gets shorter."),
        "pair itself": Fault("the pair is put into the result", "new_id replaces it."),
        "removed": Fault("the pair is removed and nothing is put there", "new_id replaces it."),
        "first id stays": Fault("new_id takes the place of the second id only", "It takes the place of both: the first one is in your new list already when you find the pair."),
        "sum": Fault("the two ids are added up", "new_id replaces the pair; ids are names, not amounts."),
        "the rest lost": Fault("what is not merged is lost", "Ids that belong to no occurrence are copied."),
        "used twice": Fault("an id that has been merged is merged once more", "5 5 5 becomes NEW 5: what the first merge used is gone."),
        "as text": Fault("the ids are searched as text", "As text, 1 2 is found inside 11 22. Compare numbers."),
        "by identity": Fault("ids are compared by `is`", "That compares objects, not numbers, and is true by chance for numbers up to 256. Compare by `==`."),
        "behind the pair": Fault("new_id is added after the pair", "It takes the place of the two ids."),
        "before the pair": Fault("new_id is added before the pair", "It takes the place of the two ids."),
        "own number": Fault("a number of your own takes the place of the pair", "The caller says which: new_id."),
        "runs become one": Fault("occurrences next to each other become one new_id", "1 2 1 2 contains the pair twice and becomes two ids."),
        "equal ids left out": Fault("a pair of two equal ids is not merged", "5 5 is a pair like any other."),
        "overlaps left out": Fault("occurrences that overlap are left out", "From left to right: the first is merged, and what it used is gone."),
        "nothing without the pair": Fault("nothing is returned where the pair does not occur", "Then the ids stay as they were."),
        "in place": Fault("the caller's list is changed", "Build a new list; the caller may still need the old one."),
    },
    hints=(
        "Build a new list while you walk through the old one with an index. At each position there are two cases.",
        "How far does the index move after a merge, and how far otherwise?",
        "Mind the end: no id comes after the last one, but it must not get lost. A slice of two, `ids[i : i + 2]`, is shorter there, without an error (it is a list, and `pair` a tuple: they are never equal as they are).",
    ),
)  # fmt: skip
EXERCISES = (MOST_COMMON_PAIR, BPE_MERGE_STEP)
