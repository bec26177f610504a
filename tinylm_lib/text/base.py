"""What tokenizers share: ids that fit, and files. Notebook 01."""

import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T", bound="Tokenizer")


class Tokenizer:
    """Text to ids and back. A tokenizer has its own encode, decode, to_dict, from_dict, from_texts and vocab_size."""

    kind: str  # its key in the table of tokenizers
    vocab_size: int  # V, number of ids
    beginning: Sequence[int] = ()  # ids that a model wants before a text's first token
    ending: Sequence[int] = ()  # ids of which each ends a text, the first that a model writes
    sized = False  # whether it learns as many tokens as one chooses

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs, ready for JSON."""
        raise NotImplementedError

    @classmethod
    def from_dict(cls: type[_T], values: dict[str, Any]) -> _T:
        """Build from `to_dict`'s result."""
        raise NotImplementedError

    @classmethod
    def from_texts(cls: type[_T], texts: Iterable[str], vocab_size: int | None = None) -> _T:
        """Build for a stream of texts. vocab_size: how many tokens to learn, where one chooses (`sized`)."""
        raise NotImplementedError

    @classmethod
    def from_text(cls: type[_T], text: str, vocab_size: int | None = None) -> _T:
        """Build for a text as `from_texts` does for a stream of them."""
        return cls.from_texts([text], vocab_size)

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts, such as an open file: those that `encode` gives for all of it at once."""
        for text in texts:
            yield from self.encode(text)

    def count_bytes(self, tokens: Iterable[int]) -> int:
        """Return how many bytes of text the ids are, also where they begin or end inside a character."""
        return len(self.decode(tokens).encode("utf-8"))

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls: type[_T], path: str | Path) -> _T:
        """Read what `save` wrote.

        Raises FileNotFoundError for a missing file, ValueError for one that holds no tokenizer of this kind.
        """
        return read_tokenizer(path, {cls.kind: cls})


def build_tokenizer(values: Any, kinds: Mapping[str, type[_T]]) -> _T:
    """Build the tokenizer of one of some kinds from its `to_dict`.

    Raises ValueError for another kind and for values that are not of its kind.
    """
    kind = values.get("kind") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"its kind {kind!r} is none of {', '.join(kinds)}")
    try:
        return kinds[kind].from_dict(values)
    except KeyError as e:
        raise ValueError(f"a {kind} tokenizer needs {e.args[0]!r}, and it is missing") from None


def read_tokenizer(path: str | Path, kinds: Mapping[str, type[_T]]) -> _T:
    """Read the tokenizer of one of some kinds from a JSON file.

    Raises FileNotFoundError for a missing file, ValueError for one that holds none.
    """
    try:
        return build_tokenizer(json.loads(Path(path).read_text(encoding="utf-8")), kinds)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{path} holds no tokenizer: {e}") from None


def checked(tokens: Iterable[int], vocab_size: int) -> list[int]:
    """The tokens as a list of int.

    Raises ValueError for a token outside 0..vocab_size-1.
    """
    tokens = [operator.index(t) for t in tokens]
    if wrong := [t for t in tokens if not 0 <= t < vocab_size]:
        raise ValueError(f"token id {wrong[0]} is outside 0..{vocab_size - 1} (vocab_size - 1)")
    return tokens


def list_of(kind: type, value: Any) -> list:
    """Return the value, a list of things of a kind. Raises ValueError for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ValueError(f"expected a list of {kind.__name__}, got {str(value)[:40]!r}")
    return value


def line_end(tokenizer: Any) -> int:
    """The token that ends a line. Raises ValueError for a tokenizer that needs several, or has none."""
    tokens = tokenizer.encode("\n")
    if len(tokens) != 1:
        raise ValueError(f"a line end takes {len(tokens)} tokens here, and lines need one; choose --no-lines")
    return tokens[0]
