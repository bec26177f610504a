"""What tokenizers share: ids that fit, and files. Notebook 01."""

import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..files import explained, write_whole
from .chat import Piece, Template, Turn, check_dialogue

_T = TypeVar("_T", bound="Tokenizer")


class UnknownTokenError(ValueError):
    """A text holds a word or a character that has no id.

    what: "word" or "character". token: the first one without an id. known: all that have one.
    alike: those of them that begin most like it.
    """

    def __init__(
        self,
        message: str,
        what: str = "",
        token: str = "",
        known: Sequence[str] = (),
        alike: Sequence[str] = (),
    ):
        super().__init__(message)
        self.what = what
        self.token = token
        self.known = known
        self.alike = alike


class Tokenizer:
    """Text to ids and back.

    A tokenizer has its own decode, to_dict, from_dict, from_texts and vocab_size, and encode or
    encode_iterable: the second where tokens cross the ends of texts, or where an error gives a
    position.
    """

    kind: str  # its key in the table of tokenizers
    vocab_size: int  # V, number of ids
    beginning: Sequence[int] = ()  # ids that a model expects before a text's first token
    ending: Sequence[int] = ()  # ids of which each ends a text, the first that a model writes
    sized = False  # whether it learns as many tokens as one chooses
    template: Template | None = None  # how its model's dialogues are written
    no_template: str = (  # why there is none, and what to do
        "it has no chat template, because its model was not trained to answer: take a chat model, "
        "or set tokenizer.template to one of TEMPLATES of tinylm_lib.text"
    )
    marks: Mapping[str, str] = {}  # the texts of its bos_token and eos_token, where it has them

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return list(self.encode_iterable([text]))

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
        """Build for a stream of texts. vocab_size: how many tokens to learn, where one chooses
        (`sized`).
        """
        raise NotImplementedError

    @classmethod
    def from_text(cls: type[_T], text: str, vocab_size: int | None = None) -> _T:
        """Build for a text as `from_texts` does for a stream of them."""
        return cls.from_texts([text], vocab_size)

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts, such as an open file: those that `encode` gives for
        all of it at once.
        """
        for text in texts:
            yield from self.encode(text)

    def count_bytes(self, tokens: Iterable[int]) -> int:
        """Return how many bytes of text the ids are, also where they begin or end inside a
        character.
        """
        return len(self.decode(tokens).encode("utf-8"))

    def chat(self, dialogue: Sequence[Turn], opening: bool = True) -> list[int]:
        """Return the ids of a dialogue as the model's chat template writes it: those that
        `apply_chat_template` of transformers returns. Where the template has the `beginning` of
        texts, they have it.

        dialogue: pairs of a role ("system", "user", "assistant") and a text.
        opening: with the head of the next answer, which the model then continues.
        A text that looks like a special token becomes that token, as in transformers: a user who
        types <|im_end|> ends their turn. Remove such texts from what strangers type.
        Raises TypeError or ValueError for another dialogue, an order of turns that the template
        does not have, and for a model without a template, or with one that is not known here.
        """
        return self.encode("".join(piece.text for piece in self.pieces(dialogue, opening)))

    def pieces(self, dialogue: Sequence[Turn], opening: bool = False) -> list[Piece]:
        """Return the text of a dialogue in pieces, each with whether the model writes it. Raises as
        `chat`.
        """
        turns = check_dialogue(dialogue)
        template = self._known_template()
        pieces = [piece for piece in template.pieces(turns, self.marks) if piece.text]
        return [*pieces, Piece(template.opening())] if opening else pieces

    def turn_end(self) -> str:
        """Return the text of the token that ends an answer.

        Raises ValueError without a template.
        """
        return self._known_template().ending(self.marks)

    def _known_template(self) -> Template:
        if self.template is None:
            raise ValueError(f"a dialogue cannot be written: {self.no_template}")
        return self.template

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to a JSON file, which is whole or not there.

        Raises OSError, naming the file and what to do, where it cannot be written, ValueError for
        half an emoji.
        """
        content = json.dumps(self.to_dict(), ensure_ascii=False).encode("utf-8")
        with explained("the tokenizer", Path(path)):
            write_whole(Path(path), content)


def checked(tokens: Iterable[int], vocab_size: int) -> list[int]:
    """The tokens as a list of int.

    Raises ValueError for a token outside 0..vocab_size-1.
    """
    tokens = list(map(operator.index, tokens))
    if tokens and not 0 <= min(tokens) <= max(tokens) < vocab_size:
        wrong = next(t for t in tokens if not 0 <= t < vocab_size)
        raise ValueError(f"token id {wrong} is outside 0..{vocab_size - 1} (vocab_size - 1)")
    return tokens


def list_of(kind: type, value: Any) -> list:
    """Return the value, a list of things of a kind. Raises ValueError for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
        raise ValueError(f"expected a list of {kind.__name__}, got {str(value)[:40]!r}")
    return value


def line_end(tokenizer: Any) -> int:
    """The token that ends a line.

    Raises ValueError for a tokenizer that needs several, or has none.
    """
    tokens = tokenizer.encode("\n")
    if len(tokens) != 1:
        raise ValueError(
            f"a line end takes {len(tokens)} tokens here, and lines need one; choose --no-lines"
        )
    return tokens[0]
