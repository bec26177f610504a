"""A tokenizer.json of Hugging Face, run by the package `tokenizers`."""

from collections.abc import Iterable, Iterator
from typing import Any

from .hub_names import package
from .pieces import Tokenizer, checked


class HubTokenizer(Tokenizer):
    """The tokenizer that a tokenizer.json describes.

    text: the content of the file. `beginning` holds the ids that the file wants before a text's first token, such as
    Llama's <|begin_of_text|>; `encode` adds none. What the file says about cutting and filling up texts is left out.
    Raises ModuleNotFoundError without the package `tokenizers`, ValueError for a text that describes none.
    """

    kind = "hugging_face"

    def __init__(self, text: str):
        build = package("tokenizers").Tokenizer.from_str
        try:
            self._inner = build(text)
        except Exception as e:  # the package raises nothing narrower
            raise ValueError(f"the text describes no tokenizer: {e}") from None
        self._inner.no_truncation()
        self._inner.no_padding()
        self.text = text
        self.vocab_size = max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        marked = self._inner.encode("a").ids
        plain = self.encode("a")
        places = range(len(marked) - len(plain) + 1)
        self.beginning = next((marked[:i] for i in places if marked[i : i + len(plain)] == plain), [])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self._inner.encode(text, add_special_tokens=False).ids

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts: those that `encode` gives for all of it at once, held in memory."""
        yield from self.encode("".join(texts))

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids, special tokens included; bytes that are not UTF-8 become U+FFFD.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        return self._inner.decode(checked(tokens, self.vocab_size), skip_special_tokens=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        return {"kind": self.kind, "text": self.text}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HubTokenizer":
        """Build from `to_dict`'s result."""
        return cls(values["text"])
