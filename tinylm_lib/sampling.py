"""Writing: sampling, streaming and beam search, over a cache. Notebook 12."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from .cache import KVCache
from .inputs import check_ids, check_number, check_padding, check_size
from .layers import at_least_fp32, evaluation_mode, pick
from .model import TransformerLM
from .probabilities import check_finite, check_options, next_token_probs, sample

P = ParamSpec("P")
R = TypeVar("R")
STEPS_PER_LOOK = 16  # reading a flag stalls a GPU, so it is done once in so many tokens


class Context:
    """What the model has read so far; `advance` reads on, through a cache while everything fits.

    Beyond max_seq_len each token is predicted from the last max_seq_len tokens, which are read again.
    """

    def __init__(self, model: TransformerLM, ids: Tensor, room: int, padding: Tensor | None = None):
        self.model, self.limit, self.pieces, self.padding = model, model.config.max_seq_len, [ids], padding
        weight = model.embed.weight
        mixed = torch.is_autocast_enabled(weight.device.type)
        dtype = torch.get_autocast_dtype(weight.device.type) if mixed else weight.dtype
        room = min(room, self.limit)
        self.cache = KVCache(model.config, len(ids), room, weight.device, dtype) if ids.shape[1] <= room else None

    def advance(self, new: Tensor | None = None) -> Tensor:
        """Read `new` (B,), or the prompt where there is none, and return the logits (B, V) for the next token."""
        if new is not None:
            self.pieces.append(new[:, None])
        if self.cache is not None and self.cache.length + self.pieces[-1].shape[1] > self.cache.max_len:
            self.cache = None
        if self.cache is None:
            ids = torch.cat(self.pieces, dim=1)  # (B, S)
            self.pieces = [ids[:, -self.limit :]]  # (B, T)
            if self.padding is not None:  # of the ids that are too many, it goes first
                self.padding = (self.padding - max(0, ids.shape[1] - self.limit)).clamp_min(0)  # (B)
        with torch.inference_mode():  # spares every small operation what autograd notes of it
            return self.model(self.pieces[-1], self.cache, self.padding, last_only=True)[:, 0]  # (B, V)

    def select(self, rows: Tensor) -> None:
        """Continue with the sequences `rows` (B,), in that order."""
        self.pieces = [torch.cat(self.pieces, dim=1)[rows]]
        if self.cache is not None:
            self.cache.select(rows)


@dataclass(frozen=True)
class Options:
    """How to continue a text; the fields are explained at `generate`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    stop_ids: Sequence[int] = ()
    pad_id: int = 0
    overflow: str = "slide"
    generator: torch.Generator | None = None
    padding: Tensor | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        stops = self.stop_ids.tolist() if isinstance(self.stop_ids, Tensor) else self.stop_ids
        if isinstance(stops, str) or not isinstance(stops, Iterable):
            raise TypeError(f"stop_ids must be a list of token ids, got {stops!r}; for one id use [5]")
        object.__setattr__(self, "stop_ids", tuple(t.item() if isinstance(t, Tensor) else t for t in stops))
        if not isinstance(self.generator, torch.Generator | None):
            fix = "use torch.Generator().manual_seed(0)"
            raise TypeError(f"generator must be a torch.Generator, got {self.generator!r}; {fix}")

    def n_tokens(self, model: TransformerLM, ids: Tensor, max_new_tokens: int) -> int:
        """Return how many tokens to add to ids (B, T) at most; raise TypeError or ValueError for impossible options."""
        V, limit = model.config.vocab_size, model.config.max_seq_len
        check_ids(ids, V)
        if self.padding is not None:
            check_padding(self.padding, *ids.shape)
        check_number("max_new_tokens", max_new_tokens, Integral, lambda n: n >= 0, "an integer of at least 0")
        drawn = V if self.vocab_size is None else self.vocab_size
        check_number("vocab_size", drawn, Integral, lambda n: 1 <= n <= V, f"an integer from 1 to {V}")
        check_options(drawn, self.temperature, self.top_k, self.top_p, self.min_p)
        for name, token in [("pad_id", self.pad_id), *(("stop id", t) for t in self.stop_ids)]:
            check_number(name, token, Integral, lambda t: 0 <= t < V, f"an integer in 0..{V - 1} (vocab_size - 1)")
        return pick(OVERFLOWS, self.overflow, "overflow")(ids.shape[1], max_new_tokens, limit)

    def draw(self, logits: Tensor) -> Tensor:
        """Draw the next token of every row of logits (B, V). Returns (B,)."""
        return sample(next_token_probs(logits, self.temperature, self.top_k, self.top_p, self.min_p), self.generator)


def generate(
    model: TransformerLM,
    ids: Tensor,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    stop_ids: Sequence[int] = (),
    pad_id: int = 0,
    overflow: str = "slide",
    generator: torch.Generator | None = None,
    padding: Tensor | None = None,
    vocab_size: int | None = None,
) -> Tensor:
    """Continue every sequence of a batch.

    ids (B, T): the prompts. temperature, top_k, top_p, min_p: as in `next_token_probs`. stop_ids: a sequence ends with
    the first of these it produces and is filled with pad_id from there. overflow: beyond the model's max_seq_len,
    "slide" predicts from the last max_seq_len tokens, "stop" ends there, "error" refuses at once.
    generator: source of randomness, on the device of ids; default torch's global one.
    padding (B,): how many ids of each prompt, from its first on, are padding, see `pad_left`; a row is continued as its
    text alone would be. vocab_size: ids from there on are never drawn, where the tokenizer has fewer than the model.
    Returns (B, T + n): prompts and continuations, n at most max_new_tokens, less where all sequences ended before.
    Raises TypeError or ValueError for prompts and options that cannot be followed, before anything is generated.
    """
    options = Options(temperature, top_k, top_p, min_p, stop_ids, pad_id, overflow, generator, padding, vocab_size)
    n_tokens = options.n_tokens(model, ids, max_new_tokens)
    with evaluation_mode(model):
        new = torch.cat((ids[:, :0], *_steps(model, ids, n_tokens, options)), dim=1)  # (B, N)
    stopped = torch.isin(new, ids.new_tensor(options.stop_ids)).cumsum(1) > 0  # (B, N)
    return torch.cat((ids, new[:, : 1 + int((~stopped).any(0).sum())]), dim=1)  # no columns of nothing but pads


def _with_options_of(other: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Give a function that passes its options on the signature of the other, for editors and `help`."""

    def shown(function: Callable[..., R]) -> Callable[P, R]:
        function.__signature__ = signature(other).replace(return_annotation=signature(function).return_annotation)
        return function

    return shown


@_with_options_of(generate)
def stream(model: TransformerLM, ids: Tensor, max_new_tokens: int, **options: Any) -> Iterator[Tensor]:
    """Yield the next token of every sequence, (B,), as soon as it is there. The options are those of `generate`.

    All of them are checked at the call, before the first token. A sequence that met a stop id continues with pads; the
    stream ends within 16 tokens of the last sequence's end. Between two tokens the model is in its own mode.
    """
    chosen = Options(**options)
    steps = zip(_steps(model, ids, chosen.n_tokens(model, ids, max_new_tokens), chosen))  # a tensor is slow to compare
    one_more = evaluation_mode(model, list(model.modules()))(lambda: next(steps, ()))  # the mode of a call is its own
    return (new[:, 0] for (new,) in iter(one_more, ()))  # each (B)


def _steps(model: TransformerLM, ids: Tensor, n_tokens: int, options: Options) -> Iterator[Tensor]:
    """Yield the next token of every sequence, (B, 1), until all are finished; the caller sets evaluation mode."""
    context = Context(model, ids, ids.shape[1] + n_tokens, options.padding)
    stops, finished = ids.new_tensor(options.stop_ids), torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    maxima, new = [], None  # of the steps since the last look
    for step in range(1, n_tokens + 1):
        logits = context.advance(new)[:, : options.vocab_size]  # (B, V)
        maxima.append(logits.amax(-1))
        new = options.draw(logits).to(ids.dtype)  # (B)
        if options.stop_ids:
            new = new.where(~finished, options.pad_id)  # (B)
            finished |= torch.isin(new, stops)
        if step % STEPS_PER_LOOK == 0 or step == n_tokens:
            check_finite(torch.cat(maxima))
            maxima.clear()
        yield new[:, None]  # (B, 1)
        if step % STEPS_PER_LOOK == 0 and finished.all():
            return


def _slide(n_prompt: int, n_new: int, limit: int) -> int:
    return n_new


def _stop(n_prompt: int, n_new: int, limit: int) -> int:
    return max(0, min(n_new, limit - n_prompt))


def _refuse(n_prompt: int, n_new: int, limit: int) -> int:
    if n_prompt + n_new > limit:
        raise ValueError(
            f"{n_prompt} prompt tokens and {n_new} new ones exceed max_seq_len {limit}; "
            f"ask for fewer, or choose overflow 'slide' or 'stop'"
        )
    return n_new


OVERFLOWS = {"slide": _slide, "stop": _stop, "error": _refuse}


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

    ids (T,): one prompt. length_penalty: continuations of n new tokens compare by log_prob / n**length_penalty, so 0
    favours short ones and 1 compares the mean per token. stop_ids: end a continuation
    and stay in it; one among the n best is then set aside, and n others continue. vocab_size: as in `generate`; the
    probabilities are those among the ids below it.
    Returns at most n_beams (tokens, log_prob), best first: the prompt with its continuation, and the natural log of the
    continuation's probability, in nats.
    Raises TypeError or ValueError for a prompt or an option that cannot be followed.
    Source: Wu et al. 2016, section 7, with a plain power of the length.
    """
    check_size("n_beams", n_beams)
    check_number("length_penalty", length_penalty, Real, math.isfinite, "a finite number")
    if not isinstance(ids, Tensor) or ids.ndim != 1:
        got = tuple(ids.shape) if isinstance(ids, Tensor) else f"a {type(ids).__name__}"
        raise ValueError(f"beam search takes a tensor of one prompt, ids (T,), got {got}; use torch.tensor([1, 2])")
    options = Options(stop_ids=stop_ids, overflow="error", vocab_size=vocab_size)
    options.n_tokens(model, ids[None], max_new_tokens)
    with evaluation_mode(model):
        beams = _beams(model, ids, max_new_tokens, n_beams, options)
    return sorted(beams, key=lambda b: b[1] / max(1, len(b[0]) - len(ids)) ** length_penalty, reverse=True)[:n_beams]


def _beams(
    model: TransformerLM, ids: Tensor, max_new_tokens: int, n_beams: int, options: Options
) -> list[tuple[list[int], float]]:
    """The finished beams and those alive at the end, in no order."""
    alive, finished, new, stop_ids = [(ids.tolist(), 0.0)], [], None, set(options.stop_ids)
    context = Context(model, ids[None], room=len(ids) + max_new_tokens)
    for _ in range(max_new_tokens):
        logits = at_least_fp32(context.advance(new)[:, : options.vocab_size])  # (N, V)
        check_finite(logits.amax(-1))
        past = torch.tensor([[log_prob] for _, log_prob in alive], dtype=torch.float64)  # (N, 1)
        totals = (past + logits.log_softmax(-1).cpu().double()).flatten()  # (N*V)
        values, order = totals.sort(descending=True, stable=True)  # (N*V), (N*V)
        n = n_beams * (1 + len(stop_ids))  # enough to continue with n_beams even if all rows could stop
        V = logits.shape[-1]
        grown = [(i // V, i % V, lp) for i, lp in zip(order[:n].tolist(), values[:n].tolist(), strict=True)]
        finished += [([*alive[row][0], t], lp) for row, t, lp in grown[:n_beams] if t in stop_ids]
        going = [beam for beam in grown if beam[1] not in stop_ids][:n_beams]
        if not going:
            return finished
        alive = [([*alive[row][0], t], lp) for row, t, lp in going]
        rows, new = torch.tensor([beam[:2] for beam in going], device=ids.device).unbind(-1)  # (M), (M)
        context.select(rows)
    return finished + alive
