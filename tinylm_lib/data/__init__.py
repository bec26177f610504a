"""What a model is trained on: corpora of text, windows cut from their tokens, and tokens in files.

Notebook 11.
"""

from .corpora import CORPORA, load_corpus
from .token_file import open_tokens, write_tokens
from .windows import RandomWindows, every_document, every_window, random_windows, split

__all__ = [
    "CORPORA",
    "RandomWindows",
    "every_document",
    "every_window",
    "load_corpus",
    "open_tokens",
    "random_windows",
    "split",
    "write_tokens",
]
