"""Text to token ids and back: the tokenizers, how they cut text, and how they learn. Notebook 01.

A new tokenizer is a class and its line in TOKENIZERS, both in `tokenizers`.
"""

from .base import Tokenizer, UnknownTokenError, line_end
from .bpe import BPETokenizer, learn_merges, merge, train_bpe
from .chat import TEMPLATES, Template
from .cutting import pre_tokens, words
from .hugging_face import HubTokenizer
from .tokenizers import (
    TOKENIZERS,
    ByteTokenizer,
    CharTokenizer,
    WordTokenizer,
    load_tokenizer,
    tokenizer_from_dict,
)

__all__ = [
    "TEMPLATES",
    "TOKENIZERS",
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "HubTokenizer",
    "Template",
    "Tokenizer",
    "UnknownTokenError",
    "WordTokenizer",
    "learn_merges",
    "line_end",
    "load_tokenizer",
    "merge",
    "pre_tokens",
    "tokenizer_from_dict",
    "train_bpe",
    "words",
]
