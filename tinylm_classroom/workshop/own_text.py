"""A text of one's own, from its name to a trained model: read, checked, cut, encoded, and read
again and again.
"""

import itertools
import math
import os.path
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib.config import ModelConfig, TrainConfig
from tinylm_lib.data import RandomWindows, every_document, every_window, load_corpus
from tinylm_lib.model import TransformerLM
from tinylm_lib.presets import preset
from tinylm_lib.pretrained import load_pretrained
from tinylm_lib.storyworld import corpus, log_prob
from tinylm_lib.text import BPETokenizer, Tokenizer, line_end
from tinylm_lib.training import build_optimizer, evaluate, train

LEAST_BYTES = 20_000
MOST_BYTES = 2_000_000
STORIES = "storyworld"
N_STORIES = 2000
VOCAB_SIZE = 512
PIECES = 100
PIECE_LENGTH = 60
OWN_RECIPE = TrainConfig(total_steps=300, schedule="cosine", warmup_steps=10, precision="fp32")
# 1 MB of text in about five minutes
LARGE_RECIPE = TrainConfig(
    total_steps=1200, batch_size=16, schedule="cosine", warmup_steps=10, precision="fp32"
)
LOOK_AFTER = (10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 450, 600, 900, 1200, 1500)
SENTENCE = r"(?:(?<=[.!?])[ \n]+|\n+)([^\W\d_a-z]\S*(?: \S+){2,4})"
N_BLOCKS = 7  # a text that is twice in its file is not held out at the same places of both
HELD_OUT = 10  # the last of so many parts of each block


class Look(NamedTuple):
    """Where a training is after `step` updates: mean loss of the last ten of them and held-out
    loss, nats per token.
    """

    step: int
    training: float
    held_out: float


class OwnText(NamedTuple):
    """A text, cut and encoded.

    training (N,) and held_out (M,): ids. n_bytes: of the whole text, held_out_bytes: of the pieces
    that are held out, in seven places of the text; lengths: of what is trained on and of what is
    held out, in turn, in characters.
    repeated: fraction of some pieces of the held-out text that are in the training text, too.
    stories: the held-out stories of StoryWorld, one a line; empty for every other text.
    """

    name: str
    tokenizer: Tokenizer
    training: Tensor
    held_out: Tensor
    n_bytes: int
    held_out_bytes: int
    repeated: float
    stories: str = ""
    lengths: tuple[int, ...] = ()

    @property
    def floor(self) -> float | None:
        """The least loss on the held-out text, nats per token; None where nobody knows it."""
        return -log_prob(self.stories) / len(self.held_out) if self.stories else None

    def bits_per_byte(self, loss: float) -> float:
        """A held-out loss in nats per token as bits per byte.

        Bits per byte compare texts and tokenizers.
        """
        return loss / math.log(2) * len(self.held_out) / self.held_out_bytes

    def batches(self, recipe: TrainConfig) -> RandomWindows:
        """Endless batches of the training text; of StoryWorld, each window begins with a story."""
        starts = (
            (self.training == line_end(self.tokenizer)).nonzero()[:, 0] if self.stories else None
        )
        return RandomWindows(
            self.training, recipe.batch_size, recipe.seq_len, recipe.seed, starts=starts
        )

    def openings(self, n: int = 3) -> list[str]:
        """The first words of some held-out sentences, each after a line end: how a page begins."""
        read = "\n" + self.tokenizer.decode(self.held_out.tolist())
        found = re.findall(r"\n(\S+(?: \S+){4})" if self.stories else SENTENCE, read)
        found = list(dict.fromkeys(found)) or [read.strip()[:30] or "a"]
        return ["\n" + words for words in found[:: max(1, len(found) // n)][:n]]

    def loss(self, model: TransformerLM) -> float:
        """The loss of a model on the held-out text, nats per token."""
        if self.stories:
            return evaluate(
                model, every_document(self.held_out, line_end(self.tokenizer), 32)
            ).nats_per_token
        return evaluate(
            model, every_window(self.held_out, 32, model.config.max_seq_len)
        ).nats_per_token


def own_text(source: str | Path, n_bytes: int = MOST_BYTES) -> OwnText:
    """Read a text by its name, and make it ready: a tenth is held out, in seven places of the text,
    and the rest is trained on.

    source: "storyworld", another corpus of `load_corpus` such as "pydoc" or "shakespeare", or a
    UTF-8 file of 20 KB or more, where `~` is the home folder.
    n_bytes: only so much of its beginning is taken, in whole lines; at least 20,000. StoryWorld has
    a token for each of its words. For other texts byte-level BPE is learned from the training text,
    so that every text can be encoded.
    Raises TypeError for a source that is not a name, IsADirectoryError for a folder,
    FileNotFoundError for a name that is neither a file nor a corpus, ValueError for a text that is
    empty, too short, binary or not UTF-8, and ConnectionError for a corpus that cannot be
    downloaded.
    """
    if not isinstance(source, str | Path):
        raise TypeError(
            f"the text must be named by a str or a Path, got {source!r}; "
            "give 'storyworld' or a file"
        )
    source = os.path.expanduser(source)
    if _is_folder(source):
        raise IsADirectoryError(
            f"{str(source)!r} is a folder; give one file, such as {_some_file(Path(source))!r}"
        )
    if n_bytes < LEAST_BYTES:
        raise ValueError(f"n_bytes must be at least {LEAST_BYTES:,}, got {n_bytes:,}")
    text = corpus(N_STORIES, seed=0) if source == STORIES else _read(source)
    if (n := len(text.encode())) < LEAST_BYTES:
        raise ValueError(
            f"{source} has {n:,} bytes, and a model needs at least {LEAST_BYTES:,} to learn from "
            "and to be tested on; give a longer text, or join several files"
        )
    text = _beginning(text, n_bytes)
    return read_stories(text) if source == STORIES else _of_text(Path(source).name, text)


def read_stories(text: str) -> OwnText:
    """Make stories of StoryWorld ready, one a line: a tenth of them is held out, in seven places.

    Raises ValueError for a word that StoryWorld does not have, and for fewer than ten stories.
    """
    stories = text.splitlines(keepends=True)
    if len(stories) < HELD_OUT:
        raise ValueError(f"{len(stories)} stories leave none to hold out; give at least {HELD_OUT}")
    pieces = blocks(stories)
    training, held_out = ("".join(map("".join, pieces[i::2])) for i in (0, 1))
    lengths = tuple(len("".join(piece)) for piece in pieces)
    tokenizer = load_pretrained(STORIES).tokenizer
    return _encoded(STORIES, tokenizer, "\n" + training, held_out, lengths, held_out)


def blocks(parts: Sequence[str]) -> list[Sequence[str]]:
    """A text, as its characters or as lines, in pieces: what is trained on and what is held out, in
    turn.

    Each of seven equal blocks, or of fewer where it is short, ends with a tenth that is held out.
    """
    n = min(N_BLOCKS, len(parts) // HELD_OUT)
    ends = [len(parts) * (i + 1) // n for i in range(n)]
    found = []
    for start, end in itertools.pairwise([0, *ends]):
        cut = end - (end - start) // HELD_OUT
        found += [parts[start:cut], parts[cut:end]]
    return found


def own_config(text: OwnText, large: bool = False) -> ModelConfig:
    """The model of lesson 20 for a text: two layers, 64 wide, and what a page can run; large, for
    1 MB of text: four layers, 128 wide.
    """
    sizes: dict[str, Any] = {
        "d_model": 128 if large else 64,
        "n_layers": 4 if large else 2,
        "n_heads": 4,
        "max_seq_len": OWN_RECIPE.seq_len,
        "d_ff_multiple_of": 64 if large else 8,
    }
    if large:  # without dropout it begins to learn 1 MB by heart after 700 updates
        sizes |= dict.fromkeys(("residual_dropout", "ffn_dropout", "embedding_dropout"), 0.1)
    return preset("modern", vocab_size=text.tokenizer.vocab_size, **sizes)


def learn(model: TransformerLM, text: OwnText, recipe: TrainConfig = OWN_RECIPE) -> Iterator[Look]:
    """Train a model on a text, and yield where it is after the updates of LOOK_AFTER and after the
    last.

    To keep the weights of a look, copy them before the next one.
    """
    losses: list[Tensor] = []
    for step in train(model, build_optimizer(model, recipe), text.batches(recipe), recipe):
        losses = [*losses[-9:], step.loss]
        if step.step in (*LOOK_AFTER, recipe.total_steps):
            yield Look(step.step, torch.stack(losses).mean().item(), text.loss(model))


def _read(source: str) -> str:
    try:
        return load_corpus(source)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}. A file is looked for in {Path.cwd()}") from None


def _of_text(name: str, text: str) -> OwnText:
    lines = text.splitlines(keepends=True)
    pieces = ["".join(piece) for piece in blocks(lines if len(lines) > 10 * N_BLOCKS else text)]
    training, held_out = ("".join(pieces[i::2]) for i in (0, 1))
    tokenizer = BPETokenizer.from_text(training, VOCAB_SIZE)
    return _encoded(name, tokenizer, training, held_out, tuple(map(len, pieces)))


def _encoded(
    name: str,
    tokenizer: Tokenizer,
    training: str,
    held_out: str,
    lengths: tuple[int, ...],
    stories: str = "",
) -> OwnText:
    ids = (torch.tensor(tokenizer.encode(part)) for part in (training, held_out))
    n_bytes = len((training + held_out).encode())
    held_out_bytes = len(held_out.encode())
    repeated = _repeated(training, held_out)
    return OwnText(name, tokenizer, *ids, n_bytes, held_out_bytes, repeated, stories, lengths)


def _beginning(text: str, n_bytes: int) -> str:
    """At most so many bytes of a text: whole lines, if it has any, and whole characters."""
    cut = text.encode()[:n_bytes].decode(errors="ignore")
    return cut if cut == text or "\n" not in cut else cut[: cut.rindex("\n") + 1]


def _repeated(training: str, held_out: str) -> float:
    """The fraction of pieces, evenly spread over the held-out text, that occur in the training text
    as they are.
    """
    last = max(1, len(held_out) - PIECE_LENGTH)
    pieces = [held_out[at : at + PIECE_LENGTH] for at in range(0, last, max(1, last // PIECES))]
    return sum(piece in training for piece in pieces) / len(pieces)


def _is_folder(source: str | Path) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):  # too long, or with a zero byte: no folder has such a name
        return False


def _some_file(folder: Path) -> str:
    files = (
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    )
    return str(
        next(
            itertools.chain(
                (p for p in files if p.suffix in (".txt", ".md")), [folder / "my_text.txt"]
            )
        )
    )
