"""Text in, text out: prompts of different length in one batch, and a continuation as it grows.

Notebook 12.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .model import TransformerLM
from .sampling import stream
from .text.base import Tokenizer
from .text.chat import Turn

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # how a character looks whose bytes have not all come yet
# tokens; a character has at most 4 bytes, so what is unfinished for longer is not text
LONGEST_WAIT = 32


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Put prompts of different length into one batch, with `pad_id` in front of the shorter ones.

    Returns ids (B, T) and padding (B,), the number of pads in each row, as the model and `generate`
    take them.
    Raises ValueError where there is no prompt and for one that is not a list or is empty.
    """
    lengths = [len(p) if hasattr(p, "__len__") and not isinstance(p, str) else 0 for p in prompts]
    if not lengths or not all(lengths):
        raise ValueError(
            "prompts must be lists of at least one id, such as [[1, 2], [3]]; got "
            f"{str(prompts)[:60]}"
        )
    padding = max(lengths) - torch.tensor(lengths)  # (B)
    ids = torch.tensor(
        [[pad_id] * n + list(prompt) for n, prompt in zip(padding.tolist(), prompts, strict=True)]
    )
    return ids, padding


def stream_text(
    model: TransformerLM,
    tokenizer: Tokenizer,
    prompt: str,
    max_new_tokens: int = 500,
    *,
    stop: Sequence[str] = (),
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[str]:
    """Yield the continuation of a prompt, piece by piece, each as soon as no later token can change
    it.

    It ends at one of the ids in `tokenizer.ending`, before the first of the texts in `stop`, or
    after max_new_tokens. The other options are those of `generate`; ids that the tokenizer lacks
    are never drawn. All are checked at the call, before the first token. Beyond the model's
    max_seq_len it is predicted from the last tokens.
    Raises TypeError or ValueError for a prompt and options that cannot be followed.
    """
    if not isinstance(prompt, str):
        raise TypeError(
            f"prompt must be a text, got {type(prompt).__name__}; for token ids use stream"
        )
    tokens = [*tokenizer.beginning, *tokenizer.encode(prompt)]
    options: dict[str, Any] = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
    }
    text = _Text(tokenizer, tokens, stop)
    return _streamed(model, text, max_new_tokens, generator=generator, **options)


def stream_answer(
    model: TransformerLM,
    tokenizer: Tokenizer,
    dialogue: Sequence[Turn],
    max_new_tokens: int = 500,
    *,
    stop: Sequence[str] = (),
    **options: Any,
) -> Iterator[str]:
    """Yield the model's answer to a dialogue, see `Tokenizer.chat`, piece by piece.

    It ends also at the end of the turn, which is not part of it. All else is as in `stream_text`.
    Raises as both.
    """
    text = _Text(tokenizer, tokenizer.chat(dialogue), stop)
    text.stop.append(tokenizer.turn_end())
    return _streamed(model, text, max_new_tokens, **options)


def _streamed(
    model: TransformerLM, text: "_Text", max_new_tokens: int, **options: Any
) -> Iterator[str]:
    V = model.config.vocab_size
    ids = torch.tensor([text.tokens], device=model.embed.weight.device)
    options |= {
        "stop_ids": [i for i in text.tokenizer.ending if i < V],
        "vocab_size": min(text.tokenizer.vocab_size, V),
    }
    return filter(None, _pieces(text, stream(model, ids, max_new_tokens, **options)))


def _pieces(text: "_Text", steps: Iterator[Tensor]) -> Iterator[str]:
    """What is new with each token (1,), and the rest."""
    for new in steps:
        yield text.add(int(new))
        if text.ended:
            return
    yield text.rest()


class _Text:
    """Turns tokens into text as they come: each piece is what no later token can change.

    Only the tokens of the last piece and those after it are decoded. The last piece is needed
    because a decoder may treat spaces at the beginning of a text in another way. Where a decoder
    replaces all bytes of a run by U+FFFD because its end is not valid (byte fallback), what was
    valid has been shown.
    """

    def __init__(self, tokenizer: Tokenizer, tokens: list[int], stop: Sequence[str]):
        if isinstance(stop, str):
            raise TypeError(
                f"stop must be a list of texts, got the text {stop!r}; put it into a list"
            )
        self.tokenizer = tokenizer
        self.stop = list(stop)
        self.ended = False
        if not all(isinstance(s, str) and s for s in self.stop):
            raise ValueError(f"stop must be texts of at least one character, got {self.stop}")
        self.tokens = tokens
        if not self.tokens:
            raise ValueError("the prompt is empty; a model continues at least one token")
        self.n_read = len(self.tokens)
        self.n_shown = len(tokenizer.decode(self.tokens))
        self.held = ""  # may be the beginning of a text in `stop`

    def add(self, token: int) -> str:
        """Read the next token and return what is new."""
        if token in self.tokenizer.ending:
            return self.rest()
        self.tokens.append(token)
        text = self.tokenizer.decode(self.tokens)
        if text.endswith(UNFINISHED) and len(self.tokens) - self.n_read < LONGEST_WAIT:
            return ""
        new = text[self.n_shown :]
        self.tokens = self.tokens[self.n_read :]
        self.n_read = len(self.tokens)
        self.n_shown = len(self.tokenizer.decode(self.tokens))
        return self._until_stop(new)

    def rest(self) -> str:
        """End the text and return what was held back."""
        new = self._until_stop(self.tokenizer.decode(self.tokens)[self.n_shown :])
        self.ended = True
        return new + self.held

    def _until_stop(self, new: str) -> str:
        """What is certain of the held and the new text, which ends before a stop; what may begin
        one is held.
        """
        text = self.held + new
        if stops := [(text.find(s) + len(s), text.find(s)) for s in self.stop if s in text]:
            self.ended = True
            self.held = ""
            return text[: min(stops)[1]]
        certain = len(text) - max(map(partial(_begun, text), self.stop), default=0)
        self.held = text[certain:]
        return text[:certain]


def _begun(text: str, stop: str) -> int:
    """How many letters at the end of a text may be the beginning of a stop string."""
    return max((n for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
