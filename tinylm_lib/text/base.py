"""What tokenizers share: ids that fit, and files. Notebook 01."""

import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any


class Tokenizer:
    """What every tokenizer has beside its own encode, decode, to_dict, from_dict, from_text and vocab_size."""

    kind: str  # its key in the table of tokenizers
    beginning: Sequence[int] = ()  # ids that a model wants before a text's first token
    ending: Sequence[int] = ()  # ids that end a text: the first of these that a model writes

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts, such as an open file: those that `encode` gives for all of it at once."""
        for text in texts:
            yield from self.encode(text)

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read what `save` wrote.

        Raises FileNotFoundError for a missing file, ValueError for one that holds no tokenizer of this kind.
        """
        return read_tokenizer(path, {cls.kind: cls})


def build_tokenizer(values: Any, kinds: dict[str, type[Tokenizer]]) -> Tokenizer:
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


def read_tokenizer(path: str | Path, kinds: dict[str, type[Tokenizer]]) -> Tokenizer:
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
