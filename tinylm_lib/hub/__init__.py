"""Models and tokenizers of Hugging Face, in and out, and of GGUF, in."""

from .gguf import load_gguf, load_gguf_tokenizer
from .gguf_header import is_gguf
from .load import load_hf, load_hf_tokenizer, save_hf

__all__ = [
    "is_gguf",
    "load_gguf",
    "load_gguf_tokenizer",
    "load_hf",
    "load_hf_tokenizer",
    "save_hf",
]
