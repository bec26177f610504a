"""What examples teach in lesson 17: instructions with two names and two things, and stories that
answer them.
"""

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tinylm_lib import next_token_loss, storyworld
from tinylm_lib.model import TransformerLM
from tinylm_lib.rewards import rollouts

HELD_OUT = 1_000_000  # seeds from here on are for measurements alone
LONGEST = 128  # tokens of an instruction and its story


def about(text: str) -> list[str]:
    """The names and then the things of a story, in the order in which they appear."""
    said = list(dict.fromkeys(word.strip() for word in storyworld.words(text)))
    found = []
    for kind in ("name", "thing"):
        found += [word for word in said if word in storyworld.CLASSES[kind]]
    return found


def instruction(tokenizer: Any, text: str) -> list[int]:
    """A line with what a story is about, between two line ends."""
    return tokenizer.encode("\n " + " ".join(about(text)) + ".\n")


def fine_tuned(
    start: TransformerLM,
    tokenizer: Any,
    seed: int,
    *,
    answer_only: bool = True,
    n_updates: int = 32,
) -> TransformerLM:
    """The start after updates with 16 instructions and their stories each: with the loss on the
    story alone, or on both.
    """
    model = copy.deepcopy(start)
    source = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(n_updates):
        ids, targets = _examples(tokenizer, 16, source, answer_only)
        optimizer.zero_grad()
        next_token_loss(model(ids), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def _examples(
    tokenizer: Any, n: int, source: torch.Generator, answer_only: bool
) -> tuple[Tensor, Tensor]:
    """Inputs and targets (n, T) of instructions with their stories."""
    (line_end,) = tokenizer.encode("\n")
    ids, targets = (torch.full((n, LONGEST), fill) for fill in (line_end, -100))
    for row in range(n):
        text = storyworld.story(source).text
        asked = instruction(tokenizer, text)
        tokens = torch.tensor((asked + tokenizer.encode(text + "\n"))[:LONGEST])
        ids[row, : len(tokens)] = tokens
        first = len(asked) if answer_only else 1
        targets[row, first : len(tokens)] = tokens[first:]
    return ids[:, :-1], targets[:, 1:]


def answered(model: TransformerLM, tokenizer: Any, seed: int) -> dict[str, str]:
    """An instruction, and how a model answers it."""
    text = storyworld.story(torch.Generator().manual_seed(seed)).text
    asked = instruction(tokenizer, text)
    options: dict[str, Any] = {"stop_ids": tokenizer.encode("\n")}
    options |= {"generator": torch.Generator().manual_seed(seed)}
    (ids,) = rollouts(model, [asked], 1, LONGEST - len(asked), **options).texts()
    return {tokenizer.decode(asked).strip(): tokenizer.decode(ids[len(asked) :]).strip()}


class Followed(NamedTuple):
    """Which part of what was asked stories contain, which part of them is possible, and the
    probability that a model begins a line with a name.
    """

    as_asked: float
    possible: float
    begins_with_name: float


@torch.no_grad()
def followed(model: TransformerLM, tokenizer: Any, n: int = 64, seed: int = 0) -> Followed:
    """How a model answers n new instructions."""
    sources = (torch.Generator().manual_seed(HELD_OUT + 1000 * seed + i) for i in range(n))
    wanted = [storyworld.story(source).text for source in sources]
    asked = [instruction(tokenizer, text) for text in wanted]
    line_end = tokenizer.encode("\n")
    draws = torch.Generator().manual_seed(seed)
    room = LONGEST - max(map(len, asked))
    texts = rollouts(model, asked, 1, room, stop_ids=line_end, generator=draws).texts()
    said = [tokenizer.decode(ids[len(a) :]) for ids, a in zip(texts, asked, strict=True)]
    found = []
    for text, want in zip(said, wanted, strict=True):
        found.append(len({*about(text)} & {*about(want)}) / len(about(want)))
    first = model(torch.tensor([line_end]))[0, -1].softmax(-1)  # (V)
    names = [tokenizer.ids[" " + name] for name in storyworld.CLASSES["name"]]
    begins = first[names].sum().item()
    return Followed(sum(found) / n, sum(map(_possible, said)) / n, begins)


def _possible(text: str) -> bool:
    return storyworld.log_prob(text) > -math.inf
