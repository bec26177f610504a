"""Text cut into words and pre-tokens, whole or as a stream. Notebook 01."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import regex

WORD = re.compile(
    r"""\x20?\w+(?:['’]\w+)*   # letters and digits, with apostrophes between them
      | \x20?[^\w\s]          # one punctuation mark or symbol
      | \s                     # one space or line break""",
    re.VERBOSE,
)
# Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2), and
# its released encoder.
PRE_TOKEN = regex.compile(
    r"""'(?:s|t|re|ve|m|ll|d)          # the endings of I'm, you'll, ...
      | \x20?\p{L}+                    # letters, with the space before them
      | \x20?\p{N}+                    # digits and other numbers
      | \x20?[^\s\p{L}\p{N}]+          # marks and symbols
      | \s+(?!\S)                      # spaces, but for the last one before a word
      | \s+""",
    regex.VERBOSE,
)
CHARACTERS_PER_CUT = 1 << 16  # characters of a stream that are cut at a time


def words(text: str) -> list[str]:
    """Cut a text into words, single marks and single spaces; joined they are the text again.

    A space belongs to the word or mark after it: "Mia's kite, too." is "Mia's", " kite", ",", "
    too", ".".
    """
    return WORD.findall(text)


def pre_tokens(text: str, special_tokens: Sequence[str] = ()) -> list[str]:
    """Cut a text into special tokens, the longest first where several fit, and pre-tokens, which no
    merge crosses.

    Joined they are the text again.
    """
    if not special_tokens:
        return PRE_TOKEN.findall(text)
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # text, special, text, ..., text
    parts = regex.split(f"({'|'.join(map(regex.escape, longest_first))})", text)
    pieces = ([part] if i % 2 else PRE_TOKEN.findall(part) for i, part in enumerate(parts))
    return list(chain.from_iterable(pieces))


def stream_pre_tokens(
    texts: Iterable[str], special_tokens: Sequence[str] = ()
) -> Iterator[list[str]]:
    """Cut a stream of texts, yielding parts of the list that `pre_tokens` makes of all of it at
    once.
    """
    # the text's end may be the beginning of a special token
    reach = max(map(len, special_tokens), default=1) - 1
    return cut_stream(texts, lambda text: pre_tokens(text, special_tokens), reach)


def cut_stream(
    texts: Iterable[str], cut: Callable[[str], list[str]], reach: int = 0
) -> Iterator[list[str]]:
    """Cut a stream of texts, yielding parts of the list that `cut` makes of all of it at once.

    Wherever the boundaries of the texts fall, the pieces are the same. In memory are 64 Ki
    characters, the longest text and the longest piece.
    cut: what follows may change its last two pieces, and those that touch the last `reach`
    characters, but no other.
    """
    rest = ""
    for block in blocks(texts):
        rest += block
        pieces = cut(rest)
        removed = 0
        while pieces and removed < reach:
            removed += len(pieces.pop())
        del pieces[-2:]
        yield pieces
        rest = rest[sum(map(len, pieces)) :]
    yield cut(rest)


def blocks(texts: Iterable[str]) -> Iterator[str]:
    """The text of a stream in blocks of 64 Ki characters or a few more; the last one may be
    shorter, or empty.
    """
    held = []
    length = 0
    for text in texts:
        for start in range(0, len(text), CHARACTERS_PER_CUT):
            held.append(text[start : start + CHARACTERS_PER_CUT])
            length += len(held[-1])
            if length >= CHARACTERS_PER_CUT:
                yield "".join(held)
                held = []
                length = 0
    yield "".join(held)
