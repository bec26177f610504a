"""Lesson 09: right variants of its exercise, and the library's own."""

from functools import reduce
from types import SimpleNamespace

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


def block_by_reduction(x, norm1, attention, norm2, ffn):
    return reduce(lambda stream, pair: stream.add(pair[1](pair[0](stream))), [(norm1, attention), (norm2, ffn)], x)


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


RIGHT = {
    "pre_norm_block": [
        block_in_two_lines, block_step_by_step, block_by_loop, block_by_reduction, block_of_a_copy,
        block_with_inner_function,
    ],
}  # fmt: skip
LIBRARY = {"pre_norm_block": block_of_library}
