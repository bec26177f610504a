"""sample: a model continues a prompt."""

import argparse
from typing import Any

import torch

from ..model import TransformerLM
from ..pretrained import load_hf, load_hf_tokenizer
from ..runs.job import RunConfig
from ..sampling import stream
from ..text.base import Tokenizer
from ..training import checkpoint
from ..training.loop import choose_device

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # a character whose bytes have not all come yet


def add_sample(commands: Any) -> None:
    """Add the command and its flags."""
    p = commands.add_parser("sample", help="continue a prompt")
    p.set_defaults(do=run_sample)
    where = p.add_mutually_exclusive_group()
    where.add_argument("--checkpoint", default=RunConfig.out, help=f"folder of a checkpoint (default {RunConfig.out})")
    where.add_argument("--from", dest="hugging_face", metavar="PATH_OR_ID", help="a Hugging Face model: folder or id")
    p.add_argument("--prompt", default=RunConfig.prompt, help=f"how the text begins (default {RunConfig.prompt!r})")
    p.add_argument("--max-new-tokens", type=int, default=500, help="length of the continuation (default 500)")
    p.add_argument("--temperature", type=float, default=0.8, help="0 is greedy, 1 the model's own (default 0.8)")
    p.add_argument("--top-k", type=int, help="keep the k most probable tokens")
    p.add_argument("--top-p", type=float, help="keep the most probable tokens up to this share")
    p.add_argument("--min-p", type=float, help="keep tokens with at least this share of the best one's probability")
    p.add_argument("--seed", type=int, help="the same seed gives the same text; default: another text each time")
    p.add_argument("--device", default="auto", help="auto takes the first of cuda, mps and cpu")


def opened(arguments: argparse.Namespace) -> tuple[TransformerLM, Tokenizer]:
    """The model and the tokenizer that the user names.

    Raises ValueError for a checkpoint without a tokenizer.
    """
    if arguments.hugging_face is not None:
        return load_hf(arguments.hugging_face), load_hf_tokenizer(arguments.hugging_face)
    found = checkpoint.load(checkpoint.latest(arguments.checkpoint))
    if found.tokenizer is None:
        raise ValueError(f"the checkpoint in {arguments.checkpoint} was saved without a tokenizer")
    return found.model, found.tokenizer


def run_sample(arguments: argparse.Namespace) -> None:
    """Stream the continuation of a prompt."""
    device = choose_device(arguments.device)
    model, tokenizer = opened(arguments)
    tokens = [*tokenizer.beginning, *tokenizer.encode(arguments.prompt)]
    if not tokens:
        raise ValueError("the prompt is empty; a model continues at least one token")
    ids = torch.tensor([tokens], device=device)
    if arguments.seed is not None and arguments.seed.bit_length() > 63:
        raise ValueError(f"seed must fit into 64 bits, got {arguments.seed}")
    generator = torch.Generator(device)
    generator.seed() if arguments.seed is None else generator.manual_seed(arguments.seed)
    options = {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "min_p")}
    steps = stream(model.to(device), ids, arguments.max_new_tokens, generator=generator, **options)
    print(arguments.prompt, end="", flush=True)
    shown = tokenizer.decode(tokens)
    for step in steps:
        tokens.append(step.item())
        written = tokenizer.decode(tokens)
        if not written.endswith(UNFINISHED):
            print(written[len(shown) :], end="", flush=True)
            shown = written
    print(tokenizer.decode(tokens)[len(shown) :])
