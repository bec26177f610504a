"""Which published chat template a folder of Hugging Face has, by the digest of its text."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .chat import TEMPLATES, TOKENIZER_CONFIG, Template

CHAT_TEMPLATE = "chat_template.jinja"
SPECIAL_TOKENS = "special_tokens_map.json"
# The sha256 of published texts (see `digest`), and the template that writes the same.
PUBLISHED = {
    "153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3": "chatml",
    "58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7": "chatml",
    "64f85b198065d0fba2a81f37e10ed68161ce2c19a754c7100e67e0ca2ee9c326": "chatml",  # Qwen3-2507
    "a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc": "chatml_bos",
    "f42d04ffb2e487fa9c501ab886afe8fce0822f9874a9ca4284ba57e2a686a56a": "chatml_bos",
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788": "smollm2",
    "af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db": "qwen1.5",
    "793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb": "qwen2",
    "55b2f4a26ac9ee719330a61a0c39d9e538b0e9322212f048326318cff4f8674a": "qwen2.5",
    "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8": "qwen3",
    "66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362": "zephyr",  # and TinyLlama
    "e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf": "llama2",
    "ea2472f29dbd93c3eb696795f6403228fcc4b775518869c771f83fbae5c11dbf": "llama2",
    "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122": "llama3",
    "93c0e9aa3629bbd77e68dbc0f5621f6e6b23aa8d74b932595cdb8d64684526d7": "llama3.1",
    "d82792f95932f1c9cef5c4bd992f171225e3bf8c7b609b4557c9e1ec96be819f": "llama3.2",
    "7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495": "mistral0.1",
    "26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7": "mistral0.2",
}


def digest(template: str) -> str:
    """What a template is recognized by: the sha256 of its text, without white space at its ends."""
    text = template.replace("\r\n", "\n").strip()
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def recognize(files: Mapping[str, str]) -> tuple[Template | None, str]:
    """Find the template of a folder.

    files: the texts of its files by name.
    Returns it, and "", or None and why there is none with what to do.
    """
    text = files.get(CHAT_TEMPLATE)
    where = CHAT_TEMPLATE
    if text is None:
        where = TOKENIZER_CONFIG
        text = _default(_values(files, where).get("chat_template"))
    if text is None:
        return None, (
            "this model has no chat template, because it was not trained to answer: take its "
            "instruct or chat version"
        )
    if (name := PUBLISHED.get(digest(text))) is None:
        known = ", ".join(TEMPLATES)
        return None, (
            f"the chat template in {where} is not one that is known here ({text.strip()[:40]!r} "
            f"...). If it writes as one of {known} does, set tokenizer.template = "
            "TEMPLATES[name] of tinylm_lib.text; otherwise let transformers' apply_chat_template "
            "write the text"
        )
    return TEMPLATES[name], ""


def marks(files: Mapping[str, str]) -> dict[str, str]:
    """The texts of the bos_token and the eos_token that a folder's files name."""
    found = {}
    for name in ("bos_token", "eos_token"):
        for file in (TOKENIZER_CONFIG, SPECIAL_TOKENS):
            token = _values(files, file).get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                found.setdefault(name, token)
    return found


def _default(value: Any) -> str | None:
    """The template that a dialogue without tools takes, where a folder has several by name."""
    if isinstance(value, list):
        named = {row.get("name"): row.get("template") for row in value if isinstance(row, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _values(files: Mapping[str, str], name: str) -> dict[str, Any]:
    """The object in one of the files; empty where it holds none."""
    try:
        values = json.loads(files.get(name, "{}"))
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
