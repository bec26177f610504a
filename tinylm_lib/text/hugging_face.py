"""The tokenizer.json of Hugging Face: run by the package `tokenizers`, or written for a tokenizer
of ours.
"""

import importlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any

from .base import Tokenizer, checked, list_of
from .bpe import BYTES, BPETokenizer
from .cutting import blocks
from .published import marks, recognize

OVERLAP = 4096  # characters that two neighbouring windows of a stream share


def package(name: str, extra: str = "hf") -> Any:
    """A package that only files of Hugging Face or GGUF need, and the extra that installs it.

    Raises ModuleNotFoundError for one that is not installed, and says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"the package {name} is not installed; pip install 'tinylm-lib[{extra}]'"
        ) from None


class HubTokenizer(Tokenizer):
    """The tokenizer that a tokenizer.json describes.

    text: the content of the file. `beginning` holds the ids that the file requires before a text's
    first token, such as Llama's <|begin_of_text|>; `encode` adds none. What the file says about
    cutting and filling up texts is left out.
    ending: the ids that end a text, which the file does not say; those that the tokenizer lacks are
    left out, because a model's default (Llama's 2, GPT-2's 50256) may be larger than its vocabulary
    and no model writes them.
    kept: what `save_hf` writes again, "files" by name, and "ids" of special tokens in config.json.
    Of the files, `chat` reads the chat template and the names of special tokens.
    Raises ModuleNotFoundError without the package `tokenizers`, ValueError for a text that
    describes none.
    """

    kind = "hugging_face"

    def __init__(self, text: str, ending: Sequence[int] = (), kept: dict[str, Any] | None = None):
        build = package("tokenizers").Tokenizer.from_str
        try:
            self._inner = build(text)
            self._inner.no_truncation()
            self._inner.no_padding()
            marked = self._inner.encode("a").ids
            plain = self.encode("a")
        except (KeyboardInterrupt, SystemExit):
            raise
        # the package raises nothing narrower, and its panics are not Exceptions
        except BaseException as e:
            raise ValueError(f"the text describes no tokenizer: {e}") from None
        self.text = text
        self.kept = kept or {}
        files = self.kept.get("files", {})
        self.template, self.no_template = recognize(files)
        self.marks = marks(files)
        self.vocab_size = (
            max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        )
        self.ending = [i for i in ending if 0 <= i < self.vocab_size]
        starts = range(len(marked) - len(plain) + 1)
        self.beginning = next(
            (marked[:i] for i in starts if marked[i : i + len(plain)] == plain), []
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self._encoding(text).ids

    def _encoding(self, text: str) -> Any:
        return self._inner.encode(text, add_special_tokens=False)

    def encode_iterable(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the ids of a stream of texts: those that `encode` gives for all of it at once.

        The text is encoded in windows that overlap. The ids pass from one window to the next where
        both have the same tokens; where they do not, more text joins the window. In memory are two
        windows, but all of a text without spaces. A rule that pairs marks more than 4,096
        characters apart may give other ids than `encode`.
        """
        window = ""
        encoding = self._encoding("")
        n_given = 0
        more = ""
        for block in chain(blocks(texts), [""]):  # "" is the end of the stream
            more += block
            # a window that has grown gets as much again
            if not more or (block and len(more) + OVERLAP < len(window)):
                continue
            shared = max(0, len(window) - OVERLAP)
            following = self._encoding(window[shared:] + more)
            if junction := _junction(window, encoding, following):
                yield from encoding.ids[n_given : junction[0]]
                window = window[shared:] + more
                encoding = following
                n_given = junction[1]
            else:
                window += more
                encoding = self._encoding(window) if shared else following
            more = ""
        yield from encoding.ids[n_given:]

    def count_bytes(self, tokens: Iterable[int]) -> int:
        """Return how many bytes of text the ids are.

        Exact, also inside a character, where tokens are bytes as in GPT-2; otherwise as many as the
        decoded text has.
        """
        if self._sizes is None:
            return super().count_bytes(tokens)
        return sum(self._sizes[t] for t in tokens)

    @cached_property
    def _sizes(self) -> dict[int, int] | None:
        """The bytes of each token, where the file says that tokens are bytes."""
        if (json.loads(self.text).get("decoder") or {}).get("type") != "ByteLevel":
            return None
        added = {
            i: len(token.content.encode("utf-8"))
            for i, token in self._inner.get_added_tokens_decoder().items()
        }
        return {i: len(name) for name, i in self._inner.get_vocab().items()} | added

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of ids, special tokens included; bytes that are not UTF-8 become U+FFFD.

        Raises ValueError for an id outside 0..vocab_size-1.
        """
        return self._inner.decode(checked(tokens, self.vocab_size), skip_special_tokens=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` needs."""
        values = {"kind": self.kind, "text": self.text, "ending": self.ending}
        return {**values, "kept": self.kept} if self.kept else values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "HubTokenizer":
        """Build from `to_dict`'s result."""
        return cls(values["text"], list_of(int, values.get("ending", [])), values.get("kept"))


def _junction(window: str, encoding: Any, following: Any) -> tuple[int, int] | None:
    """Where the tokens of a window give way to those of the next one, which begins with its last
    characters.

    The middle half of what the two share must have the same tokens at the same characters, cut into
    pre-tokens alike; what the ends of the windows change does not reach it. Reading on from there
    gives the tokens of the whole text: a pattern that reads from left to right has stopped at the
    same character in both windows, and merges on one side of a boundary that they keep do not
    depend on the other side. The junction is next to a space, because a pattern may look at the end
    of a run of digits or letters, however far it is.
    Returns the number of its token in each window, None where there is none.
    """
    shift = len(window) - OVERLAP
    margin = OVERLAP // 4
    if shift <= 0:
        return None
    first, ours = _tokens(encoding, shift + margin, shift + OVERLAP - margin)
    second, theirs = _tokens(following, margin, OVERLAP - margin)
    if ours != [(i, start + shift, end + shift, new) for i, start, end, new in theirs]:
        return None
    spaced = [
        n
        for n, ((_, _, end, _), (_, start, _, _)) in enumerate(pairwise(ours), 1)
        if any(map(str.isspace, window[end - 1 : start + 1]))
    ]
    if not spaced:
        return None
    middle = spaced[len(spaced) // 2]
    return first + middle, second + middle


def _tokens(encoding: Any, low: int, high: int) -> tuple[int, list[tuple[int, int, int, bool]]]:
    """The tokens that begin at the characters low..high-1: the number of the first, and of each
    what is compared.

    These are its id, its first character, the one after its last, and whether a pre-token begins
    with it.
    """
    offsets = encoding.offsets
    words = encoding.word_ids
    first, end = (bisect_left(offsets, character, key=itemgetter(0)) for character in (low, high))
    begins = [n == 0 or words[n] != words[n - 1] for n in range(first, end)]
    ids = encoding.ids[first:end]
    return first, [
        (i, *span, new) for i, span, new in zip(ids, offsets[first:end], begins, strict=True)
    ]


_PRINTED = [b for b in range(256) if chr(b).isprintable() and not chr(b).isspace()]
# Source: Radford et al. 2019 (GPT-2), the released encoder: bytes that cannot be printed take the
# code points from 256.
_CHARACTERS = {b: chr(b) for b in _PRINTED} | {
    b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in _PRINTED)
}


def tokenizer_json(tokenizer: Tokenizer) -> str:
    """The content of a tokenizer.json that encodes and decodes as a tokenizer of ours does.

    Raises ValueError for a kind, and for special tokens, that such a file cannot hold.
    """
    if tokenizer.kind not in _WRITERS:
        raise ValueError(
            f"a tokenizer.json cannot hold a tokenizer of {tokenizer.kind}, only "
            f"{', '.join(_WRITERS)}"
        )
    text = json.dumps(_WRITERS[tokenizer.kind](tokenizer))
    written = HubTokenizer(text)
    for token in getattr(tokenizer, "special_tokens", ()):
        ids = tokenizer.encode(token)
        if written.encode(token) != ids or written.decode(ids) != token:
            raise ValueError(
                f"a tokenizer.json cannot hold the special token {token!r}; choose ASCII without "
                "spaces"
            )
    return text


def _characters(token: bytes) -> str:
    return "".join(_CHARACTERS[b] for b in token)


def _bpe_json(tokenizer: BPETokenizer) -> dict[str, Any]:
    last = {b"".join(pair): rank for rank, pair in enumerate(tokenizer.merges)}
    # theirs applies a merge at one place at a time, ours at all
    for rank, pair in enumerate(tokenizer.merges):
        if any(last.get(token, -1) >= rank for token in pair):
            raise ValueError(
                f"a tokenizer.json cannot hold the merge {pair}: a later merge makes one of its "
                "tokens"
            )
    byte_tokens = {*BYTES, *map(b"".join, tokenizer.merges)}
    special = {tokenizer.special_ids[text]: text for text in tokenizer.special_tokens}
    names = {
        i: special[i] if i in special and t not in byte_tokens else _characters(t)
        for i, t in tokenizer.vocab.items()
    }
    return _byte_level(
        {name: i for i, name in names.items()},
        [list(map(_characters, pair)) for pair in tokenizer.merges],
        special,
    )


def _byte_level(
    vocab: dict[str, int], merges: list[list[str]], special: dict[int, str]
) -> dict[str, Any]:
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": text, **flags} for i, text in sorted(special.items())
        ],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


_WRITERS = {
    "bytes": lambda tokenizer: _byte_level({_CHARACTERS[b]: b for b in range(256)}, [], {}),
    "bpe": _bpe_json,
    "hugging_face": lambda tokenizer: json.loads(tokenizer.text),
}
