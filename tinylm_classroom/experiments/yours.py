"""Lesson 20: what to expect of a text, a compressor to compare with, passages that are copies, the
road over a real model, and what some of its questions are about.

text: an `OwnText` of the workshop.
"""

import lzma
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib.cache import KVCache
from tinylm_lib.model import TransformerLM
from tinylm_lib.sampling import generate
from tinylm_lib.writing import stream_text

from ..exercises import find_exercise

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same code under another name
    import tomli as tomllib

SEVEN = 7  # tokens in a row that a picture marks as a copy


class Size(NamedTuple):
    """Three trainings on as many bytes: mean losses in nats per token, at which update the held-out
    loss is lowest, and that loss in bits per byte, with the lowest and the highest of the three.
    """

    training: float
    at_end: float
    lowest: float
    update: float
    bits: float
    least: float
    most: float


@cache
def recorded() -> dict[str, Any]:
    """What was measured for this lesson: `large` for 1 MB of text, `real` for the real model."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@cache
def recorded_sizes() -> dict[str, dict[int, Size]]:
    """What `tools/yours.py` has measured, by corpus and bytes of text."""
    found: dict[str, dict[int, Size]] = {}
    for line in recorded()["sizes"]["table"].strip().splitlines():
        corpus, n_bytes, *numbers = line.split()
        found.setdefault(corpus, {})[int(n_bytes)] = Size(*map(float, numbers))
    return found


def compressed_bits(text: Any) -> float:
    """Bits per byte that the held-out text adds to the compressed training text."""
    parts = (text.tokenizer.decode(part.tolist()) for part in (text.training, text.held_out))
    before, after = (part.encode() for part in parts)
    more = len(lzma.compress(before + after)) - len(lzma.compress(before))
    return 8 * more / text.held_out_bytes


def written(
    model: TransformerLM,
    text: Any,
    beginning: str,
    n_tokens: int,
    temperature: float,
    seed: int,
) -> str:
    """A text of a model, with its beginning."""
    generator = torch.Generator().manual_seed(seed)
    how = {"temperature": temperature, "generator": generator}
    pieces = stream_text(model.eval(), text.tokenizer, beginning, n_tokens, **how)
    return beginning + "".join(pieces)


def written_ids(
    model: TransformerLM,
    text: Any,
    beginning: str,
    n_tokens: int,
    temperature: float,
    seed: int,
) -> list[int]:
    """The same text as the ids that the model chose: a text need not have these tokens again."""
    ids = torch.tensor([text.tokenizer.encode(beginning)])
    generator = torch.Generator().manual_seed(seed)
    found = generate(model.eval(), ids, n_tokens, temperature=temperature, generator=generator)
    return found[0].tolist()


def copied(known: Sequence[int], ids: Sequence[int], least: int = SEVEN) -> list[int]:
    """For each token of ids the length of the longest passage around it that is in known, too; 0
    where that is below `least`.
    """
    text = f" {' '.join(map(str, known))} "
    found = [0] * len(ids)
    end = 0
    for start in range(len(ids)):
        end = max(end, start)
        while end < len(ids) and f" {' '.join(map(str, ids[start : end + 1]))} " in text:
            end += 1
        for i in range(start, end) if end - start >= least else ():
            found[i] = max(found[i], end - start)
    return found


def commands(name: str) -> str:
    """How to put a text of one's own on top of a real model, with the library's command line, in
    any folder: a file has its whole path.
    """
    path = Path(name).expanduser()
    where = shlex.quote(str(path.resolve())) if path.is_file() else name
    return recorded()["real"]["commands"].strip().replace("TEXT", where)


def changed_positions(model: TransformerLM, ids: Tensor, at: int) -> list[int]:
    """The positions of ids (1, T) whose logits change with the token at one of them."""
    other = ids.clone()
    other[0, at] = (other[0, at] + 1) % model.config.vocab_size
    with torch.no_grad():
        apart = (model(other) - model(ids)).abs().amax(-1)[0]
    return (apart > 1e-6).nonzero()[:, 0].tolist()


def score(at_q: int, at_k: int) -> float:
    """The dot product of a query and a key, each rotated by its position."""
    rotate = find_exercise("rotate").reference
    q, k = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(2))
    turned = [rotate(v, torch.tensor([at]), 10_000.0) for v, at in ((q, at_q), (k, at_k))]
    return (turned[0] * turned[1]).sum().item()


def cached_numbers(model: TransformerLM) -> int:
    """How many numbers the cache of a model holds for one token."""
    cache = KVCache(model.config, batch_size=1, max_len=1)
    return sum(each.numel() for each in (*cache.keys, *cache.values))


def untrained_loss(model: TransformerLM, text: Any) -> float:
    """The loss of a model of the same sizes with its first weights, nats per token."""
    torch.manual_seed(1)
    return text.loss(TransformerLM(model.config))


def softmax_shifted() -> str:
    """What softmax makes of three logits that all rise by 5."""
    logits = torch.tensor([2.0, 1.0, 0.0])
    same = torch.allclose((logits + 5).softmax(-1), logits.softmax(-1))
    return "it stays the same" if same else "it rises"


def norm_of_ten_times() -> float:
    """By what RMSNorm multiplies its result for vectors that are ten times as long."""
    norm = find_exercise("rms_norm").reference
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    return (norm(10 * x, torch.ones(64), 1e-6) / norm(x, torch.ones(64), 1e-6)).mean().item()
