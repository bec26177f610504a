"""Models and tokenizers of Hugging Face, in and out."""

from .load import load_hf, load_hf_tokenizer, save_hf

__all__ = ["load_hf", "load_hf_tokenizer", "save_hf"]
