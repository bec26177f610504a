"""What a reader knows who counts: which words followed the same last words in the stories read,
with back-off to fewer words where they are new.
"""

import sys
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_WORDS = 7


def counting_losses(read: Tensor, new: Tensor, line_end: int, most: int = MOST_WORDS) -> Tensor:
    """The loss of each token in new texts for readers who count how often it followed the last 0,
    1, ... `most` tokens in what was read: (most + 1, N), in nats.

    read, new: ids (N), lines that each end with `line_end`; no reader looks beyond the beginning of
    a line. A reader mixes what came after the last k tokens with what the reader of k - 1 knows,
    which counts as many times as different tokens came.
    Source: Witten and Bell 1991, method C.
    """
    old, is_old = _padded(read, line_end, most)
    fresh, is_fresh = _padded(new, line_end, most)
    ids = torch.cat((old, fresh))
    is_read = torch.cat((is_old, torch.zeros_like(is_fresh)))
    is_new = torch.cat((torch.zeros_like(is_old), is_fresh))
    V = int(ids.max()) + 1
    probs = torch.full(ids.shape, 1 / V, dtype=torch.float64)
    before = torch.zeros_like(ids)  # which last k tokens come before each position, numbered
    found = []
    for _ in range(most + 1):
        pairs, pair = torch.unique(before * V + ids, return_inverse=True)
        times = torch.bincount(pair[is_read], minlength=len(pairs))
        n_before = int(before.max()) + 1
        total = torch.bincount(before[is_read], minlength=n_before)[before]
        kinds = torch.bincount(pairs[times > 0] // V, minlength=n_before)[before]
        mixed = (times[pair] + kinds * probs) / (total + kinds).clamp(min=1)
        probs = torch.where(total > 0, mixed, probs)
        found.append(-probs[is_new].log())
        before = pair.roll(1)
    return torch.stack(found)


def _padded(ids: Tensor, line_end: int, most: int) -> tuple[Tensor, Tensor]:
    """The ids with `most` line ends more before each line, and which of them are not such."""
    times = 1 + most * (ids == line_end).long()
    is_own = torch.zeros(int(times.sum()) + most, dtype=torch.bool)
    is_own[times.cumsum(0) - times + most] = True
    first = torch.full((most,), line_end)
    return torch.cat((first, ids.repeat_interleave(times))), is_own


@cache
def recorded_counting() -> dict[int, list[list[float]]]:
    """What `tools/counting.py` has measured: for so many stories the losses of each run by the
    number of words back, in nats per token.
    """
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    found: dict[int, list[list[float]]] = {}
    for run in tomllib.loads(text)["runs"]:
        found.setdefault(run["stories"], []).append(run["losses"])
    return found
