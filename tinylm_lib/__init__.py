"""TinyLM: a modern decoder-only language model in a library small enough to read whole."""

from .beams import beam_search
from .cache import KVCache
from .config import ModelConfig, TrainConfig
from .data import RandomWindows, every_window, load_corpus, open_tokens, split, write_tokens
from .interventions import intervene, mean_heads
from .lora import add_lora, load_lora, merge_lora, remove_lora, save_lora, unmerge_lora
from .model import TransformerLM
from .presets import preset
from .pretrained import load_hf, load_hf_tokenizer, load_model, load_pretrained, save_hf
from .sampling import generate, next_token_probs, stream
from .text import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    WordTokenizer,
    load_tokenizer,
    train_bpe,
)
from .training import (
    build_optimizer,
    checkpoint,
    choose_device,
    evaluate,
    next_token_loss,
    token_log_probs,
    train,
)
from .writing import pad_left, stream_answer, stream_text

__version__ = "1.0.0"
__all__ = [
    "BPETokenizer",
    "ByteTokenizer",
    "CharTokenizer",
    "KVCache",
    "ModelConfig",
    "RandomWindows",
    "Tokenizer",
    "TrainConfig",
    "TransformerLM",
    "WordTokenizer",
    "add_lora",
    "beam_search",
    "build_optimizer",
    "checkpoint",
    "choose_device",
    "evaluate",
    "every_window",
    "generate",
    "intervene",
    "load_corpus",
    "load_hf",
    "load_hf_tokenizer",
    "load_lora",
    "load_model",
    "load_pretrained",
    "load_tokenizer",
    "mean_heads",
    "merge_lora",
    "next_token_loss",
    "next_token_probs",
    "open_tokens",
    "pad_left",
    "preset",
    "remove_lora",
    "save_hf",
    "save_lora",
    "split",
    "stream",
    "stream_answer",
    "stream_text",
    "token_log_probs",
    "train",
    "train_bpe",
    "unmerge_lora",
    "write_tokens",
]
