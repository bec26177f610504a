"""Lesson 01: right variants of its exercises, mistakes, and the library's own."""

from collections import Counter, defaultdict
from itertools import groupby, pairwise

import torch

from catalogue import named
from tinylm_lib.text import bpe


def pair_by_counter(ids):
    counts = Counter(pairwise(ids))
    return max(counts, key=lambda pair: (counts[pair], pair))


def pair_by_loop(ids):
    counts = {}
    for i in range(len(ids) - 1):
        counts[ids[i], ids[i + 1]] = counts.get((ids[i], ids[i + 1]), 0) + 1
    best, best_count = None, 0
    for pair, count in counts.items():
        if count > best_count or (count == best_count and pair > best):
            best, best_count = pair, count
    return best


def pair_by_sorting(ids):
    counts = defaultdict(int)
    for pair in pairwise(ids):
        counts[pair] += 1
    return sorted(counts.items(), key=lambda item: (item[1], item[0]))[-1][0]


def pair_by_groups(ids):
    runs = ((len(list(run)), pair) for pair, run in groupby(sorted(pairwise(ids))))
    return list(max(runs)[1])  # a list is as good as a tuple


def pair_by_tensors(ids):
    pairs, counts = torch.tensor([ids[:-1], ids[1:]]).T.unique(dim=0, return_counts=True)
    return tuple(pairs[(counts == counts.max()).nonzero()[-1, 0]].tolist())


def pair_by_rereading(ids):
    pairs = [*pairwise(ids)]
    return max(set(pairs), key=lambda pair: (pairs.count(pair), *pair))


def merge_by_skipping(ids, pair, new_id):
    merged, skip = [], False
    for here, behind in zip(ids, [*ids[1:], None], strict=True):
        if skip:
            skip = False
        elif (here, behind) == pair:
            merged.append(new_id)
            skip = True
        else:
            merged.append(here)
    return merged


def merge_by_looking_back(ids, pair, new_id):
    merged = []
    for id in ids:
        if merged and merged[-1] is not new_id and (merged[-1], id) == pair:
            merged[-1] = new_id
        else:
            merged.append(id)
    return merged


def merge_of_text(ids, pair, new_id):
    text = "".join(chr(id) for id in ids).replace("".join(map(chr, pair)), chr(new_id))
    return [ord(character) for character in text]


def merge_with_an_iterator(ids, pair, new_id):
    rest = iter(range(len(ids)))
    return [new_id if ids[i : i + 2] == [*pair] and next(rest) else ids[i] for i in rest]


def pair_of_library(ids):
    """The library learns from text: as characters, in the same order as the ids."""
    known = sorted(set(ids))
    [(first, second)] = bpe.learn_merges({"".join(chr(known.index(id)) for id in ids): 1}, 1)
    return known[first[0]], known[second[0]]


def merge_of_library(ids, pair, new_id):
    """The library joins bytes."""
    tokens = bpe.merge([id.to_bytes(4, "big") for id in ids], tuple(id.to_bytes(4, "big") for id in pair))
    return [int.from_bytes(token, "big") if len(token) == 4 else new_id for token in tokens]


def counts_overlaps_once(ids):
    pairs, last = Counter(), None
    for pair in pairwise(ids):
        if pair != last:
            pairs[pair] += 1
        last = pair
    return max(pairs, key=lambda p: (pairs[p], p))


def merges_only_the_first(ids, pair, new_id):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == tuple(pair):
            return [*ids[:i], new_id, *ids[i + 2 :]]
    return ids


def loses_the_last(ids, pair, new_id):
    out, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == tuple(pair):
            out.append(new_id)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def in_the_caller_s_list(ids, pair, new_id):
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == tuple(pair):
            ids[i : i + 2] = [new_id]
        i += 1
    return ids


def merged(ids, is_pair, new_id):
    out, i = [], 0
    while i < len(ids):
        found = i + 1 < len(ids) and is_pair(ids[i], ids[i + 1])
        out.append(new_id if found else ids[i])
        i += 1 + found
    return out


def chosen(choose, pairs):
    """The pair with the most extreme count, the largest of a tie."""
    counts = Counter(pairs)
    return choose(counts, key=lambda pair: (counts[pair], pair))


def encode_with_the_library_s_merge(tokens, merges):
    for pair in merges:
        tokens = bpe.merge(tokens, pair)
    return tokens


def encode_by_ranks(tokens, merges):
    ranks, tokens = {tuple(pair): rank for rank, pair in enumerate(merges)}, list(tokens)
    while known := [pair for pair in pairwise(tokens) if pair in ranks]:
        tokens = bpe.merge(tokens, min(known, key=ranks.get))
    return tokens


def encode_with_ids(tokens, merges):
    """Ids instead of bytes, as in the second exercise."""
    names = [*dict.fromkeys([*tokens, *(token for pair in merges for token in pair)])]
    ids = [names.index(token) for token in tokens]
    for a, b in merges:
        names.append(a + b)
        ids = merge_by_skipping(ids, (names.index(a), names.index(b)), names.index(a + b))
    return [names[id] for id in ids]


def encode_in_a_copy(tokens, merges):
    tokens = tokens.copy()
    for a, b in merges:
        for i in range(len(tokens)):
            if tokens[i : i + 2] == [a, b]:
                tokens[i : i + 2] = [a + b]
    return tokens


def encode_of_library(tokens, merges):
    return bpe.apply_merges(b"".join(tokens), {pair: rank for rank, pair in enumerate(merges)})


def returns_in_the_loop(tokens, merges):
    for pair in merges:
        return bpe.merge(tokens, pair)
    return tokens


def forgets_what_was_merged(tokens, merges):
    merged = tokens
    for pair in merges:
        merged = bpe.merge(tokens, pair)
    return merged


def one_walk_along_the_text(tokens, merges):
    out = tokens[:1]
    for token in tokens[1:]:
        if (out[-1], token) in merges:
            out[-1] += token
        else:
            out.append(token)
    return out


def one_pass_in_steps(tokens, merges):
    out, i = [], 0
    while i < len(tokens):
        found = tuple(tokens[i : i + 2]) in set(merges)
        out.append(b"".join(tokens[i : i + 2]) if found else tokens[i])
        i += 1 + found
    return out


def replaces_in_the_text(tokens, merges):
    for a, b in merges:
        while (a, b) in pairwise(tokens):
            i = [*pairwise(tokens)].index((a, b))
            tokens[i : i + 2] = [a + b]
    return tokens


RIGHT = {
    "most_common_pair": named(
        pair_by_counter, pair_by_loop, pair_by_sorting, pair_by_groups, pair_by_tensors, pair_by_rereading,
    ),
    "bpe_merge_step": named(
        merge_by_skipping, merge_by_looking_back, merge_of_text,
        merge_with_an_iterator,
        merge_by_slices=lambda ids, pair, new_id: merged(ids, lambda *two: two == tuple(pair), new_id),
        merge_of_a_copy=lambda ids, pair, new_id: in_the_caller_s_list(list(ids), pair, new_id),
    ),
    "bpe_encode": named(encode_with_the_library_s_merge, encode_by_ranks, encode_with_ids, encode_in_a_copy),
}  # fmt: skip
WRONG = {
    "most_common_pair": named(
        counts_overlaps_once,
        first_pair_of_a_tie=lambda ids: Counter(pairwise(ids)).most_common(1)[0][0],
        with_its_count=lambda ids: Counter(pairwise(ids)).most_common(1)[0],
        most_common_single=lambda ids: (Counter(ids).most_common(2)[0][0], Counter(ids).most_common(2)[1][0]),
        only_every_second_pair=lambda ids: chosen(max, zip(ids[::2], ids[1::2], strict=False)),
        least_common=lambda ids: chosen(min, pairwise(ids)),
        pair_sorted=lambda ids: chosen(max, (tuple(sorted(pair)) for pair in pairwise(ids))),
    ),
    "bpe_merge_step": named(
        merges_only_the_first, loses_the_last, in_the_caller_s_list,
        keeps_the_second=lambda ids, pair, new_id:
            [new_id if two == tuple(pair) else two[0] for two in pairwise([*ids, None])],
        merges_either_order=lambda ids, pair, new_id: merged(ids, lambda *two: set(two) == set(pair), new_id),
        merges_from_the_right=lambda ids, pair, new_id:
            merged(ids[::-1], lambda b, a: (a, b) == tuple(pair), new_id)[::-1],
    ),
    "bpe_encode": named(
        returns_in_the_loop, forgets_what_was_merged, one_walk_along_the_text, one_pass_in_steps,
        replaces_in_the_text,
        from_the_last=lambda tokens, merges: encode_with_the_library_s_merge(tokens, merges[::-1]),
        by_the_alphabet=lambda tokens, merges: encode_with_the_library_s_merge(tokens, sorted(merges)),
        as_one_text=lambda tokens, merges: b"".join(tokens),
    ),
}  # fmt: skip
LIBRARY = {
    "most_common_pair": pair_of_library, "bpe_merge_step": merge_of_library, "bpe_encode": encode_of_library,
}  # fmt: skip
