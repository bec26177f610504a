"""Tokenizers compared with minbpe and Hugging Face's tokenizers, and what importing the library
costs.
"""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tinylm_lib.data.corpora import load_corpus, pydoc_text

from .measure import REMEDIES, Bar, Row, Settings, alternate, compare, seconds_bar
from .peers import load_minbpe

# minbpe takes minutes for the whole text, so it gets a slice, and so do we
VOCABULARY = 1_000
SLICE = 50_000


def some_text(s: Settings) -> str:
    """Tiny Shakespeare, or without it the help topics of Python over and over: 1,115,394 characters
    either way.
    """
    if s.shakespeare:
        return load_corpus(s.shakespeare)
    return (pydoc_text() * 3)[:1_115_394]


def hugging_face_bpe(text: str) -> Any:
    """Byte-level BPE of Hugging Face's tokenizers, with GPT-2's pre-tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def bpe(s: Settings) -> Iterator[Row]:
    """Training byte-level BPE to 1,000 tokens compared with minbpe (on a slice) and HF
    tokenizers.
    """
    from tinylm_lib.text.bpe import train_bpe

    text = some_text(s)
    part = text[: 20_000 if s.quick else SLICE]
    works = {"ours": lambda: train_bpe(part, VOCABULARY)}
    works["ours"]()  # what is done once in a process
    if s.minbpe:
        theirs = load_minbpe(s.minbpe)
        works["minbpe"] = lambda: theirs.RegexTokenizer(theirs.GPT2_SPLIT_PATTERN).train(
            part, VOCABULARY
        )
    seconds = alternate(works, 1, warm_up=0)
    what = f"BPE training, {VOCABULARY:,} tokens"
    yield compare(
        f"{what}, {len(part):,} characters",
        seconds,
        "minbpe",
        Bar("≤", 1 / 50),
        "both in Python; the gap grows with the text",
    )
    works = {
        "ours": lambda: train_bpe(text, VOCABULARY),
        "HF tokenizers": lambda: hugging_face_bpe(text),
    }
    seconds = alternate(works, s.rounds(5))
    note = REMEDIES["Tiny Shakespeare"] if not s.shakespeare else "Python compared with Rust"
    yield compare(
        f"{what}, {len(text):,} characters", seconds, "HF tokenizers", seconds_bar(2.0), note
    )


def encode(s: Settings) -> Iterator[Row]:
    """Encoding 5 MB of text with 1,000 tokens compared with HF tokenizers."""
    from tinylm_lib.text.bpe import train_bpe

    text = some_text(s)
    long = (text * 5)[: 500_000 if s.quick else 5_000_000]
    ours = train_bpe(text, VOCABULARY)
    theirs = hugging_face_bpe(text)
    seconds = alternate(
        {"ours": lambda: ours.encode(long), "HF tokenizers": lambda: theirs.encode(long)},
        3,
        warm_up=0,
    )
    bar = seconds_bar(1.0 if s.quick else 10.0)
    yield compare(
        f"BPE encoding, {len(long):,} characters",
        seconds,
        "HF tokenizers",
        bar,
        "the first round is cold",
    )


def import_time(s: Settings) -> Iterator[Row]:
    """What import tinylm_lib adds to import torch."""
    code = (
        "import time, torch; s = time.perf_counter(); import tinylm_lib; "
        "print(time.perf_counter() - s)"
    )
    seconds = [
        float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(s.rounds(5))
    ]
    note = f"{min(seconds):.3f} to {max(seconds):.3f} s, each in a new process"
    row = compare(
        "import tinylm_lib, beyond import torch", {"ours": seconds, "": seconds}, "", note=note
    )
    yield Row(row.what, row.ours, bar=seconds_bar(0.15), note=note)


ROWS = {"bpe": bpe, "encode": encode, "import": import_time}
