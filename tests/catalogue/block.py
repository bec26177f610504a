"""Lesson 09: right variants of its exercise, and the library's own."""

from functools import reduce
from types import SimpleNamespace

from catalogue import named
from tinylm_lib.model import PreNormBlock


def block_in_two_lines(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return x + ffn(norm2(x))


def block_step_by_step(x, norm1, attention, norm2, ffn):
    normalized = norm1(x)
    gathered = attention(normalized)
    stream = gathered + x
    normalized = norm2(stream)
    worked = ffn(normalized)
    return worked + stream


def block_by_loop(x, norm1, attention, norm2, ffn):
    for norm, part in ((norm1, attention), (norm2, ffn)):
        x = x + part(norm(x))
    return x


def block_of_a_copy(x, norm1, attention, norm2, ffn):
    stream = x.clone()
    stream += attention(norm1(x))
    return ffn(norm2(stream)).add_(stream)


def block_with_inner_function(x, norm1, attention, norm2, ffn):
    def add(stream, norm, part):
        return sum([stream, part(norm(stream))])

    return add(add(x, norm1, attention), norm2, ffn)


def block_of_library(x, norm1, attention, norm2, ffn):
    parts = SimpleNamespace(
        attn_norm=norm1, attention=lambda h, *_: attention(h), ffn_norm=norm2, ffn=ffn, dropout=lambda h: h
    )
    return PreNormBlock.forward(parts, x, None)


def block_post(x, norm1, attention, norm2, ffn):
    x = norm1(x + attention(x))
    return norm2(x + ffn(x))


def block_no_first_residual(x, norm1, attention, norm2, ffn):
    x = attention(norm1(x))
    return x + ffn(norm2(x))


def block_normed_residual(x, norm1, attention, norm2, ffn):
    h = norm1(x)
    x = h + attention(h)
    h = norm2(x)
    return h + ffn(h)


def block_one_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return x + ffn(norm1(x))


def block_ffn_first(x, norm1, attention, norm2, ffn):
    x = x + ffn(norm2(x))
    return x + attention(norm1(x))


def block_sandwich(x, norm1, attention, norm2, ffn):
    x = x + norm1(attention(x))
    return x + norm2(ffn(x))


def block_extra_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return norm2(x + ffn(norm2(x)))


def block_halves(x, norm1, attention, norm2, ffn):
    x = x + 0.5 * attention(norm1(x))
    return x + 0.5 * ffn(norm2(x))


def block_last_from_start(x, norm1, attention, norm2, ffn):
    h = x + attention(norm1(x))
    return x + ffn(norm2(h))


def block_ffn_without_norm(x, norm1, attention, norm2, ffn):
    x = x + attention(norm1(x))
    return x + ffn(x)


def block_in_place(x, norm1, attention, norm2, ffn):
    x += attention(norm1(x))
    x += ffn(norm2(x))
    return x


RIGHT = {
    "pre_norm_block": named(
        block_in_two_lines, block_step_by_step, block_by_loop, block_of_a_copy, block_with_inner_function,
        block_by_reduction=lambda x, norm1, attention, norm2, ffn:
            reduce(lambda stream, pair: stream.add(pair[1](pair[0](stream))), [(norm1, attention), (norm2, ffn)], x),
    ),
}  # fmt: skip
WRONG = {
    "pre_norm_block": named(
        block_post, block_no_first_residual, block_normed_residual, block_one_norm, block_ffn_first, block_sandwich,
        block_extra_norm, block_halves, block_last_from_start, block_ffn_without_norm, block_in_place,
        parallel=lambda x, norm1, attention, norm2, ffn: x + attention(norm1(x)) + ffn(norm2(x)),
    ),
}  # fmt: skip
LIBRARY = {"pre_norm_block": block_of_library}
