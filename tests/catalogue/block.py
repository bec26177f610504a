"""Lesson 09: right variants of its exercise, mistakes, and the library's own."""

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


def block_in_place(x, norm1, attention, norm2, ffn):
    x += attention(norm1(x))
    x += ffn(norm2(x))
    return x


def steps(first, second=None):
    """A block of two steps, each of the stream, a norm and a part."""
    return lambda x, norm1, attention, norm2, ffn: (second or first)(first(x, norm1, attention), norm2, ffn)


def right_step(x, norm, part):
    return x + part(norm(x))


RIGHT = {
    "pre_norm_block": named(
        block_in_two_lines, block_step_by_step, block_by_loop, block_of_a_copy, block_with_inner_function,
        block_by_reduction=lambda x, norm1, attention, norm2, ffn:
            reduce(lambda stream, pair: stream.add(pair[1](pair[0](stream))), [(norm1, attention), (norm2, ffn)], x),
    ),
}  # fmt: skip
WRONG = {
    "pre_norm_block": named(
        block_in_place,
        block_last_from_start=lambda x, norm1, attention, norm2, ffn: x + ffn(norm2(x + attention(norm1(x)))),
        parallel=lambda x, norm1, attention, norm2, ffn: x + attention(norm1(x)) + ffn(norm2(x)),
        post=steps(lambda x, norm, part: norm(x + part(x))),
        no_first_residual=steps(lambda x, norm, part: part(norm(x)), right_step),
        normed_residual=steps(lambda x, norm, part: (normed := norm(x)) + part(normed)),
        sandwich=steps(lambda x, norm, part: x + norm(part(x))),
        extra_norm=steps(right_step, lambda x, norm, part: norm(x + part(norm(x)))),
        halves=steps(lambda x, norm, part: x + 0.5 * part(norm(x))),
        ffn_without_norm=steps(right_step, lambda x, norm, part: x + part(x)),
        one_norm=lambda x, norm1, attention, norm2, ffn: block_in_two_lines(x, norm1, attention, norm1, ffn),
        ffn_first=lambda x, norm1, attention, norm2, ffn: block_in_two_lines(x, norm2, ffn, norm1, attention),
    ),
}  # fmt: skip
LIBRARY = {"pre_norm_block": block_of_library}
