"""Writing: sampling and streaming, over a cache. Notebook 12."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from .cache import KVCache
from .inputs import check_ids, check_number, check_padding, with_options_of
from .layers import evaluation_mode, pick
from .model import TransformerLM
from .probabilities import check_finite, check_options, next_token_probs, sample

STEPS_PER_LOOK = 16  # reading a flag stalls a GPU, so it is done once in so many tokens


class Context:
    """What the model has read so far; `advance` reads on, through a cache while everything fits.

    Beyond max_seq_len each token is predicted from the last max_seq_len tokens, which are read
    again.
    """

    def __init__(self, model: TransformerLM, ids: Tensor, room: int, padding: Tensor | None = None):
        self.model = model
        self.limit = model.config.max_seq_len
        self.pieces = [ids]
        self.padding = padding
        weight = model.embed.weight
        mixed = torch.is_autocast_enabled(weight.device.type)
        dtype = torch.get_autocast_dtype(weight.device.type) if mixed else weight.dtype
        room = min(room, self.limit)
        self.cache = None
        if ids.shape[1] <= room:
            self.cache = KVCache(model.config, len(ids), room, weight.device, dtype)

    def advance(self, new: Tensor | None = None) -> Tensor:
        """Read `new` (B,), or the prompt at first. Returns the next token's logits (B, V)."""
        if new is not None:
            self.pieces.append(new[:, None])
        n_new = self.pieces[-1].shape[1]
        if self.cache is not None and self.cache.length + n_new > self.cache.max_len:
            self.cache = None
        if self.cache is None:
            ids = torch.cat(self.pieces, dim=1)  # (B, S)
            self.pieces = [ids[:, -self.limit :]]  # (B, T)
            if self.padding is not None:  # of the ids that are too many, it goes first
                n_left_out = max(0, ids.shape[1] - self.limit)
                self.padding = (self.padding - n_left_out).clamp_min(0)  # (B)
        with torch.inference_mode():  # spares every small operation what autograd notes of it
            logits = self.model(self.pieces[-1], self.cache, self.padding, last_only=True)
            return logits[:, 0]  # (B, 1, V) -> (B, V)

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
            raise TypeError(
                f"stop_ids must be a list of token ids, got {stops!r}; for one id use [5]"
            )
        stops = tuple(t.item() if isinstance(t, Tensor) else t for t in stops)
        object.__setattr__(self, "stop_ids", stops)
        if not isinstance(self.generator, torch.Generator | None):
            fix = "use torch.Generator().manual_seed(0)"
            raise TypeError(f"generator must be a torch.Generator, got {self.generator!r}; {fix}")

    def n_tokens(self, model: TransformerLM, ids: Tensor, max_new_tokens: int) -> int:
        """How many tokens to add to ids (B, T) at most.

        Raises TypeError or ValueError for impossible options.
        """
        V = model.config.vocab_size
        check_ids(ids, V)
        if self.padding is not None:
            check_padding(self.padding, *ids.shape)
        n_ids = V if self.vocab_size is None else self.vocab_size
        sizes = f"an integer from 1 to {V}"
        token_ids = f"an integer in 0..{V - 1} (vocab_size - 1)"
        at_least_0 = "an integer of at least 0"
        check_number("max_new_tokens", max_new_tokens, Integral, lambda n: n >= 0, at_least_0)
        check_number("vocab_size", n_ids, Integral, lambda n: 1 <= n <= V, sizes)
        check_options(n_ids, self.temperature, self.top_k, self.top_p, self.min_p)
        check_number("pad_id", self.pad_id, Integral, lambda t: 0 <= t < V, token_ids)
        for token in self.stop_ids:
            check_number("stop id", token, Integral, lambda t: 0 <= t < V, token_ids)
        n_after = pick(OVERFLOWS, self.overflow, "overflow")
        return n_after(ids.shape[1], max_new_tokens, model.config.max_seq_len)

    def draw(self, logits: Tensor) -> Tensor:
        """Draw the next token of every row of logits (B, V). Returns (B,)."""
        probs = next_token_probs(logits, self.temperature, self.top_k, self.top_p, self.min_p)
        return sample(probs, self.generator)


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

    ids (B, T): the prompts. temperature, top_k, top_p, min_p: as in `next_token_probs`. stop_ids: a
    sequence ends with the first of these it produces and is filled with pad_id from there.
    overflow: beyond the model's max_seq_len, "slide" predicts from the last max_seq_len tokens,
    "stop" ends there, "error" refuses at once.
    generator: source of randomness, on the device of ids; default torch's global one.
    padding (B,): how many ids of each prompt, from its first on, are padding, see `pad_left`; a row
    is continued as its text alone would be. vocab_size: ids from there on are never drawn, where
    the tokenizer has fewer than the model.
    Returns (B, T + n): prompts and continuations, n at most max_new_tokens, less where all
    sequences ended before.
    Raises TypeError or ValueError for prompts and options that cannot be followed, before anything
    is generated.
    """
    options = Options(
        temperature, top_k, top_p, min_p, stop_ids, pad_id, overflow, generator, padding, vocab_size
    )
    n_tokens = options.n_tokens(model, ids, max_new_tokens)
    with evaluation_mode(model):
        new = torch.cat((ids[:, :0], *_steps(model, ids, n_tokens, options)), dim=1)  # (B, N)
    stopped = torch.isin(new, ids.new_tensor(options.stop_ids)).cumsum(1) > 0  # (B, N)
    n_used = 1 + int((~stopped).any(0).sum())  # behind it are pads alone
    return torch.cat((ids, new[:, :n_used]), dim=1)


@with_options_of(generate)
def stream(
    model: TransformerLM, ids: Tensor, max_new_tokens: int, **options: Any
) -> Iterator[Tensor]:
    """Yield the next token of every sequence, (B,), as soon as it is there.

    The options are those of `generate`, and checked at the call, before the first token. A sequence
    that met a stop id continues with pads; the stream ends within 16 tokens of the last sequence's
    end. Between two tokens the model is in its own mode.
    """
    chosen = Options(**options)
    n_tokens = chosen.n_tokens(model, ids, max_new_tokens)
    return _streamed(model, _steps(model, ids, n_tokens, chosen))


def _streamed(model: TransformerLM, steps: Iterator[Tensor]) -> Iterator[Tensor]:
    modules = list(model.modules())
    while True:
        with evaluation_mode(model, modules):
            new = next(steps, None)
        if new is None:
            return
        yield new[:, 0]  # (B, 1) -> (B)


def _steps(model: TransformerLM, ids: Tensor, n_tokens: int, options: Options) -> Iterator[Tensor]:
    """Yield the next token of every sequence, (B, 1), until all are finished.

    The caller sets evaluation mode.
    """
    context = Context(model, ids, ids.shape[1] + n_tokens, options.padding)
    stops = ids.new_tensor(options.stop_ids)
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    maxima = []  # of the steps since the last look
    new = None
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
