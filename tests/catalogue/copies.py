"""Lesson 20: right variants of its exercise, and mistakes."""

from difflib import SequenceMatcher

from catalogue import named


def copy_as_text(known, ids):
    text = " " + " ".join(map(str, known)) + " "
    longest = 0
    for start in range(len(ids)):
        while start + longest < len(ids) and f" {' '.join(map(str, ids[start : start + longest + 1]))} " in text:
            longest += 1
    return longest


def copy_by_table(known, ids):
    before, longest = [0] * (len(known) + 1), 0
    for token in ids:
        row = [0] + [before[j] + 1 if token == other else 0 for j, other in enumerate(known)]
        longest, before = max(longest, *row), row
    return longest


def copy_by_sets(known, ids):
    for n in range(len(ids), 0, -1):
        passages = {tuple(known[i : i + n]) for i in range(len(known) - n + 1)}
        if any(tuple(ids[i : i + n]) in passages for i in range(len(ids) - n + 1)):
            return n
    return 0


def copy_by_difflib(known, ids):
    return SequenceMatcher(None, known, ids, autojunk=False).find_longest_match(0, len(known), 0, len(ids)).size


def copy_grown_from_the_first(known, ids):
    n = 0
    while n < len(ids) and tuple(ids[: n + 1]) in {tuple(known[i : i + n + 1]) for i in range(len(known))}:
        n += 1
    return n


def copy_without_end(known, ids):
    text = " " + " ".join(map(str, known))
    return max((n for i in range(len(ids)) for n in range(1, len(ids) - i + 1)
                if " " + " ".join(map(str, ids[i : i + n])) in text), default=0)  # fmt: skip


def copy_of_sets(known, ids):
    return len(set(known) & set(ids))


RIGHT = {"longest_copy": named(copy_as_text, copy_by_table, copy_by_sets, copy_by_difflib)}
WRONG = {"longest_copy": named(copy_grown_from_the_first, copy_without_end, copy_of_sets)}
