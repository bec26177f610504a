"""Byte-level byte-pair encoding: merges of bytes within pre-tokens, learnt and applied.

Notebook 01.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .base import Tokenizer, checked, list_of
from .cutting import stream_pre_tokens
from .reading import is_file, read_blocks

Pair = tuple[bytes, bytes]

BYTES = [bytes([b]) for b in range(256)]
END_OF_TEXT = "<|endoftext|>"  # Source: Radford et al. 2019 (GPT-2), the released encoder
# pre-tokens whose ids a tokenizer keeps at hand, and their characters
REMEMBERED = 1 << 16
LONGEST_REMEMBERED = 32


def merge(tokens: list[bytes], pair: Pair) -> list[bytes]:
    """Join every occurrence of a pair of neighbours, from left to right."""
    merged = []
    i = 0
    while i < len(tokens):
        if tokens[i] == pair[0] and i + 1 < len(tokens) and tokens[i + 1] == pair[1]:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def apply_merges(piece: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """The tokens of a pre-token: its bytes, merged in the order in which the merges were learnt.

    ranks: the position of each merge in that order.
    """
    tokens = [BYTES[b] for b in piece]
    while len(tokens) > 1:
        first = min(pairwise(tokens), key=lambda pair: ranks.get(pair, math.inf))
        if first not in ranks:
            break
        tokens = merge(tokens, first)
    return tokens


def learn_merges(counts: Mapping[str, int], n_merges: int) -> list[Pair]:
    """Merge the most frequent pair of neighbours, again and again; of equally frequent ones the
    greater.

    counts: how often each pre-token occurs. Returns the merges in order, fewer where no pair is
    left.
    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
    algorithm 1; here only the pre-tokens that hold the pair are counted again.
    """
    words = [[BYTES[b] for b in piece.encode("utf-8")] for piece in counts]
    times = list(counts.values())
    pair_counts: Counter[Pair] = Counter()
    pair_words = defaultdict(set)  # the words that hold, or once held, a pair
    for i, word in enumerate(words):
        for pair in pairwise(word):
            pair_counts[pair] += times[i]
            pair_words[pair].add(i)
    queue = [(-count, _descending(pair), pair) for pair, count in pair_counts.items()]
    heapq.heapify(queue)
    merges: list[Pair] = []
    while queue and len(merges) < n_merges:
        count, key, pair = heapq.heappop(queue)
        if -count != pair_counts[pair]:  # it has become rarer since: back in line
            if pair_counts[pair]:
                heapq.heappush(queue, (-pair_counts[pair], key, pair))
            continue
        merges.append(pair)
        grown = _merge_words(words, times, pair, pair_words.pop(pair), pair_counts, pair_words)
        for other in grown:
            heapq.heappush(queue, (-pair_counts[other], _descending(other), other))
    return merges


def _merge_words(
    words: list[list[bytes]],
    times: list[int],
    pair: Pair,
    indices: set[int],
    pair_counts: Counter,
    pair_words: dict,
) -> set[Pair]:
    """Merge a pair in the words where it is found, and keep the counts right.

    Returns the pairs that became new.
    """
    grown = set()
    token = pair[0] + pair[1]
    for i in indices:
        before = words[i]
        after = merge(words[i], pair)
        if len(after) == len(before):
            continue
        for old in pairwise(before):
            pair_counts[old] -= times[i]
        for new in pairwise(after):
            pair_counts[new] += times[i]
            pair_words[new].add(i)
            if token in new:
                grown.add(new)
        words[i] = after
    return grown


def _descending(pair: Pair) -> tuple[list[int], ...]:
    """A key that sorts the greatest pair first; 256 ends it, so that ab comes before its beginning
    a.
    """
    return tuple([255 - byte for byte in token] + [256] for token in pair)


class BPETokenizer(Tokenizer):
    """Byte-level BPE: bytes, merged within pre-tokens; any text has ids, and a special token is one
    wherever it occurs.

    vocab: the bytes of ids 0..V-1, all 256 single bytes among them. merges: in the order in which
    they were learnt.
    special_tokens: texts that are never cut; one that vocab lacks gets the next id. Where
    <|endoftext|> is one, it is the `ending` of a text.
    Raises ValueError or TypeError for parts that do not fit.
    """

    kind = "bpe"
    sized = True

    def __init__(
        self,
        vocab: dict[int, bytes],
        merges: Iterable[Sequence[bytes]],
        special_tokens: Iterable[str] = (),
    ):
        self.special_tokens = _check_special(special_tokens)
        self.vocab = self._complete(vocab)
        self.vocab_size = len(self.vocab)
        self.merges = [(first, second) for first, second in merges]
        self.ids = {token: i for i, token in self.vocab.items()}
        self.special_ids = {token: self.ids[token.encode("utf-8")] for token in self.special_tokens}
        self.ending = [i for token, i in self.special_ids.items() if token == END_OF_TEXT]
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}  # ids of pre-tokens that came before
        self._check()

    def _complete(self, vocab: dict[int, bytes]) -> dict[int, bytes]:
        if sorted(vocab) != list(range(len(vocab))) or not all(
            isinstance(token, bytes) for token in vocab.values()
        ):
            raise ValueError(f"vocab must map the ids 0..{len(vocab) - 1} to bytes")
        known = set(vocab.values())
        tokens = [vocab[i] for i in range(len(vocab))]
        tokens += [
            token for text in self.special_tokens if (token := text.encode("utf-8")) not in known
        ]
        return dict(enumerate(tokens))

    def _check(self) -> None:
        if len(self.ids) < len(self.vocab):
            twice = next(token for i, token in self.vocab.items() if self.ids[token] != i)
            raise ValueError(f"vocab has {twice!r} twice; each token needs one id")
        if missing := [byte for byte in BYTES if byte not in self.ids]:
            raise ValueError(
                f"vocab lacks the byte {missing[0]!r}; without all 256 some texts have no ids"
            )
        for pair in self.merges:
            if missing := [token for token in (*pair, b"".join(pair)) if token not in self.ids]:
                raise ValueError(f"merge {pair} needs {missing[0]!r}, and vocab lacks it")

    @classmethod
    def from_texts(cls, texts: Iterable[str], vocab_size: int | None = None) -> "BPETokenizer":
        """Learn a vocabulary of up to vocab_size tokens, default 1,000, from a stream of texts.

        Raises ValueError for a vocab_size below 256.
        """
        return _train(texts, 1000 if vocab_size is None else vocab_size, ())

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts: those that `encode` gives for all of it at once."""
        for pieces in stream_pre_tokens(texts, self.special_tokens):
            for piece in pieces:
                yield from self._known.get(piece) or self._merge(piece)

    def count_bytes(self, tokens: Iterable[int]) -> int:
        """Return how many bytes of text the ids are, also where they begin or end inside a
        character.
        """
        return sum(len(self.vocab[t]) for t in tokens)

    def _merge(self, piece: str) -> list[int]:
        if piece in self.special_ids:
            return [self.special_ids[piece]]
        ids = [self.ids[token] for token in apply_merges(piece.encode("utf-8"), self._ranks)]
        if len(piece) <= LONGEST_REMEMBERED:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[piece] = ids
        return ids

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        joined = b"".join([self.vocab[t] for t in checked(tokens, self.vocab_size)])
        return joined.decode("utf-8", errors="replace")

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs; a byte is written as the character of its number
        (Latin-1).
        """
        return {
            "kind": self.kind,
            "vocab": [token.decode("latin-1") for token in self.vocab.values()],
            "merges": [[token.decode("latin-1") for token in pair] for pair in self.merges],
            "special_tokens": list(self.special_tokens),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "BPETokenizer":
        """Build from `to_dict`'s result."""
        vocab = [text.encode("latin-1") for text in list_of(str, values["vocab"])]
        merges = [
            [text.encode("latin-1") for text in list_of(str, pair)]
            for pair in list_of(list, values["merges"])
        ]
        return cls(dict(enumerate(vocab)), merges, list_of(str, values["special_tokens"]))


def train_bpe(
    path_or_text: str | Path, vocab_size: int, special_tokens: Iterable[str] = ()
) -> BPETokenizer:
    """Learn a byte-level BPE vocabulary: the 256 bytes, then the merges, then the special tokens.

    path_or_text: a Path is a UTF-8 file, read in pieces; a str is the text itself.
    vocab_size: how many tokens to learn, special ones included; a text too small for so many gives
    fewer.
    special_tokens: texts that are never cut and never counted.
    Raises ValueError for a vocab_size below 256 and the special tokens, for a str that is the path
    of a file, and for a file that is not UTF-8; FileNotFoundError for a missing one.
    """
    if isinstance(path_or_text, Path):
        return _train(read_blocks(path_or_text), vocab_size, special_tokens)
    if is_file(path_or_text):
        raise ValueError(
            f"{path_or_text!r} is a file; to read it give Path({path_or_text!r}), a str is the "
            "text itself"
        )
    return _train([path_or_text], vocab_size, special_tokens)


def _train(texts: Iterable[str], vocab_size: int, special_tokens: Iterable[str]) -> BPETokenizer:
    special_tokens = _check_special(special_tokens)
    n_merges = vocab_size - len(BYTES) - len(special_tokens)
    if n_merges < 0:
        raise ValueError(
            f"vocab_size must be at least {vocab_size - n_merges} (256 bytes and the special "
            f"tokens), got {vocab_size}"
        )
    counts: Counter[str] = Counter()
    for pieces in stream_pre_tokens(texts, special_tokens):
        counts.update(pieces)
    for token in special_tokens:
        del counts[token]
    merges = learn_merges(counts, n_merges)
    vocab = dict.fromkeys([*BYTES, *map(b"".join, merges)])  # two merges may make the same token
    return BPETokenizer(dict(enumerate(vocab)), merges, special_tokens)


def _check_special(special_tokens: Iterable[str]) -> tuple[str, ...]:
    if isinstance(special_tokens, str):
        raise TypeError(
            f"special_tokens must be a list of texts, got the text {special_tokens!r}; put it into "
            "a list"
        )
    tokens = tuple(special_tokens)
    if not all(isinstance(token, str) and token for token in tokens) or len(set(tokens)) < len(
        tokens
    ):
        raise ValueError(
            f"special tokens must be texts of at least one character, all different, got {tokens}"
        )
    return tokens
