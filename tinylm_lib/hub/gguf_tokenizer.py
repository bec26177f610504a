"""The tokenizer of a GGUF file, written as the tokenizer.json that it was made from."""

import json
from typing import Any, NamedTuple

from ..text.hugging_face import HubTokenizer
from ..text.published import CHAT_TEMPLATE, SPECIAL_TOKENS

KEY = "tokenizer.ggml."
CHAT = "tokenizer.chat_template"
BYTE_LEVEL = "gpt2"  # the only tokenizer.ggml.model that is read
# What `token_type` says of tokens that are matched in the text before it is cut. Source: llama.cpp.
CONTROL = 3
USER_DEFINED = 4
ENDINGS = ("eos_token_id", "eot_token_id", "eom_token_id")
# by their name in config.json
KEPT = {"bos_token_id": "bos_token_id", "pad_token_id": "padding_token_id"}

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Pre(NamedTuple):
    """What a name in tokenizer.ggml.pre stands for: how a text is normalised and cut.

    split: the pattern of pre-tokens, where it is not GPT-2's. digits: each digit is cut off first.
    whole_words: a pre-token that is a token is not built from merges. begins: a text begins with
    the token bos_token_id, where add_bos_token does not say so.
    """

    split: str | None = None
    digits: bool = False
    normal_form: str | None = None
    whole_words: bool = False
    begins: bool = False

    def cutting(self) -> list[dict[str, Any]]:
        """The parts of the pre-tokenizer in a tokenizer.json."""
        parts: list[dict[str, Any]] = []
        if self.digits:
            parts.append({"type": "Digits", "individual_digits": True})
        if self.split is not None:
            pattern = {"pattern": {"Regex": self.split}, "behavior": "Isolated", "invert": False}
            parts.append({"type": "Split", **pattern})
        return [*parts, _byte_level(use_regex=self.split is None)]


def _byte_level(use_regex: bool) -> dict[str, Any]:
    flags = {"add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **flags}


_LLAMA_3 = Pre(rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}", whole_words=True, begins=True)
# Source: the published tokenizer.json of GPT-2, SmolLM2, Llama 3 and Qwen2, and the names that
# llama.cpp gives to their pre-tokenizers.
PRE_TOKENIZERS = {
    "gpt-2": Pre(),
    "smollm": Pre(digits=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA_3),
    "qwen2": Pre(rf"{_WORDS}|\p{{N}}|{_REST}", normal_form="NFC"),
}


def tokenizer_of(metadata: dict[str, Any]) -> HubTokenizer:
    """The tokenizer that the metadata of a GGUF file describes, with its endings and chat template.

    Raises ValueError naming the key for a missing one and for anything that would give other ids;
    ModuleNotFoundError without the package `tokenizers`.
    """
    kind = metadata.get(f"{KEY}model")
    if kind is None:
        raise ValueError(
            f"{KEY}model is missing, so it holds no tokenizer; take a file that was converted with "
            "its vocabulary"
        )
    if kind != BYTE_LEVEL:
        raise ValueError(
            f"{KEY}model is {kind!r}, and only {BYTE_LEVEL!r}, byte-level BPE, is read; take a "
            "version of the model in safetensors, with its tokenizer.json"
        )
    name = metadata.get(f"{KEY}pre")
    if name not in PRE_TOKENIZERS:
        raise ValueError(
            f"{KEY}pre is {name!r}, and only {', '.join(PRE_TOKENIZERS)} are known exactly; take a "
            "version of the model in safetensors, with its tokenizer.json"
        )
    if metadata.get(f"{KEY}add_space_prefix", False):
        raise ValueError(f"{KEY}add_space_prefix is True, and no space is put before a text here")
    tokens = _tokens(metadata)
    text = json.dumps(_tokenizer_json(metadata, PRE_TOKENIZERS[name], tokens))
    endings = [_id(metadata, ending, tokens) for ending in ENDINGS]
    ids = {ours: _id(metadata, theirs, tokens) for ours, theirs in KEPT.items()}
    kept: dict[str, Any] = {"ids": {key: i for key, i in ids.items() if i is not None}}
    if CHAT in metadata:
        marks = {name: _id(metadata, f"{name}_id", tokens) for name in ("bos_token", "eos_token")}
        named = {name: tokens[i] for name, i in marks.items() if i is not None}
        kept["files"] = {CHAT_TEMPLATE: metadata[CHAT], SPECIAL_TOKENS: json.dumps(named) + "\n"}
    ending = list(dict.fromkeys(i for i in endings if i is not None))
    return HubTokenizer(text, ending, {key: values for key, values in kept.items() if values})


def _tokens(metadata: dict[str, Any]) -> list[str]:
    for name in ("tokens", "merges", "token_type"):
        if not len(metadata.get(KEY + name, ())):
            raise ValueError(
                f"{KEY}{name} is missing; take a file that was converted with its vocabulary"
            )
    for name in ("tokens", "merges"):
        if not isinstance(metadata[KEY + name], list):
            raise ValueError(f"{KEY}{name} must be texts, and they are numbers; download it again")
    tokens: list[str] = metadata[f"{KEY}tokens"]
    if (n := len(metadata[f"{KEY}token_type"])) != len(tokens):
        raise ValueError(
            f"{KEY}token_type has {n} values for {len(tokens)} tokens; download it again"
        )
    ids = {token: i for i, token in enumerate(tokens)}
    if twice := [token for i, token in enumerate(tokens) if ids[token] != i]:
        raise ValueError(f"{KEY}tokens has {twice[0]!r} twice, and each token needs one id")
    return tokens


def _id(metadata: dict[str, Any], name: str, tokens: list[str]) -> int | None:
    i = metadata.get(KEY + name)
    if i is not None and not (isinstance(i, int) and 0 <= i < len(tokens)):
        raise ValueError(f"{KEY}{name} is {i!r}, and there are {len(tokens)} tokens")
    return i


def _tokenizer_json(metadata: dict[str, Any], pre: Pre, tokens: list[str]) -> dict[str, Any]:
    kinds = metadata[f"{KEY}token_type"]
    whole = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": i, "content": token, **whole, "special": bool(kind == CONTROL)}
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    ]
    merges = [merge.split(" ") for merge in metadata[f"{KEY}merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": pre.normal_form and {"type": pre.normal_form},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre.cutting()},
        "post_processor": _beginning(metadata, pre, tokens),
        "decoder": _byte_level(use_regex=True),
        "model": {
            "type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": pre.whole_words,
        },
    }  # fmt: skip


def _beginning(metadata: dict[str, Any], pre: Pre, tokens: list[str]) -> dict[str, Any] | None:
    """The part of a tokenizer.json that puts a token before a text, where the file has one."""
    if not metadata.get(f"{KEY}add_bos_token", pre.begins):
        return None
    i = _id(metadata, "bos_token_id", tokens)
    if i is None:
        raise ValueError(
            f"{KEY}bos_token_id is missing, and a text begins with this token; take another file "
            "of the model"
        )
    token = tokens[i]
    first = {"SpecialToken": {"id": token, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    special = {token: {"id": token, "ids": [i], "tokens": [token]}}
    both = {"single": [first, text], "pair": [first, text]}
    return {"type": "TemplateProcessing", **both, "special_tokens": special}
