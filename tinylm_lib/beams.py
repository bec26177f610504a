"""Beam search: the most probable continuations that a narrow search finds. Notebook 12."""

import math
from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from .inputs import check_number, check_size
from .layers import at_least_fp32, evaluation_mode
from .model import TransformerLM
from .probabilities import check_finite
from .sampling import Context, Options


def beam_search(
    model: TransformerLM,
    ids: Tensor,
    max_new_tokens: int,
    n_beams: int,
    length_penalty: float = 1.0,
    stop_ids: Sequence[int] = (),
    vocab_size: int | None = None,
) -> list[tuple[list[int], float]]:
    """Find probable continuations by keeping the `n_beams` best at every step.

    ids (T,): one prompt. length_penalty: continuations of n new tokens compare by log_prob /
    n**length_penalty, so 0 favours short ones and 1 compares the mean per token. stop_ids: end a
    continuation and stay in it; one among the n best is then set aside, and n others continue.
    vocab_size: as in `generate`; the probabilities are those among the ids below it.
    Returns at most n_beams (tokens, log_prob), best first: the prompt with its continuation, and
    the natural log of the continuation's probability, in nats.
    Raises TypeError or ValueError for a prompt or an option that cannot be followed.
    Source: Wu et al. 2016, section 7, with a plain power of the length.
    """
    check_size("n_beams", n_beams)
    check_number("length_penalty", length_penalty, Real, math.isfinite, "a finite number")
    if not isinstance(ids, Tensor) or ids.ndim != 1:
        got = tuple(ids.shape) if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        fix = "use torch.tensor([1, 2])"
        raise ValueError(f"beam search takes a tensor of one prompt, ids (T,), got {got}; {fix}")
    options = Options(stop_ids=stop_ids, overflow="error", vocab_size=vocab_size)
    options.n_tokens(model, ids[None], max_new_tokens)
    with evaluation_mode(model):
        beams = _beams(model, ids, max_new_tokens, n_beams, options)

    def score(beam: tuple[list[int], float]) -> float:
        tokens, log_prob = beam
        return log_prob / max(1, len(tokens) - len(ids)) ** length_penalty

    return sorted(beams, key=score, reverse=True)[:n_beams]


def _beams(
    model: TransformerLM, ids: Tensor, max_new_tokens: int, n_beams: int, options: Options
) -> list[tuple[list[int], float]]:
    """The finished beams and those alive at the end, in no order."""
    alive = [(ids.tolist(), 0.0)]
    finished = []
    new = None
    stop_ids = set(options.stop_ids)
    context = Context(model, ids[None], room=len(ids) + max_new_tokens)
    for _ in range(max_new_tokens):
        logits = at_least_fp32(context.advance(new)[:, : options.vocab_size])  # (N, V)
        check_finite(logits.amax(-1))
        past = torch.tensor([[log_prob] for _, log_prob in alive], dtype=torch.float64)  # (N, 1)
        totals = (past + logits.log_softmax(-1).cpu().double()).flatten()  # (N*V)
        values, order = totals.sort(descending=True, stable=True)  # (N*V), (N*V)
        n = n_beams * (1 + len(stop_ids))  # so that n_beams go on even if all rows could stop
        best = zip(order[:n].tolist(), values[:n].tolist(), strict=True)
        grown = [(*divmod(i, logits.shape[-1]), log_prob) for i, log_prob in best]
        ended = [beam for beam in grown[:n_beams] if beam[1] in stop_ids]
        going = [beam for beam in grown if beam[1] not in stop_ids][:n_beams]
        finished += [([*alive[row][0], token], log_prob) for row, token, log_prob in ended]
        if not going:
            return finished
        alive = [([*alive[row][0], token], log_prob) for row, token, log_prob in going]
        rows_and_tokens = torch.tensor([beam[:2] for beam in going], device=ids.device)
        rows, new = rows_and_tokens.unbind(-1)  # (M), (M)
        context.select(rows)
    return finished + alive
