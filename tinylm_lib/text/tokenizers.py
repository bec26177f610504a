"""The tokenizers by name: bytes, characters and words are here, byte-pair encoding is in `bpe`.

Notebook 01.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from ..files import foreign
from .base import Tokenizer, UnknownTokenError, checked, list_of
from .bpe import BPETokenizer
from .cutting import cut_stream, words
from .hugging_face import HubTokenizer


class ByteTokenizer(Tokenizer):
    """Every byte of the UTF-8 text is a token: 256 ids, any text, nothing to learn."""

    kind = "bytes"
    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return list(text.encode("utf-8"))

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD.

        Raises ValueError for an id outside 0..255.
        """
        return bytes(checked(tokens, self.vocab_size)).decode("utf-8", errors="replace")

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        return {"kind": self.kind}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ByteTokenizer":
        """Build from `to_dict`'s result."""
        return cls()

    @classmethod
    def from_texts(cls, texts: Iterable[str], vocab_size: int | None = None) -> "ByteTokenizer":
        """Build for a stream of texts; bytes fit every text, so none is read."""
        return cls()

    def count_bytes(self, tokens: Iterable[int]) -> int:
        """Return how many bytes of text the ids are: one each."""
        return sum(1 for _ in tokens)


class CharTokenizer(Tokenizer):
    """Every character that occurs in a text is a token, numbered in order of code points."""

    kind = "chars"

    def __init__(self, characters: str):
        if (
            not isinstance(characters, str)
            or not characters
            or len(set(characters)) != len(characters)
        ):
            raise ValueError(
                f"characters must be at least one and all different, got {str(characters)[:40]!r}"
            )
        self.characters = characters
        self.ids = {c: i for i, c in enumerate(characters)}
        self.vocab_size = len(characters)

    @classmethod
    def from_texts(cls, texts: Iterable[str], vocab_size: int | None = None) -> "CharTokenizer":
        """Take the characters of a stream of texts, however many there are.

        Raises ValueError for an empty text.
        """
        return cls("".join(sorted(set(chain.from_iterable(texts)))))

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts: those that `encode` gives for all of it at once.

        Raises UnknownTokenError, a ValueError, for a character that has no id, naming the first one
        and its position.
        """
        for position, c in enumerate(chain.from_iterable(texts)):
            if c not in self.ids:
                raise UnknownTokenError(
                    f"character {c!r} at position {position} is not one of the {self.vocab_size} "
                    "known ones; build the tokenizer from a text that has it, or use bytes",
                    "character",
                    c,
                    self.characters,
                )
            yield self.ids[c]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        return "".join(self.characters[t] for t in checked(tokens, self.vocab_size))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        return {"kind": self.kind, "characters": self.characters}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CharTokenizer":
        """Build from `to_dict`'s result."""
        return cls(values["characters"])


class WordTokenizer(Tokenizer):
    """Every word, mark and space that occurs in a text (see `words`) is a token, numbered in sorted
    order.

    Raises ValueError for an empty text.
    """

    kind = "words"

    def __init__(self, text: str):
        self._number(sorted(set(words(text))))

    def _number(self, vocabulary: list[str]) -> None:
        if not vocabulary or len(set(vocabulary)) != len(vocabulary):
            raise ValueError(
                f"words must be at least one and all different, got {str(vocabulary)[:60]}"
            )
        self.words = vocabulary
        self.ids = {word: i for i, word in enumerate(vocabulary)}
        self.vocab_size = len(vocabulary)

    @classmethod
    def from_texts(cls, texts: Iterable[str], vocab_size: int | None = None) -> "WordTokenizer":
        """Take the words of a stream of texts, however many there are."""
        return cls.from_dict({"words": sorted(set(chain.from_iterable(cut_stream(texts, words))))})

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts: those that `encode` gives for all of it at once.

        Raises UnknownTokenError, a ValueError, for a word that has no id, naming the first one and
        its position.
        """
        position = 0
        for pieces in cut_stream(texts, words):
            for word in pieces:
                if word not in self.ids:
                    alike = self._alike(word)
                    hint = f". Known words that begin like it: {', '.join(alike)}" if alike else ""
                    raise UnknownTokenError(
                        f"word {word!r} at position {position} is not one of the {self.vocab_size} "
                        "known ones; build the tokenizer from a text that has it, or use bpe or "
                        f"bytes{hint}",
                        "word",
                        word,
                        self.words,
                        alike,
                    )
                yield self.ids[word]
                position += len(word)

    def _alike(self, word: str) -> list[str]:
        """The known words that begin most like it, five at most; none where none begins with its
        letter.
        """
        word = word.lstrip(" ")
        if not (first := word[:1]):
            return []
        candidates = (
            known.lstrip(" ") for known in self.words if known.startswith((first, f" {first}"))
        )
        shared = {known: sum(takewhile(bool, map(str.__eq__, known, word))) for known in candidates}
        return sorted(shared, key=shared.get, reverse=True)[:5]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        return "".join(self.words[t] for t in checked(tokens, self.vocab_size))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        return {"kind": self.kind, "words": self.words}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "WordTokenizer":
        """Build from `to_dict`'s result."""
        tokenizer = cls.__new__(cls)  # the words are known, there is no text to take them from
        tokenizer._number(list_of(str, values["words"]))
        return tokenizer


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "bytes": ByteTokenizer,
    "chars": CharTokenizer,
    "words": WordTokenizer,
    "bpe": BPETokenizer,
}
# One of Hugging Face comes from a file, never from a text.
READABLE: dict[str, type[Tokenizer]] = {**TOKENIZERS, HubTokenizer.kind: HubTokenizer}


def tokenizer_from_dict(values: Any) -> Tokenizer:
    """Build the tokenizer of any kind from its `to_dict`.

    Raises ValueError for an unknown kind and for values that are not of its kind.
    """
    kind = values.get("kind") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in READABLE:
        raise ValueError(f"its kind {kind!r} is not one of {', '.join(READABLE)}")
    try:
        return READABLE[kind].from_dict(values)
    except KeyError as e:
        raise ValueError(f"a {kind} tokenizer needs {e.args[0]!r}, and it is missing") from None


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read the tokenizer of any kind from the JSON file that its `save` wrote.

    Raises FileNotFoundError for a missing file, ValueError for a folder and for a file that holds
    no such tokenizer.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder; give a file of Tokenizer.save, or open it with load_hf_tokenizer"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        if isinstance(values, dict) and "kind" not in values and "model" in values:
            raise ValueError(
                "it is a tokenizer.json of Hugging Face; open its folder with load_hf_tokenizer"
            )
        return tokenizer_from_dict(values)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path} holds no tokenizer: {foreign(path) or e}") from None
