"""How good is a model? Nats per token, perplexity, bits per byte. Notebooks 03 and 11."""

import math
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import IGNORED
from ..inputs import check_ids, check_number, check_padding
from ..layers import at_least_fp32, evaluation_mode, values_at_hand
from .distributed import ALONE, Alone


def next_token_loss(logits: Tensor, targets: Tensor, counted: Tensor | None = None) -> Tensor:
    """Mean of -log softmax(logits)[target] over the targets that are not -100, in nats per token,
    computed in fp32.

    logits (B, T, V): position t predicts targets[:, t]. targets (B, T): ids 0..V-1 or -100.
    counted (): divide the sum by this number instead. So the losses of the parts of a large batch,
    none of whose targets may count, add up to the loss of the whole.
    Returns () in fp32.
    Raises TypeError for targets that are not integers, ValueError for shapes that do not fit and,
    on CPU, where no target counts or one is outside the vocabulary.
    """
    V = logits.shape[-1]
    if logits.shape[:-1] != targets.shape:
        raise ValueError(
            f"logits (..., V) need targets (...), got logits {tuple(logits.shape)} and targets "
            f"{tuple(targets.shape)}"
        )
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(
            f"targets must be integers (torch.long), got {targets.dtype}; use targets.long()"
        )
    if values_at_hand(targets):
        low, high = (int(x) for x in targets.aminmax()) if targets.numel() else (IGNORED, IGNORED)
        if high == IGNORED == low and counted is None:
            raise ValueError(
                f"no target counts: all {targets.numel()} are {IGNORED}, and a mean over nothing "
                "is NaN"
            )
        if high >= V or (low < 0 and not ((targets >= 0) | (targets == IGNORED)).all()):
            raise ValueError(
                f"targets must be 0..{V - 1} (vocab_size - 1) or {IGNORED}, got {low} to {high}"
            )
    flat = logits.flatten(0, -2).float(), targets.flatten().long()
    if counted is None:
        return F.cross_entropy(*flat, ignore_index=IGNORED)
    return F.cross_entropy(*flat, ignore_index=IGNORED, reduction="sum") / counted


def token_log_probs(model: nn.Module, ids: Tensor, padding: Tensor | None = None) -> Tensor:
    """The log-probability of each token after the first, given those before it, in one forward
    pass.

    ids (B, T), padding (B,): as in `TransformerLM.forward`; T is at most max_seq_len + 1.
    Returns (B, T-1) in fp32 at least, natural logs: column t is that of ids[:, t + 1]. Padding and
    the token after it, which nothing precedes, have 0, so the sum of a row is the log-probability
    of its text.
    Raises TypeError or ValueError for ids that the model cannot read.
    """
    check_ids(ids, 0, values=False)
    n = ids.shape[1] - 1  # nothing follows the last token, so the model need not read it
    seen = padding
    if padding is not None:
        check_padding(padding, len(ids), n + 1, values=values_at_hand(padding))
        seen = padding.clamp_max(max(n - 1, 0))
    with evaluation_mode(model):
        logits = at_least_fp32(model(ids[:, : max(n, 1)], padding=seen)[:, :n])  # (B, T-1, V)
    check_ids(ids[:, -1:], logits.shape[-1], values=values_at_hand(ids))
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None].long()).squeeze(-1)  # (B, T-1)
    if padding is not None:
        log_probs = log_probs.where(
            torch.arange(log_probs.shape[1], device=ids.device) >= padding[:, None], 0.0
        )  # (B, T-1)
    return log_probs


class Evaluation(NamedTuple):
    """What `evaluate` measured."""

    nats_per_token: float
    perplexity: float
    bits_per_byte: float | None
    n_tokens: int


def evaluate(
    model: nn.Module,
    windows: Iterable[tuple[Tensor, Tensor]],
    n_bytes: int | None = None,
    team: Alone = ALONE,
) -> Evaluation:
    """Measure a model over every target of `windows`, each token counted once and equally.

    windows: pairs of ids (B, T) and targets (B, T), with -100 where a target does not count.
    n_bytes: bytes of text that the targets are; without it bits_per_byte is None.
    team: with whom this process shares the windows; all of them get the same result.
    Returns nats per token, its exponential, bits per byte and the number of targets. Training mode
    is restored.
    Raises ValueError where no target counts, and for n_bytes below 1.
    """
    if n_bytes is not None:
        check_number(
            "n_bytes",
            n_bytes,
            Integral,
            lambda n: n >= 1,
            "at least 1 or None, where it is unknown",
        )
    device = next(model.parameters()).device
    total = torch.zeros((), dtype=torch.float64)
    n_tokens = 0
    with evaluation_mode(model):
        for x, y in team.part(windows, IGNORED):
            logits = model(x.to(device))
            if counted := int((y != IGNORED).sum()):
                total += next_token_loss(logits, y.to(device)).cpu().double() * counted
                n_tokens += counted
    total = team.sum(total)
    n_tokens = int(team.sum(torch.tensor(n_tokens)))
    if n_tokens == 0:
        raise ValueError(
            "there is no token to evaluate; give at least one window with a target that is not -100"
        )
    nats = total.item() / n_tokens
    bits_per_byte = None if n_bytes is None else total.item() / math.log(2) / n_bytes
    return Evaluation(nats, math.exp(nats) if nats < 700 else math.inf, bits_per_byte, n_tokens)
