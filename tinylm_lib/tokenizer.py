"""Text to token ids and back. Notebook 01."""

import json
import operator
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def checked(tokens: Iterable[int], vocab_size: int) -> list[int]:
    """The tokens as a list of int.

    Raises ValueError for one outside 0..vocab_size-1.
    """
    tokens = [operator.index(t) for t in tokens]
    if wrong := [t for t in tokens if not 0 <= t < vocab_size]:
        raise ValueError(f"token id {wrong[0]} is outside 0..{vocab_size - 1} (vocab_size - 1)")
    return tokens


class ByteTokenizer:
    """Every byte of the UTF-8 text is a token: 256 ids, any text, nothing to learn."""

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
        return {"kind": "bytes"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ByteTokenizer":
        """Build from `to_dict`'s result."""
        return cls()

    @classmethod
    def from_text(cls, text: str) -> "ByteTokenizer":
        """Build for a text; bytes fit every text."""
        return cls()


class CharTokenizer:
    """Every character that occurs in a text is a token, numbered in the order of their code points."""

    def __init__(self, characters: str):
        if not isinstance(characters, str) or not characters or len(set(characters)) != len(characters):
            raise ValueError(f"characters must be at least one and all different, got {str(characters)[:40]!r}")
        self.characters = characters
        self.ids = {c: i for i, c in enumerate(characters)}
        self.vocab_size = len(characters)

    @classmethod
    def from_text(cls, text: str) -> "CharTokenizer":
        """Take the characters of a text.

        Raises ValueError for an empty text.
        """
        return cls("".join(sorted(set(text))))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text.

        Raises ValueError naming the first character that has no id, and where it stands.
        """
        try:
            return [self.ids[c] for c in text]
        except KeyError as e:
            c = e.args[0]
            raise ValueError(
                f"character {c!r} at position {text.index(c)} is none of the {self.vocab_size} known ones; "
                f"build the tokenizer from a text that has it, or use bytes"
            ) from None

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        return "".join(self.characters[t] for t in checked(tokens, self.vocab_size))

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        return {"kind": "chars", "characters": self.characters}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CharTokenizer":
        """Build from `to_dict`'s result."""
        return cls(values["characters"])


TOKENIZERS = {"bytes": ByteTokenizer, "chars": CharTokenizer}


def save_tokenizer(tokenizer: Any, path: str | Path) -> None:
    """Write a tokenizer to a JSON file."""
    Path(path).write_text(json.dumps(tokenizer.to_dict(), ensure_ascii=False), encoding="utf-8")


def tokenizer_from_dict(values: Any) -> Any:
    """Build the tokenizer of any kind from its `to_dict`.

    Raises ValueError for an unknown kind and for values that are not of its kind.
    """
    kind = values.get("kind") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise ValueError(f"tokenizer {kind!r} is unknown; choose one of {', '.join(TOKENIZERS)}")
    try:
        return TOKENIZERS[kind].from_dict(values)
    except KeyError as e:
        raise ValueError(f"a {kind} tokenizer needs {e.args[0]!r}, and it is missing") from None


def load_tokenizer(path: str | Path) -> Any:
    """Read a tokenizer from a JSON file.

    Raises FileNotFoundError for a missing file, ValueError for one that holds no tokenizer.
    """
    try:
        return tokenizer_from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path} holds no tokenizer: {e}") from None
