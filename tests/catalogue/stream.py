"""Lesson 09: right variants of the stream without one of its parts, and mistakes."""

from functools import reduce

from catalogue import named


def stream_by_loop(x, parts, out=None):
    for i, part in enumerate(parts):
        if i != out:
            x = x + part(x)
    return x


def stream_of_a_copy(x, parts, out=None):
    stream = x.clone()
    for i in range(len(parts)):
        if i == out:
            continue
        stream = stream.add(parts[i](stream))
    return stream


def stream_of_two_lists(x, parts, out=None):
    kept = list(parts) if out is None else [*parts[:out], *parts[out + 1 :]]
    return reduce(lambda stream, part: part(stream) + stream, kept, x)


def stream_by_recursion(x, parts, out=None):
    if not len(parts):
        return x
    x = x if out == 0 else x + parts[0](x)
    return stream_by_recursion(x, parts[1:], None if out is None else out - 1)


def stream_of_additions(x, parts, out=None):
    total = [x]
    for i, part in enumerate(parts):
        if out is None or i != out:
            total.append(part(sum(total)))
    return sum(total)


def without_its_share(x, parts, out=None):
    made = []
    for part in parts:
        made.append(part(x))
        x = x + made[-1]
    return x if out is None else x - made[out]


def until_the_gap(x, parts, out=None):
    for part in parts[:out]:
        x = x + part(x)
    return x


def in_parallel(x, parts, out=None):
    return x + sum(part(x) for i, part in enumerate(parts) if i != out)


def chain(x, parts, out=None):
    for i, part in enumerate(parts):
        if i != out:
            x = part(x)
    return x


def in_place(x, parts, out=None):
    for i, part in enumerate(parts):
        if i != out:
            x += part(x)
    return x


def falsy(x, parts, out=None):
    for i, part in enumerate(parts):
        if not out or i != out:
            x = x + part(x)
    return x


def no_plus(x, parts, out=None):
    for i, part in enumerate(parts):
        x = part(x) if i == out else x + part(x)
    return x


RIGHT = {
    "stream_without": named(
        stream_by_loop, stream_of_a_copy, stream_of_two_lists, stream_by_recursion, stream_of_additions,
    ),
}  # fmt: skip
WRONG = {
    "stream_without": named(
        without_its_share, until_the_gap, in_parallel, chain, in_place, falsy, no_plus,
        one_based=lambda x, parts, out=None: stream_by_loop(x, parts, None if out is None else out - 1),
        empty=lambda x, parts, out=None: stream_by_loop(x, parts, out) - x,
    ),
}  # fmt: skip
